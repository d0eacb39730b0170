/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of tensors when a check fails (lost.c). Part of tensor.h. */
#ifndef SHERD__LOST_H
#define SHERD__LOST_H

#include <stdint.h>

#include "sherd/tensor.h"

typedef enum sherd__lost {
    SHERD__THERE = 0,
    SHERD__NOT_MADE, /* not by all ranks */
    /* all have it, but some have written to it, or got what came for it, and others have not */
    SHERD__HALF_WRITTEN
} sherd__lost;

/* `t`, and all that share its storage, are valid again: half-written ones if !all. */
void sherd__revive(sherd_tensor *t, bool all);

/*
 * For a function that overwrites all elements of `t`, which may be half-written: it is valid
 * meanwhile, with all that share its storage if it is all of that. Returns what it was, for `done`.
 */
sherd__lost sherd__overwrite_begin(sherd_tensor *t);
void sherd__overwrite_done(sherd_tensor *t, sherd__lost was, bool good);

/*
 * Until the next call of this: what is written is marked as one of its storage's family, all of
 * which is lost if not all ranks have done the deed, or (false) as itself. Returns what it was.
 */
bool sherd__write_families(sherd_world *world, bool on);

/* Raise that `function` was given `t`, which is lost. */
void sherd__raise_lost(sherd_tensor *t, const char *function);

/* After a failed check: find what is lost. */
void sherd__lose(sherd_world *world);

#endif
