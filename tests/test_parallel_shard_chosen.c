/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units: which parameters are sharded, and in which dims; tied ones, and those around units; and
 * what goes wrong: units made twice or differently, parameters that are written, no memory.
 */
#include "shard_units.h"
#include "sherd/ops_elements.h"

enum { BLOCKS = 2, HEADS = 2, HEAD = 4, WIDTH = HEADS * HEAD, HIDDEN = 13, ROWS = 6, LENGTH = 3 };

/* ---- which parameters ----------------------------------------------------------------------- */

static void expect_placements(sherd_module *m, const char *path, const char *name, const char *want)
{
    const sherd_tensor *p = sherd_module_parameter(sherd_module_find(m, path), name);

    CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(p)), want);
}

static int columns(const sherd_module *m, const char *name, void *payload)
{
    (void)m;
    return strcmp(name, "weight") == 0 ? *(int *)payload : -1;
}

static void parameters_and_dims_can_be_chosen(sherd_world *world)
{
    static const char *const bias[] = {"*.bias"}, *const none[] = {"*.bias", "net3.*"};
    static const char *const weight[] = {"net1.weight"};
    const sherd_mesh *mesh = line(world);
    int dim = 1;
    const sherd_shard_options o = {
        .ignored = bias, .ignored_count = 1, .dim = columns, .payload = &dim};
    sherd_module *m = mlp(world, SHERD_F64, 7, 13, 7);

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
    expect_placements(m, "net1", "weight", sherd_world_ranks(world) == 2 ? "S(0)" : "S(1)");
    sherd_module_destroy(m);
    m = mlp(world, SHERD_F64, 7, 13, 7);
    CHECK_EQ(sherd_fully_shard(m, mesh, "dp",
                               &(sherd_shard_options){.ignored = none, .ignored_count = 2}),
             SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "\"net3.*\" matches no parameter") != NULL);
    CHECK_EQ(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = "net3"}),
             SHERD_EINVAL);
    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &o));
    expect_placements(m, "net1", "weight", "S(1)");
    expect_placements(m, "net2", "weight", "S(1)");
    expect_placements(m, "net2", "bias", "R");
    sherd_module_destroy(m);
    m = mlp(world, SHERD_F64, 7, 13, 7);
    CHECK_OK(sherd_fully_shard(m, mesh, "dp",
                               &(sherd_shard_options){.ignored = weight, .ignored_count = 1}));
    expect_placements(m, "net1", "weight", "R");
    expect_placements(m, "net1", "bias", "S(0)");
    sherd_module_destroy(m);
    dim = 2;
    m = mlp(world, SHERD_F64, 7, 13, 7);
    CHECK_EQ(sherd_fully_shard(m, mesh, "dp", &o), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "lacks the dim that was chosen") != NULL);
    sherd_module_destroy(m);
    dim = sherd_world_rank(world) % 2;
    m = mlp(world, SHERD_F64, 7, 13, 7);
    CHECK_EQ(sherd_fully_shard(m, mesh, "dp", &o), SHERD_EDIFFER);
    sherd_module_destroy(m);
    (void)sherd_world_check(world);
}

/* A weight of two units, of which the other is sharded first; and a part called alone. */
static void tied_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *h = sherd_module_call(sherd_module_find(self, "block"), in->value[0]);
    out->value[0] = sherd_module_call(sherd_module_find(self, "head"), h);
    out->count = 1;
}

/* Of 91 elements and 13, and 7. */
static void small_parameters_stay_whole(sherd_world *world)
{
    static const struct {
        int64_t least;
        const char *weight, *bias;
    } cases[] = {{13, "S(0)", "S(0)"}, {14, "S(0)", "R"}, {91, "S(0)", "R"}, {92, "R", "R"}};

    for (int i = 0; i < LEN(cases); i++) {
        sherd_module *m = mlp(world, SHERD_F64, 7, 13, 7);
        CHECK_OK(sherd_fully_shard(m, line(world), "dp",
                                   &(sherd_shard_options){.min_elements = cases[i].least}));
        expect_placements(m, "net1", "weight", cases[i].weight);
        expect_placements(m, "net1", "bias", cases[i].bias);
        expect_placements(m, "net2", "bias", "R");
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void tied_parameters_are_of_both_units(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_mesh *mesh = line(world);
    int64_t n = 0;

    for (int how = 0; how < 4; how++) {
        const sherd_shard_options all = {.unit = ""};
        sherd_module *m = container(world, tied_forward, NULL);
        sherd_module *b = add_layer(m, "block", container(world, stack_forward, NULL));
        sherd_module *first = linear_layer(b, "first", SHERD_F64, 6, 6, 1);
        sherd_module *second = linear_layer(b, "second", SHERD_F64, 6, 6, 3);
        sherd_module *head = linear_layer(m, "head", SHERD_F64, 6, 6, 5);
        CHECK_OK(
            sherd_module_set_parameter(head, "weight", sherd_module_parameter(first, "weight")));
        CHECK_OK(
            sherd_module_set_parameter(second, "weight", sherd_module_parameter(first, "weight")));
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(5, 6), 1, 1, 0);
        if (how > 0)
            x = spread(x, mesh, "S(0)");
        if (how == 1)
            CHECK_OK(sherd_fully_shard(b, mesh, "dp", &all));
        if (how > 0)
            CHECK_OK(sherd_fully_shard(m, mesh, "dp", how < 3 ? &all : NULL));
        sherd_comm_reset(world);
        sherd_tensor *y =
            how == 2 ? sherd_module_call(head, sherd_module_call(b, x)) : sherd_module_call(m, x);
        if (how > 0 && sherd_world_ranks(world) > 1)
            CHECK_EQ(calls(world, "all_gather", 0), how == 1 ? 2 : how == 2 ? 3 : 3);
        sherd_backward(sherd_sum(sherd_square(y)));
        sherd_tensor *w = sherd_module_parameter(first, "weight");
        CHECK(w == sherd_module_parameter(head, "weight"));
        if (how > 0)
            CHECK_NEAR(distance_to(sherd_grad(w), expected, n), 0, 1e-10);
        else
            n = whole(sherd_grad(w), expected);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- bad days ------------------------------------------------------------------------------- */

/* The child first, then a parameter of its own. */
static void scaled_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *y = sherd_module_call(sherd_module_child(self, 0), in->value[0]);

    out->value[out->count++] = sherd_mul(y, sherd_module_parameter(self, "gain"));
}

static void pass_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    out->value[out->count++] = sherd_module_call(sherd_module_child(self, 0), in->value[0]);
}

/* A base with a unit of its own, in a module that is gathered with the root, and run again. */
static void a_checkpointed_adapter_around_a_unit(sherd_world *world)
{
    const sherd_shard_options together = {.unit = ""};
    const sherd_mesh *mesh = line(world);
    double want = 0;

    for (int how = 0; how < 6; how++) {
        sherd_scope_begin(world);
        sherd_module *root = container(world, pass_forward, NULL), *block = NULL;
        CHECK_OK(sherd_module_create(&block, world, scaled_forward, NULL));
        CHECK_OK(sherd_module_add_parameter(block, "gain",
                                            wave(world, SHERD_F64, 1, SHAPE(4), 2, 1, 0)));
        add_layer(root, "block", block);
        sherd_module *base = linear_layer(block, "base", SHERD_F64, 4, 4, 3);
        if (how > 0)
            CHECK_OK(sherd_fully_shard(base, mesh, "dp", how % 2 ? &together : NULL));
        if (how > 0)
            CHECK_OK(sherd_fully_shard(root, mesh, "dp", &together));
        sherd_module_checkpoint(how > 2 ? block : base, how > 0);
        sherd_tensor *x =
            sherd_distribute_as(wave(world, SHERD_F64, 2, SHAPE(6, 4), 5, 1, 0), mesh, "S(0)", -1);
        sherd_args in = {.count = 1, .value = {x}}, out;
        sherd_module_run(root, &in, &out);
        sherd_backward(sherd_mean(sherd_mul(out.value[0], out.value[0])));
        sherd_tensor *g = sherd_grad(sherd_module_parameter(base, "weight"));
        double sum = sherd_item(sherd_sum(sherd_mul(g, g)));
        want = how ? want : sum;
        CHECK_NEAR(sum, want, 1e-12);
        CHECK_OK(sherd_world_check(world));
        sherd_module_destroy(root);
        sherd_scope_end(world);
    }
}

static void units_are_made_once(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    const sherd_shard_options whole = {.unit = ""};
    sherd_module *m = deep_stack(world), *first = sherd_module_child(m, 0);

    CHECK_OK(sherd_fully_shard(first, mesh, "dp", &whole));
    CHECK_EQ(sherd_fully_shard(first, mesh, "dp", &whole), SHERD_EINVAL);
    CHECK_EQ(sherd_fully_shard(sherd_module_child(first, 1), mesh, "dp", &whole), SHERD_EINVAL);
    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &whole));
    CHECK_EQ(sherd_fully_shard(m, mesh, "dp", &whole), SHERD_EINVAL);
    CHECK_EQ(sherd_fully_shard(sherd_module_child(m, 2), mesh, "dp", NULL), SHERD_EINVAL);
    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.skip_sharded = true}));
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void ranks_with_other_units_differ(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_module *m = deep_stack(world);

    CHECK_EQ(
        sherd_fully_shard(m, mesh, "dp",
                          &(sherd_shard_options){.unit = sherd_world_rank(world) == 0 ? "0" : "*"}),
        SHERD_EDIFFER);
    sherd_module_destroy(m);
    (void)sherd_world_check(world);
}

/* A parameter that was written between forward and backward is missed where it is needed. */
static void a_written_parameter_is_an_error(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_module *m = deep_stack(world);
    sherd_module *up = sherd_module_child(sherd_module_child(m, 1), 0);

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = "*"}));
    sherd_tensor *l = sherd_sum(sherd_module_call(m, few_rows(world, mesh)));
    sherd_tensor *weight = sherd_module_parameter(up, "weight");
    CHECK(sherd_tensor_write(weight) || sherd_tensor_box(weight).size[0] == 0);
    sherd_backward(l);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void no_memory_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    const sherd_shard_options units = {.unit = "*"};
    bool mine = sherd_world_rank(world) == 1;
    sherd_status status = SHERD_ENOMEM;
    sherd_module *m = NULL;

    for (int n = 1; status && n < 400; n++) {
        sherd_scope_begin(world);
        m = container(world, stack_forward, NULL);
        add_layer(m, "0", mlp(world, SHERD_F64, 4, 6, 4));
        sherd_world_fail_allocation(world, mine ? n : 0);
        status = sherd_fully_shard(m, mesh, "dp", &units);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        sherd_status after = sherd_world_check(world);
        CHECK(after == SHERD_OK || (status && after == SHERD_ENOMEM));
        if (status)
            sherd_module_destroy(m);
        sherd_scope_end(world);
    }
    CHECK_OK(status);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(5, 4), 1, 1, 0), mesh, "S(0)");
    CHECK_OK(sherd_world_check(world));
    int64_t live = sherd_world_memory(world).live_bytes;
    status = SHERD_ENOMEM;
    for (int n = 1; status && n < 600; n++) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, mine ? n : 0);
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        for (int i = 0; i < 4; i++)
            sherd_clear_grad(sherd_module_parameter(
                sherd_module_child(sherd_module_child(m, 0), i / 2), i % 2 ? "bias" : "weight"));
        CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    }
    CHECK_OK(status);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(parameters_and_dims_can_be_chosen), {2, 4}},
    {TEST(small_parameters_stay_whole), {2}},
    {TEST(tied_parameters_are_of_both_units), {1, 2, 3}},
    {TEST(a_checkpointed_adapter_around_a_unit), {1, 2, 3}},
    {TEST(units_are_made_once), {1, 2}},
    {TEST(ranks_with_other_units_differ), {2, 3}},
    {TEST(a_written_parameter_is_an_error), {2, 3}},
    {TEST(no_memory_fails_on_all), {2, 3}},
};
CHECK_MAIN(tests)
