/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the tape: a node, a saved tensor, and what the tape keeps per world. */
#ifndef SHERD__NODE_H
#define SHERD__NODE_H

#include "autograd/tape.h"

/* What a node knows of an operand. It keeps the maker's node or the leaf alive, not the operand itself. */
typedef struct sherd__edge {
    bool wanted;
    sherd_node *node;           /* counted; NULL of a leaf */
    int output;                 /* of that node */
    sherd_tensor *leaf;         /* counted; NULL if there is a node */
    const sherd_layout *layout; /* counted */
    sherd_dtype dtype;
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
} sherd__edge;

typedef struct sherd__result {
    const sherd_layout *layout; /* counted */
    sherd_dtype dtype;
    int ndim;
    sherd_tensor *grad; /* counted; what has come so far in this backward */
    int giver;          /* the place of the node that it came from last, for the comm log */
} sherd__result;

/*
 * A tensor kept for backward, shared by all slots that saved it (found through tensor->saved). Either `base`
 * is set: it is a move of that, and moved again; or `kept` is what is held.
 */
typedef struct sherd__kept {
    sherd__record record; /* counts slots, and records that are moved from here */
    sherd_world *world;
    sherd_tensor *owner;   /* whose `saved` this is; not counted, NULL once it is gone */
    int64_t owner_version; /* of its storage when it was saved */
    struct sherd__kept *base;
    sherd_tensor *kept; /* counted, in no scope, without node */
    int64_t version;    /* of its storage when it was kept */
    bool counted;       /* in saved_bytes */
    bool packed;        /* by these hooks */
    sherd_saved_hooks hooks;
    const void *undo;
    const sherd_layout *layout; /* of the tensor, as are the rest; counted */
    sherd_dtype dtype;
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
    sherd_tensor *restored; /* counted; until the last slot is cleared */
} sherd__kept;

struct sherd_node {
    sherd__record record; /* counts tensors, later nodes, and a running backward */
    sherd_world *world;
    const sherd_op *op;
    int place;      /* the module that recorded it, for the comm log */
    uint64_t order; /* later nodes have higher numbers, on all ranks alike */
    bool done;      /* its backward has run */
    bool broken;    /* something could not be saved */
    bool queued;    /* in a running backward */
    int ins, outs, slots;
    /* These lie behind the node, in the same allocation. */
    sherd__edge *in;
    sherd__result *out;
    sherd__kept **slot;
    void *attributes;
    sherd_node *dying; /* list of nodes to be freed */
};

/* Lies in the tensor room's spare bytes, so that it always exists. */
typedef struct sherd__tape {
    sherd_world *world;
    bool paused; /* not recording */
    uint64_t order;
    int64_t saved_bytes;
    sherd_saved_hooks *hooks; /* stack */
    int hooked, hook_room;
    int unpushed;      /* hooks that could not be pushed for lack of memory */
    sherd_node *dying; /* nodes without a count, to be freed one after the other */
    bool freeing;
} sherd__tape;

_Static_assert(sizeof(sherd__tape) <= SHERD__SPARE_BYTES, "the spare room is too small");

sherd__tape *sherd__tape_of(sherd_world *world);

/* Drop what a node saved and its edges: its backward has run, or it goes. */
void sherd__node_clear(sherd_node *node);

/* The saved form of a tensor: the one it has, or a new one. Counted for the caller; NULL: failed, raised. */
sherd__kept *sherd__keep(sherd_tensor *t);
/* The tensor again; borrowed from the record. The failed tensor if that fails; raised. */
sherd_tensor *sherd__restore(sherd__kept *kept);

/* Add a gradient to a sum (NULL = none yet); both counted by the sum. False: failed. */
bool sherd__add_grad(sherd_tensor **sum, sherd_tensor *grad);
/* Add a gradient to a leaf's; one that takes more memory than the leaf is settled first. False: failed. */
bool sherd__add_leaf_grad(sherd_tensor *leaf, sherd_tensor *grad);

#endif
