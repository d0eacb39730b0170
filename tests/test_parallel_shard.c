/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fully sharded parameters train as plain data parallelism does, and each rank holds its part of
 * parameters, gradients and optimizer state; what is gathered is one module, and the next one's.
 */
#include "models.h"
#include "sherd/optimizer.h"

enum {
    BLOCKS = 3,
    HEADS = 2,
    HEAD = 5,
    WIDTH = HEADS * HEAD,
    HIDDEN = 14,
    STEPS = 4,
    BATCH = 6,
    LENGTH = 3
};

static sherd_module *stack_of_blocks(sherd_world *world, sherd_dtype dtype, block_size *size)
{
    return stack_of(world, dtype, size, HIDDEN, BLOCKS);
}

/* Losses of some steps of AdamW, on rows over dp. */
static void train(sherd_module *m, sherd_dtype dtype, const sherd_mesh *mesh, double *loss)
{
    sherd_world *world = sherd_module_world(m);
    const sherd_adamw_options options = {.weight_decay = 0.1};
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_adamw_create(&o, m, &options));
    for (int step = 0; step < STEPS; step++) {
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, dtype, 3, SHAPE(BATCH, LENGTH, WIDTH), 3 + step, 1, 0);
        sherd_tensor *t = wave(world, dtype, 3, SHAPE(BATCH, LENGTH, WIDTH), 5 + step, 1, 0);
        if (mesh) {
            const char *rows = sherd_mesh_axes(mesh) == 2 ? "S(0)R" : "S(0)";
            x = spread(x, mesh, rows);
            t = spread(t, mesh, rows);
        }
        sherd_tensor *l = squared_error(sherd_module_call(m, x), t);
        sherd_backward(l);
        loss[step] = sherd_item(l);
        sherd_optimizer_step(o, 0.02, 1 / fmax(1, sherd_optimizer_grad_norm(o)));
        sherd_optimizer_clear(o);
        sherd_scope_end(world);
    }
    sherd_optimizer_destroy(o);
    CHECK_OK(sherd_world_check(world));
}

static sherd_status tensor_parallel(sherd_module *m, const sherd_mesh *mesh, const block_size *size,
                                    bool sequence)
{
    return parallelize_block(m, mesh, "*.", size, sequence);
}

/* One mesh: dp alone (text of it), or dp and tp with styles. */
static void compare_losses(sherd_world *world, const char *text, bool sequence, sherd_dtype dtype)
{
    /* 16 bits round every sum of parts. */
    const double tolerance = dtype == SHERD_F64 ? 1e-10 : dtype == SHERD_F32 ? 1e-5 : 5e-2;
    const sherd_mesh *mesh = mesh_of(world, text);
    block_size size = {HEADS, HEAD, 0};
    double alone[STEPS], loss[STEPS];
    bool tp = sherd_mesh_axes(mesh) == 2;

    sherd_module *plain = stack_of_blocks(world, dtype, &size);
    train(plain, dtype, NULL, alone);
    sherd_module_destroy(plain);
    CHECK(alone[STEPS - 1] < 0.9 * alone[0] || alone[0] != alone[1]);
    for (int way = 0; way < 5; way++) {
        const sherd_shard_options options = {
            .no_prefetch = way == 2, .min_elements = way == 3 ? 50 : 0, .keep_gathered = way == 4};
        sherd_module *m = stack_of_blocks(world, dtype, &size);
        if (tp)
            CHECK_OK(tensor_parallel(m, mesh, &size, sequence));
        if (way == 0 && !tp)
            CHECK_OK(sherd_parallelize(m, mesh, "dp", NULL, 0)); /* plain data parallel */
        if (way > 0)
            CHECK_OK(sherd_fully_shard(m, mesh, "dp", &options));
        train(m, dtype, mesh, loss);
        for (int i = 0; i < STEPS; i++)
            CHECK_NEAR(loss[i], alone[i], tolerance * alone[i]);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void losses_are_those_of_data_parallelism(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "dp=%d", sherd_world_ranks(world));
    for (int dtype = SHERD_F32; dtype <= SHERD_BF16; dtype++)
        compare_losses(world, text, false, (sherd_dtype)dtype);
}

static void and_beside_tensor_parallelism(sherd_world *world)
{
    for (int sequence = 0; sequence < 2; sequence++) {
        compare_losses(world, "dp=2,tp=2", sequence, SHERD_F64);
        compare_losses(world, "dp=4,tp=1", sequence, SHERD_F64);
        compare_losses(world, "dp=1,tp=4", sequence, SHERD_F64);
        compare_losses(world, "dp=2,tp=2", sequence, SHERD_F32);
    }
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* What layers of one width hold: large against a batch. */
enum { LAYERS = 5, WIDE = 70, ROWS = 6 };

static sherd_module *wide_stack(sherd_world *world)
{
    static const char *const names[] = {"0", "1", "2", "3", "4"};
    sherd_module *root = container(world, stack_forward, NULL), *m;
    sherd_layer_options o = {.dtype = SHERD_F64, .bias = true};

    for (int i = 0; i < LAYERS; i++) {
        o.name = names[i];
        CHECK_OK(sherd_linear_create(&m, world, WIDE, WIDE, &o));
        add_layer(root, names[i], m);
    }
    return root;
}

/* This rank's part of all parameters (and of what lies like them): an even one, within one
 * layer. */
static void check_part(int64_t bytes, int64_t all, int64_t ranks, int64_t copies)
{
    int64_t layer = all / LAYERS, even = all * copies / ranks;

    CHECK(bytes <= even + layer);
    CHECK(ranks > 3 || bytes >= even - layer); /* of many ranks the last one has what is left */
}

static void bytes_are_parts(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world), layer = WIDE * (WIDE + 1) * 8;
    const int64_t all = LAYERS * layer, activations = ROWS * WIDE * 8 * (4 * LAYERS + 8);
    char text[16];

    snprintf(text, sizeof text, "dp=%d", (int)ranks);
    const sherd_mesh *mesh = mesh_of(world, text);
    int64_t before = sherd_world_memory(world).live_bytes;
    sherd_module *m = wide_stack(world);
    sherd_optimizer *o = NULL;
    sherd_world_memory_reset(world);
    CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
    /* Drawn in parts: the whole was never there. */
    CHECK(sherd_world_memory(world).peak_bytes - before <=
          (WIDE + ranks - 1) / ranks * LAYERS * (WIDE + 1) * 8);
    check_part(sherd_world_memory(world).live_bytes - before, all, ranks, 1);
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    check_part(sherd_world_memory(world).live_bytes - before, all, ranks, 3);
    for (int step = 0; step < 3; step++) {
        sherd_scope_begin(world);
        sherd_tensor *x =
            spread(wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDE), 3, 1, 0), mesh, "S(0)");
        int64_t at_rest = sherd_world_memory(world).live_bytes;
        sherd_world_memory_reset(world);
        sherd_tensor *y = sherd_module_call(m, x);
        /* Forward: the module that computes and the next one. */
        CHECK(sherd_world_memory(world).peak_bytes - at_rest <= 2 * layer + activations);
        CHECK(sherd_world_memory(world).live_bytes - at_rest <= activations);
        sherd_world_memory_reset(world);
        sherd_backward(sherd_sum(sherd_mul(y, y)));
        /* Backward: a weight, its gradient while that is settled, and the parts that stay. */
        int64_t part = (WIDE + ranks - 1) / ranks * LAYERS * (WIDE + 1) * 8;
        CHECK(sherd_world_memory(world).peak_bytes - at_rest <= part + 3 * layer + activations);
        sherd_scope_end(world);
        check_part(sherd_world_memory(world).live_bytes - before, all, ranks, 4);
        sherd_optimizer_step(o, 0.01, 1);
        sherd_optimizer_clear(o);
        check_part(sherd_world_memory(world).live_bytes - before, all, ranks, 3);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_EQ(sherd_world_memory(world).live_bytes, before);
    CHECK_OK(sherd_world_check(world));
}

/* Beside shards of another axis: one rank of four has a fourth, all in all. */
static void bytes_are_parts_of_parts(sherd_world *world)
{
    const sherd_parallel_entry plan[] = {{"[024]", sherd_colwise()}, {"[13]", sherd_rowwise()}};
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    int64_t before = sherd_world_memory(world).live_bytes;
    sherd_module *m = wide_stack(world);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, 2));
    CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
    check_part(sherd_world_memory(world).live_bytes - before, LAYERS * WIDE * (WIDE + 1) * 8, 4, 1);
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    sherd_scope_begin(world);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDE), 3, 1, 0), mesh, "S(0)R");
    sherd_backward(sherd_sum(sherd_module_call(m, x)));
    sherd_scope_end(world);
    check_part(sherd_world_memory(world).live_bytes - before, LAYERS * WIDE * (WIDE + 1) * 8, 4, 4);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- how it is done ------------------------------------------------------------------------- */

static int64_t calls_of(sherd_world *world, const char *op)
{
    int64_t n = 0;
    for (int i = 0; i < sherd_comm_count(world); i++)
        if (strcmp(sherd_comm_get(world, i).op, op) == 0)
            n += sherd_comm_get(world, i).calls;
    return n;
}

/* One gather a module and use, one reduce-scatter a module; the optimizer has nothing to settle.
 * What is kept is not gathered again. */
static void check_moves(sherd_world *world, bool kept)
{
    const sherd_shard_options options = {.keep_gathered = kept};
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 2 ? "dp=2" : "dp=3");
    sherd_module *m = mlp(world, SHERD_F64, 6, 12, 6);
    sherd_optimizer *o = NULL;
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(6, 6), 1, 1, 0), mesh, "S(0)");

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &options));
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    for (int step = 0; step < 3; step++) {
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_sum(sherd_module_call(m, x));
        CHECK_EQ(calls_of(world, "all_gather"), 2);
        CHECK_EQ(calls_logged(world), 2);
        sherd_backward(y);
        /* Of the weights again the one that the gradient of an input needs; a bias is not needed
         * again. */
        CHECK_EQ(calls_of(world, "all_gather"), kept ? 2 : 3);
        CHECK_EQ(calls_of(world, "reduce_scatter"), 2);
        CHECK_EQ(calls_logged(world), kept ? 4 : 5);
        sherd_optimizer_step(o, 0.01, 1);
        CHECK_EQ(calls_logged(world), kept ? 4 : 5);
        sherd_optimizer_clear(o);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void nothing_moves_but_gathers_and_reduce_scatters(sherd_world *world)
{
    check_moves(world, false);
    check_moves(world, true);
}

/* Beside a shard over tp dp cuts another dim where that is evener, or each of tp's pieces
 * further. */
static void other_axes_stay_as_they_are(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    sherd_module *m = mlp(world, SHERD_F64, 6, 12, 7);
    static const char *const expected[][3] = {{"net1", "weight", "S(0)[1]S(0)[0]"},
                                              {"net1", "bias", "S(0)[1]S(0)[0]"},
                                              {"net2", "weight", "S(1)[1]S(1)[0]"},
                                              {"net2", "bias", "S(0)R"}};

    CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, 2));
    CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
    for (int i = 0; i < LEN(expected); i++) {
        sherd_tensor *p =
            sherd_module_parameter(sherd_module_find(m, expected[i][0]), expected[i][1]);
        CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(p)), expected[i][2]);
        CHECK(sherd_requires_grad(p));
    }
    CHECK_EQ(sherd_fully_shard(m, mesh, "dp", NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "is sharded over the axis already") != NULL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* A table that is also the head: one leaf, one gradient, in both places. */
static void tied_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *h = sherd_module_call(sherd_module_find(self, "first"), in->value[0]);
    out->value[0] = sherd_module_call(sherd_module_find(self, "second"), sherd_relu(h));
    out->count = 1;
}

static void tied_parameters_stay_tied(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    char text[16];
    snprintf(text, sizeof text, "dp=%d", sherd_world_ranks(world));
    const sherd_mesh *mesh = mesh_of(world, text);
    int64_t n = 0;

    for (int sharded = 0; sharded < 2; sharded++) {
        sherd_module *m = container(world, tied_forward, NULL);
        sherd_module *first = linear_layer(m, "first", SHERD_F64, 5, 5, 1);
        sherd_module *second = linear_layer(m, "second", SHERD_F64, 5, 5, 3);
        CHECK_OK(
            sherd_module_set_parameter(second, "weight", sherd_module_parameter(first, "weight")));
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(4, 5), 1, 1, 0);
        if (sharded) {
            CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
            x = spread(x, mesh, "S(0)");
        }
        sherd_tensor *w = sherd_module_parameter(first, "weight");
        CHECK(w == sherd_module_parameter(second, "weight"));
        sherd_tensor *y = sherd_module_call(m, x);
        CHECK(w == sherd_module_parameter(first, "weight"));
        sherd_backward(sherd_sum(sherd_mul(y, y)));
        if (sharded)
            CHECK_NEAR(distance_to(sherd_grad(w), expected, n), 0, 1e-11);
        else
            n = whole(sherd_grad(w), expected);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A forward that takes another way each time: what was begun ahead and not used goes. */
static void fickle_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    int *turn = sherd_module_payload(self);
    sherd_tensor *x = in->value[0];

    for (int i = 0; i < 3; i++)
        if (*turn >> i & 1)
            x = sherd_module_call(sherd_module_child(self, i), x);
    out->value[0] = sherd_scale(x, 1);
    out->count = 1;
}

static void another_way_each_time_leaves_nothing(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 2 ? "dp=2" : "dp=3");
    int turn = 7;
    sherd_module *m = container(world, fickle_forward, &turn);

    linear_layer(m, "0", SHERD_F64, 8, 8, 1);
    linear_layer(m, "1", SHERD_F64, 8, 8, 2);
    linear_layer(m, "2", SHERD_F64, 8, 8, 3);
    CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(6, 8), 1, 1, 0), mesh, "S(0)");
    int64_t before = sherd_world_memory(world).live_bytes;
    static const int turns[] = {7, 5, 7, 6, 1, 3, 0, 2, 7};
    for (int i = 0; i < LEN(turns); i++) {
        turn = turns[i];
        sherd_scope_begin(world);
        bool recording = sherd_set_recording(world, i % 2);
        CHECK(!sherd_tensor_failed(sherd_module_call(m, x)));
        sherd_set_recording(world, recording);
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_memory(world).live_bytes, before);
    }
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* What lives when the first of two layers has computed: its output, and the next one's weight and
 * bias if they are ahead. */
static void look(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    (void)in, (void)out;
    *(int64_t *)payload = sherd_world_memory(sherd_module_world(self)).live_bytes;
}

static void the_next_module_is_gathered_ahead(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 2 ? "dp=2" : "dp=3");
    int64_t seen[2][2];

    for (int no = 0; no < 2; no++) {
        const sherd_shard_options options = {.no_prefetch = no};
        sherd_module *m = wide_stack(world);
        int64_t live = 0;
        CHECK_OK(sherd_fully_shard(m, mesh, "dp", &options));
        CHECK_OK(sherd_module_hook_after(NULL, sherd_module_child(m, 0), look,
                                         &(sherd_hook_options){.payload = &live}));
        sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(6, WIDE), 1, 1, 0), mesh, "S(0)");
        for (int pass = 0; pass < 2; pass++) {
            sherd_scope_begin(world);
            int64_t before = sherd_world_memory(world).live_bytes;
            sherd_set_recording(world, false);
            sherd_module_call(m, x);
            sherd_set_recording(world, true);
            seen[no][pass] = live - before;
            sherd_scope_end(world);
        }
        sherd_module_destroy(m);
    }
    /* In the first pass nobody knows what comes next. */
    CHECK_EQ(seen[0][0], seen[1][0]);
    CHECK_EQ(seen[1][0], seen[1][1]);
    CHECK_EQ(seen[0][1] - seen[0][0], WIDE * (WIDE + 1) * 8);
    CHECK_OK(sherd_world_check(world));
}

static void frozen_parameters_stay_frozen(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2");
    sherd_module *m = mlp(world, SHERD_F64, 6, 12, 6);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(6, 6), 1, 1, 0), mesh, "S(0)");
    sherd_module *net1 = sherd_module_find(m, "net1");

    sherd_require_grad(sherd_module_parameter(net1, "weight"), false);
    CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
    CHECK(!sherd_requires_grad(sherd_module_parameter(net1, "weight")));
    sherd_backward(sherd_sum(sherd_module_call(m, x)));
    CHECK(sherd_grad(sherd_module_parameter(net1, "weight")) == NULL);
    CHECK(sherd_grad(sherd_module_parameter(net1, "bias")) != NULL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- bad days ------------------------------------------------------------------------------- */

static void ranks_that_shard_otherwise_differ(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2");
    sherd_module *m = mlp(world, SHERD_F64, 6, 12, 6);
    const sherd_shard_options options = {.min_elements = sherd_world_rank(world) ? 100 : 0};

    CHECK_EQ(sherd_fully_shard(m, mesh, "dp", &options), SHERD_EDIFFER);
    sherd_status after = sherd_world_check(world);
    CHECK(after == SHERD_OK || after == SHERD_EDIFFER);
    sherd_module_destroy(m);
}

static void no_memory_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 2 ? "dp=2" : "dp=3");
    bool mine = sherd_world_rank(world) == 1;
    sherd_status status = SHERD_ENOMEM;

    /* While it is made, */
    for (int n = 1; status && n < 300; n++) {
        sherd_scope_begin(world);
        sherd_module *m = mlp(world, SHERD_F64, 4, 6, 4);
        sherd_world_fail_allocation(world, mine ? n : 0);
        status = sherd_fully_shard(m, mesh, "dp", NULL);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        sherd_status after = sherd_world_check(world);
        CHECK(after == SHERD_OK || (status && after == SHERD_ENOMEM));
        sherd_module_destroy(m);
        sherd_scope_end(world);
    }
    CHECK_OK(status);
    /* and while it works: afterwards it works again. */
    sherd_module *m = mlp(world, SHERD_F64, 4, 6, 4);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(5, 4), 1, 1, 0), mesh, "S(0)");
    CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
    status = SHERD_ENOMEM;
    int64_t live = sherd_world_memory(world).live_bytes;
    for (int n = 1; status && n < 500; n++) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, mine ? n : 0);
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        for (int i = 0; i < 2; i++) {
            sherd_clear_grad(sherd_module_parameter(sherd_module_child(m, i), "weight"));
            sherd_clear_grad(sherd_module_parameter(sherd_module_child(m, i), "bias"));
        }
        CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    }
    CHECK_OK(status);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(losses_are_those_of_data_parallelism), {1, 2, 3, 4}},
    {TEST(and_beside_tensor_parallelism), {4}},
    {TEST(bytes_are_parts), {1, 2, 3, 4, 8}},
    {TEST(bytes_are_parts_of_parts), {4}},
    {TEST(nothing_moves_but_gathers_and_reduce_scatters), {2, 3}},
    {TEST(other_axes_stay_as_they_are), {4}},
    {TEST(tied_parameters_stay_tied), {1, 2, 3}},
    {TEST(another_way_each_time_leaves_nothing), {2, 3}},
    {TEST(the_next_module_is_gathered_ahead), {2, 3}},
    {TEST(frozen_parameters_stay_frozen), {2}},
    {TEST(ranks_that_shard_otherwise_differ), {2}},
    {TEST(no_memory_fails_on_all), {2, 3}},
};
CHECK_MAIN(tests)
