/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Convolutions: a family of operators with one geometry. A convolution reads `big` [batch, big
 * channels, ...] and makes `small` [batch, small channels, ...]; the weight is [small channels, big
 * channels / groups, ...]; element e of small reads the elements e stride - before + k dilation of
 * big. A transposed convolution reads small and makes big.
 */
#ifndef SHERD__FIELDS_CONV_H
#define SHERD__FIELDS_CONV_H

#include "kernels/conv.h"
#include "ops/shared.h"

typedef struct sherd__conv_attributes {
    int64_t groups;
    bool transposed; /* small is what was given first: the cuts of big follow from its */
    bool sized;      /* `size` is said, not computed */
    int64_t stride[SHERD__CONV_DIMS], dilation[SHERD__CONV_DIMS];
    int64_t before[SHERD__CONV_DIMS], after[SHERD__CONV_DIMS]; /* padding of big */
    int64_t extra[SHERD__CONV_DIMS]; /* transposed: how much larger big is */
    int64_t size[SHERD__CONV_DIMS];  /* spatial size of the result */
    int64_t kernel[SHERD__CONV_DIMS];
} sherd__conv_attributes;

/* Which operand is what; the missing one is the result. */
typedef struct sherd__conv_roles {
    int big, small, weight, bias, like; /* operand numbers; -1: none */
    bool both; /* none is missing: results are the gradients of what was read and of the weight */
} sherd__conv_roles;

/*
 * Shapes (conv_shapes.c) of the operators that compute small, or big, from the other and a weight;
 * the weight from both; both what was read and the weight.
 */
const char *sherd__conv_describe_small(sherd_call *call);
const char *sherd__conv_describe_big(sherd_call *call);
const char *sherd__conv_describe_weight(sherd_call *call);
const char *sherd__conv_describe_both(sherd_call *call);

/*
 * sherd_op.reads (conv_lie.c): the smallest interval of big that elements of small read, and the
 * converse.
 */
void sherd__conv_reads_big(const sherd_call *call, int i, int d, int64_t lo, int64_t hi,
                           int64_t *first, int64_t *end);
void sherd__conv_reads_small(const sherd_call *call, int i, int d, int64_t lo, int64_t hi,
                             int64_t *first, int64_t *end);

/* The ways of any of these operators. */
sherd_status sherd__conv_ways(const sherd_call *call, sherd_ways *ways,
                              const sherd__conv_roles *roles);

/*
 * Computing (conv_run.c). made: what to make, and for each of its arrays the number of the operand,
 * or ~0 and ~1 for results 0 and 1. pieces: the boxes of this rank; channels: those of the whole
 * big field.
 */
enum { SHERD__CONV_AT_ONCE = 2 };
typedef struct sherd__conv_made {
    sherd__conv_kind kind;
    int array[SHERD__CONV_ARRAYS];
} sherd__conv_made;
typedef struct sherd__conv_pieces {
    const sherd_box *big, *small;
    int64_t channels;
} sherd__conv_pieces;
/* `bias`: the operand that result 0 gets added; -1: none. False: failed. */
bool sherd__conv_make(sherd_call *call, const sherd__conv_pieces *all, const sherd__conv_made *made,
                      int tasks, int bias);

/*
 * Whether what a kernel reads of x are patches that do not meet (conv_patches.c); and the tasks of
 * such a geometry, without the bias. False: failed.
 */
bool sherd__conv_is_of_patches(const sherd__conv *c);
bool sherd__conv_by_patches(sherd_call *call, const sherd__conv *c, const sherd__conv_task *task,
                            int tasks);

#endif
