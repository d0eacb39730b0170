/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule of one rank for a window, and what all ranks together receive. */
#ifndef SHERD__PLAN_WINDOW_SCHEDULE_H
#define SHERD__PLAN_WINDOW_SCHEDULE_H

#include "inside.h"
#include "window.h"

/* Of ascending shards [box[2i], box[2i + 1]) the first that ends beyond `at`. */
int64_t sherd__shard_of(const int64_t *box, int64_t shards, int64_t at);

/* *out is NULL for a rank outside of the mesh. */
sherd_status sherd__window_schedule(sherd__schedule **out, const sherd__window *window,
                                    sherd__direction direction, size_t element_bytes, int rank);

#endif
