/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of elements that are normalised together, and numbers of them that ranks join. */
#ifndef SHERD__SETS_H
#define SHERD__SETS_H

#include "kernels/norms.h"
#include "operator.h"

/* What is here of x[batch,channels,dims...]. Rows are those of kernels/norms.h; those of a set are neighbours. */
typedef struct sherd__sets {
    sherd__norming n;
    int64_t first, group; /* this rank's first channel in the whole tensor; channels of a group */
    int64_t items, slots; /* sets [items,slots]: of each item the groups that are here */
    int64_t rows, sets;
} sherd__sets;

/* Of `groups` of channels of one item each; 0: of each channel of the whole batch. */
sherd__sets sherd__sets_of(const sherd_tensor *x, int64_t groups);

/* The channels here of slot s are [*lo, the end that is returned). */
int64_t sherd__slot_end(const sherd__sets *p, int64_t s, int64_t *lo);

/* set[i * step] += the rows of set i, each times its channel's weight; NULL = ones. */
void sherd__sets_add(const sherd__sets *p, double *set, int step, const double *row,
                     const double *weight);

/* Each row gets the number of its set. */
void sherd__sets_give(const sherd__sets *p, double *row, const double *set, int step);

/* Two parts of a set are joined: the numbers of the second come to those of the first, which are zeroes at first. */
typedef void (*sherd__join)(double *to, const double *from);

enum { SHERD__SET_NUMBERS = 3 };

/*
 * numbers[sets,width] of this rank's part of each set become those of the whole set, joined in the order of shards; operand
 * 0 of the call lies as x. `width` is at most SHERD__SET_NUMBERS. One call if any set is on several ranks, else none. False:
 * failed.
 */
bool sherd__sets_exchange(sherd_call *call, const sherd__sets *p, double *numbers, int width,
                          sherd__join put);

#endif
