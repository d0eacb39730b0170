/* SPDX-License-Identifier: Apache-2.0 */
/* A gate: moves one tensor on its way into or out of a module, along one axis. */
#ifndef SHERD__PARALLEL_GATE_H
#define SHERD__PARALLEL_GATE_H

#include "nn/module.h"

/* What all gates of a hook share. */
typedef struct sherd__gate_side {
    sherd_world *world;
    const char *style; /* its name, for messages */
    bool in;           /* before the forward; else after it */
    const sherd_mesh *mesh, *root;
    int axis, root_axis;
} sherd__gate_side;

/* It caches its last move, so that a repeated call needs no new layouts. */
typedef struct sherd__gate {
    char *name;               /* of a keyword argument; counted with the gate; NULL = by position */
    char which[24];           /* "input 1: ", for messages; "" if there is only one */
    sherd_placement taken;    /* of a plain tensor; unset = it must remember its layout */
    sherd_placement declared; /* that a distributed one must have; unset = any */
    sherd_placement desired;  /* what it is moved to; unset = it is not moved */
    int follow;               /* its last dim gets the cuts of this dim of "weight"; -1 = chunks */
    bool to_local;            /* it leaves as a plain tensor */
    bool keep;                /* a gathered tensor is kept for backward */
    const sherd_layout *from, *weight, *to; /* the last move; counted */
} sherd__gate;

/* Whether a tensor passes unchanged, whatever it is: then it may be NULL. */
bool sherd__gate_is_open(const sherd__gate *gate);

/* The tensor after the gate; the failed tensor, raised, if it does not fit. */
sherd_tensor *sherd__gate_pass(const sherd__gate_side *side, sherd__gate *gate,
                               const sherd_module *m, sherd_tensor *x);

/* Release what the gate holds. */
void sherd__gate_clear(sherd_world *world, sherd__gate *gate);

#endif
