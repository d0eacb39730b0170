/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the kernels of folds.cu. */
#ifndef SHERD__PROGRAMS_FOLDS_ARGS_H
#define SHERD__PROGRAMS_FOLDS_ARGS_H

/*
 * What dst[outer,parts,inner] gets of src[outer,mid,inner] over mid, in parts of `length` but the
 * last. team: threads of a block that share a result, a power of two. Along inner, if that is not
 * 1, each takes several columns (wide), `tiles` blocks of them.
 */
typedef struct fold_args {
    void *dst;
    const void *src;
    int64_t outer, mid, inner, parts, length, tiles;
    int64_t *index;            /* of extremes: theirs go here, the elements to dst; or NULL */
    const int64_t *from_index; /* and come from here, below 0: none; or NULL: first + m step */
    int64_t first, step;
    int32_t team, wide;
    int32_t flag;    /* of extremes: the least; of truths: all of them */
    int32_t partial; /* dst gets what is folded on by another kernel, which has `joins` */
    int32_t joins;
} fold_args;
typedef fold_args fold_extreme_args;
typedef fold_args fold_where_args;
typedef fold_args fold_product_args;
typedef fold_args fold_total_args;
typedef fold_args fold_truth_args;
typedef fold_args fold_log_sum_args;

#endif
