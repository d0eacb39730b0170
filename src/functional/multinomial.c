/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices drawn by weights (sherd/random.h). With exponential random numbers e the index of the
 * largest w / e is i with probability w[i] / sum(w), and those of the k largest are k draws without
 * replacement. Composed of other operators, but for the last step, which looks at the quotients
 * that have won.
 */
#include "ops/shared.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"

#include <string.h>

#include "base/hash.h"
#include "base/num.h"

/* ---- the check ------------------------------------------------------------------------------- */

static const char *describe_check(sherd_call *call)
{
    call->dtype[0] = SHERD_I32;
    return NULL;
}

/* A weight of 0 has won only where there were not enough others. */
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

const sherd_op sherd__drawn_op = {.name = "sherd_drawn",
                                  .summary = "indices, if their weights were positive",
                                  .operand = {{"index", SHERD_OP_INDEX}, {"quotient", 0}},
                                  .result = {{"y", 0}},
                                  .rule = "...,...->...",
                                  .describe = describe_check,
                                  .forward = check_drawn};

/* ---- drawing --------------------------------------------------------------------------------- */

/* Another stream of the same use of a generator. */
static sherd_generator beside(const sherd_generator *generator)
{
    return (sherd_generator){sherd__hash_text(generator->name, "beside"), generator->calls};
}

/* A use of the generator where nothing is drawn, maybe on one rank only: generators must stay in
 * step. */
static void skip(sherd_world *world, sherd_generator *generator)
{
    sherd_generator other = beside(generator);

    sherd__next_key(world, generator);
    sherd__next_key(world, &other);
}

static sherd_tensor *uniform(sherd_tensor *t, double low, double high, sherd_generator *generator)
{
    const sherd_distribution u = sherd_uniform(low, high);

    return t->layout ? sherd_random_on(t->layout, SHERD_F64, u, generator)
                     : sherd_random(t->world, SHERD_F64, t->shape, t->ndim, u, generator);
}

/*
 * Exponential numbers for each element of t, where it lies: -log(1 - u), u in (0, 1). What wins has
 * a small one: of the 24 bits of one uniform number, a weight of 1e-10 beside 1 would win once in
 * 2^24 draws, and equal numbers would be common among a million. So u has 48, and half of one more:
 * it is not 0.
 */
static sherd_tensor *exponential(sherd_tensor *t, sherd_generator *generator)
{
    if (sherd_tensor_failed(t)) {
        skip(t->world, generator);
        return t;
    }
    sherd_generator other = beside(generator);
    sherd_tensor *high = uniform(t, 0, 1, generator);
    sherd_tensor *low = uniform(t, 0x1p-49, 0x1p-24 + 0x1p-49, &other);

    return sherd_scale(sherd_log1p(sherd_scale(sherd_add(high, low), -1)), -1);
}

/* The best of the last dim: only it travels where that is sharded. */
static sherd_tensor *draw_one(sherd_tensor *quotient)
{
    static const int last = -1;
    sherd_tensor *index = sherd_argmax(quotient, &last, 1, true);

    return sherd_apply(&sherd__drawn_op,
                       (sherd_tensor *[]){index, sherd_max(quotient, &last, 1, true)}, 2, NULL);
}

static sherd_tensor *draw_with_replacement(sherd_tensor *weights, int64_t count,
                                           sherd_generator *generator)
{
    int64_t shape[SHERD_MAX_DIMS];
    int ndim = weights->ndim;

    memcpy(shape, weights->shape, sizeof shape);
    shape[ndim] = shape[ndim - 1];
    shape[ndim - 1] = count;
    sherd_tensor *w = sherd_expand(sherd_unsqueeze(weights, ndim - 1), shape, ndim + 1);
    return sherd_squeeze(draw_one(sherd_div(w, exponential(w, generator))), ndim);
}

static sherd_tensor *draw(sherd_tensor *weights, int64_t count, bool replacement,
                          sherd_generator *generator)
{
    sherd_tensor *w = sherd_cast(sherd__without_pending(sherd_detach(weights)), SHERD_F64), *index;

    if (replacement && count > 1 && !sherd_tensor_failed(w))
        return draw_with_replacement(w, count, generator);
    w = sherd_div(w, exponential(w, generator));
    if (count == 1)
        return draw_one(w);
    w = sherd_topk(w, count, -1, true, &index);
    return sherd_apply(&sherd__drawn_op, (sherd_tensor *[]){index, w}, 2, NULL);
}

static const char *fault_of(const sherd_tensor *weights, int64_t count, bool replacement,
                            const sherd_generator *generator)
{
    if (!generator)
        return "no generator";
    if (weights->ndim < 1 || (replacement && count > 1 && weights->ndim == SHERD_MAX_DIMS))
        return "weights of no dims, or too many";
    if (!sherd__has_fractions(weights->dtype))
        return "weights must be floating-point";
    if (count < 1)
        return "count must be 1 or more";
    if (!replacement && count > weights->shape[weights->ndim - 1])
        return "fewer weights than indices to draw";
    return NULL;
}

sherd_tensor *sherd_multinomial(sherd_tensor *weights, int64_t count, bool replacement,
                                sherd_generator *generator)
{
    sherd_world *world = sherd_tensor_world(weights);
    const sherd__argument need[] = {{"weights", weights}, {NULL, NULL}};
    sherd_tensor *y;

    if (!sherd__given(world, "sherd_multinomial", need, &y))
        return y;
    bool stop = sherd__stop(world, "sherd_multinomial", &weights, 1);
    const char *fault = stop ? NULL : fault_of(weights, count, replacement, generator);
    if (!stop && !fault)
        return draw(weights, count, replacement, generator);
    if (generator)
        skip(world, generator);
    return stop ? sherd__failed(world)
                : sherd__fail_tensor(world, weights->layout != NULL, SHERD_EINVAL,
                                     "sherd_multinomial: %s: weights are %s, count is %lld", fault,
                                     sherd_tensor_text(weights), (long long)count);
}
