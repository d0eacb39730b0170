/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The tape's inner structures: a node, a saved tensor, one backward, and what the tape keeps per
 * world.
 */
#ifndef SHERD__AUTOGRAD_NODE_H
#define SHERD__AUTOGRAD_NODE_H

#include "autograd/replay.h"
#include "autograd/tape.h"

/*
 * What a node knows of an operand. It keeps the operand's node or leaf alive, not the operand
 * itself.
 */
typedef struct sherd__edge {
    bool wanted;
    int output;                 /* of the node */
    sherd_node *node;           /* counted; NULL of a leaf */
    sherd_tensor *leaf;         /* counted; NULL if there is a node */
    const sherd_layout *layout; /* counted */
    sherd_dtype dtype;
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
    sherd__origin origin; /* of what was used; in a replay only */
} sherd__edge;

/* A hook on the gradient of a tensor. */
typedef struct sherd__grad_hook {
    struct sherd__grad_hook *next;
    int id;       /* 0 = removed while hooks run; freed when they have run */
    int64_t turn; /* how many had been registered before it */
    sherd_grad_hook run;
    void *payload;
    void (*destroy)(void *payload);
} sherd__grad_hook;

/*
 * Observers of the gradient of one tensor once it is complete: hooks, retained gradients,
 * sherd_gradients. Made on first use.
 */
typedef struct sherd__watch {
    sherd__refcounted head; /* counts the leaf or the node, a running backward, running hooks */
    sherd_world *world;
    sherd__grad_hook *hook; /* in order of running */
    int64_t hooked;         /* hooks that were ever registered */
    int running;
    bool retains;           /* of what is no leaf: its gradient is kept here */
    sherd_tensor *retained; /* counted */
    bool retained_seen;     /* as grad_seen of a leaf */
    /* For the backward that runs: */
    struct sherd__pass *pass; /* it knows of this leaf; NULL = none does */
    sherd_tensor *leaf;       /* not counted: an edge or the caller holds it */
    sherd_tensor *sum;        /* counted; of a leaf, what has come so far */
    int awaited;              /* of a leaf: uses of it whose nodes have still to run */
    sherd_tensor **captured;  /* where sherd_gradients wants it (counted there), or NULL */
} sherd__watch;

/* Whether it observes anything now: sherd_gradients leaves one behind that does not. */
static inline bool sherd__is_watching(const sherd__watch *watch)
{
    return watch && (watch->hook || watch->retains || watch->captured);
}

typedef struct sherd__result {
    const sherd_layout *layout; /* counted */
    sherd_dtype dtype;
    int ndim;
    sherd_tensor *grad;  /* counted; the sum so far in this backward */
    bool ours;           /* only the tape holds `grad`, so more may be added to it in place */
    int giver;           /* the place of the node that gave the last addend, for the comm log */
    sherd__watch *watch; /* counted, or NULL */
} sherd__result;

/*
 * A tensor saved for backward, shared by all slots that saved it (found through tensor->saved).
 * Either `base` is set: it is a move of that, and will be moved again; or `kept` is the tensor that
 * is held.
 */
typedef struct sherd__regathered sherd__regathered; /* of those that are moved again in one call */
typedef struct sherd__kept {
    sherd__refcounted head; /* counts slots, and those that are moved from here */
    sherd_world *world;
    sherd_tensor *owner;   /* whose `saved` this is; not counted, NULL once it is gone */
    int64_t owner_version; /* of its storage when it was saved */
    struct sherd__kept *base;
    sherd__regathered *group; /* counted, or NULL; only with a base */
    sherd_tensor *kept;       /* counted, in no scope, without node */
    int64_t version;          /* of its storage when it was kept */
    bool counted;             /* counted in saved_bytes */
    bool packed;              /* by these hooks: */
    sherd_saved_hooks hooks;
    const void *undo;
    const sherd_layout *layout; /* of the tensor, as are the rest; counted */
    sherd_dtype dtype;
    int ndim;
    int64_t shape[SHERD_MAX_DIMS], stride[SHERD_MAX_DIMS];
    bool strided; /* and so it lies again after hooks: products and sums may read it as it lies */
    /* counted; until the last slot is cleared, or the last node of a backward has used it */
    sherd_tensor *restored;
    int last; /* that node's place in the list, in a backward that retains */
} sherd__kept;

struct sherd_node {
    sherd__refcounted head; /* counts tensors, later nodes, and a running backward */
    sherd_world *world;
    const sherd_op *op;
    int place;      /* the module that recorded it, for the comm log */
    uint64_t order; /* later nodes have higher numbers, on all ranks alike */
    bool done;      /* its backward has run */
    bool broken;    /* something could not be saved */
    bool needed;    /* `pass` needs its backward; otherwise only its gradients are observed */
    unsigned idle;  /* bits of operands whose gradients `pass` does not need */
    unsigned fresh; /* bits of operands whose gradients its operator makes for the tape alone */
    unsigned later; /* bits of operands whose gradients `pass` has put off */
    unsigned rest;  /* bits of operands whose gradients the second part of `pass` computes */
    struct sherd__pass *pass; /* the backward that will run it; NULL = none */
    int ins, outs, slots;
    sherd__replay *replay; /* counted; computes again what this node needs; NULL = it is saved */
    int member;            /* its number in the replay */
    /* the dtype that gradients of 16-bit results may have; SHERD_DTYPE_NONE: their own only */
    sherd_dtype wide;
    bool wide_moves; /* the same for what these results are moved to */
    bool again;      /* made while recomputing, and only for that time */
    bool lacks;      /* something that it needs was not saved */
    uint64_t filled; /* bits of the slots that recomputing has filled */
    /* These follow the node in the same allocation. */
    sherd__edge *in;
    sherd__result *out;
    sherd__kept **slot;
    void *attributes;
    sherd_node *dying; /* list of nodes to be freed */
};

_Static_assert(SHERD_MAX_OPERANDS <= 32 && SHERD_MAX_OPERANDS + SHERD_MAX_RESULTS <= 64,
               "bits of operands fit an unsigned, those of slots 64 bits");

/* The tape of a world. It is in the tensor room's spare bytes, so it always exists. */
typedef struct sherd__tape {
    sherd_world *world;
    sherd__replay *replay; /* the innermost; not counted */
    int again;             /* how many replays are recomputing, one inside another */
    bool paused;           /* not recording */
    bool graph;            /* the backward that runs is recorded (create_graph) */
    bool waits;            /* gradients of sharded leaves wait to be settled */
    sherd_dtype low;       /* autocast's dtype; SHERD_DTYPE_NONE = autocast is off */
    uint64_t order;
    int64_t saved_bytes;
    sherd_saved_hooks *hooks; /* stack */
    int hooked, hook_room;
    int unpushed;      /* hooks that could not be pushed for lack of memory */
    sherd_node *dying; /* nodes to be freed, one after the other instead of recursively */
    bool freeing;
} sherd__tape;

_Static_assert(sizeof(sherd__tape) <= SHERD__SPARE_BYTES, "the spare room is too small");

/* Made here, if sherd__tape_of finds none yet. */
sherd__tape *sherd__tape_open(sherd_world *world);

static inline sherd__tape *sherd__tape_of(sherd_world *world)
{
    sherd__tape *tape = sherd__world_state(world, SHERD__ROOM_AUTOGRAD);

    return tape ? tape : sherd__tape_open(world);
}

/* Whether an operator is the library's own, and so not checked. */
static inline bool sherd__is_own(const sherd_op *op)
{
    const char *name = op->name;

    return name && name[0] == 's' && name[1] == 'h' && name[2] == 'e' && name[3] == 'r' &&
           name[4] == 'd' && name[5] == '_';
}

/* In which slot operand i of a call is declared: the last slot may stand for several operands. */
static inline int sherd__slot_number(const sherd_op *op, int i)
{
    int last = 0;

    while (last < i && last + 1 < SHERD_OP_SLOTS && op->operand[last + 1].name)
        last++;
    return last;
}

/* Drop the edges of a node and what it saved: its backward has run, or it is freed. */
void sherd__node_clear(sherd_node *node);

/*
 * A node with room for its operands, results and attributes, not linked to others; NULL if memory
 * runs out.
 */
sherd_node *sherd__node_create(sherd_world *world, int ins, int outs, size_t attributes);

/* A node was recorded: it belongs to the innermost replay, if there is one. */
void sherd__replay_join(sherd_node *node);
/* The node is freed. */
void sherd__replay_part(sherd_node *node);
/* Its backward has run and will not run again. */
void sherd__replay_done(sherd_node *node);

/*
 * Take a tensor that a node saves, if a replay will compute it again; false: the tape must keep it.
 */
bool sherd__replay_save(sherd_node *node, int slot, sherd_tensor *t);
/* Compute again what a node has not saved. False: failed, raised. */
bool sherd__replay_fill(sherd_node *node);
/* Backward has left the node, but it may run again: drop what was computed for it. */
void sherd__replay_empty(sherd_node *node);

/* Whether keeping a tensor takes no memory: it is a leaf's, or can be moved again from one. */
bool sherd__keeps_free(const sherd_tensor *t);

/*
 * The saved form of a tensor: the present one, or a new one. Counted for the caller; NULL: failed,
 * raised.
 */
sherd__kept *sherd__keep(sherd_tensor *t);

/* How many addends a pending average has; 1 of what is none. */
double sherd__averaged(const sherd_layout *layout);

/*
 * The watch of a tensor that requires a gradient; NULL: none yet, or (make) out of memory, raised.
 */
sherd__watch *sherd__watch_of(const sherd_tensor *t);
sherd__watch *sherd__watch_make(sherd_tensor *t, const char *function);
/* Free hooks that were removed, or all. */
void sherd__watch_sweep(sherd__watch *watch, bool all);

/*
 * Run the hooks on a complete gradient, which they may replace. `layout` is the tensor's own.
 * False: failed, raised.
 */
bool sherd__watch_run(sherd__watch *watch, sherd_tensor **grad, const sherd_layout *layout);

/* How many nodes may have gradients that were put off. */
enum { SHERD__MAX_LATE = 2 };

/*
 * The parts of a backward: the whole; the gradients of some leaves, which somebody waits for; and
 * the gradients of all others.
 */
typedef enum sherd__phase { SHERD__WHOLE, SHERD__FIRST, SHERD__SECOND } sherd__phase;

/* A gradient that the first part has computed along the way, and the second part delivers. */
typedef struct sherd__parked {
    const sherd_node *node; /* of operand i; NULL: of `leaf`, an output itself (counted) */
    int i;
    sherd_tensor *leaf, *grad; /* `grad` is counted */
} sherd__parked;

/*
 * One backward: the nodes that lead from the outputs to leaves, newest first. Each node, and each
 * watch of a leaf, is held and marked until its turn.
 */
typedef struct sherd__pass {
    sherd_world *world;
    const char *function;
    bool retains;   /* nodes may run again */
    bool replaces;  /* gradients of leaves are replaced, not added to */
    bool only;      /* gradients are only captured, not stored in leaves */
    bool graph;     /* it is recorded (create_graph); `only` and `retains` are set, too */
    uint64_t first; /* what is older leads to no captured gradient; 0 = leaves may */
    sherd_tensor *const *given; /* [givens] the caller's gradients of the outputs, or NULL */
    int givens;
    sherd__phase part;
    sherd_tensor *const *soon; /* [soons] the leaves of the first part; while it runs */
    int soons;
    sherd__parked *parked; /* in the order of their nodes */
    int parks, park_room, delivered;
    sherd_node **node; /* NULL: the first part was all of it */
    int nodes, node_room;
    sherd_node **heap; /* while listing: nodes that were found and are not listed yet */
    int waiting, heap_room;
    sherd_tensor **settled; /* gradients of one call, which may be under way; counted */
    int settling, settled_room;
    int turn;      /* the node whose turn it is */
    uint64_t used; /* the group of gathered tensors that was used last (restored.c) */
    sherd__watch **leaf;
    int leaves, leaf_room;
    int late[SHERD__MAX_LATE + 1]; /* nodes with gradients that were put off; the oldest first */
    int lates;
    bool moving; /* the node that ran last has begun a move */
} sherd__pass;

/* Find the nodes that must run. False: failed, raised. */
bool sherd__pass_collect(sherd__pass *pass, sherd_tensor *const *outputs, int count);
/* Observe a leaf's gradient, if anybody does. False: failed, raised. */
bool sherd__pass_watch(sherd__pass *pass, sherd_tensor *leaf);
/* The watch of the leaf that an edge leads to, if this backward knows of it. */
sherd__watch *sherd__watched(const sherd__pass *pass, const sherd__edge *in);
/* Give an output its gradient, which is then counted. False: failed, raised. */
bool sherd__pass_seed(sherd__pass *pass, sherd_tensor *output, sherd_tensor *grad);
/*
 * Run it, or the part that it is in, unless it has failed; release what no other part needs. False:
 * failed, raised. Then clear it.
 */
bool sherd__pass_run(sherd__pass *pass, bool good);
/* Release its lists. */
void sherd__pass_clear(sherd__pass *pass);

/* ---- the two parts (collect.c, parts.c) ------------------------------------------------------ */

/* Whether the first part computes the gradient of this leaf; the whole computes all. */
bool sherd__is_soon(const sherd__pass *pass, const sherd_tensor *leaf);
/* Find what the first part has to run, and what it leaves to the second. */
void sherd__part_first(sherd__pass *pass);
/* Release what a node has saved and the second part does not need. */
void sherd__part_keep(sherd_node *node);
/* Go over to the second part: observe its leaves. False: failed, raised. */
bool sherd__part_second(sherd__pass *pass);
/* Keep a gradient for the second part. False: failed, raised. */
bool sherd__park(sherd__pass *pass, const sherd_node *node, int i, sherd_tensor *leaf,
                 sherd_tensor *grad);
/* The next of those that are kept, if it is of this node; its gradient stays counted there. */
const sherd__parked *sherd__next_parked(sherd__pass *pass, const sherd_node *node);

/* ---- gradients that are complete (complete.c) ------------------------------------------------ */

/* Move the gradient of a result to the result's layout, settled. False: failed, raised. */
bool sherd__settle_output(sherd_node *node, sherd__result *out, bool begin);
/* The gradient of a result, or of a leaf, is complete. False: failed, raised. */
bool sherd__finish_gradient(const sherd__pass *pass, sherd_node *node, sherd__result *out);
bool sherd__finish_leaf(const sherd__pass *pass, sherd__watch *watch);
/* The node has given all its gradients: those of leaves that await no others are complete. */
bool sherd__finish_leaves(const sherd__pass *pass, const sherd_node *node);

/* ---- backwards that are recorded (graph.c) --------------------------------------------------- */

/*
 * A restored tensor as the operand or result that it was (slot i), with its place in the graph: so
 * what is computed from it leads back to there. In the scope.
 */
sherd_tensor *sherd__linked(sherd_node *node, int slot, sherd_tensor *restored);
/* Record that y is t after a move or a cast, or a view of it; that `sum` is a + b. They return y
 * and `sum`. */
sherd_tensor *sherd__record_same(sherd_tensor *y, sherd_tensor *t);
sherd_tensor *sherd__record_sum(sherd_tensor *sum, sherd_tensor *a, sherd_tensor *b);

/* A gradient in another floating-point dtype. */
sherd_tensor *sherd__converted(sherd_tensor *t, sherd_dtype dtype);

/*
 * A gradient moved to a layout with nothing pending (NULL layout: plain, nothing to do). `begin`:
 * it may be under way on return.
 */
sherd_tensor *sherd__settled_to(sherd_tensor *grad, const sherd_layout *layout, bool begin);

/* ---- what was saved (saved.c, restored.c) ---------------------------------------------------- */

/*
 * If nodes keep what they saved (retain): note that the k-th node of the list uses it; drop what
 * was restored when its last user has run.
 */
void sherd__saved_used(const sherd_node *node, int k);
void sherd__saved_forget(const sherd_node *node, int k);
/* What is to be moved again is there already, since a part was run again: that serves. */
void sherd__saved_again(sherd__kept *kept, sherd_tensor *t);

/* Refuse what pack or unpack has returned for it. */
void sherd__wrong_hook(const sherd__kept *k, const char *which, sherd_tensor *other);

/* What was saved, restored for the operator `name`; the failed tensor if it was written since. */
sherd_tensor *sherd__restored(sherd__kept *k, const char *name);

/* ---- gathered together (group.c, restored.c, together.c) ------------------------------------- */

extern const sherd_op sherd__together_op;

/* What is kept goes, and its group no longer knows of it. */
void sherd__group_leave(sherd__kept *k);
/*
 * This backward uses a tensor of a group: if it is the first one, begin to restore the group that
 * is needed next. `name`: of the operator, for messages.
 */
void sherd__group_used(struct sherd__pass *pass, const sherd__regathered *g, const char *name);
/* Restore all of a group that are there. False: failed, raised. */
bool sherd__group_restore(sherd__regathered *g, const char *name);
/*
 * The k-th node is the first of those that gathered leaves in one call: settle their gradients in
 * one round. It may be under way while backward goes on, until the next round or the end. False:
 * failed, raised.
 */
bool sherd__settle_together(sherd__pass *pass, int k);
/* Wait for what is under way. */
void sherd__settled_wait(sherd__pass *pass);

/* ---- sums of gradients (grad.c) -------------------------------------------------------------- */

/* Whether a gradient takes more memory than its leaf: a pending sum of what that has a part of. */
bool sherd__is_larger(const sherd_tensor *leaf, const sherd_tensor *grad);

/* Add a gradient to a sum (NULL = none yet); the sum counts both. False: failed. */
bool sherd__add_grad(sherd_tensor **sum, sherd_tensor *grad);

/*
 * Add a gradient to a leaf's; one that takes more memory than the leaf is settled, unless
 * gradients wait. False: failed.
 */
bool sherd__add_leaf_grad(const sherd__pass *pass, sherd_tensor *leaf, sherd_tensor *grad);

/*
 * Make what is kept a copy if it shares its storage with a gradient that the caller gave, and may
 * write anew. False: failed.
 */
bool sherd__keep_apart(const sherd__pass *pass, sherd_tensor **kept);

#endif
