/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mask chooses (sherd/ops_masks.h). One operator counts how many elements of the mask are
 * set in each shard. All ranks then know these counts, from which the layout of the chosen rows
 * follows, so that the other operators (masked_rows.c) work on each rank alone. Costs two passes
 * over the mask.
 */
#include "masked.h"
#include "runs.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_masks.h"

#include <string.h>

#include "base/num.h"
#include "world/doing.h"
#include "layout/shape.h"

/* ---- counting -------------------------------------------------------------------------------- */

static const char *describe_counts(sherd_call *call)
{
    const int64_t shards = sherd__row_shards(call->in[0]);

    if (call->in[0]->ndim != 1)
        return "a mask must have dims, and be [n] where they are merged";
    sherd_call_shape(call, 0, 1, &shards);
    call->dtype[0] = SHERD_I64;
    return NULL;
}

static int64_t chosen_here(const uint8_t *mask, int64_t n)
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++)
        count += mask[i] != 0;
    return count;
}

static bool count_chosen(sherd_call *call)
{
    const sherd_tensor *mask = call->in[0];
    bool dry = sherd__is_dry(call->world);
    int64_t shards;
    sherd_tensor *mine = sherd__new_parts(call, 1, SHERD_I64, 1);

    if (!mine)
        return false;
    int64_t *count = mine->count ? sherd__fresh(mine) : NULL;
    if (count)
        *count = dry ? 0 : chosen_here(call->from[0], mask->count);
    const int64_t *all = sherd__all_parts(call, 1, mine, 1, &shards);
    if (!call->out[0]->count)
        return true;
    count = call->to[0];
    for (int64_t s = 0; all && s < shards; s++) /* dry: all elements of each shard */
        count[s] = dry ? sherd__rows_of_shard(mask, s) : all[s];
    return all != NULL;
}

const sherd_op sherd__count_masked_op = {.name = "sherd_count_masked",
                                         .summary =
                                             "how many elements of a mask each shard chooses",
                                         .layouts = "the mask stays; the result is on all ranks",
                                         .operand = {{"mask", SHERD_OP_BOOL}},
                                         .result = {{"count", 0}},
                                         .numbers = SHERD_EVERYTHING,
                                         .describe = describe_counts,
                                         .ways = sherd__counts_ways,
                                         .forward = count_chosen,
                                         .dry = count_chosen};

/* ---- where ----------------------------------------------------------------------------------- */

static const char *describe_nonzero(sherd_call *call)
{
    const sherd__choosing *how = call->attributes;
    const char *reason = sherd__counts_fault(call);
    const int64_t shape[] = {how->total, how->ndim};
    int64_t elements = 1;

    for (int d = 0; d < how->ndim && d < SHERD_MAX_DIMS && !reason; d++) {
        if (how->shape[d] > INT32_MAX)
            reason = sherd_call_reason(call, "dim %d has %lld indices: an i32 counts fewer", d,
                                       (long long)how->shape[d]);
        else if (how->shape[d] < 0 || !sherd__mul(elements, how->shape[d], &elements))
            reason = "sizes that are none";
    }
    if (!reason && (how->ndim < 1 || how->ndim > SHERD_MAX_DIMS ||
                    elements != call->in[SHERD__MASK]->shape[0]))
        reason = "a mask needs one dim or more, and as many elements as they have";
    sherd_call_shape(call, 0, 2, shape);
    call->dtype[0] = SHERD_I32;
    return reason;
}

static sherd_status lie_nonzero(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *operand[2], *chosen, *result;
    sherd_status status = sherd__lay_chosen(operand, &chosen, call, ways);

    if (status)
        return status;
    sherd__layout_spec spec = chosen->spec;
    spec.ndim = 2;
    spec.shape[1] = call->shape[0][1];
    spec.dim[1] = (sherd__dim){0};
    status = sherd__layout_intern(&result, &spec);
    return status ? status : sherd_way_add(ways, operand, &result);
}

static bool find_nonzero(sherd_call *call)
{
    const sherd__choosing *how = call->attributes;
    const sherd_tensor *mask = call->in[SHERD__MASK];
    const uint8_t *is = call->from[SHERD__MASK];
    int64_t first = sherd_tensor_offset(mask, 0), room = call->out[0]->count;
    int32_t *to = call->to[0];

    for (int64_t i = 0; i < mask->count; i++) {
        int64_t at = first + i;
        if (!is[i])
            continue;
        if ((room -= how->ndim) < 0)
            break;
        for (int d = how->ndim - 1; d >= 0; d--) {
            to[d] = (int32_t)(at % how->shape[d]);
            at /= how->shape[d];
        }
        to += how->ndim;
    }
    return room == 0 ||
           sherd_call_fail(call, SHERD_EINVAL, "the mask was written after it was counted");
}

const sherd_op sherd__nonzero_op = {
    .name = "sherd_nonzero",
    .summary = "where a mask is true",
    .layouts = "as the mask is sharded",
    .operand = {{"mask", SHERD_OP_BOOL}, {"count", SHERD_OP_ANY}},
    .result = {{"index", 0}},
    .field = {SHERD_FIELD(sherd__choosing, digest, INT64),
              SHERD_FIELD(sherd__choosing, total, INT64), SHERD_FIELD(sherd__choosing, ndim, INT),
              SHERD_FIELDS(sherd__choosing, shape, INT64, SHERD_MAX_DIMS)},
    .attributes = sizeof(sherd__choosing),
    .numbers = SHERD_EVERYTHING,
    .describe = describe_nonzero,
    .ways = lie_nonzero,
    .forward = find_nonzero,
    .dry = sherd__stay_dry};

/* ---- the functions --------------------------------------------------------------------------- */

/* The first `dims` dims as one. */
static sherd_tensor *merge(sherd_tensor *t, int dims)
{
    return dims > 1 ? sherd_flatten(t, 0, dims - 1) : t;
}

/* The merged mask, laid as the merged rows of `a`, if these are sharded. */
static sherd_tensor *lay_beside(sherd_tensor *mask, const sherd_tensor *a, const char *function)
{
    const sherd_layout *to;

    if (sherd_tensor_failed(mask) || !a->layout || sherd__row_shards(a) < 2 ||
        (mask->layout && mask->layout->spec.mesh != a->layout->spec.mesh))
        return mask;
    sherd__layout_spec spec = {.mesh = a->layout->spec.mesh, .ndim = 1};
    sherd__spec_settle(&spec);
    spec.shape[0] = mask->shape[0];
    spec.dim[0] = a->layout->spec.dim[0];
    if (sherd__layout_intern(&to, &spec) != SHERD_OK)
        return sherd__fail_diag(mask->world, true);
    return sherd__move_to(sherd__promote(mask, spec.mesh, function), to, false);
}

/* Count a merged mask. False: failed, and *count is the failed tensor. */
static bool count_mask(sherd_tensor **count, sherd__choosing *how, sherd_tensor *mask)
{
    *count = sherd_apply(&sherd__count_masked_op, &mask, 1, NULL);
    if (sherd_tensor_failed(*count))
        return false;
    const int64_t *n = (*count)->count ? sherd__data(*count) : NULL;
    for (int64_t s = 0; n && s < (*count)->count; s++)
        how->total += n[s];
    how->digest = sherd__known_digest(count, 1);
    return true;
}

static sherd_tensor *nonzero(sherd_tensor *a)
{
    sherd__choosing how = {.digest = 0};
    sherd_tensor *mask = a, *count;

    if (a && !sherd_tensor_failed(a)) {
        how.ndim = a->ndim;
        memcpy(how.shape, a->shape, sizeof how.shape);
        mask = a->dtype == SHERD_BOOL ? a : sherd_ne_scalar(a, 0);
        mask = merge(mask, a->ndim);
    }
    if (!count_mask(&count, &how, mask))
        return count;
    return sherd_apply(&sherd__nonzero_op, (sherd_tensor *[]){mask, count}, 2, &how);
}

sherd_tensor *sherd_nonzero(sherd_tensor *a)
{
    sherd_world *world = sherd_tensor_world(a);
    bool begun = sherd__doing_begin(world, "sherd_nonzero");
    sherd_tensor *rows = nonzero(a);

    sherd__doing_end(world, begun);
    return rows;
}

/* Whether a mask has the first sizes of `a`. */
static bool leads(const sherd_tensor *mask, const sherd_tensor *a)
{
    return mask->ndim > 0 && mask->ndim <= a->ndim &&
           sherd__same_shape(mask->ndim, mask->shape, mask->ndim, a->shape);
}

/* What both functions below begin with. False: failed, *rows is the failed tensor, or NULL. */
static bool begin(const char *function, sherd_tensor *a, sherd_tensor *mask, sherd_tensor **rows,
                  sherd_tensor **merged, sherd_tensor **count, sherd__choosing *how)
{
    const sherd__argument need[] = {{"a", a}, {"mask", mask}, {NULL, NULL}};
    sherd_world *world = sherd_tensor_world(a ? a : mask);

    if (!sherd__given(world, function, need, rows))
        return false;
    if (sherd__stop(world, function, (sherd_tensor *[]){a, mask}, 2)) {
        *rows = sherd__failed(world);
        return false;
    }
    if (!leads(mask, a)) {
        *rows = sherd__fail_tensor(world, a->layout || mask->layout, SHERD_EINVAL,
                                   "%s: a mask has the first sizes of a, one or more: a is %s, "
                                   "mask is %s",
                                   function, sherd_tensor_text(a), sherd_tensor_text(mask));
        return false;
    }
    bool begun = sherd__doing_begin(world, function);
    *rows = merge(a, mask->ndim);
    *merged =
        sherd_tensor_failed(*rows) ? *rows : lay_beside(merge(mask, mask->ndim), *rows, function);
    bool good = count_mask(count, how, *merged);
    sherd__doing_end(world, begun);
    if (!good)
        *rows = *count;
    return good;
}

sherd_tensor *sherd_masked_select(sherd_tensor *a, sherd_tensor *mask)
{
    sherd__choosing how = {.digest = 0};
    sherd_tensor *rows, *merged, *count;

    if (!begin("sherd_masked_select", a, mask, &rows, &merged, &count, &how))
        return rows;
    return sherd__choose_rows(&sherd__masked_select_op, merged, count, rows, NULL, how);
}

sherd_tensor *sherd_masked_scatter(sherd_tensor *a, sherd_tensor *mask, sherd_tensor *rows)
{
    const sherd__argument need[] = {{"a", a}, {"mask", mask}, {"rows", rows}, {NULL, NULL}};
    sherd__choosing how = {.digest = 0};
    sherd_tensor *into, *merged, *count, *failed;

    if (!sherd__given(sherd_tensor_world(a      ? a
                                         : mask ? mask
                                                : rows),
                      "sherd_masked_scatter", need, &failed))
        return failed;
    if (!begin("sherd_masked_scatter", a, mask, &into, &merged, &count, &how))
        return into;
    sherd_tensor *y = sherd__choose_rows(&sherd__masked_scatter_op, merged, count, rows, into, how);
    return mask->ndim > 1 ? sherd_view(y, a->shape, a->ndim) : y;
}
