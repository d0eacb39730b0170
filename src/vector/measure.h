/* SPDX-License-Identifier: Apache-2.0 */
/* What a core of this machine reaches, measured when somebody asks. */
#ifndef SHERD__VECTOR_MEASURE_H
#define SHERD__VECTOR_MEASURE_H

#include "kernels/kernels.h"

/*
 * Measured rates of this core, 1e9 FLOP/s: of f32 multiply-adds in registers, or of products by
 * them where those are faster; of a product of 1024^3, which AMX makes faster than that, 0 if there
 * is no memory; and the peak of bf16: that of f32 where it has no faster instruction, 0 with AMX,
 * which is not measured.
 */
typedef struct sherd__rates {
    double peak, gemm, bf16;
} sherd__rates;

sherd__rates sherd__measure_rates(const sherd__kernel_set *set);
/*
 * 1e9 FLOP/s that this core does during the next `length` seconds. Below the peak by what a
 * neighbour takes: another program, or on a virtual machine whatever else its host runs on the same
 * core.
 */
double sherd__measure_now(double length);

#endif
