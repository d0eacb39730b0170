/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorting choices by group, for sherd/ops_groups.h: all ranks sort all choices, by counting, so
 * each knows where every row is. Costs two passes over the choices, and 4 bytes of each choice on
 * every rank.
 */
#include "runs.h"
#include "sherd/ops_groups.h"

#include <string.h>

#include "base/num.h"
#include "base/saturate.h"

enum { CHOICE, LIKE, WEIGHT }; /* of the last two their layouts only */

typedef struct sorting {
    int64_t groups, runs;
} sorting;

/*
 * The order of rows: by shards of groups, `parts` of them, which `e` says; then by `segments`,
 * shards of tokens by other axes.
 */
typedef struct plan {
    const sherd_mesh *mesh; /* NULL: all is plain, and no dim has axes */
    sherd__dim e, tokens, beside;
    int64_t groups, n_tokens, parts, segments;
} plan;

static void plan_order(plan *p, const sherd_layout *choices, const sherd_layout *weight,
                       int64_t tokens, int64_t groups)
{
    unsigned taken = 0;

    *p = (plan){.groups = groups, .n_tokens = tokens};
    if (weight) {
        p->mesh = weight->spec.mesh;
        p->e = weight->spec.dim[0];
        taken = weight->shard_axes;
    }
    if (choices) {
        p->mesh = choices->spec.mesh;
        p->tokens = choices->spec.dim[0];
        p->beside = sherd__dim_without(&p->tokens, taken);
    }
    p->parts = sherd__dim_parts(p->mesh, &p->e);
    p->segments = sherd__dim_parts(p->mesh, &p->beside);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Rows are cut where a segment of a part ends. */
static sherd_status lay_rows(const sherd_layout **out, const plan *p, const int32_t *ends,
                             int64_t n, int64_t *cut)
{
    sherd__layout_spec spec = {.mesh = p->mesh, .ndim = 1, .shape = {n}};
    sherd__dim *rows = &spec.dim[0];
    int64_t run = 0;

    sherd__spec_settle(&spec);
    *rows = p->e;
    for (int i = 0; i < p->beside.axes; i++)
        rows->axis[rows->axes++] = p->beside.axis[i];
    rows->cuts = rows->axes ? cut : NULL;
    *cut++ = 0;
    for (int64_t part = 0; part < p->parts; part++)
        for (int64_t s = 0; s < p->segments; s++) {
            run += sherd__dim_cut(p->mesh, &p->e, p->groups, part + 1) -
                   sherd__dim_cut(p->mesh, &p->e, p->groups, part);
            *cut++ = run && ends ? ends[run - 1] : 0;
        }
    cut[-1] = n; /* also on a rank outside the mesh, which has no ends */
    return sherd__layout_intern(out, &spec);
}

/* ---- the operator ---------------------------------------------------------------------------- */

static const char *describe(sherd_call *call)
{
    const sorting *how = call->attributes;
    const sherd_tensor *choice = call->in[CHOICE];
    int64_t n;

    if (choice->ndim < 1 || choice->ndim > 2)
        return "choices must be [tokens, k] or [tokens]";
    n = sherd_tensor_count(choice);
    if (n > INT32_MAX || how->runs > INT32_MAX)
        return sherd_call_reason(call, "%lld rows in %lld runs: an i32 holds fewer", (long long)n,
                                 (long long)how->runs);
    for (int j = 0; j < 4; j++)
        sherd_call_shape(call, j, 1, j < 2 ? &n : &how->runs);
    return NULL;
}

/* Everything is on all ranks. */
static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *operand[] = {NULL, sherd__way_given(ways, LIKE),
                                     sherd__way_given(ways, WEIGHT)};
    const sherd_mesh *mesh = sherd__way_given(ways, CHOICE)->spec.mesh;
    const sherd_tensor *choice = call->in[CHOICE];
    const sherd_layout *result[4];
    sherd_status status = sherd__replicated(&operand[CHOICE], mesh, choice->ndim, choice->shape);

    for (int j = 0; j < 4 && !status; j++)
        status = sherd__replicated(&result[j], mesh, 1, call->shape[j]);
    return status ? status : sherd_way_add(ways, operand, result);
}

/* The segment of each shard of tokens. NULL: no memory. */
static const int64_t *find_segments(sherd_call *call, const plan *p)
{
    int64_t shards = sherd__dim_parts(p->mesh, &p->tokens);
    int64_t *segment = sherd_call_scratch(call, shards * (int64_t)sizeof *segment);
    int64_t coordinate[SHERD_MAX_AXES];

    for (int64_t i = 0; segment && i < shards; i++) {
        sherd__dim_place(p->mesh, &p->tokens, i, coordinate);
        segment[i] = sherd__dim_shard(p->mesh, &p->beside, coordinate);
    }
    return segment;
}

/* The run of group g in segment 0, and how far it is to that of the next segment. */
typedef struct first_run {
    int64_t run, step;
} first_run;

static void number_runs(const plan *p, first_run *first, int32_t *group)
{
    int64_t lo = 0, hi;

    for (int64_t part = 0; part < p->parts; part++, lo = hi) {
        hi = sherd__dim_cut(p->mesh, &p->e, p->groups, part + 1);
        for (int64_t g = lo; g < hi; g++) {
            first[g] = (first_run){lo * p->segments + g - lo, hi - lo};
            for (int64_t s = 0; s < p->segments; s++)
                group[first[g].run + s * first[g].step] = (int32_t)g;
        }
    }
}

/*
 * The group of choice c, of the choices [lo, hi) of a shard of tokens. If choices are not known
 * (NULL), as in a dry world, they are taken to be spread evenly over the groups, in order.
 */
static int64_t chosen(const plan *p, const int32_t *choice, int64_t c, int64_t lo, int64_t hi)
{
    return choice ? choice[c] : (c - lo) * p->groups / (hi - lo);
}

static void sort(const plan *p, int64_t k, const int32_t *choice, const first_run *first,
                 const int64_t *segment, int32_t *next, int32_t *order, int32_t *place)
{
    int64_t shard = -1, begin = 0, end = 0; /* where it does */

    for (int64_t t = 0; t < p->n_tokens; t++) {
        for (; t >= end; begin = t)
            end = sherd__dim_cut(p->mesh, &p->tokens, p->n_tokens, ++shard + 1);
        for (int64_t c = t * k; c < (t + 1) * k; c++) {
            const first_run *f = &first[chosen(p, choice, c, begin * k, end * k)];
            int32_t *at = &next[f->run + segment[shard] * f->step];
            if (order) {
                order[*at] = (int32_t)c;
                place[c] = *at;
            }
            ++*at;
        }
    }
}

static bool group_rows(sherd_call *call)
{
    const sorting *how = call->attributes;
    const sherd_layout *const *like = ((const sherd__run *)(const void *)call)->like;
    const sherd_tensor *choice = call->in[CHOICE];
    int64_t tokens = choice->shape[0], k = choice->ndim > 1 ? choice->shape[1] : 1;
    const int32_t *choices = sherd__is_dry(call->world) ? NULL : call->from[CHOICE];
    int32_t *order = call->to[0], *place = call->to[1], *ends = call->to[2], *group = call->to[3];
    plan p;

    if (!sherd__check_indices(call, CHOICE, how->groups))
        return false;
    if (call->out[2]->count < how->runs || how->runs == 0)
        return true; /* outside the mesh, or there are no groups */
    plan_order(&p, like ? like[LIKE] : NULL, like ? like[WEIGHT] : NULL, tokens, how->groups);
    first_run *first = sherd_call_scratch(call, (how->groups + 1) * (int64_t)sizeof *first);
    int32_t *next = sherd_call_scratch(call, (how->runs + 1) * (int64_t)sizeof *next);
    const int64_t *segment = find_segments(call, &p);
    if (!first || !next || !segment)
        return false;
    number_runs(&p, first, group);
    memset(ends, 0, sherd__bytes(how->runs) * sizeof *ends);
    sort(&p, k, choices, first, segment, ends, NULL, NULL);
    next[0] = 0;
    for (int64_t r = 0; r < how->runs; r++)
        next[r + 1] = ends[r] += next[r];
    sort(&p, k, choices, first, segment, next, order, place);
    return true;
}

const sherd_op sherd__group_rows_op = {
    .name = "sherd_group_rows",
    .summary = "sort choices of groups",
    .layouts = "choices are gathered",
    .operand = {{"choice", SHERD_OP_INDEX},
                {"choices", SHERD_OP_INDEX | SHERD_OP_OPTIONAL},
                {"weight", SHERD_OP_ANY | SHERD_OP_OPTIONAL}},
    .result = {{"order", SHERD_OP_INDEX},
               {"place", SHERD_OP_INDEX},
               {"ends", SHERD_OP_INDEX},
               {"group", SHERD_OP_INDEX}},
    .field = {SHERD_FIELD(sorting, groups, INT64), SHERD_FIELD(sorting, runs, INT64)},
    .attributes = sizeof(sorting),
    .numbers = SHERD_EVERYTHING,
    .describe = describe,
    .ways = lie,
    .forward = group_rows,
    .dry = group_rows};

/* ---- the function ---------------------------------------------------------------------------- */

static bool fail(sherd_groups *out, sherd_tensor *failed)
{
    *out = (sherd_groups){.k = 1};
    out->order = out->place = out->ends = out->group = failed;
    return false;
}

/* As the tokens lie; plain choices lie with all ranks. */
static sherd_status lay_choices(const sherd_layout **out, const plan *p, const sherd_tensor *choice)
{
    int64_t n = sherd_tensor_count(choice), k = choice->ndim > 1 ? choice->shape[1] : 1;

    return choice->layout ? sherd__lay_choices(out, choice->layout, k)
                          : sherd__replicated(out, p->mesh, 1, &n);
}

static bool lay(sherd_groups *out, const plan *p, const sherd_tensor *choice)
{
    sherd_world *world = choice->world;
    sherd__heap *heap = sherd__world_heap(world);
    const int32_t *ends = out->ends->count ? sherd__data(out->ends) : NULL;

    if (out->ends->count && !ends)
        return fail(out, sherd__failed(world));
    int64_t *cut = sherd__alloc(heap, sherd__bytes(p->parts * p->segments + 1), sizeof *cut);
    sherd_status status = cut ? lay_rows(&out->rows, p, ends, sherd_tensor_count(choice), cut)
                              : sherd__no_memory(sherd__world_diag(world), "sherd_group_rows");
    sherd__free(heap, cut);
    if (!status)
        status = lay_choices(&out->choices, p, choice);
    return !status || fail(out, sherd__fail_diag(world, true));
}

/* Why there is nothing to sort by; NULL: there is. */
static const char *fault(const sherd_tensor *choice, const sherd_tensor *weight)
{
    if (weight->ndim < 1)
        return "weight has no dim of groups";
    if (choice->ndim < 1)
        return "choices must be [tokens, k] or [tokens]";
    if (choice->layout && weight->layout && choice->layout->spec.mesh != weight->layout->spec.mesh)
        return "choice and weight are on two meshes: move one of them (sherd_redistribute)";
    return NULL;
}

bool sherd_group_rows(sherd_groups *out, sherd_tensor *choice, sherd_tensor *weight)
{
    static const char name[] = "sherd_group_rows";
    sherd_world *world = sherd_tensor_world(choice ? choice : weight);
    const sherd__argument need[] = {
        {"out", out}, {"choice", choice}, {"weight", weight}, {NULL, NULL}};
    sherd_groups nowhere;
    sherd_tensor *in[] = {choice, NULL, NULL}, *operand[] = {choice, weight}, *result[4] = {NULL};
    plan p;

    if (!sherd__given(world, name, need, result))
        return fail(out ? out : &nowhere, result[0]);
    if (sherd__stop(world, name, operand, 2))
        return fail(out, sherd__failed(world));
    const char *text = fault(choice, weight);
    if (text)
        return fail(out, sherd__fail_tensor(world, choice->layout || weight->layout, SHERD_EINVAL,
                                            "%s: %s", name, text));
    plan_order(&p, choice->layout, weight->layout, choice->shape[0], weight->shape[0]);
    const sorting how = {weight->shape[0], sherd__times(weight->shape[0], p.segments)};
    const sherd_layout *like[] = {NULL, choice->layout, weight->layout};
    if (!sherd__apply_like(result, &sherd__group_rows_op, in, 3, &how, like))
        return fail(out, result[0]);
    *out = (sherd_groups){.order = result[0],
                          .place = result[1],
                          .ends = result[2],
                          .group = result[3],
                          .k = choice->ndim > 1 ? choice->shape[1] : 1};
    return !p.mesh || lay(out, &p, choice);
}
