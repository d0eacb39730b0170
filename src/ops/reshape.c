/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merging neighbouring dims, and splitting one: new shapes for sherd_view (view.c), which has their
 * layouts.
 */
#include "apply/sketch.h"

#include "base/num.h"
#include "world/doing.h"

sherd_tensor *sherd_reshape(sherd_tensor *a, const int64_t *shape, int ndim)
{
    sherd_world *world = sherd_tensor_world(a);
    bool begun = sherd__doing_begin(world, "sherd_reshape");
    sherd_tensor *y = sherd_view(a, shape, ndim);

    sherd__doing_end(world, begun);
    return y;
}

/* ---- flatten --------------------------------------------------------------------------------- */

typedef struct range {
    int from, to;
} range;

static const char *describe_flatten(sherd_call *call)
{
    const range *dims = call->attributes;
    const sherd_tensor *a = call->in[0];
    int ndim = a->ndim ? a->ndim : 1;
    int from = sherd__dim_of(dims->from, ndim), to = sherd__dim_of(dims->to, ndim);
    int64_t merged = 1;

    if (from < 0 || from > to)
        return sherd_call_reason(call, "no dims %d to %d", dims->from, dims->to);
    for (int d = from; d <= to && d < a->ndim; d++)
        if (!sherd__mul(merged, a->shape[d], &merged))
            return "the dims together would have 2^62 indices or more";
    return NULL;
}

static bool flatten(sherd_call *call)
{
    const range *dims = call->attributes;
    const sherd_tensor *a = call->in[0];
    int from = sherd__dim_of(dims->from, a->ndim ? a->ndim : 1), n = 0;
    int to = sherd__dim_of(dims->to, a->ndim ? a->ndim : 1);
    int64_t shape[SHERD_MAX_DIMS] = {1};

    for (int d = 0; d < a->ndim; d++) {
        if (d > from && d <= to)
            shape[n - 1] *= a->shape[d];
        else
            shape[n++] = a->shape[d];
    }
    call->out[0] = sherd_view(call->in[0], shape, n ? n : 1);
    return true;
}

const sherd_op sherd__flatten_op = {
    .name = "sherd_flatten",
    .summary = "merge neighbouring dims",
    .operand = {{"a", 0}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELD(range, from, INT), SHERD_FIELD(range, to, INT)},
    .attributes = sizeof(range),
    .numbers = SHERD_EVERYTHING,
    .describe = describe_flatten,
    .compose = flatten};

sherd_tensor *sherd_flatten(sherd_tensor *a, int from, int to)
{
    return sherd_apply(&sherd__flatten_op, &a, 1, &(range){from, to});
}

/* ---- unflatten ------------------------------------------------------------------------------- */

typedef struct split {
    int dim, count;
    int64_t size[SHERD_MAX_DIMS]; /* one may be -1 */
} split;

/* Fill in a size of -1; false: the sizes do not multiply to n. */
static bool complete(int64_t *size, const split *wanted, int64_t n)
{
    int64_t known = 1;
    int open = -1;

    for (int i = 0; i < wanted->count; i++) {
        size[i] = wanted->size[i];
        if (size[i] == -1 && open < 0)
            open = i;
        else if (size[i] < 0 || !sherd__mul(known, size[i], &known))
            return false;
    }
    if (open < 0)
        return known == n;
    if (known == 0 || n % known != 0)
        return false;
    size[open] = n / known;
    return true;
}

static const char *describe_unflatten(sherd_call *call)
{
    const split *wanted = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(wanted->dim, a->ndim);
    int64_t size[SHERD_MAX_DIMS];

    if (dim < 0)
        return sherd_call_reason(call, "no dim %d", wanted->dim);
    if (wanted->count < 1 || a->ndim - 1 + wanted->count > SHERD_MAX_DIMS)
        return sherd_call_reason(call, "a dim in %d parts", wanted->count);
    if (!complete(size, wanted, a->shape[dim]))
        return sherd_call_reason(call, "the sizes do not multiply to %lld, the size of dim %d",
                                 (long long)a->shape[dim], dim);
    return NULL;
}

static bool unflatten(sherd_call *call)
{
    const split *wanted = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(wanted->dim, a->ndim), n = 0;
    int64_t size[SHERD_MAX_DIMS], shape[SHERD_MAX_DIMS];

    complete(size, wanted, a->shape[dim]);
    for (int d = 0; d < a->ndim; d++) {
        for (int i = 0; d == dim && i < wanted->count; i++)
            shape[n++] = size[i];
        if (d != dim)
            shape[n++] = a->shape[d];
    }
    call->out[0] = sherd_view(call->in[0], shape, n);
    return true;
}

const sherd_op sherd__unflatten_op = {.name = "sherd_unflatten",
                                      .summary = "split a dim",
                                      .operand = {{"a", 0}},
                                      .result = {{"y", 0}},
                                      .field = {SHERD_FIELD(split, dim, INT),
                                                SHERD_FIELD(split, count, INT),
                                                SHERD_FIELDS(split, size, INT64, SHERD_MAX_DIMS)},
                                      .attributes = sizeof(split),
                                      .numbers = SHERD_EVERYTHING,
                                      .describe = describe_unflatten,
                                      .compose = unflatten};

sherd_tensor *sherd_unflatten(sherd_tensor *a, int dim, const int64_t *sizes, int count)
{
    split wanted = {.dim = dim, .count = sizes ? count : -1};

    for (int i = 0; wanted.count <= SHERD_MAX_DIMS && i < wanted.count; i++)
        wanted.size[i] = sizes[i];
    return sherd_apply(&sherd__unflatten_op, &a, 1, &wanted);
}
