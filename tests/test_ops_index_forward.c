/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops_forward.c for the operators by index and on whole dims (SHERD_PROOF=1: see there). */
#define OTHER_CASES "ops_cases_index.h"
#include "test_ops_forward.c"
