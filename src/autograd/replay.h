/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Recomputation: a part of a program that backward runs again to compute what its operators need,
 * so that only its arguments are kept in between. For checkpointing of modules.
 */
#ifndef SHERD__AUTOGRAD_REPLAY_H
#define SHERD__AUTOGRAD_REPLAY_H

#include "autograd/tape.h"

typedef struct sherd__replay sherd__replay;

/* What is run again. `self` belongs to it. */
typedef struct sherd__replayed {
    /* gets the kept tensors; its results are ignored; reports its own failures */
    void (*run)(void *self, sherd_tensor *const *tensors, int count);
    const char *(*name)(const void *self); /* for messages */
    /* whether an operator's results are kept, and not computed again */
    bool (*keeps)(const void *self, const sherd_op *op);
    void (*destroy)(void *self);
    void *self;
} sherd__replayed;

/*
 * From here to sherd__replay_end, recorded operators save nothing. `count`: how many tensors will
 * be kept, at most 64. NULL: nothing is recorded now, or (raised) out of memory; then `self` is
 * destroyed, and keep and end are no-ops.
 */
sherd__replay *sherd__replay_begin(sherd_world *world, int count, const sherd__replayed *what);
/* Keep the i-th tensor (or NULL), packed by the saved-tensor hooks that are in force now. */
void sherd__replay_keep(sherd__replay *replay, int i, sherd_tensor *t);
void sherd__replay_end(sherd__replay *replay);

/* How a tensor lies; the layout is not counted. */
typedef struct sherd__as_found {
    const sherd_layout *layout; /* NULL = plain */
    sherd_dtype dtype;
} sherd__as_found;

/*
 * How a tensor lies here; in what is run again, how the one that came here the first time lay. Then
 * as many must come as then. Out of memory: raised.
 */
sherd__as_found sherd__replay_find(sherd_world *world, const sherd_tensor *t);
/* Whether a part is run again now, and no other part begins inside it. */
bool sherd__is_replayed(sherd_world *world);

/* A node was recorded: keep its results (hidden ones too), if it is run again without computing. */
void sherd__keep_results(sherd_node *node, sherd_tensor *const *out, int count);
/*
 * Of the second run (kept.c): whether the call that is about to be recorded has results that were
 * kept. Alike on all ranks.
 */
bool sherd__has_results(sherd_world *world, const sherd_op *op, sherd_tensor *const *in, int ins,
                        int outs);
/* The j-th of them, as a result of its own. The failed tensor: raised. */
sherd_tensor *sherd__kept_result(sherd_world *world, int j);

#endif
