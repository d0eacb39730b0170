/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of ops_exact.h, beside those of operators.h. */
#ifndef SHERD__APPLY_OPERATORS_EXACT_H
#define SHERD__APPLY_OPERATORS_EXACT_H

#include "sherd/op.h"

extern const sherd_op sherd__sum_exact_op, sherd__sum_exact_over_op;

#endif
