/* SPDX-License-Identifier: Apache-2.0 */
/* Averages of a module over its training: values under all layouts, and what is refused. */
#include "modules.h"
#include "sherd/average.h"
#include "sherd/parallel.h"

enum { ROWS = 5, COLUMNS = 3, ALL = ROWS * COLUMNS };

/* A weight, a bias in a child, and a buffer of integers; equal on all ranks. */
static sherd_module *make(sherd_world *world, sherd_dtype dtype, int k)
{
    sherd_module *m = NULL, *part = NULL;

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    CHECK_OK(sherd_module_create(&part, world, NULL, NULL));
    CHECK_OK(sherd_module_add(m, "part", part));
    CHECK_OK(sherd_module_add_parameter(
        m, "weight", wave(world, dtype, 2, SHAPE(ROWS, COLUMNS), k, 0.4, 0.1 * k)));
    CHECK_OK(sherd_module_add_parameter(part, "bias", wave(world, dtype, 1, SHAPE(ROWS), k, 1, 0)));
    CHECK_OK(sherd_module_add_buffer(part, "seen", sherd_constant(world, SHERD_I64, NULL, 0, k)));
    return m;
}

static sherd_tensor *weight_of(sherd_module *m)
{
    return sherd_module_parameter(m, "weight");
}

static double seen_by(sherd_module *m)
{
    return sherd_item(sherd_module_buffer(sherd_module_find(m, "part"), "seen"));
}

/* How the two modules lie on a mesh with the axis tp: plain, replicated, or sharded. */
typedef enum way { PLAIN, REPLICATED, SHARDED, WAYS } way;

static void lay(sherd_module *m, const sherd_mesh *mesh, way how)
{
    if (how == REPLICATED)
        CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
    if (how == SHARDED)
        CHECK_OK(sherd_fully_shard(m, mesh, "tp", NULL));
}

static void follow(sherd_world *world, sherd_dtype dtype, way how_average, way how_module)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *average = make(world, SHERD_F32, 1), *m = make(world, dtype, 2);
    double a[MOST], b[MOST], got[MOST];
    const double tolerance = dtype == SHERD_BF16 ? 1e-6 : 3e-7;

    lay(average, mesh, how_average);
    lay(m, mesh, how_module);
    CHECK_EQ(whole(weight_of(average), a), ALL);
    CHECK_EQ(whole(weight_of(m), b), ALL);
    for (int step = 0; step < 3; step++) {
        sherd_module_average(average, m, 0.25);
        CHECK_EQ(whole(weight_of(average), got), ALL);
        for (int i = 0; i < ALL; i++) {
            a[i] += 0.25 * (b[i] - a[i]);
            CHECK_NEAR(got[i], a[i], tolerance);
        }
    }
    CHECK_EQ(seen_by(average), 2);
    sherd_module_average(average, m, 0);
    CHECK_EQ(whole(weight_of(average), got), ALL);
    for (int i = 0; i < ALL; i++)
        CHECK_NEAR(got[i], a[i], tolerance);
    sherd_module_average(average, m, 1);
    CHECK_EQ(whole(weight_of(average), got), ALL);
    for (int i = 0; i < ALL; i++)
        CHECK_EQ(got[i], b[i]); /* f32 has all of bf16 */
    CHECK(sherd_requires_grad(weight_of(average)) && !sherd_grad(weight_of(average)));
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(average);
    sherd_module_destroy(m);
}

static void averages_follow_the_module_under_all_layouts(sherd_world *world)
{
    for (int dtype = 0; dtype < 2; dtype++) {
        follow(world, dtype ? SHERD_BF16 : SHERD_F32, PLAIN, PLAIN);
        for (int i = REPLICATED; i < WAYS; i++)
            for (int j = REPLICATED; j < WAYS; j++)
                follow(world, dtype ? SHERD_BF16 : SHERD_F32, (way)i, (way)j);
    }
}

static void nothing_is_sent_where_layouts_are_equal(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *average = make(world, SHERD_F32, 1), *m = make(world, SHERD_F32, 2);

    lay(average, mesh, SHARDED);
    lay(m, mesh, SHARDED);
    sherd_comm_reset(world);
    sherd_module_average(average, m, 0.5);
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){0}), 0);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(average);
    sherd_module_destroy(m);
}

static void the_mean_of_states_has_falling_weights(sherd_world *world)
{
    sherd_module *average = make(world, SHERD_F64, 1);
    double sum[ALL] = {0}, x[MOST];

    for (int i = 0; i < 5; i++) {
        sherd_module *m = make(world, SHERD_F64, 2 + i);
        whole(weight_of(m), x);
        for (int e = 0; e < ALL; e++)
            sum[e] += x[e] / 5;
        sherd_module_average(average, m, 1.0 / (i + 1));
        sherd_module_destroy(m);
    }
    whole(weight_of(average), x);
    for (int e = 0; e < ALL; e++)
        CHECK_NEAR(x[e], sum[e], 1e-15);
    CHECK_EQ(seen_by(average), 6);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(average);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(sherd_module *average, sherd_module *m, const char *text)
{
    sherd_world *world = sherd_module_world(average);
    double before[MOST], after[MOST];

    whole(weight_of(average), before);
    sherd_module_average(average, m, 0.5);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "%s\n", sherd_world_error(world));
    CHECK(strstr(sherd_world_error(world), "sherd_module_average") != NULL);
    whole(weight_of(average), after);
    for (int i = 0; i < ALL; i++)
        CHECK_EQ(before[i], after[i]);
}

static void a_module_that_does_not_fit_is_refused(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *average = make(world, SHERD_F32, 1), *m = make(world, SHERD_F32, 2);
    sherd_module *bare = NULL, *part = NULL;

    refused(average, average, "its own average");
    lay(m, mesh, REPLICATED);
    refused(average, m, "is plain, unlike \"weight\"");
    refused(average, sherd_module_find(m, "part"), "\"weight\" of the average, f32[");
    CHECK_OK(sherd_module_create(&bare, world, NULL, NULL));
    refused(bare, average, "\"weight\" of the module, f32[");
    CHECK_OK(sherd_module_add_parameter(bare, "weight",
                                        wave(world, SHERD_F32, 2, SHAPE(ROWS, COLUMNS), 1, 1, 0)));
    refused(average, bare, "\"part.bias\" of the average, f32[5], is not in the module");
    refused(bare, average, "\"part.bias\" of the module, f32[5], is not in the average");
    sherd_module_destroy(bare);
    sherd_module_destroy(m);
    for (int k = 0; k < 3; k++) { /* another shape, name, and dtype of the buffer */
        CHECK_OK(sherd_module_create(&bare, world, NULL, NULL));
        CHECK_OK(sherd_module_create(&part, world, NULL, NULL));
        CHECK_OK(sherd_module_add(bare, "part", part));
        CHECK_OK(sherd_module_add_parameter(
            bare, "weight", wave(world, SHERD_F32, 2, SHAPE(ROWS, COLUMNS), 1, 1, 0)));
        CHECK_OK(sherd_module_add_parameter(
            part, k == 1 ? "shift" : "bias",
            wave(world, SHERD_F32, 1, SHAPE(k ? ROWS : ROWS - 1), 1, 1, 0)));
        CHECK_OK(
            sherd_module_add_buffer(part, "seen", sherd_constant(world, SHERD_I32, NULL, 0, 1)));
        refused(average, bare,
                k == 0   ? "\"part.bias\" of the average, f32[5], has another shape"
                : k == 1 ? "in the place of \"part.shift\""
                         : "has another dtype than \"part.seen\", i32[]");
        sherd_module_destroy(bare);
    }
    sherd_module_destroy(average);
}

static void ranks_with_other_weights_are_found(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int one = 0; one < 2; one++) { /* the other weight is 0.25, or 1: a copy */
        sherd_module *average = make(world, SHERD_F32, 1), *m = make(world, SHERD_F32, 2);
        lay(average, mesh, REPLICATED);
        lay(m, mesh, REPLICATED);
        CHECK_OK(sherd_world_check(world));
        sherd_module_average(average, m, sherd_world_rank(world) ? 0.5 : one ? 1 : 0.25);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        sherd_module_destroy(average);
        sherd_module_destroy(m);
    }
}

static void a_rank_without_memory_fails_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *average = make(world, SHERD_F32, 1), *m = make(world, SHERD_F32, 2);
    sherd_status status = SHERD_ENOMEM;
    double a[MOST], b[MOST], got[MOST];

    lay(average, mesh, SHARDED);
    lay(m, mesh, REPLICATED);
    CHECK_OK(sherd_world_check(world));
    for (int n = 1; status && n < 300; n++) {
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        sherd_module_average(average, m, 0.5);
        status = sherd_world_check(world);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        if (status)
            sherd_tensor_revive_all(world);
    }
    CHECK_OK(status);
    sherd_module_average(average, m, 1);
    whole(weight_of(m), a);
    sherd_module_average(average, m, 0.5);
    whole(weight_of(average), got);
    whole(weight_of(m), b);
    for (int i = 0; i < ALL; i++)
        CHECK(a[i] == b[i] && got[i] == b[i]);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(average);
    sherd_module_destroy(m);
}

static const check_test tests[] = {
    {TEST(averages_follow_the_module_under_all_layouts), {1, 2, 3, 4, 8}},
    {TEST(nothing_is_sent_where_layouts_are_equal), {1, 3, 4}},
    {TEST(the_mean_of_states_has_falling_weights), {1, 2}},
    {TEST(a_module_that_does_not_fit_is_refused), {1, 2, 4}},
    {TEST(ranks_with_other_weights_are_found), {2, 3}},
    {TEST(a_rank_without_memory_fails_all), {1, 2, 3}}};
CHECK_MAIN(tests)
