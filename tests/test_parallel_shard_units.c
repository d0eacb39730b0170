/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units: all parameters of a block are gathered in one call and their gradients scattered in one,
 * by a pattern or by calls for each block; with the numbers of the whole model.
 */
#include "models.h"
#include "sherd/ops_elements.h"
#include "sherd/optimizer.h"
#include "world/blocks.h"

enum { BLOCKS = 2, HEADS = 2, HEAD = 4, WIDTH = HEADS * HEAD, HIDDEN = 13, ROWS = 6, LENGTH = 3 };

/* Ways to make units: by a pattern, by a call for each block, the whole model, each module. */
typedef enum way { PATTERN, CALLS, WHOLE, MODULES, WAYS } way;

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "dp=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static void shard(sherd_module *m, const sherd_mesh *mesh, way how, bool keep)
{
    const sherd_shard_options whole = {.unit = "", .keep_gathered = keep};
    const sherd_shard_options blocks = {.unit = "*", .keep_gathered = keep};
    const sherd_shard_options modules = {.keep_gathered = keep};

    for (int i = 0; how == CALLS && i < sherd_module_children(m); i++)
        CHECK_OK(sherd_fully_shard(sherd_module_child(m, i), mesh, "dp", &whole));
    CHECK_OK(sherd_fully_shard(m, mesh, "dp",
                               how == PATTERN   ? &blocks
                               : how == MODULES ? &modules
                                                : &whole));
}

static sherd_tensor *input(sherd_world *world, const sherd_mesh *mesh, int k)
{
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(ROWS, LENGTH, WIDTH), 3 + k, 1, 0);

    return mesh ? spread(x, mesh, sherd_mesh_axes(mesh) == 2 ? "S(0)R" : "S(0)") : x;
}

static sherd_tensor *loss_of(sherd_module *m, const sherd_mesh *mesh, int k)
{
    return sherd_mean(sherd_square(sherd_module_call(m, input(sherd_module_world(m), mesh, k))));
}

/* Losses of some steps; the second half of each batch waits for the first. */
static void train(sherd_module *m, const sherd_mesh *mesh, double loss[3], bool waits)
{
    sherd_world *world = sherd_module_world(m);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    for (int step = 0; step < 3; step++) {
        sherd_scope_begin(world);
        loss[step] = 0;
        for (int k = 0; k < 2; k++) {
            sherd_set_gradient_sync(world, !waits || k == 1);
            sherd_tensor *l = loss_of(m, mesh, 2 * step + k);
            sherd_backward(l);
            loss[step] += sherd_item(l);
        }
        sherd_optimizer_step(o, 0.05, 1 / fmax(1, sherd_optimizer_grad_norm(o)));
        sherd_optimizer_clear(o);
        sherd_scope_end(world);
    }
    sherd_optimizer_destroy(o);
    CHECK_OK(sherd_world_check(world));
}

static void checkpoint(sherd_module *m, int which)
{
    for (int i = 0; i < BLOCKS; i++) {
        sherd_module *b = sherd_module_child(m, i);
        if (which == 1)
            sherd_module_checkpoint(b, true);
        if (which == 2)
            sherd_module_checkpoint(sherd_module_find(b, "mlp"), true);
    }
}

static void compare_losses(sherd_world *world, const sherd_mesh *mesh)
{
    block_size size = {HEADS, HEAD, 0};
    double alone[3], loss[3];
    sherd_module *m = stack_of(world, SHERD_F64, &size, HIDDEN, BLOCKS);

    train(m, NULL, alone, false);
    sherd_module_destroy(m);
    CHECK(alone[2] != alone[0]);
    for (int how = 0; how < WAYS * 3; how++) {
        m = stack_of(world, SHERD_F64, &size, HIDDEN, BLOCKS);
        if (sherd_mesh_axes(mesh) == 2)
            CHECK_OK(parallelize_block(m, mesh, "*.", &size, false));
        checkpoint(m, how / WAYS);
        shard(m, mesh, (way)(how % WAYS), how % 5 == 0);
        train(m, mesh, loss, (how + how / WAYS) % 2);
        for (int i = 0; i < 3; i++)
            CHECK_NEAR(loss[i], alone[i], 1e-10 * alone[i]);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void losses_are_those_of_the_whole_model(sherd_world *world)
{
    compare_losses(world, line(world));
}

static void and_beside_tensor_parallelism(sherd_world *world)
{
    compare_losses(world, mesh_of(world, "dp=2,tp=2"));
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int64_t calls(sherd_world *world, const char *op, sherd_comm_direction direction)
{
    return sherd_comm_calls(world, &(sherd_comm_filter){.op = op, .direction = direction});
}

static void a_block_makes_one_call_each_way(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    block_size size = {HEADS, HEAD, 0};

    for (int how = 0; how < MODULES; how++)
        for (int keep = 0; keep < 2; keep++) {
            sherd_module *m = stack_of(world, SHERD_F64, &size, HIDDEN, BLOCKS);
            const int units = how == WHOLE ? 1 : BLOCKS;
            shard(m, mesh, (way)how, keep);
            for (int step = 0; step < 3; step++) {
                sherd_scope_begin(world);
                CHECK_OK(sherd_world_check(world));
                sherd_comm_reset(world);
                sherd_tensor *l = loss_of(m, mesh, step);
                CHECK_EQ(calls(world, "all_gather", SHERD_COMM_FORWARD), units);
                sherd_set_gradient_sync(world, step == 2);
                sherd_backward(l);
                CHECK_EQ(calls(world, "all_gather", SHERD_COMM_BACKWARD), keep ? 0 : units);
                CHECK_EQ(calls(world, "reduce_scatter", 0), step == 2 ? units : 0);
                sherd_scope_end(world);
            }
            sherd_module_destroy(m);
        }
    CHECK_OK(sherd_world_check(world));
}

/* ---- bytes ---------------------------------------------------------------------------------- */

enum { WIDE = 64, DEEP = 4 };

static sherd_module *deep_stack(sherd_world *world)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    sherd_module *root = container(world, stack_forward, NULL);

    for (int i = 0; i < DEEP; i++) {
        sherd_module *b = add_layer(root, names[i], container(world, stack_forward, NULL));
        linear_layer(b, "up", SHERD_F64, WIDE, WIDE, i);
        linear_layer(b, "down", SHERD_F64, WIDE, WIDE, i + 2);
    }
    return root;
}

static sherd_tensor *few_rows(sherd_world *world, const sherd_mesh *mesh)
{
    return spread(wave(world, SHERD_F64, 2, SHAPE(8, WIDE), 1, 1, 0), mesh, "S(0)");
}

/* Two units at most in forward, none after it; in backward one, its gradients, and the parts. */
static void two_units_are_in_memory_at_once(sherd_world *world)
{
    const int64_t unit = 2 * WIDE * (WIDE + 1) * 8, some = 8 * WIDE * 8 * 8 * DEEP;
    const sherd_mesh *mesh = line(world);
    sherd_module *m = deep_stack(world);
    sherd_tensor *x = few_rows(world, mesh);

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = "*"}));
    int64_t before = sherd_world_memory(world).live_bytes;
    for (int step = 0; step < 2; step++) {
        sherd_scope_begin(world);
        sherd_world_memory_reset(world);
        sherd_tensor *l = sherd_sum(sherd_module_call(m, x));
        CHECK(sherd_world_memory(world).peak_bytes - before <= 2 * unit + some);
        CHECK(sherd_world_memory(world).live_bytes - before <= some);
        sherd_world_memory_reset(world);
        sherd_backward(l);
        int64_t parts = DEEP * unit / sherd_world_ranks(world) + unit;
        CHECK(sherd_world_memory(world).peak_bytes - before <= parts + 2 * unit + some);
        sherd_scope_end(world);
        for (int i = 0; i < DEEP * 4; i++)
            sherd_clear_grad(
                sherd_module_parameter(sherd_module_child(sherd_module_child(m, i / 4), i / 2 % 2),
                                       i % 2 ? "bias" : "weight"));
        CHECK_EQ(sherd_world_memory(world).live_bytes, before);
    }
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void look(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    (void)in, (void)out;
    *(int64_t *)payload = sherd_world_memory(sherd_module_world(self)).live_bytes;
}

/* Also if each unit has had a call of its own. */
static void the_next_unit_is_gathered_ahead(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *x = few_rows(world, mesh);

    for (int how = PATTERN; how <= CALLS; how++) {
        sherd_module *m = deep_stack(world);
        int64_t live = 0, seen[2];
        shard(m, mesh, (way)how, false);
        CHECK_OK(sherd_module_hook_after(NULL, sherd_module_child(m, 0), look,
                                         &(sherd_hook_options){.payload = &live}));
        for (int pass = 0; pass < 2; pass++) {
            sherd_scope_begin(world);
            int64_t before = sherd_world_memory(world).live_bytes;
            sherd_set_recording(world, false);
            sherd_module_call(m, x);
            sherd_set_recording(world, true);
            seen[pass] = live - before;
            sherd_scope_end(world);
        }
        CHECK_EQ(seen[1] - seen[0], 2 * WIDE * (WIDE + 1) * 8);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* What has been begun, or is under way, when a gradient has come to the end of block 1 of 4. */
typedef struct glance {
    sherd_module *model;
    int64_t gathers;
    bool reduces; /* gradients of block 2 are not complete here */
} glance;

static sherd_tensor *glance_at(sherd_tensor *grad, void *payload)
{
    glance *g = payload;

    (void)grad;
    sherd_module *up = sherd_module_child(sherd_module_child(g->model, 2), 0);
    const sherd_tensor *sum = sherd_module_parameter(up, "weight")->autograd.grad;
    g->gathers = calls(sherd_module_world(g->model), "all_gather", SHERD_COMM_BACKWARD);
    g->reduces = sum && sum->storage->block && sum->storage->block->filling > 0;
    return NULL;
}

static void hook_output(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    (void)self, (void)in;
    CHECK_OK(sherd_tensor_hook(NULL, out->value[0], glance_at, payload, NULL));
}

static double on_ranks(sherd_world *world, const sherd_mesh *mesh, bool is)
{
    const sherd_placement sum = sherd_partial(SHERD_SUM);
    const double mine = is;

    return sherd_item(
        sherd_from_local(sherd_from_data(world, SHERD_F64, NULL, 0, &mine), mesh, &sum, NULL));
}

/*
 * Backward of blocks 3 and 2 is done then, and block 1, which comes next, is being gathered. The
 * rank that was there first does not wait for gradients of the others.
 */
static void backward_gathers_ahead(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *x = few_rows(world, mesh);

    for (int how = 0; how < 4; how++) { /* prefetching, of blocks that are run again, or not */
        bool prefetches = how & 1, again = how & 2;
        sherd_module *m = deep_stack(world);
        glance g = {m, 0, false};
        CHECK_OK(sherd_fully_shard(
            m, mesh, "dp", &(sherd_shard_options){.unit = "*", .no_prefetch = !prefetches}));
        CHECK_OK(sherd_module_hook_after(NULL, sherd_module_child(m, 1), hook_output,
                                         &(sherd_hook_options){.payload = &g}));
        for (int i = 0; i < DEEP; i++)
            sherd_module_checkpoint(sherd_module_child(m, i), again);
        for (int step = 0; step < 3; step++) { /* what is run again is learned in the first */
            bool ahead = prefetches && (!again || step > 0);
            sherd_scope_begin(world);
            CHECK_OK(sherd_world_check(world));
            sherd_comm_reset(world);
            sherd_backward(sherd_sum(sherd_module_call(m, x)));
            CHECK_EQ(g.gathers, 2 + ahead);
            CHECK_EQ(on_ranks(world, mesh, g.reduces) > 0, prefetches);
            CHECK_EQ(calls(world, "all_gather", SHERD_COMM_BACKWARD), DEEP);
            CHECK_EQ(calls(world, "reduce_scatter", SHERD_COMM_BACKWARD), DEEP);
            for (int i = 0; i < DEEP * 4; i++) /* else the sums are needed at once, to add them */
                sherd_clear_grad(sherd_module_parameter(
                    sherd_module_child(sherd_module_child(m, i / 4), i / 2 % 2),
                    i % 2 ? "bias" : "weight"));
            sherd_scope_end(world);
        }
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* What is gathered ahead follows from the backward that runs, not from what a rank keeps. */
static void a_rank_may_keep_another_graph(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *x = few_rows(world, mesh), *kept = NULL;
    sherd_module *m = deep_stack(world);

    CHECK_OK(sherd_fully_shard(m, mesh, "dp", &(sherd_shard_options){.unit = "*"}));
    for (int step = 0; step < 3; step++) {
        sherd_scope_begin(world);
        sherd_tensor *y = sherd_module_call(sherd_module_child(m, 3), x);
        if (step == 0 && sherd_world_rank(world) == 0)
            kept = sherd_tensor_retain(y);
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
    sherd_tensor_release(kept);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

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
    {TEST(losses_are_those_of_the_whole_model), {1, 2, 3, 4}},
    {TEST(and_beside_tensor_parallelism), {4}},
    {TEST(a_block_makes_one_call_each_way), {2, 3, 4}},
    {TEST(two_units_are_in_memory_at_once), {1, 2, 3, 4}},
    {TEST(backward_gathers_ahead), {2, 3, 4, 8}},
    {TEST(a_rank_may_keep_another_graph), {2, 3}},
    {TEST(the_next_unit_is_gathered_ahead), {2, 3}},
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
