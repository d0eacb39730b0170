/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share and no other room needs. */
#ifndef SHERD__PLAN_INSIDE_H
#define SHERD__PLAN_INSIDE_H

#include "plan.h"

/*
 * How two layouts of one shape on one mesh differ. Axes of extent 1 are in nothing here: they cost
 * no step. Per dim, the outermost axes with equal merged cuts (`common`) take no part; what
 * follows in the source's and the target's list does.
 */
typedef struct sherd__change {
    const sherd_mesh *mesh;
    int ndim;
    int common[SHERD_MAX_DIMS];
    sherd__dim source[SHERD_MAX_DIMS],
        target[SHERD_MAX_DIMS]; /* whole lists, without extents of 1 */
    unsigned gathered; /* axes that cut the source otherwise than the target: pulls cross them */
    unsigned cut;      /* axes that cut the target otherwise than the source */
    unsigned reduced;  /* axes pending in the source, not in the target: pulls cross them too */
    unsigned pending;  /* axes pending in both */
    int64_t addends;   /* product of the extents of the reduced axes */
    sherd_reduce_op op;
    double divisor; /* of avg; the product of the extents of its axes */
} sherd__change;

void sherd__change_find(sherd__change *change, const sherd_layout *from, const sherd_layout *to);

/* Product of the extents of some axes of a mesh. */
int64_t sherd__extent_of(const sherd_mesh *mesh, unsigned axes);

/* Next coordinate over some axes, the last one fastest; false when it is back at zero. */
bool sherd__next(const sherd_mesh *mesh, unsigned axes, int64_t *coordinate);

/*
 * What a direct move of a change amounts to, in elements, exact; found by classes of coordinates.
 * Numbers from 2^62 on are cut to it.
 */
typedef struct sherd__amounts {
    int64_t source_max, target_max,
        both_max;                       /* of one rank: source box, target box, the two together */
    int64_t receive_max, receive_total; /* from other ranks, each addend counted */
    int64_t send_max;
    int64_t target_total; /* sum over ranks */
    int64_t bound_total;  /* no plan receives less in all */
} sherd__amounts;

sherd_status sherd__amounts_find(sherd__amounts *out, sherd__space *space,
                                 const sherd__change *change, const int64_t *shape);

/* a * b and a + b that stay below 2^62. */
int64_t sherd__mul_cut(int64_t a, int64_t b);
int64_t sherd__add_cut(int64_t a, int64_t b);

/* The kind and axes of the one direct step, and what it costs. */
void sherd__step_choose(sherd_step *step, sherd_plan_price *price, const sherd__change *change,
                        const sherd__amounts *amounts, size_t element_bytes);

/* Elements of slice `i` of `n` that `p` ranks share: whole cache lines, the tail may be empty. */
void sherd__slice_of(int64_t n, int64_t p, int64_t i, int64_t *lo, int64_t *hi);

sherd_status sherd__plan_make(sherd_plan **out, const sherd_layout *from, const sherd_layout *to,
                              size_t element_bytes);
void sherd__plan_destroy(sherd_plan *plan);

#endif
