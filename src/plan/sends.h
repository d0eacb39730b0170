/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A step as its senders see it, for ranks that share no memory: what this rank sends to each rank,
 * and the layout of what it receives. Boxes follow one another, each contiguous, in the order of
 * the receiver's regions and pulls. Pure.
 */
#ifndef SHERD__PLAN_SENDS_H
#define SHERD__PLAN_SENDS_H

#include "plan.h"

/* A box of this rank's source. */
typedef struct sherd__sent_box {
    int64_t offset[SHERD_MAX_DIMS];
    int64_t size[SHERD_MAX_DIMS];
} sherd__sent_box;

/* All boxes that one rank receives from another in a step. */
typedef struct sherd__parcel_list {
    int rank;         /* the other one */
    int first, count; /* its boxes, of what is sent */
    int64_t elements;
} sherd__parcel_list;

typedef struct sherd__sends {
    int outs, ins;           /* ascending by rank */
    sherd__parcel_list *out; /* [outs]: readers */
    sherd__parcel_list *in;  /* [ins]: sources; only rank and elements */
    sherd__sent_box *box;
    int64_t *place; /* [pulls of my schedule]: the element of its rank's message where it begins */
} sherd__sends;

/*
 * Of a step of a plan; the plan keeps them. NULL: no memory, or (without an error text) this rank
 * takes no part.
 */
const sherd__sends *sherd__sends_of(const sherd_plan *plan, int step);
void sherd__sends_destroy(sherd__space *space, sherd__sends *sends);
/* How many elements a rank sends me. */
int64_t sherd__sends_in(const sherd__sends *sends, int rank);
/* What I send a rank; NULL: nothing. */
const sherd__parcel_list *sherd__sends_out(const sherd__sends *sends, int rank);

/* What to pack: the boxes of one list, from a source. */
typedef struct sherd__packing {
    const sherd__sends *sends;
    const sherd__parcel_list *list;
    int ndim;
    size_t element_bytes;
    const sherd__source *source;
} sherd__packing;

/* Pack the elements [from, to) of the boxes of a list, one box after the other. */
void sherd__sends_pack(const sherd__packing *what, int64_t from, int64_t to, void *out);

/*
 * The largest box within a box of `size` (row-major) that begins with its element `from` and ends
 * before `to`: sets its offset and size, and returns how many elements it has; at least one if from
 * < to.
 */
int64_t sherd__box_stretch(int ndim, const int64_t *size, int64_t from, int64_t to, int64_t *offset,
                           int64_t *out_size);
/* The address of the boxes if they are contiguous in the source already; otherwise NULL. */
const void *sherd__sends_direct(const sherd__sends *sends, const sherd__parcel_list *list, int ndim,
                                size_t element_bytes, const sherd__source *source);

#endif
