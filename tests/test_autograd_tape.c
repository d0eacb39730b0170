/* SPDX-License-Identifier: Apache-2.0 */
/* The walk: gradients of small graphs known by hand, in any layout, and what is an error. */
#include "tape_operators.h"

#include "sherd/comm.h"

static void a_chain_multiplies(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, 5, 3), *y = x;

    for (int i = 0; i < 4; i++)
        y = doubled(y);
    sherd_backward(total(y));
    CHECK_EQ(wrong_grads(x, 16), 0);
    CHECK_OK(sherd_world_check(world));
}

static void a_diamond_adds(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, 5, 3), *y = doubled(x), *a = doubled(y), *b = product(y, y);

    sherd_backward(total(product(a, b))); /* 4x * 4x^2 = 16x^3: 48 x^2 */
    CHECK_EQ(wrong_grads(x, 48 * 9), 0);
    CHECK_OK(sherd_world_check(world));
}

static void a_leaf_used_three_times_gets_three_gradients(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, 4, 2);

    sherd_backward(total(product(product(x, x), x)));
    CHECK_EQ(wrong_grads(x, 12), 0);
    sherd_backward(total(doubled(x)));
    CHECK_EQ(wrong_grads(x, 14), 0);
    sherd_clear_grad(x);
    CHECK(sherd_grad(x) == NULL);
    sherd_backward(total(doubled(x)));
    CHECK_EQ(wrong_grads(x, 2), 0);
    CHECK_OK(sherd_world_check(world));
}

/* Two leaves that were handed the same tensor as gradient must not add into each other. */
static void one_gradient_of_two_leaves_is_not_shared_when_added_to(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, 4, 2), *y = leaf_of(world, 4, 3);

    sherd_backward(total(joined(x, y)));
    sherd_backward(total(joined(x, joined(x, y))));
    CHECK_EQ(wrong_grads(x, 3), 0);
    CHECK_EQ(wrong_grads(y, 2), 0);
    sherd_backward(total(joined(doubled(x), joined(doubled(x), y))));
    CHECK_EQ(wrong_grads(x, 7), 0);
    CHECK_EQ(wrong_grads(y, 3), 0);
    CHECK_OK(sherd_world_check(world));
}

static void split_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const double *factor = sherd_node_attributes(node);

    CHECK(grad_out[0] == NULL || grad_out[1] == NULL);
    grad_in[0] = grad_out[0] ? scaled(grad_out[0], factor[0]) : scaled(grad_out[1], factor[1]);
}

static void outputs_that_nobody_uses_get_nothing(sherd_world *world)
{
    static const sherd_op split = {.name = "split", .takes_pending = false, .backward = split_back};
    static const double factors[2] = {3, 5};

    for (int used = 0; used < 2; used++) {
        sherd_tensor *x = leaf_of(world, 4, 2), *unused = leaf_of(world, 4, 2);
        sherd_tensor *out[2] = {scaled(x, factors[0]), scaled(x, factors[1])};
        sherd_tensor *in[3] = {x, NULL, unused};
        sherd_node *node =
            sherd__record_node(world, &split, in, 3, out, 2, factors, sizeof factors);
        CHECK(sherd_node_wants(node, 0) && !sherd_node_wants(node, 1) && sherd_node_wants(node, 2));
        CHECK(sherd_requires_grad(out[0]) && sherd_requires_grad(out[1]));
        sherd_backward(total(out[used]));
        CHECK_EQ(wrong_grads(x, factors[used]), 0);
        CHECK(sherd_grad(unused) == NULL);
    }
    CHECK_OK(sherd_world_check(world));
}

static void without_attributes_back(sherd_node *node, sherd_tensor *const *grad_out,
                                    sherd_tensor **grad_in)
{
    CHECK(sherd_node_attributes(node) == NULL);
    grad_in[0] = grad_out[0];
}

/* As in forward: a kernel that gets them asks whether there are any. */
static void no_attributes_are_null(sherd_world *world)
{
    static const sherd_op same = {.name = "same", .backward = without_attributes_back};
    sherd_tensor *x = leaf_of(world, 4, 2), *y = scaled(x, 1);

    sherd__record_node(world, &same, &x, 1, &y, 1, NULL, 0);
    sherd_backward(total(y));
    CHECK_EQ(wrong_grads(x, 1), 0);
    CHECK_OK(sherd_world_check(world));
}

static void a_scalar_leaf_is_its_own_loss(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, 1, 2);

    sherd_backward(x);
    CHECK_EQ(wrong_grads(x, 1), 0);
    CHECK_OK(sherd_world_check(world));
}

static void what_is_not_recorded_flows_nowhere(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, 4, 2), *c = sherd_constant(world, SHERD_F64, x->shape, 1, 5);

    CHECK(sherd_set_recording(world, false));
    CHECK(!sherd_requires_grad(doubled(x)));
    CHECK(!sherd_set_recording(world, true));
    CHECK(!sherd_requires_grad(doubled(c)));
    CHECK(sherd_requires_grad(doubled(x)));
    sherd_backward(total(product(x, c)));
    CHECK_EQ(wrong_grads(x, 5), 0);
    CHECK(sherd_grad(c) == NULL);
    CHECK(sherd_set_recording(world, true));
    sherd_require_grad(x, false);
    CHECK(!sherd_requires_grad(doubled(x)));
    CHECK_OK(sherd_world_check(world));
}

static void wrong_uses_are_named_errors(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, 4, 2), *y = doubled(x), *loss = total(product(y, x));
    int64_t n = 4;

    sherd_backward(y);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "f64[4] has not one element") != NULL);
    sherd_backward(sherd_constant(world, SHERD_F64, NULL, 0, 1));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_require_grad(y, true)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(
        sherd_tensor_failed(sherd_require_grad(sherd_constant(world, SHERD_I32, &n, 1, 0), true)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);

    sherd_backward(loss);
    CHECK_EQ(wrong_grads(x, 8), 0);
    CHECK_OK(sherd_world_check(world));
    sherd_backward(loss);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "total has run backward already") != NULL);
    sherd_backward(total(y));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "doubled has run backward already") != NULL);

    sherd_tensor *f = sherd__failed(world);
    sherd_backward(f);
    CHECK(sherd_require_grad(f, true) == f);
    CHECK(!sherd_requires_grad(f));
    CHECK(sherd_grad(f) == f);
    sherd_clear_grad(f);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world),
                 "sherd_backward: it was given a tensor that an earlier step failed to make") !=
          NULL);
}

static void wrong_shape_back(sherd_node *node, sherd_tensor *const *grad_out,
                             sherd_tensor **grad_in)
{
    int64_t n = 3;
    (void)grad_out;
    grad_in[0] = sherd_constant(sherd__node_world(node), SHERD_F64, &n, 1, 1);
}

static void a_broken_operator_is_an_error(sherd_world *world)
{
    static const sherd_op broken = {
        .name = "broken", .takes_pending = false, .backward = wrong_shape_back};
    sherd_tensor *x = leaf_of(world, 4, 2), *out = scaled(x, 1);

    sherd__record_node(world, &broken, &x, 1, &out, 1, NULL, 0);
    sherd_backward(total(out));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "broken") != NULL);
    CHECK(sherd_grad(x) == NULL);
    CHECK_OK(sherd_world_check(world));
}

/* Many nodes: built, walked and freed with a flat stack and no leak. */
static void a_long_chain_is_walked_and_freed(sherd_world *world)
{
    int64_t live = sherd__world_heap(world)->live;
    int64_t bytes = sherd_world_memory(world).live_bytes;
    sherd_tensor *x = sherd_tensor_retain(leaf_of(world, 1, 0));

    for (int run = 0; run < 2; run++) {
        sherd_scope_begin(world);
        sherd_tensor *y = sherd_tensor_retain(x);
        for (int i = 0; i < 100000; i++) {
            sherd_scope_begin(world);
            sherd_tensor *next = sherd_tensor_retain(doubled(y));
            sherd_tensor_release(y);
            y = next;
            sherd_scope_end(world);
        }
        if (run)
            sherd_backward(y);
        sherd_tensor_release(y);
        sherd_scope_end(world);
    }
    CHECK(sherd_grad(x) != NULL);
    sherd_scope_begin(world);
    sherd_scope_end(world);
    sherd_tensor_release(x);
    sherd_tensor_release(x);
    CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
    /* The scopes' own tables are warm memory that stays. */
    CHECK(sherd__world_heap(world)->live <= live + 2);
    CHECK_OK(sherd_world_check(world));
}

/* Wide: the queue holds ten thousand nodes at once. */
static void a_wide_graph_is_walked(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, 1, 1), *sum = doubled(x);
    static sherd_tensor *level[4096];

    if (sherd_world_rank(world) != 0) {
        CHECK_OK(sherd_world_check(world));
        return;
    }
    for (int i = 0; i < 4096; i++)
        level[i] = doubled(x);
    for (int n = 4096; n > 1; n /= 2)
        for (int i = 0; i < n / 2; i++)
            level[i] = joined(level[2 * i], level[2 * i + 1]);
    sherd_backward(joined(sum, level[0]));
    CHECK_EQ(wrong_grads(x, 2 * 4097), 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- distributed ---------------------------------------------------------------------------- */

static void gradients_lie_as_their_tensors(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const char *const placements[] = {"RR", "S(0)S(1)", "S(1)R", "S(0)S(0)"};
    static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 1}, {4, 0}};

    for (int s = 0; s < LEN(shapes); s++)
        for (int p = 0; p < LEN(placements); p++) {
            const sherd_layout *layout = layout_of(mesh, 2, shapes[s], placements[p], NULL);
            sherd_tensor *x = leaf_on(layout, 3);
            sherd_backward(total(product(doubled(x), x)));
            sherd_tensor *grad = sherd_grad(x);
            CHECK(grad->layout == layout);
            CHECK_EQ(wrong_grads(x, 12), 0);
        }
    CHECK_OK(sherd_world_check(world));
}

static int64_t calls(sherd_world *world)
{
    int64_t count = 0;
    for (int i = 0; i < sherd_comm_count(world); i++)
        count += sherd_comm_get(world, i).calls;
    return count;
}

/* q, k and v read one x: their pending gradients are added first, and settled by one call. */
static void pending_gradients_are_settled_once(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "3");
    int64_t shape[1] = {5};
    sherd_tensor *w = leaf_on(layout_of(mesh, 1, shape, "R", NULL), 1), *x = doubled(w);
    sherd_tensor *q = fork_of(x), *k = fork_of(x), *v = fork_of(x);
    sherd_tensor *loss = total(joined(q, joined(k, v)));

    sherd_comm_reset(world);
    sherd_backward(loss);
    CHECK_EQ(calls(world), 1);
    CHECK_EQ(wrong_grads(w, 18), 0);
    CHECK_EQ(calls(world), 1);
    CHECK_OK(sherd_world_check(world));
}

/* Settled into the output's layout, where that is sharded: half the bytes of making it whole. */
static void a_pending_gradient_of_a_shard_is_scattered(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[1] = {6};
    const sherd_layout *rows = layout_of(mesh, 1, shape, "S(0)", NULL);
    const sherd_layout *whole = layout_of(mesh, 1, shape, "R", NULL);
    sherd_tensor *w = leaf_on(rows, 1), *x = moved(doubled(w), whole);

    sherd_comm_reset(world);
    sherd_backward(total(fork_of(x)));
    CHECK_EQ(calls(world), 1);
    CHECK_TEXT(sherd_comm_get(world, 0).op, "reduce_scatter");
    CHECK(sherd__raw_grad(w)->layout == rows);
    CHECK_EQ(wrong_grads(w, 4), 0);
    CHECK_OK(sherd_world_check(world));
}

static void a_gradient_in_another_layout_is_brought_to_the_output(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const char *const placements[] = {"RR", "S(0)S(1)", "S(1)R", "S(0)S(0)"};
    int64_t shape[2] = {7, 5};

    for (int i = 0; i < LEN(placements); i++)
        for (int j = 0; j < LEN(placements); j++) {
            const sherd_layout *layout = layout_of(mesh, 2, shape, placements[i], NULL);
            const sherd_layout *other = layout_of(mesh, 2, shape, placements[j], NULL);
            sherd_tensor *w = leaf_on(layout, 1), *x = doubled(w);
            sherd_backward(total(joined(turned(x, other), x)));
            CHECK_EQ(wrong_grads(w, 4), 0);
            /* A leaf takes it as it comes, unless it is larger. */
            sherd_clear_grad(w);
            sherd_backward(total(turned(w, other)));
            bool larger = sherd__layout_largest(other) > sherd__layout_largest(layout);
            CHECK(sherd__raw_grad(w)->layout == (larger ? layout : other));
            CHECK_EQ(wrong_grads(w, 1), 0);
            CHECK(sherd__raw_grad(w)->layout == layout);
        }
    CHECK_OK(sherd_world_check(world));
}

static void the_gradient_of_a_leaf_stays_pending_until_asked(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[1] = {6};
    const sherd_layout *whole = layout_of(mesh, 1, shape, "R", NULL);
    sherd_tensor *w = leaf_on(whole, 1);

    sherd_comm_reset(world);
    sherd_backward(total(fork_of(w)));
    sherd_backward(total(fork_of(w)));
    CHECK_EQ(calls(world), 0);
    CHECK_EQ(sherd__raw_grad(w)->layout->pending_axes, 1);
    sherd_tensor *grad = sherd_grad(w);
    CHECK_EQ(calls(world), 1);
    CHECK(grad->layout == whole);
    CHECK(sherd_grad(w) == grad);
    CHECK_EQ(calls(world), 1);
    CHECK_EQ(wrong_grads(w, 4), 0);
    /* One of another layout is added to it: the result is right whatever it lies in. */
    sherd_backward(total(doubled(w)));
    CHECK_EQ(wrong_grads(w, 6), 0);
    sherd_backward(total(fork_of(w)));
    CHECK_EQ(wrong_grads(w, 8), 0);
    sherd__set_grad(w, NULL);
    CHECK(sherd_grad(w) == NULL);
    CHECK_OK(sherd_world_check(world));
}

static void gradients_of_any_two_layouts_add_up(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const char *const placements[] = {"RR",         "S(0)S(1)",   "P(sum)R",
                                             "P(sum)S(0)", "S(1)P(sum)", "P(sum)P(sum)",
                                             "P(max)R",    "P(avg)R",    "S(1)S(0)"};
    static const int addends[] = {1, 1, 2, 2, 2, 4, 0, 0, 1};
    int64_t shape[2] = {5, 3};
    const sherd_layout *whole = layout_of(mesh, 2, shape, "RR", NULL);

    for (int i = 0; i < LEN(placements); i++)
        for (int j = 0; j < LEN(placements); j++) {
            const sherd_layout *a = layout_of(mesh, 2, shape, placements[i], NULL);
            const sherd_layout *b = layout_of(mesh, 2, shape, placements[j], NULL);
            sherd_tensor *sum =
                sherd__accumulate(indices_on(a, SHERD_F64), indices_on(b, SHERD_F64));
            const double *data = sherd_tensor_read(sherd__move_to(sum, whole, false));
            int64_t wrong = data ? 0 : -1;
            for (int64_t k = 0; data && k < 15; k++) {
                double x =
                    addends[i] ? whole_value(k, addends[i]) : (double)k + (i == 6 ? 1000 : 500);
                double y =
                    addends[j] ? whole_value(k, addends[j]) : (double)k + (j == 6 ? 1000 : 500);
                wrong += data[k] != x + y;
            }
            CHECK_EQ(wrong, 0);
        }
    CHECK_OK(sherd_world_check(world));
    sherd_tensor *plain = sherd_constant(world, SHERD_F64, shape, 2, 1);
    CHECK(sherd_tensor_failed(sherd__accumulate(plain, sherd_constant_on(whole, SHERD_F64, 1))));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_OK(sherd_world_check(world));
}

static void sums_of_plain_gradients_vary_over_the_union(sherd_world *world)
{
    int64_t n = 3;
    sherd_tensor *a = sherd_constant(world, SHERD_F64, &n, 1, 1),
                 *b = sherd_constant(world, SHERD_F64, &n, 1, 2);

    a->varies = 1;
    b->varies = 4;
    sherd_tensor_retain(a);
    sherd_tensor *c = sherd__accumulate(a, b);
    CHECK(c != a);
    CHECK_EQ(c->varies, 5);
    sherd_tensor_release(a);
    CHECK(sherd__accumulate(a, b) == a);
    CHECK_EQ(a->varies, 5);
    CHECK(((const double *)sherd_tensor_read(a))[2] == 3);
    CHECK_OK(sherd_world_check(world));
}

static void backward_of_a_distributed_loss_that_failed_ends_the_same_everywhere(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[1] = {6};
    sherd_tensor *w = leaf_on(layout_of(mesh, 1, shape, "S(0)", NULL), 1);
    sherd_tensor *x = moved(doubled(w), layout_of(mesh, 1, shape, "R", NULL));
    sherd_tensor *loss = total(fork_of(x));

    if (sherd_world_rank(world) == 1)
        sherd_world_fail(world, SHERD_ELIMIT, "of the user's own");
    sherd_backward(loss);
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    CHECK_OK(sherd_world_check(world));
    sherd_clear_grad(w);
    sherd_backward(total(doubled(w)));
    CHECK_EQ(wrong_grads(w, 2), 0);
    CHECK_OK(sherd_world_check(world));
}

static void scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *rows = NULL, *whole = NULL;
    int64_t shape[1] = {6};

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&rows, mesh, 1, shape, "S(0)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&whole, mesh, 1, shape, "R", NULL) == SHERD_OK) {
        sherd_tensor *w = leaf_on(rows, 1), *x = moved(doubled(w), whole);
        sherd_tensor *loss = total(joined(fork_of(x), product(x, joined(fork_of(x), square(x)))));
        sherd_backward(loss);
        sherd_grad(w);
        sherd_tensor *p = leaf_of(world, 4, 1);
        sherd_backward(total(product(doubled(p), square(p))));
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 0, scene);
    fail_every_allocation(world, 1, scene);
}

static const check_test tests[] = {
    {TEST(a_chain_multiplies), {1, 2}},
    {TEST(a_diamond_adds), {1, 2}},
    {TEST(a_leaf_used_three_times_gets_three_gradients), {1}},
    {TEST(one_gradient_of_two_leaves_is_not_shared_when_added_to), {1}},
    {TEST(outputs_that_nobody_uses_get_nothing), {1}},
    {TEST(no_attributes_are_null), {1}},
    {TEST(a_scalar_leaf_is_its_own_loss), {1}},
    {TEST(what_is_not_recorded_flows_nowhere), {1}},
    {TEST(wrong_uses_are_named_errors), {1}},
    {TEST(a_broken_operator_is_an_error), {1, 2}},
    {TEST(a_long_chain_is_walked_and_freed), {1}},
    {TEST(a_wide_graph_is_walked), {1, 2}},
    {TEST(gradients_lie_as_their_tensors), {4}},
    {TEST(pending_gradients_are_settled_once), {3}},
    {TEST(a_pending_gradient_of_a_shard_is_scattered), {2}},
    {TEST(a_gradient_in_another_layout_is_brought_to_the_output), {4}},
    {TEST(the_gradient_of_a_leaf_stays_pending_until_asked), {2}},
    {TEST(gradients_of_any_two_layouts_add_up), {4}},
    {TEST(sums_of_plain_gradients_vary_over_the_union), {1}},
    {TEST(backward_of_a_distributed_loss_that_failed_ends_the_same_everywhere), {2}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2}},
};
CHECK_MAIN(tests)
