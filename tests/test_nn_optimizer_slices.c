/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers whose state is sharded further than the parameters (sherd_optimizer_shard): the same
 * bits as without, a share of the state on each rank, the bytes of an all-reduce.
 */
#include "modules.h"
#include "sherd/ops_reductions.h"
#include "sherd/optimizer.h"

enum { BATCH = 5, STEPS = 4 };

typedef enum kind { ADAMW, AMSGRAD, SGD, RMSPROP, ADAGRAD, LION, MUON, KINDS } kind;

static sherd_status optimizer(sherd_optimizer **out, kind k, sherd_module *m)
{
    const sherd_adamw_options adamw = {.weight_decay = 0.1, .amsgrad = k == AMSGRAD};
    const sherd_sgd_options sgd = {.momentum = 0.9, .nesterov = true};
    const sherd_rmsprop_options rmsprop = {.centered = true, .momentum = 0.5};
    const sherd_adagrad_options adagrad = {.rate_decay = 0.1, .initial = 0.5};

    switch (k) {
    case SGD:
        return sherd_sgd_create(out, m, &sgd);
    case RMSPROP:
        return sherd_rmsprop_create(out, m, &rmsprop);
    case ADAGRAD:
        return sherd_adagrad_create(out, m, &adagrad);
    case LION:
        return sherd_lion_create(out, m, NULL);
    case MUON:
        return sherd_muon_create(out, m, NULL);
    default:
        return sherd_adamw_create(out, m, &adamw);
    }
}

typedef struct parameter {
    const char *name, *placements;
    int ndim;
    int64_t shape[3];
    sherd_dtype dtype;
} parameter;

/* Fewer rows than ranks, a scalar, 16 bits, and one that is sharded already. */
static const parameter all[] = {
    {"matrix", "R", 2, {7, 5}, SHERD_F32}, {"wide", "R", 3, {2, 11, 3}, SHERD_F32},
    {"bias", "R", 1, {3}, SHERD_F64},      {"scale", "R", 0, {0}, SHERD_F32},
    {"half", "R", 2, {9, 2}, SHERD_BF16},  {"split", "S(0)", 2, {6, 3}, SHERD_F32}};

/* One axis, or two of which "x" has the batch. */
static const sherd_mesh *mesh_for(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int ranks = sherd_world_ranks(world);
    char text[32];

    snprintf(text, sizeof text, ranks % 4 ? "x=%d" : "x=%d,y=2", ranks % 4 ? ranks : ranks / 2);
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    return mesh;
}

static sherd_tensor *laid(sherd_tensor *t, const char *placements)
{
    const sherd_mesh *mesh = mesh_for(sherd_tensor_world(t));
    char text[16];

    snprintf(text, sizeof text, "%s%s", placements, sherd_mesh_axes(mesh) > 1 ? " R" : "");
    return spread(t, mesh, text);
}

static sherd_module *model(sherd_world *world)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    for (int i = 0; i < LEN(all); i++) {
        const parameter *p = &all[i];
        sherd_tensor *t = wave(world, p->dtype, p->ndim, p->shape, 3 + i, 0.5, 0.1);
        CHECK_OK(sherd_module_add_parameter(m, p->name, laid(t, p->placements)));
    }
    return m;
}

/* Gradients are pending over "x", which shards the batch. */
static void backward(sherd_module *m, int step)
{
    sherd_world *world = sherd_module_world(m);

    for (int i = 0; i < LEN(all); i++) {
        int64_t shape[4] = {BATCH, 0, 0, 0};
        memcpy(shape + 1, all[i].shape, sizeof all[i].shape);
        sherd_tensor *x =
            wave(world, all[i].dtype, all[i].ndim + 1, shape, 2 + step + i, 0.7, 0.05);
        sherd_tensor *y = sherd_mul(laid(x, "S(0)"), sherd_module_parameter(m, all[i].name));
        sherd_backward(sherd_sum(y));
    }
}

static void steps(sherd_module *m, sherd_optimizer *o, int from, int to)
{
    for (int i = from; i < to; i++) {
        sherd_scope_begin(sherd_module_world(m));
        backward(m, i);
        sherd_optimizer_step(o, 0.05, 1);
        sherd_optimizer_clear(o);
        sherd_scope_end(sherd_module_world(m));
    }
}

static void check_equal_tensors(sherd_tensor *a, sherd_tensor *b, const char *name)
{
    double one[MOST], other[MOST];
    int64_t n = whole(a, one);

    CHECK_EQ(whole(b, other), n);
    if (!CHECK(memcmp(one, other, (size_t)n * sizeof *one) == 0))
        fprintf(stderr, "  %s differs\n", name);
}

static void check_same(sherd_module *a, sherd_module *b)
{
    for (int i = 0; i < LEN(all); i++)
        check_equal_tensors(sherd_module_parameter(a, all[i].name),
                            sherd_module_parameter(b, all[i].name), all[i].name);
}

static void parameters_are_the_same_bits(sherd_world *world)
{
    sherd_optimizer *whole_state = NULL, *parts = NULL;

    for (kind k = 0; k < KINDS; k++) {
        sherd_module *m = model(world), *other = model(world);
        CHECK_OK(optimizer(&whole_state, k, m));
        CHECK_OK(optimizer(&parts, k, other));
        if (k % 2 == 0)
            CHECK_OK(sherd_optimizer_shard(parts, "x"));
        steps(m, whole_state, 0, STEPS);
        steps(other, parts, 0, 2);
        CHECK_OK(sherd_optimizer_shard(parts, "x")); /* in between, or again, which does nothing */
        steps(other, parts, 2, STEPS);
        check_same(m, other);
        sherd_optimizer_destroy(whole_state);
        sherd_optimizer_destroy(parts);
        sherd_module_destroy(m);
        sherd_module_destroy(other);
    }
    CHECK_OK(sherd_world_check(world));
}

static void state_goes_to_other_layouts_by_name(sherd_world *world)
{
    sherd_module *m = model(world), *other = model(world);
    sherd_optimizer *o = NULL, *whole_state = NULL;
    sherd_named_state entry[32];
    char name[64];

    CHECK_OK(optimizer(&o, ADAMW, m));
    CHECK_OK(optimizer(&whole_state, ADAMW, other));
    CHECK_OK(sherd_optimizer_shard(o, "x"));
    steps(m, o, 0, 2);
    for (int i = 0; i < LEN(all); i++)
        CHECK_OK(sherd_module_load(other, all[i].name, sherd_module_parameter(m, all[i].name), -1));
    int count = sherd_optimizer_state(o, entry, LEN(entry));
    CHECK_EQ(count, LEN(all) * 3 + 1);
    for (int i = 0; i < count && i < LEN(entry); i++) {
        sherd_state_name(&entry[i], name, sizeof name);
        CHECK_OK(sherd_optimizer_load(whole_state, name, entry[i].tensor, -1));
    }
    steps(m, o, 2, STEPS);
    steps(other, whole_state, 2, STEPS);
    check_same(m, other);
    int again = sherd_optimizer_state(whole_state, entry, LEN(entry));
    for (int i = 0; i < again && i < LEN(entry); i++) {
        sherd_state_name(&entry[i], name, sizeof name);
        CHECK_OK(sherd_optimizer_load(o, name, entry[i].tensor, -1));
    }
    steps(m, o, STEPS, STEPS + 2);
    steps(other, whole_state, STEPS, STEPS + 2);
    check_same(m, other);
    sherd_optimizer_destroy(o);
    sherd_optimizer_destroy(whole_state);
    sherd_module_destroy(m);
    sherd_module_destroy(other);
    CHECK_OK(sherd_world_check(world));
}

static void clipping_and_gradients_are_as_without(sherd_world *world)
{
    sherd_module *m = model(world), *other = model(world);
    sherd_optimizer *o = NULL, *parts = NULL;

    CHECK_OK(optimizer(&o, SGD, m));
    CHECK_OK(optimizer(&parts, SGD, other));
    CHECK_OK(sherd_optimizer_shard(parts, "x"));
    sherd_scope_begin(world);
    backward(m, 1);
    backward(other, 1);
    CHECK_NEAR(sherd_optimizer_grad_norm(o), sherd_optimizer_grad_norm(parts), 1e-9);
    for (int i = 0; i < LEN(all); i++)
        check_equal_tensors(sherd_grad(sherd_module_parameter(m, all[i].name)),
                            sherd_grad(sherd_module_parameter(other, all[i].name)), all[i].name);
    sherd_optimizer_clip(parts, 0.5);
    CHECK_NEAR(sherd_optimizer_grad_norm(parts), 0.5, 1e-2);
    sherd_optimizer_step(parts, 0.1, 1);
    sherd_scope_end(world);
    sherd_optimizer_destroy(o);
    sherd_optimizer_destroy(parts);
    sherd_module_destroy(m);
    sherd_module_destroy(other);
    CHECK_OK(sherd_world_check(world));
}

/* Of one large matrix: what a rank holds, and what it receives in a step. */
static void a_rank_has_its_share(sherd_world *world)
{
    enum { ROWS = 50, COLUMNS = 64 };
    int64_t p = sherd_world_ranks(world), bytes[2], state[2], most = (ROWS + p - 1) / p;
    const sherd_mesh *line = NULL;
    char text[16];

    snprintf(text, sizeof text, "x=%d", (int)p);
    CHECK_OK(sherd_mesh_parse(&line, world, text));
    sherd_tensor *w = wave(world, SHERD_F32, 2, SHAPE(ROWS, COLUMNS), 3, 0.5, 0.1);
    sherd_tensor *x = wave(world, SHERD_F32, 2, SHAPE((int)p, COLUMNS), 5, 0.5, 0.1);

    for (int parted = 0; parted < 2; parted++) {
        sherd_module *m = NULL;
        sherd_optimizer *o = NULL;
        CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
        CHECK_OK(sherd_module_add_parameter(m, "w", spread(w, line, "R")));
        CHECK_OK(optimizer(&o, ADAMW, m));
        if (parted)
            CHECK_OK(sherd_optimizer_shard(o, "x"));
        state[parted] = sherd_world_memory(world).live_for[SHERD_MEMORY_OPTIMIZERS];
        sherd_tensor *y =
            sherd_linear(spread(x, line, "S(0)"), sherd_module_parameter(m, "w"), NULL);
        sherd_backward(sherd_sum(y));
        sherd_comm_reset(world);
        sherd_optimizer_step(o, 0.1, 1);
        bytes[parted] = sherd_comm_bytes(world, NULL);
        if (p > 1)
            CHECK_EQ(sherd_comm_calls(world, NULL), 1 + parted);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
        CHECK_OK(sherd_world_check(world));
    }
    CHECK(state[0] >= 2 * ROWS * COLUMNS * 4);
    CHECK(state[1] <= 2 * most * COLUMNS * 4 + 1024);
    if (p > 1 && ROWS % p == 0)
        CHECK_EQ(bytes[1], bytes[0]);
}

/* The n-th allocation of a step fails on one rank, n = 1, 2, ... */
static sherd_status starved_step(sherd_world *world, int64_t n)
{
    static _Thread_local double before[MOST], after[MOST], now[MOST];
    sherd_module *m = model(world), *other = model(world);
    sherd_optimizer *o = NULL, *sound = NULL;
    bool mine = sherd_world_rank(world) == sherd_world_ranks(world) - 1;

    CHECK_OK(optimizer(&o, ADAMW, m));
    CHECK_OK(optimizer(&sound, ADAMW, other));
    CHECK_OK(sherd_optimizer_shard(o, "x"));
    whole(sherd_module_parameter(m, "matrix"), before);
    steps(other, sound, 0, 1);
    whole(sherd_module_parameter(other, "matrix"), after);
    sherd_scope_begin(world);
    backward(m, 0);
    CHECK_OK(sherd_world_check(world));
    sherd_world_fail_allocation(world, mine ? n : 0);
    sherd_optimizer_step(o, 0.05, 1);
    sherd_world_fail_allocation(world, 0);
    sherd_scope_end(world);
    sherd_status status = sherd_world_check(world);
    CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
    sherd_tensor *p = sherd_module_parameter(m, "matrix");
    if (!sherd_tensor_failed(p)) { /* otherwise it is lost, on all ranks */
        int64_t count = whole(p, now);
        size_t bytes = (size_t)count * sizeof *now;
        CHECK(memcmp(now, after, bytes) == 0 || (status && memcmp(now, before, bytes) == 0));
    }
    sherd_optimizer_destroy(o);
    sherd_optimizer_destroy(sound);
    sherd_module_destroy(m);
    sherd_module_destroy(other);
    CHECK_OK(sherd_world_check(world));
    return status;
}

static void a_step_without_memory_leaves_no_rank_behind(sherd_world *world)
{
    sherd_status status = SHERD_ENOMEM;
    int64_t n = 1;

    for (; status && n < 500; n++)
        status = starved_step(world, n);
    CHECK_OK(status);
    CHECK(n > 2);
}

static const check_test tests[] = {
    {TEST(parameters_are_the_same_bits), {1, 2, 3, 4, 8}},
    {TEST(state_goes_to_other_layouts_by_name), {1, 2, 3, 4, 8}},
    {TEST(clipping_and_gradients_are_as_without), {1, 2, 3, 4}},
    {TEST(a_rank_has_its_share), {1, 2, 3, 5, 8}},
    {TEST(a_step_without_memory_leaves_no_rank_behind), {1, 2, 3}},
};
CHECK_MAIN(tests)
