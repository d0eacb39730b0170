/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW and the norm of gradients, against plain loops in double, under every layout. */
#include "modules.h"
#include "sherd/optimizer.h"

enum { ROWS = 5, IN = 4, OUT = 6, STEPS = 5 };

/* A linear layer and a parameter that nothing uses, spread as these placements say ("" = plain). */
typedef struct net {
    sherd_module *m;
    const sherd_mesh *mesh;
    const char *x_placements;
} net;

static void add(sherd_module *m, const char *name, sherd_tensor *t, const sherd_mesh *mesh,
                const char *placements)
{
    CHECK_OK(sherd_module_add_parameter(m, name, placements ? spread(t, mesh, placements) : t));
}

static net make(sherd_world *world, sherd_dtype dtype, const sherd_mesh *mesh,
                const char *const placements[3])
{
    net n = {.mesh = mesh, .x_placements = placements ? placements[0] : NULL};

    CHECK_OK(sherd_module_create(&n.m, world, NULL, NULL));
    add(n.m, "weight", wave(world, dtype, 2, SHAPE(OUT, IN), 1, 0.4, 0.1), mesh,
        placements ? placements[1] : NULL);
    add(n.m, "bias", wave(world, dtype, 1, SHAPE(OUT), 2, 0.3, 0), mesh,
        placements ? placements[2] : NULL);
    add(n.m, "unused", wave(world, dtype, 2, SHAPE(3, 3), 2, 0.3, 0), mesh,
        placements ? placements[1] : NULL);
    return n;
}

/* loss = sum(c (x W^T + b)), so that dW = c^T x and db = sum of c's rows, whatever the parameters
 * are. */
static void backward(const net *n, sherd_dtype dtype, int step)
{
    sherd_world *world = sherd_module_world(n->m);
    sherd_tensor *x, *c, *y;

    sherd_scope_begin(world);
    x = wave(world, dtype, 2, SHAPE(ROWS, IN), 3 + step, 1, 0);
    c = wave(world, dtype, 2, SHAPE(ROWS, OUT), 5 + step, 2, 0.5);
    if (n->x_placements)
        x = spread(x, n->mesh, n->x_placements);
    y = sherd_linear(x, sherd_module_parameter(n->m, "weight"),
                     sherd_module_parameter(n->m, "bias"));
    sherd_backward(sherd_sum(sherd_mul(y, c)));
    sherd_scope_end(world);
}

static double at(int i, int k, double scale, double offset)
{
    return offset + scale * sin(0.1 * (i + 1) * k);
}

/* The same gradients by hand. */
static void reference_grads(int step, double *weight, double *bias)
{
    memset(weight, 0, OUT * IN * sizeof *weight);
    memset(bias, 0, OUT * sizeof *bias);
    for (int r = 0; r < ROWS; r++)
        for (int o = 0; o < OUT; o++) {
            double c = at(r * OUT + o, 5 + step, 2, 0.5);
            bias[o] += c;
            for (int i = 0; i < IN; i++)
                weight[o * IN + i] += c * at(r * IN + i, 3 + step, 1, 0);
        }
}

/* AdamW as the header's formula says, element by element. */
static void reference_step(double *p, double *m, double *v, const double *g, int n, int t,
                           double decay)
{
    const double b1 = 0.8, b2 = 0.95, eps = 1e-6, rate = 0.01, scale = 0.5;

    for (int i = 0; i < n; i++) {
        double x = g[i] * scale;
        m[i] = b1 * m[i] + (1 - b1) * x;
        v[i] = b2 * v[i] + (1 - b2) * x * x;
        p[i] -=
            rate * (m[i] / (1 - pow(b1, t)) / (sqrt(v[i] / (1 - pow(b2, t))) + eps) + decay * p[i]);
    }
}

/* x, weight, bias (NULL = plain); the unused one as the weight. */
static const char *const line[][3] = {
    {"R", "R", "R"},          {"S(0)", "R", "R"},    {"R", "S(0)", "S(0)"}, {"S(1)", "S(1)", "R"},
    {"S(0)", "S(1)", "S(0)"}, {"S(0)", "S(0)", "R"}, {"S(0)", NULL, NULL},  {"R", NULL, "S(0)"},
};
static const char *const grid[][3] = {
    {"RR", "RR", "RR"},          {"S(0)R", "RS(0)", "RS(0)"}, {"S(0)S(0)", "RR", "RR"},
    {"S(0)S(1)", "RS(1)", "RR"}, {"RR", "S(0)S(1)", "S(0)R"}, {"S(0)R", "S(0)S(0)", "RS(0)"},
    {"S(0)R", NULL, "RS(0)"},
};

static void check_adamw(sherd_world *world, sherd_dtype dtype, const sherd_mesh *mesh,
                        const char *const placements[3])
{
    const sherd_adamw_options options = {
        .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
    /* Of 16 bits: what the gradients were rounded by may turn a step, of 0.01, by a fifth. */
    static const double tolerances[SHERD_DTYPES] = {
        [SHERD_F64] = 1e-13, [SHERD_F32] = 2e-6, [SHERD_BF16] = 1e-2, [SHERD_F16] = 1e-3};
    double tolerance = tolerances[dtype];
    double w[OUT * IN], wm[OUT * IN] = {0}, wv[OUT * IN] = {0}, wg[OUT * IN];
    double b[OUT], bm[OUT] = {0}, bv[OUT] = {0}, bg[OUT], unused[9];
    net n = make(world, dtype, mesh, placements);
    sherd_optimizer *o = NULL;

    whole(sherd_module_parameter(n.m, "weight"), w);
    whole(sherd_module_parameter(n.m, "bias"), b);
    whole(sherd_module_parameter(n.m, "unused"), unused);
    CHECK_OK(sherd_adamw_create(&o, n.m, &options));
    for (int t = 1; t <= STEPS; t++) {
        backward(&n, dtype, t);
        reference_grads(t, wg, bg);
        sherd_optimizer_step(o, 0.01, 0.5);
        sherd_optimizer_clear(o);
        reference_step(w, wm, wv, wg, OUT * IN, t, 0.1);
        reference_step(b, bm, bv, bg, OUT, t, 0);
        CHECK_NEAR(distance_to(sherd_module_parameter(n.m, "weight"), w, OUT * IN), 0, tolerance);
        CHECK_NEAR(distance_to(sherd_module_parameter(n.m, "bias"), b, OUT), 0, tolerance);
    }
    CHECK_EQ(distance_to(sherd_module_parameter(n.m, "unused"), unused, 9), 0);
    CHECK(sherd_grad(sherd_module_parameter(n.m, "weight")) == NULL);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(n.m);
}

static void adamw_is_its_formula_under_every_layout(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int dtype = SHERD_F32; dtype <= SHERD_F16; dtype++) {
        check_adamw(world, (sherd_dtype)dtype, NULL, NULL);
        for (int i = 0; i < LEN(line); i++)
            check_adamw(world, (sherd_dtype)dtype, mesh, line[i]);
    }
    CHECK_OK(sherd_world_check(world));
}

static void adamw_is_its_formula_on_a_grid(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");

    for (int i = 0; i < LEN(grid); i++)
        check_adamw(world, SHERD_F64, mesh, grid[i]);
    CHECK_OK(sherd_world_check(world));
}

/* ---- settling and the norm ------------------------------------------------------------------ */

static void check_norm(sherd_world *world, const sherd_mesh *mesh, const char *const placements[3])
{
    double wg[OUT * IN], bg[OUT], squares = 0, norm;
    net n = make(world, SHERD_F64, mesh, placements);
    sherd_optimizer *o = NULL;
    int64_t mine, all[64];

    reference_grads(1, wg, bg);
    for (int i = 0; i < OUT * IN; i++)
        squares += wg[i] * wg[i];
    for (int i = 0; i < OUT; i++)
        squares += bg[i] * bg[i];
    CHECK_OK(sherd_adamw_create(&o, n.m, NULL));
    CHECK_EQ(sherd_optimizer_grad_norm(o), 0);
    backward(&n, SHERD_F64, 1);
    norm = sherd_optimizer_grad_norm(o);
    CHECK_NEAR(norm, sqrt(squares), 1e-12 * norm);
    /* The same bits on all ranks. */
    memcpy(&mine, &norm, sizeof mine);
    if (mesh && CHECK(sherd__share(world, mesh, "test", &mine, 1, all)))
        for (int r = 0; r < sherd_world_ranks(world); r++)
            CHECK_EQ(all[r], mine);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(n.m);
}

static void every_element_counts_once_in_the_norm(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    check_norm(world, NULL, NULL);
    for (int i = 0; i < LEN(line); i++)
        check_norm(world, mesh, line[i]);
    CHECK_OK(sherd_world_check(world));
}

static void every_element_counts_once_on_a_grid(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");

    for (int i = 0; i < LEN(grid); i++)
        check_norm(world, mesh, grid[i]);
    CHECK_OK(sherd_world_check(world));
}

/* Twenty replicated weights that read a sharded batch: twenty pending gradients, one call. */
static void all_gradients_settle_in_one_call(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;
    sherd_tensor *y = spread(wave(world, SHERD_F32, 2, SHAPE(7, 4), 1, 1, 0), mesh, "S(0)");
    char name[8];

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "w%d", i);
        add(m, name, wave(world, SHERD_F32, 2, SHAPE(4, 4), i + 1, 0.5, 0), mesh, "R");
        y = sherd_linear(y, sherd_module_parameter(m, name), NULL);
    }
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    sherd_backward(sherd_sum(y));
    sherd_comm_reset(world);
    sherd_optimizer_settle(o);
    CHECK_EQ(calls_logged(world), sherd_world_ranks(world) > 1);
    sherd_optimizer_settle(o);
    CHECK_EQ(calls_logged(world), sherd_world_ranks(world) > 1);
    sherd_comm_reset(world);
    sherd_optimizer_step(o, 0.1, 1); /* on GPUs the first one takes memory, on all ranks or none */
    CHECK_EQ(calls_logged(world),
             strcmp(sherd_world_device(world), "cpu") != 0 && sherd_world_ranks(world) > 1);
    sherd_comm_reset(world);
    sherd_optimizer_step(o, 0.1, 1);
    CHECK_EQ(calls_logged(world), 0);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- errors --------------------------------------------------------------------------------- */

static void bad_options_are_refused(sherd_world *world)
{
    static const sherd_adamw_options bad[] = {
        {.beta1 = 1}, {.beta1 = -0.1}, {.beta2 = 1.5}, {.eps = -1}, {.weight_decay = -1}};
    net n = make(world, SHERD_F32, NULL, NULL);
    sherd_optimizer *o = (sherd_optimizer *)&n;

    for (int i = 0; i < LEN(bad); i++) {
        CHECK_EQ(sherd_adamw_create(&o, n.m, &bad[i]), SHERD_EINVAL);
        CHECK(o == NULL);
    }
    sherd_optimizer_destroy(NULL);
    sherd_module_destroy(n.m);
}

static void parameters_on_two_meshes_are_refused(sherd_world *world)
{
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;
    sherd_tensor *t = wave(world, SHERD_F32, 1, SHAPE(4), 1, 1, 0);

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    add(m, "a", t, mesh_of(world, "x=2,y=2"), "S(0)R");
    add(m, "b", t, mesh_of(world, "z=4"), "S(0)");
    CHECK_EQ(sherd_adamw_create(&o, m, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "two meshes") != NULL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* A gradient of 1 makes every step the rate, 2^-12: bf16 near 1 has steps of 2^-8 (below) and
 * 2^-7. */
static void small_steps_of_halves_are_not_lost(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const int64_t shape[] = {8};
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;

    for (int dtype = SHERD_BF16; dtype <= SHERD_F16; dtype++) {
        CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
        add(m, "p", sherd_constant(world, (sherd_dtype)dtype, shape, 1, 1), mesh, "S(0)");
        CHECK_OK(sherd_adamw_create(&o, m, NULL));
        sherd_tensor *p = sherd_module_parameter(m, "p");
        for (int step = 1; step <= 128; step++) {
            if (step == 65) { /* from here on from 2 */
                uint16_t two;
                uint16_t *data = sherd_tensor_write(p);
                sherd__cast((sherd_dtype)dtype, SHERD_F64, 1, &two, &(double){2});
                for (int64_t i = 0; data && i < p->count; i++)
                    data[i] = two;
            }
            sherd_scope_begin(world);
            sherd_backward(sherd_sum(p));
            sherd_optimizer_step(o, 1.0 / 4096, 1);
            sherd_optimizer_clear(o);
            sherd_scope_end(world);
            if (step % 64 == 0) {
                double expected[8];
                for (int i = 0; i < 8; i++)
                    expected[i] = step == 64 ? 1 - 1.0 / 64 : 2 - 1.0 / 64;
                CHECK_EQ(distance_to(p, expected, 8), 0);
            }
        }
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* One rank runs out of memory: all get the same status, and no rank hangs. */
static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    net n = make(world, SHERD_F64, mesh, line[1]);
    sherd_optimizer *o = NULL;
    int failures = 0;
    bool good = false;

    CHECK_OK(sherd_adamw_create(&o, n.m, NULL));
    for (int k = 1; !good && k < 100; k++) {
        backward(&n, SHERD_F64, 1);
        CHECK_OK(sherd_world_check(world));
        if (sherd_world_rank(world) == 0)
            sherd_world_fail_allocation(world, k);
        double norm = sherd_optimizer_grad_norm(o);
        sherd_optimizer_step(o, 0.01, 1);
        sherd_world_fail_allocation(world, 0);
        sherd_status status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        CHECK(status == SHERD_OK || sherd_world_ranks(world) == 1 || isnan(norm));
        good = status == SHERD_OK;
        failures += !good;
        sherd_optimizer_clear(o);
    }
    CHECK(good);
    CHECK(sherd_world_ranks(world) == 1 || failures > 0);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(n.m);
}

/* Creating one while the n-th allocation fails leaves nothing behind. */
static void fail_creation(sherd_world *world, sherd_dtype dtype)
{
    net n = make(world, dtype, NULL, NULL);
    const sherd__heap *heap = sherd__world_heap(world);
    sherd_optimizer *o = NULL;
    sherd_status status = SHERD_ENOMEM;
    int failures = 0;

    CHECK_OK(sherd_adamw_create(&o, n.m, NULL));
    sherd_optimizer_destroy(o);
    int64_t live = heap->live;
    for (int k = 1; status && k < 100; k++) {
        sherd_world_fail_allocation(world, k);
        status = sherd_adamw_create(&o, n.m, NULL);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || (status == SHERD_ENOMEM && o == NULL));
        failures += status != SHERD_OK;
        sherd_optimizer_destroy(o);
        CHECK_EQ(heap->live, live);
        (void)sherd_world_check(world);
    }
    CHECK_OK(status);
    CHECK(failures > 6);
    sherd_module_destroy(n.m);
}

static void no_memory_for_an_optimizer_leaves_nothing(sherd_world *world)
{
    for (int dtype = SHERD_F32; dtype <= SHERD_F16; dtype++)
        fail_creation(world, (sherd_dtype)dtype);
}

/* A step of plain parameters is each rank's own. */
static void a_gradient_that_one_rank_has_dropped_is_found(sherd_world *world)
{
    static const char *const whole_ones[] = {"R", "R", "R"};

    for (int spread_out = 0; spread_out < 2; spread_out++) {
        net n = make(world, SHERD_F64, line_of_ranks(world), spread_out ? whole_ones : NULL);
        sherd_optimizer *o = NULL;
        CHECK_OK(sherd_sgd_create(&o, n.m, NULL));
        backward(&n, SHERD_F64, 0);
        CHECK_OK(sherd_world_check(world));
        if (sherd_world_rank(world) == 1)
            sherd_clear_grad(sherd_module_parameter(n.m, "bias"));
        sherd_optimizer_step(o, 0.1, 1);
        CHECK_EQ(sherd_world_check(world), spread_out ? SHERD_EDIFFER : SHERD_OK);
        if (spread_out)
            CHECK(strstr(sherd_world_error(world), "sherd_optimizer_step") != NULL);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(n.m);
    }
}

static const check_test tests[] = {
    {TEST(a_gradient_that_one_rank_has_dropped_is_found), {2, 3}},
    {TEST(adamw_is_its_formula_under_every_layout), {1, 2, 3, 4, 8}},
    {TEST(adamw_is_its_formula_on_a_grid), {4}},
    {TEST(every_element_counts_once_in_the_norm), {1, 2, 3, 8}},
    {TEST(every_element_counts_once_on_a_grid), {4}},
    {TEST(all_gradients_settle_in_one_call), {1, 2, 3}},
    {TEST(bad_options_are_refused), {1}},
    {TEST(parameters_on_two_meshes_are_refused), {4}},
    {TEST(small_steps_of_halves_are_not_lost), {1, 2, 3, 4}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
    {TEST(no_memory_for_an_optimizer_leaves_nothing), {1}},
};
CHECK_MAIN(tests)
