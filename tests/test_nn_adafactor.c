/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adafactor of a vector, a matrix and a stack of matrices is its formula, by plain loops, however
 * parameters and gradients lie; its state is small, has a layout, and can be taken up again; and a
 * step makes three rounds for all parameters together. test_nn_optimizers.c has PyTorch's numbers.
 */
#include "modules.h"
#include "sherd/optimizers.h"
#include "sherd/ops_shape.h"

enum { PARAMETERS = 3, LARGEST = 60, STEPS = 4, SKIPPED = 3 };

static const int dims[] = {1, 2, 3};
static const int64_t shapes[][3] = {{5}, {4, 6}, {3, 4, 5}};
static const char *const names[] = {"v", "w", "u"};
static const sherd_adafactor_options options = {
    .beta2_decay = -0.6, .least_scale = 0.2, .weight_decay = 0.1, .decay_all = true};
static const double rate = 0.3;

/* How a parameter of so many dims lies, on a mesh of one or two axes; "": plain. */
static const char *const lines[][3] = {{"", "", ""},
                                       {"R", "R", "R"},
                                       {"S(0)", "S(0)", "S(1)"},
                                       {"R", "S(1)", "S(2)"},
                                       {"S(0)", "S(1)", "S(0)"}};
static const char *const squares[][3] = {{"S(0)R", "S(0)S(1)", "S(1)S(2)"},
                                         {"RS(0)", "S(1)S(0)", "S(0)S(1)"},
                                         {"S(0)S(0)", "S(1)S(1)", "RS(1)"}};

/* ---- by hand --------------------------------------------------------------------------------- */

typedef struct factored {
    double p[LARGEST], row[LARGEST], col[LARGEST], v[LARGEST];
} factored;

static int64_t count_of(int which)
{
    int64_t n = 1;

    for (int d = 0; d < dims[which]; d++)
        n *= shapes[which][d];
    return n;
}

static double gradient_of(int which, int step, int64_t i)
{
    return 2 * sin(0.1 * (double)(i + 1) * (step + which + 2));
}

/* The moment of each element. */
static void find_moments(factored *f, int which, const double *g, double weight, double *moment)
{
    const int last = dims[which] - 1;
    int64_t count = count_of(which), n = shapes[which][last],
            m = last ? shapes[which][last - 1] : 1;

    for (int64_t i = 0; i < count && !last; i++)
        moment[i] = f->v[i] += weight * (g[i] * g[i] - f->v[i]);
    for (int64_t o = 0; o < count / (m * n) && last; o++) {
        double mean = 0, square = 0;
        for (int64_t r = 0; r < m; r++, square = 0) {
            for (int64_t c = 0; c < n; c++)
                square += pow(g[(o * m + r) * n + c], 2) / (double)n;
            f->row[o * m + r] += weight * (square - f->row[o * m + r]);
            mean += f->row[o * m + r] / (double)m;
        }
        for (int64_t c = 0; c < n; c++, square = 0) {
            for (int64_t r = 0; r < m; r++)
                square += pow(g[(o * m + r) * n + c], 2) / (double)m;
            f->col[o * n + c] += weight * (square - f->col[o * n + c]);
        }
        for (int64_t r = 0; r < m; r++)
            for (int64_t c = 0; c < n; c++)
                moment[(o * m + r) * n + c] = f->row[o * m + r] * f->col[o * n + c] / mean;
    }
}

static void by_hand(factored *f, int which, int step, int t)
{
    int64_t count = count_of(which);
    double g[LARGEST], moment[LARGEST], size = 0, change = 0;

    for (int64_t i = 0; i < count; i++) {
        g[i] = 0.5 * gradient_of(which, step, i);
        size += f->p[i] * f->p[i] / (double)count;
    }
    find_moments(f, which, g, pow(t, options.beta2_decay), moment);
    for (int64_t i = 0; i < count; i++)
        change += g[i] * g[i] / moment[i] / (double)count;
    double alpha = fmax(options.least_scale, sqrt(size)) * fmin(rate, 1 / sqrt(t));
    for (int64_t i = 0; i < count; i++)
        f->p[i] = (1 - rate * options.weight_decay) * f->p[i] -
                  alpha / fmax(1, sqrt(change)) * g[i] / sqrt(moment[i]);
}

/* ---- by the library -------------------------------------------------------------------------- */

static sherd_module *make(sherd_world *world, sherd_dtype dtype, const sherd_mesh *mesh,
                          const char *const *ways)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    for (int k = 0; k < PARAMETERS; k++) {
        sherd_tensor *p = wave(world, dtype, dims[k], shapes[k], k + 1, 0.4, 0.5);
        CHECK_OK(
            sherd_module_add_parameter(m, names[k], ways[k][0] ? spread(p, mesh, ways[k]) : p));
    }
    return m;
}

static void backward(sherd_module *m, int step)
{
    sherd_world *world = sherd_module_world(m);
    sherd_tensor *loss = NULL;

    sherd_scope_begin(world);
    for (int k = 0; k < PARAMETERS; k++) {
        sherd_tensor *p = sherd_module_parameter(m, names[k]);
        sherd_tensor *x =
            wave(world, sherd_tensor_dtype(p), dims[k], shapes[k], step + k + 2, 2, 0);
        sherd_tensor *part = sherd_sum(sherd_mul(p, x));
        loss = loss ? sherd_add(loss, part) : part;
    }
    sherd_backward(loss);
    sherd_scope_end(world);
}

static void take_step(sherd_module *m, sherd_optimizer *o, int step)
{
    if (step != SKIPPED)
        backward(m, step);
    sherd_optimizer_step(o, rate, 0.5);
    sherd_optimizer_clear(o);
}

static void try_layouts(sherd_world *world, sherd_dtype dtype, const sherd_mesh *mesh,
                        const char *const *ways)
{
    sherd_module *m = make(world, dtype, mesh, ways);
    sherd_optimizer *o = NULL;
    static _Thread_local factored want[PARAMETERS];

    CHECK_OK(sherd_adafactor_create(&o, m, &options));
    for (int k = 0; k < PARAMETERS; k++) {
        want[k] = (factored){{0}, {0}, {0}, {0}};
        whole(sherd_module_parameter(m, names[k]), want[k].p);
    }
    for (int step = 1, t = 0; step <= STEPS; step++) {
        take_step(m, o, step);
        t += step != SKIPPED;
        for (int k = 0; k < PARAMETERS; k++) {
            if (step != SKIPPED)
                by_hand(&want[k], k, step, t);
            CHECK_NEAR(distance_to(sherd_module_parameter(m, names[k]), want[k].p, count_of(k)), 0,
                       dtype == SHERD_F64   ? 1e-12
                       : dtype == SHERD_F32 ? 1e-5
                                            : 2e-2);
        }
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void it_is_its_formula_under_every_layout(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16};

    for (int d = 0; d < LEN(dtypes); d++) {
        for (int i = 0; i < LEN(lines); i++)
            try_layouts(world, dtypes[d], line_of_ranks(world), lines[i]);
        for (int i = 0; i < LEN(squares) && sherd_world_ranks(world) == 4; i++)
            try_layouts(world, dtypes[d], mesh_of(world, "a=2,b=2"), squares[i]);
    }
}

/* ---- its state ------------------------------------------------------------------------------- */

enum { ENTRIES = 5 + PARAMETERS };

static void state_is_rows_and_columns(sherd_world *world)
{
    static const char *const want[ENTRIES][2] = {
        {"v.v", "[5(tp)]"}, {"v.steps", "[]"},      {"w.row", "[4]"},       {"w.col", "[6(tp)]"},
        {"w.steps", "[]"},  {"u.row", "[3(tp),4]"}, {"u.col", "[3(tp),5]"}, {"u.steps", "[]"}};
    sherd_module *m = make(world, SHERD_F64, line_of_ranks(world), lines[4]);
    sherd_named_state state[ENTRIES];
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_adafactor_create(&o, m, &options));
    CHECK_EQ(sherd_optimizer_state(o, state, ENTRIES), ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        const char *text = sherd_tensor_text(state[i].tensor);
        CHECK_TEXT(state[i].name, want[i][0]);
        if (!CHECK(strstr(text, want[i][1]) != NULL))
            fprintf(stderr, "  %s is %s\n", state[i].name, text);
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* Taken up again in another layout, after a few steps. */
static void a_run_is_taken_up_again(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m[2] = {make(world, SHERD_F64, mesh, lines[2]),
                          make(world, SHERD_F64, mesh, lines[3])};
    sherd_optimizer *o[2] = {NULL, NULL};
    sherd_named_state state[ENTRIES];
    double want[LARGEST];

    for (int i = 0; i < 2; i++)
        CHECK_OK(sherd_adafactor_create(&o[i], m[i], &options));
    for (int step = 1; step < SKIPPED; step++)
        take_step(m[0], o[0], step);
    for (int k = 0; k < PARAMETERS; k++)
        CHECK_OK(sherd_module_load(m[1], names[k], sherd_module_parameter(m[0], names[k]), -1));
    CHECK_EQ(sherd_optimizer_state(o[0], state, ENTRIES), ENTRIES);
    for (int i = 0; i < ENTRIES; i++)
        CHECK_OK(sherd_optimizer_load(o[1], state[i].name, state[i].tensor, -1));
    for (int i = 0; i < 2; i++)
        for (int step = SKIPPED + 1; step < SKIPPED + 3; step++)
            take_step(m[i], o[i], step);
    for (int k = 0; k < PARAMETERS; k++) {
        int64_t n = whole(sherd_module_parameter(m[0], names[k]), want);
        CHECK_NEAR(distance_to(sherd_module_parameter(m[1], names[k]), want, n), 0, 1e-12);
    }
    for (int i = 0; i < 2; i++) {
        sherd_optimizer_destroy(o[i]);
        sherd_module_destroy(m[i]);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- what it costs, and failures ------------------------------------------------------------- */

static void a_step_makes_three_rounds(sherd_world *world)
{
    sherd_module *m = make(world, SHERD_F64, line_of_ranks(world), lines[2]);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_adafactor_create(&o, m, &options));
    backward(m, 1);
    sherd_optimizer_settle(o);
    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    sherd_optimizer_step(o, rate, 1);
    CHECK(calls_logged(world) <= 3);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    sherd_status status = SHERD_ENOMEM;
    int failed = 0;

    for (int n = 1; status && n < 400; n++, failed += status != SHERD_OK) {
        sherd_module *m = make(world, SHERD_BF16, line_of_ranks(world), lines[2]);
        sherd_optimizer *o = NULL;
        CHECK_OK(sherd_adafactor_create(&o, m, &options));
        backward(m, 1);
        sherd_optimizer_settle(o);
        CHECK_OK(sherd_world_check(world));
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        sherd_optimizer_step(o, rate, 1);
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    CHECK_OK(status);
    CHECK(failed > 3);
}

static const check_test tests[] = {
    {TEST(it_is_its_formula_under_every_layout), {1, 2, 3, 4}},
    {TEST(state_is_rows_and_columns), {2}},
    {TEST(a_run_is_taken_up_again), {1, 2, 3}},
    {TEST(a_step_makes_three_rounds), {2, 3}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
