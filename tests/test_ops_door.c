/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the one door promises to an operator of a user's: every layout, gradients, divergence,
 * refusals, handlers above and below the tape, whatever its shape: repeated operands, hidden
 * results, its own ways to lie, made of others.
 */
#include "ops_cases.h"

#include "sherd/op.h"

/* ---- a user's operators, all in f64 --------------------------------------------------------- */

typedef struct axpy_attributes {
    double factor;
} axpy_attributes;

/* a x + b, element by element. */
static bool axpy(sherd_call *call)
{
    const axpy_attributes *a = call->attributes;
    const double *x = call->from[0], *b = call->from[1];
    double *y = call->to[0];

    for (int64_t i = 0; i < call->out[0]->count; i++)
        y[i] = (call->once & 1 ? 0 : a->factor * x[i]) + (call->once & 2 ? 0 : b[i]);
    return true;
}

static void axpy_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const axpy_attributes *a = sherd_node_attributes(node);

    CHECK_EQ(sherd_node_operands(node), 2);
    if (sherd_node_wants(node, 0))
        grad_in[0] = sherd_scale(grad_out[0], a->factor);
    grad_in[1] = grad_out[0];
}

static const sherd_op axpy_op = {.name = "test_axpy",
                                 .operand = {{"x", SHERD_OP_TERM}, {"b", SHERD_OP_TERM}},
                                 .result = {{"y", 0}},
                                 .field = {SHERD_FIELD(axpy_attributes, factor, DOUBLE)},
                                 .attributes = sizeof(axpy_attributes),
                                 .rule = "...,...->...",
                                 .linearity = SHERD_LINEAR,
                                 .forward = axpy,
                                 .backward = axpy_back,
                                 .takes_pending = true};

static sherd_tensor *run_axpy(sherd_tensor *const *in)
{
    return sherd_apply(&axpy_op, in, 2, &(axpy_attributes){3});
}

/* The sum of any number of tensors, and how many there were in a hidden result. */
static bool total(sherd_call *call)
{
    double *y = call->to[0], *count = call->to[1];

    for (int64_t i = 0; i < call->out[0]->count; i++) {
        y[i] = 0;
        for (int k = 0; k < call->operands; k++)
            y[i] += ((const double *)call->from[k])[i];
        count[i] = call->operands;
    }
    return true;
}

static void total_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *count = sherd_node_result(node, 1);

    for (int k = 0; k < sherd_node_operands(node); k++)
        if (sherd_node_wants(node, k))
            grad_in[k] = sherd_mul(grad_out[0], count);
}

static const sherd_op total_op = {.name = "test_total",
                                  .operand = {{"x", SHERD_OP_REPEATED}},
                                  .result = {{"y", 0}, {"count", SHERD_OP_HIDDEN}},
                                  .rule = "...->...,...",
                                  .forward = total,
                                  .backward = total_back,
                                  .needs = {SHERD_NEEDS_RESULT(1)}};

static sherd_tensor *run_total(sherd_tensor *const *in)
{
    return sherd_apply(&total_op, in, 3, NULL);
}

/* Made of others. */
static bool twice(sherd_call *call)
{
    call->out[0] = sherd_add(call->in[0], call->in[0]);
    return true;
}

static const sherd_op twice_op = {
    .name = "test_twice", .operand = {{"x", 0}}, .result = {{"y", 0}}, .compose = twice};

static sherd_tensor *run_twice(sherd_tensor *const *in)
{
    return sherd_apply(&twice_op, in, 1, NULL);
}

/* ---- under every layout --------------------------------------------------------------------- */

typedef struct user_case {
    op_case c;
    double gradient[MOST_IN]; /* of the sum of all elements: the same for each of an operand's */
} user_case;

static const user_case user_cases[] = {
    {{"axpy", run_axpy, 2, {2, 2}, {{3, 4}, {3, 4}}, 0, 0}, {3, 1}},
    {{"total", run_total, 3, {2, 2, 2}, {{3, 2}, {3, 2}, {3, 2}}, 0, 0}, {3, 3, 3}},
    {{"twice", run_twice, 1, {2}, {{3, 4}}, 0, 0}, {2}},
};

static bool same_gradients(const user_case *u, sherd_tensor *const *in)
{
    bool good = true;

    for (int i = 0; i < u->c.operands; i++) {
        double want[MOST_ELEMENTS];
        for (int64_t e = 0; e < count_of(&u->c, i); e++)
            want[e] = u->gradient[i];
        good &= CHECK(distance(sherd_full(sherd_grad(in[i])), want, count_of(&u->c, i)) < 1e-12);
    }
    return good;
}

static void layouts_change_nothing(const sherd_mesh *mesh, const user_case *u)
{
    sherd_world *world = sherd__space_world(mesh->space);
    sherd_tensor *in[MOST_IN];
    double want[MOST_ELEMENTS];
    int64_t step, all = combinations(mesh, &u->c, 300, &step);

    for (int j = 0; j < u->c.operands; j++)
        in[j] = plain_operand(world, &u->c, j, NULL);
    sherd_tensor *y = u->c.run(in);
    int64_t n = sherd_tensor_count(y);
    copy_values(want, y);
    for (int64_t number = 0; number < all; number += step) {
        sherd_scope_begin(world);
        place_all(mesh, &u->c, number, in);
        for (int j = 0; j < u->c.operands; j++)
            sherd_require_grad(in[j], true);
        y = u->c.run(in);
        sherd_backward(sherd_sum(y));
        if (!CHECK(distance(sherd_full(y), want, n) < 1e-12) || !same_gradients(u, in)) {
            say_layouts(&u->c, in);
            number = all; /* one is enough */
        }
        sherd_scope_end(world);
    }
}

static void layouts_do_not_change_what_a_users_operator_computes(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < LEN(user_cases); i++) {
        sherd_scope_begin(world);
        layouts_change_nothing(mesh, &user_cases[i]);
        sherd_scope_end(world);
    }
    if (!CHECK_OK(sherd_world_check(world)))
        say_error(world);
}

static const sherd_mesh *line(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    return mesh;
}

static sherd_tensor *filled(const sherd_mesh *mesh, const char *placements, double value)
{
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, SHAPE(5, 4), placements, NULL));
    return sherd_constant_on(layout, SHERD_F64, value);
}

/* The first element here; 0 on a rank that has none. */
static double first(sherd_tensor *t)
{
    const double *data = sherd_tensor_read(t);

    return t && t->count && data ? data[0] : 0;
}

static void ranks_that_pass_other_attributes_are_found(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *in[] = {filled(mesh, "R", 1), filled(mesh, "R", 2)};
    axpy_attributes a = {sherd_world_rank(world) == 0 ? 2 : 3};

    sherd_apply(&axpy_op, in, 2, &a);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "test_axpy") != NULL);
    CHECK_OK(sherd_world_check(world));
}

static void no_attributes_are_zeroes(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *in[] = {filled(mesh, "R", 1), filled(mesh, "R", 2)};

    CHECK_NEAR(first(sherd_apply(&axpy_op, in, 2, NULL)), 2, 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- its own ways --------------------------------------------------------------------------- */

/* Rows in the reverse order. A sharded dim 0 must be whole, or cut alike from both ends; dim 1 lies
 * as it does. */
static bool reverse(sherd_call *call)
{
    const double *x = call->from[0];
    double *y = call->to[0];
    const int64_t *size = call->out[0]->local;

    for (int64_t i = 0; i < size[0]; i++)
        for (int64_t j = 0; j < size[1]; j++)
            y[i * size[1] + j] = x[(size[0] - 1 - i) * size[1] + j];
    return true;
}

static sherd_status reverse_ways(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *layout = sherd_tensor_layout(call->in[0]), *whole;
    const sherd_mesh *mesh = sherd_layout_mesh(layout);
    char placements[64] = "";

    for (int a = 0; a < sherd_mesh_axes(mesh); a++) {
        sherd_placement p = sherd_layout_placement(layout, a);
        strcat(placements, p.kind == SHERD_SHARD && p.dim == 1 ? "S(1)" : "R");
    }
    sherd_status status = sherd_layout_parse_placements(
        &whole, mesh, 2, sherd_tensor_shape(call->in[0]), placements, NULL);
    return status ? status : sherd_way_add(ways, &whole, &whole);
}

static const sherd_op reverse_op = {.name = "test_reverse",
                                    .operand = {{"x", 0}},
                                    .result = {{"y", 0}},
                                    .rule = "ab->ab",
                                    .ways = reverse_ways,
                                    .forward = reverse};

/* It says the shape too, and has no rule. */
static const char *reverse_shape(sherd_call *call)
{
    sherd_call_shape(call, 0, 2, sherd_tensor_shape(call->in[0]));
    return NULL;
}

static const sherd_op unruled_op = {.name = "test_unruled",
                                    .operand = {{"x", 0}},
                                    .result = {{"y", 0}},
                                    .describe = reverse_shape,
                                    .ways = reverse_ways,
                                    .forward = reverse};

static void lies_as_it_says(sherd_world *world, const sherd_op *op)
{
    const sherd_mesh *mesh = line(world);
    double rows[20];

    for (int i = 0; i < 20; i++)
        rows[i] = i / 4;
    sherd_tensor *plain =
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, (int64_t[]){5, 4}, 2, rows));
    static const char *const placements[] = {"R", "S(0)", "S(1)"};
    for (int i = 0; i < LEN(placements); i++) {
        const sherd_layout *layout = NULL;
        CHECK_OK(sherd_layout_parse_placements(&layout, mesh, SHAPE(5, 4), placements[i], NULL));
        sherd_tensor *x = sherd_distribute(plain, layout, -1);
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_apply(op, &x, 1, NULL);
        CHECK_EQ(sherd_comm_count(world), i == 1 && sherd_world_ranks(world) > 1);
        CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(y)), i == 2 ? "S(1)" : "R");
        const double *data = sherd_tensor_read(sherd_full(y));
        for (int e = 0; data && e < 20; e++)
            CHECK_NEAR(data[e], 4 - e / 4, 0);
    }
    const double *data = sherd_tensor_read(sherd_apply(op, &plain, 1, NULL));
    CHECK(data && data[0] == 4 && data[19] == 0);
    CHECK_OK(sherd_world_check(world));
}

static void an_operator_says_itself_how_it_lies(sherd_world *world)
{
    lies_as_it_says(world, &reverse_op);
    lies_as_it_says(world, &unruled_op);
}

/* ---- handlers ------------------------------------------------------------------------------- */

typedef struct seen {
    int calls;
    bool plain; /* the second operand came plain */
} seen;

/* The original's result, ten times. */
static bool above(sherd_call *call, void *context)
{
    seen *s = context;

    s->calls++;
    s->plain = !sherd_tensor_layout(call->in[1]);
    if (!sherd_call_original(call))
        return false;
    call->out[0] = sherd_scale(call->out[0], 10);
    return true;
}

/* On local pieces: the negative sum. */
static bool below(sherd_call *call, void *context)
{
    double *y = call->to[0];

    ++*(int *)context;
    if (!sherd_call_original(call))
        return false;
    for (int64_t i = 0; i < call->out[0]->count; i++)
        y[i] = -y[i];
    return true;
}

static void handlers_above_the_tape_see_tensors(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *x = sherd_require_grad(filled(mesh, "R", 1), true);
    sherd_tensor *plain = sherd_constant(world, SHERD_F64, (int64_t[]){5, 4}, 2, 2);
    seen s = {0};
    sherd_op_handler handler = {.run = above, .context = &s};

    CHECK_OK(sherd_op_override(world, "sherd_add", SHERD_ABOVE_TAPE, &handler));
    sherd_tensor *y = sherd_add(x, plain);
    CHECK_NEAR(first(y), 30, 0);
    CHECK(s.calls == 1 && s.plain);
    handler.promoted = true;
    CHECK_OK(sherd_op_override(world, "sherd_add", SHERD_ABOVE_TAPE, &handler));
    CHECK_NEAR(first(sherd_add(x, plain)), 30, 0);
    CHECK(s.calls == 2 && !s.plain);
    sherd_backward(sherd_sum(y));
    CHECK_NEAR(first(sherd_grad(x)), 10, 0);
    CHECK_OK(sherd_op_override(world, "sherd_add", SHERD_ABOVE_TAPE, NULL));
    CHECK_NEAR(first(sherd_add(x, plain)), 3, 0);
    CHECK_EQ(s.calls, 2);
    CHECK_OK(sherd_world_check(world));
}

static void handlers_below_the_tape_see_pieces(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *x = sherd_require_grad(filled(mesh, "S(0)", 1), true);
    bool here = x->count > 0;
    int calls = 0;
    sherd_op_handler handler = {.run = below, .context = &calls};

    CHECK_OK(sherd_op_override(world, "sherd_add", SHERD_BELOW_TAPE, &handler));
    sherd_tensor *y = sherd_add(x, x);
    CHECK_NEAR(first(y), here ? -2 : 0, 0);
    CHECK_EQ(calls, 1);
    CHECK_OK(sherd_op_override(world, "sherd_add", SHERD_BELOW_TAPE, NULL));
    sherd_backward(sherd_sum(y)); /* the record is the operator's */
    CHECK_NEAR(first(sherd_grad(x)), here ? 2 : 0, 0);
    CHECK_OK(sherd_world_check(world));
}

/* A handler that takes itself away while it runs. */
static bool once(sherd_call *call, void *context)
{
    CHECK_OK(sherd_op_override(context, "sherd_relu", SHERD_ABOVE_TAPE, NULL));
    return sherd_call_original(call);
}

static bool leaves_nothing(sherd_call *call, void *context)
{
    (void)call, (void)context;
    return true;
}

static bool refuses(sherd_call *call, void *context)
{
    (void)context;
    return sherd_call_fail(call, SHERD_ENOTSUP, "not on a %s", "Sunday");
}

static void handlers_may_go_or_fail(sherd_world *world)
{
    sherd_tensor *x = filled(line(world), "R", 1);

    CHECK_OK(sherd_op_override(world, "sherd_relu", SHERD_ABOVE_TAPE,
                               &(sherd_op_handler){.run = once, .context = world}));
    CHECK_NEAR(first(sherd_relu(x)), 1, 0);
    CHECK_NEAR(first(sherd_relu(x)), 1, 0);
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_op_override(world, "sherd_relu", SHERD_ABOVE_TAPE,
                               &(sherd_op_handler){.run = leaves_nothing}));
    CHECK(sherd_tensor_failed(sherd_relu(x)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_relu: it has left no result 0") != NULL);
    CHECK_OK(sherd_op_override(world, "sherd_relu", SHERD_ABOVE_TAPE,
                               &(sherd_op_handler){.run = refuses}));
    CHECK(sherd_tensor_failed(sherd_relu(x)));
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK(strstr(sherd_world_error(world), "sherd_relu: not on a Sunday: a is f64[5,4]") != NULL);
    CHECK_OK(sherd_op_override(world, "sherd_relu", SHERD_ABOVE_TAPE, NULL));
    CHECK_NEAR(first(sherd_relu(x)), 1, 0);
    CHECK_OK(sherd_world_check(world));
}

/* Both ranks fail in their handler; one of them alone. */
static void one_rank_that_fails_tells_all(sherd_world *world)
{
    sherd_tensor *x = filled(line(world), "R", 1);

    if (sherd_world_rank(world) == 0)
        CHECK_OK(sherd_op_override(world, "sherd_relu", SHERD_BELOW_TAPE,
                                   &(sherd_op_handler){.run = refuses}));
    sherd_tensor *y = sherd_relu(x);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK(sherd_tensor_failed(y)); /* on all of them: see decision 004 */
    CHECK_OK(sherd_world_check(world));
}

/* ---- times, and lack of memory -------------------------------------------------------------- */

static void times_are_taken_when_asked(sherd_world *world)
{
    sherd_tensor *x = filled(line(world), "R", 1);

    sherd_relu(x);
    CHECK(sherd_op_time_at(world, 0).name == NULL);
    sherd_op_times(world, true);
    sherd_relu(x);
    sherd_add(x, sherd_relu(x));
    CHECK_TEXT(sherd_op_time_at(world, 0).name, "sherd_relu");
    CHECK_EQ(sherd_op_time_at(world, 0).calls, 2);
    CHECK(sherd_op_time_at(world, 0).nanoseconds > 0);
    CHECK_TEXT(sherd_op_time_at(world, 1).name, "sherd_add");
    sherd_op_times(world, false);
    sherd_relu(x);
    CHECK_EQ(sherd_op_time_at(world, 0).calls, 2);
    CHECK(sherd_op_time_at(world, 2).name == NULL && sherd_op_time_at(world, -1).name == NULL);
}

/* Whichever allocation fails: ENOMEM, and the next time it works. */
static void lack_of_memory_is_told(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);

    for (int n = 1; n < 60; n++) {
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_require_grad(filled(mesh, "S(0)", 1), true);
        sherd_tensor *in[] = {x, sherd_constant(world, SHERD_F64, (int64_t[]){5, 4}, 2, 1), x};
        CHECK_OK(sherd_world_check(world));
        sherd_world_fail_allocation(world, n);
        sherd_tensor *y = sherd_apply(&total_op, in, 3, NULL);
        sherd_world_fail_allocation(world, 0);
        sherd_status status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        CHECK(status || !sherd_tensor_failed(y));
        sherd_scope_end(world);
    }
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

static const check_test tests[] = {
    {TEST(layouts_do_not_change_what_a_users_operator_computes), {2, 3, 4}},
    {TEST(ranks_that_pass_other_attributes_are_found), {2, 3}},
    {TEST(no_attributes_are_zeroes), {1, 2}},
    {TEST(an_operator_says_itself_how_it_lies), {1, 2, 3, 4}},
    {TEST(handlers_above_the_tape_see_tensors), {1, 2, 4}},
    {TEST(handlers_below_the_tape_see_pieces), {1, 2, 8}},
    {TEST(handlers_may_go_or_fail), {1, 2}},
    {TEST(one_rank_that_fails_tells_all), {2, 3}},
    {TEST(times_are_taken_when_asked), {1, 2}},
    {TEST(lack_of_memory_is_told), {1, 2}},
};
CHECK_MAIN(tests)
