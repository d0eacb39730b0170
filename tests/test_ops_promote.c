/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of plain operands beside distributed ones, as the world was told. */
#include "tensors.h"

#include <fcntl.h>

#include "sherd/autograd.h"
#include "sherd/op.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_groups.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_losses.h"
#include "sherd/ops_shape.h"
#include "sherd/ops_sorted.h"

static sherd_tensor *row(sherd_world *world)
{
    return sherd_constant(world, SHERD_F64, (int64_t[]){4}, 1, 2);
}

static sherd_tensor *rows(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    return indices_on(layout_of(mesh_of(world, text), 2, (int64_t[]){5, 4}, "S(0)", NULL),
                      SHERD_F64);
}

/* Said before anything runs, and taken back. */
static void a_plain_operand_may_be_refused(sherd_world *world)
{
    CHECK_OK(sherd_op_promote(world, SHERD_PROMOTE_NEVER));
    sherd_tensor *y = sherd_add(rows(world), row(world));
    CHECK(sherd_tensor_failed(y));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world),
                 "sherd_add: f64[4] is plain beside distributed operands") != NULL);
    /* plain with plain, distributed with distributed */
    CHECK(!sherd_tensor_failed(sherd_add(row(world), row(world))));
    sherd_tensor *x = rows(world);
    CHECK(!sherd_tensor_failed(sherd_add(x, x)));
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_op_promote(world, SHERD_PROMOTE_SILENTLY));
    CHECK(!sherd_tensor_failed(sherd_add(rows(world), row(world))));
    CHECK_OK(sherd_world_check(world));
}

/* Operators that are made of others bring no plain operand of their own. */
static void bins_and_classes_of_distributed_operands_promote_nothing(sherd_world *world)
{
    CHECK_OK(sherd_op_promote(world, SHERD_PROMOTE_NEVER));
    sherd_tensor *x = rows(world), *index = sherd_cast(x, SHERD_I32);
    CHECK(!sherd_tensor_failed(sherd_histc(x, 4, 0, 20)));
    CHECK(!sherd_tensor_failed(sherd_one_hot(index, 20, SHERD_F32)));
    CHECK_OK(sherd_world_check(world));
}

static void losses_of_distributed_operands_promote_nothing(sherd_world *world)
{
    CHECK_OK(sherd_op_promote(world, SHERD_PROMOTE_NEVER));
    sherd_tensor *x = sherd_require_grad(rows(world), true), *target = rows(world);
    for (int logarithms = 0; logarithms < 2; logarithms++)
        sherd_backward(sherd_kl_div(x, target, logarithms, SHERD_LOSS_MEAN));
    CHECK(!sherd_tensor_failed(sherd_grad(x)));
    CHECK_OK(sherd_world_check(world));
}

/* A bias by groups is a product with ones. */
static void a_bias_of_groups_promotes_nothing(sherd_world *world)
{
    const int64_t two = 2, weights[] = {2, 3, 4}, biases[] = {2, 3};
    static const int32_t end[] = {2, 5};
    sherd_tensor *x = sherd_require_grad(rows(world), true);
    sherd_tensor *ends = sherd_mark_equal(sherd_from_data(world, SHERD_I32, &two, 1, end));

    const sherd_mesh *mesh = sherd_layout_mesh(sherd_tensor_layout(x));
    ends = sherd_distribute(ends, layout_of(mesh, 1, &two, "R", NULL), -1);
    sherd_tensor *w = indices_on(layout_of(mesh, 3, weights, "R", NULL), SHERD_F64);
    sherd_tensor *b = indices_on(layout_of(mesh, 2, biases, "R", NULL), SHERD_F64);
    CHECK_OK(sherd_op_promote(world, SHERD_PROMOTE_NEVER));
    sherd_backward(sherd_sum(sherd_grouped_linear(x, w, b, ends, NULL)));
    CHECK(!sherd_tensor_failed(sherd_grad(x)));
    CHECK_OK(sherd_world_check(world));
}

/* Nor does what hides keys from queries, in a backward that is recorded, nor positions. */
static void attention_promotes_nothing(sherd_world *world)
{
    const int64_t shape[] = {2, 8, 2, 4}, lengths[] = {3, 5}, spans_shape[] = {1, 8, 2};
    const sherd_gradients_options recorded = {.create_graph = true};
    sherd_tensor *spans = sherd_document_spans(world, lengths, 1, 2);

    for (int how = 0; how < 3; how++) {
        const sherd_mesh *mesh = line_of_ranks(world);
        sherd_tensor *x = indices_on(layout_of(mesh, 4, shape, "S(0)", NULL), SHERD_F64), *dx;
        x = sherd_require_grad(sherd_scale(x, 1e-2), true);
        sherd_attention_options o = {.causal = true, .window = how == 1 ? 3 : 0};
        if (how == 2)
            o.spans = sherd_distribute(spans, layout_of(mesh, 3, spans_shape, "R", NULL), -1);
        CHECK_OK(sherd_op_promote(world, SHERD_PROMOTE_NEVER));
        sherd_tensor *q = sherd_rotary(x, NULL, &(sherd_rotary_options){.zigzag = how ? 2 : 0});
        sherd_tensor *y = sherd_sum(sherd_attention(q, x, x, &o));
        sherd_gradients(&dx, &x, 1, &y, 1, &recorded);
        sherd_backward(sherd_sum(sherd_mul(dx, dx)));
        CHECK(!sherd_tensor_failed(sherd_grad(x)));
        CHECK_OK(sherd_world_check(world));
        CHECK_OK(sherd_op_promote(world, SHERD_PROMOTE_SILENTLY));
    }
}

static void distinct_slices_promote_nothing(sherd_world *world)
{
    sherd_tensor *x = rows(world);

    CHECK_OK(sherd_op_promote(world, SHERD_PROMOTE_NEVER));
    CHECK(!sherd_tensor_failed(sherd_unique_along(x, 0, NULL, NULL)));
    CHECK(!sherd_tensor_failed(sherd_unique_consecutive(x, 0, NULL, NULL)));
    x = sherd_narrow(x, 0, 0, 1);
    CHECK(!sherd_tensor_failed(sherd_unique_consecutive(x, 0, NULL, NULL)));
    CHECK_OK(sherd_world_check(world));
}

/* One line for each operator, by rank 0; the gradient of what was promoted is whole. */
static void a_promotion_may_be_told(sherd_world *world)
{
    char said[512] = "";
    int before = dup(2), ends[2];
    bool first = sherd_world_rank(world) == 0;

    CHECK_OK(sherd_op_promote(world, SHERD_PROMOTE_WARNING));
    CHECK_OK(sherd_world_check(world));
    if (first && pipe(ends) == 0)
        dup2(ends[1], 2);
    CHECK_OK(sherd_world_check(world));
    sherd_tensor *w = sherd_require_grad(row(world), true);
    sherd_tensor *y = sherd_mul(sherd_add(rows(world), w), w);
    y = sherd_add(y, w);
    sherd_backward(sherd_sum(y));
    CHECK_OK(sherd_world_check(world));
    if (first) {
        dup2(before, 2);
        close(ends[1]);
        if (read(ends[0], said, sizeof said - 1) < 0)
            CHECK(false);
        close(ends[0]);
        CHECK_TEXT(
            said,
            "sherd: sherd_add: f64[4] is plain beside distributed operands: taken for replicated\n"
            "sherd: sherd_mul: f64[4] is plain beside distributed operands: taken for "
            "replicated\n");
    }
    close(before);
    const double *g = sherd_tensor_read(sherd_grad(w));
    for (int k = 0; g && k < 4; k++) /* sum over rows of (x + 2 w + 1), w = 2 */
        CHECK_NEAR(g[k], 5 * 5 + 40 + 5 * k, 1e-12);
    CHECK(g != NULL);
}

/* The operator that has promoted it is named, not a function that nobody has called. */
static void other_plain_operands_are_the_operators(sherd_world *world)
{
    bool last = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    sherd_tensor *x = rows(world);

    CHECK_OK(sherd_world_check(world));
    sherd_matmul(x, sherd_constant(world, SHERD_F64, (int64_t[]){4, last ? 5 : 3}, 2, 1));
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "sherd_matmul") != NULL);
    CHECK(strstr(sherd_world_error(world), "sherd_from_local") == NULL);
    sherd_add(x, sherd_constant(world, SHERD_F64, (int64_t[]){last ? 1 : 4}, 1, 1));
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "sherd_add") != NULL);
    CHECK_OK(sherd_world_check(world));
}

static void only_these_three_are_known(sherd_world *world)
{
    CHECK_EQ(sherd_op_promote(world, (sherd_promotion)3), SHERD_EINVAL);
    CHECK_EQ(sherd_op_promote(world, (sherd_promotion)-1), SHERD_EINVAL);
}

static const check_test tests[] = {
    {TEST(a_plain_operand_may_be_refused), {1, 2, 3}},
    {TEST(bins_and_classes_of_distributed_operands_promote_nothing), {1, 2, 3}},
    {TEST(a_bias_of_groups_promotes_nothing), {1, 2, 3}},
    {TEST(attention_promotes_nothing), {1, 2, 3}},
    {TEST(distinct_slices_promote_nothing), {1, 2, 3}},
    {TEST(losses_of_distributed_operands_promote_nothing), {1, 2, 3}},
    {TEST(a_promotion_may_be_told), {1, 2}},
    {TEST(other_plain_operands_are_the_operators), {2, 3, 4}},
    {TEST(only_these_three_are_known), {1}},
};
CHECK_MAIN(tests)
