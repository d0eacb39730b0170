/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One row of logits, or a shard of it, from which an index is drawn. Weights are integers, so that
 * sums of them are exact: they are the same in any order, and however a row is sharded.
 */
#ifndef SHERD__FUNCTIONAL_DRAW_H
#define SHERD__FUNCTIONAL_DRAW_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* So many of a row's, or a shard's, largest logits are kept in order at most. */
enum { SHERD__LIKELY = 128, SHERD__DRAW_BYTES = 28, SHERD__BINS = 4 * 63 };

typedef struct sherd__row {
    const sherd__kernels *f64;
    int64_t length; /* of the whole row */
    double temperature, top_p, min_p;
    int64_t top_k;
    double u;     /* in (0, 1) */
    double most;  /* the largest logit of the whole row */
    double least; /* logits below it are left out */
    /* The elements here, and room for as many: SHERD__DRAW_BYTES for each. */
    int64_t n;
    double *x, *w;
    int64_t *weight; /* of those that are kept: `kept` */
    int32_t *at;     /* their indices */
    int64_t kept;
} sherd__row;

/* Let d->x .. d->at begin at `room`, aligned to 8 bytes, for n elements. */
void sherd__draw_room(sherd__row *d, void *room, int64_t n);

/*
 * The `count` largest logits, in order, of d->x; -infinity where there are no more. The first is
 * NaN if one is.
 */
void sherd__draw_first(const sherd__row *d, int64_t count, double *list);

/* Why nothing can be drawn, d->most being known; NULL: it can. */
const char *sherd__draw_fault(const sherd__row *d);

/* How many of them a row needs: its top_k, if that is SHERD__LIKELY at most; otherwise only one. */
int64_t sherd__draw_listed(const sherd__row *d);

/*
 * Whether top_k is found in such lists of so many shards, of `width` each; then d->least is set.
 * `next`: room for a number for each shard.
 */
bool sherd__draw_top(sherd__row *d, int64_t shards, int64_t width, const double *lists,
                     int64_t *next);

/* Weights of those that min_p and top_k keep; their sum. */
int64_t sherd__draw_weigh(sherd__row *d);

/*
 * Where the least weight that top_p keeps lies among all, without lists. sherd__draw_spread: how
 * much weighs as much as each of SHERD__BINS bins, and how many elements these are; bins of shards
 * add up. sherd__draw_bin: the bin in which it is, and what is still to be reached by its weights,
 * of a `total`. sherd__draw_take: the weights of a bin; how many. sherd__draw_threshold: the least
 * weight, of these of all shards, which get into disorder.
 */
typedef struct sherd__bins {
    int64_t mass[SHERD__BINS], count[SHERD__BINS];
} sherd__bins;

void sherd__draw_spread(const sherd__row *d, sherd__bins *bins);
int sherd__draw_bin(const sherd__row *d, int64_t total, const sherd__bins *bins, int64_t *target);
int64_t sherd__draw_take(const sherd__row *d, int bin, int64_t *to);
int64_t sherd__draw_threshold(int64_t *c, int64_t n, int64_t target);

/*
 * The same from lists, if top_k has kept no more than they have. 0: it is not among them. `room`:
 * 16 bytes for each element of the lists.
 */
int64_t sherd__draw_likely(const sherd__row *d, int64_t total, int64_t shards, int64_t width,
                           const double *lists, int64_t *next, void *room);

/* Leave out weights below `least`; the sum of the others. */
int64_t sherd__draw_leave(sherd__row *d, int64_t least);

/* Where in a sum of weights the number of the row lies: in [0, total). */
int64_t sherd__draw_place(const sherd__row *d, int64_t total);

/* The element at which the running sum of weights passes `place`. */
int64_t sherd__draw_find(const sherd__row *d, int64_t place);

/* All of it, of a row that is whole and has no fault, at a temperature that is not 0. */
int64_t sherd__draw_whole(sherd__row *d);

#endif
