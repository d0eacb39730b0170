/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several optimizers as one: a model and its adapters are clipped, and skip a step of a loss
 * scaler, as one optimizer over all their parameters does. Stages on two meshes:
 * test_parallel_stages.c.
 */
#include "modules.h"
#include "sherd/scaler.h"

#include "optimizer_norms.h"

enum { ROWS = 5, COLS = 3, COUNT = ROWS * COLS, PARTS = 3 };

/* A root with three modules of one matrix each, and an optimizer of all, or of each. */
typedef struct net {
    sherd_module *root, *part[PARTS];
    sherd_optimizer *whole, *list[PARTS];
    sherd_optimizers all;
} net;

static net make(sherd_world *world, const char *const ways[PARTS])
{
    static const char *const names[] = {"model", "adapter", "head"};
    const sherd_sgd_options momentum = {.momentum = 0.5};
    net n = {.all = {line_of_ranks(world), NULL, PARTS}};

    CHECK_OK(sherd_module_create(&n.root, world, NULL, NULL));
    for (int i = 0; i < PARTS; i++) {
        sherd_tensor *t = wave(world, SHERD_F64, 2, SHAPE(ROWS, COLS), i + 1, 0.4, 0.5);
        CHECK_OK(sherd_module_create(&n.part[i], world, NULL, NULL));
        CHECK_OK(sherd_module_add_parameter(n.part[i], "w",
                                            ways[i] ? spread(t, n.all.mesh, ways[i]) : t));
        CHECK_OK(sherd_module_add(n.root, names[i], n.part[i]));
        CHECK_OK(sherd_sgd_create(&n.list[i], n.part[i], &momentum));
    }
    CHECK_OK(sherd_sgd_create(&n.whole, n.root, &momentum));
    return n;
}

static void give_up(net *n)
{
    sherd_optimizer_destroy(n->whole);
    for (int i = 0; i < PARTS; i++)
        sherd_optimizer_destroy(n->list[i]);
    sherd_module_destroy(n->root);
}

static sherd_tensor *weight(const net *n, int i)
{
    return sherd_module_parameter(n->part[i], "w");
}

/*
 * loss = sum(I (x w^T)): the gradient of each is a wave, `times` it for the last; pending where w is
 * replicated.
 */
static void backward(const net *n, int step, double times)
{
    sherd_world *world = sherd_module_world(n->root);
    double identity[ROWS * ROWS] = {0};

    for (int i = 0; i < ROWS; i++)
        identity[i * ROWS + i] = 1;
    sherd_scope_begin(world);
    sherd_tensor *c =
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, SHAPE(ROWS, ROWS), 2, identity));
    for (int i = 0; i < PARTS; i++) {
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, COLS), step + i, 2, 0);
        if (sherd_tensor_layout(weight(n, i)))
            x = spread(x, n->all.mesh, "S(0)");
        sherd_tensor *loss = sherd_sum(sherd_mul(sherd_linear(x, weight(n, i), NULL), c));
        sherd_backward(sherd_scale(loss, i == PARTS - 1 ? times : 1));
    }
    sherd_scope_end(world);
}

static const char *const ways[][PARTS] = {
    {"S(0)", "R", "S(1)"}, {"S(0)", NULL, "R"}, {NULL, NULL, NULL}, {"S(1)", "S(0)", NULL}};

/* As one optimizer of all: the norm, the same bits on all ranks, what is clipped and trained. */
static void they_are_clipped_as_one(sherd_world *world)
{
    for (int way = 0; way < LEN(ways); way++)
        for (int by_step = 0; by_step < 2; by_step++) {
            net one = make(world, ways[way]), each = make(world, ways[way]);
            each.all.list = each.list;
            for (int step = 1; step <= 3; step++) {
                double values[MOST], norm, by = 1;
                int64_t mine, seen[SHERD_MAX_RANKS];
                backward(&one, step, 1);
                backward(&each, step, 1);
                double wanted = sherd_optimizer_clip(one.whole, 1.5);
                sherd_optimizer_step(one.whole, 0.1, 1);
                sherd_optimizer_clear(one.whole);
                norm = by_step ? sherd_optimizers_grad_norm(&each.all)
                               : sherd_optimizers_clip(&each.all, 1.5);
                CHECK(wanted > 1.5);
                CHECK_NEAR(norm, wanted, 1e-12);
                memcpy(&mine, &norm, sizeof mine);
                if (CHECK(sherd__share(world, each.all.mesh, "test", &mine, 1, seen)))
                    for (int r = 0; r < sherd_world_ranks(world); r++)
                        CHECK_EQ(seen[r], mine);
                if (by_step)
                    by = 1.5 / norm;
                else
                    CHECK_NEAR(sherd_optimizers_grad_norm(&each.all), 1.5, 1e-12);
                for (int i = 0; i < PARTS; i++) {
                    sherd_optimizer_step(each.list[i], 0.1, by);
                    sherd_optimizer_clear(each.list[i]);
                    whole(weight(&one, i), values);
                    CHECK_NEAR(distance_to(weight(&each, i), values, COUNT), 0, 1e-12);
                }
            }
            give_up(&one);
            give_up(&each);
        }
    CHECK_OK(sherd_world_check(world));
}

/* As PyTorch's, which adds 1e-6 to a norm that it clips by: of one optimizer, and of several. */
static void they_are_clipped_by_any_norm(sherd_world *world)
{
    for (int way = 0; way < LEN(ways); way++)
        for (int c = 0; c < LEN(norm_cases); c++) {
            double p = norm_cases[c].p, most = norm_cases[c].most, norm = 0;
            net one = make(world, ways[way]), each = make(world, ways[way]);
            each.all.list = each.list;
            for (int step = 1; step <= CASE_STEPS; step++) {
                backward(&one, step, 1);
                backward(&each, step, 1);
                norm = sherd_optimizer_grad_norm_of(one.whole, p);
                CHECK_NEAR(sherd_optimizers_grad_norm_of(&each.all, p) / norm, 1, 1e-14);
                CHECK_EQ(sherd_optimizer_clip_norm(one.whole, most, p), norm);
                CHECK_NEAR(sherd_optimizers_clip_norm(&each.all, most, p) / norm, 1, 1e-14);
                CHECK(norm > most);
                CHECK_NEAR(sherd_optimizer_grad_norm_of(one.whole, p) / most, 1, 1e-13);
                CHECK_NEAR(sherd_optimizer_clip_norm(one.whole, 2 * most, p) / most, 1, 1e-13);
                sherd_optimizer_step(one.whole, case_rate, 1);
                sherd_optimizer_clear(one.whole);
                for (int i = 0; i < PARTS; i++) {
                    sherd_optimizer_step(each.list[i], case_rate, 1);
                    sherd_optimizer_clear(each.list[i]);
                }
            }
            CHECK_NEAR(norm / norm_cases[c].norm, 1, 1e-13);
            for (int i = 0; i < PARTS; i++) {
                CHECK_NEAR(distance_to(weight(&one, i), norm_cases[c].values[i], COUNT), 0, 1e-6);
                CHECK_NEAR(distance_to(weight(&each, i), norm_cases[c].values[i], COUNT), 0, 1e-6);
            }
            give_up(&one);
            give_up(&each);
        }
    CHECK_OK(sherd_world_check(world));
}

/* In any dtype, and of more elements than are looked at together: as a loop in double has it. */
static void norms_are_their_formulas(sherd_world *world)
{
    enum { MANY = 600 };
    double values[MOST];

    for (int dtype = SHERD_F32; dtype <= SHERD_F16; dtype++) {
        sherd_module *m = NULL;
        sherd_optimizer *o = NULL;
        CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
        sherd_tensor *x = wave(world, (sherd_dtype)dtype, 2, SHAPE(MANY, 1), 3, 2, 0.1);
        CHECK_OK(sherd_module_add_parameter(m, "w", spread(x, line_of_ranks(world), "S(0)")));
        CHECK_OK(sherd_sgd_create(&o, m, NULL));
        sherd_tensor *w = sherd_module_parameter(m, "w");
        sherd_backward(sherd_sum(sherd_mul(w, sherd_detach(w))));
        whole(sherd_grad(w), values);
        for (int c = 0; c < LEN(norm_cases); c++) {
            double p = norm_cases[c].p, sum = 0, most = 0;
            for (int i = 0; i < MANY; i++) {
                sum += isinf(p) ? 0 : pow(fabs(values[i]), p);
                most = fmax(most, fabs(values[i]));
            }
            double wanted = isinf(p) ? most : pow(sum, 1 / p);
            CHECK_NEAR(sherd_optimizer_grad_norm_of(o, p) / wanted, 1, 1e-12);
        }
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A NaN is the norm, whichever element it is and whatever p; then nothing is scaled. */
static void what_is_no_number_stays(sherd_world *world)
{
    for (int c = 0; c < LEN(norm_cases); c++)
        for (int way = 0; way < LEN(ways); way++) {
            net n = make(world, ways[way]);
            n.all.list = n.list;
            backward(&n, 1, (double)NAN);
            CHECK(isnan(sherd_optimizer_clip_norm(n.whole, 1, norm_cases[c].p)));
            CHECK(isnan(sherd_optimizers_clip_norm(&n.all, 1, norm_cases[c].p)));
            sherd_optimizer_clear(n.whole);
            backward(&n, 1, HUGE_VAL);
            CHECK(!isfinite(sherd_optimizers_clip_norm(&n.all, 1, norm_cases[c].p)));
            double whole_of[MOST];
            whole(sherd_grad(weight(&n, 0)), whole_of);
            CHECK_NEAR(whole_of[COUNT - 1], 2 * sin(0.1 * COUNT), 1e-12);
            give_up(&n);
        }
    CHECK_OK(sherd_world_check(world));
}

static void ranks_that_ask_for_other_norms_differ(sherd_world *world)
{
    double p = sherd_world_rank(world) ? 1 : HUGE_VAL;

    for (int together = 0; together < 2; together++) {
        net n = make(world, ways[0]);
        n.all.list = n.list;
        backward(&n, 1, 1);
        if (together)
            CHECK(isnan(sherd_optimizers_grad_norm_of(&n.all, p)));
        else
            CHECK(isnan(sherd_optimizer_grad_norm_of(n.whole, p)));
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        give_up(&n);
    }
}

/* Everything is settled by now: what they exchange is one call, however many they are. */
static void the_norm_of_all_takes_one_call(sherd_world *world)
{
    net n = make(world, ways[0]);

    n.all.list = n.list;
    backward(&n, 1, 1);
    for (int i = 0; i < PARTS; i++)
        sherd_optimizer_settle(n.list[i]);
    sherd_comm_reset(world);
    CHECK(sherd_optimizers_grad_norm(&n.all) > 0);
    CHECK_EQ(calls_logged(world), sherd_world_ranks(world) > 1);
    n.all.count = 0;
    CHECK_EQ(sherd_optimizers_grad_norm(&n.all), 0);
    CHECK_EQ(sherd_optimizers_clip(&n.all, 1), 0);
    give_up(&n);
    CHECK_OK(sherd_world_check(world));
}

/* A sub-mesh stands for the mesh that it is part of: every element is counted once. */
static void a_sub_mesh_stands_for_its_root(sherd_world *world)
{
    const sherd_mesh *grid = mesh_of(world, "dp=2,tp=2"), *tp = NULL;
    const char *const axes[] = {"tp"};
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_mesh_slice(&tp, grid, 1, axes));
    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    sherd_tensor *t = wave(world, SHERD_F64, 2, SHAPE(ROWS, COLS), 1, 1, 0);
    CHECK_OK(sherd_module_add_parameter(m, "w", spread(t, grid, "S(0)S(1)")));
    CHECK_OK(sherd_sgd_create(&o, m, NULL));
    sherd_backward(sherd_sum(sherd_module_parameter(m, "w")));
    const sherd_optimizers all = {tp, &o, 1};
    CHECK_NEAR(sherd_optimizers_grad_norm(&all), sqrt(COUNT), 1e-13);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- a loss scaler --------------------------------------------------------------------------- */

/* An infinite gradient of one optimizer keeps all from the step, and counts once. */
static void all_skip_a_step_or_none(sherd_world *world)
{
    for (int way = 0; way < LEN(ways); way++) {
        sherd_scaler scaler = {.scale = 8};
        net n = make(world, ways[way]);
        double before[PARTS][MOST], norm = 0;
        n.all.list = n.list;
        for (int i = 0; i < PARTS; i++)
            whole(weight(&n, i), before[i]);
        backward(&n, 1, INFINITY);
        CHECK(!sherd_scaler_step_all(&scaler, &n.all, 0.1, 1, &norm));
        CHECK(!isfinite(norm));
        CHECK_EQ(scaler.scale, 4);
        CHECK_EQ(scaler.skipped, 1);
        for (int i = 0; i < PARTS; i++) {
            CHECK_EQ(distance_to(weight(&n, i), before[i], COUNT), 0);
            sherd_optimizer_clear(n.list[i]);
        }
        backward(&n, 1, 1);
        CHECK(sherd_scaler_step_all(&scaler, &n.all, 0.1, 0, NULL));
        CHECK_EQ(scaler.good, 1);
        for (int i = 0; i < PARTS; i++) {
            for (int k = 0; k < COUNT; k++) /* the gradient is divided by the factor */
                before[i][k] -= 0.1 * 2 * sin(0.1 * (k + 1) * (1 + i)) / 4;
            CHECK_NEAR(distance_to(weight(&n, i), before[i], COUNT), 0, 1e-13);
        }
        give_up(&n);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Plain gradients that not all ranks have alike have no norm that is equal on all. */
static void plain_gradients_that_differ_are_refused(sherd_world *world)
{
    net n = make(world, ways[1]);

    n.all.list = n.list;
    backward(&n, 1, 1);
    if (sherd_world_rank(world) == 0)
        sherd_optimizer_clear(n.list[1]);
    CHECK(isnan(sherd_optimizers_grad_norm(&n.all)));
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "sherd_optimizers_grad_norm: the norm of gradients of "
                                           "plain parameters is ") != NULL);
    give_up(&n);
}

static void a_mesh_that_lacks_ranks_is_refused(sherd_world *world)
{
    int ranks = sherd_world_ranks(world), last = sherd_world_rank(world) == ranks - 1;
    net n = make(world, ways[0]);

    n.all.list = n.list;
    backward(&n, 1, 1);
    CHECK_OK(sherd_mesh_create(&n.all.mesh, world, 1, SHAPE(ranks - 1), NULL, NULL));
    CHECK(isnan(sherd_optimizers_grad_norm(&n.all)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "on ranks that are not in the mesh") != NULL);
    n.all.count = 0; /* the last rank has none, and is not to call */
    if (last)
        CHECK(isnan(sherd_optimizers_grad_norm(&n.all)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    give_up(&n);
}

/* Parameters may be in two optimizers, as long as they have no gradients. */
static void a_gradient_is_counted_once_or_refused(sherd_world *world)
{
    net n = make(world, ways[0]);
    sherd_optimizer *list[] = {n.list[0], n.whole};

    n.all.list = list;
    n.all.count = 2;
    CHECK_EQ(sherd_optimizers_grad_norm(&n.all), 0);
    backward(&n, 1, 1);
    sherd_clear_grad(weight(&n, 0));
    double together = sherd_optimizers_grad_norm(&n.all);
    CHECK_NEAR(together, sherd_optimizer_grad_norm(n.whole), 1e-12);
    CHECK_OK(sherd_world_check(world));
    sherd_clear_grad(weight(&n, 1));
    backward(&n, 1, 1);
    CHECK(isnan(sherd_optimizers_clip(&n.all, 1)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "optimizer 1 of 2, ") != NULL);
    CHECK(strstr(sherd_world_error(world), "its gradients are also in one before it") != NULL);
    give_up(&n);
}

static void no_memory_fails_on_all(sherd_world *world)
{
    int last = sherd_world_ranks(world) - 1, failures = 0;
    sherd_status status = SHERD_ENOMEM;

    for (int i = 1; status && i < 200; i++) {
        net n = make(world, ways[1]);
        sherd_scaler scaler = {0};
        double norm;
        n.all.list = n.list;
        backward(&n, 1, 1);
        CHECK_OK(sherd_world_check(world));
        sherd_world_fail_allocation(world, sherd_world_rank(world) == last ? i : 0);
        bool taken = sherd_scaler_step_all(&scaler, &n.all, 0.1, 1, &norm);
        norm = sherd_optimizers_clip(&n.all, 0.5);
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        CHECK(status || (taken && norm > 0.5));
        failures += status == SHERD_ENOMEM;
        give_up(&n);
    }
    CHECK_OK(status);
    CHECK(failures >= 2); /* room for what ranks exchange, in both calls */
}

static const check_test tests[] = {
    {TEST(they_are_clipped_as_one), {1, 2, 3, 4, 8}},
    {TEST(they_are_clipped_by_any_norm), {1, 2, 3, 4, 8}},
    {TEST(norms_are_their_formulas), {1, 2, 3, 8}},
    {TEST(what_is_no_number_stays), {1, 2, 3}},
    {TEST(ranks_that_ask_for_other_norms_differ), {2, 3}},
    {TEST(the_norm_of_all_takes_one_call), {1, 2, 3}},
    {TEST(a_sub_mesh_stands_for_its_root), {4}},
    {TEST(all_skip_a_step_or_none), {1, 2, 3, 4, 8}},
    {TEST(plain_gradients_that_differ_are_refused), {2, 3}},
    {TEST(a_mesh_that_lacks_ranks_is_refused), {2, 3}},
    {TEST(a_gradient_is_counted_once_or_refused), {1, 2, 3}},
    {TEST(no_memory_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
