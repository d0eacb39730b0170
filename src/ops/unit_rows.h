/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forwards of operators on rows that are whole here, by the CPU: rows over their lengths, cosines
 * of the angles of pairs of rows, and gradients. Operands have one shape, the row is the last dim;
 * attributes: sherd__unit_rows.
 */
#ifndef SHERD__OPS_UNIT_ROWS_H
#define SHERD__OPS_UNIT_ROWS_H

#include "shared.h"

enum { SHERD__UNIT_FEW = 16 /* elements of a row for which calls of kernels are worth it */ };

typedef struct sherd__unit_rows {
    double eps; /* lengths are at least so */
} sherd__unit_rows;

/* y = a / length of operand a */
bool sherd__unit_forward(sherd_call *call);
/* da of operands a, dy */
bool sherd__unit_grad(sherd_call *call);
/* y[rows] of operands a, b */
bool sherd__cosine_forward(sherd_call *call);
/* da, db of operands a, b, dy[rows] */
bool sherd__cosine_grad(sherd_call *call);

#endif
