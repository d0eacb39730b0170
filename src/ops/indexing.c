/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices of rows, and of several dims at once, made of those along one dim; and repeating. Indices
 * of several dims become places in the merged dim.
 */
#include "pick.h"
#include "sherd/ops_index.h"

#include <string.h>

#include "apply/sketch.h"

typedef struct along {
    int dim;
    int64_t times; /* or the total */
    double value;
} along;

static const char *dim_fault(sherd_call *call)
{
    const along *at = call->attributes;

    return sherd__dim_of(at->dim, call->in[0]->ndim) < 0
               ? sherd_call_reason(call, "no dim %d", at->dim)
               : NULL;
}

/* ---- repeated -------------------------------------------------------------------------------- */

static const char *describe_times(sherd_call *call)
{
    const along *at = call->attributes;

    return at->times < 0 ? sherd_call_reason(call, "%lld times", (long long)at->times)
                         : dim_fault(call);
}

static bool interleave(sherd_call *call)
{
    const along *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(at->dim, a->ndim);
    int64_t shape[SHERD_MAX_DIMS + 1];

    if (a->ndim == SHERD_MAX_DIMS)
        return sherd_call_fail(call, SHERD_EINVAL, "more than %d dims", SHERD_MAX_DIMS - 1);
    for (int d = 0; d <= a->ndim; d++)
        shape[d] = d == dim + 1 ? at->times : a->shape[d > dim ? d - 1 : d];
    sherd_tensor *each = sherd_unsqueeze(call->in[0], dim + 1);
    call->out[0] = sherd_flatten(sherd_expand(each, shape, a->ndim + 1), dim, dim + 1);
    return true;
}

#define ALONG_FIELDS                                                          \
    .field = {SHERD_FIELD(along, dim, INT), SHERD_FIELD(along, times, INT64), \
              SHERD_FIELD(along, value, DOUBLE)},                             \
    .attributes = sizeof(along)

const sherd_op sherd__repeat_interleave_op = {.name = "sherd_repeat_interleave",
                                              .summary = "each index of a dim several times",
                                              .operand = {{"a", 0}},
                                              .result = {{"y", 0}},
                                              ALONG_FIELDS,
                                              .numbers = SHERD_EVERYTHING,
                                              .describe = describe_times,
                                              .compose = interleave};

sherd_tensor *sherd_repeat_interleave(sherd_tensor *a, int dim, int64_t times)
{
    return sherd_apply(&sherd__repeat_interleave_op, &a, 1, &(along){.dim = dim, .times = times});
}

/* Each number as often as the count at its place says; ranks see all counts, so all agree. */
static bool spell_out(sherd_call *call)
{
    const along *at = call->attributes;
    const int32_t *count = call->from[0];
    int64_t n = call->in[0]->count, total = 0, place = 0;
    sherd_box box = sherd_tensor_box(call->out[0]);
    int32_t *to = call->to[0];

    for (int64_t i = 0; i < n; i++) {
        if (count[i] < 0)
            return sherd_call_fail(call, SHERD_EINVAL, "counts[%lld] is %d", (long long)i,
                                   (int)count[i]);
        total += count[i];
    }
    if (total != at->times)
        return sherd_call_fail(call, SHERD_EINVAL, "the counts add up to %lld, and total is %lld",
                               (long long)total, (long long)at->times);
    for (int64_t i = 0; i < n; i++)
        for (int32_t j = 0; j < count[i]; j++, place++)
            if (place >= box.offset[0] && place - box.offset[0] < box.size[0])
                to[place - box.offset[0]] = (int32_t)i;
    return true;
}

static const char *describe_spelling(sherd_call *call)
{
    sherd_call_shape(call, 0, 1, &((const along *)call->attributes)->times);
    return NULL;
}

static const sherd_op spelling_op = {.name = "sherd_repeat_interleave_by index",
                                     .operand = {{"counts", SHERD_OP_INDEX}},
                                     .result = {{"index", SHERD_OP_INDEX}},
                                     ALONG_FIELDS,
                                     .rule = "n->t",
                                     .whole = "nt",
                                     .numbers = SHERD_EVERYTHING,
                                     .describe = describe_spelling,
                                     .forward = spell_out};

enum { A, INDEX, SOURCE };

static const char *describe_counts(sherd_call *call)
{
    const along *at = call->attributes;
    const sherd_tensor *a = call->in[A], *counts = call->in[INDEX];
    const char *fault = dim_fault(call);

    if (fault)
        return fault;
    if (at->times < 0 || at->times > INT32_MAX)
        return sherd_call_reason(call, "total %lld is outside [0,2^31)", (long long)at->times);
    int64_t n = a->shape[sherd__dim_of(at->dim, a->ndim)];
    return counts->ndim != 1 || counts->shape[0] != n
               ? sherd_call_reason(call, "counts must be [%lld]", (long long)n)
               : NULL;
}

static bool interleave_by(sherd_call *call)
{
    const along *at = call->attributes;

    call->out[0] = sherd_index_select(call->in[A], at->dim,
                                      sherd_apply(&spelling_op, &call->in[INDEX], 1, at));
    return true;
}

const sherd_op sherd__repeat_interleave_by_op = {.name = "sherd_repeat_interleave_by",
                                                 .summary =
                                                     "each index of a dim as often as a count says",
                                                 .operand = {{"a", 0}, {"counts", SHERD_OP_INDEX}},
                                                 .result = {{"y", 0}},
                                                 ALONG_FIELDS,
                                                 .numbers = SHERD_EVERYTHING,
                                                 .describe = describe_counts,
                                                 .compose = interleave_by};

sherd_tensor *sherd_repeat_interleave_by(sherd_tensor *a, int dim, sherd_tensor *counts,
                                         int64_t total)
{
    return sherd_apply(&sherd__repeat_interleave_by_op, (sherd_tensor *[]){a, counts}, 2,
                       &(along){.dim = dim, .times = total});
}

/* ---- rows by one index ----------------------------------------------------------------------- */

static const char *describe_rows(sherd_call *call)
{
    const along *at = call->attributes;
    const sherd_tensor *a = call->in[A], *index = call->in[INDEX], *source = call->in[SOURCE];
    const char *fault = dim_fault(call);

    if (fault)
        return fault;
    if (index->ndim != 1)
        return "index must have 1 dim";
    bool fits = call->operands < 3 || source->ndim == a->ndim;
    for (int d = 0; d < a->ndim && fits && call->operands == 3; d++)
        fits = source->shape[d] ==
               (d == sherd__dim_of(at->dim, a->ndim) ? index->shape[0] : a->shape[d]);
    return fits ? NULL
                : sherd_call_reason(call, "source must be as a, with %lld along dim %d",
                                    (long long)index->shape[0], at->dim);
}

static bool add_rows(sherd_call *call)
{
    const along *at = call->attributes;

    call->out[0] = sherd__add_slices(call->in[A], at->dim, call->in[INDEX], call->in[SOURCE]);
    return true;
}

static bool copy_rows(sherd_call *call)
{
    const along *at = call->attributes;

    call->out[0] = sherd__put_slices(call->in[A], at->dim, call->in[INDEX], call->in[SOURCE]);
    return true;
}

static bool fill_rows(sherd_call *call)
{
    const along *at = call->attributes;

    call->out[0] = sherd__fill_slices(call->in[A], at->dim, call->in[INDEX], at->value);
    return true;
}

const sherd_op sherd__index_add_op = {
    .name = "sherd_index_add",
    .summary = "slices added by index",
    .operand = {{"a", 0}, {"index", SHERD_OP_INDEX}, {"source", 0}},
    .result = {{"y", 0}},
    ALONG_FIELDS,
    .numbers = SHERD_NUMBERS,
    .describe = describe_rows,
    .compose = add_rows};

const sherd_op sherd__index_copy_op = {
    .name = "sherd_index_copy",
    .summary = "slices replaced by index",
    .operand = {{"a", 0}, {"index", SHERD_OP_INDEX}, {"source", 0}},
    .result = {{"y", 0}},
    ALONG_FIELDS,
    .numbers = SHERD_EVERYTHING,
    .describe = describe_rows,
    .compose = copy_rows};

const sherd_op sherd__index_fill_op = {.name = "sherd_index_fill",
                                       .summary = "slices filled by index",
                                       .operand = {{"a", 0}, {"index", SHERD_OP_INDEX}},
                                       .result = {{"y", 0}},
                                       ALONG_FIELDS,
                                       .numbers = SHERD_EVERYTHING,
                                       .describe = describe_rows,
                                       .compose = fill_rows};

sherd_tensor *sherd_index_add(sherd_tensor *a, int dim, sherd_tensor *index, sherd_tensor *source)
{
    return sherd_apply(&sherd__index_add_op, (sherd_tensor *[]){a, index, source}, 3,
                       &(along){.dim = dim});
}

sherd_tensor *sherd_index_copy(sherd_tensor *a, int dim, sherd_tensor *index, sherd_tensor *source)
{
    return sherd_apply(&sherd__index_copy_op, (sherd_tensor *[]){a, index, source}, 3,
                       &(along){.dim = dim});
}

sherd_tensor *sherd_index_fill(sherd_tensor *a, int dim, sherd_tensor *index, double value)
{
    return sherd_apply(&sherd__index_fill_op, (sherd_tensor *[]){a, index}, 2,
                       &(along){.dim = dim, .value = value});
}
