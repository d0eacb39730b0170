/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention to a cache of keys and values, where every query has a position of its own and sees the
 * keys up to it, or the last ones of them; other keys are not read. Batch and heads may be sharded,
 * and the cache by positions: each rank attends to the keys that it holds, and ranks exchange width
 * + 1 numbers for each query and head, which are joined in the order of the shards. No gradient.
 *
 * If there are few queries, reading takes most of the time: each key and value is read once, where
 * it lies. If there are many, runs of queries at consecutive positions are computed at once, as
 * causal attention. A GPU does both, except many queries to a cache that is sharded by positions.
 */
#include "attend.h"

#include <string.h>

#include "base/num.h"
#include "device/attention.h"
#include "device/decode.h"
#include "sherd/ops_layers.h"

enum { Q, K, V, WHERE, OPERANDS };
enum { BATCH, POSITIONS, GROUPS, REPEAT, WIDTH };

/* Why q, k, v and positions do not fit, as the caller has them; NULL: they do. */
static const char *misfit(sherd_tensor *const *in)
{
    const sherd_tensor *q = in[Q], *k = in[K], *v = in[V], *where = in[WHERE];

    if (q->ndim != 4 || k->ndim != 4 || v->ndim != 4)
        return "q, k and v must have four dims [batch,positions,heads,width]";
    if (q->shape[0] != k->shape[0] || q->shape[3] != k->shape[3])
        return "q and k must have the same batch and width";
    for (int d = 0; d < 4; d++)
        if (k->shape[d] != v->shape[d])
            return "k and v must have the same shape";
    if (k->shape[2] < 1 || q->shape[2] % k->shape[2] != 0)
        return "the heads of k must divide those of q";
    return where->ndim != 2 || where->shape[0] != q->shape[0] || where->shape[1] != q->shape[1]
               ? "positions must have two dims, the [batch,positions] of q"
               : NULL;
}

/* Operands that fit have heads in groups, so 5 dims; others are refused as the caller gave them. */
static const char *describe(sherd_call *call)
{
    const char *fault = sherd__cached_fault(call);

    return fault || sherd__is_grouped(call) ? fault : misfit(call->in);
}

/* ---- what a rank computes -------------------------------------------------------------------- */

/* On a rank. Rows are queries of heads; `part` is of the statistics' dtype. */
typedef struct cache {
    sherd_call *call;
    const sherd__kernels *kernels;
    sherd_dtype dtype;       /* of `part` */
    sherd__attending s;      /* of one item, without queries and keys */
    int64_t batch, queries;  /* here */
    int64_t first, room;     /* keys here */
    int64_t rows;            /* of all items */
    size_t q_bytes, k_bytes; /* of a position */
    bool few, dry;
    int64_t shards;       /* of the keys */
    const int32_t *where; /* positions, on the CPU in any case */
    sherd_tensor *mine;   /* `part`, if there are several */
    char *part,
        *log_sum; /* results over the keys here: as out, and [batch,groups,repeat,queries] */
} cache;

static cache cache_of(sherd_call *call)
{
    const sherd_tensor *q = call->in[Q], *k = call->in[K];
    const sherd__attending one = sherd__attend_item(call, k->shape[POSITIONS]);
    size_t key = (size_t)(one.groups * one.width) * sherd_dtype_bytes(q->dtype);

    return (cache){.call = call,
                   .kernels = sherd__kernels_in(call),
                   .dtype = sherd__statistics_dtype(q->dtype),
                   .s = one,
                   .batch = q->local[BATCH],
                   .queries = one.queries,
                   .first = sherd_tensor_offset(k, POSITIONS),
                   .room = k->local[POSITIONS],
                   .rows = q->local[BATCH] * one.all_heads * one.queries,
                   .q_bytes = key * (size_t)one.repeat,
                   .k_bytes = key,
                   .dry = sherd__is_dry(call->world),
                   .few = q->shape[POSITIONS] * q->shape[REPEAT] <= SHERD__ATTEND_FEW,
                   .shards = k->layout ? sherd__dim_parts(k->layout->spec.mesh,
                                                          &k->layout->spec.dim[POSITIONS])
                                       : 1};
}

/*
 * Find the positions, and check that the cache has them. The CPU reads them even if the GPU
 * computes: they come from the CPU, and say how much there is to compute.
 */
static bool take_positions(cache *c)
{
    sherd_tensor *where = c->call->in[WHERE];
    int64_t all = c->call->in[K]->shape[POSITIONS];

    c->where =
        sherd__device_in(c->call) && where->count ? sherd__data(where) : c->call->from[WHERE];
    if (where->count && !c->where)
        return false;
    if (c->dry)
        return true;
    for (int64_t i = 0; i < c->batch * c->queries; i++)
        if (c->where[i] >= all)
            return sherd_call_fail(c->call, SHERD_EINVAL,
                                   "position %d is outside of a cache of %lld", (int)c->where[i],
                                   (long long)all);
    return true;
}

/* How many of the keys here a query sees. */
static int64_t seen_by(const cache *c, int32_t position)
{
    return sherd__max(0, sherd__min((int64_t)position + 1 - c->first, c->room));
}

/* The first of them; as many as it sees, if it sees none. */
static int64_t unseen_by(const cache *c, int32_t position)
{
    int64_t first = sherd__cached_before(c->s.window, position) - c->first;

    return sherd__max(0, sherd__min(first, seen_by(c, position)));
}

/* Where item b's results, queries, keys begin. */
static char *results_of(const cache *c, int64_t b)
{
    return c->part + (size_t)(b * c->rows / c->batch * c->s.width) * sherd_dtype_bytes(c->dtype);
}

static char *sums_of(const cache *c, int64_t b)
{
    return c->log_sum + (size_t)(b * c->rows / c->batch) * sherd_dtype_bytes(c->dtype);
}

static const char *item(const cache *c, int operand, int64_t b)
{
    size_t bytes = operand == Q ? (size_t)c->queries * c->q_bytes : (size_t)c->room * c->k_bytes;

    return (const char *)c->call->from[operand] + (c->call->from[operand] ? (size_t)b * bytes : 0);
}

static bool attend_few(cache *c)
{
    const int32_t *where = c->where;
    int64_t *seen = sherd_call_scratch(c->call, 2 * c->queries * (int64_t)sizeof *seen);
    sherd__cached s = sherd__cached_few(&c->s, c->queries, c->room, seen);
    void *workspace = sherd_call_scratch(c->call, c->kernels->attention_cached_workspace(&s));

    if (c->dry)
        return seen && workspace;
    for (int64_t b = 0; b < c->batch && seen && workspace; b++, where += c->queries) {
        s.keys = 0;
        for (int64_t i = 0; i < c->queries; i++) {
            seen[i] = seen_by(c, where[i]);
            seen[c->queries + i] = unseen_by(c, where[i]);
            s.keys = sherd__max(s.keys, seen[i]);
        }
        c->kernels->attention_cached(&s, results_of(c, b), sums_of(c, b), item(c, Q, b),
                                     item(c, K, b), item(c, V, b), workspace);
    }
    return seen && workspace;
}

/* Logarithms of sums [heads,n] to where queries [i,i+n) of item b have them. */
static void place_sums(const cache *c, int64_t b, int64_t i, int64_t n, const void *from)
{
    size_t bytes = sherd_dtype_bytes(c->dtype);

    for (int64_t h = 0; h < c->s.groups * c->s.repeat; h++)
        memcpy(sums_of(c, b) + (size_t)(h * c->queries + i) * bytes,
               (const char *)from + (size_t)(h * n) * bytes, (size_t)n * bytes);
}

/* Attention of one run of queries, without the first `skip` keys. False: the GPU has no kernel for
 * these heads. */
static bool attend_neighbours(const cache *c, int64_t b, size_t at, int64_t skip, void *log_sum,
                              void *workspace)
{
    sherd__device *device = sherd__device_in(c->call);
    char *out = (char *)c->call->to[0] + (size_t)(b * c->queries) * c->q_bytes + at;
    const char *k = item(c, K, b) + (size_t)skip * c->k_bytes;
    const char *v = item(c, V, b) + (size_t)skip * c->k_bytes;

    if (device)
        return sherd__device_attention(device, c->call->out[0]->dtype, &c->s, out, log_sum,
                                       item(c, Q, b) + at, k, v);
    c->kernels->attention(&c->s, out, log_sum, item(c, Q, b) + at, k, v, workspace);
    return true;
}

/* Attention of item b, run by run, into the result of the call. False: as above. */
static bool attend_item(cache *c, int64_t b, void *log_sum, void *workspace)
{
    const int32_t *where = c->where + b * c->queries;

    for (int64_t i = 0, n; i < c->queries; i += n) {
        n = sherd__attend_run_of(where + i, c->queries - i);
        c->s.queries = n;
        c->s.keys = seen_by(c, where[i] < 0 ? where[i] : where[i] + (int32_t)(n - 1));
        c->s.first_key = c->first;
        c->s.first_query = where[i];
        c->s.all_queries = c->s.all_keys = where[i] + n;
        int64_t skip = sherd__attend_skip(&c->s);
        if (!attend_neighbours(c, b, (size_t)i * c->q_bytes, skip, log_sum, workspace))
            return false;
        if (c->log_sum)
            place_sums(c, b, i, n, log_sum);
    }
    return true;
}

/* 16-bit results over each rank's keys are rounded before they are joined. */
static bool attend_many(cache *c)
{
    int64_t bytes = (int64_t)sherd_dtype_bytes(c->dtype);
    void *log_sum = sherd_call_scratch(c->call, c->s.all_heads * c->queries * bytes);

    c->s.keys = c->room;
    void *workspace = sherd__attend_workspace(c->call, c->call->out[0]->dtype, &c->s);
    if (c->dry)
        return log_sum && workspace;
    for (int64_t b = 0; b < c->batch && log_sum && workspace; b++)
        attend_item(c, b, log_sum, workspace);
    if (log_sum && workspace && c->part)
        sherd__convert(sherd__world_kernels(c->call->world), c->dtype, c->call->out[0]->dtype,
                       c->rows * c->s.width, c->part, c->call->to[0]);
    return log_sum && workspace;
}

/* ---- on the GPU ------------------------------------------------------------------------------ */

/* log_sum NULL: to the results. False: heads are too wide. */
static bool few_there(const cache *c, void *out, void *log_sum)
{
    sherd__caching s = {.batch = c->batch,
                        .queries = c->queries,
                        .groups = c->s.groups,
                        .repeat = c->s.repeat,
                        .width = c->s.width,
                        .room = c->room,
                        .first = c->first,
                        .window = c->s.window,
                        .scale = c->s.scale,
                        .softcap = c->s.softcap,
                        .log_sum = log_sum};

    for (int64_t i = 0; i < c->batch * c->queries; i++)
        s.seen = sherd__max(s.seen, seen_by(c, c->where[i]));
    return sherd__device_attention_cached(sherd__device_in(c->call), c->call->out[0]->dtype, &s,
                                          c->call->from[WHERE], out, c->call->from[Q],
                                          c->call->from[K], c->call->from[V]);
}

/* The whole call, if each rank has all keys. False: nothing was done, and the CPU must do it. */
static bool attend_there(cache *c)
{
    int64_t bytes = c->s.all_heads * c->queries * (int64_t)sherd_dtype_bytes(c->dtype);

    if (!sherd__device_in(c->call) || c->shards > 1)
        return false;
    if (c->rows == 0)
        return true;
    if (c->few)
        return few_there(c, c->call->to[0], NULL);
    void *log_sum = sherd__device_scratch(c->call, bytes); /* nobody reads it */
    for (int64_t b = 0; log_sum && b < c->batch; b++)
        if (!attend_item(c, b, log_sum, NULL))
            return false; /* the first one: heads are alike */
    return log_sum != NULL;
}

/* ---- what ranks exchange --------------------------------------------------------------------- */

/* Parts, [shards * (width + 1),batch,positions,groups,repeat], each on its rank or all on all;
 * NULL: failed. */
static const sherd_layout *parts_layout(const cache *c, bool all)
{
    const sherd_layout *layout;
    const sherd__layout_spec *q = &c->call->in[Q]->layout->spec;
    const sherd__dim *keys = &c->call->in[K]->layout->spec.dim[POSITIONS];
    sherd__layout_spec spec = {.mesh = q->mesh, .ndim = 1 + WIDTH};

    sherd__spec_settle(&spec);
    for (int d = 0; d < WIDTH; d++) {
        spec.shape[1 + d] = q->shape[d];
        spec.dim[1 + d] = q->dim[d];
    }
    spec.shape[0] = c->shards * (c->s.width + 1); /* as many equal shards */
    for (int i = 0; i < keys->axes && !all; i++)
        spec.dim[0].axis[spec.dim[0].axes++] = keys->axis[i];
    if (sherd__layout_intern(&layout, &spec) == SHERD_OK)
        return layout;
    sherd__fail_diag(c->call->world, true);
    return NULL;
}

/* On the GPU: all parts into the result. False: failed. */
static bool join_there(cache *c, sherd__device *device)
{
    size_t sums = (size_t)(c->rows * c->s.width) * sherd_dtype_bytes(c->dtype);
    size_t size = sums + (size_t)c->rows * sherd_dtype_bytes(c->dtype);
    const sherd_layout *layout = parts_layout(c, true);
    sherd_tensor *all = layout ? sherd__move_to(c->mine, layout, false) : NULL;

    if (!all || sherd_tensor_failed(all) || c->rows == 0)
        return all && !sherd_tensor_failed(all);
    const char *from = sherd__device_data(all);
    char *part = sherd__device_scratch(c->call, (int64_t)size);
    if (!from || !part)
        return false;
    sherd__device_move(device, part, from, (int64_t)size);
    c->s.batch = c->batch;
    c->s.queries = c->queries;
    for (int64_t i = 1; i < c->shards; i++) {
        from += size;
        sherd__device_attention_join(device, c->dtype, &c->s, part, part + sums, from, from + sums);
    }
    sherd__device_convert(device, c->call->out[0]->dtype, c->dtype, c->rows * c->s.width,
                          c->call->to[0], part);
    return true;
}

/* Few queries to keys that ranks share, on the GPU. */
static bool attend_shards_there(cache *c)
{
    sherd__device *device = sherd__device_in(c->call);
    int64_t bytes = c->rows * c->s.width * (int64_t)sherd_dtype_bytes(c->dtype);
    const sherd_layout *layout = parts_layout(c, false);

    if (!layout)
        return false;
    sherd__open_in(c->call);
    c->mine = sherd__new_on_there(layout, c->dtype, true);
    if (sherd_tensor_failed(c->mine))
        return false;
    c->part = sherd__device_fresh(c->mine);
    if (c->rows > 0)
        few_there(c, c->part, c->part + bytes);
    return join_there(c, device);
}

/* Whether there are kernels for that: the same on all ranks. */
static bool shares_there(const cache *c)
{
    return sherd__device_in(c->call) && c->shards > 1 && c->few &&
           c->s.width <= SHERD__CACHED_WIDTH;
}

/* Room for what is computed here. False: failed. */
static bool open_part(cache *c)
{
    bool wide = c->dtype != c->call->out[0]->dtype;
    int64_t bytes = (int64_t)sherd_dtype_bytes(c->dtype), out = c->rows * c->s.width * bytes;

    if (c->shards == 1 && !c->few)
        return true;
    if (c->shards == 1) {
        c->part = wide ? sherd_call_scratch(c->call, out) : c->call->to[0];
        c->log_sum = sherd_call_scratch(c->call, c->rows * bytes);
        return c->log_sum && (c->part || c->rows == 0);
    }
    sherd__open_in(c->call);
    const sherd_layout *layout = parts_layout(c, false);
    if (!layout)
        return false;
    c->mine = sherd__new_on(layout, c->dtype);
    c->part = sherd_tensor_failed(c->mine) ? NULL : sherd__fresh(c->mine);
    c->log_sum = c->part ? c->part + out : NULL;
    return c->part || (c->rows == 0 && !sherd_tensor_failed(c->mine));
}

/* All parts, into `part`. False: failed. */
static bool join(cache *c)
{
    const sherd__kernels *kernels =
        sherd__kernels_of(sherd__world_kernels(c->call->world), c->dtype);
    size_t bytes = sherd_dtype_bytes(c->dtype), sums = (size_t)(c->rows * c->s.width) * bytes;
    size_t size = sums + (size_t)c->rows * bytes;
    const sherd_layout *layout = parts_layout(c, true);

    if (!layout)
        return false;
    sherd_tensor *all = sherd__move_to(c->mine, layout, false);
    const char *from = sherd_tensor_failed(all) ? NULL : sherd__data(all);
    if (!from || c->rows == 0)
        return !sherd_tensor_failed(all) && (from || c->rows == 0);
    c->part = sherd_call_scratch(c->call, (int64_t)size);
    if (!c->part || c->dry)
        return c->part != NULL;
    memcpy(c->part, from, size);
    c->s.batch = c->batch;
    c->s.queries = c->queries;
    for (int64_t i = 1; i < c->shards; i++) {
        from += size;
        kernels->attention_join(&c->s, c->part, c->part + sums, from, from + sums);
    }
    return true;
}

static bool attend(sherd_call *call)
{
    cache c = cache_of(call);

    if (!take_positions(&c))
        return false;
    if (c.s.width == 0 || attend_there(&c)) /* of no width there are no results */
        return true;
    if (shares_there(&c))
        return attend_shards_there(&c);
    if (!sherd__leave_device(call))
        return false;
    if (!open_part(&c))
        return false;
    if (c.rows > 0 && !(c.few ? attend_few(&c) : attend_many(&c)))
        return false;
    if (c.shards > 1 && !join(&c))
        return false;
    if (c.rows > 0 && c.part && c.part != call->to[0] && !c.dry)
        sherd__convert(sherd__world_kernels(call->world), call->out[0]->dtype, c.dtype,
                       c.rows * c.s.width, call->to[0], c.part);
    return true;
}

/* Operations, for a full cache, since it is not known how full it is. */
static double operations(const sherd_call *call)
{
    const cache c = cache_of((sherd_call *)(uintptr_t)call);

    return sherd__cached_operations(&c.s, c.rows, c.room);
}

const sherd_op sherd__attention_cached_op = {
    .name = "sherd_attention_cached",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "sherd_attention of queries at positions of their own to a cache of keys and values",
    .operand = {{"q by groups", 0}, {"k", 0}, {"v", 0}, {"positions", SHERD_OP_INDEX}},
    .result = {{"out", 0}},
    .field = SHERD__CACHED_FIELDS,
    .attributes = sizeof(sherd__cached_attributes),
    .rule = "bsgrw,btgw,btgw,bs->bsgrw",
    .whole = "sw",
    .joined = "t",
    .describe = describe,
    .forward = attend,
    .dry = attend,
    .operations = operations,
    .on_device = sherd__fractions_there};

sherd_tensor *sherd_attention_cached_with(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                          sherd_tensor *positions,
                                          const sherd_cached_options *options)
{
    sherd_tensor *in[] = {q, k, v, positions};
    bool fits = q && k && v && positions && !misfit(in);

    return sherd__apply_cached(&sherd__attention_cached_op, in, OPERANDS, fits ? k->shape[2] : 0,
                               options);
}

sherd_tensor *sherd_attention_cached(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                     sherd_tensor *positions, double scale)
{
    const sherd_cached_options options = {.scale = scale};

    return sherd_attention_cached_with(q, k, v, positions, &options);
}
