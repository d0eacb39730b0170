/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference: whole tensors of whole numbers, and what operators make of them. Each function
 * returns the index of a new value in the program, or -1 where there is no room, or where the
 * result might not be exact in `dtype`.
 */
#ifndef STRESS_VALUE_H
#define STRESS_VALUE_H

#include "program.h"

int value_new(program *p, int ndim, const int64_t *shape);
int value_constant(program *p, int ndim, const int64_t *shape, double number);
/* Of addends that ranks make by `key`. */
int value_reduced(program *p, int ndim, const int64_t *shape, const addends *a, uint64_t key);
/* `v` where ranks of `writers` have written the elements of their boxes anew. */
int value_written(program *p, int v, const layout_plan *l, unsigned writers, const addends *a,
                  uint64_t key);
int value_drawn(program *p, int ndim, const int64_t *shape, uint64_t name, uint64_t call);
int value_dropped(program *p, int v, double probability, uint64_t name, uint64_t call);
int value_sum_of(program *p, int v, int w, double factor, sherd_dtype dtype); /* v + factor w */
int value_product_of(program *p, int v, int w, sherd_dtype dtype);
int value_scaled(program *p, int v, double factor, sherd_dtype dtype);
int value_relu(program *p, int v);
/* 1 where v > 0, else 0 */
int value_step(program *p, int v);
int value_sum(program *p, int v, sherd_dtype dtype);
int value_matmul(program *p, int v, int w, sherd_dtype dtype);
int value_transposed(program *p, int v, int a, int b);
int value_reshaped(program *p, int v, int ndim, const int64_t *shape);

#endif
