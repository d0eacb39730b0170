/* SPDX-License-Identifier: Apache-2.0 */
/* What taking (pick.c) and storing (put.c) elements by index share. */
#ifndef SHERD__OPS_PICK_H
#define SHERD__OPS_PICK_H

#include "shared.h"
#include "kernels/pick.h"

typedef struct sherd__picking {
    int64_t entries; /* of the dim that indices point into, where no operand says it */
    double value;
    int dim;
    int flat;   /* the index has one dim */
    int reduce; /* a sherd_reduce_op: how elements with one index are put together */
} sherd__picking;

#define SHERD__PICK_FIELDS                                                                       \
    {                                                                                            \
        SHERD_FIELD(sherd__picking, entries, INT64), SHERD_FIELD(sherd__picking, value, DOUBLE), \
            SHERD_FIELD(sherd__picking, dim, INT), SHERD_FIELD(sherd__picking, flat, INT),       \
            SHERD__CHOICE(sherd__picking, reduce, SHERD__REDUCE_OP_NAMES)                        \
    }

/* Operands that an exchange with owners is about. */
typedef struct sherd__pick_parties {
    int a, index, source; /* source < 0: the result is taken */
} sherd__pick_parties;

/* "abvd": all dims but `dim`, which has this letter. */
const char *sherd__pick_label(char out[SHERD_MAX_DIMS + 1], int ndim, int dim, char letter);

/* [outer, n, inner] of this rank's pieces; `whole` is the operand or result that is indexed. */
sherd__pick sherd__pick_pieces(const sherd_call *call, const sherd_tensor *whole, int index);

/* Why operand 0 has not the dim of the attributes; NULL = it has. */
const char *sherd__pick_fault(sherd_call *call);

/* Elements beyond the sizes of the index in the other dims are not involved. */
sherd_tensor *sherd__pick_within(sherd_tensor *t, const sherd_tensor *index, int dim);

/*
 * The index of slices of a, [n], that `index` is: one that names the same along all other dims, as
 * a view that sherd_expand has made of a column; or one of one dim. NULL: it is none.
 */
sherd_tensor *sherd__pick_column(sherd_tensor *index, const sherd_tensor *a, int dim);

/* Add the way by an exchange with owners, if it pays. */
sherd_status sherd__pick_ways(const sherd_call *call, sherd_ways *ways, sherd__pick_parties p);

/*
 * Before anything is written: a call that adds goes on on the CPU if elements go to owners, or the
 * GPU does not add these. False: the alarm is raised.
 */
bool sherd__pick_settle_place(sherd_call *call, const sherd_layout *a, sherd__pick_parties p);

/*
 * Result 0 += the elements of the source, each at its index, here or at its owner; the result holds
 * the initial values. Or the larger or smaller of both, on the CPU, as `reduce` of the attributes
 * says. `a`: the layout of what is indexed. False: failed.
 */
bool sherd__pick_add(sherd_call *call, const sherd_layout *a, sherd__pick_parties p);

/*
 * sherd_scatter_add of whole slices, each at one index, [n]: one number travels with a slice, and
 * the gradient of the source asks for slices too.
 */
sherd_tensor *sherd__add_slices(sherd_tensor *a, int dim, sherd_tensor *index,
                                sherd_tensor *source);

/* sherd_scatter and sherd_scatter_fill of whole slices. */
sherd_tensor *sherd__put_slices(sherd_tensor *a, int dim, sherd_tensor *index,
                                sherd_tensor *source);
sherd_tensor *sherd__fill_slices(sherd_tensor *a, int dim, sherd_tensor *index, double value);

/* ---- for other operators whose results are elements of an operand ---------------------------- */

/*
 * In backward: the gradient of operand 0 of the node, from which the elements `index` along a dim
 * were taken (index [n] if `flat`), given that of the result.
 */
sherd_tensor *sherd__gather_back(sherd_node *node, sherd_tensor *index, sherd_tensor *dy, int dim,
                                 bool flat);

/*
 * The first result of an operator whose second one is indices; *indices: gets that, if `indices` is
 * not NULL.
 */
sherd_tensor *sherd__apply_indexed(const sherd_op *op, sherd_tensor *const *in, int count,
                                   const void *attributes, sherd_tensor **indices);

#endif
