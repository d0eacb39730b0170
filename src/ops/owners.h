/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Elements of a sharded dim that other ranks need, by index: each rank tells the owners what it
 * needs, and they send just that, or receive what it has for them. Which boxes travel depends on
 * data, but plans must be the same on all ranks: so counts are gathered first, [ranks, shards + 1]
 * of 8 bytes, and all layouts and windows follow from them. Three calls to take (counts, indices,
 * elements), two to give. A slice that several requests of a rank want is sent to it once (once.h),
 * and what a rank gives to one slice is added up before it is sent. A single element, of an index
 * with as many dims as `a`, is sent as often as it is named.
 */
#ifndef SHERD__OPS_OWNERS_H
#define SHERD__OPS_OWNERS_H

#include "shared.h"

/* The layouts for an exchange with owners of an operator on `a`, an index, and what is indexed. */
typedef struct sherd__owned {
    const sherd_layout *index; /* NULL: there is no such exchange, or it does not pay */
    const sherd_layout *taken; /* [.., n, ..]: what is taken, or given */
    /* as `a`; pending on axes whose ranks have the same shard but different elements to give */
    const sherd_layout *given;
} sherd__owned;

/* `flat`: the index has one dim; otherwise as many as a. `gives`: elements go to the owners. */
typedef struct sherd__owned_question {
    const sherd_layout *a, *index;
    int dim;
    bool flat, gives;
    sherd_reduce_op reduces; /* what is given */
    bool on_device;          /* ranks compute on GPUs, which exchanges with owners leave */
} sherd__owned_question;

sherd_status sherd__owned_lie(sherd__owned *out, const sherd__owned_question *q);

/*
 * In forward: what is asked for. `a` and `taken` are tensors with these layouts, or views of
 * results.
 */
typedef struct sherd__wants {
    sherd_call *call;
    const sherd_tensor *a, *taken;
    const int32_t *index;
    int dim;
    bool flat;
    sherd_reduce_op reduces; /* what is given: SHERD_SUM, SHERD_MAX, SHERD_MIN or SHERD_PRODUCT */
} sherd__wants;

/* taken[.., j, ..] = a[.., index, ..]. False: failed. */
bool sherd__take_from_owners(const sherd__wants *w, void *taken, const void *a);

/*
 * a[.., index, ..] += taken[.., j, ..], or the larger, the smaller or the product of both, in the
 * order of shards and then of j (slices: what a shard has for another's slice first becomes one);
 * 16 bits are put together in f32, rounded once. False: failed.
 */
bool sherd__give_to_owners(const sherd__wants *w, void *a, const void *taken);

#endif
