/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a parallel model: layers are recipes until a style places them, so no rank ever holds
 * more than its shards, and they hold what a whole model would.
 */
#include "models.h"
#include "sherd/optimizer.h"

/* table, up, down, norm, and a parameter of the user's own at the root; uneven on any number of
 * ranks but one. */
static sherd_module *model(sherd_world *world)
{
    static const int64_t places[] = {13, 10};
    sherd_generator generator = sherd_generator_named("place");
    sherd_layer_options table = {.name = "table"}, up = {.name = "up", .bias = true},
                        down = {.name = "down", .bias = true, .dtype = SHERD_BF16};
    sherd_module *root = container(world, NULL, NULL), *m = NULL;

    sherd_scope_begin(world);
    CHECK_OK(sherd_embedding_create(&m, world, 37, 10, &table));
    add_layer(root, "table", m);
    CHECK_OK(sherd_linear_create(&m, world, 10, 26, &up));
    add_layer(root, "up", m);
    CHECK_OK(sherd_linear_create(&m, world, 26, 10, &down));
    add_layer(root, "down", m);
    CHECK_OK(sherd_layer_norm_create(&m, world, 10, NULL));
    add_layer(root, "norm", m);
    CHECK_OK(sherd_module_add_parameter(
        root, "place",
        sherd_random_later(world, SHERD_F32, places, 2, sherd_uniform(-1, 1), &generator)));
    CHECK_OK(sherd_module_add_parameter(root, "scale",
                                        sherd_constant_later(world, SHERD_F64, places, 1, 0.5)));
    sherd_scope_end(world);
    return root;
}

static sherd_status split(sherd_module *root, const sherd_mesh *mesh)
{
    sherd_parallel_entry plan[] = {{"table", sherd_rowwise()},
                                   {"up", sherd_colwise()},
                                   {"down", sherd_rowwise()},
                                   {"norm", sherd_sequence_parallel()}};
    plan[1].style.granule = plan[2].style.granule = 4;
    return sherd_parallelize(root, mesh, "tp", plan, LEN(plan));
}

enum { PARAMETERS = 9 };

/* Bytes of this rank's boxes of all parameters. */
static int64_t box_bytes(const sherd_module *root)
{
    sherd_named_parameter p[PARAMETERS];
    int64_t bytes = 0;

    CHECK_EQ(sherd_module_all_parameters(root, p, PARAMETERS), PARAMETERS);
    for (int i = 0; i < PARAMETERS; i++) {
        sherd_box box = sherd_tensor_box(p[i].tensor);
        bytes += sherd__box_count(&box) * (int64_t)sherd_dtype_bytes(p[i].tensor->dtype);
    }
    return bytes;
}

static void only_shards_are_ever_made(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t before = sherd_world_memory(world).live_bytes;

    sherd_world_memory_reset(world);
    sherd_module *root = model(world);
    CHECK_EQ(sherd_world_memory(world).peak_bytes, before);
    CHECK_OK(split(root, mesh));
    CHECK_EQ(sherd_world_memory(world).live_bytes, before + box_bytes(root));
    CHECK_EQ(sherd_world_memory(world).peak_bytes, before + box_bytes(root));
    sherd_module_destroy(root);
    CHECK_EQ(sherd_world_memory(world).live_bytes, before);
    CHECK_OK(sherd_world_check(world));
}

static void compare_values(sherd_world *world, sherd_module *a, sherd_module *b)
{
    static _Thread_local double expected[MOST];
    sherd_named_parameter p[PARAMETERS], q[PARAMETERS];

    CHECK_EQ(sherd_module_all_parameters(a, p, PARAMETERS), PARAMETERS);
    CHECK_EQ(sherd_module_all_parameters(b, q, PARAMETERS), PARAMETERS);
    for (int i = 0; i < PARAMETERS; i++) {
        int64_t n = whole(p[i].tensor, expected);
        CHECK_NEAR(distance_to(q[i].tensor, expected, n), 0, 0);
        CHECK(largest(expected, n) > 0 || strcmp(p[i].name, "bias") == 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static void shards_hold_what_the_whole_would(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *plain = model(world), *m = model(world);

    CHECK_OK(split(m, mesh));
    CHECK(sherd_tensor_layout(sherd_module_parameter(m, "place")) != NULL);
    compare_values(world, plain, m);
    sherd_module_destroy(m);

    /* One that was looked at before is cut, not drawn: nobody can tell. */
    m = model(world);
    sherd_tensor *weight = sherd_module_parameter(sherd_module_find(m, "up"), "weight");
    CHECK(sherd_tensor_read(weight) != NULL);
    CHECK(sherd_tensor_write(sherd_module_parameter(m, "place")) != NULL);
    sherd_mark_equal(sherd_module_parameter(m, "place"));
    CHECK_OK(split(m, mesh));
    compare_values(world, plain, m);
    sherd_module_destroy(m);
    sherd_module_destroy(plain);
}

/* Who holds a tensor that a style has replaced finds its values there all the same. */
static void what_was_replaced_is_still_good(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *plain = model(world), *m = model(world);
    sherd_tensor *old = sherd_module_parameter(sherd_module_find(m, "table"), "weight");

    sherd_tensor_retain(old);
    CHECK_OK(split(m, mesh));
    sherd_module_destroy(m);
    int64_t n =
        whole(sherd_module_parameter(sherd_module_find(plain, "table"), "weight"), expected);
    CHECK_EQ(n, 370);
    CHECK_EQ(distance_to(old, expected, n), 0);
    sherd_tensor_release(old);
    sherd_module_destroy(plain);
    CHECK_OK(sherd_world_check(world));
}

/* Tied tables: one tensor before, one after, drawn once. */
static void tied_parameters_are_drawn_once(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_parallel_entry plan[] = {{"table", sherd_rowwise()}, {"out", sherd_colwise()}};
    sherd_module *root = container(world, NULL, NULL), *table = NULL, *out = NULL;
    int64_t before = sherd_world_memory(world).live_bytes;

    sherd_scope_begin(world);
    CHECK_OK(sherd_embedding_create(&table, world, 9, 4, NULL));
    CHECK_OK(sherd_linear_create(&out, world, 4, 9, NULL));
    sherd_scope_end(world);
    sherd_tensor *weight = sherd_module_parameter(table, "weight");
    CHECK_OK(sherd_module_set_parameter(out, "weight", weight));
    add_layer(root, "table", table);
    add_layer(root, "out", out);
    CHECK_OK(sherd_parallelize(root, mesh, "tp", plan, 2));
    weight = sherd_module_parameter(out, "weight");
    CHECK(weight == sherd_module_parameter(table, "weight"));
    CHECK_EQ(sherd_world_memory(world).live_bytes, before + weight->storage->bytes);
    sherd_module_destroy(root);
    CHECK_OK(sherd_world_check(world));
}

/* Two trees that share a tensor, as stages do: whichever is placed first, it stays one. */
static void ties_hold_across_trees(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    bool is_even = sherd_world_ranks(world) == 2; /* then the table's columns are shared out */
    const sherd_parallel_entry columns[] = {{"", sherd_colwise()}},
                               rows[] = {{"", sherd_rowwise()}};

    for (int way = 0; way < 3; way++) { /* replicated, rows of the table, and two that differ */
        sherd_module *table = NULL, *out = NULL;
        CHECK_OK(sherd_embedding_create(&table, world, 9, 4, NULL));
        CHECK_OK(sherd_linear_create(&out, world, 4, 9, NULL));
        CHECK_OK(
            sherd_module_set_parameter(out, "weight", sherd_module_parameter(table, "weight")));
        if (way < 2)
            CHECK_OK(sherd_parallelize(table, mesh, "tp", rows, way));
        else
            CHECK_OK(sherd_fully_shard(table, mesh, "tp", NULL));
        sherd_status status =
            sherd_parallelize(out, mesh, "tp", way < 2 || is_even ? columns : rows, way > 0);
        CHECK_EQ(status, way < 2 ? SHERD_OK : SHERD_EINVAL);
        CHECK(sherd_module_parameter(out, "weight") == sherd_module_parameter(table, "weight"));
        sherd_module_destroy(table);
        sherd_module_destroy(out);
    }
    CHECK_OK(sherd_world_check(world));
}

/* It would change tensors that no module has any more. */
static void an_optimizer_that_was_made_too_early_says_so(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = wave(world, SHERD_F32, 2, SHAPE(3, 6), 1, 1, 0);

    for (int way = 0; way < 2; way++) {
        sherd_module *m = NULL;
        sherd_optimizer *early = NULL, *late = NULL;
        CHECK_OK(sherd_linear_create(&m, world, 6, 4, NULL));
        CHECK_OK(sherd_adamw_create(&early, m, NULL));
        if (way)
            CHECK_OK(sherd_fully_shard(m, mesh, "tp", NULL));
        else
            CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
        CHECK_OK(sherd_adamw_create(&late, m, NULL));
        sherd_backward(sherd_mean(sherd_module_call(m, x)));
        CHECK_OK(sherd_world_check(world));
        sherd_optimizer_step(early, 0.1, 1);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "sherd_optimizer_step: the parameter \"weight\" got "
                                               "another layout") != NULL);
        sherd_optimizer_step(late, 0.1, 1);
        CHECK_OK(sherd_world_check(world));
        sherd_optimizer_destroy(early);
        sherd_optimizer_destroy(late);
        sherd_module_destroy(m);
    }
}

/* Without styles: a plain model takes its memory in the first call, and an optimizer works as
 * ever. */
static void a_plain_model_is_made_when_it_is_called(sherd_world *world)
{
    sherd_layer_options o = {.name = "l", .bias = true};
    int64_t before = sherd_world_memory(world).live_bytes;
    sherd_module *m = NULL;
    sherd_optimizer *adamw = NULL;

    sherd_scope_begin(world);
    CHECK_OK(sherd_linear_create(&m, world, 6, 4, &o));
    CHECK_EQ(sherd_world_memory(world).live_bytes, before);
    CHECK_OK(sherd_adamw_create(&adamw, m, NULL));
    sherd_tensor *x = wave(world, SHERD_F32, 2, SHAPE(3, 6), 1, 1, 0);
    double loss[2];
    for (int step = 0; step < 2; step++) {
        sherd_tensor *y = sherd_module_call(m, x);
        sherd_tensor *l = sherd_sum(sherd_mul(y, y));
        loss[step] = sherd_item(l);
        sherd_backward(l);
        sherd_optimizer_step(adamw, 0.0001, 1);
        sherd_optimizer_clear(adamw);
    }
    CHECK(loss[1] < loss[0]);
    sherd_optimizer_destroy(adamw);
    sherd_module_destroy(m);
    sherd_scope_end(world);
    CHECK_EQ(sherd_world_memory(world).live_bytes, before);
    CHECK_OK(sherd_world_check(world));
}

/* Rank 0 has no memory for its shard: all get the status, and the next try goes through. */
static void no_memory_for_a_shard_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_status status = SHERD_ENOMEM;
    int failures = 0;

    for (int k = 1; status && k < 600; k++) {
        sherd_module *root = model(world);
        if (sherd_world_rank(world) == 0)
            sherd_world_fail_allocation(world, k);
        status = split(root, mesh);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        failures += status != SHERD_OK;
        sherd_module_destroy(root);
        CHECK_EQ(sherd_world_memory(world).live_bytes, 0);
        (void)sherd_world_check(world);
        CHECK_OK(sherd_world_check(world));
    }
    CHECK_OK(status);
    CHECK(failures > 10);
}

static const check_test tests[] = {
    {TEST(only_shards_are_ever_made), {1, 2, 3, 4, 8}},
    {TEST(shards_hold_what_the_whole_would), {1, 2, 3, 4, 8}},
    {TEST(what_was_replaced_is_still_good), {1, 2, 3}},
    {TEST(tied_parameters_are_drawn_once), {1, 2, 3, 4}},
    {TEST(ties_hold_across_trees), {2, 3}},
    {TEST(an_optimizer_that_was_made_too_early_says_so), {1, 2, 3}},
    {TEST(a_plain_model_is_made_when_it_is_called), {1, 2}},
    {TEST(no_memory_for_a_shard_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
