/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops_forward.c for the operators on shape and index (SHERD_PROOF=1: see there). */
#define OTHER_CASES "ops_cases_shape.h"
#include "test_ops_forward.c"
