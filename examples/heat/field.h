/* SPDX-License-Identifier: Apache-2.0 */
/* The field on its ranks, and the step: what everybody who has a PDE would begin with. */
#ifndef HEAT_FIELD_H
#define HEAT_FIELD_H

#include <sherd.h>

#include "waves.h"

typedef struct field {
    sherd_world *world;
    const waves *waves;
    const sherd_mesh *mesh;
    sherd_ghosts *now,
        *next;              /* f64, one cell around each piece; they change places with each step */
    sherd_box cells, piece; /* of this rank, in the whole grid: with the ghosts, without */
    int64_t steps;          /* done */
} field;

/* How the grid lies: dim d on axis d of a mesh x, y, z. Collective; all ranks get the same status. */
sherd_status field_layout(const sherd_layout **out, sherd_world *world, const heat_options *o);

/* The first state on a layout. Collective; on failure there is nothing to destroy. */
sherd_status field_create(field *f, sherd_world *world, const sherd_layout *layout, const waves *w);
void field_destroy(field *f);

/* A step. Collective; false: the alarm is up, go to the check. */
bool field_step(field *f);

/* What the state looks like; equal on all ranks. */
typedef struct field_figures {
    double error;      /* the largest difference from the exact state */
    double height;     /* the largest number */
    uint64_t checksum; /* of all numbers and where they are */
} field_figures;

/* Collective. */
sherd_status field_measure(field_figures *out, const field *f);

/* Reduce numbers over all ranks of a mesh, in place; at the next check it is known whether that went well. Collective. */
void across_ranks(const sherd_mesh *mesh, sherd_world *world, sherd_reduce_op op, double *values,
                  int64_t n);

/* Let a failure of this rank alone become everybody's; all ranks must call it. */
sherd_status agree(sherd_world *world, sherd_status mine);

#endif
