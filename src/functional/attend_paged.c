/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention to keys and values that lie in blocks of a pool, as a table says. Heads may be sharded,
 * and sequences; a pool that is sharded by blocks has those of each shard's sequences.
 *
 * If there are few queries, each key and value is read once, where it lies. If there are many,
 * computing takes longer than copying, so the blocks of a sequence are copied together for them,
 * unless they follow one another. Either way results have the bits of attention to a cache without
 * blocks (attend_cached.c). A GPU does both; the CPU checks table and positions. No gradient.
 */
#include "attend.h"
#include "blocks.h"

#include <math.h>
#include <string.h>

#include "apply/solve.h"
#include "base/num.h"
#include "device/attention.h"
#include "device/decode.h"
#include "device/tables.h"
#include "sherd/ops_layers.h"

enum { Q, K, V, TABLE, WHERE, OPERANDS };
enum { BLOCKS, TOGETHER, HEADS, WIDTH }; /* dims of the pool */

/* Why shapes do not fit, as the caller has them; NULL: they do. */
static const char *misfit(sherd_tensor *const *in)
{
    const sherd_tensor *q = in[Q], *k = in[K], *v = in[V], *table = in[TABLE], *where = in[WHERE];

    if (q->ndim != 4)
        return "q must have four dims [batch,positions,heads,width]";
    if (k->ndim != 4 || v->ndim != 4)
        return "k and v must have four dims [blocks,positions of a block,heads,width]";
    for (int d = 0; d < 4; d++)
        if (k->shape[d] != v->shape[d])
            return "k and v must have the same shape";
    if (q->shape[3] != k->shape[WIDTH])
        return "q and k must have the same width";
    if (k->shape[TOGETHER] < 1)
        return "a block must have a position";
    if (k->shape[HEADS] < 1 || q->shape[2] % k->shape[HEADS] != 0)
        return "the heads of k must divide those of q";
    if (table->ndim != 2 || table->shape[0] != q->shape[0])
        return "table must have two dims, the batch of q and the blocks of a sequence";
    return where->ndim != 2 || where->shape[0] != q->shape[0] || where->shape[1] != q->shape[1]
               ? "positions must have two dims, the [batch,positions] of q"
               : NULL;
}

/* Whether a pool has been sharded by blocks. */
static bool is_apart(const sherd_layout *pool)
{
    return pool && pool->spec.dim[BLOCKS].axes > 0;
}

/* What is wrong with how operands lie; NULL: nothing. A pool is too large to be moved. */
static const char *lie_badly(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v)
{
    if (k->layout != v->layout)
        return "k and v must have the same layout";
    if (!k->layout)
        return NULL;
    if (k->layout->pending_axes)
        return "a pool must not be pending: settle it";
    if (k->layout->spec.dim[TOGETHER].axes || k->layout->spec.dim[WIDTH].axes)
        return "a pool may be sharded by blocks and heads only";
    return is_apart(k->layout) && !(q->layout && sherd__dim_alike(&q->layout->spec.dim[0],
                                                                  &k->layout->spec.dim[BLOCKS]))
               ? "the pool is sharded by blocks: the sequences of q must be, by the same axes"
               : NULL;
}

/* Operands that fit have heads in groups, so 5 dims; others are refused as the caller gave them. */
static const char *describe(sherd_call *call)
{
    const char *reason = call->in[Q]->ndim == 5 ? NULL : misfit(call->in);

    if (!reason)
        reason = sherd__cached_fault(call);
    return reason ? reason : lie_badly(call->in[Q], call->in[K], call->in[V]);
}

/*
 * The way for a sharded pool: sequences stay where they are, and heads go where the pool has them.
 */
static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *operand[OPERANDS] = {NULL}, *pool = sherd__way_given(ways, K);
    sherd_status status = SHERD_OK;

    if (!is_apart(call->in[K]->layout))
        return SHERD_OK;
    operand[K] = operand[V] = pool;
    const sherd__dim batch = sherd__way_given(ways, Q)->spec.dim[0];
    for (int i = 0; i < OPERANDS && !status; i++) {
        if (i == K || i == V)
            continue;
        sherd__layout_spec spec = sherd__way_given(ways, i)->spec;
        for (int d = 0; d < spec.ndim; d++)
            spec.dim[d] = (sherd__dim){0};
        sherd__spec_settle(&spec);
        spec.dim[0] = batch;
        if (i == Q)
            spec.dim[SHERD__GROUPS] = pool->spec.dim[HEADS];
        status = sherd__layout_intern(&operand[i], &spec);
    }
    return status ? status : sherd_way_add(ways, operand, &operand[Q]);
}

/* ---- what a rank computes -------------------------------------------------------------------- */

typedef struct paging {
    sherd_call *call;
    const sherd__kernels *kernels;
    sherd_dtype dtype;    /* of statistics, and of few queries' results */
    sherd__attending s;   /* of one sequence, without queries and keys */
    int64_t batch, first; /* sequences here: how many, and the first one */
    int64_t together, entries;
    int64_t block;           /* of the pool here: the first one */
    int64_t rows;            /* of all sequences */
    int64_t most;            /* keys that a table has room for */
    size_t q_bytes, k_bytes; /* of a position */
    bool few, dry;
    const int32_t *table, *where; /* on the CPU in any case */
} paging;

static paging paging_of(sherd_call *call)
{
    const sherd_tensor *q = call->in[Q], *k = call->in[K];
    const sherd__attending one =
        sherd__attend_item(call, call->in[TABLE]->local[1] * k->local[TOGETHER]);
    size_t key = (size_t)(one.groups * one.width) * sherd_dtype_bytes(q->dtype);

    return (paging){.call = call,
                    .kernels = sherd__kernels_in(call),
                    .dtype = sherd__statistics_dtype(q->dtype),
                    .s = one,
                    .batch = q->local[SHERD__BATCH],
                    .first = sherd_tensor_offset(q, SHERD__BATCH),
                    .together = k->local[TOGETHER],
                    .entries = call->in[TABLE]->local[1],
                    .block = sherd_tensor_offset(k, BLOCKS),
                    .most = call->in[TABLE]->local[1] * k->local[TOGETHER],
                    .rows = q->local[SHERD__BATCH] * one.all_heads * one.queries,
                    .q_bytes = key * (size_t)one.repeat,
                    .k_bytes = key,
                    .few =
                        q->shape[SHERD__POSITIONS] * q->shape[SHERD__REPEAT] <= SHERD__ATTEND_FEW,
                    .dry = sherd__is_dry(call->world),
                    .table = call->from[TABLE],
                    .where = call->from[WHERE]};
}

/* The integers of an operand, as the CPU has them. False: failed. */
static bool take_numbers(const paging *p, int operand, const int32_t **out)
{
    sherd_tensor *t = p->call->in[operand];

    if (sherd__device_in(p->call) && t->count)
        *out = sherd__data(t);
    return *out || !t->count;
}

/* Keys that sequence b's queries see at most. */
static int64_t keys_of(const paging *p, int64_t b)
{
    int64_t most = 0;

    for (int64_t i = 0; i < p->s.queries; i++)
        most = sherd__max(most, (int64_t)p->where[b * p->s.queries + i] + 1);
    return most;
}

/* The first block of sequence b that any of its queries needs. */
static int64_t first_block(const paging *p, int64_t b)
{
    int64_t first = p->s.window ? keys_of(p, b) : 0;

    for (int64_t i = 0; i < p->s.queries && first > 0; i++) {
        int64_t position = p->where[b * p->s.queries + i];
        if (position >= 0)
            first = sherd__min(first, sherd__cached_before(p->s.window, position));
    }
    return first / p->together;
}

/* What is wrong with sequence b; NULL: nothing. */
static const char *fault_of(const paging *p, char text[SHERD__BLOCK_FAULT], int64_t b)
{
    const sherd_tensor *pool = p->call->in[K];
    int64_t keys = keys_of(p, b), sequence = p->first + b;
    const char *fault =
        keys > 0 ? sherd__position_fault(text, pool, p->call->in[TABLE], sequence, keys - 1) : NULL;

    for (int64_t i = first_block(p, b); !fault && i * p->together < keys; i++)
        fault = sherd__block_fault(text, pool, sequence, i, p->table[b * p->entries + i]);
    return fault;
}

/* Before anything is computed. */
static bool check_table(paging *p)
{
    char text[SHERD__BLOCK_FAULT];
    const char *fault = NULL;

    if (!take_numbers(p, TABLE, &p->table) || !take_numbers(p, WHERE, &p->where))
        return false;
    for (int64_t b = 0; b < p->batch && !p->dry && !fault; b++)
        fault = fault_of(p, text, b);
    return !fault || sherd_call_fail(p->call, SHERD_EINVAL, "%s", fault);
}

static const char *queries_of(const paging *p, int64_t b)
{
    return (const char *)p->call->from[Q] + (size_t)(b * p->s.queries) * p->q_bytes;
}

/* Results and logarithms of sums as statistics. */
static bool attend_few(paging *p, char *out, char *log_sum)
{
    int64_t n = p->s.queries;
    int64_t *seen = sherd_call_scratch(p->call, (2 * n + p->entries) * (int64_t)sizeof *seen);
    size_t rows = (size_t)(p->batch ? p->rows / p->batch : 0) * sherd_dtype_bytes(p->dtype);
    sherd__cached s = {.queries = n,
                       .groups = p->s.groups,
                       .repeat = p->s.repeat,
                       .width = p->s.width,
                       .keys = p->most,
                       .key_row = p->s.groups * p->s.width,
                       .seen = seen,
                       .before = p->s.window && seen ? seen + n : NULL,
                       .scale = p->s.scale,
                       .softcap = p->s.softcap,
                       .block = seen ? seen + 2 * n : NULL,
                       .together = p->together};
    void *workspace = sherd_call_scratch(p->call, p->kernels->attention_cached_workspace(&s));

    for (int64_t b = 0; b < p->batch && seen && workspace && !p->dry; b++) {
        s.keys = keys_of(p, b);
        for (int64_t i = 0; i < n; i++) {
            seen[i] = p->where[b * n + i] + 1;
            seen[n + i] = sherd__cached_before(p->s.window, p->where[b * n + i]);
        }
        for (int64_t i = first_block(p, b); i * p->together < s.keys; i++)
            seen[2 * n + i] = (p->table[b * p->entries + i] - p->block) * p->together;
        p->kernels->attention_cached(&s, out + (size_t)(b * p->s.width) * rows,
                                     log_sum + (size_t)b * rows, queries_of(p, b), p->call->from[K],
                                     p->call->from[V], workspace);
    }
    return seen && workspace;
}

/* Whether the blocks that sequence b needs follow one another, as a single one does. */
static bool are_neighbours(const paging *p, int64_t b, int64_t keys)
{
    const int32_t *table = p->table + b * p->entries;
    int64_t first = first_block(p, b);

    for (int64_t i = first + 1; i * p->together < keys; i++)
        if (table[i] != table[first] + (i - first))
            return false;
    return true;
}

/* Bytes for the blocks of a sequence, so many keys; a single block is never copied. */
static int64_t room_for(const paging *p, int64_t keys)
{
    return p->entries > 1 ? sherd__max(keys, 1) * (int64_t)p->k_bytes : 1;
}

static const void *block_at(const paging *p, const void *pool, int32_t number)
{
    return (const char *)pool + (size_t)((number - p->block) * p->together) * p->k_bytes;
}

/* The keys or values of sequence b from its first block on, one behind the other: where they lie,
 * or copied to `room`. */
static const void *bring_together(const paging *p, int64_t b, void *room, const void *pool)
{
    const int32_t *table = p->table + b * p->entries;
    int64_t first = first_block(p, b), keys = keys_of(p, b) - first * p->together;

    if (keys > 0 && are_neighbours(p, b, keys_of(p, b)))
        return block_at(p, pool, table[first]);
    for (int64_t i = first, at = 0; at < keys; i++, at += p->together)
        memcpy((char *)room + (size_t)at * p->k_bytes, block_at(p, pool, table[i]),
               (size_t)sherd__min(p->together, keys - at) * p->k_bytes);
    return room;
}

/* Neighbours, `at` bytes behind the first query. False: no kernel on the GPU for these heads. */
static bool attend_neighbours(const paging *p, const sherd__attending *s, size_t at, void *log_sum,
                              const void *k, const void *v, void *workspace)
{
    sherd__device *device = sherd__device_in(p->call);
    const char *q = (const char *)p->call->from[Q] + at;
    char *out = (char *)p->call->to[0] + at;

    if (device)
        return sherd__device_attention(device, p->call->out[0]->dtype, s, out, log_sum, q, k, v);
    p->kernels->attention(s, out, log_sum, q, k, v, workspace);
    return true;
}

/* Sequence b, runs of neighbours at once; k and v from its first block on. False: as above. */
static bool attend_sequence(const paging *p, int64_t b, void *log_sum, const void *k, const void *v,
                            void *workspace)
{
    const int32_t *where = p->where + b * p->s.queries;
    int64_t first = first_block(p, b) * p->together;
    sherd__attending s = p->s;

    for (int64_t i = 0; i < p->s.queries; i += s.queries) {
        s.queries = sherd__attend_run_of(where + i, p->s.queries - i);
        s.first_query = where[i];
        s.all_queries = s.all_keys = where[i] + s.queries;
        s.first_key = first;
        s.keys = sherd__max(0, s.all_keys - first);
        size_t skip = (size_t)sherd__attend_skip(&s) * p->k_bytes;
        if (!attend_neighbours(p, &s, (size_t)(b * p->s.queries + i) * p->q_bytes, log_sum,
                               (const char *)k + skip, (const char *)v + skip, workspace))
            return false;
    }
    return true;
}

static bool attend_many(paging *p)
{
    sherd_dtype dtype = p->call->out[0]->dtype;
    int64_t sums = p->s.all_heads * p->s.queries * (int64_t)sherd_dtype_bytes(p->dtype);
    void *log_sum = sherd_call_scratch(p->call, sums); /* nobody reads it */
    int64_t room = room_for(p, p->most);
    void *k = sherd_call_scratch(p->call, room), *v = sherd_call_scratch(p->call, room);

    p->s.keys = p->most;
    void *workspace = sherd__attend_workspace(p->call, dtype, &p->s);
    bool good = log_sum && k && v && workspace;
    for (int64_t b = 0; b < p->batch && good && !p->dry; b++)
        attend_sequence(p, b, log_sum, bring_together(p, b, k, p->call->from[K]),
                        bring_together(p, b, v, p->call->from[V]), workspace);
    return good;
}

/* ---- on the GPU ------------------------------------------------------------------------------ */

/* False: heads are too wide. */
static bool few_there(const paging *p)
{
    sherd_call *call = p->call;
    sherd__caching s = {.batch = p->batch,
                        .queries = p->s.queries,
                        .groups = p->s.groups,
                        .repeat = p->s.repeat,
                        .width = p->s.width,
                        .room = p->most,
                        .window = p->s.window,
                        .scale = p->s.scale,
                        .softcap = p->s.softcap,
                        .table = call->from[TABLE],
                        .entries = p->entries,
                        .together = p->together,
                        .first_block = p->block};

    for (int64_t b = 0; b < p->batch; b++)
        s.seen = sherd__max(s.seen, keys_of(p, b));
    return sherd__device_attention_cached(sherd__device_in(call), call->out[0]->dtype, &s,
                                          call->from[WHERE], call->to[0], call->from[Q],
                                          call->from[K], call->from[V]);
}

/* As bring_together, on the GPU. */
static const void *gather_there(const paging *p, int64_t b, void *room, int operand)
{
    const int32_t *table = p->call->from[TABLE];
    const void *pool = p->call->from[operand];
    int64_t first = first_block(p, b), keys = keys_of(p, b) - first * p->together;
    const sherd__pick blocks = {.outer = 1,
                                .n = sherd__ceil_div(keys, p->together),
                                .inner = p->together * p->s.groups * p->s.width,
                                .entries = p->call->in[operand]->local[BLOCKS],
                                .first = p->block,
                                .index = table + b * p->entries + first,
                                .flat = true};

    if (keys > 0 && are_neighbours(p, b, keys_of(p, b)))
        return block_at(p, pool, p->table[b * p->entries + first]);
    sherd__device_gather(sherd__device_in(p->call), sherd_dtype_bytes(p->call->out[0]->dtype),
                         &blocks, room, pool);
    return room;
}

/* False: heads are too wide, or there is no memory. */
static bool many_there(const paging *p)
{
    int64_t sums = p->s.all_heads * p->s.queries * (int64_t)sherd_dtype_bytes(p->dtype);
    void *log_sum = sherd__device_scratch(p->call, sums); /* nobody reads it */
    int64_t keys = 0;

    for (int64_t b = 0; b < p->batch; b++)
        keys = sherd__max(keys, keys_of(p, b));
    int64_t bytes = room_for(p, sherd__ceil_div(keys, p->together) * p->together);
    void *k = sherd__device_scratch(p->call, sherd__max(bytes, 1));
    void *v = sherd__device_scratch(p->call, sherd__max(bytes, 1));
    for (int64_t b = 0; log_sum && k && v && b < p->batch; b++) {
        const void *keys_there = gather_there(p, b, k, K), *values = gather_there(p, b, v, V);
        if (!attend_sequence(p, b, log_sum, keys_there, values, NULL))
            return false; /* the first one: heads are alike */
    }
    return log_sum && k && v;
}

/* False: it was not done, and goes on on the CPU, or has failed. */
static bool attend_there(const paging *p)
{
    return sherd__device_in(p->call) && (p->few ? few_there(p) : many_there(p));
}

static bool attend(sherd_call *call)
{
    const sherd_tensor *out = call->out[0];
    paging p = paging_of(call);
    int64_t bytes = (int64_t)sherd_dtype_bytes(p.dtype);

    if (!check_table(&p))
        return false;
    if (out->count == 0 || attend_there(&p))
        return true;
    if (!sherd__leave_device(call))
        return false;
    p = paging_of(call);
    if (!p.few)
        return attend_many(&p);
    void *to = call->to[0], *log_sum = sherd_call_scratch(call, p.rows * bytes);
    if (p.dtype != out->dtype)
        to = sherd_call_scratch(call, out->count * bytes);
    if (!to || !log_sum || !attend_few(&p, to, log_sum))
        return false;
    if (to != call->to[0] && !p.dry)
        sherd__convert(sherd__world_kernels(call->world), out->dtype, p.dtype, out->count,
                       call->to[0], to);
    return true;
}

/* Operations, for full tables, since it is not known how full they are. */
static double operations(const sherd_call *call)
{
    const paging p = paging_of((sherd_call *)(uintptr_t)call);

    return sherd__cached_operations(&p.s, p.rows, p.most);
}

const sherd_op sherd__attention_paged_op = {
    .name = "sherd_attention_paged",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "sherd_attention_cached where keys and values lie in blocks of a pool",
    .operand = {{"q by groups", 0},
                {"k", 0},
                {"v", 0},
                {"table", SHERD_OP_INDEX},
                {"positions", SHERD_OP_INDEX}},
    .result = {{"out", 0}},
    .field = SHERD__CACHED_FIELDS,
    .attributes = sizeof(sherd__cached_attributes),
    .rule = "bsgrw,npgw,npgw,bm,bs->bsgrw",
    .whole = "swnpm",
    .describe = describe,
    .ways = lie,
    .forward = attend,
    .dry = attend,
    .operations = operations,
    .on_device = sherd__fractions_there};

sherd_tensor *sherd_attention_paged_with(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                         sherd_tensor *table, sherd_tensor *positions,
                                         const sherd_cached_options *options)
{
    const sherd__cached_attributes attributes = sherd__cached_attributes_of(q, options);
    sherd_tensor *in[] = {q, k, v, table, positions};
    bool fits = q && k && v && table && positions && !misfit(in);
    int64_t n[4] = {0}, groups = 0;

    for (int d = 0; fits && d < 4; d++)
        n[d] = q->shape[d];
    if (fits) {
        groups = k->shape[HEADS];
        in[Q] = sherd_view(q, (int64_t[]){n[0], n[1], groups, n[2] / groups, n[3]}, 5);
    }
    sherd_tensor *out = sherd_apply(&sherd__attention_paged_op, in, OPERANDS, &attributes);
    return fits && !sherd_tensor_failed(out) ? sherd_view(out, n, 4) : out;
}

sherd_tensor *sherd_attention_paged(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                    sherd_tensor *table, sherd_tensor *positions, double scale)
{
    const sherd_cached_options options = {.scale = scale};

    return sherd_attention_paged_with(q, k, v, table, positions, &options);
}
