/* SPDX-License-Identifier: Apache-2.0 */
/* Where contents come from, while what runs may be run again: see origin.c. */
#ifndef SHERD__TENSOR_ORIGIN_H
#define SHERD__TENSOR_ORIGIN_H

#include <stdint.h>

#include "sherd/tensor.h"

/* Contents: which, and in which state. Mixed of several; of none `who` is 0. */
typedef struct sherd__contents {
    uint64_t who, when;
} sherd__contents;

/*
 * Where contents come from: what they were computed of, also by writes into them; and in which
 * storages older than the run they were found, as they were then, whoever had written them.
 */
typedef struct sherd__origin {
    sherd__contents made, found;
} sherd__origin;

/*
 * Between enter and leave origins are noted. The first run of a part is a part of the run around
 * it, if there is one; a second one (`again`) is a run of its own. `before`: what enter returned.
 */
uint64_t sherd__origins_enter(sherd_world *world, bool again);
void sherd__origins_leave(sherd_world *world, uint64_t before);
/* What a tensor was computed from; none unless a run is noted. */
sherd__origin sherd__origin_of(const sherd_tensor *t);
void sherd__origin_set(sherd_tensor *t, sherd__origin origin);
sherd__origin sherd__origin_mixed(sherd__origin a, sherd__origin b);
/* Whether what a run used was written before the second run used it. */
bool sherd__origin_changed(const sherd__origin *first, const sherd__origin *again);
/* Results have the origins of all operands, unless they share storage with one. NULLs are skipped.
 */
void sherd__origin_pass(sherd_tensor *const *in, int ins, sherd_tensor *const *out, int outs);

#endif
