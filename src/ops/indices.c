/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements by indices of several dims: these dims are merged, and the indices become places in the
 * merged dim, after each was checked against its own.
 */
#include "shared.h"
#include "sherd/ops_index.h"

#include <string.h>

#include "base/num.h"

enum { MOST = 4 };

/* ---- places ---------------------------------------------------------------------------------- */

typedef struct stride {
    int64_t limit, step;
} stride;

static bool step_along(sherd_call *call)
{
    const stride *by = call->attributes;
    const int32_t *index = call->from[0];
    int32_t *to = call->to[0];

    if (!sherd__check_indices(call, 0, by->limit))
        return false;
    for (int64_t i = 0; i < call->out[0]->count; i++)
        to[i] = (int32_t)(index[i] * by->step);
    return true;
}

static const sherd_op step_op = {
    .name = "sherd_index_at place",
    .operand = {{"index", SHERD_OP_INDEX}},
    .result = {{"place", SHERD_OP_INDEX}},
    .field = {SHERD_FIELD(stride, limit, INT64), SHERD_FIELD(stride, step, INT64)},
    .attributes = sizeof(stride),
    .rule = "...->...",
    .numbers = SHERD_EVERYTHING,
    .forward = step_along};

typedef struct many {
    int count;
    bool accumulates;
} many;

/* The operands from `first` on are indices of the first dims of operand 0. */
static const char *fault_of(sherd_call *call, int first)
{
    const many *how = call->attributes;
    const sherd_tensor *a = call->in[0];
    int64_t all = 1;

    if (how->count < 1 || how->count > MOST)
        return sherd_call_reason(call, "%d indices: must be 1 to %d", how->count, MOST);
    for (int i = 0; i < how->count; i++)
        if (!call->in[first + i])
            return sherd_call_reason(call, "index %d is NULL", i);
    if (how->count > a->ndim)
        return sherd_call_reason(call, "%d indices of %d dims", how->count, a->ndim);
    for (int d = 0; d < how->count; d++)
        if (!sherd__mul(all, a->shape[d], &all) || all > INT32_MAX)
            return sherd_call_reason(call, "the first %d dims have 2^31 elements or more",
                                     how->count);
    return NULL;
}

/* Places in the merged dim, in the shape of the indices together. */
static sherd_tensor *places_of(const sherd_call *call, int first)
{
    const many *how = call->attributes;
    const sherd_tensor *a = call->in[0];
    int64_t step = 1;
    sherd_tensor *sum = NULL;

    for (int d = how->count - 1; d >= 0; step *= a->shape[d--]) {
        sherd_tensor *place =
            sherd_apply(&step_op, &call->in[first + d], 1, &(stride){a->shape[d], step});
        sum = sum ? sherd_add(sum, place) : place;
    }
    return sum;
}

/* As one dim; of no dims, of one element. */
static sherd_tensor *in_a_row(sherd_tensor *t, int dims)
{
    return dims > 0 ? sherd_flatten(t, 0, dims - 1) : sherd_unsqueeze(t, 0);
}

/* Where rows are taken from, or put to. */
typedef struct spot {
    sherd_tensor *rows, *at; /* `a` with its dims of indices as one, and places in it, in a row */
    int64_t shape[SHERD_MAX_DIMS];
    int places, ndim; /* of the indices together, and of all: the dims of `a` without one follow */
} spot;

/* False: failed, or the result is the failed tensor already (*good). */
static bool find_spot(sherd_call *call, int first, spot *s, bool *good)
{
    const many *how = call->attributes;
    const sherd_tensor *a = call->in[0];
    sherd_tensor *places = call->out[0] = places_of(call, first);
    int rest = a->ndim - how->count;

    *good = true;
    if (sherd_tensor_failed(places))
        return false;
    s->places = places->ndim;
    s->ndim = places->ndim + rest;
    if (s->ndim > SHERD_MAX_DIMS) {
        *good = sherd_call_fail(call, SHERD_EINVAL, "a result of %d dims", s->ndim);
        return false;
    }
    memcpy(s->shape, places->shape, (size_t)places->ndim * sizeof *s->shape);
    memcpy(s->shape + places->ndim, a->shape + how->count, (size_t)rest * sizeof *s->shape);
    s->rows = in_a_row(call->in[0], how->count);
    s->at = in_a_row(places, places->ndim);
    return true;
}

/* ---- taking ---------------------------------------------------------------------------------- */

static const char *describe_take(sherd_call *call)
{
    return fault_of(call, 1);
}

static bool take(sherd_call *call)
{
    spot s;
    bool good;

    if (find_spot(call, 1, &s, &good))
        call->out[0] = sherd_view(sherd_index_select(s.rows, 0, s.at), s.shape, s.ndim);
    return good;
}

#define INDICES                                                                           \
    {"i", SHERD_OP_INDEX | SHERD_OP_OPTIONAL}, {"j", SHERD_OP_INDEX | SHERD_OP_OPTIONAL}, \
        {"k", SHERD_OP_INDEX | SHERD_OP_OPTIONAL},                                        \
    {                                                                                     \
        "l", SHERD_OP_INDEX | SHERD_OP_OPTIONAL                                           \
    }
#define MANY_FIELDS                                                                 \
    .field = {SHERD_FIELD(many, count, INT), SHERD_FIELD(many, accumulates, BOOL)}, \
    .attributes = sizeof(many)

const sherd_op sherd__index_at_op = {.name = "sherd_index_at",
                                     .summary = "elements by indices of several dims",
                                     .operand = {{"a", 0}, INDICES},
                                     .result = {{"y", 0}},
                                     MANY_FIELDS,
                                     .numbers = SHERD_EVERYTHING,
                                     .describe = describe_take,
                                     .compose = take};

static void list(sherd_tensor *in[MOST], sherd_tensor *const *index, int count)
{
    for (int i = 0; i < MOST; i++)
        in[i] = index && i < count && count <= MOST ? index[i] : NULL;
}

sherd_tensor *sherd_index_at(sherd_tensor *a, sherd_tensor *const *index, int count)
{
    sherd_tensor *in[1 + MOST] = {a};

    list(in + 1, index, count);
    return sherd_apply(&sherd__index_at_op, in, 1 + MOST, &(many){.count = count});
}

/* ---- putting --------------------------------------------------------------------------------- */

static const char *describe_put(sherd_call *call)
{
    const many *how = call->attributes;

    return how->accumulates && call->in[0]->dtype == SHERD_BOOL ? "it adds no bool"
                                                                : fault_of(call, 2);
}

static bool put(sherd_call *call)
{
    const many *how = call->attributes;
    const sherd_tensor *a = call->in[0];
    spot s;
    bool good;

    if (!find_spot(call, 2, &s, &good))
        return good;
    sherd_tensor *values = in_a_row(sherd_expand(call->in[1], s.shape, s.ndim), s.places);
    sherd_tensor *rows = how->accumulates ? sherd_index_add(s.rows, 0, s.at, values)
                                          : sherd_index_copy(s.rows, 0, s.at, values);
    call->out[0] = how->count > 1 ? sherd_view(rows, a->shape, a->ndim) : rows;
    return true;
}

const sherd_op sherd__index_put_op = {.name = "sherd_index_put",
                                      .summary = "elements replaced by indices of several dims",
                                      .operand = {{"a", 0}, {"values", 0}, INDICES},
                                      .result = {{"y", 0}},
                                      MANY_FIELDS,
                                      .numbers = SHERD_EVERYTHING,
                                      .describe = describe_put,
                                      .compose = put};

sherd_tensor *sherd_index_put(sherd_tensor *a, sherd_tensor *const *index, int count,
                              sherd_tensor *values, bool accumulates)
{
    sherd_tensor *in[2 + MOST] = {a, values};

    list(in + 2, index, count);
    return sherd_apply(&sherd__index_put_op, in, 2 + MOST, &(many){count, accumulates});
}
