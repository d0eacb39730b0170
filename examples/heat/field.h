/* SPDX-License-Identifier: Apache-2.0 */
/* The field on its ranks, and the step: what everybody who has a PDE would begin with. */
#ifndef HEAT_FIELD_H
#define HEAT_FIELD_H

#include <sherd.h>

#include "cells.h"

typedef struct field {
    sherd_world *world;
    const sherd_mesh *mesh;
    sherd_ghosts *now,
        *next;     /* f64, one cell around each piece; they change places with each step */
    cells cells;   /* of this rank */
    int64_t steps; /* done */
} field;

/*
 * How the grid lies: dim d on axis d of a mesh x, y, z. Collective; all ranks get the same status.
 */
sherd_status field_layout(const sherd_layout **out, sherd_world *world, const heat_options *o);

/* The first state on a layout. Collective; on failure there is nothing to destroy. */
sherd_status field_create(field *f, sherd_world *world, const sherd_layout *layout, const waves *w);
void field_destroy(field *f);

/* A step. Collective; false: the alarm is up, go to the check. */
bool field_step(field *f);

/* Figures of the whole field, equal on all ranks. Collective. */
sherd_status field_measure(figures *out, const field *f);

#endif
