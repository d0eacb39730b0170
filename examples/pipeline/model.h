/* SPDX-License-Identifier: Apache-2.0 */
/* The model in stages, and how a stage is split over its ranks. */
#ifndef PIPELINE_MODEL_H
#define PIPELINE_MODEL_H

#include <sherd.h>

enum { SYMBOLS = 61 };

typedef struct task {
    const char *mesh; /* "pp=A,dp=B,tp=C" */
    int64_t stages, microbatches, steps, layers, dim, batch, context;
    int schedule; /* sherd_pipeline_schedule; -1: no such one */
} task;

/* Where a stage lies, of `places`: they take stages in turn, or there and back. */
int64_t place_of_stage(const task *t, int64_t stage, int64_t places);

/*
 * The stages of a place, of `places`: a container with the children "stage0", "stage2" and so on.
 * Ids i32 [rows, context] go into the first stage, logits [rows, context, SYMBOLS] come out of the
 * last one. Parameters take no memory before the place is split. Local.
 */
sherd_status model_create(sherd_module **out, sherd_world *world, const task *t, int64_t place,
                          int64_t places);

/* Stage number i of such a container; NULL: it is at another place. */
sherd_module *model_stage(sherd_module *model, int64_t i);

/* Split the stages of a place over the axis "tp" of its mesh. Collective: the world. */
sherd_status model_split(sherd_module *model, const sherd_mesh *mesh, const task *t);

#endif
