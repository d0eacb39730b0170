/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices drawn by weights (sherd/random.h). With exponential random numbers e the index of the
 * largest w / e is i with probability w[i] / sum(w), and those of the k largest are k draws without
 * replacement. That is composed of other operators; a last one checks that the quotients of the
 * drawn indices are positive. Several draws with replacement are looked up in the running sums of
 * the weights instead, for which a rank needs whole rows: n additions for a row, and log n steps
 * for an index.
 */
#include "ops/shared.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include "vector/choose.h"

#include <float.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"
#include "kernels/sorted.h"

/*
 * A uniform number of 48 bits is one of 24 bits, and one of this range, which is half of the last
 * bit further up, so that the sum is not 0.
 */
static const double low_least = 0x1p-49, low_end = 0x1p-24 + 0x1p-49;

/* ---- the check ------------------------------------------------------------------------------- */

static const char *describe_check(sherd_call *call)
{
    call->dtype[0] = SHERD_I32;
    return NULL;
}

/* A weight of 0 is drawn only if there are too few positive ones. */
static bool check_drawn(sherd_call *call)
{
    const double *quotient = call->from[1];
    int64_t n = call->out[0]->count;

    for (int64_t i = 0; i < n; i++)
        if (!(quotient[i] > 0))
            return sherd_call_fail(call, SHERD_EINVAL,
                                   quotient[i] <= 0 ? "a row has too few positive weights"
                                                    : "a weight is NaN");
    if (n)
        memcpy(call->to[0], call->from[0], sherd__bytes(n) * sizeof(int32_t));
    return true;
}

static const sherd_op check_op = {.name = "sherd_multinomial check",
                                  .summary = "indices, if their weights were positive",
                                  .operand = {{"index", SHERD_OP_INDEX}, {"quotient", 0}},
                                  .result = {{"y", 0}},
                                  .rule = "...,...->...",
                                  .describe = describe_check,
                                  .forward = check_drawn};

/* ---- with replacement ------------------------------------------------------------------------ */

typedef struct drawing {
    int64_t count;
    sherd__key high, low; /* of the first and the last 24 bits of a uniform number */
} drawing;

static const char *describe_repeated(sherd_call *call)
{
    const sherd_tensor *weights = call->in[0];
    int last = weights->ndim - 1;

    if (weights->shape[last] > INT32_MAX)
        return "a row has more weights than an i32 counts";
    call->dtype[0] = SHERD_I32;
    call->shape[0][last] = ((const drawing *)call->attributes)->count;
    return NULL;
}

/* Turn weights into their running sums. Returns the last sum; negative: a weight is NaN. */
static double add_up(double *w, int64_t n, double scale)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        if (w[i] != w[i])
            return -1;
        sum += w[i] > 0 ? w[i] * scale : 0;
        w[i] = sum;
    }
    return sum;
}

/* The running sums of a row of weights. */
typedef struct row_sums {
    double *sum;
    int64_t n, last; /* weights; the index that counts if u * total is rounded to the total */
    double total;
} row_sums;

static bool weigh(sherd_call *call, row_sums *w, const void *row)
{
    const sherd__kernel_set *kernels = sherd__world_kernels(call->world);
    sherd_dtype dtype = call->in[0]->dtype;

    sherd__convert(kernels, SHERD_F64, dtype, w->n, w->sum, row);
    w->total = add_up(w->sum, w->n, 1);
    /* It overflows: scaled, only infinite weights do that. Or parts of it would lose digits. */
    if (w->total > DBL_MAX || (w->total > 0 && w->total < 0x1p-900)) {
        sherd__convert(kernels, SHERD_F64, dtype, w->n, w->sum, row);
        w->total = add_up(w->sum, w->n, w->total > 1 ? 0x1p-64 : 0x1p200);
    }
    if (!(w->total > 0))
        return sherd_call_fail(call, SHERD_EINVAL,
                               w->total < 0 ? "a weight is NaN"
                                            : "a row has too few positive weights");
    for (w->last = w->n - 1; w->last > 0 && w->sum[w->last - 1] == w->total;)
        w->last--;
    return true;
}

/* Draw n indices; `first` is the number of the first draw in the whole tensor. */
static void look_up(sherd_call *call, const row_sums *w, int32_t *index, int64_t n, int64_t first)
{
    enum { ONCE = 256 };
    const drawing *d = call->attributes;
    const sherd__kernels *f64 = &sherd__world_kernels(call->world)->f64;
    double u[ONCE], low[ONCE];
    int64_t at[ONCE];

    for (int64_t i = 0; i < n; i += ONCE) {
        const sherd__seek s = {.rows = 1, .n = w->n, .m = sherd__min(n - i, ONCE), .right = true};
        f64->uniform(s.m, u, 0, 1, d->high, first + i);
        f64->uniform(s.m, low, low_least, low_end, d->low, first + i);
        for (int64_t j = 0; j < s.m; j++)
            u[j] = (u[j] + low[j]) * w->total;
        sherd__seek_all(SHERD_F64, &s, at, w->sum, u);
        for (int64_t j = 0; j < s.m; j++)
            index[i + j] = (int32_t)sherd__min(at[j], w->last);
    }
}

static bool draw_repeated(sherd_call *call)
{
    const sherd_tensor *weights = call->in[0], *out = call->out[0];
    int64_t n = weights->local[weights->ndim - 1], count = out->local[out->ndim - 1], row = -1;
    row_sums w = {.n = n, .sum = sherd_call_scratch(call, (n + 1) * (int64_t)sizeof(double))};
    sherd__walk walk;

    if (!w.sum || sherd__is_dry(call->world))
        return w.sum != NULL;
    for (sherd__walk_begin(&walk, out); sherd__walk_next(&walk);)
        for (int64_t i = walk.local, end = i + walk.length, take; i < end; i += take) {
            take = sherd__min(end - i, count - i % count);
            if (i / count != row) {
                row = i / count;
                if (!weigh(call, &w,
                           (const char *)call->from[0] +
                               row * n * (int64_t)sherd_dtype_bytes(weights->dtype)))
                    return false;
            }
            look_up(call, &w, (int32_t *)call->to[0] + i, take, walk.global + i - walk.local);
        }
    return true;
}

static const sherd_op draw_op = {.name = "sherd_multinomial draw",
                                 .summary = "indices by weights, with replacement",
                                 .operand = {{"weights", 0}},
                                 .result = {{"y", SHERD_OP_INDEX}},
                                 .field = {SHERD_FIELD(drawing, count, INT64),
                                           SHERD__KEY_FIELDS(drawing, high),
                                           SHERD__KEY_FIELDS(drawing, low)},
                                 .attributes = sizeof(drawing),
                                 .rule = "...n->...c",
                                 .whole = "n",
                                 .describe = describe_repeated,
                                 .forward = draw_repeated,
                                 .dry = draw_repeated};

/* ---- drawing --------------------------------------------------------------------------------- */

/* A second stream for the same use of a generator: the low bits of its numbers. */
static sherd_generator second_stream(const sherd_generator *generator)
{
    return (sherd_generator){sherd__hash_text(generator->name, "beside"), generator->calls};
}

/*
 * Use the generator without drawing, after a failure: that may be on one rank only, and generators
 * must stay in step.
 */
static void skip(sherd_world *world, sherd_generator *generator)
{
    sherd_generator second = second_stream(generator);

    sherd__next_key(world, generator);
    sherd__next_key(world, &second);
}

static sherd_tensor *uniform(sherd_tensor *t, double low, double high, sherd_generator *generator)
{
    const sherd_distribution u = sherd_uniform(low, high);

    return t->layout ? sherd_random_on(t->layout, SHERD_F64, u, generator)
                     : sherd_random(t->world, SHERD_F64, t->shape, t->ndim, u, generator);
}

/*
 * An exponential number for each element of t, in its layout: -log(1 - u), u in (0, 1). The index
 * with the smallest number tends to win, so small u must be fine. If u had only 24 bits, one in
 * 2^24 would be next to 0, with which a weight of 1e-10 wins beside a weight of 1; and of a million
 * numbers many would be equal. So u has 48 bits, and half of the last one is added, so that it is
 * not 0.
 */
static sherd_tensor *exponential(sherd_tensor *t, sherd_generator *generator)
{
    if (sherd_tensor_failed(t)) {
        skip(t->world, generator);
        return t;
    }
    sherd_generator second = second_stream(generator);
    sherd_tensor *high = uniform(t, 0, 1, generator);
    sherd_tensor *low = uniform(t, low_least, low_end, &second);

    return sherd_scale(sherd_log1p(sherd_scale(sherd_add(high, low), -1)), -1);
}

/*
 * The index of the largest quotient; if the last dim is sharded, only the largest of each shard
 * travels.
 */
static sherd_tensor *draw_one(sherd_tensor *quotient)
{
    static const int last = -1;
    sherd_tensor *index = sherd_argmax(quotient, &last, 1, true);

    return sherd_apply(&check_op, (sherd_tensor *[]){index, sherd_max(quotient, &last, 1, true)}, 2,
                       NULL);
}

static sherd_tensor *draw_with_replacement(sherd_tensor *weights, int64_t count,
                                           sherd_generator *generator)
{
    sherd_generator second = second_stream(generator);
    drawing how = {.count = count};

    how.high = sherd__next_key(weights->world, generator);
    how.low = sherd__next_key(weights->world, &second);
    return sherd_apply(&draw_op, &weights, 1, &how);
}

/*
 * Weights, in f64, over exponential numbers. Those are as small as 2^-49, so quotients of f64 may
 * overflow, and those of its least numbers have few digits: square roots of both do not, and are in
 * the same order.
 */
static sherd_tensor *quotients(sherd_tensor *weights, sherd_generator *generator)
{
    sherd_tensor *w = sherd_cast(weights, SHERD_F64), *e = exponential(w, generator);

    return weights->dtype == SHERD_F64 ? sherd_div(sherd_sqrt(sherd_relu(w)), sherd_sqrt(e))
                                       : sherd_div(w, e);
}

/* What a call is to draw. */
typedef struct asked {
    int64_t count;
    bool replacement;
    sherd_generator *generator;
    bool *drew; /* whether the generator has been used */
} asked;

static const char *describe(sherd_call *call)
{
    const asked *a = call->attributes;
    const sherd_tensor *weights = call->in[0];

    if (!a->generator)
        return "no generator";
    if (weights->ndim < 1)
        return "weights of no dims";
    if (a->count < 1)
        return sherd_call_reason(call, "count is %lld, it must be 1 or more", (long long)a->count);
    if (!a->replacement && a->count > weights->shape[weights->ndim - 1])
        return sherd_call_reason(call, "fewer weights than indices to draw, %lld",
                                 (long long)a->count);
    return NULL;
}

static bool draw(sherd_call *call)
{
    const asked *a = call->attributes;
    sherd_tensor *w = sherd__without_pending(sherd_detach(call->in[0])), *index;

    *a->drew = true;
    if (a->replacement && a->count > 1 && !sherd_tensor_failed(w)) {
        call->out[0] = draw_with_replacement(w, a->count, a->generator);
        return true;
    }
    w = quotients(w, a->generator);
    if (a->count == 1) {
        call->out[0] = draw_one(w);
        return true;
    }
    w = sherd_topk(w, a->count, -1, true, &index);
    call->out[0] = sherd_apply(&check_op, (sherd_tensor *[]){index, w}, 2, NULL);
    return true;
}

const sherd_op sherd__multinomial_op = {
    .name = "sherd_multinomial",
    .summary = "indices drawn by weights",
    .operand = {{"weights", 0}},
    .result = {{"y", SHERD_OP_INDEX}},
    .field = {SHERD_FIELD(asked, count, INT64), SHERD_FIELD(asked, replacement, BOOL)},
    .attributes = sizeof(asked),
    .describe = describe,
    .compose = draw};

sherd_tensor *sherd_multinomial(sherd_tensor *weights, int64_t count, bool replacement,
                                sherd_generator *generator)
{
    sherd_world *world = sherd_tensor_world(weights);
    bool drew = false;
    const asked how = {count, replacement, generator, &drew};
    sherd_tensor *y = sherd_apply(&sherd__multinomial_op, &weights, 1, &how);

    if (world && generator && !drew)
        skip(world, generator);
    return y;
}
