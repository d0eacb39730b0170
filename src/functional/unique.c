/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The distinct values of a tensor (sherd/ops_sorted.h). One operator sorts what each shard has and
 * tells all ranks how many distinct elements that are; with these counts the layout of the distinct
 * elements follows, which another one takes. The distinct elements of all shards are gathered, and
 * the same is done once more with them, as one shard. Costs a sort of each rank's elements, and one
 * of what was gathered.
 */
#include "ops/order.h"
#include "ops/shared.h"
#include "runs.h"
#include "rows.h"
#include "sherd/ops_sorted.h"

#include <string.h>

#include "base/num.h"
#include "kernels/pick.h"
#include "kernels/sorted.h"

enum { ORDERED, COUNT };

/* Shards of all dims, the last one varying fastest, as their parts (ops/parts.c). */
static int64_t shards_of(const sherd_tensor *t)
{
    int64_t shards = 1;

    for (int d = 0; t->layout && d < t->ndim; d++)
        shards *= sherd__dim_parts(t->layout->spec.mesh, &t->layout->spec.dim[d]);
    return shards;
}

static int64_t elements_of_shard(const sherd_tensor *t, int64_t shard)
{
    int64_t n = 1;

    for (int d = t->ndim - 1; d >= 0; d--) {
        if (!t->layout) {
            n *= t->shape[d];
            continue;
        }
        const sherd__layout_spec *spec = &t->layout->spec;
        int64_t parts = sherd__dim_parts(spec->mesh, &spec->dim[d]), at = shard % parts;
        n *= sherd__dim_cut(spec->mesh, &spec->dim[d], spec->shape[d], at + 1) -
             sherd__dim_cut(spec->mesh, &spec->dim[d], spec->shape[d], at);
        shard /= parts;
    }
    return n;
}

/* ---- of each shard, in order ----------------------------------------------------------------- */

static const char *describe_order(sherd_call *call)
{
    const sherd_tensor *a = call->in[0];
    int64_t most = a->count, shards = shards_of(a);

    if (a->layout)
        most = sherd__elements_beside(&a->layout->spec, -1);
    if (most > INT32_MAX)
        return sherd_call_reason(call, "%lld elements in a shard: an i32 counts fewer",
                                 (long long)most);
    sherd_call_shape(call, ORDERED, a->ndim, a->shape);
    sherd_call_shape(call, COUNT, 1, &shards);
    call->dtype[COUNT] = SHERD_I64;
    return NULL;
}

static sherd_status lie_order(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *operand, *result[2];
    sherd_status status = sherd__layout_settle(&operand, sherd__way_given(ways, 0));

    result[ORDERED] = operand;
    if (!status)
        status = sherd__replicated(&result[COUNT], operand->spec.mesh, 1, call->shape[COUNT]);
    return status ? status : sherd_way_add(ways, &operand, result);
}

/* This rank's distinct elements, in order, and then zeroes: how many. -1: no memory. */
static int64_t put_in_order(sherd_call *call)
{
    const sherd_tensor *a = call->in[0];
    const int64_t size[3] = {1, a->count, 1};
    sherd_dtype dtype;

    if (a->count == 0)
        return 0;
    const void *keys = sherd__keys_in(call, 0, &dtype);
    void *scratch = keys ? sherd_call_scratch(call, sherd__order_scratch(a->count)) : NULL;
    int32_t *index = scratch ? sherd_call_scratch(call, a->count * (int64_t)sizeof *index) : NULL;
    if (!index)
        return -1;
    if (sherd__is_dry(call->world))
        return 0;
    sherd__order(dtype, size, a->count, false, index, keys, scratch);
    int64_t n = sherd__distinct(a->dtype, a->count, call->to[ORDERED], call->from[0], index);
    size_t bytes = sherd_dtype_bytes(a->dtype);
    memset((char *)call->to[ORDERED] + sherd__bytes(n) * bytes, 0,
           sherd__bytes(a->count - n) * bytes);
    return n;
}

static bool order(sherd_call *call)
{
    const sherd_tensor *a = call->in[0];
    unsigned dims = (1u << a->ndim) - 1;
    bool dry = sherd__is_dry(call->world);
    int64_t shards, n = put_in_order(call);
    sherd_tensor *mine = n < 0 ? NULL : sherd__new_parts(call, dims, SHERD_I64, 1);

    if (!mine)
        return false;
    int64_t *count = mine->count ? sherd__fresh(mine) : NULL;
    if (count)
        *count = n;
    const int64_t *all = sherd__all_parts(call, dims, mine, 1, &shards);
    if (!call->out[COUNT]->count)
        return true;
    count = call->to[COUNT];
    for (int64_t s = 0; all && s < shards; s++) /* dry: all elements of each shard */
        count[s] = dry ? elements_of_shard(a, s) : all[s];
    return all != NULL;
}

const sherd_op sherd__order_unique_op = {
    .name = "sherd_order_unique",
    .summary = "the distinct elements of each shard, in order, and how many they are",
    .layouts = "the operand stays; counts are on all ranks",
    .operand = {{"a", 0}},
    .result = {{"ordered", 0}, {"count", 0}},
    .numbers = SHERD_EVERYTHING,
    .describe = describe_order,
    .ways = lie_order,
    .forward = order,
    .dry = order};

/* ---- taken ----------------------------------------------------------------------------------- */

typedef struct taking {
    int64_t digest; /* of the counts */
    int64_t total;  /* and their sum */
} taking;

static const char *describe_taken(sherd_call *call)
{
    const sherd_tensor *count = call->in[COUNT];
    const taking *how = call->attributes;

    if (count->ndim != 1 || count->dtype != SHERD_I64 ||
        count->shape[0] != shards_of(call->in[ORDERED]) || how->total < 0)
        return "these are no counts of the elements (sherd_order_unique)";
    sherd_call_shape(call, 0, 1, &how->total);
    return NULL;
}

static sherd_status lie_taken(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *operand[2], *result;
    const taking *how = call->attributes;
    const int64_t *counts = sherd__counts_of(call->in[COUNT]);
    sherd_status status = sherd__layout_settle(&operand[ORDERED], sherd__way_given(ways, ORDERED));

    if (status)
        return status;
    if (counts && !sherd__counts_add_up(counts, call->in[COUNT]->shape[0], how->total))
        return sherd__fail(sherd__world_diag(call->world), SHERD_EINVAL,
                           "%s: the counts are not of %lld elements", call->op->name,
                           (long long)how->total);
    const sherd__layout_spec *from = &operand[ORDERED]->spec;
    sherd__layout_spec spec = {.mesh = from->mesh, .ndim = 1, .shape = {how->total}};
    sherd__spec_settle(&spec);
    for (int d = 0; d < from->ndim; d++)
        for (int i = 0; i < from->dim[d].axes; i++)
            spec.dim[0].axis[spec.dim[0].axes++] = from->dim[d].axis[i];
    status = sherd__replicated(&operand[COUNT], spec.mesh, 1, call->in[COUNT]->shape);
    if (!status)
        status = sherd__layout_intern(&result, &spec);
    if (!status)
        status = sherd__lay_counts(&result, result, how->total, counts, 1, call->op->name);
    return status ? status : sherd_way_add(ways, operand, &result);
}

static bool take(sherd_call *call)
{
    int64_t n = call->out[0]->count;

    if (n > call->in[ORDERED]->count)
        return sherd_call_fail(call, SHERD_EINVAL, "%lld of %lld elements here", (long long)n,
                               (long long)call->in[ORDERED]->count);
    if (n > 0)
        memcpy(call->to[0], call->from[ORDERED],
               sherd__bytes(n) * sherd_dtype_bytes(call->out[0]->dtype));
    return true;
}

const sherd_op sherd__unique_op = {
    .name = "sherd_unique",
    .summary = "the distinct elements, ascending",
    .layouts = "any; the distinct elements of shards are gathered",
    .operand = {{"ordered", 0}, {"count", SHERD_OP_ANY}},
    .result = {{"values", 0}},
    .field = {SHERD_FIELD(taking, digest, INT64), SHERD_FIELD(taking, total, INT64)},
    .attributes = sizeof(taking),
    .numbers = SHERD_EVERYTHING,
    .describe = describe_taken,
    .ways = lie_taken,
    .forward = take,
    .dry = sherd__stay_dry};

/* ---- counted --------------------------------------------------------------------------------- */

static bool tally(sherd_call *call)
{
    const sherd_tensor *values = call->in[0], *a = call->in[1];

    if (call->out[0]->count == 0)
        return true;
    memset(call->to[0], 0, sherd__bytes(values->count) * sizeof(int64_t));
    sherd__tally(values->dtype, values->count, call->to[0], call->from[0], a->count, call->from[1]);
    return true;
}

static const char *describe_tally(sherd_call *call)
{
    call->dtype[0] = SHERD_I64;
    return NULL;
}

const sherd_op sherd__count_unique_op = {.name = "sherd_count_unique",
                                         .summary = "how often each of some values occurs",
                                         .operand = {{"values", 0}, {"a", 0}},
                                         .result = {{"count", 0}},
                                         .rule = "u,...->u",
                                         .whole = "u",
                                         .numbers = SHERD_EVERYTHING,
                                         .describe = describe_tally,
                                         .forward = tally};

/* ---- the function ---------------------------------------------------------------------------- */

/* The distinct elements of each shard. */
static sherd_tensor *distinct(sherd_tensor *a)
{
    sherd_tensor *ordered[2];
    taking how = {.digest = 0};

    if (!sherd_apply_all(ordered, &sherd__order_unique_op, &a, 1, NULL))
        return ordered[ORDERED];
    const int64_t *n = ordered[COUNT]->count ? sherd__data(ordered[COUNT]) : NULL;
    for (int64_t s = 0; n && s < ordered[COUNT]->count; s++)
        how.total += n[s];
    how.digest = sherd__known_digest(&ordered[COUNT], 1);
    return sherd_apply(&sherd__unique_op, ordered, 2, &how);
}

/* The distinct elements of all shards together, on all ranks. */
static sherd_tensor *distinct_of_all(sherd_tensor *a)
{
    const sherd_layout *all;
    sherd_tensor *values = distinct(a);

    if (sherd_tensor_failed(values) || sherd__row_shards(values) == 1)
        return values;
    if (sherd__replicated(&all, values->layout->spec.mesh, 1, values->shape) != SHERD_OK)
        return sherd__fail_diag(values->world, true);
    return distinct(sherd__move_to(values, all, false));
}

static sherd_tensor *settled(sherd_tensor *t)
{
    return sherd_tensor_failed(t) ? t : sherd__without_pending(t);
}

sherd_tensor *sherd_unique(sherd_tensor *a, sherd_tensor **inverse, sherd_tensor **counts)
{
    a = settled(a); /* once */
    sherd_tensor *values = distinct_of_all(a);

    if (inverse)
        *inverse = sherd_searchsorted(values, a, false, SHERD_I32);
    if (counts)
        *counts =
            settled(sherd_apply(&sherd__count_unique_op, (sherd_tensor *[]){values, a}, 2, NULL));
    return values;
}
