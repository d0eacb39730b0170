/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts of rows (entries of dim 0) for operators that cut them anew: how rows are sharded is
 * given by one operand, and the others follow.
 */
#ifndef SHERD__ROWS_H
#define SHERD__ROWS_H

#include "apply/sketch.h"

/* Dims but the first lose these axes, and nothing is pending on them. */
void sherd__free_axes(sherd__layout_spec *spec, unsigned axes);

/* As given, but nothing is pending. */
sherd_status sherd__lay_settled(const sherd_layout **out, const sherd_layout *given);

/* As x, with as many rows as in another layout, sharded as there; other dims lose those axes. */
sherd_status sherd__lay_rows(const sherd_layout **out, const sherd_layout *x,
                             const sherd_layout *rows);

/*
 * Of one dim, after each shard has got another number of rows, count[shard], n in all. count NULL:
 * on a rank that knows none.
 */
sherd_status sherd__lay_counts(const sherd_layout **out, const sherd_layout *before, int64_t n,
                               const int64_t *count, const char *name);

#endif
