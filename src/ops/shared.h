/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What operators share, of this room and those below it: products, elementwise functions and
 * partial results where a call runs; sums to a shape, formulas and adjoints for backward.
 */
#ifndef SHERD__OPS_SHARED_H
#define SHERD__OPS_SHARED_H

#include "apply/operator.h"
#include "tensor/fields.h"

/*
 * A pending reduction that becomes so many times as large is settled before: later that would move
 * so much more, and nobody knows whether it is needed only in part.
 */
enum { SHERD__GROWTH = 4 };

/*
 * Numbers that all ranks know, beside an operand: spread as it is, unasked, since they are no
 * operand that somebody has given (sherd_op_promote).
 */
static inline sherd_tensor *sherd__known_beside(const sherd_tensor *operand, sherd_tensor *numbers,
                                                const char *name)
{
    const sherd_layout *layout = operand->layout;

    return layout ? sherd__promote(numbers, layout->spec.mesh, name) : numbers;
}

/* ---- for forward ---------------------------------------------------------------------------- */

/*
 * `times` products whose matrices follow one another in a, b and c, by the fastest kernel; all use
 * the same bias (or NULL). `p` describes the product, except for p->bias. False: failed.
 */
bool sherd__multiply(sherd_call *call, sherd__product p, int64_t times, void *c, const void *a,
                     const void *b, const void *bias);

/*
 * Products that differ in their rows (or, if p.ta, in their inner lengths): p.m (or p.k) is not
 * read. No kernel is made for each such length. p has no bias. False: failed.
 */
typedef struct sherd__run_product {
    int64_t rows;
    void *c;
    const void *a, *b;
} sherd__run_product;

bool sherd__multiply_runs(sherd_call *call, sherd__product p, const sherd__run_product *run,
                          int64_t runs);

/*
 * Operand 0 in the order of result 0, which is of its shape and dtype: where it is or, if it lies
 * otherwise, copied into the result, over which forward then writes.
 */
const void *sherd__in_order(const sherd_call *call);

/* Elementwise, into result 0, which has the dtype of the operands: elements.c. */
void sherd__unary_in(const sherd_call *call, sherd__unary_kind kind, const void *from,
                     const double *parameter);
void sherd__unary_grad_in(const sherd_call *call, sherd__unary_kind kind, const void *at,
                          const void *dy, const double *parameter);
/* Of operands 0 and 1, broadcast. */
void sherd__binary_in(const sherd_call *call, sherd__binary_kind kind);
/* Result j, of any dtype, to a value. */
void sherd__fill_in(const sherd_call *call, int j, double value);
/* sherd__copy_box, where the call runs. */
void sherd__copy_in(const sherd_call *call, size_t element_bytes, int ndim, const int64_t *size,
                    void *dst, const int64_t *dst_stride, const void *src,
                    const int64_t *src_stride);

/* Operand 0 of a forward that takes it `strided` as a row-major copy in scratch memory, unless it
 * is row-major. False: no memory. */
bool sherd__compact_operand(sherd_call *call);

/* The dims of more than one local element as they lie in memory, outermost first: how many. -1: the
 * piece has holes or overlaps. */
int sherd__dims_in_memory(const sherd_tensor *t, int *dim);

/* The sum of operand 0, which may be strided, over dims (bits) into result 0. False: failed. */
bool sherd__sum_dims(sherd_call *call, unsigned dims);

/*
 * For partial results that ranks exchange, a few elements for each position, where the call runs.
 * New parts [parts * width, kept dims of operand 0], `width` for each shard of its dims in
 * `reduced` (bits); this holds the rank's own, undefined. NULL: failed.
 */
sherd_tensor *sherd__new_parts(sherd_call *call, unsigned reduced, sherd_dtype dtype,
                               int64_t width);

/* How many shards there are, each with a part. */
int64_t sherd__parts_count(const sherd_call *call, const sherd_tensor *mine, int64_t width);

/*
 * Those of all shards, [*parts, width, positions], on all ranks; NULL: failed. Collective only if
 * there are several.
 */
const void *sherd__all_parts(sherd_call *call, unsigned reduced, sherd_tensor *mine, int64_t width,
                             int64_t *parts);

/* Whether sherd_copy_from would take a, not NULL, and b; refused as there if not. Nothing is
 * written. */
bool sherd__copy_fits(sherd_tensor *a, sherd_tensor *b);

/* What is wrong with a number that results of a dtype are to hold; NULL if they can. */
const char *sherd__value_fault(sherd_call *call, sherd_dtype dtype, double value);

/*
 * Strides of operand i along the dims of result 0, aligned at the last one; 0 where it broadcasts.
 */
void sherd__broadcast_strides(const sherd_call *call, int i, int64_t *stride);
/* Copy operand i to result 0, broadcast. */
void sherd__copy_broadcast(const sherd_call *call, int i);
/* In an expanded view one element stands for many: it can not be written. */
bool sherd__is_expanded(const sherd_tensor *a);

/* ---- for backward --------------------------------------------------------------------------- */

/* Apply a function of one operand, also a hidden one (kernels/functions.inc). */
sherd_tensor *sherd__unary(sherd__unary_kind kind, sherd_tensor *a, double parameter);
/* The sum of n numbers as their mean; NaN of none. */
sherd_tensor *sherd__mean_of(sherd_tensor *total, int64_t n);

/*
 * The sum over the dims that broadcasting `shape` to the shape of t has added or stretched: the
 * gradient of a broadcast operand.
 */
sherd_tensor *sherd__sum_to(sherd_tensor *t, int ndim, const int64_t *shape);
/* The same for operand i of a node. */
sherd_tensor *sherd__sum_to_operand(sherd_node *node, int i, sherd_tensor *t);

/* The sum over all dims but that of the channels, 1. */
sherd_tensor *sherd__sum_to_channels(sherd_tensor *t);

/* In backward: zeros in shape, dtype and layout of operand i. */
sherd_tensor *sherd__zeros_like_operand(sherd_node *node, int i);

/*
 * For operators whose own backward can not be differentiated, in a backward that is recorded
 * (sherd__makes_graph): the gradients of `operands` (bits) are those of a formula, the same
 * function made of other operators. It gets these operands (others are NULL), and returns the
 * result of that number. An operand on which it does not depend gets zeros.
 */
typedef sherd_tensor *(*sherd__formula)(sherd_node *node, sherd_tensor *const *in, int result);
void sherd__differentiate(sherd_node *node, unsigned operands, sherd__formula formula,
                          sherd_tensor *const *grad_out, sherd_tensor **grad_in);
/*
 * The same for what is no operand: out[i] is the gradient of in[i] (NULL: none), which a formula
 * has made y[] of; dy[]: the gradients of these. `in` must be aliases (sherd__alias).
 */
void sherd__gradients_of(sherd_tensor **out, sherd_tensor *const *in, int n, sherd_tensor **y,
                         sherd_tensor *const *dy, int count);
/*
 * For formulas: (x - mean) / sqrt(variance + eps) over these dims; without the mean if not centred.
 * 16-bit types compute, and give, f32.
 */
sherd_tensor *sherd__normalised(sherd_tensor *x, const int *dims, int count, double eps,
                                bool centred);

/*
 * For linear operators of one operand, after dx, the gradient of the operand, was computed with
 * recording off: record it. Its own gradient is the operator again, with these attributes (the
 * node's, but for what the operator adds).
 */
void sherd__record_adjoint(const sherd_node *node, const void *attributes, sherd_tensor *dy,
                           sherd_tensor *dx);
/*
 * The gradient of operand 0 by `back`, an operator of dy and, for its layout alone, operand 0; and
 * record it so. `attributes`: of `back`; `again`: as above.
 */
sherd_tensor *sherd__adjoint_like(sherd_node *node, const sherd_op *back, const void *attributes,
                                  const void *again, sherd_tensor *dy);

#endif
