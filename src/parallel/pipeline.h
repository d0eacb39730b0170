/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a pipeline: pipeline.c makes it, microbatch.c runs it, tie.c ties parameters. */
#ifndef SHERD__PARALLEL_PIPELINE_H
#define SHERD__PARALLEL_PIPELINE_H

#include "parallel/channel.h"
#include "parallel/turns.h"

/* One microbatch in one stage of this rank, from its forward to its backward. */
typedef struct sherd__stage_kept {
    sherd__channel_parcel in,
        out; /* tensors whose gradients are wanted, and layouts, are counted */
    sherd_tensor *grad[SHERD_MAX_ARGS]; /* of `out`, from a next stage at the same place; counted */
    sherd_tensor *loss;                 /* of the last stage; counted */
    struct sherd__pass *rest;           /* a backward whose gradients of weights are to come */
} sherd__stage_kept;

/* One parameter of which two stages have a copy. */
typedef struct sherd__tie {
    struct sherd__tie *next;
    int stage[2];
    sherd_channel *channel;        /* of one lane, for both ways; NULL: the same place */
    const sherd_layout *layout[2]; /* counted */
    sherd_dtype dtype[2];
    sherd_tensor *p[2];      /* the copies that are here; counted */
    sherd_tensor *before[2]; /* while it runs: their gradients of earlier runs; counted */
    bool counts;             /* in p[1]->ties */
} sherd__tie;

struct sherd_pipeline {
    sherd_world *world;
    sherd_stage *stage;    /* [stages]; without texts, which channels have */
    sherd_channel **from;  /* [stages]: what comes from the stage before; NULL: the same place */
    const sherd_mesh *all; /* of all ranks: the sum of losses is told there */
    const sherd_layout *loss, *told; /* of that sum, on the last stage's mesh and there; counted */
    sherd__turns turns;
    int here;         /* this rank's place; -1: none */
    bool fits;        /* turns.extra has been found for turns.count */
    sherd__tie *ties; /* in the order in which they were made */
    /* while it runs: */
    sherd__stage_kept *kept; /* [stages of this rank][microbatches] */
    sherd_tensor *sum;       /* of losses, on ranks of the last stage; counted, or NULL */
};

/* Before a run: set aside the gradients of tied parameters. */
void sherd__ties_begin(sherd_pipeline *p);
/* After its turns: give both copies the sum of both gradients. False: failed, raised. */
bool sherd__ties_add(sherd_pipeline *p);
/* After a failure: give back what was set aside. */
void sherd__ties_end(sherd_pipeline *p);
void sherd__ties_destroy(sherd_pipeline *p);

/* The order of turns for so many microbatches. False: failed, raised. */
bool sherd__pipeline_fit(sherd_pipeline *p, int64_t count, bool forward_only);

#endif
