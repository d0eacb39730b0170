/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Muon: the numbers of PyTorch are in test_nn_optimizers.c, for one small matrix. Here matrices of
 * all shapes together: a step gives what it gives on plain parameters under every layout, in two
 * moves; the iteration makes matrices orthogonal; groups leave matrices to AdamW; errors.
 */
#include "modules.h"
#include "sherd/autocast.h"
#include "sherd/optimizer.h"

enum { MATRICES = 6, PARAMETERS = MATRICES + 1, STEPS = 3 };

static const int64_t shapes[PARAMETERS][2] = {{6, 10}, {9, 4},  {5, 5}, {1, 7},
                                              {8, 1},  {12, 6}, {7}};
static const char *const names[PARAMETERS] = {"wide",   "tall",  "square", "row",
                                              "column", "embed", "bias"};

/* Waves of a frequency that grows along a tensor: as matrices they have full rank. */
static sherd_tensor *made(sherd_world *world, sherd_dtype dtype, int i, int k, double scale)
{
    double wide[MOST / 32] = {0}, data[MOST / 32];
    int64_t n = shapes[i][0] * (i < MATRICES ? shapes[i][1] : 1);

    for (int64_t j = 0; j < n; j++)
        wide[j] = 0.1 + scale * sin(0.7 * (double)((j + k) * (j + 1)));
    sherd__cast(dtype, SHERD_F64, n, data, wide);
    return sherd_mark_equal(sherd_from_data(world, dtype, shapes[i], i < MATRICES ? 2 : 1, data));
}

/* Parameters that lie one after the other as `placements` say, around the list; NULL = plain. */
static sherd_module *model(sherd_world *world, sherd_dtype dtype, const sherd_mesh *mesh,
                           const char *const *placements)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    for (int i = 0; i < PARAMETERS; i++) {
        sherd_tensor *p = made(world, dtype, i, i + 1, 0.4);
        CHECK_OK(sherd_module_add_parameter(m, names[i],
                                            placements ? spread(p, mesh, placements[i % 4]) : p));
    }
    return m;
}

/* The gradient of each is a wave of this step. */
static void backward(sherd_module *m, int step)
{
    sherd_world *world = sherd_module_world(m);
    sherd_tensor *loss = NULL;

    sherd_scope_begin(world);
    for (int i = 0; i < PARAMETERS; i++) {
        sherd_tensor *p = sherd_module_parameter(m, names[i]);
        sherd_tensor *g = made(world, sherd_tensor_dtype(p), i, 3 * step + i, 1);
        const sherd_layout *layout = sherd_tensor_layout(p);
        g = sherd_mul(p, layout ? sherd_distribute(g, layout, -1) : g);
        loss = loss ? sherd_add(loss, sherd_sum(g)) : sherd_sum(g);
    }
    sherd_backward(loss);
    sherd_scope_end(world);
}

static const sherd_optimizer_group groups[] = {{.pattern = "embed", .adamw = true, .rate = 0.5}};
static const sherd_muon_options options = {
    .momentum = 0.9, .weight_decay = 0.1, .groups = groups, .group_count = 1};

/* All parameters after some steps. */
static void train(sherd_world *world, sherd_dtype dtype, const sherd_mesh *mesh,
                  const char *const *placements, double to[PARAMETERS][MOST / 32])
{
    static _Thread_local double one[MOST];
    sherd_module *m = model(world, dtype, mesh, placements);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_muon_create(&o, m, &options));
    for (int step = 0; step < STEPS; step++) {
        backward(m, step + 1);
        sherd_optimizer_step(o, 0.05, 0.7);
        sherd_optimizer_clear(o);
    }
    for (int i = 0; i < PARAMETERS; i++) {
        int64_t n = whole(sherd_module_parameter(m, names[i]), one);
        memcpy(to[i], one, (size_t)n * sizeof *one);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

static const char *const line[][4] = {
    {"R", "R", "R", "R"},
    {"S(0)", "S(0)", "S(0)", "S(0)"},
    {"S(0)", "R", "S(0)", "R"},
};
static const char *const matrices_on_line[] = {"S(1)", "S(0)", "R", "S(0)"};
static const char *const grid[] = {"S(0)S(0)", "RS(0)", "S(0)R", "RR"};

static double most_apart(double a[PARAMETERS][MOST / 32], double b[PARAMETERS][MOST / 32])
{
    double worst = 0;

    for (int i = 0; i < PARAMETERS; i++)
        for (int64_t j = 0; j < shapes[i][0] * (i < MATRICES ? shapes[i][1] : 1); j++)
            worst = fabs(a[i][j] - b[i][j]) <= worst ? worst : fabs(a[i][j] - b[i][j]);
    return worst;
}

static void trains_alike(sherd_world *world, const sherd_mesh *mesh, const char *const *placements)
{
    static _Thread_local double plain[PARAMETERS][MOST / 32], got[PARAMETERS][MOST / 32];

    train(world, SHERD_F64, mesh, NULL, plain);
    train(world, SHERD_F64, mesh, placements, got);
    CHECK_NEAR(most_apart(plain, got), 0, 1e-12);
    train(world, SHERD_F32, mesh, placements, got);
    CHECK_NEAR(most_apart(plain, got), 0, 1e-4);
}

static void a_step_is_the_same_under_every_layout(sherd_world *world)
{
    for (int i = 0; i < LEN(line); i++)
        trains_alike(world, line_of_ranks(world), line[i]);
    trains_alike(world, line_of_ranks(world), matrices_on_line);
    CHECK_OK(sherd_world_check(world));
}

static void a_step_is_the_same_on_a_grid(sherd_world *world)
{
    trains_alike(world, mesh_of(world, "dp=2,tp=2"), grid);
    CHECK_OK(sherd_world_check(world));
}

/* Two for all matrices, and none if no rank needs another's. */
static void a_step_has_two_moves(sherd_world *world)
{
    sherd_module *m = model(world, SHERD_F32, line_of_ranks(world), matrices_on_line);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_muon_create(&o, m, &options));
    backward(m, 1);
    sherd_optimizer_settle(o);
    sherd_comm_reset(world);
    sherd_optimizer_step(o, 0.05, 1);
    CHECK_EQ(calls_logged(world), sherd_world_ranks(world) > 1 ? 2 : 0);
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

/* With a momentum of almost nothing and no decay a step of rate 1 subtracts what f makes of the
 * gradient: all singular values are between 0.6 and 1.3, as Jordan's coefficients have it. */
static void what_is_subtracted_is_nearly_orthogonal(sherd_world *world)
{
    static _Thread_local double before[MOST], after[MOST];
    sherd_module *m = model(world, SHERD_F64, line_of_ranks(world), line[1]);
    sherd_tensor *p = sherd_module_parameter(m, "square");
    sherd_optimizer *o = NULL;
    double d[25];

    whole(p, before);
    CHECK_OK(sherd_muon_create(&o, m, &(sherd_muon_options){.momentum = 1e-9, .steps = 20}));
    backward(m, 2);
    sherd_optimizer_step(o, 1, 1);
    whole(p, after);
    for (int i = 0; i < 25; i++)
        d[i] = before[i] - after[i];
    for (int i = 0; i < 5; i++) {
        double square = 0;
        for (int j = 0; j < 5; j++)
            square += d[i * 5 + j] * d[i * 5 + j];
        CHECK(square > 0.3 && square < 1.8);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* A matrix that groups leave to AdamW has its state. */
static void state_says_who_updates(sherd_world *world)
{
    sherd_named_state all[4 * PARAMETERS];
    sherd_module *m = model(world, SHERD_F32, line_of_ranks(world), line[0]);
    sherd_optimizer *o = NULL;
    int moments = 0;

    CHECK_OK(sherd_muon_create(&o, m, &options));
    int n = sherd_optimizer_state(o, all, LEN(all));
    CHECK_EQ(n, (MATRICES - 1) * 2 + 2 * 3);
    for (int i = 0; i < n && i < LEN(all); i++)
        moments += strstr(all[i].name, ".v") != NULL;
    CHECK_EQ(moments, 2);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

/* In bf16 as PyTorch has it; autocast changes nothing. */
static void the_iteration_may_be_bf16(sherd_world *world)
{
    static _Thread_local double exact[MOST], rough[MOST], cast[MOST];
    double *to[] = {exact, rough, cast};
    int64_t n = 0;

    for (int i = 0; i < 3; i++) {
        sherd_module *m = model(world, SHERD_F32, line_of_ranks(world), line[1]);
        sherd_optimizer *o = NULL;
        const sherd_muon_options with = {.dtype = i == 1 ? SHERD_BF16 : SHERD_DTYPE_NONE};
        CHECK_OK(sherd_muon_create(&o, m, &with));
        backward(m, 2);
        if (i == 2)
            sherd_set_autocast(world, SHERD_BF16);
        sherd_optimizer_step(o, 0.05, 1);
        CHECK_EQ(sherd_set_autocast(world, SHERD_DTYPE_NONE),
                 i == 2 ? SHERD_BF16 : SHERD_DTYPE_NONE);
        n = whole(sherd_module_parameter(m, "wide"), to[i]);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs(exact[i] - rough[i]));
        CHECK(exact[i] == cast[i]);
    }
    CHECK(worst > 0 && worst < 0.05 * 0.03);
    CHECK_OK(sherd_world_check(world));
}

/* Whichever allocation fails (some need not succeed): the same status everywhere, and the next step
 * works. */
static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int failures = 0;

    for (int k = 1; k < 400; k++) {
        sherd_module *m = model(world, SHERD_F64, mesh, matrices_on_line);
        sherd_optimizer *o = NULL;
        CHECK_OK(sherd_muon_create(&o, m, &options));
        backward(m, 1);
        CHECK_OK(sherd_world_check(world));
        if (sherd_world_rank(world) == 0)
            sherd_world_fail_allocation(world, k);
        sherd_optimizer_step(o, 0.01, 1);
        sherd_world_fail_allocation(world, 0);
        sherd_status status = sherd_world_check(world);
        if (!CHECK(status == SHERD_OK || status == SHERD_ENOMEM))
            fprintf(stderr, "  %d: %s\n", k, sherd_world_error(world));
        failures += status != SHERD_OK;
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    CHECK(failures > 100);
    CHECK_OK(sherd_world_check(world));
}

/* A step that fails after momentum was changed: the next one says what is lost, and with that
 * loaded goes on. */
static void a_step_without_its_state_is_refused(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = model(world, SHERD_F64, mesh, matrices_on_line);
    sherd_named_state all[4 * PARAMETERS];
    sherd_optimizer *o = NULL;
    sherd_status status = SHERD_OK;

    CHECK_OK(sherd_muon_create(&o, m, &options));
    for (int k = 10; status == SHERD_OK || status == SHERD_ENOMEM; k += 10) {
        backward(m, 1);
        CHECK_OK(sherd_world_check(world));
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? k : 0);
        sherd_optimizer_step(o, 0.01, 1);
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        sherd_optimizer_clear(o);
    }
    CHECK_EQ(status, SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "the state embed.m was lost in a step that failed"));
    int n = sherd_optimizer_state(o, all, LEN(all));
    sherd_scope_begin(world);
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", all[i].name);
        sherd_tensor *t = all[i].tensor;
        CHECK_OK(
            sherd_optimizer_load(o, name,
                                 sherd_constant(world, sherd_tensor_dtype(t), sherd_tensor_shape(t),
                                                sherd_tensor_ndim(t), 0),
                                 -1));
    }
    sherd_scope_end(world);
    backward(m, 1);
    sherd_optimizer_step(o, 0.01, 1);
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

/* Beside state and what is to become orthogonal, memory for one matrix at a time. */
static void matrices_come_one_after_the_other(sherd_world *world)
{
    enum { COUNT = 20, SIDE = 40, BYTES = SIDE * SIDE * (int)sizeof(float) };
    const int64_t shape[] = {SIDE, SIDE};

    for (int plain = 0; plain < 2; plain++) {
        sherd_module *m = NULL;
        sherd_optimizer *o = NULL;
        char name[16];
        sherd_scope_begin(world);
        CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
        sherd_tensor *loss = NULL;
        for (int i = 0; i < COUNT; i++) {
            sherd_tensor *p = wave(world, SHERD_F32, 2, shape, 3 + i, 1, 0);
            snprintf(name, sizeof name, "p%d", i);
            p = plain ? p : spread(p, line_of_ranks(world), "S(0)");
            CHECK_OK(sherd_module_add_parameter(m, name, p));
            p = sherd_module_parameter(m, name);
            loss = loss ? sherd_add(loss, sherd_sum(sherd_mul(p, p))) : sherd_sum(sherd_mul(p, p));
        }
        sherd_backward(loss);
        sherd_scope_end(world);
        CHECK_OK(sherd_muon_create(&o, m, NULL));
        int64_t before = sherd_world_memory(world).live_bytes;
        sherd_world_memory_reset(world);
        sherd_optimizer_step(o, 0.05, 1);
        CHECK_OK(sherd_world_check(world));
        CHECK(sherd_world_memory(world).peak_bytes - before < (5 * COUNT + 12) * BYTES);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
}

static const check_test tests[] = {
    {TEST(a_step_without_its_state_is_refused), {2, 3}},
    {TEST(a_step_is_the_same_under_every_layout), {1, 2, 3, 4, 8}},
    {TEST(a_step_is_the_same_on_a_grid), {4}},
    {TEST(a_step_has_two_moves), {1, 2, 3}},
    {TEST(what_is_subtracted_is_nearly_orthogonal), {1, 2}},
    {TEST(state_says_who_updates), {1, 2}},
    {TEST(the_iteration_may_be_bf16), {1, 2}},
    {TEST(matrices_come_one_after_the_other), {1, 2, 3}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
