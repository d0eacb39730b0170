/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One index for each row of logits, drawn by a number of the row's own key (sherd/ops_serving.h).
 * Everything that a row gets is computed from that row alone, in its order, by one rank that has
 * it whole: so neither batch nor layout can be seen in it. The thresholds of top_k and top_p are
 * found by selection, not by sorting: n steps on average.
 */
#include "ops/shared.h"
#include "sherd/ops_serving.h"
#include "vector/choose.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"
#include "kernels/cast.h"

enum { LOGITS, KEY, TEMPERATURE, TOP_K, TOP_P, MIN_P, OPERANDS };

/* ---- what fits ------------------------------------------------------------------------------- */

static const char *describe_one(sherd_call *call, int i, const char *name)
{
    const sherd_tensor *t = call->in[i];

    if (!t)
        return NULL;
    return t->dtype == SHERD_F32 ? NULL : sherd_call_reason(call, "%s must be f32", name);
}

static const char *describe(sherd_call *call)
{
    const sherd_tensor *logits = call->in[LOGITS], *key = call->in[KEY];
    const char *reason = describe_one(call, TEMPERATURE, "temperature");

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
    return reason ? reason : describe_one(call, MIN_P, "min_p");
}

/* ---- one row --------------------------------------------------------------------------------- */

typedef struct row {
    int64_t n;
    double *x, *w, *rest; /* logits, weights of at most 1, and room for a selection */
    double temperature, top_p, min_p;
    int64_t top_k;
    double u; /* in (0, 1) */
} row;

/*
 * The largest t such that what is at least t has a mass of `target` or more, of c[n], which gets
 * into disorder; the mass is a number of elements, or their sum. Pivots are taken here and there,
 * so that no order of elements makes it slow.
 */
static double threshold(double *c, int64_t n, double target, bool by_count)
{
    uint64_t where = 0;
    double above = 0, least = 0;

    for (int64_t lo = 0, hi = n; lo < hi;) {
        where = sherd__hash_word(where, (uint64_t)lo);
        double pivot = c[lo + (int64_t)(where % (uint64_t)(hi - lo))];
        double more = 0, same = 0;
        int64_t a = lo, b = hi; /* [lo, a) is larger than the pivot, [b, hi) less */
        for (int64_t i = lo; i < b;) {
            double x = c[i], mass = by_count ? 1 : x;
            if (x < pivot) {
                c[i] = c[--b];
                c[b] = x;
                continue;
            }
            if (x > pivot) {
                more += mass;
                c[i] = c[a];
                c[a++] = x;
            } else {
                same += mass;
            }
            i++;
        }
        least = pivot;
        if (above + more >= target && a > lo) {
            hi = a;
        } else if (above + more + same >= target) {
            return pivot;
        } else {
            above += more + same;
            lo = b;
        }
    }
    return least;
}

/* Set weights below `least` to 0. */
static void leave_out(row *r, double least)
{
    for (int64_t i = 0; i < r->n; i++)
        r->w[i] = r->w[i] >= least ? r->w[i] : 0;
}

/* Those that are left, to r->rest: how many. By x: their logits, otherwise their weights. */
static int64_t take_rest(const row *r, const double *from)
{
    int64_t count = 0;

    for (int64_t i = 0; i < r->n; i++)
        if (r->w[i] > 0)
            r->rest[count++] = from[i];
    return count;
}

static void keep_most(row *r)
{
    int64_t count = r->top_k > 0 && r->top_k < r->n ? take_rest(r, r->x) : 0;

    if (r->top_k <= 0 || count <= r->top_k)
        return;
    double least = threshold(r->rest, count, (double)r->top_k, true);
    for (int64_t i = 0; i < r->n; i++)
        r->w[i] = r->x[i] >= least ? r->w[i] : 0;
}

static double sum_of(const row *r)
{
    double sum = 0;

    for (int64_t i = 0; i < r->n; i++)
        sum += r->w[i];
    return sum;
}

static void keep_likely(row *r)
{
    if (r->top_p < 1)
        leave_out(r, threshold(r->rest, take_rest(r, r->w), r->top_p * sum_of(r), false));
}

/* The weight at which the running sum passes u of all; the last one, if that rounds to all. */
static int64_t look_up(const row *r)
{
    double at = r->u * sum_of(r), sum = 0;
    int64_t last = 0;

    for (int64_t i = 0; i < r->n; i++) {
        if (!(r->w[i] > 0))
            continue;
        sum += r->w[i];
        last = i;
        if (sum > at)
            break;
    }
    return last;
}

/* Weights of the logits, `most` is the largest. An infinite temperature makes them equal. */
static void weigh(const sherd__kernels *f64, row *r, double most)
{
    for (int64_t i = 0; i < r->n; i++)
        r->w[i] = r->x[i] == -INFINITY ? -INFINITY : (r->x[i] - most) / r->temperature;
    f64->unary(SHERD__EXP, r->n, r->w, r->w, NULL);
}

/* The index that a row draws; negative: `*fault` says why none. */
static int64_t draw_row(const sherd__kernels *f64, row *r, const char **fault)
{
    int64_t most = 0;

    for (int64_t i = 0; i < r->n; i++) {
        if (r->x[i] != r->x[i])
            *fault = "a logit is NaN";
        most = r->x[i] > r->x[most] ? i : most;
    }
    if (!*fault && r->x[most] == INFINITY)
        *fault = "a logit is infinite";
    if (!*fault && r->x[most] == -INFINITY)
        *fault = "all logits of a row are -infinity";
    if (!(r->temperature >= 0))
        *fault = "a temperature is negative or NaN";
    if (!(r->top_p > 0 && r->top_p <= 1))
        *fault = "a top_p is not in (0, 1]";
    if (!(r->min_p >= 0 && r->min_p <= 1))
        *fault = "a min_p is not in [0, 1]";
    if (*fault)
        return -1;
    if (r->temperature == 0)
        return most;
    weigh(f64, r, r->x[most]);
    if (r->min_p > 0)
        leave_out(r, r->min_p);
    keep_most(r);
    keep_likely(r);
    return look_up(r);
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

static bool sample(sherd_call *call)
{
    const sherd_tensor *logits = call->in[LOGITS], *key = call->in[KEY];
    const sherd__kernel_set *kernels = sherd__world_kernels(call->world);
    int64_t n = logits->local[logits->ndim - 1], words = key->local[key->ndim - 1];
    double *room = sherd_call_scratch(call, 3 * n * (int64_t)sizeof *room);
    const char *fault = NULL;

    if (!room || sherd__is_dry(call->world))
        return room != NULL;
    for (int64_t i = 0; i < call->out[0]->count; i++) {
        row r = {.n = n,
                 .x = room,
                 .w = room + n,
                 .rest = room + 2 * n,
                 .temperature = option(call, TEMPERATURE, i, 1),
                 .top_k = call->in[TOP_K] ? ((const int32_t *)call->from[TOP_K])[i] : 0,
                 .top_p = option(call, TOP_P, i, 1),
                 .min_p = option(call, MIN_P, i, 0),
                 .u = number_of(key, call->from[KEY], i * words, words)};
        sherd__convert(kernels, SHERD_F64, logits->dtype, n, r.x,
                       (const char *)call->from[LOGITS] +
                           (size_t)(i * n) * sherd_dtype_bytes(logits->dtype));
        int64_t index = draw_row(&kernels->f64, &r, &fault);
        if (fault)
            return sherd_call_fail(call, SHERD_EINVAL, "%s", fault);
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
    .rule = "...n,...k,...,...,...,...->...",
    .whole = "nk",
    .describe = describe,
    .forward = sample,
    .dry = sample,
    .operations = operations};

sherd_tensor *sherd_sample_rows(sherd_tensor *logits, sherd_tensor *key,
                                const sherd_sample_options *options)
{
    const sherd_sample_options o = options ? *options : (sherd_sample_options){NULL};
    sherd_tensor *in[OPERANDS] = {logits, key, o.temperature, o.top_k, o.top_p, o.min_p};

    return sherd_apply(&sherd__sample_rows_op, in, OPERANDS, NULL);
}
