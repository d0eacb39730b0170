/* SPDX-License-Identifier: Apache-2.0 */
/* The way of one tensor into a module or out of it, along one axis. */
#ifndef SHERD__GATE_H
#define SHERD__GATE_H

#include "nn/module.h"

/* What all gates of a hook share. */
typedef struct sherd__side {
    sherd_world *world;
    const char *style; /* its name, for messages */
    bool in;           /* before the forward; else after it */
    const sherd_mesh *mesh, *root;
    int axis, root_axis;
} sherd__side;

/* It remembers its last move, so that a call that repeats it looks up no layouts. */
typedef struct sherd__gate {
    char *name;               /* of a keyword argument; counted with the gate; NULL = by position */
    char which[24];           /* "input 1: ", for messages; "" where there is only one */
    sherd_placement taken;    /* what a plain tensor is taken for; unset = it must know itself */
    sherd_placement declared; /* what a distributed one must be; unset = whatever arrives */
    sherd_placement desired;  /* what it becomes; unset = it stays */
    int follow;               /* the last dim is cut as this dim of "weight"; -1 = chunks */
    bool to_local;            /* it goes on as a plain tensor */
    bool keep;                /* what it gathers is kept for backward */
    const sherd_layout *from, *weight, *to; /* the last move; counted */
} sherd__gate;

/* Whether a tensor goes through as it is, whatever it is: then it may be NULL. */
bool sherd__gate_is_open(const sherd__gate *gate);

/* The tensor as the gate says; the failed tensor, raised, where it does not fit. */
sherd_tensor *sherd__gate_pass(const sherd__side *side, sherd__gate *gate, const sherd_module *m,
                               sherd_tensor *x);

/* Give up what the gate holds. */
void sherd__gate_clear(sherd_world *world, sherd__gate *gate);

#endif
