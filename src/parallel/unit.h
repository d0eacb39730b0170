/* SPDX-License-Identifier: Apache-2.0 */
/* Units: modules whose sharded parameters are gathered, and freed, together. */
#ifndef SHERD__PARALLEL_UNIT_H
#define SHERD__PARALLEL_UNIT_H

#include "nn/module.h"

/* What the units of one tree and of the same axes share; counted by them and the root's hooks. */
typedef struct sherd__sharding {
    sherd_world *world;
    int refs;
    unsigned axes;             /* bits of the root mesh's, which are gathered over at once */
    uint64_t failed;           /* checks that had failed when the order of calls was learned */
    uint64_t order;            /* how often it was learned, from 1 on */
    int running;               /* calls of the root under way */
    struct sherd__unit *last;  /* the unit that was called last in this forward */
    struct sherd__unit *ahead; /* gathered before its call */
} sherd__sharding;

/*
 * A parameter of a unit. The arrays of layouts and tensors beside it are the arguments of a list of
 * moves.
 */
typedef struct sherd__unit_slot {
    sherd_module *module;
    int parameter;         /* its number in the module */
    sherd__as_found found; /* as the module came to it, the first time if it is run again */
} sherd__unit_slot;

/*
 * A module with its sharded parameters, and perhaps those of all modules below it; the payload of
 * its two hooks, which count it. The modules below are units as well, for calls of them alone.
 */
typedef struct sherd__unit {
    sherd__sharding *all; /* counted */
    sherd_module *module;
    struct sherd__unit *outer; /* the unit that has its parameters too, or NULL */
    struct sherd__unit *next;  /* the one that was called after this one, the last time */
    struct sherd__unit *prior; /* the one that was called before this one */
    uint64_t order, came;      /* `next`, and `prior`, are of this one, as in sharding */
    /* since this one it was run again in a backward, and may be in the next; 0: it was not */
    uint64_t again;
    int refs, depth; /* depth: calls of the module under way */
    /* as the options of its sherd_fully_shard say: */
    bool keeps, prefetches, leaves_inputs;
    sherd_dtype dtype, reduce, output; /* SHERD_DTYPE_NONE: as parameters, gradients, outputs are */
    bool holds;                        /* what it gathers, from call to call (hold.c): */
    uint64_t held_at;                  /* checks that had failed then */
    bool in;   /* its parameters are in their places: not those of `outer` */
    bool acts; /* while in: it has moved some of them */
    bool gathered;
    int count;
    sherd__unit_slot *slot;   /* [count], as are these: */
    const sherd_layout **to;  /* gathered; counted */
    const sherd_layout **aim; /* what this gather moves to; not counted */
    sherd_tensor **home;      /* the parameters, while they are not in their places; counted */
    sherd_tensor **pieces;    /* as a gather begins; not counted */
    sherd_tensor **from;      /* what it moves: the pieces, or casts of them; not counted */
    sherd_tensor **whole;     /* counted, while gathered; else NULL */
    sherd_tensor **held;      /* without nodes; counted; NULL: none, or the piece itself */
    sherd_tensor **held_of;   /* their pieces; counted */
} sherd__unit;

static inline sherd__named_tensor *sherd__unit_parameter(const sherd__unit *u, int i)
{
    return &u->slot[i].module->parameter[u->slot[i].parameter];
}

/* With room for n parameters; NULL for lack of memory. */
sherd__unit *sherd__unit_create(sherd__sharding *all, sherd_module *m, int n);
void sherd__unit_release(sherd__unit *u);
void sherd__sharding_release(sherd__sharding *all);

/* Gather and free the unit's parameters around calls of its module. */
sherd_status sherd__unit_hook(sherd__unit *u);
/*
 * The unit of a module and exactly these axes (0: any) after its i-th: set i to 0 for the first;
 * NULL: there is no other.
 */
sherd__unit *sherd__unit_of(const sherd_module *m, unsigned axes, int *i);
/* From now on the unit is called in an order that it shares with those of `all`. */
void sherd__unit_join(sherd__unit *u, sherd__sharding *all);
/* Learn that order in calls of this module. Its own unit, if it is one, is hooked before. */
sherd_status sherd__sharding_hook(sherd__sharding *all, sherd_module *root);

#endif
