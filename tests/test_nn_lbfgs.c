/* SPDX-License-Identifier: Apache-2.0 */
/*
 * L-BFGS: its line search meets the conditions that it promises; a quadratic function is minimised
 * in few iterations, and Rosenbrock's to its minimum, the same on all meshes and layouts; wrong
 * calls, losses that differ, failing allocations.
 */
#include "modules.h"

#include <limits.h>

#include "nn/line_search.h"
#include "sherd/lbfgs.h"
#include "sherd/ops_elements.h"
#include "sherd/values.h"

/* ---- the search along a line ----------------------------------------------------------------- */

typedef struct curve {
    double (*f)(double t, double *slope);
    double last, kept;
    int asked;
} curve;

/* (t - 3)^4 - 8 t^2: a minimum behind a hump */
static double bent(double t, double *slope)
{
    *slope = 4 * pow(t - 3, 3) - 16 * t;
    return pow(t - 3, 4) - 8 * t * t;
}

/* Low only near 1e-3. */
static double narrow(double t, double *slope)
{
    *slope = 2e6 * (t - 1e-3);
    return 1e6 * (t - 1e-3) * (t - 1e-3);
}

/* Falls for long. */
static double far(double t, double *slope)
{
    *slope = -1 / (1 + t) + 1e-4;
    return -log(1 + t) + 1e-4 * t;
}

/* No number behind 0.5. */
static double fenced(double t, double *slope)
{
    *slope = t < 0.5 ? 2 * (t - 0.3) : NAN;
    return t < 0.5 ? (t - 0.3) * (t - 0.3) : NAN;
}

/* Waves on a slope: many minima. */
static double wavy(double t, double *slope)
{
    *slope = -0.5 + 4 * cos(9 * t) - 4;
    *slope += 0.6 * t;
    return -0.5 * t + 4 * sin(9 * t) / 9 - 4 * t + 0.3 * t * t;
}

static bool ask(void *context, sherd__line_point *p)
{
    curve *c = context;

    p->f = c->f(p->t, &p->slope);
    c->last = p->t;
    return ++c->asked < 100;
}

static void keep(void *context)
{
    curve *c = context;
    c->kept = c->last;
}

static void the_search_meets_its_conditions(sherd_world *world)
{
    static double (*const curves[])(double, double *) = {bent, narrow, far, fenced, wavy};
    (void)world;

    for (int i = 0; i < LEN(curves); i++)
        for (double t = 1e-4; t < 1e4; t *= 7) {
            curve c = {curves[i], 0, 0, 0};
            const sherd__ray line = {ask, keep, &c, 1e-14, 60};
            sherd__line_point start = {0}, best;
            int asked = 0;
            start.f = curves[i](0, &start.slope);
            CHECK(sherd__line_search(&line, &start, t, &best, &asked));
            CHECK_EQ(asked, c.asked);
            CHECK_EQ(best.t, c.kept);
            CHECK(best.f <= start.f + 1e-4 * best.t * start.slope);
            CHECK(fabs(best.slope) <= -0.9 * start.slope);
        }
}

static void a_search_without_luck_stays(sherd_world *world)
{
    curve c = {fenced, 0, 0, 0};
    const sherd__ray line = {ask, keep, &c, 1e-14, 3};
    sherd__line_point start = {.f = -1, .slope = -1}, best; /* it never gets that low */
    int asked = 0;
    (void)world;

    CHECK(sherd__line_search(&line, &start, 1e6, &best, &asked));
    CHECK_EQ(asked, 3);
    CHECK_EQ(best.t, 0);
    CHECK_EQ(best.f, -1);
}

/* ---- functions of parameters ----------------------------------------------------------------- */

enum { N = 12 };

typedef struct problem {
    sherd_world *world;
    sherd_module *m;
    sherd_lbfgs *fit;
    const sherd_mesh *mesh;
    sherd_tensor *foreign; /* of another world */
    int calls;
} problem;

static sherd_tensor *vector_of(const problem *p, sherd_tensor *t, const char *placements)
{
    return placements ? spread(t, p->mesh, placements) : t;
}

/* Two parameters, one of which lies as `placements` say; the other is replicated. */
static void begin(problem *p, sherd_world *world, const char *placements, const char *other,
                  sherd_dtype dtype)
{
    sherd_tensor *a = wave(world, dtype, 1, SHAPE(N), 3, 1.5, -0.5);
    sherd_tensor *b = wave(world, dtype, 1, SHAPE(N), 5, 1, 0.5);

    *p = (problem){.world = world, .mesh = line_of_ranks(world)};
    CHECK_OK(sherd_module_create(&p->m, world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(p->m, "a", vector_of(p, a, placements)));
    CHECK_OK(sherd_module_add_parameter(p->m, "b", vector_of(p, b, other)));
    CHECK_OK(sherd_world_check(world));
}

static void end(problem *p)
{
    sherd_lbfgs_destroy(p->fit);
    sherd_module_destroy(p->m);
}

/* sum of k (a_k - 1)^2 + (b_k + a_k)^2: minimal at a = 1, b = -1. */
static sherd_tensor *quadratic(void *payload)
{
    problem *p = payload;
    sherd_tensor *a = sherd_module_parameter(p->m, "a"), *b = sherd_module_parameter(p->m, "b");
    sherd_tensor *weight = sherd_arange(p->world, sherd_tensor_dtype(a), 1, N + 1, 1);
    sherd_tensor *first = sherd_sub(a, sherd_constant(p->world, sherd_tensor_dtype(a), NULL, 0, 1));
    sherd_tensor *second = sherd_add(b, a);

    p->calls++;
    sherd_tensor *loss = sherd_add(sherd_sum(sherd_mul(weight, sherd_mul(first, first))),
                                   sherd_sum(sherd_mul(second, second)));
    sherd_backward(loss);
    return loss;
}

static void a_quadratic_is_minimised_on_every_mesh(sherd_world *world)
{
    static const char *const ways[][2] = {
        {NULL, NULL}, {"R", "R"}, {"S(0)", "R"}, {"S(0)", "S(0)"}};
    double first = 0, x[MOST];

    for (int w = 0; w < LEN(ways); w++) {
        problem p;
        sherd_lbfgs_report report;
        sherd_scope_begin(world);
        begin(&p, world, ways[w][0], ways[w][1], SHERD_F64);
        CHECK_OK(sherd_lbfgs_create(
            &p.fit, p.m,
            &(sherd_lbfgs_options){.iterations = 100, .history = 30, .tolerance_change = 1e-300}));
        double loss = sherd_lbfgs_step(p.fit, 1, quadratic, &p, &report);
        CHECK_EQ(loss, report.loss);
        CHECK_EQ(p.calls, report.evaluations);
        CHECK(loss < 1e-14);
        CHECK(report.gradient <= 1e-7);
        CHECK(report.iterations > 5 && report.iterations <= 4 * N);
        for (int k = 0; k < 2; k++) {
            CHECK_EQ(whole(sherd_module_parameter(p.m, k ? "b" : "a"), x), N);
            for (int i = 0; i < N; i++)
                CHECK_NEAR(x[i], k ? -1 : 1, 1e-8);
        }
        CHECK_NEAR(sherd_lbfgs_step(p.fit, 1, quadratic, &p, &report), loss, 0);
        CHECK_EQ(report.iterations, 0);
        first = w ? first : report.gradient;
        end(&p);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The root of 0, with an infinite slope, and sum of b^2. */
static sherd_tensor *edge(void *payload)
{
    problem *p = payload;
    sherd_tensor *a = sherd_module_parameter(p->m, "a"), *b = sherd_module_parameter(p->m, "b");
    sherd_tensor *loss = sherd_sum(sherd_sqrt(sherd_sub(a, sherd_detach(a))));

    p->calls++;
    loss = sherd_add(loss, sherd_sum(sherd_mul(b, b)));
    sherd_backward(loss);
    return loss;
}

/* Where the gradient is infinite there is no direction: parameters stay as they are. */
static void an_infinite_gradient_moves_nothing(sherd_world *world)
{
    static const char *const ways[] = {NULL, "R", "S(0)"};
    double before[MOST], x[MOST];

    for (int w = 0; w < 2 * LEN(ways); w++) {
        problem p;
        sherd_lbfgs_report report;
        sherd_scope_begin(world);
        begin(&p, world, ways[w / 2], ways[w / 2], SHERD_F64);
        CHECK_OK(sherd_lbfgs_create(&p.fit, p.m, &(sherd_lbfgs_options){.fixed = w % 2}));
        CHECK_EQ(whole(sherd_module_parameter(p.m, "a"), before), N);
        CHECK(isfinite(sherd_lbfgs_step(p.fit, 1, edge, &p, &report)));
        CHECK_EQ(report.iterations, 0);
        CHECK_EQ(whole(sherd_module_parameter(p.m, "a"), x), N);
        CHECK(memcmp(x, before, sizeof *x * N) == 0);
        end(&p);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Rosenbrock's function of a, b staying as it is: it has no gradient. */
static sherd_tensor *rosenbrock(void *payload)
{
    problem *p = payload;
    sherd_tensor *a = sherd_module_parameter(p->m, "a");
    sherd_dtype dtype = sherd_tensor_dtype(a);
    sherd_tensor *x = sherd_slice(a, 0, 0, N - 1, 1), *next = sherd_slice(a, 0, 1, N, 1);
    sherd_tensor *one = sherd_constant(p->world, dtype, NULL, 0, 1);
    sherd_tensor *up = sherd_sub(next, sherd_mul(x, x)), *left = sherd_sub(one, x);

    p->calls++;
    sherd_tensor *loss =
        sherd_sum(sherd_add(sherd_scale(sherd_mul(up, up), 100), sherd_mul(left, left)));
    sherd_backward(loss);
    return loss;
}

static void rosenbrock_is_minimised(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32};
    double b[MOST], x[MOST];

    for (int d = 0; d < LEN(dtypes); d++) {
        problem p;
        double before, loss = 0;
        sherd_scope_begin(world);
        begin(&p, world, "S(0)", "R", dtypes[d]);
        sherd_fill(sherd_detach(sherd_module_parameter(p.m, "a")), 0.3);
        whole(sherd_module_parameter(p.m, "b"), b);
        CHECK_OK(sherd_lbfgs_create(&p.fit, p.m, NULL));
        before = sherd_lbfgs_step(p.fit, 1, rosenbrock, &p, NULL);
        for (int i = 0; i < 12; i++) {
            loss = sherd_lbfgs_step(p.fit, 1, rosenbrock, &p, NULL);
            CHECK(loss <= before);
            before = loss;
        }
        CHECK(loss < 1e-5); /* tolerance_change ends it */
        CHECK(p.calls < 200);
        CHECK_EQ(distance_to(sherd_module_parameter(p.m, "b"), b, N), 0);
        CHECK_EQ(whole(sherd_module_parameter(p.m, "a"), x), N);
        for (int i = 0; i < N; i++)
            CHECK_NEAR(x[i], 1, d ? 0.02 : 1e-4);
        end(&p);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static void steps_of_a_fixed_length_ask_once(sherd_world *world)
{
    problem p;
    sherd_lbfgs_report report;

    sherd_scope_begin(world);
    begin(&p, world, "S(0)", "S(0)", SHERD_F64);
    CHECK_OK(sherd_lbfgs_create(&p.fit, p.m, &(sherd_lbfgs_options){.fixed = true}));
    sherd_lbfgs_step(p.fit, 0.5, quadratic, &p, &report);
    CHECK_EQ(report.iterations, 20);
    CHECK_EQ(report.evaluations, 21);
    CHECK(report.loss < 1);
    end(&p);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static sherd_tensor *none(void *payload)
{
    (void)payload;
    return NULL;
}

static sherd_tensor *many(void *payload)
{
    problem *p = payload;
    return sherd_module_parameter(p->m, "a");
}

static sherd_tensor *foreign(void *payload)
{
    problem *p = payload;
    return p->foreign;
}

static sherd_tensor *endless(void *payload)
{
    problem *p = payload;
    sherd_backward(sherd_sum(sherd_module_parameter(p->m, "a")));
    return sherd_constant(p->world, SHERD_F64, NULL, 0, INFINITY);
}

/* A plain loss that each rank has for itself. */
static sherd_tensor *own(void *payload)
{
    problem *p = payload;
    (void)quadratic(p);
    return sherd_constant(p->world, SHERD_F64, NULL, 0, sherd_world_rank(p->world));
}

static sherd_tensor *nested(void *payload)
{
    problem *p = payload;
    sherd_lbfgs_step(p->fit, 1, quadratic, p, NULL);
    return quadratic(p);
}

static sherd_tensor *destroys(void *payload)
{
    problem *p = payload;
    sherd_lbfgs_destroy(p->fit);
    return quadratic(p);
}

static sherd_tensor *fails(void *payload)
{
    problem *p = payload;
    sherd_tensor *wide = sherd_constant(p->world, SHERD_F64, SHAPE(2, 3), 2, 1);
    return sherd_add(sherd_module_parameter(p->m, "a"), wide);
}

static void wrong_calls_are_refused_on_all_ranks(sherd_world *world)
{
    static const struct {
        sherd_lbfgs_loss loss;
        double rate;
        sherd_status status;
        const char *text;
    } cases[] = {{NULL, 1, SHERD_EINVAL, "sherd_lbfgs_step: loss is NULL"},
                 {none, 1, SHERD_EINVAL, "the function of the loss returned NULL"},
                 {fails, 1, SHERD_EINVAL, "sherd_add"},
                 {many, 1, SHERD_EINVAL, "the loss has 12 elements, not one"},
                 {foreign, 1, SHERD_EINVAL, "the loss is of another world"},
                 {endless, 1, SHERD_EINVAL, "infinite or NaN before the first iteration"},
                 {nested, 1, SHERD_EINVAL, "it was called by the function of the loss"},
                 {destroys, 1, SHERD_EINVAL, "sherd_lbfgs_destroy: a function of the program's"},
                 {quadratic, 0, SHERD_EINVAL, "the learning rate is 0: it must be positive"},
                 {quadratic, NAN, SHERD_EINVAL, "it must be positive and finite"},
                 {own, 1, SHERD_EDIFFER, "ranks have other losses"}};
    sherd_world *other = NULL;
    problem p;

    CHECK_OK(sherd_world_alone(&other, &(sherd_world_options){.no_pin = true}));
    sherd_scope_begin(world);
    begin(&p, world, "S(0)", "R", SHERD_F64);
    p.foreign = sherd_constant(other, SHERD_F64, NULL, 0, 1);
    /* The evaluations follow from the iterations: as many as there can be. */
    CHECK_OK(sherd_lbfgs_create(&p.fit, p.m, &(sherd_lbfgs_options){.iterations = INT_MAX}));
    sherd_lbfgs_destroy(p.fit);
    CHECK_OK(sherd_lbfgs_create(&p.fit, p.m, NULL));
    CHECK(isnan(sherd_lbfgs_step(NULL, 1, quadratic, &p, NULL)));
    for (int i = 0; i < LEN(cases); i++) {
        if (cases[i].loss == own && sherd_world_ranks(world) == 1)
            continue;
        sherd_lbfgs_report report = {.evaluations = 7};
        CHECK(isnan(sherd_lbfgs_step(p.fit, cases[i].rate, cases[i].loss, &p, &report)));
        CHECK(isnan(report.loss));
        CHECK_EQ(sherd_world_check(world), cases[i].status);
        if (!CHECK(strstr(sherd_world_error(world), cases[i].text) != NULL))
            fprintf(stderr, "  %s\n  not %s\n", sherd_world_error(world), cases[i].text);
    }
    CHECK(sherd_lbfgs_step(p.fit, 1, quadratic, &p, NULL) < 1);
    CHECK_OK(sherd_world_check(world));
    end(&p);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_close(other));
}

static void wrong_parameters_are_refused(sherd_world *world)
{
    static const sherd_lbfgs_options bad[] = {{.history = -1},
                                              {.iterations = -1},
                                              {.evaluations = -1},
                                              {.tolerance_grad = -1},
                                              {.tolerance_change = NAN}};
    problem p;

    sherd_scope_begin(world);
    begin(&p, world, "S(0)", NULL, SHERD_F64);
    CHECK_EQ(sherd_lbfgs_create(&p.fit, p.m, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "a parameter is plain, f64[12], and others are"));
    end(&p);
    begin(&p, world, "S(0)", "R", SHERD_BF16);
    CHECK_EQ(sherd_lbfgs_create(&p.fit, p.m, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "it takes f32 and f64"));
    end(&p);
    begin(&p, world, "S(0)", "R", SHERD_F64);
    for (int i = 0; i < LEN(bad); i++)
        CHECK_EQ(sherd_lbfgs_create(&p.fit, p.m, &bad[i]), SHERD_EINVAL);
    CHECK_EQ(sherd_lbfgs_create(NULL, p.m, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_lbfgs_create(&p.fit, NULL, NULL), SHERD_EINVAL);
    CHECK(p.fit == NULL);
    end(&p);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

/* One rank goes another length. */
static void ranks_that_differ_are_told(sherd_world *world)
{
    problem p;

    sherd_scope_begin(world);
    begin(&p, world, "S(0)", "R", SHERD_F64);
    CHECK_OK(sherd_lbfgs_create(&p.fit, p.m, NULL));
    sherd_lbfgs_step(p.fit, sherd_world_rank(world) == 1 ? 0.25 : 0.5, quadratic, &p, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    end(&p);
    sherd_scope_end(world);
}

/* The n-th allocation of the last rank fails, in making one or in a step. What became of it. */
static sherd_status try_without(sherd_world *world, int64_t n, bool making)
{
    static const sherd_lbfgs_options options = {.iterations = 3, .history = 2};
    bool mine = sherd_world_rank(world) + 1 == sherd_world_ranks(world);
    int64_t failed = 0;
    problem p;

    sherd_scope_begin(world);
    begin(&p, world, "S(0)", "R", SHERD_F64);
    sherd_world_fail_allocation(world, mine && making ? n : 0);
    sherd_status status = sherd_lbfgs_create(&p.fit, p.m, &options);
    sherd_world_fail_allocation(world, 0);
    CHECK_EQ(status == SHERD_OK, p.fit != NULL);
    if (sherd_world_most(&failed, world, status != SHERD_OK))
        failed = 1; /* the alarm is raised */
    sherd_world_fail_allocation(world, mine && !making ? n : 0);
    if (!failed)
        sherd_lbfgs_step(p.fit, 1, quadratic, &p, NULL);
    sherd_world_fail_allocation(world, 0);
    sherd_status checked = sherd_world_check(world);
    /* Making one is local: then the others have made what this rank has not. */
    CHECK(checked == SHERD_OK || checked == (failed ? SHERD_EDIFFER : SHERD_ENOMEM) ||
          checked == SHERD_ENOMEM);
    end(&p);
    sherd_scope_end(world);
    return failed ? SHERD_ENOMEM : checked;
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    for (int making = 0; making < 2; making++) {
        int64_t n = 1, bytes = sherd_world_memory(world).live_bytes;
        while (n < 3000 && try_without(world, n, making))
            n++;
        CHECK(n > 3 && n < 3000);
        CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
    }
}

static const check_test tests[] = {
    {TEST(the_search_meets_its_conditions), {1}},
    {TEST(a_search_without_luck_stays), {1}},
    {TEST(a_quadratic_is_minimised_on_every_mesh), {1, 2, 3, 4, 8}},
    {TEST(rosenbrock_is_minimised), {1, 2, 3}},
    {TEST(an_infinite_gradient_moves_nothing), {1, 2, 3}},
    {TEST(steps_of_a_fixed_length_ask_once), {2}},
    {TEST(wrong_calls_are_refused_on_all_ranks), {1, 2, 3}},
    {TEST(wrong_parameters_are_refused), {2}},
    {TEST(ranks_that_differ_are_told), {2, 3}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2}},
};
CHECK_MAIN(tests)
