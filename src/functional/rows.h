/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts of rows (entries of dim 0) for operators that cut them anew: how rows are sharded is
 * given by one operand, and the others follow. Where the new cuts follow from data, shards tell
 * each other counts first: i64, equal on all ranks.
 */
#ifndef SHERD__FUNCTIONAL_ROWS_H
#define SHERD__FUNCTIONAL_ROWS_H

#include "apply/sketch.h"

/* How many shards the rows of a tensor have; and the rows of one. */
int64_t sherd__row_shards(const sherd_tensor *t);
int64_t sherd__rows_of_shard(const sherd_tensor *t, int64_t shard);

/* Whether what lies behind the first `dims` dims is dense in the local piece. */
bool sherd__rows_are_dense(const sherd_tensor *t, int dims);

/* What an operator does in a dry world that takes no memory besides its results. */
bool sherd__stay_dry(sherd_call *call);

/* Ways of an operator that counts: operand 0 stays, settled; the result is on all ranks. */
sherd_status sherd__counts_ways(const sherd_call *call, sherd_ways *ways);

/* Counts; NULL: this rank is not in the mesh, or the alarm is raised. */
const int64_t *sherd__counts_of(sherd_tensor *count);

/* Whether none of n counts is negative, and they add up to the total. */
bool sherd__counts_add_up(const int64_t *count, int64_t n, int64_t total);

/* Dims but the first lose these axes, and nothing is pending on them. */
void sherd__free_axes(sherd__layout_spec *spec, unsigned axes);

/* As x, with as many rows as in another layout, sharded as there; other dims lose those axes. */
sherd_status sherd__lay_rows(const sherd_layout **out, const sherd_layout *x,
                             const sherd_layout *rows);

/*
 * Rows of a layout after each shard has got another number of them, n in all: the sum of a column
 * of count[lists, shards]. count NULL: on a rank that knows none.
 */
sherd_status sherd__lay_counts(const sherd_layout **out, const sherd_layout *before, int64_t n,
                               const int64_t *count, int64_t lists, const char *name);

#endif
