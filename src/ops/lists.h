/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists that ranks send each other, when all ranks know the length of each. All ranks of the mesh
 * are put in one line, such that every `shards` consecutive ranks hold the dim together; these
 * exchange. What rank i of the line sends to the rank r places after it is shard i of the r-th
 * list, a tensor of one dim, from which the receiver reads that shard by a window. So what travels
 * is planned, checked and logged like any other call. All lists go in one call.
 */
#ifndef SHERD__OPS_LISTS_H
#define SHERD__OPS_LISTS_H

#include "shared.h"

typedef struct sherd__line {
    sherd_call *call;
    sherd__layout_spec spec; /* one dim, by all axes */
    int64_t ranks, shards;
    int64_t me, mine; /* this rank in the line; its shard */
} sherd__line;

/* False: this rank is not in the mesh. */
bool sherd__line_up(sherd__line *line, sherd_call *call, const sherd_mesh *mesh,
                    const sherd__dim *dim);

/* The shard `step` places behind another. */
static inline int64_t sherd__shard_behind(const sherd__line *line, int64_t shard, int64_t step)
{
    return (shard + step + line->shards) % line->shards;
}

/* The shard that has an index, by the cuts [shards + 1] of its dim. */
int64_t sherd__owner_of(const int64_t *cut, int64_t shards, int64_t index);

/*
 * [ranks]: how many elements a row (an entry of dim 0) of a tensor has on each rank of the line:
 * other dims may be sharded too, and unevenly. NULL: no memory, raised.
 */
const int64_t *sherd__line_rows(const sherd__line *line, const sherd_layout *layout);

typedef struct sherd__lists {
    const sherd__line *line;
    bool back; /* they go to the rank r places before, not behind */
    /* What a rank of the line has for the one r places away. Equal on all ranks. */
    int64_t (*length)(const void *what, int64_t rank, int64_t r);
    const void *what;
    sherd_dtype dtype;
    bool there; /* they are made in the GPU's memory */
} sherd__lists;

/* Room for `count` lists, empty ones. NULL: no memory, raised. */
sherd__windowed *sherd__lists_room(const sherd__line *line, int64_t count);

/*
 * The lists of all steps but 0, at out[1], ...: new tensors, of which this rank fills its shards,
 * and windows. False: failed, raised.
 */
bool sherd__lists_make(sherd__windowed *out, const sherd__lists *lists);

/* What has come by a list; *good is false if the alarm has ended the wait. */
const void *sherd__list_came(const sherd__windowed *one, bool *good);

/* The same in the GPU's memory. */
const void *sherd__list_came_there(const sherd__windowed *one, bool *good);

void sherd__lists_release(sherd__windowed *lists, int64_t count);

/*
 * All of that, where nothing else travels: make the lists, `fill` what this rank has for each rank
 * r places away, send all in one call, and `empty` what has come from the rank r places before.
 * Collective, in a scope of the call's. False: failed, raised.
 */
bool sherd__lists_send(const sherd__lists *lists,
                       bool (*fill)(const void *what, sherd_tensor *list, int64_t r),
                       bool (*empty)(const void *what, const sherd__windowed *list, int64_t r));

#endif
