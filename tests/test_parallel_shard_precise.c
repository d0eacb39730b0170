/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed precision of sharded parameters: gathers and gradients in 16 bits, half the bytes, while
 * parameters, their gradients and optimizer state stay f32.
 */
#include "models.h"
#include "sherd/autocast.h"
#include "sherd/autograd.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/optimizer.h"

enum { WIDTH = 8, HIDDEN = 12, ROWS = 8, BLOCKS = 2, PARAMETERS = 4 * BLOCKS };

static const double rounding = 1.0 / 256; /* of bf16 */

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "dp=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static sherd_module *blocks(sherd_world *world, sherd_dtype dtype)
{
    static const char *const names[] = {"0", "1"};
    sherd_module *m = container(world, stack_forward, NULL);

    for (int i = 0; i < BLOCKS; i++)
        add_layer(m, names[i], mlp(world, dtype, WIDTH, HIDDEN, WIDTH));
    return m;
}

static sherd_tensor *parameter(sherd_module *m, int i)
{
    return sherd_module_parameter(sherd_module_child(sherd_module_child(m, i / 4), i / 2 % 2),
                                  i % 2 ? "bias" : "weight");
}

static sherd_tensor *input(sherd_world *world, sherd_dtype dtype, const sherd_mesh *mesh, int k)
{
    sherd_tensor *x = wave(world, dtype, 2, SHAPE(ROWS, WIDTH), 3 + k, 1, 0);

    return mesh ? spread(x, mesh, sherd_mesh_axes(mesh) == 2 ? "S(0)S(0)" : "S(0)") : x;
}

static sherd_tensor *loss_of(sherd_module *m, const sherd_mesh *mesh, int k)
{
    sherd_tensor *y = sherd_module_call(m, input(sherd_module_world(m), SHERD_F32, mesh, k));

    return sherd_mean(sherd_square(sherd_cast(y, SHERD_F32)));
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static int64_t bytes_of(sherd_world *world, const char *op)
{
    return sherd_comm_bytes(world, &(sherd_comm_filter){.op = op});
}

static int64_t calls_of(sherd_world *world, const char *op)
{
    return sherd_comm_calls(world, &(sherd_comm_filter){.op = op});
}

static void half_the_bytes_are_moved(sherd_world *world)
{
    static const sherd_shard_options ways[] = {
        {.unit = "*"},
        {.unit = "*", .param_dtype = SHERD_BF16, .reduce_dtype = SHERD_F32},
        {.unit = "*", .param_dtype = SHERD_BF16},
        {.unit = "*", .param_dtype = SHERD_F16, .reduce_dtype = SHERD_BF16},
        {.unit = "*", .reduce_dtype = SHERD_BF16}};
    const sherd_mesh *mesh = line(world);
    int64_t gathered = 0, scattered = 0;

    for (int way = 0; way < LEN(ways); way++) {
        sherd_module *m = blocks(world, SHERD_F32);
        CHECK_OK(sherd_fully_shard(m, mesh, "dp", &ways[way]));
        for (int step = 0; step < 2; step++) {
            sherd_scope_begin(world);
            CHECK_OK(sherd_world_check(world));
            sherd_comm_reset(world);
            sherd_backward(loss_of(m, mesh, step));
            CHECK_EQ(calls_of(world, "all_gather"), 2 * BLOCKS);
            CHECK_EQ(calls_of(world, "reduce_scatter"), BLOCKS);
            gathered = way ? gathered : bytes_of(world, "all_gather");
            scattered = way ? scattered : bytes_of(world, "reduce_scatter");
            CHECK_EQ(bytes_of(world, "all_gather"),
                     ways[way].param_dtype ? gathered / 2 : gathered);
            CHECK_EQ(bytes_of(world, "reduce_scatter"), way < 2 ? scattered : scattered / 2);
            sherd_scope_end(world);
        }
        for (int i = 0; i < PARAMETERS; i++) {
            sherd_tensor *p = parameter(m, i), *g = sherd_grad(p);
            CHECK_EQ(sherd_tensor_dtype(p), SHERD_F32);
            CHECK_EQ(sherd_tensor_dtype(g), SHERD_F32);
            CHECK(sherd_tensor_layout(g) == sherd_tensor_layout(p));
        }
        sherd_module_destroy(m);
    }
    CHECK(gathered > 0 && scattered > 0);
    CHECK_OK(sherd_world_check(world));
}

/* Between forward and backward nothing of what is gathered is there, nor what is cast. */
static void nothing_is_kept_in_between(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_module *m = blocks(world, SHERD_F32);

    CHECK_OK(sherd_fully_shard(
        m, mesh, "dp",
        &(sherd_shard_options){.unit = "*", .param_dtype = SHERD_BF16, .keep_inputs = true}));
    for (int step = 0; step < 2; step++) {
        sherd_scope_begin(world);
        int64_t start = sherd_world_memory(world).live_bytes;
        sherd_tensor *x = input(world, SHERD_BF16, mesh, 0);
        int64_t before = sherd_world_memory(world).live_bytes;
        sherd_tensor *y = sherd_module_call(m, x);
        int64_t activations = ROWS * (2 * HIDDEN + 2 * WIDTH) * 2 * BLOCKS;
        CHECK(sherd_world_memory(world).live_bytes - before <= activations / 2 + 64 * 8);
        CHECK_EQ(sherd_tensor_dtype(y), SHERD_BF16);
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_memory(world).live_bytes, start);
    }
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- values --------------------------------------------------------------------------------- */

/* Outputs have the bits of a model that is bf16 altogether; each row is computed alike. */
static void outputs_are_those_of_16_bits(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_mesh *mesh = line(world);
    sherd_module *m = blocks(world, SHERD_F32);

    CHECK_OK(sherd_module_cast(m, SHERD_BF16));
    int64_t n = whole(
        sherd_module_call(m, sherd_cast(input(world, SHERD_F32, NULL, 0), SHERD_BF16)), expected);
    sherd_module_destroy(m);
    for (int way = 0; way < 3; way++) {
        static const char *const units[] = {NULL, "*", ""};
        sherd_shard_options o = {.unit = units[way],
                                 .param_dtype = SHERD_BF16,
                                 .output_dtype = way == 2 ? SHERD_F32 : SHERD_DTYPE_NONE};
        m = blocks(world, SHERD_F32);
        CHECK_OK(sherd_fully_shard(m, mesh, "dp", &o));
        sherd_tensor *y = sherd_module_call(m, input(world, SHERD_F32, mesh, 0));
        CHECK_EQ(sherd_tensor_dtype(y), way == 2 ? SHERD_F32 : SHERD_BF16);
        CHECK_NEAR(distance_to(y, expected, n), 0, 1e-2);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

typedef struct way {
    sherd_shard_options options;
    bool waits, autocast;
    int again; /* 1: the blocks are checkpointed, 2: layers, 3: the model */
} way;

static void checkpoint(sherd_module *m, int which)
{
    sherd_module_checkpoint(m, which == 3);
    for (int i = 0; i < BLOCKS; i++) {
        sherd_module_checkpoint(sherd_module_child(m, i), which == 1);
        sherd_module_checkpoint(sherd_module_child(sherd_module_child(m, i), 1), which == 2);
    }
}

/* Three microbatches; the first block's first weight is also the second's, a bias is frozen. */
static void backwards(sherd_module *m, const sherd_mesh *mesh, const way *how)
{
    sherd_world *world = sherd_module_world(m);

    for (int k = 0; k < 3; k++) {
        sherd_scope_begin(world);
        sherd_set_gradient_sync(world, !how->waits || k == 2);
        sherd_set_autocast(world, how->autocast ? SHERD_BF16 : SHERD_DTYPE_NONE);
        sherd_tensor *l = loss_of(m, mesh, k);
        sherd_set_autocast(world, SHERD_DTYPE_NONE);
        sherd_backward(l);
        sherd_scope_end(world);
    }
}

static sherd_module *tied_blocks(sherd_world *world)
{
    sherd_module *m = blocks(world, SHERD_F32);
    sherd_module *second = sherd_module_child(sherd_module_child(m, 1), 0);

    CHECK_OK(sherd_module_set_parameter(second, "weight", parameter(m, 0)));
    sherd_require_grad(parameter(m, 3), false);
    return m;
}

static way numbered_way(int k)
{
    static const char *const units[] = {NULL, "*", ""};
    const int reduce = k / 12 % 3;

    return (way){{.unit = units[k % 3],
                  .param_dtype = SHERD_BF16,
                  .reduce_dtype = reduce == 0   ? SHERD_DTYPE_NONE
                                  : reduce == 1 ? SHERD_F32
                                                : SHERD_BF16,
                  .keep_gathered = k % 5 == 1,
                  .keep_inputs = k % 2,
                  .no_prefetch = k % 7 == 3},
                 .waits = k % 4 > 1,
                 .autocast = k % 2,
                 .again = k / 3 % 4};
}

static void compare_gradients(sherd_world *world, const sherd_mesh *mesh)
{
    static _Thread_local double expected[PARAMETERS][MOST];
    const way plain = {.waits = false};
    double most[PARAMETERS] = {0};
    int64_t n[PARAMETERS], live;

    sherd_scope_begin(world);
    sherd_module *m = tied_blocks(world);
    backwards(m, NULL, &plain);
    for (int i = 0; i < PARAMETERS; i++) {
        n[i] = whole(sherd_grad(parameter(m, i)), expected[i]);
        for (int64_t e = 0; e < n[i]; e++)
            most[i] = fmax(most[i], fabs(expected[i][e]));
    }
    sherd_module_destroy(m);
    sherd_scope_end(world);
    live = sherd_world_memory(world).live_bytes;
    for (int k = 0; k < 36; k++) {
        const way how = numbered_way(k);
        sherd_scope_begin(world);
        m = tied_blocks(world);
        for (int a = 0; a < sherd_mesh_axes(mesh); a++)
            CHECK_OK(sherd_fully_shard(m, mesh, sherd_mesh_axis_name(mesh, a), &how.options));
        checkpoint(m, how.again);
        backwards(m, mesh, &how);
        for (int i = 0; i < PARAMETERS; i++) {
            sherd_tensor *g = sherd_grad(parameter(m, i));
            CHECK(i == 3 ? !g : sherd_tensor_dtype(g) == SHERD_F32);
            if (i != 3)
                CHECK_NEAR(distance_to(g, expected[i], n[i]), 0, 8 * rounding * most[i]);
        }
        CHECK_OK(sherd_world_check(world));
        sherd_module_destroy(m);
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    }
}

static void gradients_are_right_but_for_rounding(sherd_world *world)
{
    compare_gradients(world, line(world));
}

static void over_two_axes_too(sherd_world *world)
{
    compare_gradients(world, mesh_of(world, "dp=2,tp=2"));
}

/* Of many ranks in f32 or bf16: addends are added up in f32, and rounded once. */
static void sums_are_rounded_once(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);

    for (int reduce = SHERD_F32; reduce <= SHERD_BF16; reduce += SHERD_BF16 - SHERD_F32) {
        sherd_module *m = container(world, stack_forward, NULL);
        sherd_module *net = linear_layer(m, "net", SHERD_F32, WIDTH, WIDTH, 1);
        CHECK_OK(sherd_fully_shard(m, mesh, "dp",
                                   &(sherd_shard_options){.param_dtype = SHERD_BF16,
                                                          .reduce_dtype = (sherd_dtype)reduce}));
        /* 9 times 1 + 1/128 is no number in bf16 */
        sherd_tensor *x = sherd_constant(world, SHERD_F32, SHAPE(9, WIDTH), 2, 1.0078125);
        x = sherd_redistribute(spread(x, mesh, "R"), sherd_tensor_layout(spread(x, mesh, "S(0)")),
                               NULL);
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        double g[MOST];
        int64_t n = whole(sherd_grad(sherd_module_parameter(net, "weight")), g);
        CHECK_EQ(n, WIDTH * WIDTH);
        CHECK_NEAR(g[0], 9 * 1.0078125, reduce == SHERD_F32 ? 0 : 9 * rounding);
        CHECK(reduce == SHERD_F32 || g[0] != 9 * 1.0078125);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A penalty on the gradient of the input. */
static void gradients_of_gradients(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_gradients_options recorded = {.create_graph = true};
    const sherd_mesh *mesh = line(world);
    double most = 0;
    int64_t n = 0;

    for (int how = 0; how < 4; how++) {
        static const char *const units[] = {NULL, NULL, "*", ""};
        sherd_scope_begin(world);
        sherd_module *m = blocks(world, SHERD_F32);
        if (how > 0)
            CHECK_OK(sherd_fully_shard(
                m, mesh, "dp",
                &(sherd_shard_options){.unit = units[how], .param_dtype = SHERD_BF16}));
        sherd_tensor *x = sherd_require_grad(input(world, SHERD_F32, how ? mesh : NULL, 0), true);
        sherd_tensor *y = sherd_sum(sherd_cast(sherd_module_call(m, x), SHERD_F32)), *g = NULL;
        sherd_gradients(&g, &x, 1, &y, 1, &recorded);
        sherd_backward(sherd_sum(sherd_square(g)));
        sherd_tensor *of = sherd_grad(parameter(m, 0));
        if (how > 0)
            CHECK_NEAR(distance_to(of, expected, n), 0, 8 * rounding * most);
        else
            n = whole(of, expected);
        for (int64_t e = 0; e < n; e++)
            most = fmax(most, fabs(expected[e]));
        CHECK(most > 0);
        CHECK_OK(sherd_world_check(world));
        sherd_module_destroy(m);
        sherd_scope_end(world);
    }
}

/* Steps of AdamW: small changes are not lost in 16 bits, as the parameters are f32. */
static void it_trains(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    double last[2] = {0};

    for (int how = 0; how < 2; how++) {
        sherd_module *m = blocks(world, SHERD_F32);
        sherd_optimizer *o = NULL;
        CHECK_OK(sherd_fully_shard(
            m, mesh, "dp",
            &(sherd_shard_options){.unit = "*",
                                   .param_dtype = how ? SHERD_BF16 : SHERD_DTYPE_NONE}));
        CHECK_OK(sherd_adamw_create(&o, m, NULL));
        for (int step = 0; step < 20; step++) {
            sherd_scope_begin(world);
            sherd_tensor *l = loss_of(m, mesh, 0);
            sherd_backward(l);
            last[how] = sherd_item(l);
            CHECK(sherd_optimizer_clip(o, 1) > 0);
            sherd_optimizer_step(o, 1e-3, 1);
            sherd_optimizer_clear(o);
            sherd_scope_end(world);
        }
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    CHECK_NEAR(last[1], last[0], 0.03 * last[0]);
    CHECK_OK(sherd_world_check(world));
}

/* ---- bad days ------------------------------------------------------------------------------- */

static void what_has_no_fractions_is_refused(sherd_world *world)
{
    static const sherd_shard_options wrong[] = {{.param_dtype = SHERD_I32},
                                                {.reduce_dtype = SHERD_BOOL},
                                                {.output_dtype = (sherd_dtype)77}};
    const sherd_mesh *mesh = line(world);
    sherd_module *m = blocks(world, SHERD_F32);

    for (int i = 0; i < LEN(wrong); i++)
        CHECK_EQ(sherd_fully_shard(m, mesh, "dp", &wrong[i]), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "output_dtype (unknown, 77) has no fractions") != NULL);
    if (sherd_world_ranks(world) > 1)
        CHECK_EQ(sherd_fully_shard(m, mesh, "dp",
                                   &(sherd_shard_options){.reduce_dtype = sherd_world_rank(world)
                                                                              ? SHERD_BF16
                                                                              : SHERD_F32}),
                 SHERD_EDIFFER);
    sherd_module_destroy(m);
    (void)sherd_world_check(world);
}

static void no_memory_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_status status = SHERD_ENOMEM;
    sherd_module *m = container(world, stack_forward, NULL);

    add_layer(m, "0", mlp(world, SHERD_F32, 4, 6, 4));
    CHECK_OK(sherd_fully_shard(m, mesh, "dp",
                               &(sherd_shard_options){.unit = "*", .param_dtype = SHERD_BF16}));
    sherd_module_checkpoint(sherd_module_child(m, 0), true);
    sherd_tensor *x = spread(wave(world, SHERD_F32, 2, SHAPE(5, 4), 1, 1, 0), mesh, "S(0)");
    CHECK_OK(sherd_world_check(world));
    int64_t live = sherd_world_memory(world).live_bytes;
    for (int n = 1; status && n < 900; n++) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 1 ? n : 0);
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        for (int i = 0; i < 4; i++)
            sherd_clear_grad(parameter(m, i));
        CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    }
    CHECK_OK(status);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(half_the_bytes_are_moved), {2, 3, 4}},
    {TEST(nothing_is_kept_in_between), {2, 3}},
    {TEST(outputs_are_those_of_16_bits), {1, 2, 3}},
    {TEST(gradients_are_right_but_for_rounding), {1, 2, 3}},
    {TEST(over_two_axes_too), {4}},
    {TEST(sums_are_rounded_once), {1, 2, 8}},
    {TEST(gradients_of_gradients), {1, 2}},
    {TEST(it_trains), {2}},
    {TEST(what_has_no_fractions_is_refused), {1, 2}},
    {TEST(no_memory_fails_on_all), {2}},
};
CHECK_MAIN(tests)
