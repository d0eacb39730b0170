/* SPDX-License-Identifier: Apache-2.0 */
/* Training: everything that one step needs, and the step. */
#ifndef GPT_TRAIN_H
#define GPT_TRAIN_H

#include <sherd.h>

#include "options.h"
#include "text.h"

typedef struct trainer {
    sherd_world *world;
    const gpt_options *options;
    const corpus *text;
    const sherd_mesh *mesh;
    const sherd_layout *batch; /* of ids and targets */
    sherd_module *model;
    sherd_optimizer *optimizer;
    int32_t *ids, *targets; /* [batch * context], the whole batch */
    sherd_scaler scaler;    /* of f16 */
} trainer;

/* What one step showed; losses and norms are equal on all ranks. */
typedef struct step_figures {
    double loss;         /* mean over the global batch, nats a byte, before the update */
    double norm;         /* of all gradients, before clipping */
    double seconds;      /* this rank's, waiting included */
    int64_t saved_bytes; /* held for backward at the end of forward */
} step_figures;

/* The model on its mesh, with an optimizer. Collective; on failure there is nothing to destroy. */
sherd_status trainer_create(trainer *t, sherd_world *world, const gpt_options *options,
                            const corpus *text);
void trainer_destroy(trainer *t);

/* What products compute with, as sherd_set_autocast wants it. */
sherd_dtype train_dtype(const gpt_options *o);

/*
 * Forward and backward: the gradients of all parameters (in f16 times the scaler's factor), and the
 * loss and saved bytes of a step. Collective; errors by the alarm.
 */
void train_gradients(trainer *t, int64_t step, step_figures *out);

/* The same, and the update. Collective; all ranks get the same status. */
sherd_status train_step(trainer *t, int64_t step, step_figures *out);

/* Order ids [rows, context], equal on all ranks, as the model wants them, and distribute them. */
sherd_tensor *spread_ids(const trainer *t, const sherd_layout *layout, const int32_t *ids);

/*
 * The layout of ids [rows, context]: rows over "dp", positions over "cp", the same on all ranks of
 * "tp".
 */
sherd_status layout_of_ids(const sherd_layout **out, const trainer *t, int64_t rows);

/* Make all ranks fail if one did; all ranks must call it. */
sherd_status agree(sherd_world *world, sherd_status mine);

double seconds_now(void);

#endif
