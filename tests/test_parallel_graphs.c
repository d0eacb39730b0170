/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs over all operators (operator_graph.h), f32 and f64, plain and on a mesh: leaves
 * in any layout, pending too; moves of one tensor, of several at once, moves that are only begun,
 * to another mesh and back, to pieces and back, to plain tensors; views, writes in place;
 * checkpointed modules, also one within another, with and without input_reshard; gradients that are
 * given in any layout, twice through a retained graph, asked for, or differentiated again. Results
 * and gradients of all leaves agree; and with modules they are those without, bit for bit.
 *
 * SHERD_PROOF=1: 100,000 programs. SHERD_GRAPH=n: the n-th alone, which is printed, with each value
 * that is wrong.
 */
#include "operator_graph_run.h"

enum { SOME = 300, MANY_MORE = 33334 };
/* Up to so many times as many are drawn; of those behind SOME, one that has an operator which no
 * other had before is run. */
enum { MOST_DRAWN = 24 };

typedef struct outcome {
    int64_t count[MOST_VALUES], graded[MOST_VALUES]; /* -1: none */
    double x[MOST_VALUES][MOST_ELEMENTS], grad[MOST_VALUES][MOST_ELEMENTS];
} outcome;

typedef struct tally {
    int64_t programs, calls, moves, many, modules, checkpointed, resharded, values, gradients;
    int64_t of_row[LEN(rows)];
} tally;

typedef struct bench {
    program program;
    drawing drawing;
    const sherd_mesh *mesh, *other;
    outcome plain, spread, bare; /* bare: spread without modules */
    tally sum;
} bench;

/* ---- outcomes -------------------------------------------------------------------------------- */

static void make_leaves(runner *r)
{
    uint64_t dice = r->p->seed + 99;

    for (int v = 0; v < r->p->values; v++) {
        const need *w = &r->p->value[v];
        const sherd_layout *layout = NULL;
        if (!r->p->leaf[v])
            continue;
        if (r->mesh && roll(&dice, 6))
            layout = any_layout(r->mesh, w, 31, &dice);
        r->value[v] = leaf_on(r->world, w, layout);
        if (r->p->wanted[v])
            sherd_require_grad(r->value[v], true);
    }
}

/* What nobody used and a gradient flows into, and gradients for it that lie anyhow. */
static int outputs_of(runner *r, sherd_tensor **out, sherd_tensor **gradient)
{
    uint64_t dice = r->p->seed + 77;
    int count = 0;

    for (int v = 0; v < r->p->values; v++) {
        sherd_tensor *t = r->value[v];
        if (!is_final(r->p, v) || sherd_tensor_failed(t) || !sherd_requires_grad(t))
            continue;
        need w = weights_of(t, t->dtype, (uint64_t)v);
        bool spread = sherd_tensor_layout(t) && roll(&dice, 2);
        const sherd_layout *layout =
            spread ? any_layout(r->mesh, &w, 1u << SHERD_SUM, &dice) : NULL;
        gradient[count] = leaf_on(r->world, &w, layout);
        out[count++] = t;
    }
    return count;
}

/* The sum of the squares of the gradients of leaves; NULL if there are none. */
static sherd_tensor *penalty_of(sherd_tensor *const *leaf, int leaves, sherd_tensor *const *out,
                                sherd_tensor *const *gradient, int count)
{
    sherd_tensor *g[MOST_VALUES], *sum = NULL;

    sherd_gradients(
        g, leaf, leaves, out, count,
        &(sherd_gradients_options){.gradients = gradient, .unused = true, .create_graph = true});
    for (int i = 0; i < leaves; i++) {
        sherd_tensor *term = g[i] ? sherd_cast(sherd_sum(sherd_square(g[i])), SHERD_F64) : NULL;
        sum = sum && term ? sherd_add(sum, term) : term ? term : sum;
    }
    return sum;
}

static void flow_back(runner *r, sherd_tensor **grad)
{
    sherd_tensor *out[MOST_VALUES + 1], *gradient[MOST_VALUES + 1], *leaf[MOST_VALUES],
        *asked[MOST_VALUES] = {NULL};
    int count = outputs_of(r, out, gradient), leaves = 0;
    flow how = flow_of(r->p);

    for (int v = 0; v < r->p->values; v++)
        if (r->p->leaf[v] && r->p->wanted[v])
            leaf[leaves++] = r->value[v];
    if (count && how == PENALISED && !has_last_gradient(r->p)) {
        sherd_tensor *sum = penalty_of(leaf, leaves, out, gradient, count);
        gradient[count] = NULL;
        if (sum && sherd_requires_grad(sum))
            out[count++] = sum;
    }
    if (count && how == ASKED)
        sherd_gradients(asked, leaf, leaves, out, count,
                        &(sherd_gradients_options){.gradients = gradient, .unused = true});
    if (count && how == TWICE)
        sherd_backward_with(out, gradient, count, &(sherd_backward_options){.retain = true});
    if (count && how != ASKED)
        sherd_backward_with(out, gradient, count, NULL);
    for (int v = 0, i = 0; v < r->p->values; v++) {
        grad[v] = NULL;
        if (r->p->leaf[v] && r->p->wanted[v])
            grad[v] = how == ASKED ? asked[i++] : sherd_grad(r->value[v]);
    }
}

static void run_program(runner *r, outcome *out, bool modules)
{
    part parts[MOST_SEGMENTS];
    sherd_tensor *grad[MOST_VALUES];

    r->generator = sherd_generator_named("graph");
    if (modules)
        make_modules(r, parts);
    make_leaves(r);
    run_steps(r, r->value, 0, r->p->steps, -1);
    for (int v = 0; v < r->p->values; v++)
        out->count[v] = is_final(r->p, v) || (!modules && r->value[v])
                            ? load_all(out->x[v], sherd_full(r->value[v]))
                            : -1;
    flow_back(r, grad);
    for (int v = 0; v < r->p->values; v++)
        out->graded[v] = grad[v] ? load_all(out->grad[v], sherd_full(grad[v])) : -1;
    for (int i = 0; i < r->p->segments; i++)
        sherd_module_destroy(r->module[i]);
}

static bool close_to(const program *p, const double *x, const double *want, int64_t n)
{
    return farthest(x, want, n) <= (p->narrow ? 1e-3 : 1e-8) * (1 + largest(want, n));
}

/* A second derivative of f32 numbers loses digits where the first is steep. */
static bool gradient_close_to(const program *p, const double *x, const double *want, int64_t n)
{
    bool steep = p->narrow && flow_of(p) == PENALISED;

    return steep ? farthest(x, want, n) <= 1e-2 * (1 + largest(want, n)) : close_to(p, x, want, n);
}

static bool same_outcome(bench *b, bool all)
{
    const program *p = &b->program;
    const outcome *x = &b->spread, *want = &b->plain;
    bool good = true;

    for (int v = 0; v < p->values; v++) {
        bool same = true;
        if (is_final(p, v) || all) {
            same = CHECK_EQ(x->count[v], want->count[v]) &&
                   CHECK(close_to(p, x->x[v], want->x[v], want->count[v]));
            b->sum.values++;
        }
        if (CHECK_EQ(x->graded[v], want->graded[v]) && want->graded[v] >= 0) {
            same &= CHECK(gradient_close_to(p, x->grad[v], want->grad[v], want->graded[v]));
            b->sum.gradients++;
        }
        if (!same)
            fprintf(stderr, "  v%d differs by %g, its gradient by %g\n", v,
                    farthest(x->x[v], want->x[v], want->count[v]),
                    farthest(x->grad[v], want->grad[v], want->graded[v]));
        good &= same;
    }
    return good;
}

/* Checkpointing and input_reshard change no bit. */
static bool same_bits(const bench *b)
{
    const outcome *x = &b->spread, *y = &b->bare;
    bool good = true;

    for (int v = 0; v < b->program.values; v++) {
        if (is_final(&b->program, v) && x->count[v] > 0)
            good &= CHECK(!memcmp(x->x[v], y->x[v], (size_t)x->count[v] * sizeof(double)));
        good &= CHECK_EQ(x->graded[v], y->graded[v]);
        if (x->graded[v] > 0)
            good &= CHECK(!memcmp(x->grad[v], y->grad[v], (size_t)x->graded[v] * sizeof(double)));
    }
    return good;
}

static void count_program(tally *sum, const program *p)
{
    sum->programs++;
    for (int i = 0; i < p->steps; i++) {
        sum->calls += p->step[i].kind == CALL;
        sum->moves += p->step[i].kind == MOVE;
        sum->many += p->step[i].kind == MANY;
        if (p->step[i].kind == CALL)
            sum->of_row[p->step[i].call.row - rows]++;
    }
    for (int i = 0; i < p->segments; i++) {
        sum->modules++;
        sum->checkpointed += p->segment[i].checkpointed;
        sum->resharded += p->segment[i].resharded;
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* One program, with its modules or step by step. */
static void compare(bench *b, sherd_world *world, bool modules)
{
    runner plain = {.world = world, .p = &b->program},
           spread = {.world = world, .p = &b->program, .mesh = b->mesh, .other = b->other};
    int64_t bytes = sherd_world_memory(world).live_bytes;

    sherd_scope_begin(world);
    run_program(&plain, &b->plain, false);
    run_program(&spread, &b->spread, modules);
    bool good = CHECK_OK(sherd_world_check(world));
    good = same_outcome(b, !modules) && good;
    if (modules && b->program.segments && b->program.seed % 8 < 2) {
        runner bare = {.world = world, .p = &b->program, .mesh = b->mesh, .other = b->other};
        run_program(&bare, &b->bare, false);
        good = CHECK_OK(sherd_world_check(world)) && good;
        good = same_bits(b) && good;
    }
    flockfile(stderr);
    for (int v = 0; v < b->program.values && !good; v++)
        if (spread.value[v])
            fprintf(stderr, "  v%d %s\n", v, sherd_tensor_text(spread.value[v]));
    funlockfile(stderr);
    sherd_scope_end(world);
    good = CHECK_EQ(sherd_saved_bytes(world), 0) && good;
    good = CHECK_EQ(sherd_world_memory(world).live_bytes, bytes) && good;
    if (good)
        return;
    flockfile(stderr);
    fprintf(stderr, "%d ranks, ", sherd_world_ranks(world));
    say_program(stderr, &b->program);
    fprintf(stderr, "  the last error was: %s\n", sherd_world_error(world));
    funlockfile(stderr);
}

static void say_tally(const tally *sum, const char *mesh)
{
    int64_t least = sum->of_row[0];

    for (int i = 0; i < LEN(rows); i++) {
        if (rows[i].draw == draw_surface) /* never decided (operator_graph.h) */
            continue;
        least = sum->of_row[i] < least ? sum->of_row[i] : least;
        if (!CHECK(sum->of_row[i] > 0))
            fprintf(stderr, "  %s\n", rows[i].name);
    }
    printf("%s: %lld programs, %lld calls (each of %d rows at least %lld times), %lld moves, "
           "%lld of several, %lld modules, %lld checkpointed, %lld input_reshard; %lld results and "
           "%lld gradients equal\n",
           mesh, (long long)sum->programs, (long long)sum->calls, LEN(rows), (long long)least,
           (long long)sum->moves, (long long)sum->many, (long long)sum->modules,
           (long long)sum->checkpointed, (long long)sum->resharded, (long long)sum->values,
           (long long)sum->gradients);
}

/* Whether each row was drawn. */
static bool has_all(const tally *sum)
{
    bool all = true;

    for (int i = 0; i < LEN(rows); i++)
        all &= sum->of_row[i] > 0;
    return all;
}

/* Whether a program has a row that no other had before. */
static bool brings_another(const tally *sum, const program *p)
{
    bool found = false;

    for (int i = 0; i < p->steps; i++)
        found |= p->step[i].kind == CALL && sum->of_row[p->step[i].call.row - rows] == 0;
    return found;
}

/* The mesh of the programs, and another one of the same ranks. */
static void make_meshes(bench *b, sherd_world *world)
{
    int ranks = sherd_world_ranks(world);

    CHECK_OK(sherd_mesh_create(&b->mesh, world, ranks == 4 ? 2 : 1,
                               (int64_t[]){ranks == 4 ? 2 : ranks, 2}, NULL, NULL));
    CHECK_OK(sherd_mesh_create(&b->other, world, 1, (int64_t[]){ranks}, NULL,
                               ranks == 4   ? (int[]){3, 1, 0, 2}
                               : ranks == 3 ? (int[]){1, 2, 0}
                                            : (int[]){1, 0}));
}

static void programs_on_a_mesh_equal_plain_ones(sherd_world *world)
{
    static bench benches[CHECK_RANKS];
    bench *b = &benches[sherd_world_rank(world)];
    const char *only = getenv("SHERD_GRAPH");
    uint64_t count = getenv("SHERD_PROOF") ? MANY_MORE : SOME,
             first = only ? strtoull(only, NULL, 10) : (uint64_t)sherd_world_ranks(world) * 1000000;

    memset(&b->sum, 0, sizeof b->sum);
    make_meshes(b, world);
    for (uint64_t i = 0; i < (only ? 1 : has_all(&b->sum) ? count : MOST_DRAWN * count); i++) {
        sherd_scope_begin(world);
        draw_program(&b->drawing, world, &b->program, first + i);
        sherd_scope_end(world);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "program %llu: %s\n", (unsigned long long)(first + i),
                    sherd_world_error(world));
        if (i >= count && !brings_another(&b->sum, &b->program))
            continue;
        count_program(&b->sum, &b->program);
        if (only && sherd_world_rank(world) == 0)
            say_program(stdout, &b->program);
        if (only)
            compare(b, world, false);
        compare(b, world, true);
    }
    if (!only && sherd_world_rank(world) == 0)
        say_tally(&b->sum, sherd_mesh_text(b->mesh));
}

static const check_test tests[] = {
    {TEST(programs_on_a_mesh_equal_plain_ones), {2, 3, 4}},
};
CHECK_MAIN(tests)
