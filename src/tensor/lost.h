/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of tensors when a check fails (lost.c). Part of tensor.h. */
#ifndef SHERD__TENSOR_LOST_H
#define SHERD__TENSOR_LOST_H

#include <stdint.h>

#include "sherd/tensor.h"

typedef enum sherd__lost {
    SHERD__THERE = 0,
    SHERD__NOT_MADE, /* some ranks do not have it */
    /* all have it, but only some have written to it, or received its contents */
    SHERD__HALF_WRITTEN
} sherd__lost;

/* Make `t` and all that share its storage valid again; unless `all`, only half-written ones. */
void sherd__revive(sherd_tensor *t, bool all);

/*
 * Around overwriting all elements of `t`: if it is half-written, it is valid meanwhile, and, if
 * `good`, afterwards, with all its views if it covers its storage. Begin returns what it was.
 */
sherd__lost sherd__overwrite_begin(sherd_tensor *t);
void sherd__overwrite_done(sherd_tensor *t, sherd__lost was, bool good);

/*
 * Whether writes from now on mark the family of a storage (what one optimizer changes), all of
 * which is lost if not all ranks do the deed, or only the tensor. Returns the previous setting.
 */
bool sherd__write_families(sherd_world *world, bool on);

/* Raise that `function` was given `t`, which is lost. */
void sherd__raise_lost(sherd_tensor *t, const char *function);

/* After a failed check: find what is lost. */
void sherd__lose(sherd_world *world);

#endif
