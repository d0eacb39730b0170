/* SPDX-License-Identifier: Apache-2.0 */
/* What padding (pad.c) does for gradients of slices: the inverse, with zeros. */
#ifndef SHERD__OPS_PAD_H
#define SHERD__OPS_PAD_H

#include "apply/sketch.h"

/*
 * `t` as a part of dim `dim`, of size n, of a tensor of zeros. If t has the layout of that part of
 * `like`, the result has the layout of `like`, which may be NULL.
 */
sherd_tensor *sherd__embed(sherd_tensor *t, int dim, int64_t n, sherd__part part,
                           const sherd_layout *like);

#endif
