/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpointing of blocks that styles made parallel, with and without input_reshard, and whose
 * parameters are fully sharded: the same bits, fewer saved bytes.
 */
#include "models.h"
#include "sherd/ops_elements.h"

enum {
    BATCH = 2,
    HEADS = 4,
    HEAD = 4,
    WIDTH = HEADS * HEAD,
    HIDDEN = 2 * WIDTH,
    BLOCKS = 2,
    PASSES = 3
};

static void chain_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    *out = *in;
    for (int i = 0; i < sherd_module_children(self); i++)
        out->value[0] = sherd_module_call(sherd_module_child(self, i), out->value[0]);
    out->count = 1;
}

typedef enum what { NOTHING, BLOCK, PARTS, BLOCK_AND_PARTS, ALL } what; /* ALL: the root too */

typedef struct setup {
    const sherd_mesh *mesh;
    const char *lies;
    int64_t length;
    bool sequence, reshard, shard, no_prefetch;
} setup;

typedef struct outcome {
    double loss;
    double *grad[MOST_PARAMETERS];
    int64_t count[MOST_PARAMETERS];
    int parameters;
    int64_t saved, gathers; /* gathers: in backward */
} outcome;

/* "tp", or what there is instead. */
static const char *reshard_axis(const setup *s)
{
    return sherd_mesh_axis_name(s->mesh, sherd_mesh_axes(s->mesh) - 1);
}

/* The parameters of the tree over dp; blocks over tp too where there is such an axis. */
static void split(sherd_module *root, const setup *s, const block_size *size)
{
    const sherd_shard_options options = {.no_prefetch = s->no_prefetch};

    if (!s->shard || sherd_mesh_axes(s->mesh) == 2)
        CHECK_OK(parallelize_block(root, s->mesh, "*.", size, s->sequence));
    if (s->shard)
        CHECK_OK(sherd_fully_shard(root, s->mesh, "dp", &options));
}

static sherd_module *model(sherd_world *world, const setup *s, what checkpointed, block_size *size)
{
    sherd_module *root = container(world, chain_forward, NULL);

    add_layer(root, "0", block(world, SHERD_F32, size, HIDDEN));
    add_layer(root, "1", block(world, SHERD_F32, size, HIDDEN));
    split(root, s, size);
    sherd_module_checkpoint(root, checkpointed == ALL);
    for (int i = 0; i < BLOCKS; i++) {
        sherd_module *b = sherd_module_child(root, i);
        sherd_module_checkpoint(b, checkpointed & BLOCK);
        sherd_module_checkpoint(sherd_module_find(b, "attn"), checkpointed & PARTS);
        sherd_module_checkpoint(sherd_module_find(b, "mlp"), checkpointed & PARTS);
        if (s->reshard)
            CHECK_OK(sherd_input_reshard(b, s->mesh, reshard_axis(s), 1));
    }
    return root;
}

static const sherd_comm_filter gathers_over_dp = {.op = "all_gather", .axes = "dp"};

static outcome run(sherd_world *world, const setup *s, what checkpointed)
{
    static _Thread_local block_size size;
    sherd_named_parameter all[MOST_PARAMETERS];
    outcome o = {0};

    size = (block_size){HEADS, HEAD, 0.1};
    sherd_module *root = model(world, s, checkpointed, &size);
    sherd_scope_begin(world);
    sherd_tensor *x = wave(world, SHERD_F32, 3, SHAPE(BATCH, s->length, WIDTH), 17, 1, 0);
    sherd_tensor *target = wave(world, SHERD_F32, 3, SHAPE(BATCH, s->length, WIDTH), 23, 1, 0);
    x = sherd_require_grad(spread(x, s->mesh, s->lies), true);
    /* Sharded modules know from the first pass on what comes next. */
    for (int pass = 0; pass < (s->shard ? PASSES : 1); pass++) {
        sherd_tensor *loss = squared_error(sherd_module_call(root, x), target);
        o.saved = sherd_saved_bytes(world);
        sherd_comm_reset(world);
        sherd_backward(loss);
        o.gathers = sherd_comm_calls(world, &gathers_over_dp);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        o.loss = sherd_item(loss);
    }
    o.parameters = sherd_module_all_parameters(root, all, MOST_PARAMETERS);
    for (int i = 0; i < o.parameters; i++)
        o.grad[i] = keep(sherd_grad(all[i].tensor), &o.count[i]);
    sherd_scope_end(world);
    sherd_module_destroy(root);
    return o;
}

static void check_same_bits(const outcome *a, const outcome *b)
{
    CHECK(a->loss != 0 && a->loss == b->loss);
    CHECK_EQ(a->parameters, b->parameters);
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

/* Bytes of all blocks' inputs, as they are where they come in. */
static void check_setup(sherd_world *world, setup s)
{
    outcome plain = run(world, &s, NOTHING), *other = malloc(6 * sizeof *other);
    int count = 0;

    for (int reshard = 0; reshard < 2; reshard++)
        for (int kind = BLOCK; kind <= BLOCK_AND_PARTS; kind++) {
            s.reshard = reshard;
            other[count] = run(world, &s, (what)kind);
            check_same_bits(&plain, &other[count]);
            CHECK(other[count].saved < plain.saved);
            count++;
        }
    /* Blocks keep their inputs alone, and with input_reshard only a part of them. */
    CHECK(other[0].saved < other[1].saved);
    CHECK_EQ(other[0].saved, other[2].saved);
    CHECK(other[3].saved <= other[0].saved);
    if (sherd_world_ranks(world) > 1 && !s.sequence)
        CHECK(other[3].saved < other[0].saved);
    for (int i = 0; i < count; i++)
        discard(&other[i]);
    discard(&plain);
    free(other);
}

static void blocks_give_the_same_bits(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    check_setup(world, (setup){.mesh = mesh, .lies = "R", .length = 8});
    check_setup(world, (setup){.mesh = mesh, .lies = "R", .length = 7, .sequence = true});
    check_setup(world, (setup){.mesh = mesh, .lies = "S(1)", .length = 7, .sequence = true});
    CHECK_OK(sherd_world_check(world));
}

static void a_grid_gives_the_same_bits(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");

    check_setup(world, (setup){.mesh = mesh, .lies = "S(0)R", .length = 7});
    check_setup(world, (setup){.mesh = mesh, .lies = "S(0)R", .length = 8, .sequence = true});
    CHECK_OK(sherd_world_check(world));
}

/* ---- parameters in pieces ------------------------------------------------------------------- */

/* What is run again is gathered again; of the blocks' parameters nothing is held meanwhile. */
static void check_sharded(sherd_world *world, setup s)
{
    s.shard = true;
    for (int no = 0; no < 2; no++) {
        s.no_prefetch = no;
        s.reshard = false;
        outcome plain = run(world, &s, NOTHING);
        for (int reshard = 0; reshard < 2; reshard++)
            for (int kind = BLOCK; kind <= ALL; kind++) {
                s.reshard = reshard;
                outcome other = run(world, &s, (what)kind);
                check_same_bits(&plain, &other);
                CHECK(other.saved < plain.saved || plain.saved == 0); /* a rank without rows */
                CHECK(other.gathers > plain.gathers || plain.gathers <= 0);
                discard(&other);
            }
        discard(&plain);
    }
}

static void sharded_parameters_are_gathered_again(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "dp=%d", sherd_world_ranks(world));
    check_sharded(world, (setup){.mesh = mesh_of(world, text), .lies = "S(0)", .length = 7});
    check_sharded(world, (setup){.mesh = mesh_of(world, text), .lies = "R", .length = 8});
    CHECK_OK(sherd_world_check(world));
}

static void and_so_beside_styles(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");

    check_sharded(world, (setup){.mesh = mesh, .lies = "S(0)R", .length = 7});
    check_sharded(world, (setup){.mesh = mesh, .lies = "S(0)S(1)", .length = 8, .sequence = true});
    CHECK_OK(sherd_world_check(world));
}

/* ---- a leaf that some ranks hold all of ------------------------------------------------------ */

/* A move leaves the whole leaf where it was on rank 0, and nothing on the others: they run the
 * module again all the same. */
static void a_piece_may_be_all_of_a_leaf(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_style rows = sherd_prepare_input();
    rows.desired = sherd_shard(0);
    const sherd_parallel_entry plan[] = {{"", rows}, {"net2", sherd_rowwise()}};

    for (int part = 0; part < 3; part++) {
        sherd_module *plain = mlp(world, SHERD_F64, 5, 7, 6), *m = mlp(world, SHERD_F64, 5, 7, 6);
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(1, 5), 3, 1, 0);
        sherd_tensor *target = wave(world, SHERD_F64, 2, SHAPE(1, 6), 5, 1, 0);
        baseline e = {0};
        CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, LEN(plan)));
        sherd_module_checkpoint(part < 2 ? sherd_module_child(m, part) : m, true);
        expect(&e, plain, sherd_require_grad(x, true), target);
        compare(&e, m, sherd_require_grad(spread(x, mesh, "R"), true), target, 1e-12);
        forget_baseline(&e);
        sherd_module_destroy(plain);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Whichever allocation of backward fails on one rank: afterwards it works again. */
static void check_alarms(sherd_world *world, setup s)
{
    static _Thread_local block_size size = {HEADS, HEAD, 0.1};
    sherd_module *root = model(world, &s, BLOCK_AND_PARTS, &size);
    sherd_tensor *x = wave(world, SHERD_F32, 3, SHAPE(BATCH, s.length, WIDTH), 17, 1, 0);

    x = spread(x, s.mesh, s.lies);
    CHECK_OK(sherd_world_check(world));
    int64_t live = sherd_world_memory(world).live_bytes;
    for (int n = 1; n < 600; n += 37) {
        sherd_scope_begin(world);
        sherd_tensor *y = sherd_module_call(root, x);
        CHECK_OK(sherd_world_check(world));
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        sherd_backward(sherd_sum(y));
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        sherd_status status = sherd_world_check(world);
        CHECK(!status || status == SHERD_ENOMEM);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        sherd_named_parameter all[MOST_PARAMETERS];
        int count = sherd_module_all_parameters(root, all, MOST_PARAMETERS);
        for (int i = 0; i < count; i++)
            sherd_clear_grad(all[i].tensor);
        CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    }
    sherd_module_destroy(root);
    CHECK_OK(sherd_world_check(world));
}

static void an_alarm_in_the_middle_ends_everywhere(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "dp=%d", sherd_world_ranks(world));
    check_alarms(world, (setup){.mesh = line_of_ranks(world),
                                .lies = "R",
                                .length = 8,
                                .sequence = true,
                                .reshard = true});
    check_alarms(world, (setup){.mesh = mesh_of(world, text),
                                .lies = "R",
                                .length = 8,
                                .reshard = true,
                                .shard = true});
}

/* Of one row rank 0 has all: there the slice is the leaf's own storage, elsewhere a new one. And a
 * column is row-major. */
static void sliced_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];
    const char *rows = sherd_module_payload(self);

    out->value[0] = sherd_square(sherd_redistribute_to(x, rows, NULL));
    out->value[1] = sherd_square(sherd_contiguous(sherd_transpose(in->value[1], 0, 1)));
    out->count = 2;
}

/* What is saved must not depend on what a rank's piece happens to share. */
static void leaves_are_shared_on_some_ranks_only(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");

    for (int how = 0; how < 4; how++) {
        sherd_scope_begin(world);
        sherd_module *m = container(world, sliced_forward, "S(0)R");
        sherd_module_checkpoint(m, how & 1);
        if (how & 2)
            CHECK_OK(sherd_input_reshard(m, mesh, "tp", 1));
        sherd_tensor *row = wave(world, SHERD_F64, 2, SHAPE(1, 4), 3, 1, 0);
        sherd_tensor *three = wave(world, SHERD_F64, 2, SHAPE(3, 4), 5, 1, 0);
        sherd_args out,
            in = {.count = 2, .value = {spread(row, mesh, "RR"), spread(three, mesh, "S(0)R")}};
        for (int i = 0; i < 2; i++)
            sherd_require_grad(in.value[i], true);
        sherd_module_run(m, &in, &out);
        sherd_backward(sherd_add(sherd_sum(out.value[0]), sherd_sum(out.value[1])));
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "  %d: %s\n", how, sherd_world_error(world));
        static _Thread_local double want[MOST];
        for (int i = 0; i < 2; i++) {
            int64_t n = whole(sherd_scale(in.value[i], 2), want);
            CHECK(distance_to(sherd_grad(in.value[i]), want, n) < 1e-15);
        }
        sherd_module_destroy(m);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* ---- parameters that want no gradient -------------------------------------------------------- */

static void frozen_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *w = sherd_module_parameter(self, "w");

    out->value[0] = sherd_square(sherd_add(sherd_mul(in->value[0], w), w));
    out->count = 1;
}

typedef enum spreading { AHEAD, IN_TIME, REPLICATED, SPREADINGS } spreading;

/* Two modules with a frozen parameter each; *last is the second's. */
static sherd_module *frozen(sherd_world *world, spreading how, bool again, sherd_tensor **last)
{
    const sherd_shard_options options = {.no_prefetch = how == IN_TIME};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *root = container(world, chain_forward, NULL);

    for (int i = 0; i < 2; i++) {
        sherd_module *m = container(world, frozen_forward, NULL);
        CHECK_OK(sherd_module_add_parameter(
            m, "w", wave(world, SHERD_F64, 2, SHAPE(BATCH, WIDTH), 3, 1, 0)));
        sherd_require_grad(sherd_module_parameter(m, "w"), false);
        CHECK_OK(sherd_module_add(root, i ? "b" : "a", m));
        sherd_module_checkpoint(m, again);
    }
    if (how == REPLICATED)
        CHECK_OK(sherd_distribute_module(root, mesh, NULL, NULL, NULL, NULL));
    else
        CHECK_OK(sherd_fully_shard(root, mesh, "tp", &options));
    *last = sherd_module_parameter(sherd_module_child(root, 1), "w");
    return root;
}

/* Also not where it is gathered, in the call or, from the second step on, ahead of it. */
static void frozen_parameters_must_not_be_written(sherd_world *world)
{
    for (int how = 0; how < SPREADINGS; how++) {
        sherd_tensor *w, *x = wave(world, SHERD_F64, 2, SHAPE(BATCH, WIDTH), 7, 1, 0);
        sherd_module *m = frozen(world, (spreading)how, true, &w);
        x = sherd_require_grad(spread(x, line_of_ranks(world), "S(0)"), true);
        for (int step = 0; step < 3; step++) {
            sherd_scope_begin(world);
            sherd_tensor *loss = sherd_sum(sherd_module_call(m, x));
            if (step == 1)
                sherd_fill(w, 7);
            CHECK_OK(sherd_world_check(world));
            sherd_backward(loss);
            if (!CHECK_EQ(sherd_world_check(world), step == 1 ? SHERD_EINVAL : SHERD_OK))
                fprintf(stderr, "  %d, %d: %s\n", how, step, sherd_world_error(world));
            sherd_scope_end(world);
        }
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A parameter lives anyway, frozen or not: of each module its last operand is saved alone. */
static void frozen_parameters_are_saved_for_nothing(sherd_world *world)
{
    for (int how = 0; how < SPREADINGS; how++) {
        sherd_tensor *w, *x = wave(world, SHERD_F64, 2, SHAPE(BATCH, WIDTH), 7, 1, 0);
        sherd_module *m = frozen(world, (spreading)how, false, &w);
        x = sherd_require_grad(spread(x, line_of_ranks(world), "R"), true);
        sherd_tensor *loss = sherd_sum(sherd_module_call(m, x));
        CHECK_EQ(sherd_saved_bytes(world), 2 * BATCH * WIDTH * (int64_t)sizeof(double));
        sherd_backward(loss);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A module that counts in a buffer and reads it; how many times in one call. */
static void count_and_read(sherd_module *m, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *b = sherd_module_buffer(m, "b"), *x = in->value[0];
    const int *times = sherd_module_payload(m);

    for (int i = 0; i < *times; i++) {
        if (!sherd_is_recomputing(sherd_module_world(m)))
            sherd_fill(b, sherd_item(b) + 1);
        x = sherd_tanh(sherd_mul(sherd_add(x, b), sherd_module_parameter(m, "p")));
    }
    out->value[out->count++] = x;
}

/* Read again after another write it has other values; if it was written once only, the same. */
static void a_buffer_that_the_module_writes_counts(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int times = 1; times <= 2; times++)
        for (int calls = 1; calls <= 2; calls++) {
            sherd_scope_begin(world);
            sherd_tensor *x = sherd_constant(world, SHERD_F64, NULL, 0, 0.5), *loss;
            sherd_module *m;
            CHECK_OK(sherd_module_create(&m, world, count_and_read,
                                         &(sherd_module_options){.payload = &times}));
            CHECK_OK(
                sherd_module_add_parameter(m, "p", sherd_constant(world, SHERD_F64, NULL, 0, 0.3)));
            CHECK_OK(sherd_module_add_buffer(m, "b", sherd_constant(world, SHERD_F64, NULL, 0, 0)));
            CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
            sherd_module_checkpoint(m, true);
            loss = sherd_module_call(m, x);
            if (calls > 1)
                loss = sherd_add(loss, sherd_module_call(m, x));
            sherd_backward(loss);
            CHECK_EQ(sherd_world_check(world), times * calls > 1 ? SHERD_EINVAL : SHERD_OK);
            sherd_module_destroy(m);
            sherd_scope_end(world);
        }
}

static const check_test tests[] = {
    {TEST(a_buffer_that_the_module_writes_counts), {1, 2, 3, 4}},
    {TEST(leaves_are_shared_on_some_ranks_only), {4}},
    {TEST(blocks_give_the_same_bits), {1, 2, 3, 4}},
    {TEST(a_grid_gives_the_same_bits), {4}},
    {TEST(sharded_parameters_are_gathered_again), {1, 2, 3}},
    {TEST(and_so_beside_styles), {4}},
    {TEST(a_piece_may_be_all_of_a_leaf), {1, 2, 3}},
    {TEST(an_alarm_in_the_middle_ends_everywhere), {1, 2, 4}},
    {TEST(frozen_parameters_must_not_be_written), {1, 2, 3, 4}},
    {TEST(frozen_parameters_are_saved_for_nothing), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
