/* SPDX-License-Identifier: Apache-2.0 */
/* Norms over sets on the GPU (norms_there.c): forward of the operators in norms.c. */
#ifndef SHERD__NORMS_NORMS_THERE_H
#define SHERD__NORMS_NORMS_THERE_H

#include "norms.h"
#include "sets.h"

/*
 * Whether this call can compute there: no group's channels are on several ranks, and mean and
 * variance, operands or results, have the dtype that they are computed in; if they are `given`,
 * any that computes.
 */
bool sherd__norm_fits_there(const sherd_call *call, const sherd__sets *p, const sherd_tensor *mean,
                            const sherd_tensor *var, bool given);
/* Operands and results as in norms.c; `given`: moments are operands. False: failed. */
bool sherd__norm_there(sherd_call *call, const sherd__sets *p, bool given);
bool sherd__norm_grad_there(sherd_call *call, const sherd__sets *p, bool given);

#endif
