/* SPDX-License-Identifier: Apache-2.0 */
/* In which order the places of a pipeline compute. Pure: the same on all ranks. */
#ifndef SHERD__PARALLEL_TURNS_H
#define SHERD__PARALLEL_TURNS_H

#include "base/alloc.h"
#include "sherd/pipeline.h"

/* A channel's sender may be so many sends ahead: see SHERD__DEPTH, of which a send takes two. */
enum { SHERD__SENDS_AHEAD = 8 };

/*
 * Microbatches times stages: what fits is found by playing, which takes a second for as many, and
 * some ten times that where places have not equally many stages.
 */
enum { SHERD__TURNS_MOST = 1 << 24 };

typedef struct sherd__turns {
    int places, stages; /* stage i is at sherd__turns_place(.., i) */
    int64_t count;      /* of microbatches */
    sherd_pipeline_schedule schedule;
    bool forward_only;
    int64_t extra; /* forwards before the first backward, more than the schedule has */
} sherd__turns;

/* Where a stage lies: round the places, or, with ZERO_BUBBLE_V, there and back. */
int sherd__turns_place(const sherd__turns *turns, int stage);

/* Write the turns of a place to out[...], or NULL to count only; returns how many there are. */
int64_t sherd__turns_of(const sherd__turns *turns, int place, sherd_pipeline_turn *out);

/*
 * Find an `extra` with which no place waits for ever: the least one, or, where that is more than
 * four for each place, one that is enough where one less is not. False: no memory.
 */
bool sherd__turns_fit(sherd__turns *turns, sherd__heap *heap);

#endif
