/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of layers that are written once, in plain C, and compiled for each instruction set: the
 * compiler finds the vectors. They are as wide as the tables beside which they are asked for, so
 * SHERD_KERNELS counts for them too.
 */
#ifndef SHERD__BODIES_H
#define SHERD__BODIES_H

#include "kernels/norms.h"

typedef struct sherd__bodies {
    const sherd__norm_kernels *(*norms)(sherd_dtype dtype);
} sherd__bodies;
extern const sherd__bodies sherd__bodies_avx2, sherd__bodies_avx512;

/* As sherd__norm_kernels_of, for the instructions of this table. */
const sherd__norm_kernels *sherd__norms_by(const sherd__kernels *beside, sherd_dtype dtype);

#endif
