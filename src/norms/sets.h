/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Sets of elements that are normalised together (groups, channels), and combining their moments
 * over ranks.
 */
#ifndef SHERD__NORMS_SETS_H
#define SHERD__NORMS_SETS_H

#include "kernels/norms.h"
#include "ops/shared.h"

/*
 * This rank's part of x[batch,channels,dims...]. Rows are those of kernels/norms.h; the rows of a
 * set are adjacent.
 */
typedef struct sherd__sets {
    sherd__norming n;
    int64_t first, group; /* this rank's first channel in the whole tensor; channels of a group */
    int64_t lacks;        /* channels of the first group that are on ranks before this one */
    int64_t items, slots; /* sets [items,slots]: of each item the groups that are here */
    int64_t rows, sets;
} sherd__sets;

/*
 * With `groups` groups of channels of one item each; 0: sets of one channel over the whole batch.
 */
sherd__sets sherd__sets_of(const sherd_tensor *x, int64_t groups);

/* The channels of slot s on this rank are [*lo, the returned end). */
int64_t sherd__slot_end(const sherd__sets *p, int64_t s, int64_t *lo);

/* Dims of x (bits), besides channels, whose shards have parts of one set; *cut: a group's channels
 * are on several ranks. */
unsigned sherd__sets_shared(const sherd_tensor *x, const sherd__sets *p, bool *cut);

/*
 * Combine two parts of a set: fold the values of the second into those of the first, which are
 * zeros initially.
 */
typedef void (*sherd__join)(double *to, const double *from);

enum { SHERD__SET_NUMBERS = 3 };

/*
 * numbers[sets,width] of this rank's part of each set become those of the whole set, combined in
 * shard order; operand 0 of the call has the layout of x. `width` is at most SHERD__SET_NUMBERS.
 * One call if any set is on several ranks, otherwise none. False: failed.
 */
bool sherd__sets_exchange(sherd_call *call, const sherd__sets *p, double *numbers, int width,
                          sherd__join put);

#endif
