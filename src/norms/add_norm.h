/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What forward and backward of a residual sum with its norm share: attributes, and rows in blocks
 * that fit the first-level cache. The kernels of the single operators process one block after the
 * other, so memory is read and written once.
 */
#ifndef SHERD__NORMS_ADD_NORM_H
#define SHERD__NORMS_ADD_NORM_H

#include "norm_rows.h"

typedef struct sherd__add_norm {
    sherd__row_norm_attributes norm; /* first: norm_rows.c looks at no more */
    double p;
    sherd__key key;
    int dtype; /* of the norm; in backward, of the gradient of delta */
} sherd__add_norm;

#define SHERD__ADD_NORM_ATTRIBUTES                                                              \
    .field = {SHERD_FIELD(sherd__add_norm, norm.eps, DOUBLE),                                   \
              SHERD_FIELD(sherd__add_norm, norm.more, INT64),                                   \
              SHERD_FIELD(sherd__add_norm, p, DOUBLE), SHERD__KEY_FIELDS(sherd__add_norm, key), \
              SHERD_FIELD(sherd__add_norm, dtype, INT)},                                        \
    .attributes = sizeof(sherd__add_norm)

/* Operands and results; an RMS norm has no bias, and its rstd is where the mean would be. */
enum { X, DELTA, WEIGHT, BIAS };
enum { NORM, SUM, MEAN, RSTD };

/* A call that goes block by block. Scratch is NULL if it is not needed. */
typedef struct sherd__blocks {
    sherd_call *call;
    const sherd__add_norm *how;
    const sherd__row_norm *of;
    const sherd__kernel_set *set;
    const sherd__kernels *kernels; /* of x */
    sherd__normed_rows p;
    size_t element;   /* bytes, of x */
    int64_t step;     /* rows of a block */
    sherd__walk walk; /* through the tensor that dropout applies to */
    int64_t walked;   /* elements of the present run that are done */
    void *dropped;    /* scratch: delta of a block, after dropout */
    void *wide;       /* scratch: 16-bit elements of a block, in the dtype of x */
    /* scratch: the norm of a block, in the dtype of x; of all rows if they are on several ranks */
    void *norm;
} sherd__blocks;

/*
 * For rows of x, with one number per row; `dropped`: the tensor whose elements dropout applies to.
 */
sherd__blocks sherd__blocks_begin(sherd_call *call, const sherd__row_norm *of,
                                  const sherd_tensor *x, const sherd_tensor *per_row,
                                  const sherd_tensor *dropped);

/* Scratch for elements of x; NULL unless it is wanted. False: failed. */
bool sherd__block_room(sherd__blocks *w, void **room, bool wanted, int64_t elements);

/* Dropout of the next n elements, of the dtype of these kernels. */
void sherd__block_drop(sherd__blocks *w, const sherd__kernels *kernels, size_t element, int64_t n,
                       char *to, const char *from);

static inline void *sherd__block_at(const sherd__blocks *w, void *base, int64_t i)
{
    return base ? (char *)base + (size_t)i * w->element : NULL;
}

static inline const void *sherd__block_from(const sherd__blocks *w, int operand, int64_t i,
                                            size_t element)
{
    const char *base = w->call->from[operand];

    return base ? base + (size_t)i * element : NULL;
}

/* On the GPU; rows are whole. False: failed. */
bool sherd__add_norm_there(sherd__blocks *w);
/* Which operands and results its gradient has where. */
typedef struct sherd__add_norm_grad {
    int dy, sum, dx, dweight, dbias, ddelta;
} sherd__add_norm_grad;
bool sherd__add_norm_grad_there(sherd__blocks *w, const sherd__add_norm_grad *g);

/* Backward of both. */
void sherd__add_layer_norm_back(sherd_node *node, sherd_tensor *const *grad_out,
                                sherd_tensor **grad_in);
void sherd__add_rms_norm_back(sherd_node *node, sherd_tensor *const *grad_out,
                              sherd_tensor **grad_in);

#endif
