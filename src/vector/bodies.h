/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that are written once, in plain C, and compiled for each instruction set: the compiler
 * finds the vectors, and all compute the same bits. Those of layers are asked for beside a table,
 * and are as wide as that, so SHERD_KERNELS counts for them too; loops that compare, fold and
 * convert are put into the tables.
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

/* Put the loops of AVX2 into the tables, which hold the plain ones. AVX-512 takes these too: they
 * wait for memory. */
void sherd__install_bodies_avx2(sherd__kernel_set *set);

#endif
