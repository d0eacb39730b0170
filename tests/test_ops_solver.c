/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the solver promises: operands that fit are never moved, else the cheapest move is taken; and
 * what follows for the calls of a layer. Calls are counted by the comm log of this rank.
 */
#include "ops_cases.h"

#include "apply/operator.h"

static int64_t calls(const sherd_world *world)
{
    int64_t n = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        n += sherd_comm_get(world, i).calls;
    return n;
}

static const sherd_layout *layout(const sherd_mesh *mesh, int ndim, const int64_t *shape,
                                  const char *placements, const char *cuts)
{
    const sherd_layout *l = NULL;

    CHECK_OK(sherd_layout_parse_placements(&l, mesh, ndim, shape, placements, cuts));
    return l;
}

/* A tensor with values of its own, in this layout. */
static sherd_tensor *make(const sherd_mesh *mesh, int ndim, const int64_t *shape,
                          const char *placements, const char *cuts)
{
    op_case c = {.operands = 1};

    c.ndim[0] = ndim;
    memcpy(c.shape[0], shape, (size_t)ndim * sizeof *shape);
    return place(&c, 0, layout(mesh, ndim, shape, placements, cuts));
}

static const sherd_mesh *mesh_of(sherd_world *world, const char *text)
{
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    return mesh;
}

static void lies(sherd_tensor *t, const char *placements)
{
    if (CHECK(!sherd_tensor_failed(t)))
        CHECK_TEXT(sherd_layout_placements(t->layout), placements);
}

/* Layers of a tensor-parallel model, each laid out as its style says: no call, and the result lies
 * as expected. */
static void what_fits_never_moves(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    sherd_tensor *x = make(mesh, SHAPE(4, 3, 6), "S(0)R", NULL);
    sherd_tensor *split = make(mesh, SHAPE(4, 3, 6), "S(0)S(2)", "2:2,4");
    sherd_tensor *rows = make(mesh, SHAPE(4, 3, 6), "S(0)S(1)", NULL);
    sherd_tensor *pending = make(mesh, SHAPE(4, 3, 6), "S(0)P(sum)", NULL);
    sherd_tensor *bias = make(mesh, SHAPE(6), "RR", NULL);
    sherd_tensor *square = make(mesh, SHAPE(6, 6), "RR", NULL);
    sherd_tensor *heads = make(mesh, SHAPE(2, 3, 3, 2), "S(0)S(2)", "2:2,1");
    sherd_generator g = sherd_generator_named("g");

    sherd_comm_reset(world);
    lies(sherd_linear(x, make(mesh, SHAPE(5, 6), "RS(0)", "0:1,4"),
                      make(mesh, SHAPE(5), "RS(0)", "0:1,4")),
         "S(0)S(2)");
    lies(sherd_linear(split, make(mesh, SHAPE(5, 6), "RS(1)", "1:2,4"), NULL), "S(0)P(sum)");
    lies(sherd_linear(split, make(mesh, SHAPE(6, 6), "RS(1)", "1:2,4"), bias), "S(0)P(sum)");
    lies(sherd_linear(pending, square, NULL), "S(0)P(sum)");
    lies(sherd_add(pending, bias), "S(0)P(sum)");
    lies(sherd_add(pending, pending), "S(0)P(sum)");
    lies(sherd_scale(pending, 2), "S(0)P(sum)");
    lies(sherd_mul(pending, bias), "S(0)P(sum)");
    lies(sherd_dropout(pending, 0.5, &g), "S(0)P(sum)");
    lies(sherd_gelu(split), "S(0)S(2)");
    lies(sherd_layer_norm(rows, bias, bias, 1e-5), "S(0)S(1)");
    lies(sherd_attention(heads, heads, heads, NULL), "S(0)S(2)");
    lies(sherd_sum(split), "P(sum)P(sum)");
    lies(sherd_mean(rows), "P(sum)P(sum)");
    lies(sherd_transpose(split, 1, 2), "S(0)S(1)");
    lies(sherd_matmul(split, make(mesh, SHAPE(6, 3), "RS(0)", "0:2,4")), "S(0)P(sum)");
    lies(sherd_view(split, (int64_t[]){4, 3, 3, 2}, 4), "S(0)S(2)");
    CHECK_EQ(calls(world), 0);
    CHECK_OK(sherd_world_check(world));
}

static void tables_and_losses_fit_too(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    op_case c = {.operands = 2, .ndim = {2, 2}, .shape = {{7, 6}, {4, 3}}, .index = 2, .limit = 7};
    sherd_tensor *ids = place(&c, 1, layout(mesh, SHAPE(4, 3), "S(0)R", NULL));

    sherd_comm_reset(world);
    lies(sherd_embedding(make(mesh, SHAPE(7, 6), "RS(0)", "0:7,0"), ids), "S(0)P(sum)");
    lies(sherd_embedding(make(mesh, SHAPE(7, 6), "RS(1)", NULL), ids), "S(0)S(2)");
    lies(sherd_cross_entropy(make(mesh, SHAPE(4, 3, 7), "S(0)R", NULL), ids), "P(sum)R");
    CHECK_EQ(calls(world), 0);
    /* Sharded classes: one exchange of statistics, however the classes are cut. */
    lies(sherd_cross_entropy(make(mesh, SHAPE(4, 3, 7), "S(0)S(2)", "2:0,7"), ids), "P(sum)R");
    CHECK_EQ(calls(world), 1);
    CHECK_OK(sherd_world_check(world));
}

/* A replicated operand is cut to fit for nothing; one of two that are in each other's way is moved,
 * the smaller. */
static void the_cheapest_move_is_taken(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2");

    sherd_comm_reset(world);
    lies(sherd_linear(make(mesh, SHAPE(3, 6), "R", NULL), make(mesh, SHAPE(5, 6), "S(1)", NULL),
                      NULL),
         "P(sum)");
    lies(sherd_add(make(mesh, SHAPE(4, 3), "R", NULL), make(mesh, SHAPE(4, 3), "S(0)", "0:1,3")),
         "S(0)");
    CHECK_EQ(calls(world), 0);
    lies(sherd_matmul(make(mesh, SHAPE(8, 4), "S(0)", NULL), make(mesh, SHAPE(4, 2), "S(1)", NULL)),
         "S(0)");
    CHECK_EQ(calls(world), 1);
    lies(sherd_matmul(make(mesh, SHAPE(2, 4), "S(0)", NULL), make(mesh, SHAPE(4, 8), "S(1)", NULL)),
         "S(1)");
    CHECK_EQ(calls(world), 2);
    /* Both must lie alike: the one with fewer bytes to receive moves. Here the other way costs 3
     * rows, this way 1. */
    lies(sherd_add(make(mesh, SHAPE(4, 3), "S(0)", "0:1,3"), make(mesh, SHAPE(4, 3), "S(0)", NULL)),
         "S(0)");
    CHECK_EQ(calls(world), 3);
    /* What is not linear settles. */
    lies(sherd_relu(make(mesh, SHAPE(4, 3), "P(sum)", NULL)), "R");
    CHECK_EQ(calls(world), 4);
    /* A sum of a pending and a sharded operand: reduced to where the other lies, not gathered. */
    lies(sherd_add(make(mesh, SHAPE(4, 3), "P(sum)", NULL), make(mesh, SHAPE(4, 3), "S(0)", NULL)),
         "S(0)");
    CHECK_EQ(calls(world), 5);
    CHECK_OK(sherd_world_check(world));
}

/* A weight sharded over both axes beside a batch over dp gives up dp only. */
static void only_the_axis_in_the_way_is_gathered(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    sherd_tensor *x = make(mesh, SHAPE(8, 8, 4), "S(0)R", NULL);

    sherd_comm_reset(world);
    lies(sherd_linear(x, make(mesh, SHAPE(8, 4), "S(0)[1]S(0)[0]", NULL), NULL), "S(0)S(2)");
    lies(sherd_linear(x, make(mesh, SHAPE(8, 4), "S(0)S(0)", NULL), NULL), "S(0)S(2)");
    lies(sherd_linear(x, make(mesh, SHAPE(8, 4), "S(1)S(0)", NULL), NULL), "S(0)S(2)");
    /* What is kept of explicit cuts is what they say without the inner axis. */
    sherd_tensor *y = sherd_linear(x, make(mesh, SHAPE(8, 4), "S(0)[1]S(0)[0]", "0:1,2,4,1"), NULL);
    CHECK_TEXT(sherd_layout_text(y->layout), "[8(dp),8,8(tp:3,5)] on (dp=2,tp=2)");
    CHECK_EQ(calls(world), 4);
    CHECK_OK(sherd_world_check(world));
}

static void replicated_work_stays_replicated(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    sherd_tensor *x = make(mesh, SHAPE(4, 3, 6), "RR", NULL);

    sherd_comm_reset(world);
    lies(sherd_linear(x, make(mesh, SHAPE(5, 6), "RR", NULL), NULL), "RR");
    lies(sherd_add(x, make(mesh, SHAPE(6), "RS(0)", NULL)), "RS(2)");
    CHECK_EQ(calls(world), 0);
    CHECK_OK(sherd_world_check(world));
}

static bool nothing(sherd_call *call)
{
    (void)call;
    return true;
}

/* A product, of which only the rule counts. */
static const sherd_op product = {.name = "product",
                                 .operand = {{"a", 0}, {"b", 0}},
                                 .result = {{"y", 0}},
                                 .rule = "...mk,kn->...mn",
                                 .linearity = SHERD_LINEAR,
                                 .forward = nothing};

/* A call as the door hands it to the solver. */
static void begin_call(sherd__run *run, const sherd_op *op, sherd_tensor *const *in, int operands,
                       int results)
{
    memset(run, 0, sizeof *run);
    run->call.op = op;
    run->call.linearity = op->linearity;
    run->call.operands = operands;
    run->call.results = results;
    for (int i = 0; i < operands; i++) {
        run->call.in[i] = run->arg[i] = in[i];
        if (in[i])
            run->call.world = in[i]->world;
    }
}

static void answers_are_cached(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2");
    sherd_tensor *in[] = {make(mesh, SHAPE(4, 6), "S(0)", NULL),
                          make(mesh, SHAPE(6, 2), "S(1)", NULL)};
    const sherd_layout *operands[] = {in[0]->layout, in[1]->layout};
    sherd_op other = product;
    sherd__run run;

    begin_call(&run, &product, in, 2, 1);
    const sherd__placing *first = sherd__solve(&run, operands);
    CHECK(first != NULL);
    int64_t before = sherd_world_allocations(world);
    begin_call(&run, &product, in, 2, 1);
    CHECK(first == sherd__solve(&run, operands));
    CHECK(!run.compiled); /* a call whose answer is known does without its rule */
    CHECK_EQ(sherd_world_allocations(world), before);
    other.linearity = SHERD_NONLINEAR;
    begin_call(&run, &other, in, 2, 1);
    CHECK(first != sherd__solve(&run, operands));
}

/* What an index string says of operands of these many dims, all of size 2 (-1: absent). */
static const char *compiled(sherd__run *run, sherd_world *world, const char *rule, int operands,
                            const int *ndims)
{
    static const int64_t shape[SHERD_MAX_DIMS] = {2, 2, 2, 2, 2, 2, 2, 2};
    sherd_tensor *in[3];
    sherd_op op = product;

    op.operand[2].name = "c";
    op.rule = rule;
    for (int i = 0; i < operands; i++)
        in[i] = ndims[i] < 0 ? NULL : sherd_constant(world, SHERD_F32, shape, ndims[i], 1);
    begin_call(run, &op, in, operands, strrchr(rule, ',') > strstr(rule, "->") ? 2 : 1);
    return sherd__compile(run);
}

static void index_strings_expand(sherd_world *world)
{
    sherd__run run;

    CHECK(!compiled(&run, world, "...mk,...kn->...mn", 2, (int[]){4, 4}));
    CHECK_TEXT(run.rule.operand[0], "ABmk");
    CHECK_TEXT(run.rule.operand[1], "ABkn");
    CHECK_TEXT(run.rule.result[0], "ABmn");
    CHECK(!compiled(&run, world, "...k,nk,n->...n,...", 3, (int[]){1, 2, -1}));
    CHECK_TEXT(run.rule.operand[0], "k");
    CHECK_TEXT(run.rule.operand[2], "");
    CHECK_TEXT(run.rule.result[0], "n");
    CHECK_TEXT(run.rule.result[1], "");
    CHECK_EQ(run.rule.results, 2);
    CHECK_TEXT(compiled(&run, world, "...mk,kn->...mn", 2, (int[]){1, 2}),
               "a must have at least 2 dims");
    CHECK_TEXT(compiled(&run, world, "...mk,kn->...mn", 2, (int[]){2, 3}), "b must have 2 dims");
    CHECK_TEXT(compiled(&run, world, "...mk,...kn->...mn", 2, (int[]){3, 4}), "b must have 3 dims");
    CHECK_TEXT(compiled(&run, world, "...,...->...ab", 2, (int[]){7, 7}),
               "the result would have more than 8 dims");
}

/* Column-parallel, GELU, row-parallel: one all-reduce forward, one backward. */
static void an_mlp_costs_one_call_each_way(sherd_world *world)
{
    int64_t ranks = sherd_world_ranks(world);
    char text[16];
    snprintf(text, sizeof text, "tp=%d", (int)ranks);
    const sherd_mesh *mesh = mesh_of(world, text);
    sherd_tensor *leaf = sherd_require_grad(make(mesh, SHAPE(2, 3, 6), "R", NULL), true);
    sherd_tensor *up = sherd_require_grad(make(mesh, SHAPE(8, 6), "S(0)", NULL), true);
    sherd_tensor *rise = sherd_require_grad(make(mesh, SHAPE(8), "S(0)", NULL), true);
    sherd_tensor *down = sherd_require_grad(make(mesh, SHAPE(6, 8), "S(1)", NULL), true);
    sherd_tensor *fall = sherd_require_grad(make(mesh, SHAPE(6), "R", NULL), true);

    sherd_tensor *x = sherd_scale(leaf, 0.5);
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_linear(sherd_gelu(sherd_linear(x, up, rise)), down, fall);
    CHECK_EQ(calls(world), 0);
    y = sherd_redistribute(y, layout(mesh, SHAPE(2, 3, 6), "R", NULL), NULL);
    CHECK_EQ(calls(world), 1);
    sherd_tensor *loss = sherd_sum(sherd_add(x, y));
    sherd_comm_reset(world);
    sherd_backward(loss);
    CHECK_EQ(calls(world), 1);
    sherd_grad(leaf);
    sherd_grad(up);
    sherd_grad(rise);
    sherd_grad(down);
    sherd_grad(fall);
    CHECK_EQ(calls(world), 1);
    CHECK_OK(sherd_world_check(world));
}

/* Three column-parallel products read one tensor: their pending gradients are added up, then
 * settled by one call. */
static void one_call_settles_three_uses(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "tp=3");
    sherd_tensor *leaf = sherd_require_grad(make(mesh, SHAPE(2, 3, 6), "R", NULL), true);
    sherd_tensor *sum = NULL;

    sherd_comm_reset(world);
    sherd_tensor *x = sherd_gelu(leaf);
    for (int i = 0; i < 3; i++) {
        sherd_tensor *w = sherd_require_grad(make(mesh, SHAPE(5, 6), "S(0)", "0:2,2,1"), true);
        sherd_tensor *y = sherd_linear(x, w, NULL);
        sum = sum ? sherd_add(sum, y) : y;
    }
    sherd_backward(sherd_sum(sum));
    CHECK_EQ(calls(world), 1);
    CHECK_OK(sherd_world_check(world));
}

/* A move back over dp leaves what is pending over tp as it is: two gathered uses are settled by one
 * call. */
static void a_move_back_settles_only_what_it_moved(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    sherd_tensor *leaf = sherd_require_grad(make(mesh, SHAPE(4, 6), "S(0)R", NULL), true);
    const sherd_layout *whole = layout(mesh, SHAPE(4, 6), "RR", NULL);
    sherd_tensor *sum = NULL, *x = sherd_gelu(leaf);

    for (int i = 0; i < 2; i++) {
        sherd_tensor *w = make(mesh, SHAPE(5, 6), "RS(0)", NULL);
        sherd_tensor *y = sherd_linear(sherd_redistribute(x, whole, NULL), w, NULL);
        sum = sum ? sherd_add(sum, y) : y;
    }
    sherd_tensor *loss = sherd_sum(sum);
    sherd_comm_reset(world);
    sherd_backward(loss);
    CHECK_EQ(calls(world), 1);
    CHECK_OK(sherd_world_check(world));
}

/* What is pending otherwise than as a sum does not go through a product or a sum: it is reduced
 * first. */
static void other_reductions_settle_first(sherd_world *world)
{
    static const struct {
        const char *placements;
        double value; /* of ranks that hold 1, 2, 3 */
    } pending[] = {{"P(max)", 3}, {"P(min)", 1}, {"P(avg)", 2}, {"P(product)", 6}};
    const sherd_mesh *mesh = mesh_of(world, "x=3");

    for (int i = 0; i < LEN(pending); i++) {
        sherd_tensor *t =
            sherd__new_on(layout(mesh, SHAPE(4, 3), pending[i].placements, NULL), SHERD_F64);
        for (int e = 0; e < 12; e++)
            ((double *)sherd__fresh(t))[e] = sherd_world_rank(world) + 1;
        sherd_tensor *results[] = {sherd_scale(t, 1), sherd_add(t, sherd_scale(t, 0)),
                                   sherd_relu(t)};
        for (int j = 0; j < LEN(results); j++) {
            double want[12];
            for (int e = 0; e < 12; e++)
                want[e] = pending[i].value;
            lies(results[j], "R");
            CHECK(distance(sherd_full(results[j]), want, 12) == 0);
        }
    }
    CHECK_OK(sherd_world_check(world));
}

static void means_of_nothing_are_no_numbers(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=3");
    sherd_tensor *nothing = make(mesh, SHAPE(0, 3), "S(0)", NULL);
    op_case c = {.operands = 1, .ndim = {1}, .shape = {{0}}, .index = 1, .limit = 3};
    sherd_tensor *ids = place(&c, 0, layout(mesh, SHAPE(0), "S(0)", NULL));

    CHECK(isnan(sherd_item(sherd_mean(nothing))));
    CHECK(isnan(sherd_item(sherd_cross_entropy(nothing, ids))));
    CHECK_NEAR(sherd_item(sherd_sum(nothing)), 0, 0);
    CHECK_OK(sherd_world_check(world));
}

/* A gathered parameter is kept as its shard and gathered again in backward; its gradient is
 * scattered right away. */
static void a_gathered_operand_is_saved_as_it_was(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2");
    sherd_tensor *x = sherd_require_grad(make(mesh, SHAPE(8, 4), "S(0)", NULL), true);
    sherd_tensor *w = sherd_require_grad(make(mesh, SHAPE(4, 4), "S(0)", NULL), true);

    sherd_comm_reset(world);
    sherd_scope_begin(world);
    sherd_tensor *y = sherd_linear(x, w, NULL);
    lies(y, "S(0)");
    CHECK_EQ(calls(world), 1);
    CHECK_EQ(sherd_saved_bytes(world), 0); /* leaves only */
    sherd_backward(sherd_sum(y));
    sherd_scope_end(world);
    CHECK_EQ(calls(world), 3);
    lies(sherd_grad(w), "S(0)");
    CHECK_EQ(calls(world), 3);
    CHECK_OK(sherd_world_check(world));
}

/* Or as it is, which takes memory and no call; the values are the same. */
static void a_gathered_operand_is_kept_where_that_is_asked(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "tp=2");

    for (int keep = 0; keep < 2; keep++) {
        sherd_tensor *x = sherd_require_grad(make(mesh, SHAPE(7, 4), "S(0)", NULL), true);
        sherd_tensor *w = sherd_require_grad(make(mesh, SHAPE(6, 4), "S(0)", NULL), true);
        sherd_redistribute_options options = {.keep = keep};
        double expected[24];
        sherd_scope_begin(world);
        for (int i = 0; i < 24; i++) {
            expected[i] = 0;
            for (int row = 0; row < 7; row++)
                expected[i] += value_at(0, row * 4 + i % 4);
        }
        sherd_tensor *y = sherd_linear(
            sherd_redistribute(x, layout(mesh, SHAPE(7, 4), "R", NULL), &options), w, NULL);
        lies(y, "S(1)");
        CHECK_EQ(sherd_saved_bytes(world), keep ? 7 * 4 * 8 : 0);
        sherd_comm_reset(world);
        sherd_backward(sherd_sum(y));
        sherd_grad(x);
        CHECK_EQ(calls(world), keep ? 1 : 2); /* the gradient is scattered; and the gather again */
        CHECK(distance(sherd_full(sherd_grad(w)), expected, 24) <= 1e-12);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(what_fits_never_moves), {4}},
    {TEST(tables_and_losses_fit_too), {4}},
    {TEST(the_cheapest_move_is_taken), {2}},
    {TEST(only_the_axis_in_the_way_is_gathered), {4}},
    {TEST(replicated_work_stays_replicated), {4}},
    {TEST(answers_are_cached), {2}},
    {TEST(index_strings_expand), {1}},
    {TEST(an_mlp_costs_one_call_each_way), {2, 3}},
    {TEST(one_call_settles_three_uses), {3}},
    {TEST(a_move_back_settles_only_what_it_moved), {4}},
    {TEST(other_reductions_settle_first), {3}},
    {TEST(means_of_nothing_are_no_numbers), {3}},
    {TEST(a_gathered_operand_is_saved_as_it_was), {2}},
    {TEST(a_gathered_operand_is_kept_where_that_is_asked), {2}},
};
CHECK_MAIN(tests)
