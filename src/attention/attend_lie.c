/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over sharded sequences, before anything moves: the layouts of operands, and which way
 * is the cheapest. All pure, and equal on all ranks; plans come from the cache. To price a ring
 * costs the number of shards, and its logarithm, mostly; it stops where another way is cheaper.
 *
 * Queries are not moved; keys and values are sharded by the same axes, with any cuts.
 */
#include "attend.h"

#include "base/num.h"
#include "layout/shape.h"
#include "plan/plan.h"
#include "plan/window.h"
#include "apply/sketch.h"
#include "price/price.h"
#include "search/plans.h"

enum { Q = SHERD__Q, K, V, MASK };
enum { BATCH, POSITIONS, GROUPS, REPEAT, WIDTH, QUERY_DIMS };
enum { KEY_HEADS = 2, KEY_DIMS = 4, SUM_DIMS = 4, LAST_DIMS = 3 };

/* Dims of q that a mask and the logarithms of sums have, in their order. */
static const int sum_dim[SUM_DIMS] = {BATCH, GROUPS, REPEAT, POSITIONS};

static const char name[] = "sherd_attention";

/* ---- layouts --------------------------------------------------------------------------------- */

/* The axes of `from` for a dim of size n; its cuts too if it has the same size. */
static sherd__dim dim_like(const sherd_layout *from, int64_t n)
{
    sherd__dim dim = from->spec.dim[POSITIONS];

    if (from->spec.shape[POSITIONS] != n)
        dim.cuts = NULL;
    return dim;
}

/*
 * The layout of queries: unchanged; if only keys or values are sharded, sharded like those on axes
 * that are free.
 */
static sherd_status lie_queries(const sherd_layout **out, const sherd_layout *const *operands)
{
    sherd__layout_spec spec = operands[Q]->spec;
    unsigned used = 0;

    sherd__spec_settle(&spec);
    spec.dim[WIDTH] = (sherd__dim){0};
    for (int d = 0; d < QUERY_DIMS; d++)
        used |= sherd__dim_bits(&spec.dim[d]);
    for (int i = K; i <= V && !spec.dim[POSITIONS].axes; i++)
        if (!(sherd__dim_bits(&operands[i]->spec.dim[POSITIONS]) & used))
            spec.dim[POSITIONS] = dim_like(operands[i], spec.shape[POSITIONS]);
    return sherd__layout_intern(out, &spec);
}

/* Keys are sharded by the axes of queries, with their own cuts if they have any. */
static sherd_status lie_keys(const sherd_layout **out, const sherd_layout *q,
                             const sherd_layout *const *operands)
{
    const sherd__dim *positions = &q->spec.dim[POSITIONS];
    sherd__layout_spec spec = operands[K]->spec;
    int64_t n = spec.shape[POSITIONS];

    sherd__spec_settle(&spec);
    spec.dim[BATCH] = q->spec.dim[BATCH];
    spec.dim[KEY_HEADS] = q->spec.dim[GROUPS];
    spec.dim[KEY_HEADS + 1] = (sherd__dim){0};
    spec.dim[POSITIONS] = dim_like(q, n);
    for (int i = V; i >= K; i--)
        if (sherd__dim_alike(&operands[i]->spec.dim[POSITIONS], positions))
            spec.dim[POSITIONS] = dim_like(operands[i], n);
    return sherd__layout_intern(out, &spec);
}

/* The mask has the queries of the piece, and all keys; spans, of three dims, too. */
static sherd_status lie_mask(const sherd_layout **out, const sherd_layout *q,
                             const sherd_layout *mask)
{
    sherd__layout_spec spec = mask->spec;
    bool spans = spec.ndim == 3;

    sherd__spec_settle(&spec);
    for (int d = 0; d < 3 && spans; d++)
        spec.dim[d] = d < 2 && (d || spec.shape[d] != 1) ? q->spec.dim[d] : (sherd__dim){0};
    if (spans)
        return sherd__layout_intern(out, &spec);
    for (int d = 0; d < SHERD__MASK_DIMS; d++)
        spec.dim[d] =
            d < SUM_DIMS && spec.shape[d] != 1 ? q->spec.dim[sum_dim[d]] : (sherd__dim){0};
    return sherd__layout_intern(out, &spec);
}

static sherd_status lie_sum(const sherd_layout **out, const sherd_layout *q)
{
    sherd__layout_spec spec = q->spec;

    spec.ndim = SUM_DIMS;
    for (int d = 0; d < SUM_DIMS; d++) {
        spec.shape[d] = q->spec.shape[sum_dim[d]];
        spec.dim[d] = q->spec.dim[sum_dim[d]];
    }
    spec.dim[SUM_DIMS] = (sherd__dim){0};
    return sherd__layout_intern(out, &spec);
}

sherd_status sherd__attend_lie(sherd__lying *out, const sherd_layout *const *operands)
{
    *out = (sherd__lying){NULL, NULL, NULL, NULL};
    sherd_status status = lie_queries(&out->q, operands);
    if (!status)
        status = lie_keys(&out->k, out->q, operands);
    if (!status && operands[MASK])
        status = lie_mask(&out->mask, out->q, operands[MASK]);
    return status ? status : lie_sum(&out->sum, out->q);
}

bool sherd__attend_is_sharded(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v)
{
    const sherd_tensor *all[SHERD__ATTEND_MASK] = {q, k, v};
    const sherd_mesh *mesh = NULL;
    bool sharded = false;

    for (int i = 0; i < SHERD__ATTEND_MASK; i++) {
        if (!all[i] || !all[i]->storage || all[i]->ndim != all[0]->ndim || all[i]->ndim < LAST_DIMS)
            return false;
        const sherd_layout *layout = all[i]->layout;
        if (!layout)
            continue;
        if (mesh && layout->spec.mesh != mesh)
            return false;
        mesh = layout->spec.mesh;
        sharded =
            sharded || sherd__dim_parts(mesh, &layout->spec.dim[all[i]->ndim - LAST_DIMS]) > 1;
    }
    if (!sharded || !sherd__same_shape(k->ndim, k->shape, v->ndim, v->shape))
        return false;
    int batches = q->ndim - LAST_DIMS;
    const int64_t *a = q->shape + batches, *b = k->shape + batches;
    return sherd__same_shape(batches, q->shape, batches, k->shape) && a[2] == b[2] && b[1] > 0 &&
           a[1] % b[1] == 0;
}

/* ---- the cheapest way ------------------------------------------------------------------------ */

/* Picoseconds, added to *time. */
static sherd_status add_move(int64_t *time, const sherd_layout *from, const sherd_layout *to,
                             size_t element)
{
    const sherd_plan *plan;

    if (from == to)
        return SHERD_OK;
    sherd_status status = sherd__plan_find(&plan, from, to, element, NULL);
    if (!status)
        *time += sherd__min(plan->price.picoseconds, INT64_MAX / 16);
    return status;
}

/* One visit to keys and values, which takes one call. */
static void add_call(int64_t *time, int64_t picoseconds)
{
    if (picoseconds > 0)
        *time =
            sherd__add_cut(*time, 2 * sherd__min(picoseconds, INT64_MAX / 16) - sherd__call_time());
}

static sherd_status add_gather(int64_t *time, const sherd__round *round, size_t element)
{
    const sherd_plan *plan;
    sherd_status status;
    sherd__window *window = sherd__round_window(&status, round, 0);

    if (window)
        status = sherd__window_plan(&plan, window, SHERD__GATHER, element);
    if (window && !status)
        add_call(time, plan->price.picoseconds);
    sherd__window_release(window);
    return status;
}

/* Until the time is above `enough`. A visit's price depends on the most that a rank gets alone. */
static sherd_status add_ring(int64_t *time, const sherd__round *round, size_t element,
                             int64_t enough)
{
    int64_t most = 0, price = 0;
    sherd__visits *ring;
    sherd_status status = sherd__visits_create(&ring, round);

    for (int v = 0; v < round->visits && !status && *time <= enough; v++) {
        int64_t rows = sherd__visits_most(ring, v);
        if (rows != most)
            price = sherd__window_time(round->k, POSITIONS, rows, element);
        most = rows;
        add_call(time, price);
    }
    sherd__visits_destroy(ring, round->k->space->heap);
    return status;
}

/*
 * The time that a core takes for four flops of a product, and for copying a byte: only the
 * magnitude matters, to compare ways.
 */
enum { WORK_PICOSECONDS = 60, BYTE_PICOSECONDS = 100 };

/* The number of heads, over all batch items, of the busiest rank. */
static double heads_of(const sherd_layout *q)
{
    static const int dims[] = {BATCH, GROUPS, REPEAT};
    const sherd__layout_spec *spec = &q->spec;
    double n = 1;

    for (int i = 0; i < 3; i++)
        n *= (double)sherd__dim_longest(spec->mesh, &spec->dim[dims[i]], spec->shape[dims[i]]);
    return n;
}

static void add_time(int64_t *time, double more)
{
    *time += (int64_t)(more < (double)(INT64_MAX / 16) ? more : (double)(INT64_MAX / 16));
}

/* The products of forward, for so many pairs per head. */
static void add_work(int64_t *time, const sherd_layout *q, double pairs)
{
    add_time(time, heads_of(q) * pairs * (double)q->spec.shape[WIDTH] * WORK_PICOSECONDS);
}

/*
 * The work of the rank whose queries see the most pairs; in a ring, also that of combining the
 * results of visits.
 */
static void add_rounds(int64_t *time, const sherd__lying *lying, const sherd__round *round,
                       const sherd__attend_attributes *attributes)
{
    int64_t n = lying->q->spec.shape[POSITIONS], keys = lying->k->spec.shape[POSITIONS];
    double most = 0, rows = 0;

    for (int64_t i = 0; i < round->shards; i++) {
        int64_t lo = sherd__round_cut(lying->q, i), hi = sherd__round_cut(lying->q, i + 1);
        double pairs = sherd__attend_pairs_of(lo, hi, n, keys, attributes);
        most = pairs > most ? pairs : most;
        rows = (double)(hi - lo) > rows ? (double)(hi - lo) : rows;
    }
    add_work(time, lying->q, most);
    if (round->ring) { /* reads two, writes two, of f32 */
        double bytes = heads_of(lying->q) * rows * (double)lying->q->spec.shape[WIDTH] * 16;
        add_time(time, bytes * round->visits * BYTE_PICOSECONDS);
    }
}

/*
 * Queries stay. All visits count in full: on the arena, begun calls hide waits, but their copies
 * are made by the same cores as products. A ring has more calls than a gather, and as many bytes,
 * in pieces that may fit a cache. Above `enough` the time of a ring is not exact.
 */
static sherd_status price_staying(int64_t *time, const sherd_layout *const *operands,
                                  const sherd__lying *lying,
                                  const sherd__attend_attributes *attributes, size_t element,
                                  int64_t enough)
{
    const sherd_layout *const to[] = {lying->q, lying->k, lying->k};
    sherd__round round = sherd__round_of(lying->q, lying->k, attributes);
    sherd_status status = SHERD_OK;

    *time = 0;
    add_rounds(time, lying, &round, attributes);
    for (int i = Q; i <= V && !status; i++)
        status = add_move(time, operands[i], to[i], element);
    if (status)
        return status;
    return round.ring ? add_ring(time, &round, element, enough) : add_gather(time, &round, element);
}

/* The axes of the sequence are appended to those of `heads`. */
static sherd_status to_heads(const sherd_layout **out, const sherd_layout *from, int heads)
{
    sherd__sketch s;

    sherd__sketch_begin(&s, from);
    if (heads < 0)
        s.spec.dim[POSITIONS] = (sherd__dim){0};
    else
        sherd__sketch_move_axes(&s, POSITIONS, heads);
    return sherd__sketch_end(out, &s, name);
}

/* If there is one group, its heads are sharded, and their keys replicated. */
static sherd_status lie_in_heads(sherd__choice *out, const sherd__lying *lying)
{
    bool shared = lying->q->spec.shape[GROUPS] == 1;
    sherd_status status = to_heads(&out->to[Q], lying->q, shared ? REPEAT : GROUPS);

    if (!status)
        status = to_heads(&out->to[K], lying->k, shared ? -1 : KEY_HEADS);
    out->to[V] = out->to[K];
    return status;
}

static sherd_status price_heads(int64_t *time, const sherd_layout *const *operands,
                                const sherd__choice *choice, const sherd__lying *lying,
                                const sherd__attend_attributes *a, size_t element)
{
    sherd_status status = SHERD_OK;

    *time = 0;
    add_work(time, choice->to[Q],
             sherd__attend_pairs(0, lying->q->spec.shape[POSITIONS],
                                 lying->k->spec.shape[POSITIONS], a->causal, a->window));
    if (a->zigzag > 1) /* four copies, to order and back */
        add_time(time, 8 * heads_of(choice->to[Q]) * (double)lying->q->spec.shape[POSITIONS] *
                           (double)lying->q->spec.shape[WIDTH] * (double)element *
                           BYTE_PICOSECONDS);
    for (int i = Q; i <= V && !status; i++)
        status = add_move(time, operands[i], choice->to[i], element);
    return status ? status : add_move(time, choice->to[Q], choice->back, element);
}

/* Whether all ranks would have equally many heads. */
static bool shares_heads(const sherd_layout *q)
{
    const sherd__layout_spec *spec = &q->spec;
    int d = spec->shape[GROUPS] == 1 ? REPEAT : GROUPS;
    int64_t n = spec->shape[d], parts = sherd__dim_parts(spec->mesh, &spec->dim[d]);

    return sherd__dim_longest(spec->mesh, &spec->dim[d], n) * parts == n;
}

static sherd_status choose_cheapest(sherd__choice *out, const sherd_layout *const *operands,
                                    const sherd__lying *lying, sherd__attend_attributes attributes,
                                    size_t element)
{
    int64_t gather, ring, heads = INT64_MAX;
    sherd_status status = price_staying(&gather, operands, lying, &attributes, element, INT64_MAX);

    if (!status && shares_heads(out->to[Q]))
        status = price_heads(&heads, operands, out, lying, &attributes, element);
    attributes.ring = true;
    if (!status)
        status =
            price_staying(&ring, operands, lying, &attributes, element, sherd__min(gather, heads));
    if (status)
        return status;
    out->way = ring < gather ? SHERD_ATTENTION_RING : SHERD_ATTENTION_GATHER;
    if (heads < sherd__min(ring, gather))
        out->way = SHERD_ATTENTION_HEADS;
    return SHERD_OK;
}

static const sherd_mesh *mesh_of(sherd_tensor *const *in)
{
    for (int i = Q; i <= V; i++)
        if (in[i]->layout)
            return in[i]->layout->spec.mesh;
    return NULL;
}

sherd_status sherd__attend_choose(sherd__choice *out, sherd_tensor *const *in,
                                  const sherd__attend_attributes *attributes,
                                  sherd_attention_way asked)
{
    const sherd_layout *operands[SHERD__ATTEND_OPERANDS] = {NULL};
    const sherd_mesh *mesh = mesh_of(in);
    sherd__lying lying;
    sherd_status status = SHERD_OK;

    *out = (sherd__choice){.way = SHERD_ATTENTION_CHEAPEST};
    for (int i = Q; i <= V && !status; i++) {
        operands[i] = in[i]->layout;
        if (!operands[i])
            status = sherd__replicated(&operands[i], mesh, in[i]->ndim, in[i]->shape);
    }
    if (!status)
        status = sherd__attend_lie(&lying, operands);
    if (status || sherd__dim_parts(mesh, &lying.q->spec.dim[POSITIONS]) == 1)
        return status;
    out->back = lying.q;
    out->back_sum = lying.sum;
    out->way = asked;
    status = lie_in_heads(out, &lying);
    if (status || asked != SHERD_ATTENTION_CHEAPEST)
        return status;
    return choose_cheapest(out, operands, &lying, *attributes, sherd_dtype_bytes(in[Q]->dtype));
}
