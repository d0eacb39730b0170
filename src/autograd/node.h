/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the tape: a node, a saved tensor, and what the tape keeps per world. */
#ifndef SHERD__NODE_H
#define SHERD__NODE_H

#include "autograd/replay.h"
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
    int64_t version; /* of the leaf's storage when it was used */
} sherd__edge;

/* A hook on the gradient of a tensor. */
typedef struct sherd__grad_hook {
    struct sherd__grad_hook *next;
    int id; /* 0 = removed while hooks run; freed when they have run */
    sherd_grad_hook run;
    void *payload;
    void (*destroy)(void *payload);
} sherd__grad_hook;

/* What somebody wants to know of the gradient of one tensor once it is complete; made when it is first asked for. */
typedef struct sherd__watch {
    sherd__record record; /* counts the leaf or the node, a running backward, running hooks */
    sherd_world *world;
    sherd__grad_hook *hook; /* in order of running */
    int next_hook, running;
    bool retains;           /* of what is no leaf: its gradient is kept here */
    sherd_tensor *retained; /* counted */
    /* For the backward that runs: */
    struct sherd__pass *pass; /* it knows of this leaf; NULL = none does */
    sherd_tensor *leaf;       /* not counted: an edge or the caller holds it */
    sherd_tensor *sum;        /* counted; of a leaf, what has come so far */
    int last;                 /* of a leaf: after this node of the list it is complete */
    sherd_tensor *
        *captured; /* where sherd_gradients wants it (counted there); NULL = it does not */
} sherd__watch;

typedef struct sherd__result {
    const sherd_layout *layout; /* counted */
    sherd_dtype dtype;
    int ndim;
    sherd_tensor *grad; /* counted; what has come so far in this backward */
    bool
        ours; /* all that came was its operators' own: nobody but the tape has it, and more may be added in place */
    int giver;           /* the place of the node that it came from last, for the comm log */
    sherd__watch *watch; /* counted; NULL = nobody asks */
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
    sherd_tensor *
        restored; /* counted; until the last slot is cleared, or the last node of a backward has used it */
    int last; /* that node's place in the list, where what is saved stays */
} sherd__kept;

struct sherd_node {
    sherd__record record; /* counts tensors, later nodes, and a running backward */
    sherd_world *world;
    const sherd_op *op;
    int place;      /* the module that recorded it, for the comm log */
    uint64_t order; /* later nodes have higher numbers, on all ranks alike */
    bool done;      /* its backward has run */
    bool broken;    /* something could not be saved */
    bool needed;    /* by that backward; else its gradients are only looked at */
    unsigned idle;  /* bits of operands whose gradients that backward does not want */
    unsigned fresh; /* bits of operands whose gradients its operator makes for the tape alone */
    struct sherd__pass *pass; /* the backward that will run it; NULL = none */
    int ins, outs, slots;
    sherd__replay
        *replay; /* counted; what is run again to have what this one saved; NULL = it is kept */
    int member;  /* its number there */
    sherd_dtype
        wide; /* gradients of results of 16 bits may have this one; SHERD_DTYPE_NONE: theirs */
    bool wide_moves; /* also of what they are moved to */
    bool again;      /* made while that is run again, and only then there */
    bool lacks;      /* what was to be saved and was not */
    uint64_t filled; /* bits of the slots that running again has filled */
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
    sherd__replay *replay; /* the innermost; not counted */
    int again;             /* how many are run again, inside of each other */
    bool paused;           /* not recording */
    sherd_dtype low;       /* that products are cast to; SHERD_DTYPE_NONE = they are not */
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

/* A node with room for so much, in no graph; NULL for lack of memory. */
sherd_node *sherd__node_create(sherd_world *world, int ins, int outs, size_t attributes);

/* A node was recorded: it is one of what is run again, if that is under way. */
void sherd__replay_join(sherd_node *node);
/* It goes. */
void sherd__replay_part(sherd_node *node);
/* Its backward has run, for good. */
void sherd__replay_done(sherd_node *node);
/* Take what a node saves; false: it is for the tape to keep. */
bool sherd__replay_save(sherd_node *node, int slot, sherd_tensor *t);
/* Have what a node lacks. False: failed, raised. */
bool sherd__replay_fill(sherd_node *node);
/* A backward has left it, and it may run again: drop that. */
void sherd__replay_empty(sherd_node *node);

/* Whether keeping a tensor takes no memory: it is a leaf's, or can be moved again from one. */
bool sherd__keeps_free(const sherd_tensor *t);

/* The saved form of a tensor: the one it has, or a new one. Counted for the caller; NULL: failed, raised. */
sherd__kept *sherd__keep(sherd_tensor *t);

/* The watch of a tensor that wants a gradient; NULL: none yet, or (make) out of memory, raised. */
sherd__watch *sherd__watch_of(const sherd_tensor *t);
sherd__watch *sherd__watch_make(sherd_tensor *t, const char *function);
/* A gradient is complete: the hooks may replace it. `layout` is the tensor's own. False: failed, raised. */
bool sherd__watch_run(sherd__watch *watch, sherd_tensor **grad, const sherd_layout *layout);

/*
 * One backward. The nodes that lead from the outputs to leaves, the newest first; each and each watch of a leaf is held
 * and marked until its turn.
 */
typedef struct sherd__pass {
    sherd_world *world;
    const char *function;
    bool retains;  /* nodes may run again */
    bool replaces; /* gradients of leaves start anew */
    bool only;     /* gradients go to where they are captured, and nowhere else */
    sherd_node **node;
    int nodes, node_room;
    sherd_node **heap; /* while they are listed: those that were found and are not listed yet */
    int waiting, heap_room;
    sherd__watch **leaf;
    int leaves, leaf_room;
} sherd__pass;

/* Find what must run. False: failed, raised. */
bool sherd__pass_collect(sherd__pass *pass, sherd_tensor *const *outputs, int count);
/* Give an output a gradient, which then counts it. False: failed, raised. */
bool sherd__pass_seed(sherd__pass *pass, sherd_tensor *output, sherd_tensor *grad);
/* Run it, and let go of everything; also after a failure. */
void sherd__pass_run(sherd__pass *pass);

/* A gradient moved to a layout, nothing pending (NULL layout: plain, nothing to do); not recorded. */
sherd_tensor *sherd__settled_to(sherd_tensor *grad, const sherd_layout *layout);

/* Nodes keep what they saved: note that the k-th of the list uses it, and forget what the last one has restored. */
void sherd__saved_used(const sherd_node *node, int k);
void sherd__saved_forget(const sherd_node *node, int k);

/* Add a gradient to a sum (NULL = none yet); both counted by the sum. False: failed. */
bool sherd__add_grad(sherd_tensor **sum, sherd_tensor *grad);
/* Add a gradient to a leaf's; one that takes more memory than the leaf is settled first. False: failed. */
bool sherd__add_leaf_grad(sherd_tensor *leaf, sherd_tensor *grad);

#endif
