/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pending sum that becomes a small part of something large is settled while it is small: modes of
 * a spectrum that are padded to all frequencies, for example. What grows little stays pending.
 */
#include "check.h"

#include <stdio.h>

#include "sherd/autograd.h"
#include "sherd/comm.h"
#include "sherd/ops.h"
#include "sherd/ops_shape.h"
#include "sherd/values.h"

enum { SMALL = 8, LARGE = 800 };

/* The sum of 1 + its index from each rank, pending. */
static sherd_tensor *addends(sherd_world *world, const sherd_mesh *mesh)
{
    sherd_tensor *mine = sherd_arange(world, SHERD_F64, 1, SMALL + 1, 1);

    return sherd_from_local(mine, mesh, (sherd_placement[]){sherd_partial(SHERD_SUM)}, NULL);
}

static const sherd_mesh *line(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    return mesh;
}

static bool is_pending(const sherd_tensor *t)
{
    return sherd_layout_placement(sherd_tensor_layout(t), 0).kind == SHERD_PARTIAL;
}

static int64_t received(sherd_world *world)
{
    return sherd_comm_bytes(world, NULL);
}

/* Elements that are not what they should be: `first` zeros, the sums, zeros. */
static int count_wrong(sherd_tensor *y, int64_t first, int ranks)
{
    const double *x = sherd_tensor_read(sherd_full(y));
    int wrong = x == NULL;

    for (int64_t i = 0; x && i < sherd_tensor_count(y); i++) {
        int64_t j = i - first;
        wrong += x[i] != (j >= 0 && j < SMALL ? (double)(ranks * (j + 1)) : 0);
    }
    return wrong;
}

static void what_grows_is_settled_before(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = line(world);
    sherd_tensor *t = sherd_require_grad(addends(world, mesh), true);
    const int64_t some = 2, many = LARGE - SMALL, none = 0;
    int64_t most = (int64_t)(ranks - 1) * 2 * SMALL * (int64_t)sizeof(double);

    sherd_tensor *near = sherd_pad(t, &some, &some, 0);
    CHECK(is_pending(near));
    CHECK_EQ(count_wrong(near, some, ranks), 0);
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_pad(t, &some, &many, 0), *whole = sherd_full(y);
    CHECK(!is_pending(y));
    CHECK(received(world) <= most);
    CHECK_EQ(count_wrong(y, some, ranks), 0);
    (void)whole;
    sherd_backward(sherd_sum(y));
    CHECK_EQ(sherd_item(sherd_sum(sherd_grad(t))), SMALL);
    y = sherd_pad(t, &none, &many, 1); /* the value counts once */
    CHECK_EQ(sherd_item(sherd_sum(y)), ranks * SMALL * (SMALL + 1) / 2 + LARGE - SMALL);
    CHECK_OK(sherd_world_check(world));
}

static void a_small_part_is_settled_before(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = line(world);
    const int64_t large = LARGE, small = SMALL;
    const sherd_layout *many = NULL, *few = NULL;
    int64_t most = (int64_t)(ranks - 1) * 2 * SMALL * (int64_t)sizeof(double);

    CHECK_OK(sherd_layout_parse_placements(&many, mesh, 1, &large, "R", NULL));
    CHECK_OK(sherd_layout_parse_placements(&few, mesh, 1, &small, "R", NULL));
    sherd_tensor *t = addends(world, mesh), *zeros = sherd_constant_on(many, SHERD_F64, 0);
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_cat((sherd_tensor *[]){zeros, t}, 2, 0);
    CHECK(!is_pending(y));
    CHECK_EQ(count_wrong(y, LARGE, ranks), 0);
    CHECK(received(world) <= most);
    y = sherd_cat((sherd_tensor *[]){sherd_constant_on(few, SHERD_F64, 0), t}, 2, 0);
    CHECK(is_pending(y));
    CHECK_EQ(count_wrong(y, SMALL, ranks), 0);
    y = sherd_cat((sherd_tensor *[]){t, sherd_scale(t, 0)}, 2, 0);
    CHECK(is_pending(y));
    CHECK_EQ(count_wrong(y, 0, ranks), 0);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(what_grows_is_settled_before), {1, 2, 3, 4}},
    {TEST(a_small_part_is_settled_before), {2, 3, 4}},
};
CHECK_MAIN(tests)
