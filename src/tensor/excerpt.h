/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An excerpt of a tensor as a small tensor: of each dim all indices, or the first and the last
 * ones.
 */
#ifndef SHERD__TENSOR_EXCERPT_H
#define SHERD__TENSOR_EXCERPT_H

#include "tensor/tensor.h"

/* Which indices. A scalar counts as [1]. */
typedef struct sherd__excerpt {
    int ndim;
    int64_t shape[SHERD_MAX_DIMS]; /* of the tensor */
    int64_t size[SHERD_MAX_DIMS];  /* of the excerpt */
    /* how many are at the beginning of the dim; the rest at its end */
    int64_t head[SHERD_MAX_DIMS];
} sherd__excerpt;

/* All of a tensor, or `edge` at each end of the dims that are longer than that. */
sherd__excerpt sherd__excerpt_of(const sherd_tensor *t, int64_t edge);
/* Global index of the i-th one in a dim. */
static inline int64_t sherd__excerpt_index(const sherd__excerpt *e, int dim, int64_t i)
{
    return i < e->head[dim] ? i : e->shape[dim] - (e->size[dim] - i);
}

/*
 * The values, settled, whole and contiguous, on one world rank of the tensor's mesh; for a plain
 * tensor the rank's own. Nothing else is sent. In the current scope; not recorded. Collective like
 * a move.
 */
sherd_tensor *sherd__excerpt_take(const sherd__excerpt *e, sherd_tensor *t, int rank);

#endif
