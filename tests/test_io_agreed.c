/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all ranks had made, written or read before a collective function passed is there after a
 * step that fails, however far ranks are apart then, and though no check came in between. A program
 * makes its model, reads a file and begins; if its first step fails, it can take a smaller batch.
 */
#include "scratch.h"
#include "secret.h"

#include "sherd/files.h"
#include "sherd/layers.h"
#include "sherd/ops.h"
#include "sherd/ops_shape.h"
#include "sherd/parallel.h"

enum { N = 5, FAR = 200 /* more operations than ranks remember one by one */ };

static double first(sherd_tensor *t)
{
    const double *data = sherd_tensor_read(t);

    return data ? data[0] : -1;
}

static sherd_tensor *field(sherd_world *world, double value)
{
    return sherd_constant_on(layout_of(line_of_ranks(world), 1, (int64_t[]){N}, "R", NULL),
                             SHERD_F64, value);
}

/* Nothing is sent, so all ranks but the one that fails come through. */
static void go_far(void *payload)
{
    for (int i = 0; i < FAR; i++)
        sherd_scale(payload, 2);
}

static void write_and_go_far(void *payload)
{
    sherd_fill(payload, 9);
    go_far(payload);
}

static void agree(sherd_world *world)
{
    int64_t most = 0;

    CHECK_OK(sherd_world_most(&most, world, sherd_world_rank(world)));
    CHECK_EQ(most, sherd_world_ranks(world) - 1);
}

static void what_was_made_and_written_before_is_there(sherd_world *world)
{
    for (int checked = 0; checked < 2; checked++) {
        sherd_tensor *made = field(world, 1), *written = field(world, 2);
        if (checked)
            CHECK_OK(sherd_world_check(world));
        sherd_fill(written, 3);
        agree(world);
        fail_between(world, go_far, made);
        CHECK(!sherd_tensor_failed(made) && !sherd_tensor_failed(written));
        CHECK_EQ(first(made), 1);
        CHECK_EQ(first(written), 3);
        CHECK_OK(sherd_world_check(world));
    }
}

static void what_some_write_afterwards_is_lost(sherd_world *world)
{
    sherd_tensor *other = field(world, 1), *t = field(world, 2);

    sherd_fill(t, 3);
    agree(world);
    fail_between(world, write_and_go_far, t);
    CHECK(sherd_tensor_failed(t) && !sherd_tensor_failed(other));
    sherd_fill(t, 4);
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(first(t), 4);
}

/* Who fails then has not written what all have opened. */
static void what_is_open_by_a_pointer_is_lost(sherd_world *world)
{
    sherd_tensor *other = field(world, 1), *t = field(world, 2);

    CHECK_OK(sherd_world_check(world));
    sherd_fill(other, 5);
    double *data = sherd_tensor_write(t);
    agree(world);
    if (data)
        data[0] = 3;
    fail_between(world, go_far, other);
    CHECK(sherd_tensor_failed(t) && !sherd_tensor_failed(other));
    CHECK_EQ(first(other), 5);
    sherd_fill(t, 4);
    CHECK_OK(sherd_world_check(world));
}

/* Ranks that have opened different replicas do not agree on these: the check says so. */
static void what_only_some_have_opened_is_still_found(sherd_world *world)
{
    sherd_tensor *t = field(world, 2), *other = field(world, 1);

    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == 0)
        CHECK(sherd_tensor_write(t) != NULL);
    agree(world);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(sherd_tensor_failed(t) && !sherd_tensor_failed(other));
}

static sherd_module *new_model(sherd_world *world)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_linear_create(&m, world, N, N,
                                 &(sherd_layer_options){.dtype = SHERD_F64, .bias = true}));
    CHECK_OK(sherd_parallelize(m, line_of_ranks(world), "x", NULL, 0));
    return m;
}

static void a_first_step_that_fails_loses_no_model(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "agreed");

    for (int reads = 0; reads < 2; reads++) {
        sherd_module *m = new_model(world);
        sherd_tensor *bias = sherd_module_parameter(m, "bias");
        if (reads)
            CHECK_OK(sherd_module_read(m, NULL, path, NULL));
        fail_between(world, go_far, bias);
        CHECK(!sherd_tensor_failed(bias));
        CHECK(!sherd_tensor_failed(sherd_module_parameter(m, "weight")));
        CHECK_EQ(first(bias), reads ? 6 : 0);
        CHECK_OK(sherd_module_load(m, "bias", field(world, 6), -1));
        fail_between(world, go_far, bias);
        CHECK_EQ(first(bias), 6);
        CHECK_OK(sherd_module_write(m, NULL, path));
        sherd_module_destroy(m);
    }
    remove_file(world, path);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(what_was_made_and_written_before_is_there), {1, 2, 3, 8}},
    {TEST(what_some_write_afterwards_is_lost), {2, 3, 8}},
    {TEST(what_is_open_by_a_pointer_is_lost), {2, 3, 8}},
    {TEST(what_only_some_have_opened_is_still_found), {2, 3, 4}},
    {TEST(a_first_step_that_fails_loses_no_model), {1, 2, 4}},
};
CHECK_MAIN(tests)
