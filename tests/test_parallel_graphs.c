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
#include "operator_graph.h"

#include "sherd/checkpoint.h"
#include "sherd/parallel.h"

enum { SOME = 300, MANY_MORE = 33334 };
/* Of these times as many those are run that have an operator which none had before. */
enum { MOST_DRAWN = 8 };

/* A run of a program: plain, if it has no mesh. */
typedef struct runner {
    sherd_world *world;
    const program *p;
    const sherd_mesh *mesh, *other;
    sherd_generator generator;
    sherd_module *module[MOST_SEGMENTS]; /* NULL: its steps are run as they are */
    sherd_tensor *value[MOST_VALUES];
} runner;

typedef struct part {
    runner *r;
    int segment;
} part;

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

/* ---- layouts --------------------------------------------------------------------------------- */

/* Any layout; pending by sums, or by anything, where `reductions` has the bit. */
static const sherd_layout *any_layout(const sherd_mesh *mesh, const need *w, unsigned reductions,
                                      uint64_t *dice)
{
    sherd_placement placements[SHERD_MAX_AXES];
    int axes = sherd_mesh_axes(mesh);

    do
        for (int a = 0; a < axes; a++)
            while (!placement_number(&placements[a], w, roll(dice, 1 + w->ndim + 5)) ||
                   (placements[a].kind == SHERD_PARTIAL && !(reductions >> placements[a].op & 1)))
                continue;
    while (!go_together(placements, axes));
    return layout_cut(mesh, w, placements, (cutting)roll(dice, CUTTINGS), dice);
}

/* Where a tensor moves to: what is pending is settled or stays. */
static const sherd_layout *any_target(sherd_tensor *t, const need *w, uint64_t *dice)
{
    const sherd_layout *from = sherd_tensor_layout(t);
    const sherd_mesh *mesh = sherd_layout_mesh(from);
    sherd_placement placements[SHERD_MAX_AXES];

    for (int a = 0; a < sherd_mesh_axes(mesh); a++) {
        placement_number(&placements[a], w, roll(dice, 1 + w->ndim));
        sherd_placement at = sherd_layout_placement(from, a);
        if (at.kind == SHERD_PARTIAL && roll(dice, 3) == 0)
            placements[a] = at;
    }
    return layout_cut(mesh, w, placements, (cutting)roll(dice, CUTTINGS), dice);
}

/* ---- running --------------------------------------------------------------------------------- */

/* There and back, begun or not; another mesh takes nothing pending. */
static sherd_tensor *move_across(runner *r, sherd_tensor *t, const need *w, uint64_t *dice)
{
    const sherd_layout *there = any_layout(r->other, w, 0, dice);
    const sherd_layout *back = any_layout(r->mesh, w, 0, dice);
    const sherd_redistribute_options options = {.begin = roll(dice, 2)};

    return sherd_redistribute(sherd_redistribute(t, there, &options), back, &options);
}

/* Whether gradients flow through pieces: not through those of a pending minimum, say. */
static bool has_addends(const sherd_layout *layout)
{
    bool good = true;

    for (int a = 0; a < layout->spec.mesh->axes; a++)
        good &= layout->spec.pending[a] <= (int)SHERD_AVG;
    return good;
}

/* Somewhere else; to another mesh and back; to each rank's piece and back; or to a plain tensor. */
static sherd_tensor *moved(runner *r, sherd_tensor *t, const need *w, uint64_t *dice)
{
    const sherd_layout *from = sherd_tensor_layout(t);
    int way = roll(dice, 8);
    const sherd_redistribute_options options = {.begin = roll(dice, 2)};

    if (!from)
        return t;
    if (way == 0)
        return move_across(r, t, w, dice);
    if (way == 1 && has_addends(from))
        return sherd_from_local_as(sherd_to_local(t), from);
    if (way == 2)
        return sherd_full(t);
    return sherd_redistribute(t, any_target(t, w, dice), &options);
}

static void move_one(runner *r, sherd_tensor **frame, const step *s)
{
    sherd_tensor *t = frame[s->in[0]];
    uint64_t dice = s->seed;

    frame[s->out[0]] = sherd_tensor_failed(t) ? t : moved(r, t, &r->p->value[s->in[0]], &dice);
}

/* Plain ones stay where they are. It is not recorded, so no gradient is to flow through what it
 * leaves as it is. */
static void move_many(runner *r, sherd_tensor **frame, const step *s)
{
    sherd_tensor *t[MOST_MOVED], *moved[MOST_MOVED];
    const sherd_layout *to[MOST_MOVED];
    uint64_t dice = s->seed;
    int at[MOST_MOVED], count = 0;

    for (int i = 0; i < s->ins; i++) {
        sherd_tensor *x = frame[s->in[i]];
        frame[s->out[i]] = sherd_detach(x);
        if (sherd_tensor_failed(x) || !sherd_tensor_layout(x))
            continue;
        t[count] = frame[s->out[i]];
        to[count] = any_target(x, &r->p->value[s->in[i]], &dice);
        at[count++] = s->out[i];
    }
    if (count)
        sherd_redistribute_many(moved, t, to, count);
    for (int i = 0; i < count; i++)
        frame[at[i]] = moved[i];
}

static void run_call(runner *r, sherd_tensor **frame, const step *s)
{
    act a = {.p = &s->call, .generator = &r->generator};

    for (int i = 0; i < s->ins; i++)
        a.in[i] = frame[s->in[i]];
    frame[s->out[0]] = s->call.row->run(&a);
    if (s->outs > 1)
        frame[s->out[1]] = a.more;
}

static void run_module(runner *r, sherd_tensor **frame, int number)
{
    const segment *g = &r->p->segment[number];
    sherd_args in = {.count = g->ins}, out = {0};

    for (int i = 0; i < g->ins; i++)
        in.value[i] = frame[g->in[i]];
    sherd_module_run(r->module[number], &in, &out);
    CHECK_EQ(out.count, g->outs);
    for (int i = 0; i < g->outs; i++)
        frame[g->out[i]] = out.value[i];
}

static void run_steps(runner *r, sherd_tensor **frame, int begin, int end, int parent)
{
    for (int i = begin; i < end; i++) {
        const step *s = &r->p->step[i];
        int module = -1;
        for (int j = 0; j < r->p->segments; j++)
            if (r->module[j] && r->p->segment[j].begin == i && r->p->segment[j].parent == parent)
                module = j;
        if (module >= 0) {
            run_module(r, frame, module);
            i = r->p->segment[module].end - 1;
        } else if (s->kind == CALL) {
            run_call(r, frame, s);
        } else if (s->kind == MOVE) {
            move_one(r, frame, s);
        } else {
            move_many(r, frame, s);
        }
    }
}

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const part *at = sherd_module_payload(self);
    const segment *g = &at->r->p->segment[at->segment];
    sherd_tensor *frame[MOST_VALUES] = {NULL};

    for (int i = 0; i < g->ins; i++)
        frame[g->in[i]] = in->value[i];
    run_steps(at->r, frame, g->begin, g->end, at->segment);
    out->count = g->outs;
    for (int i = 0; i < g->outs; i++)
        out->value[i] = frame[g->out[i]];
}

static void make_modules(runner *r, part *parts)
{
    for (int i = 0; i < r->p->segments; i++) {
        const segment *g = &r->p->segment[i];
        uint64_t dice = r->p->seed + (uint64_t)i;
        parts[i] = (part){r, i};
        if (!CHECK_OK(sherd_module_create(&r->module[i], r->world, forward,
                                          &(sherd_module_options){.payload = &parts[i]})))
            continue;
        sherd_module_checkpoint(r->module[i], g->checkpointed);
        int axis = roll(&dice, sherd_mesh_axes(r->mesh));
        if (g->resharded)
            CHECK_OK(sherd_input_reshard(r->module[i], r->mesh, sherd_mesh_axis_name(r->mesh, axis),
                                         roll(&dice, 2)));
    }
}

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
