/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One index for each row of logits, drawn by a number of the row's own key (sherd/ops_serving.h).
 * Everything that a row gets is computed from that row alone, by exact sums (draw.c): so neither
 * batch nor layout can be seen in it. Of long rows that are sharded each rank looks at its shard
 * only, and ranks exchange a few numbers (sample_shards.c); other rows are drawn by a rank that has
 * them whole.
 */
#include "sample.h"
#include "sherd/ops_serving.h"
#include "vector/choose.h"

#include <math.h>
#include <stdio.h>

#include "base/hash.h"

/* Dims of rows in a rule, if none is sharded. */
#define ROW_LETTERS "abcdefgh"

typedef struct sampling {
    bool marks; /* as in sherd_sample_options */
} sampling;

/* ---- what fits ------------------------------------------------------------------------------- */

static const char *describe_one(sherd_call *call, int i, const char *name)
{
    const sherd_tensor *t = call->in[i];

    if (!t)
        return NULL;
    return t->dtype == SHERD_F32 ? NULL : sherd_call_reason(call, "%s must be f32", name);
}

/* "abn,abk,ab,ab,ab,ab->ab": n may be sharded, and rows where they are sharded already. Otherwise
 * n is m, which is whole. */
static void write_rule(sherd_call *call, int rows, bool apart)
{
    static const char whole[] = ROW_LETTERS, any[] = "opqrstuv";
    const char *dims = apart ? any : whole;

    snprintf(call->rule, sizeof call->rule, "%.*sn,%.*sk,%.*s,%.*s,%.*s,%.*s->%.*s", rows, dims,
             rows, dims, rows, dims, rows, dims, rows, dims, rows, dims, rows, dims);
}

static const char *describe(sherd_call *call)
{
    const sherd_tensor *logits = call->in[LOGITS], *key = call->in[KEY];
    const char *reason = describe_one(call, TEMPERATURE, "temperature");
    bool apart;

    if (logits->ndim < 1)
        return "logits of no dims";
    if (logits->shape[logits->ndim - 1] < 1)
        return "a row has no logits";
    if (logits->shape[logits->ndim - 1] > INT32_MAX)
        return "a row has more logits than an i32 counts";
    if (key->dtype != SHERD_I32 && key->dtype != SHERD_I64)
        return "key must be i32 or i64";
    if (key->ndim < 1 || key->shape[key->ndim - 1] < 1)
        return "a key must have a word";
    if (!reason)
        reason = describe_one(call, TOP_P, "top_p");
    if (!reason)
        reason = describe_one(call, MIN_P, "min_p");
    if (!reason && sherd__sample_stays(logits, &apart))
        write_rule(call, logits->ndim - 1, apart);
    return reason;
}

/* ---- all rows -------------------------------------------------------------------------------- */

/* The number of a key, of `words` that begin at element `at`. */
static double number_of(const sherd_tensor *t, const void *keys, int64_t at, int64_t words)
{
    uint64_t low = 0x452821E638D01377u, high = 0xBE5466CF34E90C6Cu;
    uint32_t out[4];

    for (int64_t i = at; i < at + words; i++) {
        int64_t word =
            t->dtype == SHERD_I32 ? ((const int32_t *)keys)[i] : ((const int64_t *)keys)[i];
        low = sherd__hash_word(low, (uint64_t)word);
        high = sherd__hash_word(high, (uint64_t)word);
    }
    sherd__philox(out, sherd__philox_key(low, high, 0), 0);
    uint64_t bits = (uint64_t)out[0] << 16 | out[1] >> 16;
    return ((double)bits + 0.5) * 0x1p-48;
}

static double option(const sherd_call *call, int operand, int64_t i, double otherwise)
{
    return call->in[operand] ? (double)((const float *)call->from[operand])[i] : otherwise;
}

/* The number of row i of those here among all. */
static int64_t row_number(const sherd_call *call, int64_t i)
{
    const sherd_box box = sherd_tensor_box(call->out[0]);
    int64_t number = 0, times = 1;

    for (int d = box.ndim - 1; d >= 0; d--) {
        number += (box.offset[d] + i % box.size[d]) * times;
        times *= call->out[0]->shape[d];
        i /= box.size[d];
    }
    return number;
}

bool sherd__sample_marked(sherd_call *call, int64_t i, const char *fault)
{
    const sampling *how = call->attributes;

    return how->marks || sherd_call_fail(call, SHERD_EINVAL, "row %lld: %s",
                                         (long long)row_number(call, i), fault);
}

void sherd__sample_row(const sherd_call *call, int64_t i, sherd__row *d)
{
    const sherd_tensor *logits = call->in[LOGITS], *key = call->in[KEY];
    const sherd__kernel_set *kernels = sherd__world_kernels(call->world);
    const int64_t words = key->local[key->ndim - 1];

    d->f64 = &kernels->f64;
    d->length = logits->shape[logits->ndim - 1];
    d->temperature = option(call, TEMPERATURE, i, 1);
    d->top_k = call->in[TOP_K] ? ((const int32_t *)call->from[TOP_K])[i] : 0;
    d->top_p = option(call, TOP_P, i, 1);
    d->min_p = option(call, MIN_P, i, 0);
    d->u = number_of(key, call->from[KEY], i * words, words);
}

static const char *row_of(const sherd_call *call, int64_t i)
{
    const sherd_tensor *logits = call->in[LOGITS];
    const int64_t n = logits->local[logits->ndim - 1];

    return (const char *)call->from[LOGITS] + (size_t)(i * n) * sherd_dtype_bytes(logits->dtype);
}

void sherd__sample_load(const sherd_call *call, int64_t i, const sherd__row *d)
{
    sherd__convert(sherd__world_kernels(call->world), SHERD_F64, call->in[LOGITS]->dtype, d->n,
                   d->x, row_of(call, i));
}

double sherd__sample_most(sherd_call *call, int64_t i)
{
    const sherd_tensor *logits = call->in[LOGITS];
    const sherd__kernels *kernels = sherd__kernels_in(call);
    const int64_t n = logits->local[logits->ndim - 1], none = 0;
    double room, most;

    kernels->fill(&room, 1, -INFINITY);
    if (n > 0)
        kernels->fold(SHERD_MAX, 1, &n, &room, &none, row_of(call, i));
    sherd__convert(sherd__world_kernels(call->world), SHERD_F64, logits->dtype, 1, &most, &room);
    return most;
}

int64_t sherd__sample_first(const sherd_call *call, int64_t i, const sherd__row *d)
{
    const float *x = (const float *)(const void *)row_of(call, i);
    int64_t at = 0;

    if (call->in[LOGITS]->dtype == SHERD_F32) {
        while ((double)x[at] != d->most)
            at++;
        return at;
    }
    sherd__sample_load(call, i, d);
    while (d->x[at] != d->most)
        at++;
    return at;
}

/* The index that row i draws; -1: it has a fault. */
static int64_t draw(sherd_call *call, int64_t i, sherd__row *d, const char **fault)
{
    sherd__sample_row(call, i, d);
    d->most = sherd__sample_most(call, i);
    *fault = sherd__draw_fault(d);
    if (*fault)
        return -1;
    if (d->temperature == 0)
        return sherd__sample_first(call, i, d);
    sherd__sample_load(call, i, d);
    return sherd__draw_whole(d);
}

static bool sample(sherd_call *call)
{
    const sherd_tensor *logits = call->in[LOGITS];
    const int64_t n = logits->local[logits->ndim - 1];
    const char *fault = NULL;
    sherd__row d;

    if (sherd__sample_shards(call) > 1)
        return sherd__sample_sharded(call);
    void *room = sherd_call_scratch(call, n * SHERD__DRAW_BYTES);
    if (!room || sherd__is_dry(call->world))
        return room != NULL;
    sherd__draw_room(&d, room, n);
    for (int64_t i = 0; i < call->out[0]->count; i++) {
        int64_t index = draw(call, i, &d, &fault);
        if (fault && !sherd__sample_marked(call, i, fault))
            return false;
        ((int32_t *)call->to[0])[i] = (int32_t)index;
    }
    return true;
}

static double operations(const sherd_call *call)
{
    return 8 * (double)call->in[LOGITS]->count;
}

const sherd_op sherd__sample_rows_op = {
    .name = "sherd_sample_rows",
    .summary = "an index for each row of logits, drawn by its key",
    .operand = {{"logits", 0},
                {"key", SHERD_OP_ANY},
                {"temperature", SHERD_OP_ANY | SHERD_OP_OPTIONAL},
                {"top_k", SHERD_OP_INDEX | SHERD_OP_OPTIONAL},
                {"top_p", SHERD_OP_ANY | SHERD_OP_OPTIONAL},
                {"min_p", SHERD_OP_ANY | SHERD_OP_OPTIONAL}},
    .result = {{"y", SHERD_OP_INDEX}},
    .field = {SHERD_FIELD(sampling, marks, BOOL)},
    .attributes = sizeof(sampling),
    .rule = "...m,...k,...,...,...,...->...",
    .whole = "mk" ROW_LETTERS,
    .joined = "n",
    .describe = describe,
    .forward = sample,
    .dry = sample,
    .operations = operations};

sherd_tensor *sherd_sample_rows(sherd_tensor *logits, sherd_tensor *key,
                                const sherd_sample_options *options)
{
    const sherd_sample_options o = options ? *options : (sherd_sample_options){.marks = false};
    const sampling how = {o.marks};
    sherd_tensor *in[OPERANDS] = {logits, key, o.temperature, o.top_k, o.top_p, o.min_p};

    return sherd_apply(&sherd__sample_rows_op, in, OPERANDS, &how);
}
