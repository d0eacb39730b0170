/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of neighbourhood attention share: attributes, layouts, and what is read around. */
#ifndef SHERD__NEIGHBOURS_OPS_H
#define SHERD__NEIGHBOURS_OPS_H

#include "kernels/neighbours.h"
#include "operator.h"

enum { SHERD__NEIGHBOURS_BATCH, SHERD__NEIGHBOURS_SPACE };

typedef struct sherd__neighbours_attributes {
    int64_t kernel[SHERD__NEIGHBOUR_DIMS], dilation[SHERD__NEIGHBOUR_DIMS];
    double scale;
} sherd__neighbours_attributes;

/* How the operands of forward lie: q as it is, k and v so that windows of them are those of q. `sum` as q without width. */
typedef struct sherd__neighbours_lying {
    const sherd_layout *q, *k, *v, *sum;
} sherd__neighbours_lying;

/* For q, k and v given as operands `q` and the two behind it. */
sherd_status sherd__neighbours_lie(sherd__neighbours_lying *out, const sherd_ways *ways, int q);

/* One dim of size n: all neighbours of the queries [lo, hi), and all queries that have a neighbour among them; lo < hi. */
void sherd__neighbours_keys(int64_t n, int64_t kernel, int64_t dilation, int64_t lo, int64_t hi,
                            int64_t *first, int64_t *end);
void sherd__neighbours_queries(int64_t n, int64_t kernel, int64_t dilation, int64_t lo, int64_t hi,
                               int64_t *first, int64_t *end);

#endif
