/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention to a cache of keys and values, where every query has a position of its own and sees the
 * keys up to it. Batch and heads may be sharded. Neighbouring queries whose positions follow each
 * other are computed at once; of the cache nothing behind the last of these positions is read. It
 * has no gradient.
 */
#include "attend.h"

#include <string.h>

#include "base/num.h"
#include "sherd/ops_layers.h"

enum { Q, K, V, WHERE, OPERANDS };
enum { BATCH, POSITIONS, GROUPS, REPEAT, WIDTH };

typedef struct cached_attributes {
    double scale;
} cached_attributes;

static const char *describe(sherd_call *call)
{
    const sherd_tensor *q = call->in[Q], *k = call->in[K], *v = call->in[V];
    const sherd_tensor *where = call->in[WHERE];

    if (q->ndim != 5 || k->ndim != 4 || v->ndim != 4)
        return "q, k and v must have four dims [batch,positions,heads,width]";
    if (where->ndim != 2)
        return "positions must have two dims [batch,positions]";
    return NULL;
}

/* The keys that any query sees; -1, raised: a position outside of the cache. */
static int64_t most_keys(sherd_call *call, const int32_t *where, int64_t count, int64_t room)
{
    int64_t most = 0;

    for (int64_t i = 0; i < count; i++) {
        if (where[i] >= room) {
            sherd_call_fail(call, SHERD_EINVAL, "position %d is outside of a cache of %lld",
                            (int)where[i], (long long)room);
            return -1;
        }
        most = sherd__max(most, where[i] + 1);
    }
    return most;
}

/* How many of n queries, from the first one on, stand at positions that follow each other. */
static int64_t run_of(const int32_t *where, int64_t n)
{
    int64_t i = 1;

    while (i < n && where[i] == where[0] + i)
        i++;
    return where[0] < 0 ? 1 : i;
}

typedef struct cache {
    const sherd__kernels *kernels;
    sherd__attending s;      /* of one item, without queries and keys */
    size_t q_bytes, k_bytes; /* of a position */
    void *log_sum, *workspace;
} cache;

static void attend_item(cache *c, void *out, const void *q, const void *k, const void *v,
                        const int32_t *where, int64_t queries)
{
    for (int64_t i = 0, n; i < queries; i += n) {
        size_t at = (size_t)i * c->q_bytes;
        n = run_of(where + i, queries - i);
        if (where[i] < 0) {
            memset((char *)out + at, 0, c->q_bytes);
            continue;
        }
        c->s.queries = n;
        c->s.keys = c->s.all_keys = where[i] + n;
        c->s.first_query = where[i];
        c->s.all_queries = c->s.all_keys;
        c->kernels->attention(&c->s, (char *)out + at, c->log_sum, (const char *)q + at, k, v,
                              c->workspace);
    }
}

static cache cache_of(sherd_call *call)
{
    const int64_t *size = call->in[Q]->local;
    const cached_attributes *attributes = call->attributes;
    size_t element = sherd_dtype_bytes(call->in[Q]->dtype);
    int64_t key = size[GROUPS] * size[WIDTH];

    return (cache){.kernels = sherd__kernels_in(call),
                   .s = {.batch = 1,
                         .groups = size[GROUPS],
                         .repeat = size[REPEAT],
                         .queries = size[POSITIONS],
                         .width = size[WIDTH],
                         .scale = attributes->scale,
                         .causal = true,
                         .all_heads = size[GROUPS] * size[REPEAT],
                         .all_repeat = size[REPEAT]},
                   .q_bytes = (size_t)(key * size[REPEAT]) * element,
                   .k_bytes = (size_t)key * element};
}

static bool attend(sherd_call *call)
{
    cache c = cache_of(call);
    const int64_t *size = call->in[Q]->local;
    int64_t room = call->in[K]->local[POSITIONS], n = size[POSITIONS];
    const int32_t *where = call->from[WHERE];

    if (call->out[0]->count == 0)
        return true;
    c.s.keys = most_keys(call, where, size[BATCH] * n, room);
    if (c.s.keys < 0)
        return false;
    c.log_sum = sherd_call_scratch(call, c.s.all_heads * n * (int64_t)sizeof(double));
    c.workspace = sherd__attend_workspace(call, call->out[0]->dtype, &c.s);
    for (int64_t b = 0; b < size[BATCH] && c.log_sum && c.workspace; b++) {
        size_t q = (size_t)(b * n) * c.q_bytes, k = (size_t)(b * room) * c.k_bytes;
        attend_item(&c, (char *)call->to[0] + q, (const char *)call->from[Q] + q,
                    (const char *)call->from[K] + k, (const char *)call->from[V] + k, where + b * n,
                    n);
    }
    return c.log_sum && c.workspace;
}

const sherd_op sherd__attention_cached_op = {
    .name = "sherd_attention_cached",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "sherd_attention of queries at positions of their own to a cache of keys and values",
    .operand = {{"q", 0}, {"k", 0}, {"v", 0}, {"positions", SHERD_OP_INDEX}},
    .result = {{"out", 0}},
    .field = {SHERD_FIELD(cached_attributes, scale, DOUBLE)},
    .attributes = sizeof(cached_attributes),
    .rule = "bsgrw,btgw,btgw,bs->bsgrw",
    .whole = "stw",
    .describe = describe,
    .forward = attend};

sherd_tensor *sherd_attention_cached(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                     sherd_tensor *positions, double scale)
{
    const sherd_attention_options options = {.scale = scale};
    const cached_attributes attributes = {sherd__attend_scale(q, &options)};
    bool fits =
        q && k && q->ndim == 4 && k->ndim == 4 && k->shape[2] > 0 && q->shape[2] % k->shape[2] == 0;
    int64_t n[5] = {0};

    for (int d = 0; fits && d < 4; d++)
        n[d < 3 ? d : WIDTH] = q->shape[d];
    if (fits) {
        n[GROUPS] = k->shape[2];
        n[REPEAT] = q->shape[2] / k->shape[2];
        q = sherd_view(q, n, 5);
    }
    sherd_tensor *out = sherd_apply(&sherd__attention_cached_op,
                                    (sherd_tensor *[]){q, k, v, positions}, OPERANDS, &attributes);
    return fits && !sherd_tensor_failed(out)
               ? sherd_view(out, (int64_t[]){n[0], n[1], n[GROUPS] * n[REPEAT], n[WIDTH]}, 4)
               : out;
}
