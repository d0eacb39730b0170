/* SPDX-License-Identifier: Apache-2.0 */
/* input_reshard: the same bits, fewer saved bytes, for any shape and mesh. */
#include "models.h"

enum { BATCH = 2, HEADS = 4, HEAD = 8, WIDTH = HEADS * HEAD, HIDDEN = 4 * WIDTH, BLOCKS = 2 };
enum { MUCH = 16 /* positions whose values outweigh the gradients */ };

static void chain_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    *out = *in;
    for (int i = 0; i < sherd_module_children(self); i++)
        out->value[0] = sherd_module_call(sherd_module_child(self, i), out->value[0]);
    out->count = 1;
}

/* What a run of a model gives: bits to compare, bytes to weigh. */
typedef struct outcome {
    double loss;
    double *grad[MOST_PARAMETERS];
    int64_t count[MOST_PARAMETERS];
    int parameters;
    int64_t saved, peak;
} outcome;

typedef struct setup {
    const sherd_mesh *mesh;
    const char *lies; /* the input */
    int64_t length;
    bool sequence, each_block; /* reshard each block by itself too */
    bool thin;                 /* one slice a rank: only some ranks save less */
    int dim;                   /* to reshard; 99 = none */
} setup;

static outcome run(sherd_world *world, const setup *s)
{
    static _Thread_local block_size size;
    sherd_named_parameter all[MOST_PARAMETERS];
    sherd_module *root = container(world, chain_forward, NULL);
    outcome o = {0};

    size = (block_size){HEADS, HEAD, 0.1};
    add_layer(root, "0", block(world, SHERD_F32, &size, HIDDEN));
    add_layer(root, "1", block(world, SHERD_F32, &size, HIDDEN));
    sherd_scope_begin(world);
    CHECK_OK(parallelize_block(root, s->mesh, "*.", &size, s->sequence));
    if (s->dim != 99)
        CHECK_OK(sherd_input_reshard(root, s->mesh, "tp", s->dim));
    for (int i = 0; i < BLOCKS && s->each_block && s->dim != 99; i++)
        CHECK_OK(sherd_input_reshard(sherd_module_child(root, i), s->mesh, "tp", 0));
    sherd_tensor *x = wave(world, SHERD_F32, 3, SHAPE(BATCH, s->length, WIDTH), 17, 1, 0);
    sherd_tensor *target = wave(world, SHERD_F32, 3, SHAPE(BATCH, s->length, WIDTH), 23, 1, 0);
    x = sherd_require_grad(spread(x, s->mesh, s->lies), true);
    int64_t before = sherd_saved_bytes(world);
    sherd_world_memory_reset(world);
    int64_t live = sherd_world_memory(world).live_bytes;
    sherd_tensor *y = sherd_module_call(root, x);
    o.saved = sherd_saved_bytes(world) - before;
    sherd_tensor *loss = squared_error(y, target);
    sherd_backward(loss);
    o.peak = sherd_world_memory(world).peak_bytes - live;
    CHECK_EQ(sherd_saved_bytes(world), before);
    o.loss = sherd_item(loss);
    o.parameters = sherd_module_all_parameters(root, all, MOST_PARAMETERS);
    for (int i = 0; i < o.parameters; i++)
        o.grad[i] = keep(sherd_grad(all[i].tensor), &o.count[i]);
    sherd_scope_end(world);
    sherd_module_destroy(root);
    return o;
}

static void check_same_bits(const outcome *a, const outcome *b)
{
    CHECK_EQ(memcmp(&a->loss, &b->loss, sizeof a->loss), 0);
    CHECK_EQ(a->parameters, b->parameters);
    CHECK(a->loss != 0);
    for (int i = 0; i < a->parameters; i++) {
        CHECK_EQ(a->count[i], b->count[i]);
        CHECK_EQ(memcmp(a->grad[i], b->grad[i], (size_t)a->count[i] * sizeof *a->grad[i]), 0);
    }
}

static void discard(outcome *o)
{
    for (int i = 0; i < o->parameters; i++)
        free(o->grad[i]);
}

/*
 * Of `much` the peak lies where backward begins, and all is saved. Of little it lies where backward
 * ends, and all gradients are there: then one tensor that was in pieces is whole again. (A large
 * workspace of kernels hides either.)
 */
static void check_setup(sherd_world *world, setup s)
{
    int dim = s.dim;
    s.dim = 99;
    outcome without = run(world, &s);
    s.dim = dim;
    outcome with = run(world, &s);

    check_same_bits(&without, &with);
    bool some =
        s.sequence || s.thin || sherd_mesh_extent(s.mesh, sherd_mesh_find_axis(s.mesh, "tp")) == 1;
    bool much = s.length >= MUCH;
    CHECK(with.saved < without.saved + some);
    CHECK(with.peak < without.peak + (some || !much) + (much ? 0 : BATCH * s.length * WIDTH * 4));
    discard(&without);
    discard(&with);
}

/* Lengths that divide and that do not; also fewer positions than ranks. */
static void losses_and_gradients_are_the_same_bits(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    check_setup(world, (setup){mesh, "R", 16, .dim = 1});
    check_setup(world, (setup){mesh, "R", 7, .dim = 1});
    check_setup(world, (setup){mesh, "R", 7, .dim = -2, .each_block = true});
    check_setup(world, (setup){mesh, "R", 16, .dim = 1, .sequence = true});
    check_setup(world, (setup){mesh, "S(1)", 7, .dim = 1, .sequence = true});
    CHECK_OK(sherd_world_check(world));
}

static void a_grid_gives_the_same_bits(sherd_world *world)
{
    const sherd_mesh *mesh =
        mesh_of(world, sherd_world_ranks(world) == 4 ? "dp=2,tp=2" : "dp=2,tp=3");

    check_setup(world, (setup){mesh, "S(0)R", 7, .dim = 1});
    check_setup(world,
                (setup){mesh, "S(0)R", 8, .dim = 0, .thin = true}); /* dp has left 1 row each */
    check_setup(world, (setup){mesh, "S(0)R", 7, .dim = 1, .sequence = true});
    CHECK_OK(sherd_world_check(world));
}

/* ---- one tensor at a time ------------------------------------------------------------------- */

/* h = 1 x; y = h h: saves h once. */
static void square_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *h = sherd_scale(in->value[0], 1);
    (void)self;
    out->value[0] = sherd_mul(h, h);
    out->count = 1;
}

/* Bytes that one call saves; its gradient must be 2 x. */
static int64_t saved_by(sherd_module *m, sherd_tensor *x)
{
    static _Thread_local double twice[MOST];
    sherd_world *world = sherd_module_world(m);
    int64_t n, bytes, before = sherd_saved_bytes(world);

    sherd_scope_begin(world);
    sherd_require_grad(x, true);
    sherd_clear_grad(x);
    n = whole(x, twice);
    for (int64_t i = 0; i < n; i++)
        twice[i] *= 2;
    sherd_tensor *y = sherd_module_call(m, x);
    bytes = sherd_saved_bytes(world) - before;
    sherd_backward(sherd_sum(y));
    CHECK_EQ(distance_to(sherd_grad(x), twice, n), 0);
    CHECK_EQ(sherd_saved_bytes(world), before);
    sherd_scope_end(world);
    return bytes;
}

static sherd_module *square(sherd_world *world, const sherd_mesh *mesh, int dim)
{
    sherd_module *m = container(world, square_forward, NULL);
    CHECK_OK(sherd_input_reshard(m, mesh, "tp", dim));
    return m;
}

static void a_rank_keeps_its_chunk(sherd_world *world)
{
    static const int64_t shapes[][2] = {{8, 4}, {7, 3}, {5, 4}, {2, 9}, {13, 2}};
    const sherd_mesh *mesh = line_of_ranks(world);
    int p = sherd_world_ranks(world), rank = sherd_world_rank(world);

    for (int i = 0; i < LEN(shapes); i++)
        for (int dim = -2; dim < 2; dim++) {
            int64_t n = shapes[i][(dim + 2) % 2], other = shapes[i][(dim + 3) % 2];
            int64_t chunk = (n + p - 1) / p;
            int64_t mine = n - rank * chunk < chunk ? n - rank * chunk : chunk;
            sherd_module *m = square(world, mesh, dim);
            sherd_tensor *x = wave(world, SHERD_F64, 2, shapes[i], 3, 1, 0);
            mine = mine < 0 ? 0 : mine;
            CHECK_EQ(saved_by(m, spread(x, mesh, "R")), mine * other * 8);
            CHECK_EQ(saved_by(m, x), mine * other * 8); /* plain, and equal everywhere */
            sherd_module_destroy(m);
        }
    CHECK_OK(sherd_world_check(world));
}

static void what_can_not_be_resharded_is_left_alone(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t rank = sherd_world_rank(world), p = sherd_world_ranks(world);
    sherd_module *rows = square(world, mesh, 0), *third = square(world, mesh, 2);
    sherd_module *before = square(world, mesh, -3);
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(8, 4), 3, 1, 0);
    sherd_tensor *small = wave(world, SHERD_F64, 1, SHAPE(p - 1), 3, 1, 0);
    sherd_tensor *flat = wave(world, SHERD_F64, 2, SHAPE(1, 12), 3, 1, 0);
    double data[8], own = (double)(rank + 1);

    CHECK_EQ(saved_by(third, spread(x, mesh, "R")), 8 * 4 * 8); /* lacks the dim */
    CHECK_EQ(saved_by(before, spread(x, mesh, "R")), 8 * 4 * 8);
    CHECK_EQ(saved_by(rows, spread(small, mesh, "R")), (p - 1) * 8); /* fewer elements than ranks */
    CHECK_EQ(saved_by(rows, small), (p - 1) * 8);
    CHECK_EQ(saved_by(rows, spread(flat, mesh, "R")), 12 * 8); /* size 1 there */
    sherd_tensor *sharded = spread(x, mesh, "S(1)");           /* sharded already */
    CHECK_EQ(saved_by(rows, sharded), sherd_tensor_box(sharded).size[1] * 8 * 8);
    /* A plain tensor that varies: each rank's own data, and own gradient. */
    for (int i = 0; i < 8; i++)
        data[i] = own * i;
    CHECK_EQ(saved_by(rows, sherd_from_data(world, SHERD_F64, SHAPE(8), 1, data)), 8 * 8);
    sherd_module_destroy(rows);
    sherd_module_destroy(third);
    sherd_module_destroy(before);
    CHECK_OK(sherd_world_check(world));
}

/* Plain pieces that differ along dp but not along tp, of different lengths: resharded along tp
 * only. */
static void a_plain_tensor_may_vary_over_another_axis(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    sherd_module *m = square(world, mesh, 0);
    sherd_tensor *x =
        sherd_to_local(spread(wave(world, SHERD_F64, 2, SHAPE(7, 3), 3, 1, 0), mesh, "S(0)R"));
    int64_t rows = sherd_tensor_shape(x)[0], half = (rows + 1) / 2;
    int64_t mine = sherd_world_rank(world) % 2 == 0 ? half : rows - half;

    CHECK_EQ(saved_by(m, x), mine * 3 * 8);
    /* What is restored varies as it did: over dp, not over tp. */
    sherd_backward(sherd_sum(sherd_module_call(m, x)));
    CHECK_EQ(sherd_grad(x)->varies, x->varies);
    CHECK_EQ(x->varies, 1);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* The inner module's hooks take the place of the outer ones, and give it back. */
static void nest_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *h = sherd_module_call(sherd_module_child(self, 0), in->value[0]);
    sherd_tensor *k = sherd_scale(in->value[0], 1);
    out->value[0] = sherd_add(h, sherd_mul(k, k));
    out->count = 1;
}

static void modules_nest(sherd_world *world)
{
    static _Thread_local double fourfold[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *outer = container(world, nest_forward, NULL),
                 *inner = container(world, square_forward, NULL);
    sherd_tensor *x = sherd_require_grad(
        spread(wave(world, SHERD_F64, 2, SHAPE(6, 12), 3, 1, 0), mesh, "R"), true);
    int64_t rows[2] = {0}, p = sherd_world_ranks(world), rank = sherd_world_rank(world);
    static const int64_t sizes[2] = {6, 12};

    add_layer(outer, "inner", inner);
    CHECK_OK(sherd_input_reshard(outer, mesh, "tp", 0));
    CHECK_OK(sherd_input_reshard(inner, mesh, "tp", 1));
    for (int i = 0; i < 2; i++) {
        int64_t chunk = (sizes[i] + p - 1) / p, left = sizes[i] - rank * chunk;
        rows[i] = left < 0 ? 0 : left < chunk ? left : chunk;
    }
    int64_t before = sherd_saved_bytes(world);
    sherd_tensor *y = sherd_module_call(outer, x);
    CHECK_EQ(sherd_saved_bytes(world) - before, rows[0] * 12 * 8 + rows[1] * 6 * 8);
    sherd_backward(sherd_sum(y));
    int64_t n = whole(x, fourfold);
    for (int64_t i = 0; i < n; i++)
        fourfold[i] *= 4;
    CHECK_EQ(distance_to(sherd_grad(x), fourfold, n), 0);
    sherd_module_destroy(outer);
    CHECK_OK(sherd_world_check(world));
}

static void bad_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    out->value[0] = sherd_matmul(in->value[0], in->value[0]); /* 7x3 by 7x3 */
    out->count = 1;
}

static void an_error_inside_forward_takes_the_hooks_down(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *bad = container(world, bad_forward, NULL),
                 *plain = container(world, square_forward, NULL);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(7, 3), 3, 1, 0), mesh, "R");

    CHECK_OK(sherd_input_reshard(bad, mesh, "tp", 0));
    sherd_require_grad(x, true);
    CHECK(sherd_tensor_failed(sherd_module_call(bad, x)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_EQ(saved_by(plain, x), 7 * 3 * 8);
    sherd_module_destroy(bad);
    sherd_module_destroy(plain);
    CHECK_OK(sherd_world_check(world));
}

static void what_is_saved_outlives_the_module(sherd_world *world)
{
    static _Thread_local double twice[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = square(world, mesh, 0);
    sherd_tensor *x = sherd_require_grad(
        spread(wave(world, SHERD_F64, 2, SHAPE(7, 3), 3, 1, 0), mesh, "R"), true);
    sherd_tensor *y = sherd_module_call(m, x);

    sherd_module_destroy(m);
    sherd_backward(sherd_sum(y));
    int64_t n = whole(x, twice);
    for (int64_t i = 0; i < n; i++)
        twice[i] *= 2;
    CHECK_EQ(distance_to(sherd_grad(x), twice, n), 0);
    CHECK_OK(sherd_world_check(world));
}

static void bad_arguments_are_refused_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = container(world, square_forward, NULL);

    CHECK_EQ(sherd_input_reshard(m, mesh, "dp", 0), SHERD_EINVAL);
    CHECK_EQ(sherd_input_reshard(m, NULL, "tp", 0), SHERD_EINVAL);
    if (sherd_world_ranks(world) > 1) {
        CHECK_EQ(sherd_input_reshard(m, mesh, "tp", sherd_world_rank(world)), SHERD_EDIFFER);
        (void)sherd_world_check(world);
    }
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
}

/* One rank has no memory for its hooks, or asks for another dim: no rank has them afterwards. */
static void after_an_error_no_rank_reshards(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = container(world, square_forward, NULL);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(7, 3), 3, 1, 0), mesh, "R");
    bool first = sherd_world_rank(world) == 0;

    sherd_require_grad(x, true);
    for (int n = 1; n <= 4; n++) {
        sherd_world_fail_allocation(world, first ? n : 0);
        sherd_status status = sherd_input_reshard(m, mesh, "tp", n < 4 ? 0 : first);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == (n < 4 ? SHERD_ENOMEM : SHERD_EDIFFER));
        (void)sherd_world_check(world);
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        CHECK_OK(sherd_world_check(world));
    }
    sherd_module_destroy(m);
}

/* The n-th allocation of one rank fails, for every n: the same status everywhere, then all works
 * again. */
static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(7, 3), 3, 1, 0), mesh, "R");
    int failures = 0;
    bool good = false;

    sherd_require_grad(x, true);
    for (int k = 1; !good && k < 400; k++) {
        sherd_module *m = container(world, square_forward, NULL);
        sherd_scope_begin(world);
        if (sherd_world_rank(world) == 0)
            sherd_world_fail_allocation(world, k);
        sherd_status status = sherd_input_reshard(m, mesh, "tp", 0);
        if (!status)
            sherd_backward(sherd_sum(sherd_module_call(m, x)));
        sherd_world_fail_allocation(world, 0);
        sherd_status checked = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        CHECK(checked == SHERD_OK || checked == SHERD_ENOMEM);
        sherd_clear_grad(x);
        sherd_scope_end(world);
        sherd_module_destroy(m);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        good = status == SHERD_OK && checked == SHERD_OK;
        failures += !good;
    }
    CHECK(good);
    CHECK(failures > 5);
}

/* Squares of x by rows over dp: on the first ranks that is all of the leaf, where it is. */
static void squares_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = sherd_redistribute_to(in->value[0], "S(0)R", NULL);

    (void)self;
    out->value[0] = sherd_mul(x, x);
    out->count = 1;
}

static void a_piece_may_be_all_of_a_leaf(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    sherd_module *m = container(world, squares_forward, NULL);
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(1, 4, 3), 3, 1, 0);
    int64_t count = whole(sherd_scale(x, 2), expected);

    CHECK_OK(sherd_input_reshard(m, mesh, "tp", 1));
    x = sherd_require_grad(spread(x, mesh, "RR"), true);
    sherd_backward(sherd_sum(sherd_module_call(m, x)));
    CHECK_NEAR(distance_to(sherd_grad(x), expected, count), 0, 1e-12);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(losses_and_gradients_are_the_same_bits), {1, 2, 3, 4}},
    {TEST(a_grid_gives_the_same_bits), {4, 6}},
    {TEST(a_rank_keeps_its_chunk), {2, 3, 4, 8}},
    {TEST(what_can_not_be_resharded_is_left_alone), {2, 3, 8}},
    {TEST(a_plain_tensor_may_vary_over_another_axis), {4}},
    {TEST(modules_nest), {2, 3, 4}},
    {TEST(an_error_inside_forward_takes_the_hooks_down), {1, 2, 3}},
    {TEST(what_is_saved_outlives_the_module), {2, 3}},
    {TEST(bad_arguments_are_refused_on_all), {1, 2, 3}},
    {TEST(a_piece_may_be_all_of_a_leaf), {4}},
    {TEST(after_an_error_no_rank_reshards), {2, 3}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
