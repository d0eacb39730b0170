/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operator of the library's own table under every layout: plain, replicated, sharded on each
 * dim evenly, unevenly and with all on one shard, pending by each reduction, in all combinations of
 * all axes and operands, on 2, 3 and 2x2 ranks. Results and gradients equal the plain ones. Refused
 * is what docs/operators.md says, and nothing else: a plain operand that varies, and an average of
 * whole numbers. An operator without a row is an error, and so is a row that does not run its
 * operator.
 *
 * SHERD_PROOF=1: more calls; of each tenth all combinations up to MOST_PROVEN (MOST_OF_TWO_AXES),
 * else that many spread over all of them. SHERD_ROW=gather: that row only.
 */
#include "operator_list.h"

enum {
    CALLS = 3,
    PROVEN_CALLS = 60,
    DEEP = 10,
    MOST_TRIED = 3,
    MOST_PROVEN = 200000,
    MOST_OF_TWO_AXES = 1500
};

typedef struct tally {
    int64_t calls, whole, layouts, tried, compared, refused, gradients;
} tally;

/* What a call gives: results and gradients, whole. */
typedef struct outcome {
    int64_t count[2];
    double y[2][MOST_ELEMENTS];
    bool graded[MOST_IN];
    double grad[MOST_IN][MOST_ELEMENTS];
} outcome;

typedef struct bench {
    sherd_world *world;
    const sherd_mesh *mesh;
    call_plan plan;
    int layouts[MOST_IN];
    const sherd_layout *layout[MOST_IN][MOST_LAYOUTS];
    outcome plain, spread;
    int64_t most, deep; /* combinations of a call, and of each DEEP-th */
    int calls;
    tally sum;
} bench;

/* ---- one call -------------------------------------------------------------------------------- */

static bool wants_grad(const need *w)
{
    return is_fraction(w->dtype);
}

/* The operator on these operands, and its gradients where weights flow in. */
static void evaluate(bench *b, sherd_tensor *const *in, outcome *out)
{
    sherd_generator generator = sherd_generator_named("table");
    act a = {.p = &b->plan, .generator = &generator};
    sherd_tensor *result[2], *graded[2], *weight[2];
    int count = 0;

    for (int i = 0; i < b->plan.operands; i++)
        a.in[i] = wants_grad(&b->plan.in[i]) ? sherd_require_grad(in[i], true) : in[i];
    result[0] = b->plan.row->run(&a);
    result[1] = a.more;
    for (int j = 0; j < 2; j++) {
        out->count[j] = result[j] ? load_all(out->y[j], sherd_full(result[j])) : 0;
        if (!result[j] || !sherd_requires_grad(result[j]))
            continue;
        need w = weights_of(result[j], result[j]->dtype, 7 + (uint64_t)j);
        weight[count] = plain_leaf(b->world, &w);
        graded[count++] = result[j];
    }
    sherd_backward_with(graded, weight, count, NULL);
    for (int i = 0; i < b->plan.operands; i++) {
        sherd_tensor *g = wants_grad(&b->plan.in[i]) ? sherd_grad(in[i]) : NULL;
        out->graded[i] = g != NULL;
        if (g)
            CHECK_EQ(load_all(out->grad[i], sherd_full(g)), sherd_tensor_count(in[i]));
    }
}

/* As the kernels of a sum of some dozens round. */
static bool are_equal(const double *x, const double *want, int64_t n, bool narrow)
{
    return farthest(x, want, n) <= (narrow ? 1e-5 : 1e-11) * (1 + largest(want, n));
}

static bool same_outcome(bench *b)
{
    const outcome *x = &b->spread, *want = &b->plain;
    bool narrow = b->plan.row->run == run_cast && b->plan.number[0] == SHERD_F32, good = true;

    for (int j = 0; j < 2; j++)
        good &= CHECK_EQ(x->count[j], want->count[j]) &&
                CHECK(are_equal(x->y[j], want->y[j], want->count[j], narrow));
    for (int i = 0; i < b->plan.operands; i++) {
        int64_t n = product_of(b->plan.in[i].shape, b->plan.in[i].ndim);
        good &= CHECK_EQ(x->graded[i], want->graded[i]);
        if (!want->graded[i] || !x->graded[i])
            continue;
        good &= CHECK(are_equal(x->grad[i], want->grad[i], n, narrow));
        b->sum.gradients++;
    }
    return good;
}

static void say_operands(const bench *b, sherd_tensor *const *in)
{
    say_failed_call(&b->plan, in, b->world);
}

/* ---- all layouts ----------------------------------------------------------------------------- */

/* The number-th combination. */
static void try_combination(bench *b, int64_t number)
{
    sherd_tensor *in[MOST_IN];

    sherd_scope_begin(b->world);
    for (int i = 0; i < b->plan.operands; i++) {
        in[i] = leaf_on(b->world, &b->plan.in[i], b->layout[i][number % b->layouts[i]]);
        number /= b->layouts[i];
    }
    evaluate(b, in, &b->spread);
    bool good = CHECK_OK(sherd_world_check(b->world));
    good = same_outcome(b) && good;
    b->sum.tried++;
    b->sum.compared += good;
    if (!good)
        say_operands(b, in);
    sherd_scope_end(b->world);
}

static int64_t common(int64_t a, int64_t b)
{
    return b ? common(b, a % b) : a;
}

/* All combinations, or `most` of them that are spread over all. */
static void try_all(bench *b, int64_t most)
{
    int64_t all = 1, step;

    for (int i = 0; i < b->plan.operands; i++)
        all *= b->layouts[i];
    b->sum.layouts += all;
    b->sum.whole += all <= most;
    step = all <= most ? 1 : (int64_t)(0.6180339887 * (double)all);
    while (common(step, all) > 1)
        step++;
    for (int64_t i = 0, number = 1 % all; i < all && i < most; i++, number += step)
        try_combination(b, number % all);
}

/* A plain operand that varies beside distributed ones is refused by name, whichever it is. */
static void try_varying(bench *b, uint64_t *dice)
{
    for (int varying = 0; varying < b->plan.operands && b->plan.operands > 1; varying++) {
        sherd_generator generator = sherd_generator_named("table");
        act a = {.p = &b->plan, .generator = &generator};
        sherd_scope_begin(b->world);
        for (int i = 0; i < b->plan.operands; i++)
            a.in[i] =
                leaf_on(b->world, &b->plan.in[i], b->layout[i][1 + roll(dice, b->layouts[i] - 1)]);
        const need *w = &b->plan.in[varying];
        a.in[varying] = sherd_constant(b->world, w->dtype, w->shape, w->ndim, 0);
        a.in[varying]->varies = (1u << sherd_mesh_axes(b->mesh)) - 1;
        bool good = CHECK(sherd_tensor_failed(b->plan.row->run(&a)));
        good = CHECK_EQ(sherd_world_check(b->world), SHERD_EINVAL) && good;
        good = CHECK(strstr(sherd_world_error(b->world), "may vary over axis") != NULL) && good;
        b->sum.tried++;
        b->sum.refused += good;
        if (!good)
            say_operands(b, a.in);
        sherd_scope_end(b->world);
    }
}

/* There is no average of whole numbers: where one is to be settled, that is said. A cast to
 * fractions is in time. */
static void try_average(bench *b)
{
    sherd_generator generator = sherd_generator_named("table");
    act a = {.p = &b->plan, .generator = &generator};
    const need *w = &b->plan.in[0];
    sherd_placement placements[SHERD_MAX_AXES] = {{SHERD_UNSET, 0, SHERD_SUM}};
    const sherd_layout *layout = NULL;

    if (is_fraction(w->dtype))
        return;
    sherd_scope_begin(b->world);
    placements[0] = sherd_partial(SHERD_AVG);
    CHECK_OK(sherd_layout_create(&layout, b->mesh, w->ndim, w->shape, placements, NULL));
    for (int i = 0; i < b->plan.operands; i++)
        a.in[i] = leaf_on(b->world, &b->plan.in[i], i ? b->layout[i][1] : layout);
    int64_t n = load_all(b->spread.y[0], sherd_full(b->plan.row->run(&a)));
    sherd_status status = sherd_world_check(b->world);
    bool good = CHECK(status == SHERD_ENOTSUP || n == b->plain.count[0]);
    if (status)
        good = CHECK(strstr(sherd_world_error(b->world), "has no average") != NULL) && good;
    else
        good = CHECK(are_equal(b->spread.y[0], b->plain.y[0], n, false)) && good;
    b->sum.tried++;
    b->sum.compared += good && !status;
    b->sum.refused += good && status;
    if (!good)
        say_operands(b, a.in);
    sherd_scope_end(b->world);
}

/* ---- all operators --------------------------------------------------------------------------- */

typedef struct counter {
    int64_t calls;
} counter;

static bool count_call(sherd_call *call, void *context)
{
    ((counter *)context)->calls++;
    return sherd_call_original(call);
}

/* The plain outcome. The row must run the operator whose name it has. */
static void run_plain(bench *b)
{
    sherd_tensor *in[MOST_IN];
    const row *r = b->plan.row;
    counter seen = {0};
    const sherd_op_handler handler = {.run = count_call, .context = &seen};

    for (int i = 0; i < b->plan.operands; i++)
        in[i] = plain_leaf(b->world, &b->plan.in[i]);
    if (r->op[0])
        CHECK_OK(sherd_op_override(b->world, r->op, SHERD_ABOVE_TAPE, &handler));
    evaluate(b, in, &b->plain);
    if (r->op[0])
        CHECK_OK(sherd_op_override(b->world, r->op, SHERD_ABOVE_TAPE, NULL));
    if (!CHECK(!r->op[0] || seen.calls > 0))
        say_operands(b, in);
}

/* The last calls of operators that take other numbers than fractions are of those. */
static sherd_dtype dtype_of(const bench *b, const row *r, int turn)
{
    static const sherd_dtype others[] = {SHERD_I32, SHERD_BOOL, SHERD_I64};
    const sherd_op *op = r->op[0] ? sherd_op_find(b->world, r->op) : NULL;

    if (turn < b->calls * 2 / 3 || !op || op->numbers == SHERD_FRACTIONS)
        return SHERD_F64;
    return others[op->numbers == SHERD_NUMBERS ? 0 : turn % 3];
}

static void try_row(bench *b, int number)
{
    const row *r = &rows[number];
    uint64_t dice = (uint64_t)number + 1;

    for (int turn = 0, draws = 0; turn < b->calls && CHECK(draws < 1000); draws++) {
        need first = {.dtype = dtype_of(b, r, turn)};
        draw_shape(&first, r->least, r->most, 12, &dice);
        if (!draw_call(&b->plan, r, &first, &dice))
            continue;
        turn++;
        sherd_scope_begin(b->world);
        for (int i = 0; i < b->plan.operands; i++)
            b->layouts[i] = list_layouts(b->layout[i], b->mesh, &b->plan.in[i], &dice);
        run_plain(b);
        b->sum.calls++;
        try_all(b, turn % DEEP == 1 ? b->deep : b->most);
        if (turn == 1 && r->op[0])
            try_varying(b, &dice);
        if (turn == b->calls)
            try_average(b);
        sherd_scope_end(b->world);
        if (!CHECK_OK(sherd_world_check(b->world)))
            fprintf(stderr, "  %s: %s\n", r->name, sherd_world_error(b->world));
        CHECK_EQ(sherd_saved_bytes(b->world), 0);
    }
}

static const sherd_mesh *mesh_for(sherd_world *world)
{
    int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, ranks == 4 ? 2 : 1,
                               (int64_t[]){ranks == 4 ? 2 : ranks, 2}, NULL, NULL));
    return mesh;
}

static void every_operator_under_every_layout(sherd_world *world)
{
    static bench benches[CHECK_RANKS];
    bench *b = &benches[sherd_world_rank(world)];
    const char *only = getenv("SHERD_ROW");
    bool proof = getenv("SHERD_PROOF") != NULL;
    int ranks = sherd_world_ranks(world);

    *b = (bench){.world = world,
                 .mesh = mesh_for(world),
                 .most = MOST_TRIED,
                 .deep = !proof       ? MOST_TRIED
                         : ranks == 4 ? MOST_OF_TWO_AXES
                                      : MOST_PROVEN,
                 .calls = proof ? PROVEN_CALLS : CALLS};
    for (int i = 0; i < LEN(rows); i++)
        if (!only || strcmp(only, rows[i].name) == 0)
            try_row(b, i);
    if (sherd_world_rank(world) == 0)
        printf(
            "%s: %d rows, %lld calls with %lld combinations of layouts (all of %lld calls): %lld "
            "tried, %lld equal, %lld refused; %lld gradients equal\n",
            sherd_mesh_text(b->mesh), LEN(rows), (long long)b->sum.calls, (long long)b->sum.layouts,
            (long long)b->sum.whole, (long long)b->sum.tried, (long long)b->sum.compared,
            (long long)b->sum.refused, (long long)b->sum.gradients);
}

/* What another operator becomes where sequences are sharded: the rows of attention run it. */
static bool is_another_inside(const char *name)
{
    return strcmp(name, "sherd_attention_pieces") == 0;
}

static void every_operator_has_a_row(sherd_world *world)
{
    int operators = 0;

    (void)world;
    for (; sherd_op_at(operators); operators++) {
        const char *name = sherd_op_at(operators)->name;
        bool found = is_another_inside(name);
        for (int i = 0; i < LEN(rows) && !found; i++)
            found = strcmp(rows[i].op, name) == 0;
        if (!CHECK(found))
            fprintf(stderr, "  %s\n", name);
    }
    for (int i = 0; i < LEN(rows); i++)
        if (!CHECK(!rows[i].op[0] || sherd_op_find(NULL, rows[i].op)))
            fprintf(stderr, "  %s\n", rows[i].op);
    printf("%d operators\n", operators);
}

static const check_test tests[] = {
    {TEST(every_operator_has_a_row), {1}},
    {TEST(every_operator_under_every_layout), {2, 3, 4}},
};
CHECK_MAIN(tests)
