/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention to blocks of a pool as one rank computes it (paged.h). If there are few queries, each
 * key and value is read once, where it lies. If there are many, computing takes longer than
 * copying, so the blocks of a sequence are copied together for them, unless they follow one
 * another. Either way results have the bits of attention to a cache without blocks
 * (attend_cached.c). A GPU does both; the CPU checks table and positions.
 */
#include "paged.h"
#include "blocks.h"

#include <string.h>

#include "base/num.h"
#include "device/decode.h"
#include "device/tables.h"

enum {
    Q = SHERD__PAGED_Q,
    K = SHERD__PAGED_K,
    V = SHERD__PAGED_V,
    TABLE = SHERD__PAGED_TABLE,
    WHERE = SHERD__PAGED_WHERE
};

sherd__paging sherd__paging_of(sherd_call *call)
{
    const sherd_tensor *q = call->in[Q], *k = call->in[K];
    int64_t together = k->local[SHERD__POOL_TOGETHER], entries = call->in[TABLE]->local[1];
    const sherd__attending one = sherd__attend_item(call, entries * together);
    size_t key = (size_t)(one.groups * one.width) * sherd_dtype_bytes(q->dtype);
    int64_t repeat = q->shape[SHERD__REPEAT];

    return (sherd__paging){.call = call,
                           .kernels = sherd__kernels_in(call),
                           .dtype = sherd__statistics_dtype(q->dtype),
                           .s = one,
                           .batch = q->local[SHERD__BATCH],
                           .first = sherd_tensor_offset(q, SHERD__BATCH),
                           .together = together,
                           .entries = entries,
                           .block = sherd_tensor_offset(k, SHERD__POOL_BLOCKS),
                           .most = entries * together,
                           .repeat = repeat,
                           .q_bytes = key * (size_t)one.repeat,
                           .k_bytes = key,
                           .few = q->shape[SHERD__POSITIONS] * repeat <= SHERD__ATTEND_FEW,
                           .dry = sherd__is_dry(call->world),
                           .q = call->from[Q],
                           .out = call->to[0],
                           .table = call->from[TABLE],
                           .where = call->from[WHERE],
                           .table_there = call->from[TABLE],
                           .where_there = call->from[WHERE]};
}

sherd__paging sherd__paging_part(const sherd__paging *p, int64_t at, int64_t rows, int64_t sequence)
{
    sherd__paging part = *p;

    part.batch = 1;
    part.first = sequence;
    part.s.queries = rows;
    part.few = rows * p->repeat <= SHERD__ATTEND_FEW;
    part.q += (size_t)at * p->q_bytes;
    part.out += (size_t)at * p->q_bytes;
    part.where += at;
    part.where_there += at;
    part.table += sequence * p->entries;
    part.table_there += sequence * p->entries;
    return part;
}

bool sherd__paging_numbers(const sherd__paging *p, int operand, const int32_t **out)
{
    sherd_tensor *t = p->call->in[operand];

    if (sherd__device_in(p->call) && t->count)
        *out = sherd__data(t);
    return *out || !t->count;
}

/* Keys that sequence b's queries see at most. */
static int64_t keys_of(const sherd__paging *p, int64_t b)
{
    int64_t most = 0;

    for (int64_t i = 0; i < p->s.queries; i++)
        most = sherd__max(most, (int64_t)p->where[b * p->s.queries + i] + 1);
    return most;
}

/* The first block of sequence b that any of its queries needs. */
static int64_t first_block(const sherd__paging *p, int64_t b)
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
static const char *fault_of(const sherd__paging *p, char text[SHERD__BLOCK_FAULT], int64_t b)
{
    const sherd_tensor *pool = p->call->in[K];
    int64_t keys = keys_of(p, b), sequence = p->first + b;
    const char *fault =
        keys > 0 ? sherd__position_fault(text, pool, p->call->in[TABLE], sequence, keys - 1) : NULL;

    for (int64_t i = first_block(p, b); !fault && i * p->together < keys; i++)
        fault = sherd__block_fault(text, pool, sequence, i, p->table[b * p->entries + i]);
    return fault;
}

bool sherd__paging_check(const sherd__paging *p)
{
    char text[SHERD__BLOCK_FAULT];
    const char *fault = NULL;

    for (int64_t b = 0; b < p->batch && !p->dry && !fault; b++)
        fault = fault_of(p, text, b);
    return !fault || sherd_call_fail(p->call, SHERD_EINVAL, "%s", fault);
}

/* ---- few queries ----------------------------------------------------------------------------- */

/* The problem of so many queries; what a sequence sees goes to `seen`. */
static sherd__cached few_of(const sherd__paging *p, int64_t queries)
{
    int64_t *seen = p->room.seen;
    sherd__cached s = sherd__cached_few(&p->s, queries, p->most, seen);

    s.block = seen ? seen + 2 * queries : NULL;
    s.together = p->together;
    return s;
}

static bool take_few(sherd__paging *p, int64_t queries)
{
    sherd__paging_room *r = &p->room;
    int64_t rows = queries * p->s.all_heads, bytes = (int64_t)sherd_dtype_bytes(p->dtype);

    r->seen = sherd_call_scratch(p->call, (2 * queries + p->entries) * (int64_t)sizeof *r->seen);
    const sherd__cached s = few_of(p, queries);
    r->few = sherd_call_scratch(p->call, p->kernels->attention_cached_workspace(&s));
    r->log_sum = sherd_call_scratch(p->call, rows * bytes);
    if (p->dtype != p->call->out[0]->dtype)
        r->out = sherd_call_scratch(p->call, rows * p->s.width * bytes);
    return r->seen && r->few && r->log_sum && (r->out || p->dtype == p->call->out[0]->dtype);
}

/* Results and logarithms of sums as statistics. */
static void attend_few(sherd__paging *p)
{
    int64_t n = p->s.queries, *seen = p->room.seen;
    sherd_dtype dtype = p->call->out[0]->dtype;
    sherd__cached s = few_of(p, n);

    for (int64_t b = 0; b < p->batch; b++) {
        char *out = p->out + (size_t)(b * n) * p->q_bytes;
        s.keys = keys_of(p, b);
        for (int64_t i = 0; i < n; i++) {
            seen[i] = p->where[b * n + i] + 1;
            seen[n + i] = sherd__cached_before(p->s.window, p->where[b * n + i]);
        }
        for (int64_t i = first_block(p, b); i * p->together < s.keys; i++)
            seen[2 * n + i] = (p->table[b * p->entries + i] - p->block) * p->together;
        p->kernels->attention_cached(&s, p->room.out ? p->room.out : out, p->room.log_sum,
                                     p->q + (size_t)(b * n) * p->q_bytes, p->call->from[K],
                                     p->call->from[V], p->room.few);
        if (p->room.out)
            sherd__convert(sherd__world_kernels(p->call->world), dtype, p->dtype,
                           n * p->s.all_heads * p->s.width, out, p->room.out);
    }
}

/* ---- many queries ---------------------------------------------------------------------------- */

/* Whether the blocks that sequence b needs follow one another, as a single one does. */
static bool are_neighbours(const sherd__paging *p, int64_t b, int64_t keys)
{
    const int32_t *table = p->table + b * p->entries;
    int64_t first = first_block(p, b);

    for (int64_t i = first + 1; i * p->together < keys; i++)
        if (table[i] != table[first] + (i - first))
            return false;
    return true;
}

/* Bytes for the blocks of a sequence, so many keys; a single block is never copied. */
static int64_t room_for(const sherd__paging *p, int64_t keys)
{
    return p->entries > 1 ? sherd__max(keys, 1) * (int64_t)p->k_bytes : 1;
}

static const void *block_at(const sherd__paging *p, const void *pool, int32_t number)
{
    return (const char *)pool + (size_t)((number - p->block) * p->together) * p->k_bytes;
}

/* The keys or values of sequence b from its first block on, one behind the other: where they lie,
 * or copied to `room`. */
static const void *bring_together(const sherd__paging *p, int64_t b, void *room, const void *pool)
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
static bool attend_neighbours(const sherd__paging *p, const sherd__attending *s, size_t at,
                              void *log_sum, const void *k, const void *v, void *workspace)
{
    sherd__device *device = sherd__device_in(p->call);

    if (device)
        return sherd__device_attention(device, p->call->out[0]->dtype, s, p->out + at, log_sum,
                                       p->q + at, k, v);
    p->kernels->attention(s, p->out + at, log_sum, p->q + at, k, v, workspace);
    return true;
}

/* Sequence b, runs of neighbours at once; k and v from its first block on. False: as above. */
static bool attend_sequence(const sherd__paging *p, int64_t b, void *log_sum, const void *k,
                            const void *v, void *workspace)
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

/* Nobody reads the logarithms of sums. */
static bool take_many(sherd__paging *p, int64_t queries, int64_t keys)
{
    sherd__paging_room *r = &p->room;
    sherd__attending s = p->s;
    int64_t room = room_for(p, keys);

    s.queries = queries;
    s.keys = keys;
    r->sums =
        sherd_call_scratch(p->call, s.all_heads * queries * (int64_t)sherd_dtype_bytes(p->dtype));
    r->k = sherd_call_scratch(p->call, room);
    r->v = sherd_call_scratch(p->call, room);
    r->many = sherd__attend_workspace(p->call, p->call->out[0]->dtype, &s);
    return r->sums && r->k && r->v && r->many;
}

static void attend_many(const sherd__paging *p)
{
    for (int64_t b = 0; b < p->batch; b++)
        attend_sequence(p, b, p->room.sums, bring_together(p, b, p->room.k, p->call->from[K]),
                        bring_together(p, b, p->room.v, p->call->from[V]), p->room.many);
}

bool sherd__paging_take(sherd__paging *p, int64_t most_few, int64_t most_many, int64_t keys)
{
    return (most_few == 0 || take_few(p, most_few)) &&
           (most_many == 0 || take_many(p, most_many, keys));
}

void sherd__paging_here(sherd__paging *p)
{
    if (p->few)
        attend_few(p);
    else
        attend_many(p);
}

/* ---- on the GPU ------------------------------------------------------------------------------ */

/* False: heads are too wide. */
static bool few_there(const sherd__paging *p)
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
                        .table = p->table_there,
                        .entries = p->entries,
                        .together = p->together,
                        .first_block = p->block};

    s.seen = sherd__paging_keys(p);
    return sherd__device_attention_cached(sherd__device_in(call), call->out[0]->dtype, &s,
                                          p->where_there, p->out, p->q, call->from[K],
                                          call->from[V]);
}

/* As bring_together, on the GPU. */
static const void *gather_there(const sherd__paging *p, int64_t b, void *room, int operand)
{
    const void *pool = p->call->from[operand];
    int64_t first = first_block(p, b), keys = keys_of(p, b) - first * p->together;
    const sherd__pick blocks = {.outer = 1,
                                .n = sherd__ceil_div(keys, p->together),
                                .inner = p->together * p->s.groups * p->s.width,
                                .entries = p->call->in[operand]->local[SHERD__POOL_BLOCKS],
                                .first = p->block,
                                .index = p->table_there + b * p->entries + first,
                                .flat = true};

    if (keys > 0 && are_neighbours(p, b, keys_of(p, b)))
        return block_at(p, pool, p->table[b * p->entries + first]);
    sherd__device_gather(sherd__device_in(p->call), sherd_dtype_bytes(p->call->out[0]->dtype),
                         &blocks, room, pool);
    return room;
}

/* False: heads are too wide. */
static bool many_there(const sherd__paging *p)
{
    const sherd__paging_room *r = &p->room;

    for (int64_t b = 0; b < p->batch; b++) {
        const void *k = gather_there(p, b, r->k, K), *v = gather_there(p, b, r->v, V);
        if (!attend_sequence(p, b, r->sums, k, v, NULL))
            return false; /* the first one: heads are alike */
    }
    return true;
}

int64_t sherd__paging_keys(const sherd__paging *p)
{
    int64_t keys = 0;

    for (int64_t b = 0; b < p->batch; b++)
        keys = sherd__max(keys, keys_of(p, b));
    return keys;
}

bool sherd__paging_take_there(sherd__paging *p, int64_t queries, int64_t keys)
{
    sherd__paging_room *r = &p->room;
    int64_t bytes = room_for(p, sherd__ceil_div(keys, p->together) * p->together);

    r->sums = sherd__device_scratch(p->call, p->s.all_heads * queries *
                                                 (int64_t)sherd_dtype_bytes(p->dtype));
    r->k = sherd__device_scratch(p->call, sherd__max(bytes, 1));
    r->v = sherd__device_scratch(p->call, sherd__max(bytes, 1));
    return r->sums && r->k && r->v;
}

bool sherd__paging_there(const sherd__paging *p)
{
    return sherd__device_in(p->call) && (p->few ? few_there(p) : many_there(p));
}
