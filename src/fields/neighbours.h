/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of neighbourhood attention share: attributes, layouts, and what is read around. */
#ifndef SHERD__FIELDS_NEIGHBOURS_H
#define SHERD__FIELDS_NEIGHBOURS_H

#include "kernels/neighbours.h"
#include "ops/shared.h"

enum { SHERD__NEIGHBOURS_BATCH, SHERD__NEIGHBOURS_SPACE };

typedef struct sherd__neighbours_attributes {
    int64_t kernel[SHERD__NEIGHBOUR_DIMS], dilation[SHERD__NEIGHBOUR_DIMS];
    double scale;
} sherd__neighbours_attributes;

/*
 * The layouts of forward's operands: q is not moved; k and v are moved so that their windows are
 * those of q. `sum` is as q without width.
 */
typedef struct sherd__neighbours_lying {
    const sherd_layout *q, *k, *v, *sum;
} sherd__neighbours_lying;

/* For q, k and v given as operands `q` and the two behind it. */
sherd_status sherd__neighbours_lie(sherd__neighbours_lying *out, const sherd_ways *ways, int q);

/*
 * For one dim of size n: the interval of all neighbours of the queries [lo, hi), and of all queries
 * with a neighbour in it; lo < hi.
 */
void sherd__neighbours_keys(int64_t n, int64_t kernel, int64_t dilation, int64_t lo, int64_t hi,
                            int64_t *first, int64_t *end);
void sherd__neighbours_queries(int64_t n, int64_t kernel, int64_t dilation, int64_t lo, int64_t hi,
                               int64_t *first, int64_t *end);

#endif
