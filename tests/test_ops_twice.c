/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of gradients: of every operator of the library, a weighted sum of the gradients of its
 * operands is differentiated once more. The first loss is not linear in the results, so that the
 * gradients depend on the operands in any case. Plain, that is what central differences of the first
 * gradients say; under every layout, on 2, 3 and 2x2 ranks, it is what it is plain. The operators
 * that can not be differentiated twice are listed here: for these it is the error that the header
 * names, and for no others.
 *
 * SHERD_PROOF=1: more calls and layouts, and differences of those on 3 and 4 ranks too, where each
 * rank takes them. SHERD_ROW=gather: that row only.
 */
#include "operator_list.h"
#include "tensors.h"

enum { CALLS = 2, PROVEN_CALLS = 30, MOST_TRIED = 2, MOST_PROVEN = 60 };

/* A second backward through these is refused. */
static const char *const once[] = {"neighbourhood_attention"};

typedef struct outcome {
    bool graded[MOST_IN];
    double grad[MOST_IN][MOST_ELEMENTS];
} outcome;

typedef struct tally {
    int64_t calls, checked, refused, tried;
} tally;

typedef struct bench {
    sherd_world *world;
    const sherd_mesh *mesh;
    call_plan plan;
    int layouts[MOST_IN];
    const sherd_layout *layout[MOST_IN][MOST_LAYOUTS];
    outcome plain, spread;
    bool smooth[MOST_IN]; /* the operand has a first gradient */
    int calls, most;
    bool compares; /* plain calls with differences */
    tally sum;
} bench;

static bool is_once(const call_plan *p)
{
    const row *r = p->row;

    if (r->run == run_attention_general && p->number[1])
        return true; /* with dropout */
    for (int i = 0; i < LEN(once); i++)
        if (strcmp(once[i], r->name) == 0)
            return true;
    return false;
}

/* t times weights, summed up. */
static sherd_tensor *weighed(sherd_tensor *t, uint64_t seed)
{
    need w = weights_of(t, t->dtype, seed);

    return sherd_sum(sherd_mul(t, plain_leaf(t->world, &w)));
}

/* The first gradients of the operands; NULL where there is none. */
static void gradients_of(bench *b, sherd_tensor *const *in, sherd_tensor **out, bool recorded)
{
    sherd_generator generator = sherd_generator_named("table");
    act a = {.p = &b->plan, .generator = &generator};
    sherd_tensor *inputs[MOST_IN], *found[MOST_IN], *result[2], *loss[2];
    int n = 0, count = 0, at = 0;
    bool recording = sherd_set_recording(b->world, true);

    for (int i = 0; i < b->plan.operands; i++) {
        a.in[i] = in[i];
        if (sherd_requires_grad(in[i]))
            inputs[n++] = in[i];
    }
    result[0] = b->plan.row->run(&a);
    result[1] = a.more;
    for (int j = 0; j < 2; j++) {
        if (!result[j] || !sherd_requires_grad(result[j]))
            continue;
        loss[count++] = sherd_add(weighed(result[j], 7 + (uint64_t)j),
                                  sherd_scale(sherd_sum(sherd_mul(result[j], result[j])), 0.3));
    }
    for (int i = 0; i < n; i++)
        found[i] = NULL;
    sherd_gradients(found, inputs, n, loss, count,
                    &(sherd_gradients_options){.unused = true, .create_graph = recorded});
    sherd_set_recording(b->world, recording);
    for (int i = 0; i < b->plan.operands; i++)
        out[i] = sherd_requires_grad(in[i]) ? found[at++] : NULL;
}

/* To be differentiated: it depends on each operand, if only by a term of its own. */
static sherd_tensor *penalty(sherd_tensor *const *in, int count, void *payload)
{
    bench *b = payload;
    sherd_tensor *grad[MOST_IN], *sum = NULL;

    gradients_of(b, in, grad, true);
    for (int i = 0; i < count; i++) {
        if (!sherd_requires_grad(in[i]))
            continue;
        sherd_tensor *own = sherd_sum(sherd_scale(in[i], 0.5));
        sum = sum ? sherd_add(sum, own) : own;
        b->smooth[i] = grad[i] != NULL;
        if (grad[i])
            sum = sherd_add(sum, sherd_cast(weighed(grad[i], 70 + (uint64_t)i), sum->dtype));
    }
    return sum;
}

static bool any_wants(const bench *b, sherd_tensor *const *in)
{
    for (int i = 0; i < b->plan.operands; i++)
        if (sherd_requires_grad(in[i]))
            return true;
    return false;
}

static void make_leaves(bench *b, sherd_tensor **in, int64_t number)
{
    for (int i = 0; i < b->plan.operands; i++) {
        in[i] = number < 0
                    ? plain_leaf(b->world, &b->plan.in[i])
                    : leaf_on(b->world, &b->plan.in[i], b->layout[i][number % b->layouts[i]]);
        if (b->plan.in[i].dtype == SHERD_F64)
            in[i] = sherd_require_grad(in[i], true);
        if (number >= 0)
            number /= b->layouts[i];
    }
}

static void say_operands(const bench *b, sherd_tensor *const *in)
{
    say_failed_call(&b->plan, in, b->world);
}

/* Second gradients of this rank's whole operands. False: refused, or wrong. */
static bool evaluate(bench *b, sherd_tensor *const *in, outcome *out)
{
    sherd_backward(penalty(in, b->plan.operands, b));
    for (int i = 0; i < b->plan.operands; i++) {
        sherd_tensor *g = sherd_requires_grad(in[i]) ? sherd_grad(in[i]) : NULL;
        out->graded[i] = g != NULL;
        if (g && !sherd_tensor_failed(g))
            load_all(out->grad[i], sherd_full(g));
    }
    sherd_status status = sherd_world_check(b->world);
    bool refused =
        status == SHERD_EINVAL && strstr(sherd_world_error(b->world), "(create_graph)") != NULL;
    b->sum.refused += refused;
    if (!CHECK(!status || (refused && is_once(&b->plan))))
        say_operands(b, in);
    return !status;
}

/* A backward that is recorded gives the same gradients as one that is not. */
static bool same_first(bench *b, sherd_tensor *const *in)
{
    static double x[CHECK_RANKS][MOST_ELEMENTS], y[CHECK_RANKS][MOST_ELEMENTS];
    sherd_tensor *once_more[MOST_IN], *recorded[MOST_IN];
    int me = sherd_world_rank(b->world);
    bool good = true;

    gradients_of(b, in, once_more, false);
    gradients_of(b, in, recorded, true);
    for (int i = 0; i < b->plan.operands && good; i++) {
        good = CHECK_EQ(once_more[i] != NULL, recorded[i] != NULL);
        if (!good || !recorded[i])
            continue;
        int64_t n = load_all(x[me], sherd_full(once_more[i]));
        load_all(y[me], sherd_full(recorded[i]));
        good = CHECK(farthest(x[me], y[me], n) <= 1e-11 * (1 + largest(x[me], n)));
    }
    if (!good)
        say_operands(b, in);
    return good;
}

static bool run_plain(bench *b)
{
    sherd_tensor *in[MOST_IN];

    make_leaves(b, in, -1);
    if (!any_wants(b, in))
        return false;
    if (b->compares && !is_once(&b->plan) && !same_first(b, in))
        return false; /* the same calls on any number of ranks */
    if (!evaluate(b, in, &b->plain))
        return false;
    if (!b->compares || b->plan.row->run == run_cast)
        return true; /* rounding to f32 is no smooth function */
    for (int i = 0; i < b->plan.operands; i++)
        if (sherd_requires_grad(in[i]) && !b->smooth[i])
            in[i] = sherd_require_grad(in[i], false);
    if (!any_wants(b, in))
        return true;
    sherd_status status =
        sherd_check_gradients(penalty, in, b->plan.operands, &(sherd_check_options){.payload = b});
    b->sum.checked++;
    if (!CHECK_OK(status))
        say_operands(b, in);
    return !status;
}

static void try_layouts(bench *b, int64_t number)
{
    sherd_tensor *in[MOST_IN];
    bool good = true;

    sherd_scope_begin(b->world);
    make_leaves(b, in, number);
    good = evaluate(b, in, &b->spread);
    for (int i = 0; i < b->plan.operands && good; i++) {
        int64_t n = product_of(b->plan.in[i].shape, b->plan.in[i].ndim);
        const double *want = b->plain.grad[i];
        good = CHECK_EQ(b->spread.graded[i], b->plain.graded[i]);
        if (good && b->plain.graded[i])
            good = CHECK(farthest(b->spread.grad[i], want, n) <= 1e-10 * (1 + largest(want, n)));
        if (!good)
            say_operands(b, in);
    }
    b->sum.tried++;
    sherd_scope_end(b->world);
}

static void try_row(bench *b, int number)
{
    const row *r = &rows[number];
    uint64_t dice = (uint64_t)number + 5;

    for (int turn = 0, draws = 0; turn < b->calls && CHECK(draws < 1000); draws++) {
        need first = {.dtype = SHERD_F64};
        draw_shape(&first, r->least, r->most, 12, &dice);
        if (!draw_call(&b->plan, r, &first, &dice))
            continue;
        turn++;
        sherd_scope_begin(b->world);
        int64_t all = 1;
        for (int i = 0; i < b->plan.operands; i++) {
            b->layouts[i] = list_layouts(b->layout[i], b->mesh, &b->plan.in[i], &dice);
            all *= b->layouts[i];
        }
        b->sum.calls++;
        if (run_plain(b))
            for (int k = 0; k < b->most; k++)
                try_layouts(b, roll(&dice, (int)(all > 1000000 ? 1000000 : all)));
        sherd_scope_end(b->world);
        if (!CHECK_OK(sherd_world_check(b->world)))
            fprintf(stderr, "  %s: %s\n", r->name, sherd_world_error(b->world));
        CHECK_EQ(sherd_saved_bytes(b->world), 0);
    }
}

static void every_operator_twice(sherd_world *world)
{
    static bench benches[CHECK_RANKS];
    bench *b = &benches[sherd_world_rank(world)];
    int64_t ranks = sherd_world_ranks(world);
    const char *only = getenv("SHERD_ROW");
    bool proof = getenv("SHERD_PROOF") != NULL;

    *b = (bench){.world = world,
                 .calls = proof ? PROVEN_CALLS : CALLS - (ranks == 3),
                 .most = proof ? MOST_PROVEN : MOST_TRIED,
                 .compares = proof || ranks == 2};
    CHECK_OK(sherd_mesh_create(&b->mesh, world, ranks == 4 ? 2 : 1,
                               (int64_t[]){ranks == 4 ? 2 : ranks, 2}, NULL, NULL));
    for (int i = 0; i < LEN(rows); i++)
        if (!only || strcmp(only, rows[i].name) == 0)
            try_row(b, i);
    if (sherd_world_rank(world) == 0)
        printf("%lld calls: %lld against differences, %lld under other layouts, %lld refused\n",
               (long long)b->sum.calls, (long long)b->sum.checked, (long long)b->sum.tried,
               (long long)b->sum.refused);
}

/* Then it is as of a product of several factors, with gradients of gradients that are 0. */
static void a_product_of_one_factor_has_second_gradients(sherd_world *world)
{
    const sherd_gradients_options recorded = {.create_graph = true};
    const int64_t shape[] = {3, 1};
    const int last = 1;

    for (int how = 0; how < 3; how++) {
        const sherd_layout *layout = layout_of(line_of_ranks(world), 2, shape, "S(0)", NULL);
        sherd_tensor *x = sherd_require_grad(indices_on(layout, SHERD_F64), true), *dx, *ddx;
        sherd_tensor *y =
            how == 2 ? sherd_prod(sherd_narrow(sherd_view(x, shape, 1), 0, 2, 1), NULL, 0, false)
                     : sherd_sum(sherd_prod(x, &last, 1, how));
        sherd_gradients(&dx, &x, 1, &y, 1, &recorded);
        sherd_tensor *loss = sherd_sum(sherd_mul(dx, dx));
        sherd_gradients(&ddx, &x, 1, &loss, 1, NULL);
        dx = sherd_full(dx);
        ddx = sherd_full(ddx);
        for (int i = 0; i < 3 && CHECK(!sherd_tensor_failed(ddx)); i++) {
            CHECK_EQ(((const double *)sherd_tensor_read(dx))[i], how < 2 || i == 2);
            CHECK_EQ(((const double *)sherd_tensor_read(ddx))[i], 0);
        }
        CHECK_OK(sherd_world_check(world));
    }
}

static const check_test tests[] = {
    {TEST(every_operator_twice), {2, 3, 4}},
    {TEST(a_product_of_one_factor_has_second_gradients), {1, 2, 3}},
};
CHECK_MAIN(tests)
