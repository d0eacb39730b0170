/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the files that make convolutions with oneDNN 2: one convolution as it is kept, and how
 * its operands lie. Included only where that is.
 */
#ifndef SHERD__KERNELS_CONV_KEPT_H
#define SHERD__KERNELS_CONV_KEPT_H

#include "onednn.h"

enum {
    SHERD__CONV_BIAS = SHERD__CONV_ARRAYS,
    SHERD__CONV_OPERANDS,
    SHERD__CONV_ALL_DIMS = 2 + SHERD__CONV_DIMS
};

/* What is to be made: the key by which it is kept. Without biases and blocks: 0. */
typedef struct sherd__conv_wish {
    int64_t kind, biased;
    int64_t block; /* channels of a block, where a kernel of our own makes it */
    sherd__conv conv;
} sherd__conv_wish;

/*
 * A convolution as it is kept. oneDNN's gradients of weights are fast only with padding of at most
 * half a kernel: with more of it, as where y is what lies around a piece, x is laid out with its
 * zeros.
 */
typedef struct sherd__conv_kept {
    sherd__engine *engine;
    dnnl_primitive_desc_t desc, hint; /* hint: the forward's, while a backward is made */
    dnnl_primitive_t primitive;       /* NULL: oneDNN does not do this one */
    bool own;                         /* the kernel of our own does, out of blocks */
    int ndim; /* 4 where the first dim of space is 1 all over, which is faster; else 5 */
    dnnl_memory_desc_t plain[SHERD__CONV_OPERANDS];
    dnnl_memory_desc_t blocks[SHERD__CONV_ARRAYS]; /* as `own` wants them */
    dnnl_dims_t x, zeros; /* sizes of what it sees of x, and how many of them come before x's own */
    int64_t images;       /* of the batch, that a call of the primitive takes: divides it */
    dnnl_memory_desc_t whole[SHERD__CONV_ARRAYS]; /* x and y of all, as the primitive has some */
} sherd__conv_kept;

/* What is kept of a wish, made if there is nothing yet; NULL: out of memory, and nothing is. */
const sherd__conv_kept *sherd__conv_find(sherd__engine *e, const sherd__conv_wish *w);

/* How an operand shall lie; x and y of the whole batch. */
const dnnl_memory_desc_t *sherd__conv_wanted(const sherd__conv_kept *k, sherd__conv_kind kind,
                                             int i);

/* Row-major descriptions of `ndim` dims; `size` may be of any of these. */
bool sherd__conv_row_major(const sherd__conv_kept *k, dnnl_memory_desc_t *out,
                           const dnnl_dims_t size);

/* In how many calls the primitive makes it: their results are added up. */
int64_t sherd__conv_calls(const sherd__conv_kept *k);

/* How what a call takes of an operand lies: of x and y some images. */
const dnnl_memory_desc_t *sherd__conv_taken(const sherd__conv_kept *k, sherd__conv_kind kind,
                                            int i);

/* Whether zeros are laid around x. */
bool sherd__conv_has_zeros(const sherd__conv_kept *k);

#endif
