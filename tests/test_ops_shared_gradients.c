/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients that share memory: what sherd_grad has returned is written in place by programs that
 * unscale, clip or add noise by hand, so no other gradient may change with it. One that nothing
 * shares is not copied.
 */
#include "autograd/tape.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_shape.h"
#include "tensors.h"

enum { N = 6 };
static const int64_t shape[] = {N};

/* Where leaves lie: plain, replicated, sharded. */
static const char *const places[] = {NULL, "R", "S(0)"};

static sherd_tensor *constant(sherd_world *world, const char *place, double value)
{
    return place ? sherd_constant_on(layout_of(line_of_ranks(world), 1, shape, place, NULL),
                                     SHERD_F64, value)
                 : sherd_constant(world, SHERD_F64, shape, 1, value);
}

static sherd_tensor *leaf(sherd_world *world, const char *place, double value)
{
    return sherd_require_grad(constant(world, place, value), true);
}

/* Whether all elements that this rank has are this. */
static bool is_all(sherd_tensor *t, double value)
{
    const double *data = sherd_tensor_read(t);
    sherd_box box = sherd_tensor_box(t);
    int64_t wrong = data || sherd__box_count(&box) == 0 ? 0 : 1;

    for (int64_t i = 0; data && i < sherd__box_count(&box); i++)
        wrong += data[i] != value;
    return wrong == 0;
}

static void times_ten(sherd_tensor *t)
{
    bool before = sherd_set_recording(sherd_tensor_world(t), false);
    sherd_mul_by(t, sherd_constant(sherd_tensor_world(t), SHERD_F64, NULL, 0, 10));
    sherd_set_recording(sherd_tensor_world(t), before);
}

/* A function of elements writes its gradient over the one that it gets, but not over one that was
 * given, is retained, or is another tensor's too. */
static void only_what_is_spare_is_written_over(sherd_world *world)
{
    for (int p = 0; p < LEN(places); p++)
        for (int retained = 0; retained < 2; retained++) {
            sherd_scope_begin(world);
            sherd_tensor *x = leaf(world, places[p], 3), *other = leaf(world, places[p], 1);
            sherd_tensor *y = sherd_square(x), *seed = constant(world, places[p], 2);
            if (retained)
                sherd_retain_grad(y);
            sherd_backward_with(&y, &seed, 1, NULL);
            CHECK(is_all(sherd_grad(x), 12) && is_all(seed, 2));
            CHECK(!retained || is_all(sherd_grad(y), 2));
            sherd_clear_grad(x);
            y = sherd_square(x);
            if (retained)
                sherd_retain_grad(y);
            sherd_tensor *z = sherd_add(y, other);
            sherd_backward_with(&z, &seed, 1, NULL);
            CHECK(is_all(sherd_grad(x), 12) && is_all(sherd_grad(other), 2) && is_all(seed, 2));
            CHECK(!retained || is_all(sherd_grad(y), 2));
            sherd_clear_grad(x);
            y = sherd_square(x);
            if (retained)
                sherd_retain_grad(y);
            sherd_backward(sherd_sum(sherd_square(y)));
            CHECK(is_all(sherd_grad(x), 108) && (!retained || is_all(sherd_grad(y), 18)));
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* That of a product's operand is the pass's own, but not written over where it is retained. */
static void an_operands_gradient_is_spare_unless_retained(sherd_world *world)
{
    const int64_t rows[] = {3, 4}, weight[] = {2, 4};

    for (int retained = 0; retained < 2; retained++) {
        sherd_tensor *w = sherd_constant(world, SHERD_F64, weight, 2, 1);
        sherd_tensor *x = sherd_require_grad(sherd_constant(world, SHERD_F64, rows, 2, 3), true);
        sherd_tensor *y = sherd_square(x);
        if (retained)
            sherd_retain_grad(y);
        sherd_backward(sherd_sum(sherd_linear(y, w, NULL)));
        CHECK(is_all(sherd_grad(x), 12) && (!retained || is_all(sherd_grad(y), 2)));
    }
    CHECK_OK(sherd_world_check(world));
}

static void two_leaves_are_written_apart(sherd_world *world)
{
    for (int p = 0; p < LEN(places); p++)
        for (int given = 0; given < 2; given++) {
            sherd_scope_begin(world);
            sherd_tensor *a = leaf(world, places[p], 1), *b = leaf(world, places[p], 2);
            sherd_tensor *seed = constant(world, places[p], 1), *y = sherd_add(a, b);
            if (given)
                sherd_backward_with(&y, &seed, 1, NULL);
            else
                sherd_backward(sherd_sum(y));
            times_ten(sherd_grad(a));
            CHECK(is_all(sherd_grad(a), 10));
            CHECK(is_all(sherd_grad(b), 1));
            CHECK(is_all(seed, 1));
            times_ten(sherd_grad(b));
            times_ten(seed);
            CHECK(is_all(sherd_grad(a), 10));
            CHECK(is_all(sherd_grad(b), 10));
            sherd_backward(sherd_sum(sherd_add(a, b)));
            CHECK(is_all(sherd_grad(a), 11));
            CHECK(is_all(sherd_grad(b), 11));
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

static void a_retained_gradient_is_written_apart(sherd_world *world)
{
    for (int p = 0; p < LEN(places); p++) {
        sherd_scope_begin(world);
        sherd_tensor *a = leaf(world, places[p], 1), *b = leaf(world, places[p], 2);
        sherd_tensor *y = sherd_retain_grad(sherd_add(a, b));
        sherd_backward(sherd_sum(y));
        times_ten(sherd_grad(y));
        CHECK(is_all(sherd_grad(y), 10));
        CHECK(is_all(sherd_grad(a), 1));
        CHECK(is_all(sherd_grad(b), 1));
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* What was returned once is the gradient: views of it and further calls are of the same memory. */
static void what_was_returned_stays(sherd_world *world)
{
    for (int p = 0; p < LEN(places); p++) {
        sherd_scope_begin(world);
        sherd_tensor *a = leaf(world, places[p], 1), *b = leaf(world, places[p], 2);
        sherd_backward(sherd_sum(sherd_add(a, b)));
        sherd_tensor *g = sherd_grad(a), *view = sherd_detach(g);
        CHECK(sherd_grad(a) == g);
        times_ten(view);
        CHECK(sherd_grad(a) == g);
        CHECK(is_all(g, 10));
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A gradient that was returned becomes the gradient of another leaf. */
static void a_gradient_is_given_on(sherd_world *world)
{
    for (int p = 0; p < LEN(places); p++) {
        sherd_scope_begin(world);
        sherd_tensor *a = leaf(world, places[p], 1), *b = leaf(world, places[p], 2), *y, *g;
        sherd_backward(sherd_sum(sherd_scale(a, 3)));
        g = sherd_grad(a);
        y = sherd_detach(b);
        y = sherd_add(b, y);
        sherd_backward_with(&y, &g, 1, NULL);
        times_ten(sherd_grad(b));
        CHECK(is_all(sherd_grad(a), 3));
        CHECK(is_all(sherd_grad(b), 30));
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static void one_that_is_alone_is_not_copied(sherd_world *world)
{
    for (int p = 0; p < LEN(places); p++) {
        sherd_scope_begin(world);
        sherd_tensor *a = leaf(world, places[p], 1), *b = constant(world, places[p], 2);
        sherd_scope_begin(world);
        sherd_backward(sherd_sum(sherd_mul(a, b)));
        sherd_scope_end(world);
        int64_t bytes = sherd_world_memory(world).live_bytes;
        const sherd_tensor *raw = sherd__raw_grad(a);
        CHECK(sherd_grad(a) == raw);
        CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* One rank alone looks at gradients that are complete everywhere. */
static void one_rank_may_look_alone(sherd_world *world)
{
    sherd_tensor *a = leaf(world, "R", 1), *b = leaf(world, "R", 2);

    sherd_backward(sherd_sum(sherd_add(a, b)));
    if (sherd_world_rank(world) == 0)
        CHECK(is_all(sherd_grad(a), 1));
    CHECK_OK(sherd_world_check(world));
    times_ten(sherd_grad(a));
    CHECK(is_all(sherd_grad(b), 1));
    CHECK(is_all(sherd_full(sherd_grad(a)), 10));
    CHECK_OK(sherd_world_check(world));
}

/* Addends of two leaves that no call has added up yet. */
static void pending_gradients_are_written_apart(sherd_world *world)
{
    const sherd_placement sum = sherd_partial(SHERD_SUM);
    sherd_tensor *a = leaf(world, "R", 1), *b = leaf(world, "R", 2);
    double ranks = sherd_world_ranks(world);

    sherd_backward(sherd_sum(sherd_to_local_with(sherd_add(a, b), &sum)));
    times_ten(sherd_grad(a));
    CHECK(is_all(sherd_grad(a), 10 * ranks));
    CHECK(is_all(sherd_grad(b), ranks));
    CHECK_OK(sherd_world_check(world));
}

static void look(sherd_world *world)
{
    const sherd_layout *whole = NULL;
    const sherd_mesh *mesh = NULL;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, sherd_world_ranks(world) == 2 ? "2" : "3") == SHERD_OK &&
        sherd_layout_parse_placements(&whole, mesh, 1, shape, "R", NULL) == SHERD_OK) {
        sherd_tensor *a = sherd_require_grad(sherd_constant_on(whole, SHERD_F64, 1), true);
        sherd_tensor *b = sherd_require_grad(sherd_constant_on(whole, SHERD_F64, 2), true);
        sherd_backward(sherd_sum(sherd_add(a, b)));
        sherd_tensor *first = sherd_grad(a), *second = sherd_grad(b);
        if (first && second)
            sherd_add(first, second);
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, sherd_world_ranks(world) - 1, look);
}

static const check_test tests[] = {
    {TEST(only_what_is_spare_is_written_over), {1, 2, 3}},
    {TEST(an_operands_gradient_is_spare_unless_retained), {1, 2}},
    {TEST(two_leaves_are_written_apart), {1, 2, 3, 8}},
    {TEST(a_retained_gradient_is_written_apart), {1, 2, 3}},
    {TEST(what_was_returned_stays), {1, 2, 3}},
    {TEST(a_gradient_is_given_on), {1, 3}},
    {TEST(one_that_is_alone_is_not_copied), {1, 2, 3}},
    {TEST(one_rank_may_look_alone), {1, 2, 3}},
    {TEST(pending_gradients_are_written_apart), {1, 2, 3, 4}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2, 3}},
};
CHECK_MAIN(tests)
