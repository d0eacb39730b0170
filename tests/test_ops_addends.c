/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of the addends of pending reductions that sherd_from_local makes: those of a sum get
 * the gradient of the sum, each of n of an average 1/n of it; a maximum, a minimum or a product has
 * none for its pieces.
 */
#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_shape.h"
#include "tensors.h"

static const int64_t two[] = {2};

/* This rank's own numbers. */
static sherd_tensor *mine(sherd_world *world, double by)
{
    int rank = sherd_world_rank(world);

    return sherd_from_data(world, SHERD_F64, two, 1, (double[]){2 + rank * by, 5 - rank * by});
}

static sherd_tensor *weights(sherd_world *world)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_F64, two, 1, (double[]){10, 100}));
}

/* The sum of w t^2. */
static sherd_tensor *loss_of(sherd_tensor *t)
{
    return sherd_sum(sherd_mul(sherd_square(t), weights(sherd_tensor_world(t))));
}

static bool holds(sherd_tensor *t, double first, double second)
{
    const double *data = t ? sherd_tensor_read(t) : NULL;

    return data && CHECK_NEAR(data[0], first, 1e-12 * (1 + first)) &&
           CHECK_NEAR(data[1], second, 1e-12 * (1 + second));
}

/* The average of 2 + rank and of 5 - rank. */
static double middle(sherd_world *world, int i)
{
    double shift = (sherd_world_ranks(world) - 1) / 2.0;

    return i ? 5 - shift : 2 + shift;
}

static void each_addend_has_its_share(sherd_world *world)
{
    static const sherd_reduce_op op[] = {SHERD_SUM, SHERD_AVG};
    double n = sherd_world_ranks(world);

    for (int k = 0; k < LEN(op); k++) {
        sherd_tensor *l = sherd_require_grad(mine(world, 1), true);
        sherd_placement pending = sherd_partial(op[k]);
        sherd_backward(loss_of(sherd_from_local(l, line_of_ranks(world), &pending, NULL)));
        double value = k ? 2 / n : 2 * n;
        CHECK(holds(sherd_grad(l), 10 * middle(world, 0) * value, 100 * middle(world, 1) * value));
    }
    CHECK_OK(sherd_world_check(world));
}

/* Averages along one axis, sums along the other. */
static void axes_count_each_for_itself(sherd_world *world)
{
    sherd_tensor *l = sherd_require_grad(mine(world, 0), true);
    sherd_placement both[] = {sherd_partial(SHERD_AVG), sherd_partial(SHERD_SUM)};

    sherd_backward(sherd_sum(sherd_from_local(l, mesh_of(world, "a=2,b=3"), both, NULL)));
    CHECK(holds(sherd_grad(l), 0.5, 0.5));
    CHECK_OK(sherd_world_check(world));
}

static void there_and_back_is_the_same(sherd_world *world)
{
    sherd_placement average = sherd_partial(SHERD_AVG);
    const sherd_mesh *line = line_of_ranks(world);
    double n = sherd_world_ranks(world);
    sherd_tensor *l = sherd_require_grad(mine(world, 1), true);
    sherd_tensor *t = sherd_retain_grad(sherd_from_local(l, line, &average, NULL));

    t = sherd_from_local(sherd_to_local(t), line, &average, NULL);
    sherd_backward(loss_of(t));
    CHECK(holds(sherd_grad(l), 20 * middle(world, 0) / n, 200 * middle(world, 1) / n));
    CHECK_OK(sherd_world_check(world));
}

/* A replicated weight, each rank its own data, the loss their sum or average. */
static sherd_tensor *averaged_loss(sherd_tensor *const *in, int count, void *payload)
{
    const sherd_placement *pending = payload, sum = sherd_partial(SHERD_SUM);
    sherd_world *world = sherd_tensor_world(in[0]);
    sherd_tensor *w = sherd_to_local_with(in[0], &sum);

    (void)count;
    return sherd_from_local(sherd_sum(sherd_mul(sherd_square(w), mine(world, 0.5))),
                            line_of_ranks(world), pending, NULL);
}

static void differences_agree(sherd_world *world)
{
    const sherd_layout *whole = layout_of(line_of_ranks(world), 1, two, "R", NULL);
    sherd_placement pending[] = {sherd_partial(SHERD_SUM), sherd_partial(SHERD_AVG)};

    for (int k = 0; k < LEN(pending); k++) {
        sherd_tensor *w = sherd_require_grad(sherd_constant_on(whole, SHERD_F64, 0.7), true);
        CHECK_OK(sherd_check_gradients(averaged_loss, &w, 1,
                                       &(sherd_check_options){.payload = &pending[k]}));
    }
}

static sherd_tensor *loss_of_input(sherd_tensor *const *in, int count, void *payload)
{
    (void)count, (void)payload;
    return loss_of(in[0]);
}

/* Of a leaf that is pending itself the gradient is that of its value. */
static void differences_of_a_pending_leaf_agree(sherd_world *world)
{
    static const sherd_reduce_op op[] = {SHERD_SUM, SHERD_AVG};

    for (int k = 0; k < LEN(op); k++) {
        sherd_placement pending = sherd_partial(op[k]);
        sherd_tensor *t = sherd_from_local(mine(world, 1), line_of_ranks(world), &pending, NULL);
        t = sherd_require_grad(sherd_detach(t), true);
        CHECK_OK(sherd_check_gradients(loss_of_input, &t, 1, NULL));
    }
}

/* g = d/dl of w m^2 for the average m of n: 2 w m / n; and the sum of g^2 by each l: 8 w^2 m / n^3
 * from each of n ranks. */
static void a_second_derivative_has_its_share(sherd_world *world)
{
    const sherd_mesh *line = line_of_ranks(world);
    sherd_placement average = sherd_partial(SHERD_AVG), sum = sherd_partial(SHERD_SUM);
    double n = sherd_world_ranks(world), m[] = {middle(world, 0), middle(world, 1)};
    sherd_tensor *l = sherd_require_grad(mine(world, 1), true), *g;
    sherd_tensor *loss = loss_of(sherd_from_local(l, line, &average, NULL));

    sherd_gradients(&g, &l, 1, &loss, 1, &(sherd_gradients_options){.create_graph = true});
    CHECK(holds(g, 20 * m[0] / n, 200 * m[1] / n));
    sherd_backward(sherd_sum(sherd_from_local(sherd_square(g), line, &sum, NULL)));
    CHECK(holds(sherd_grad(l), 8 * 100 * m[0] / (n * n), 8 * 10000 * m[1] / (n * n)));
    CHECK_OK(sherd_world_check(world));
}

static void others_are_refused(sherd_world *world)
{
    static const sherd_reduce_op op[] = {SHERD_MIN, SHERD_MAX, SHERD_PRODUCT};
    const sherd_mesh *line = line_of_ranks(world);
    bool alone = sherd_world_ranks(world) == 1;

    for (int k = 0; k < LEN(op); k++)
        for (int back = 0; back < 2; back++) {
            sherd_scope_begin(world);
            sherd_placement pending = sherd_partial(op[k]);
            sherd_tensor *l = sherd_require_grad(mine(world, 1), true);
            sherd_tensor *t = sherd_from_local(l, line, &pending, NULL);
            if (back)
                t = sherd_from_local(sherd_to_local(t), line, &pending, NULL);
            sherd_tensor *loss = loss_of(t);
            CHECK(!sherd_tensor_failed(loss));
            CHECK_OK(sherd_world_check(world));
            sherd_backward(loss);
            CHECK_EQ(sherd_world_check(world), alone ? SHERD_OK : SHERD_EINVAL);
            if (!alone)
                CHECK(strstr(sherd_world_error(world), "no gradient flows through pieces of") !=
                      NULL);
            sherd_scope_end(world);
        }
}

static const check_test tests[] = {
    {TEST(each_addend_has_its_share), {1, 2, 3, 4, 8}},
    {TEST(axes_count_each_for_itself), {6}},
    {TEST(there_and_back_is_the_same), {1, 2, 3, 4}},
    {TEST(differences_agree), {1, 2, 3, 4}},
    {TEST(differences_of_a_pending_leaf_agree), {1, 2, 3, 4}},
    {TEST(a_second_derivative_has_its_share), {1, 2, 3, 4}},
    {TEST(others_are_refused), {1, 2, 3}},
};
CHECK_MAIN(tests)
