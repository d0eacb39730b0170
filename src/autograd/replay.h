/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A piece of a program that is run again in backward, to have what its operators save: nothing but its arguments is
 * kept in between. For checkpointing of modules.
 */
#ifndef SHERD__REPLAY_H
#define SHERD__REPLAY_H

#include "tensor/tensor.h"

typedef struct sherd__replay sherd__replay;

/* What is run again. `self` belongs to it. */
typedef struct sherd__replayed {
    /* With the tensors that were kept; what comes out is of no interest. Reports its own failures. */
    void (*run)(void *self, sherd_tensor *const *tensors, int count);
    const char *(*name)(const void *self); /* for messages */
    void (*destroy)(void *self);
    void *self;
} sherd__replayed;

/*
 * What is recorded from here to the end keeps nothing. `count`: tensors to be kept. NULL: nothing is recorded now, or
 * (raised) out of memory; then `self` is destroyed, and keeping and ending are no-ops.
 */
sherd__replay *sherd__replay_begin(sherd_world *world, int count, const sherd__replayed *what);
/* Keep the i-th tensor (or NULL), as the hooks that are there now say. */
void sherd__replay_keep(sherd__replay *replay, int i, sherd_tensor *t);
void sherd__replay_end(sherd__replay *replay);

#endif
