/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backwards that are recorded (create_graph): derivatives of any order, Hessians times vectors, and
 * what the tape does itself on the way: moves, sums, hooks, given gradients. What each operator does:
 * test_ops_twice.c.
 */
#include <math.h>

#include "modules.h"
#include "sherd/halo.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include "sherd/ops_stencil.h"

enum { N = 7, ORDERS = 4 };

static const sherd_gradients_options recorded = {.create_graph = true};

static sherd_tensor *leaf_of(sherd_world *world, const char *placements, int k)
{
    sherd_tensor *x = wave(world, SHERD_F64, 1, SHAPE(N), k, 1, 0.2);

    if (placements)
        x = spread(x, line_of_ranks(world), placements);
    return sherd_require_grad(x, true);
}

static sherd_tensor *gradient(sherd_tensor *y, sherd_tensor *x,
                              const sherd_gradients_options *options)
{
    sherd_tensor *g = NULL;

    sherd_gradients(&g, &x, 1, &y, 1, options);
    return g;
}

static bool is_near(sherd_tensor *t, const double *want, int64_t n)
{
    return CHECK_NEAR(distance_to(t, want, n), 0, 1e-12);
}

static void derivatives_of_any_order(sherd_world *world)
{
    static const char *const placements[] = {NULL, "R", "S(0)"};
    double at[MOST], want[N];

    for (int p = 0; p < LEN(placements); p++) {
        sherd_scope_begin(world);
        sherd_tensor *x = leaf_of(world, placements[p], 3), *y = sherd_sin(x);
        whole(x, at);
        for (int order = 1; order <= ORDERS; order++) {
            y = gradient(sherd_sum(y), x, &recorded);
            for (int i = 0; i < N; i++)
                want[i] = sin(at[i] + order * acos(0));
            is_near(y, want, N);
            CHECK(sherd_tensor_layout(y) == sherd_tensor_layout(x));
        }
        CHECK(sherd_grad(x) == NULL);
        sherd_backward(sherd_sum(sherd_mul(y, y))); /* the last one need not be recorded */
        for (int i = 0; i < N; i++)
            want[i] = 2 * sin(at[i]) * cos(at[i]);
        is_near(sherd_grad(x), want, N);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
}

/* The quadratic form of a matrix that is not symmetric: its Hessian is A + A^T. */
static void a_hessian_times_a_vector(sherd_world *world)
{
    static const char *const of_matrix[] = {"R", "S(0)", "S(1)"}, *const of_x[] = {"S(0)", "R"};
    double a[MOST], v[MOST], want[N];

    for (int i = 0; i < LEN(of_matrix) * LEN(of_x); i++) {
        sherd_scope_begin(world);
        sherd_tensor *x = leaf_of(world, of_x[i / LEN(of_matrix)], 2);
        sherd_tensor *matrix = wave(world, SHERD_F64, 2, SHAPE(N, N), 5, 1, 0);
        sherd_tensor *along = wave(world, SHERD_F64, 1, SHAPE(N), 4, 1, 0), *hv = NULL;
        whole(matrix, a);
        whole(along, v);
        matrix = spread(matrix, line_of_ranks(world), of_matrix[i % LEN(of_matrix)]);
        sherd_tensor *f = sherd_sum(sherd_mul(x, sherd_matmul(matrix, x)));
        sherd_tensor *g = gradient(f, x, &recorded);
        sherd_gradients(&hv, &x, 1, &g, 1, &(sherd_gradients_options){.gradients = &along});
        for (int r = 0; r < N; r++) {
            want[r] = 0;
            for (int c = 0; c < N; c++)
                want[r] += (a[r * N + c] + a[c * N + r]) * v[c];
        }
        is_near(hv, want, N);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* A gradient is linear in the one that is given: its derivative by that is forward mode. */
static void a_given_gradient_has_a_gradient(sherd_world *world)
{
    double at[MOST], u[MOST], want[N];
    sherd_tensor *x = leaf_of(world, "S(0)", 3), *v = leaf_of(world, "S(0)", 5);
    sherd_tensor *y = sherd_exp(x), *g = NULL, *ju = NULL;
    sherd_tensor *along =
        spread(wave(world, SHERD_F64, 1, SHAPE(N), 4, 1, 0), line_of_ranks(world), "R");

    whole(x, at);
    whole(along, u);
    sherd_gradients(&g, &x, 1, &y, 1,
                    &(sherd_gradients_options){.gradients = &v, .create_graph = true});
    sherd_gradients(&ju, &v, 1, &g, 1, &(sherd_gradients_options){.gradients = &along});
    for (int i = 0; i < N; i++)
        want[i] = exp(at[i]) * u[i];
    is_near(ju, want, N);
    CHECK_OK(sherd_world_check(world));
    sherd_tensor *plain = leaf_of(world, NULL, 5);
    sherd_gradients(&g, &x, 1, &y, 1,
                    &(sherd_gradients_options){.gradients = &plain, .create_graph = true});
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "it requires a gradient itself: distribute it") != NULL);
}

/* ---- what moves on the way ------------------------------------------------------------------- */

typedef sherd_tensor *(*way)(sherd_tensor *x);

static sherd_tensor *by_placements(sherd_tensor *x)
{
    return sherd_redistribute_to(sherd_redistribute_to(x, "R", NULL), "S(0)", NULL);
}

static sherd_tensor *by_pieces(sherd_tensor *x)
{
    sherd_tensor *mine = sherd_tanh(sherd_to_local(x));
    return sherd_from_local_as(mine, sherd_tensor_layout(x));
}

/* A pending sum of as many addends as ranks. */
static sherd_tensor *by_addends(sherd_tensor *x)
{
    const sherd_mesh *mesh = sherd_layout_mesh(sherd_tensor_layout(x));
    const sherd_placement sum = sherd_partial(SHERD_SUM);
    sherd_tensor *mine = sherd_full_with(x, &sum);

    mine = sherd_scale(mine, 1.0 / sherd_world_ranks(sherd_tensor_world(x)));
    return sherd_square(sherd_from_local(mine, mesh, &sum, NULL));
}

/* The pieces of such a sum, taken and put together again. */
static sherd_tensor *by_pieces_of_a_sum(sherd_tensor *x)
{
    const sherd_mesh *mesh = sherd_layout_mesh(sherd_tensor_layout(x));
    const sherd_placement sum = sherd_partial(SHERD_SUM);
    sherd_tensor *mine = sherd_full_with(x, &sum);

    mine = sherd_scale(mine, 1.0 / sherd_world_ranks(sherd_tensor_world(x)));
    x = sherd_from_local(mine, mesh, &sum, NULL);
    return sherd_square(sherd_from_local_as(sherd_to_local(x), sherd_tensor_layout(x)));
}

/* The same on all ranks, and a gradient of which each rank has an addend. */
static sherd_tensor *by_declared_addends(sherd_tensor *x)
{
    const sherd_mesh *mesh = sherd_layout_mesh(sherd_tensor_layout(x));
    const sherd_placement sum = sherd_partial(SHERD_SUM), whole = sherd_replicate();
    sherd_tensor *mine = sherd_full_with(x, &sum);

    return sherd_square(
        sherd_from_local(mine, mesh, &whole, &(sherd_from_local_options){.gradient = &sum}));
}

static sherd_tensor *by_halo(sherd_tensor *x)
{
    const sherd_halo_options wide = {.before[0] = {1, SHERD_BORDER_PERIODIC},
                                     .after[0] = {2, SHERD_BORDER_CONSTANT},
                                     .value = 3};
    sherd_tensor *piece = sherd_halo(x, &wide);
    int64_t n = sherd_tensor_shape(piece)[0];

    /* Between the elements of this rank and what lies around them. */
    piece = sherd_mul(sherd_narrow(piece, 0, 0, n - 3), sherd_narrow(piece, 0, 2, n - 3));
    return sherd_from_local_as(piece, sherd_tensor_layout(x));
}

static sherd_tensor *by_dtypes(sherd_tensor *x)
{
    return sherd_redistribute_to(x, "R",
                                 &(sherd_redistribute_options){.backward_dtype = SHERD_F64});
}

/* The gradient of the sum of squares of the first gradient of a function that uses x twice. */
static sherd_tensor *penalty_of(sherd_tensor *x, way by)
{
    sherd_tensor *y = sherd_add(by(sherd_sin(x)), sherd_mul(x, by(x)));
    sherd_tensor *g = gradient(sherd_sum(sherd_mul(y, y)), x, &recorded);

    return sherd_sum(sherd_mul(g, g));
}

typedef struct probe {
    way by;
} probe;

static sherd_tensor *to_check(sherd_tensor *const *in, int count, void *payload)
{
    (void)count;
    return penalty_of(in[0], ((probe *)payload)->by);
}

static void moves_are_recorded(sherd_world *world)
{
    probe ways[] = {{by_placements}, {by_pieces}, {by_addends},        {by_declared_addends},
                    {by_halo},       {by_dtypes}, {by_pieces_of_a_sum}};

    for (int i = 0; i < LEN(ways); i++) {
        sherd_scope_begin(world);
        sherd_tensor *x = leaf_of(world, "S(0)", 3);
        sherd_status status =
            sherd_check_gradients(to_check, &x, 1, &(sherd_check_options){.payload = &ways[i]});
        if (!CHECK_OK(status))
            fprintf(stderr, "  way %d: %s\n", i, sherd_world_error(world));
        sherd_scope_end(world);
    }
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

/* ---- hooks ----------------------------------------------------------------------------------- */

static sherd_tensor *squared(sherd_tensor *grad, void *payload)
{
    ++*(int *)payload;
    return sherd_square(grad);
}

/* Of what is repeated 0 times the gradient is 0, and so is the gradient of that. */
static void a_repeat_of_nothing_is_recorded(sherd_world *world)
{
    static const char *const placements[] = {NULL, "R", "S(0)"};
    const double zero[N] = {0};

    for (int p = 0; p < LEN(placements); p++)
        for (int tiles = 0; tiles < 2; tiles++) {
            sherd_scope_begin(world);
            sherd_tensor *x = leaf_of(world, placements[p], 3);
            sherd_tensor *y = tiles ? sherd_tile(x, SHAPE(0), 1) : sherd_repeat(x, SHAPE(2, 0), 2);
            sherd_tensor *g = gradient(sherd_sum(sherd_square(y)), x, &recorded);
            is_near(g, zero, N);
            sherd_backward(sherd_sum(sherd_square(g)));
            is_near(sherd_grad(x), zero, N);
            sherd_scope_end(world);
            CHECK_OK(sherd_world_check(world));
        }
}

/* y = x^2 at h = sin(x): the hook makes g(h) = (2h)^2, so the gradient of x is 4 sin^2 cos. */
static void hooks_are_recorded(sherd_world *world)
{
    double at[MOST], want[N];
    sherd_scope_begin(world);
    sherd_tensor *x = leaf_of(world, "S(0)", 3), *h = sherd_sin(x);
    int runs = 0;

    whole(x, at);
    CHECK_OK(sherd_tensor_hook(NULL, h, squared, &runs, NULL));
    sherd_tensor *g = gradient(sherd_sum(sherd_mul(h, h)), x, &recorded);
    CHECK_EQ(runs, 1);
    for (int i = 0; i < N; i++)
        want[i] = 4 * sin(at[i]) * sin(at[i]) * cos(at[i]);
    is_near(g, want, N);
    sherd_tensor *second = gradient(sherd_sum(g), x, &(sherd_gradients_options){.retain = true});
    /* The second backward passes h again, and the hook sees that gradient, too. */
    for (int i = 0; i < N; i++) {
        double s = sin(at[i]), c = cos(at[i]), of_h = 8 * s * c;
        want[i] = of_h * of_h * c - 4 * s * s * s;
    }
    CHECK_EQ(runs, 2);
    is_near(second, want, N);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

/* ---- what else must hold --------------------------------------------------------------------- */

static void recording_may_be_off(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, "S(0)", 3), *free_of_it = leaf_of(world, "S(0)", 2);
    sherd_tensor *y = sherd_sum(sherd_mul(sherd_mul(x, x), x)), *in[] = {x, free_of_it}, *g[2];

    sherd_set_recording(world, false);
    sherd_gradients(g, in, 2, &y, 1,
                    &(sherd_gradients_options){.unused = true, .create_graph = true});
    CHECK(!sherd_set_recording(world, true));
    CHECK(sherd_requires_grad(g[0]));
    CHECK(g[1] == NULL);
    /* What depends on nothing has no gradient. */
    y = sherd_sum(sherd_scale(x, 2));
    CHECK(!sherd_requires_grad(gradient(y, x, &recorded)));
    CHECK_OK(sherd_world_check(world));
}

static void the_graph_is_retained(sherd_world *world)
{
    double at[MOST], want[N];
    sherd_tensor *x = leaf_of(world, "S(0)", 3), *y = sherd_sum(sherd_exp(x));

    whole(x, at);
    for (int i = 0; i < N; i++)
        want[i] = exp(at[i]);
    is_near(gradient(y, x, &recorded), want, N);
    is_near(gradient(y, x, &recorded), want, N);
    sherd_backward(y);
    is_near(sherd_grad(x), want, N);
    CHECK_OK(sherd_world_check(world));
    sherd_backward(y); /* that one has not retained it */
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "has run backward already") != NULL);
}

static void a_leaf_that_was_written_is_noticed(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, "S(0)", 3);
    sherd_tensor *g = gradient(sherd_sum(sherd_mul(x, sherd_mul(x, x))), x, &recorded);
    sherd_tensor *loss = sherd_sum(sherd_mul(g, g));

    sherd_set_recording(world, false);
    sherd_fill(x, 1);
    sherd_set_recording(world, true);
    sherd_backward(loss);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "was saved for backward and written since") != NULL);
}

/* An operator whose backward has no gradient itself. */
static sherd_tensor *attended(sherd_tensor *const *t, bool drops, sherd_generator *generator)
{
    return drops
               ? sherd_attention(t[0], t[1], t[2],
                                 &(sherd_attention_options){.dropout = 0.5, .generator = generator})
               : sherd_neighbourhood_attention(t[0], t[1], t[2],
                                               &(sherd_neighbourhood_options){.kernel = {3}});
}

/* What is not differentiated twice may be beside what is; only a gradient that reaches it fails. */
static void what_cannot_be_is_named(sherd_world *world)
{
    static const char *const names[] = {"sherd_neighbourhood_attention", "sherd_attention"};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_generator generator = sherd_generator_named("drop");
    double at[MOST], want[N];

    for (int i = 0; i < 4; i++) {
        bool drops = i % 2;
        sherd_scope_begin(world);
        sherd_tensor *t[3], *x = leaf_of(world, "S(0)", 3), *in[] = {NULL, x}, *g[2];
        for (int k = 0; k < 3; k++)
            t[k] = sherd_require_grad(
                spread(wave(world, SHERD_F64, 4, SHAPE(1, 4, 1, 2), 3 + k, 1, 0), mesh, "R"), true);
        in[0] = t[0];
        whole(x, at);
        sherd_tensor *y = attended(t, drops, &generator);
        y = sherd_add(sherd_sum(sherd_mul(y, y)), sherd_sum(sherd_mul(x, sherd_mul(x, x))));
        sherd_gradients(g, in, 2, &y, 1, &recorded);
        CHECK_OK(sherd_world_check(world));
        if (i < 2) {
            sherd_backward(sherd_sum(g[1]));
            for (int k = 0; k < N; k++)
                want[k] = 6 * at[k];
            is_near(sherd_grad(x), want, N);
            CHECK_OK(sherd_world_check(world));
        } else {
            sherd_backward(sherd_sum(g[0]));
            CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
            CHECK(strstr(sherd_world_error(world), names[drops]) != NULL);
            CHECK(strstr(sherd_world_error(world), "(create_graph)") != NULL);
        }
        sherd_scope_end(world);
    }
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

/* ---- an operator of the program's own ---------------------------------------------------------- */

static bool cube(sherd_call *call)
{
    const double *x = call->from[0];
    double *y = call->to[0];
    sherd_box box = sherd_tensor_box(call->out[0]);

    for (int64_t i = 0; i < box.size[0]; i++)
        y[i] = x[i] * x[i] * x[i];
    return true;
}

static void cube_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *x = sherd_node_operand(node, 0);

    grad_in[0] = sherd_mul(grad_out[0], sherd_scale(sherd_mul(x, x), 3));
}

static const sherd_op cube_op = {.name = "my_cube",
                                 .operand = {{"x", 0}},
                                 .result = {{"y", 0}},
                                 .rule = "...->...",
                                 .forward = cube,
                                 .backward = cube_back,
                                 .needs = {SHERD_NEEDS_OPERAND(0)}};

static void an_own_operator_takes_part(sherd_world *world)
{
    double at[MOST], want[N];
    sherd_tensor *x = leaf_of(world, "S(0)", 3);
    sherd_tensor *g = gradient(sherd_sum(sherd_apply(&cube_op, &x, 1, NULL)), x, &recorded);

    whole(x, at);
    for (int i = 0; i < N; i++)
        want[i] = 6 * at[i];
    is_near(gradient(sherd_sum(g), x, NULL), want, N);
    CHECK_OK(sherd_world_check(world));
}

/* ---- memory ------------------------------------------------------------------------------------ */

static sherd_tensor *some_net(sherd_tensor *x, sherd_tensor *w)
{
    sherd_tensor *h = sherd_softmax(sherd_gelu(sherd_matmul(x, w)), -1);
    return sherd_sum(sherd_mul(h, sherd_layer_norm(h, NULL, NULL, 1e-5)));
}

static void penalise(sherd_world *world, int64_t failing)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(5, 4), 3, 1, 0), mesh, "S(0)");
    sherd_tensor *w = spread(wave(world, SHERD_F64, 2, SHAPE(4, 6), 5, 1, 0), mesh, "S(1)");

    x = sherd_require_grad(x, true);
    w = sherd_require_grad(w, true);
    sherd_world_fail_allocation(world, failing);
    sherd_tensor *g = gradient(some_net(x, w), x, &recorded);
    sherd_backward(sherd_sum(sherd_mul(g, g)));
    sherd_world_fail_allocation(world, 0);
}

static void memory_stays_flat(sherd_world *world)
{
    int64_t before = 0;

    for (int step = 0; step < 60; step++) {
        sherd_scope_begin(world);
        penalise(world, 0);
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        CHECK_OK(sherd_world_check(world));
        if (step == 30)
            before = sherd_world_memory(world).live_bytes;
    }
    CHECK_EQ(sherd_world_memory(world).live_bytes, before);
}

static void any_allocation_may_fail(sherd_world *world)
{
    bool failing = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    int failures = 0, good = 0;

    for (int64_t n = 1; n < 4000 && good < 3; n += 1 + n / 40) {
        sherd_scope_begin(world);
        penalise(world, failing ? n : 0);
        sherd_scope_end(world);
        sherd_status status = sherd_world_check(world);
        if (!CHECK(status == SHERD_OK || status == SHERD_ENOMEM))
            fprintf(stderr, "  %s\n", sherd_world_error(world));
        failures += status != SHERD_OK;
        good += status == SHERD_OK;
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    CHECK(failures > 40);
    CHECK_EQ(good, 3);
}

static const check_test tests[] = {
    {TEST(derivatives_of_any_order), {1, 2, 3, 4, 8}},
    {TEST(a_hessian_times_a_vector), {1, 2, 3, 4}},
    {TEST(a_given_gradient_has_a_gradient), {1, 2, 3}},
    {TEST(moves_are_recorded), {1, 2, 3, 4}},
    {TEST(a_repeat_of_nothing_is_recorded), {1, 2, 3}},
    {TEST(hooks_are_recorded), {1, 2, 3}},
    {TEST(recording_may_be_off), {1, 2}},
    {TEST(the_graph_is_retained), {1, 2}},
    {TEST(a_leaf_that_was_written_is_noticed), {1, 2, 3}},
    {TEST(what_cannot_be_is_named), {1, 2, 3}},
    {TEST(an_own_operator_takes_part), {1, 2, 3}},
    {TEST(memory_stays_flat), {1, 2}},
    {TEST(any_allocation_may_fail), {1, 2, 3}},
};
CHECK_MAIN(tests)
