/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of rows in groups: choices that all shards of tokens share, and operands of ones. */
#ifndef SHERD_TESTS_GROUPS_H
#define SHERD_TESTS_GROUPS_H

#include "points.h"
#include "sherd/ops_groups.h"

enum { TOKENS = 24, K = 2, WIDTH = 2048, GROUPS = 8 };

/* Token t chooses group t % 8 and the one after: so each shard of tokens needs all groups. */
static inline int32_t chosen(int64_t t, int64_t j)
{
    return (int32_t)((t + j) % GROUPS);
}

static inline sherd_tensor *choices_on(sherd_world *world, const sherd_mesh *mesh,
                                       const char *placements)
{
    static const int64_t shape[] = {TOKENS, K};
    int32_t data[TOKENS * K];

    for (int64_t c = 0; c < TOKENS * K; c++)
        data[c] = chosen(c / K, c % K);
    sherd_tensor *t = sherd_from_data(world, SHERD_I32, shape, 2, data);
    return sherd_distribute(sherd_mark_equal(t), layout_of(mesh, 2, shape, placements, NULL), -1);
}

static inline sherd_tensor *ones_on(const sherd_mesh *mesh, int ndim, const int64_t *shape,
                                    const char *placements)
{
    return sherd_require_grad(
        sherd_constant_on(layout_of(mesh, ndim, shape, placements, NULL), SHERD_F32, 1), true);
}

#endif
