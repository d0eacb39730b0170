/* SPDX-License-Identifier: Apache-2.0 */
/* Backward from gradients that are given, through what is retained, and gradients of given
 * tensors. */
#include "tape_operators.h"

enum { N = 7 };

static const int64_t shape[] = {N};

static const sherd_layout *laid(sherd_world *world, const char *placements)
{
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    return layout_of(mesh_of(world, text), 1, shape, placements, NULL);
}

/* Elements of a settled tensor that are not factor times (their index, times what a pending sum
 * adds up to). */
static int64_t wrong_indices(sherd_tensor *t, double factor, int64_t addends)
{
    const double *data = t ? sherd_tensor_read(t) : NULL;
    sherd_box box = t ? sherd_tensor_box(t) : (sherd_box){0};
    int64_t wrong = data ? 0 : -1;

    for (int64_t i = 0; data && i < t->count; i++)
        wrong += data[i] != factor * whole_value(global_of(&box, t->shape, i), addends);
    return wrong;
}

static const char *const placements[] = {"R", "S(0)", "P(sum)"};

static void a_given_gradient_lies_as_it_likes(sherd_world *world)
{
    for (int tape = 0; tape < 2; tape++)
        for (int out = 0; out < 2; out++)
            for (int in = 0; in < LEN(placements); in++) {
                sherd_tensor *x = leaf_on(laid(world, placements[out]), 2);
                sherd_tensor *y = tape ? joined(x, x) : doubled(x);
                sherd_tensor *g = indices_on(laid(world, placements[in]), SHERD_F64);
                int64_t addends = in == 2 ? sherd_world_ranks(world) : 1;
                sherd_backward_with(&y, &g, 1, NULL);
                CHECK_EQ(wrong_indices(sherd_grad(x), 2, addends), 0);
                CHECK(sherd_grad(x)->layout == x->layout);
            }
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

static void a_plain_gradient_that_is_equal_is_replicated(sherd_world *world)
{
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *y = product(x, x);
    sherd_tensor *g = sherd_constant(world, SHERD_F64, shape, 1, 3);
    double data[N] = {0};

    sherd_backward_with(&y, &g, 1, NULL);
    CHECK_EQ(wrong_grads(x, 12), 0);
    CHECK_OK(sherd_world_check(world));
    y = product(x, x);
    g = sherd_from_data(world, SHERD_F64, shape, 1, data);
    sherd_backward_with(&y, &g, 1, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_backward_with") != NULL);
}

/* As with a buffer that is reused: what leaves and others keep of it stays. */
static void a_given_gradient_may_be_written_anew(sherd_world *world)
{
    for (int out = 0; out < 3; out++) {
        const sherd_layout *layout = out < 2 ? laid(world, placements[out]) : NULL;
        sherd_tensor *x = layout ? leaf_on(layout, 2) : leaf_of(world, N, 2);
        sherd_tensor *y = sherd_retain_grad(joined(x, x)), *own = doubled(x);
        sherd_tensor *up = layout ? sherd_constant_on(layout, SHERD_F64, 0)
                                  : sherd_constant(world, SHERD_F64, shape, 1, 0);
        sherd_tensor *outputs[] = {y, x, own}, *gradients[] = {up, up, up};
        for (int k = 1; k <= 3; k++) {
            double *data = sherd_tensor_write(up);
            for (int64_t i = 0; i < up->count; i++)
                data[i] = k;
            if (!layout)
                sherd_mark_equal(up);
            sherd_backward_with(outputs, gradients, 3, &(sherd_backward_options){.retain = true});
        }
        CHECK_EQ(wrong_grads(x, 6 * (2 + 1 + 2)), 0);
        CHECK_EQ(wrong_grads(y, 6), 0);
        sherd_clear_grad(x);
        sherd_backward_with(&x, &up, 1, NULL);
        ((double *)sherd_tensor_write(up))[0] = 7;
        CHECK_EQ(wrong_grads(x, 3), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static void several_outputs_add_up(sherd_world *world)
{
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *y = doubled(x), *z = product(y, x);
    sherd_tensor *outputs[] = {z, y, total(z), x, y};
    sherd_tensor *ones = sherd_constant_on(laid(world, "R"), SHERD_F64, 1);
    sherd_tensor *gradients[] = {ones, ones, NULL, ones, ones};

    /* z = 2 x^2: 8; y: 2; total: 8; x: 1; y: 2 */
    sherd_backward_with(outputs, gradients, 5, NULL);
    CHECK_EQ(wrong_grads(x, 21), 0);
    sherd_backward_with(NULL, NULL, 0, NULL);
    sherd_backward_with(outputs, NULL, 0, NULL);
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

static void a_retained_graph_runs_again(sherd_world *world)
{
    const sherd_backward_options retain = {.retain = true}, replace = {.replace = true};
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *loss = total(product(doubled(x), x));
    int64_t saved = sherd_saved_bytes(world);

    for (int run = 1; run <= 3; run++) {
        sherd_backward_with(&loss, NULL, 1, &retain);
        CHECK_EQ(wrong_grads(x, 8 * run), 0);
        CHECK_EQ(sherd_saved_bytes(world), saved);
    }
    sherd_backward_with(&loss, NULL, 1, &replace);
    CHECK_EQ(wrong_grads(x, 8), 0);
    CHECK_EQ(sherd_saved_bytes(world), 0);
    CHECK_OK(sherd_world_check(world));
    sherd_backward(loss);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "retain the graph") != NULL);
}

/* What was gathered for a backward goes with it, also where what was saved stays. */
static void a_retained_graph_keeps_no_gathered_tensors(sherd_world *world)
{
    const sherd_backward_options retain = {.retain = true};
    sherd_tensor *w = leaf_on(laid(world, "S(0)"), 2), *x = leaf_on(laid(world, "R"), 3), *whole;
    sherd_tensor *loss, *out;

    sherd_scope_begin(world);
    whole = moved(w, laid(world, "R"));
    loss = total(joined(product(whole, x), product(whole, x)));
    sherd_tensor_retain(loss);
    sherd_scope_end(world);
    int64_t live = sherd_world_memory(world).live_bytes;
    for (int run = 0; run < 3; run++) {
        sherd_scope_begin(world);
        sherd_backward_with(&loss, NULL, 1, &retain);
        CHECK_EQ(wrong_grads(w, 6), 0);
        CHECK_EQ(wrong_grads(x, 4), 0);
        sherd_gradients(&out, &x, 1, &loss, 1, &(sherd_gradients_options){.retain = true});
        sherd_clear_grad(w);
        sherd_clear_grad(x);
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    }
    sherd_tensor_release(loss);
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

static void gradients_of_tensors_touch_no_leaf(sherd_world *world)
{
    const sherd_gradients_options retain = {.retain = true};
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *w = leaf_on(laid(world, "R"), 3);
    sherd_tensor *y = doubled(x), *z = product(y, w), *loss = total(product(z, y));
    sherd_tensor *inputs[] = {y, x, w, y}, *out[4];

    /* loss = w y^2, y = 2x */
    sherd_gradients(out, inputs, 4, &loss, 1, &retain);
    for (int i = 0; i < 4; i++) {
        static const double wanted[] = {24, 48, 16, 24};
        CHECK(out[i]->layout == inputs[i]->layout);
        const double *data = sherd_tensor_read(out[i]);
        for (int64_t k = 0; data && k < out[i]->count; k++)
            CHECK_NEAR(data[k], wanted[i], 0);
    }
    CHECK(sherd_grad(x) == NULL && sherd_grad(w) == NULL && sherd_grad(y) == NULL);
    /* What does not lead to w is not computed, and not used up. */
    sherd_gradients(out, &inputs[2], 1, &loss, 1, NULL);
    CHECK_OK(sherd_world_check(world));
    sherd_backward(total(y));
    CHECK_EQ(wrong_grads(x, 2), 0);
    CHECK_OK(sherd_world_check(world));
}

static void an_unused_input_is_an_error_or_null(sherd_world *world)
{
    const sherd_gradients_options unused = {.unused = true, .retain = true};
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *y = leaf_on(laid(world, "S(0)"), 2);
    sherd_tensor *loss, *inputs[] = {x, y}, *out[2];

    sherd_scope_begin(world);
    loss = total(product(x, x));
    sherd_gradients(out, inputs, 2, &loss, 1, &unused);
    CHECK(out[0] && !out[1]);
    CHECK_OK(sherd_world_check(world));
    sherd_gradients(out, inputs, 2, &loss, 1, NULL);
    CHECK(sherd_tensor_failed(out[0]) && sherd_tensor_failed(out[1]));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "no output depends on input 1, f64[7") != NULL);
    sherd_scope_end(world);
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

static void a_retained_gradient_is_kept_and_adds_up(sherd_world *world)
{
    const sherd_backward_options retain = {.retain = true}, replace = {.replace = true};
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *y = doubled(x), *loss;

    CHECK(sherd_grad(y) == NULL);
    CHECK(sherd_retain_grad(y) == y && sherd_retain_grad(x) == x);
    loss = total(product(y, y));
    sherd_backward_with(&loss, NULL, 1, &retain);
    CHECK_EQ(wrong_grads(y, 8), 0);
    sherd_backward_with(&loss, NULL, 1, &retain);
    CHECK_EQ(wrong_grads(y, 16), 0);
    CHECK_EQ(wrong_grads(x, 32), 0);
    sherd_clear_grad(y);
    CHECK(sherd_grad(y) == NULL);
    sherd_backward_with(&loss, NULL, 1, &replace);
    CHECK_EQ(wrong_grads(y, 8), 0);
    CHECK_EQ(wrong_grads(x, 16), 0);
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

/* A pending gradient is settled once it is asked for, and goes on pending to those that take it. */
static void a_retained_pending_gradient_is_settled(sherd_world *world)
{
    sherd_tensor *x = leaf_on(laid(world, "R"), 2), *y = doubled(x), *z = fork_of(y);
    int ranks = sherd_world_ranks(world);

    sherd_retain_grad(y);
    sherd_backward(total(product(z, z)));
    CHECK_EQ(wrong_grads(y, 4 * 2 * ranks), 0);
    CHECK_EQ(wrong_grads(x, 8 * 2 * ranks), 0);
    CHECK(sherd_grad(y)->layout == y->layout);
    CHECK_OK(sherd_world_check(world));
}

/* All of it, on a world whose n-th allocation fails on rank 0. */
static void everything(const sherd_layout *rows, const sherd_layout *pending, bool good)
{
    const sherd_backward_options retain = {.retain = true};
    sherd_tensor *x = leaf_on(rows, 2), *y = doubled(x), *z = product(y, x);
    sherd_tensor *g = sherd_constant_on(pending, SHERD_F64, 1);
    sherd_tensor *outputs[] = {z, y}, *gradients[] = {g, g}, *out[2], *inputs[] = {x, y};

    sherd_retain_grad(y);
    sherd_backward_with(outputs, gradients, 2, &retain);
    sherd_gradients(out, inputs, 2, outputs, 2, &(sherd_gradients_options){.gradients = gradients});
    CHECK(!good || (wrong_grads(x, 10) == 0 && wrong_grads(y, 3) == 0 && out[1] && out[0]));
}

static void no_memory_fails_and_leaks_nothing(sherd_world *world)
{
    const sherd_layout *rows = laid(world, "S(0)"), *pending = laid(world, "P(sum)");
    sherd_status status = SHERD_ENOMEM;

    everything(rows, pending, true);
    CHECK_OK(sherd_world_check(world));
    for (int n = 1; status && n < 400; n++) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        everything(rows, pending, false);
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        status = sherd_world_check(world);
        CHECK(!status || status == SHERD_ENOMEM);
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    CHECK_OK(status);
    everything(rows, pending, true);
    CHECK_OK(sherd_world_check(world));
}

static void an_alarm_in_the_middle_ends_it(sherd_world *world)
{
    sherd_tensor *x = leaf_on(laid(world, "S(0)"), 2), *loss, *out;

    for (int r = 0; r < sherd_world_ranks(world); r++) {
        sherd_scope_begin(world);
        loss = total(product(doubled(x), x));
        if (sherd_world_rank(world) == r)
            sherd_world_fail(world, SHERD_EINVAL, "a bad day");
        sherd_backward_with(&loss, NULL, 1, NULL);
        sherd_gradients(&out, &x, 1, &loss, 1, NULL);
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        sherd_clear_grad(x);
    }
    sherd_backward(total(doubled(x)));
    CHECK_EQ(wrong_grads(x, 2), 0);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_given_gradient_may_be_written_anew), {1, 2, 3}},
    {TEST(a_given_gradient_lies_as_it_likes), {1, 2, 3, 4, 8}},
    {TEST(a_plain_gradient_that_is_equal_is_replicated), {1, 2, 3}},
    {TEST(several_outputs_add_up), {1, 2, 3, 4, 8}},
    {TEST(a_retained_graph_runs_again), {1, 2, 3, 4}},
    {TEST(a_retained_graph_keeps_no_gathered_tensors), {1, 2, 3, 4}},
    {TEST(gradients_of_tensors_touch_no_leaf), {1, 2, 3, 4}},
    {TEST(an_unused_input_is_an_error_or_null), {1, 2, 3}},
    {TEST(a_retained_gradient_is_kept_and_adds_up), {1, 2, 3, 4}},
    {TEST(a_retained_pending_gradient_is_settled), {1, 2, 3, 4}},
    {TEST(no_memory_fails_and_leaks_nothing), {1, 2, 4}},
    {TEST(an_alarm_in_the_middle_ends_it), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
