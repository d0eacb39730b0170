/* SPDX-License-Identifier: Apache-2.0 */
/* Second derivatives of the elementwise functions of one operand. */
#ifndef SHERD__OPS_BEND_H
#define SHERD__OPS_BEND_H

#include "shared.h"

/*
 * g times dy times d(slope)/dt, of the slope as a function of t: of x, or of y for those whose
 * slope reads the value. NULL: it is 0 everywhere.
 */
sherd_tensor *sherd__bend(sherd__unary_kind kind, sherd_tensor *t, sherd_tensor *dy,
                          sherd_tensor *g, const double *parameter);

#endif
