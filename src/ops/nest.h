/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merged and split dims whose axes nest, for view.c: where each shard of an outer dim is one index
 * or none, an inner dim may be sharded too, and nothing moves.
 */
#ifndef SHERD__OPS_NEST_H
#define SHERD__OPS_NEST_H

#include "layout/layout.h"

/* Neighbouring dims of a layout, or those that they become: the product of both is the same. */
typedef struct sherd__nest {
    const sherd__layout_spec *from;
    sherd__layout_spec *to;
    int first, end, to_first, to_end; /* dims of `from` and of `to` */
    sherd__heap *heap;
} sherd__nest;

/*
 * Shard the dims of `to`, which are not sharded yet, as those of `from` are, so that no rank gets
 * another element. *fits says whether that can be said; if not, they stay whole. False for lack of
 * memory. The cuts that they get are the caller's.
 */
bool sherd__nest_dims(bool *fits, const sherd__nest *nest);

#endif
