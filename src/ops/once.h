/* SPDX-License-Identifier: Apache-2.0 */
/* Entries that are wanted several times are asked for once: lists of requests without repeats. */
#ifndef SHERD__OPS_ONCE_H
#define SHERD__OPS_ONCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sherd/dtype.h"
#include "sherd/layout.h"

/*
 * code[0..n) in [0, length) becomes its distinct numbers, in the order in which they first occur;
 * which[j] is where the j-th is now. place[length] is scratch. Returns how many there are.
 */
int64_t sherd__ask_once(int32_t *code, int64_t n, int32_t *which, int32_t *place, int64_t length);

/* Entries of [outer, n, inner], of `bytes` for an element, by their numbers in dim 1. */
typedef struct sherd__entries {
    int64_t n;
    const int32_t *index; /* [count] */
} sherd__entries;

/* dst[o, to[j], i] = src[o, from[j], i] for all j < count. */
void sherd__copy_entries(size_t bytes, const int64_t outer_inner[2], int64_t count,
                         sherd__entries to, void *dst, sherd__entries from, const void *src);

/*
 * to[0..n) = what changes no element in a reduction: 0 in a sum, 1 in a product, else the least or
 * the largest number. `dtype`: no 16 bits.
 */
void sherd__fill_neutral(sherd_dtype dtype, sherd_reduce_op how, int64_t n, void *to);

#endif
