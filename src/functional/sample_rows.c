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

#include <stdio.h>

/* Dims of rows in a rule, if none is sharded. */
#define ROW_LETTERS "abcdefgh"

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
    .field = {SHERD_FIELD(sherd__sample_how, marks, BOOL)},
    .attributes = sizeof(sherd__sample_how),
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
    const sherd__sample_how how = {o.marks};
    sherd_tensor *in[OPERANDS] = {logits, key, o.temperature, o.top_k, o.top_p, o.min_p};

    return sherd_apply(&sherd__sample_rows_op, in, OPERANDS, &how);
}
