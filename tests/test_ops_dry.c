/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operator under random layouts, forward and backward, on real ranks and dry: the same calls
 * and bytes, operators and memory. Where these depend on data, the data are what a dry world takes
 * them for. SHERD_ROW=gather: that row only. SHERD_PROOF=1: many more.
 */
#include "base/num.h"
#include "dry.h"
#include "operator_list.h"

enum { CALLS = 1, COMBINATIONS = 4, PROVEN = 100 };

/* A call, and the choice of its operands' layouts: a seed, as meshes differ by world. */
typedef struct scene {
    call_plan plan;
    uint64_t layouts;
    sherd_dtype low; /* of 16 bits, to which fractions are cast; or none */
} scene;

/* One axis of all ranks, or of 4 and 8 two. */
static const sherd_mesh *mesh_for(sherd_world *world, bool line)
{
    int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, line ? 1 : 2, (int64_t[]){line ? ranks : ranks / 2, 2},
                               NULL, NULL));
    return mesh;
}

static const sherd_layout *draw_layout(const sherd_mesh *mesh, const need *w, uint64_t *dice)
{
    sherd_placement placements[SHERD_MAX_AXES];
    int axes = sherd_mesh_axes(mesh);

    if (roll(dice, 8) == 0)
        return NULL;
    do
        for (int a = 0; a < axes; a++)
            while (!placement_number(&placements[a], w, roll(dice, w->ndim + 3)))
                ;
    while (!go_together(placements, axes));
    return layout_cut(mesh, w, placements, (cutting)roll(dice, CUTTINGS), dice);
}

/* Choices that are spread over the groups as a dry world supposes. */
static void spread_choices(sherd_tensor *choice, int64_t groups)
{
    const sherd_box box = sherd_tensor_box(choice);
    int64_t k = choice->shape[1], n = box.size[0] * k;
    int32_t *to = choice->count ? sherd__fresh(choice) : NULL;

    for (int64_t i = 0; i < choice->count; i++) {
        int64_t t = i / box.size[1], j = box.offset[1] + i % box.size[1];
        to[i] = (int32_t)((t * k + j) * groups / n);
    }
}

static bool are_choices(const scene *s, int i)
{
    return i == 1 && s->plan.row->run == run_there_and_back;
}

/* Rows of which each shard sends equally many to all. */
static void spread_shards(sherd_tensor *shard)
{
    int32_t *to = shard->layout && shard->count ? sherd__fresh(shard) : NULL;
    int64_t shards =
        to ? sherd__dim_parts(shard->layout->spec.mesh, &shard->layout->spec.dim[0]) : 1;
    int64_t each = sherd__ceil_div(shard->count, shards);

    for (int64_t i = 0; to && i < shard->count; i++)
        to[i] = (int32_t)(i / each);
}

static bool are_shards(const scene *s, int i)
{
    sherd_tensor *(*run)(act * a) = s->plan.row->run;

    return i == 1 && (run == run_send_rows || run == run_return_rows);
}

static bool is_mask(const scene *s, int i)
{
    sherd_tensor *(*run)(act * a) = s->plan.row->run;

    return (i == 0 && run == run_nonzero) ||
           (i == 1 && (run == run_masked_select || run == run_masked_scatter));
}

static bool is_distinct(const scene *s, int i)
{
    sherd_tensor *(*run)(act * a) = s->plan.row->run;

    return i == 0 && (run == run_unique || run == run_count_unique);
}

/* Indices, each its number in the whole. */
static void number_all(sherd_tensor *t)
{
    int32_t *x = t->count ? sherd__fresh(t) : NULL;
    sherd__walk w;

    for (sherd__walk_begin(&w, t); x && sherd__walk_next(&w);)
        for (int64_t i = 0; i < w.length; i++)
            x[w.local + i] = (int32_t)(w.global + i);
}

/* Positions in blocks of a pool; of rows behind as many sequences. */
static bool are_positions(const scene *s, int i)
{
    sherd_tensor *(*run)(act * a) = s->plan.row->run;

    return i == 3 && (run == run_attention_paged || run == run_attention_paged_rows);
}

/* All queries at the end of tables that are full; all rows of one sequence. */
static void fill_tables(const scene *s, sherd_tensor *t)
{
    const need *in = s->plan.in;
    int64_t last = in[2].shape[1] * in[1].shape[1] - 1;
    int64_t of_rows = s->plan.row->run == run_attention_paged_rows ? in[3].shape[1] : 0;
    int32_t *x = t->count ? sherd__fresh(t) : NULL;
    sherd__walk w;

    for (sherd__walk_begin(&w, t); x && sherd__walk_next(&w);)
        for (int64_t i = 0; i < w.length; i++)
            x[w.local + i] = w.global + i < of_rows ? 0 : (int32_t)last;
}

static void evaluate(sherd_world *world, void *context)
{
    const scene *s = context;
    sherd_generator generator = sherd_generator_named("table");
    act a = {.p = &s->plan, .generator = &generator};
    sherd_tensor *result[2], *graded[2], *weight[2];
    uint64_t dice = s->layouts;
    int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = mesh_for(world, ranks % 4 != 0 || roll(&dice, 2));
    int count = 0;

    for (int i = 0; i < s->plan.operands; i++) {
        const need *w = &s->plan.in[i];
        const sherd_layout *layout = draw_layout(mesh, w, &dice);
        while ((are_choices(s, i) || are_shards(s, i) || is_mask(s, i) || is_distinct(s, i) ||
                are_positions(s, i)) &&
               layout && layout->pending_axes)
            layout = draw_layout(mesh, w, &dice);
        a.in[i] = leaf_on(world, w, layout);
        if (are_choices(s, i))
            spread_choices(a.in[i], w->limit);
        if (are_shards(s, i))
            spread_shards(a.in[i]);
        if (is_mask(s, i))
            sherd_fill(a.in[i], 1);
        if (is_distinct(s, i))
            number_all(a.in[i]);
        if (are_positions(s, i))
            fill_tables(s, a.in[i]);
        if (s->low && is_fraction(w->dtype))
            a.in[i] = sherd_detach(sherd_cast(a.in[i], s->low));
        if (is_fraction(w->dtype))
            sherd_require_grad(a.in[i], true);
    }
    result[0] = s->plan.row->run(&a);
    result[1] = a.more;
    for (int j = 0; j < 2; j++) {
        if (!result[j] || !sherd_requires_grad(result[j]))
            continue;
        need w = weights_of(result[j], SHERD_F64, 7 + (uint64_t)j);
        weight[count] = sherd_cast(plain_leaf(world, &w), result[j]->dtype);
        graded[count++] = result[j];
    }
    sherd_backward_with(graded, weight, count, NULL);
    for (int i = 0; i < s->plan.operands; i++)
        if (is_fraction(s->plan.in[i].dtype))
            sherd_grad(a.in[i]);
}

static sherd_dtype dtype_of(const row *r, int turn)
{
    static const sherd_dtype all[] = {SHERD_F64, SHERD_F32, SHERD_I32, SHERD_BOOL, SHERD_I64};
    const sherd_op *op = r->op[0] ? sherd_op_find(NULL, r->op) : NULL;

    return all[turn % (!op || op->numbers == SHERD_FRACTIONS ? 2
                       : op->numbers == SHERD_NUMBERS        ? 3
                                                             : 5)];
}

static void try_row(sherd_world *world, sherd_world *dry, const row *r, int calls)
{
    static const sherd_dtype lows[] = {SHERD_DTYPE_NONE, SHERD_BF16, SHERD_DTYPE_NONE, SHERD_F16};
    sherd_status status = SHERD_OK;
    uint64_t dice = sherd__hash_text((uint64_t)sherd_world_ranks(world), r->name);

    for (int turn = 0, draws = 0; turn < calls && CHECK(draws < 1000); draws++) {
        need first = {.dtype = dtype_of(r, turn)};
        scene s;
        draw_shape(&first, r->least, r->most, 12, &dice);
        if (!draw_call(&s.plan, r, &first, &dice))
            continue;
        turn++;
        for (int i = 0; i < COMBINATIONS; i++) {
            s.layouts = (uint64_t)roll(&dice, 1 << 30);
            s.low = lows[i % LEN(lows)];
            bool good = alike_in(world, dry, evaluate, &s, &status);
            if (good && CHECK(s.low || !status)) /* some operators have no 16 bits */
                continue;
            fprintf(stderr, "  of rank %d of %d in ", sherd_world_rank(world),
                    sherd_world_ranks(world));
            say_call(stderr, &s.plan);
            fprintf(stderr, " layouts %llu\n", (unsigned long long)s.layouts);
        }
    }
}

static void every_operator_does_the_same_dry(sherd_world *world)
{
    const char *only = getenv("SHERD_ROW");
    sherd_world *dry = dry_as(world);
    int calls = getenv("SHERD_PROOF") ? PROVEN : CALLS;

    /* of many ranks some in the short form, which has all of few */
    int step = sherd_world_ranks(world) > 4 && !only ? check_stride(3) : 1;

    for (int i = 0; i < LEN(rows); i += step)
        if (!only || strcmp(only, rows[i].name) == 0)
            try_row(world, dry, &rows[i], calls);
    CHECK_OK(sherd_world_close(dry));
}

static const check_test tests[] = {
    {TEST(every_operator_does_the_same_dry), {1, 2, 3, 4, 8}},
};
CHECK_MAIN(tests)
