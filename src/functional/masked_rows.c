/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that a mask chooses, taken and put: each is the gradient of the other. Costs a pass over the
 * mask and a copy of the rows.
 */
#include "masked.h"
#include "sherd/ops_elements.h"

#include <string.h>

#include "base/num.h"
#include "kernels/pick.h"
#include "layout/shape.h"

static int32_t *index_room(sherd_call *call)
{
    return sherd_call_scratch(call, (call->in[SHERD__MASK]->count + 1) * (int64_t)sizeof(int32_t));
}

static bool choose_dry(sherd_call *call)
{
    return index_room(call) != NULL;
}

/*
 * The elements of this rank's piece of the mask that are chosen. NULL: there is no memory, raised,
 * or they are not those that were counted.
 */
static const int32_t *find_chosen(sherd_call *call, int64_t total)
{
    const sherd_tensor *mask = call->in[SHERD__MASK];
    const uint8_t *is = call->from[SHERD__MASK];
    int32_t *index = index_room(call);
    int64_t n = 0;

    for (int64_t i = 0; i < mask->count && index; i++) {
        index[n] = (int32_t)i;
        n += is[i] != 0;
    }
    if (index && n != total)
        sherd_call_fail(call, SHERD_EINVAL, "the mask was written after it was counted");
    return index && n == total ? index : NULL;
}

static const char *too_long(sherd_call *call)
{
    const sherd_tensor *mask = call->in[SHERD__MASK];
    int64_t longest = mask->shape[0];

    if (mask->layout)
        longest = sherd__dim_longest(mask->layout->spec.mesh, &mask->layout->spec.dim[0], longest);
    if (longest <= INT32_MAX)
        return NULL;
    return sherd_call_reason(call, "%lld elements of a mask on a rank: an i32 counts fewer",
                             (long long)longest);
}

static const char *describe_select(sherd_call *call)
{
    const sherd__choosing *how = call->attributes;
    const sherd_tensor *rows = call->in[SHERD__MASK_ROWS];
    const char *reason = sherd__counts_fault(call);
    int64_t shape[SHERD_MAX_DIMS];

    if (!reason)
        reason = too_long(call);
    if (reason)
        return reason;
    if (rows->ndim < 1 || rows->shape[0] != call->in[SHERD__MASK]->shape[0])
        return "the rows are not as many as elements of the mask";
    memcpy(shape, rows->shape, sizeof shape);
    shape[0] = how->total;
    sherd_call_shape(call, 0, rows->ndim, shape);
    return NULL;
}

static sherd_status lie_select(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *operand[3], *chosen, *result;
    const sherd_layout *rows = sherd__way_given(ways, SHERD__MASK_ROWS);
    sherd_status status = sherd__lay_chosen(operand, &chosen, call, ways);

    if (!status)
        status = sherd__lay_rows(&operand[SHERD__MASK_ROWS], rows, operand[SHERD__MASK]);
    if (!status)
        status = sherd__lay_rows(&result, rows, chosen);
    return status ? status : sherd_way_add(ways, operand, &result);
}

/* The rows of a tensor that this rank's piece of the mask chooses. */
static bool pick_rows(sherd_call *call, const sherd_tensor *all, const sherd_tensor *some,
                      sherd__pick *out)
{
    int64_t n = some->local[0];
    const int32_t *index = find_chosen(call, n);

    *out = (sherd__pick){1, n, sherd__local_count(all, 1, all->ndim), INT32_MAX, 0, index, true};
    return index != NULL;
}

static bool select_rows(sherd_call *call)
{
    const sherd_tensor *rows = call->in[SHERD__MASK_ROWS];
    sherd__pick pick;

    if (!pick_rows(call, rows, call->out[0], &pick))
        return false;
    if (call->out[0]->count)
        sherd__gather(sherd_dtype_bytes(rows->dtype), &pick, call->to[0],
                      call->from[SHERD__MASK_ROWS]);
    return true;
}

static const char *describe_scatter(sherd_call *call)
{
    const sherd__choosing *how = call->attributes;
    const sherd_tensor *rows = call->in[SHERD__MASK_ROWS], *into = call->in[SHERD__MASK_INTO];
    const char *reason = sherd__counts_fault(call);
    int64_t shape[SHERD_MAX_DIMS];

    if (!reason)
        reason = too_long(call);
    if (reason)
        return reason;
    if (rows->ndim < 1 || rows->shape[0] != how->total)
        return sherd_call_reason(call, "the mask chooses %lld", (long long)how->total);
    memcpy(shape, rows->shape, sizeof shape);
    shape[0] = call->in[SHERD__MASK]->shape[0];
    if (into && !sherd__same_shape(into->ndim, into->shape, rows->ndim, shape))
        return "rows must be of the sizes of those they replace";
    sherd_call_shape(call, 0, rows->ndim, shape);
    return NULL;
}

static sherd_status lie_scatter(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *operand[4] = {NULL}, *chosen, *result, *like;
    const sherd_layout *rows = sherd__way_given(ways, SHERD__MASK_ROWS),
                       *into = sherd__way_given(ways, SHERD__MASK_INTO);
    sherd_status status = sherd__lay_chosen(operand, &chosen, call, ways);

    like = rows; /* alone, it may be pending, and so is the result */
    if (into && !status)
        status = sherd__layout_settle(&like, into);
    if (!status)
        status = sherd__lay_rows(&result, like, operand[SHERD__MASK]);
    if (!status)
        status = sherd__lay_rows(&operand[SHERD__MASK_ROWS], like, chosen);
    operand[SHERD__MASK_INTO] = into ? result : NULL;
    return status ? status : sherd_way_add(ways, operand, &result);
}

static bool scatter_rows(sherd_call *call)
{
    const sherd_tensor *y = call->out[0];
    size_t element = sherd_dtype_bytes(y->dtype);
    sherd__pick pick;

    if (!pick_rows(call, y, call->in[SHERD__MASK_ROWS], &pick))
        return false;
    if (y->count && call->in[SHERD__MASK_INTO])
        memcpy(call->to[0], call->from[SHERD__MASK_INTO], sherd__bytes(y->count) * element);
    else if (y->count)
        memset(call->to[0], 0, sherd__bytes(y->count) * element);
    if (call->in[SHERD__MASK_ROWS]->count)
        sherd__scatter(element, &pick, call->to[0], call->from[SHERD__MASK_ROWS], NULL);
    return true;
}

sherd_tensor *sherd__choose_rows(const sherd_op *op, sherd_tensor *mask, sherd_tensor *count,
                                 sherd_tensor *rows, sherd_tensor *into, sherd__choosing how)
{
    return sherd_apply(op, (sherd_tensor *[]){mask, count, rows, into}, into ? 4 : 3, &how);
}

static void select_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd__choosing *how = sherd_node_attributes(node);

    grad_in[SHERD__MASK_ROWS] =
        sherd__choose_rows(&sherd__masked_scatter_op, sherd_node_operand(node, SHERD__MASK),
                           sherd_node_operand(node, SHERD__MASK_COUNT), grad_out[0], NULL, *how);
}

/* dy with zeroes in the rows that the mask chooses, since those were replaced. */
static sherd_tensor *clear_chosen(sherd_tensor *dy, sherd_tensor *mask)
{
    int64_t shape[SHERD_MAX_DIMS] = {mask->shape[0]};

    for (int d = 1; d < dy->ndim; d++)
        shape[d] = 1;
    return sherd_masked_fill(dy, dy->ndim > 1 ? sherd_view(mask, shape, dy->ndim) : mask, 0);
}

static void scatter_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd__choosing *how = sherd_node_attributes(node);
    sherd_tensor *mask = sherd_node_operand(node, SHERD__MASK);

    if (sherd_node_wants(node, SHERD__MASK_ROWS))
        grad_in[SHERD__MASK_ROWS] = sherd__choose_rows(&sherd__masked_select_op, mask,
                                                       sherd_node_operand(node, SHERD__MASK_COUNT),
                                                       grad_out[0], NULL, *how);
    if (sherd_node_wants(node, SHERD__MASK_INTO))
        grad_in[SHERD__MASK_INTO] = clear_chosen(grad_out[0], mask);
}

#define CHOOSES                                                                                \
    .field = {SHERD_FIELD(sherd__choosing, digest, INT64),                                     \
              SHERD_FIELD(sherd__choosing, total, INT64)},                                     \
    .attributes = sizeof(sherd__choosing), .numbers = SHERD_EVERYTHING, .takes_pending = true, \
    .dry = choose_dry

const sherd_op sherd__masked_select_op = {
    .name = "sherd_masked_select",
    .summary = "rows for which a mask is true",
    .layouts = "rows as the mask is sharded; other dims as the operand",
    .operand = {{"mask", SHERD_OP_BOOL}, {"count", SHERD_OP_ANY}, {"a", 0}},
    .result = {{"y", 0}},
    CHOOSES,
    .linearity = SHERD_LINEAR,
    .describe = describe_select,
    .ways = lie_select,
    .forward = select_rows,
    .backward = select_back,
    .needs = {[SHERD__MASK_ROWS] =
                  SHERD_NEEDS_OPERAND(SHERD__MASK) | SHERD_NEEDS_OPERAND(SHERD__MASK_COUNT)}};

const sherd_op sherd__masked_scatter_op = {
    .name = "sherd_masked_scatter",
    .summary = "rows for which a mask is true, replaced",
    .layouts = "rows as the mask is sharded; other dims as the operand",
    .operand = {{"mask", SHERD_OP_BOOL},
                {"count", SHERD_OP_ANY},
                {"rows", 0},
                {"a", SHERD_OP_OPTIONAL}},
    .result = {{"y", 0}},
    CHOOSES,
    .linearity = SHERD_LINEAR,
    .describe = describe_scatter,
    .ways = lie_scatter,
    .forward = scatter_rows,
    .backward = scatter_back,
    .needs = {[SHERD__MASK_ROWS] =
                  SHERD_NEEDS_OPERAND(SHERD__MASK) | SHERD_NEEDS_OPERAND(SHERD__MASK_COUNT),
              [SHERD__MASK_INTO] = SHERD_NEEDS_OPERAND(SHERD__MASK)}};
