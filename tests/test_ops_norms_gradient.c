/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops_gradient.c for norms over items and channels (SHERD_PROOF=1: see there). */
#define OTHER_CASES "ops_cases_norms.h"
#include "test_ops_gradient.c"
