/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of a sharded dim, wanted by index by ranks that do not have them: each tells the owners what it wants, and they
 * send just that, or take what it has for them. Which boxes travel depends on data, and plans are the same on all ranks:
 * so counts are gathered first, [ranks, shards + 1] of 8 bytes; all layouts and windows follow from them. Three calls to
 * take (counts, indices, entries), two to give. An entry that is wanted twice travels twice.
 */
#ifndef SHERD__OWNERS_H
#define SHERD__OWNERS_H

#include "operator.h"

/* Whether, and how, an operator on `a`, an index, and what is indexed lies for an exchange with owners. */
typedef struct sherd__owned {
    const sherd_layout
        *index; /* where it must lie; NULL: there is no such exchange, or it does not pay */
    const sherd_layout *taken; /* [.., n, ..]: what is taken, or given */
    const sherd_layout
        *given; /* as `a`; pending where ranks with the same shard have different entries to give */
} sherd__owned;

/* `flat`: the index has one dim; else those of a. `gives`: entries go to owners. */
typedef struct sherd__owned_question {
    const sherd_layout *a, *index;
    int dim;
    bool flat, gives;
} sherd__owned_question;

sherd_status sherd__owned_lie(sherd__owned *out, const sherd__owned_question *q);

/* In forward: what is asked for. `a` and `taken` are tensors that lie so, or views of results. */
typedef struct sherd__wants {
    sherd_call *call;
    const sherd_tensor *a, *taken;
    const int32_t *index;
    int dim;
    bool flat;
} sherd__wants;

/* taken[.., j, ..] = a[.., index, ..]. False: failed. */
bool sherd__take_from_owners(const sherd__wants *w, void *taken, const void *a);

/* a[.., index, ..] += taken[.., j, ..], in order of shards and then of j; 16 bits in f32, rounded once. False: failed. */
bool sherd__give_to_owners(const sherd__wants *w, void *a, const void *taken);

#endif
