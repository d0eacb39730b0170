/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of rows with the weights of their groups, of 8 or 4 bits: experts whose weights are most
 * of a model's bytes. Where rows lie is as in grouped.c; each run of rows is multiplied by the
 * weight of its group as sherd_linear_quantized does (ops/quantized_product.c), of few rows in the
 * time of reading the numbers of the groups that have any. docs/decisions/235
 */
#include "runs.h"
#include "autograd/node.h"
#include "ops/quantize.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_quantized.h"
#include "sherd/ops_shape.h"

#include <string.h>

#include "base/num.h"
#include "world/doing.h"

typedef struct grouped {
    int64_t digest;  /* of ends and groups */
    int64_t columns; /* that share a scale */
    bool turned;     /* the gradient of x: rows times weights that are not transposed */
} grouped;

#define GROUPED_FIELDS                                                             \
    {                                                                              \
        SHERD_FIELD(grouped, digest, INT64), SHERD_FIELD(grouped, columns, INT64), \
            SHERD_FIELD(grouped, turned, BOOL)                                     \
    }

enum { X, VALUE, SCALE, ENDS, GROUP, OPERANDS };

static const char function[] = "sherd_grouped_linear_quantized";

static bool runs_in(sherd__row_runs *out, const sherd_call *call)
{
    return sherd__runs_of(out, call->in[ENDS], call->in[GROUP], call->in[X]->shape[0],
                          call->in[VALUE]->shape[0]);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Where scales lie: with the rows of their weights, their groups whole. */
static sherd_status lay_scales(const sherd_layout **out, const sherd_layout *value,
                               const sherd_tensor *scale)
{
    sherd__sketch s;

    sherd__sketch_begin(&s, value);
    s.spec.ndim = scale->ndim;
    if (scale->ndim == 3) {
        s.spec.shape[2] = scale->shape[2];
        s.spec.dim[2] = (sherd__dim){0};
    }
    return sherd__sketch_end(out, &s, function);
}

/* [rows, bytes] as [rows, bytes, 2]. */
static sherd_status lay_pairs(const sherd_layout **layout)
{
    sherd__sketch s;

    sherd__sketch_begin(&s, *layout);
    s.spec.ndim = 3;
    s.spec.shape[2] = 2;
    s.spec.dim[2] = (sherd__dim){0};
    return sherd__sketch_end(layout, &s, function);
}

/* Rows lie with their groups. */
static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const grouped *how = call->attributes;
    const sherd_layout *operand[OPERANDS] = {NULL, NULL, NULL, sherd__way_given(ways, ENDS),
                                             sherd__way_given(ways, GROUP)};
    const sherd__dim *own = &sherd__way_given(ways, X)->spec.dim[0];
    const sherd_layout *value, *result;
    int in = how->turned ? 1 : 2, out = how->turned ? 2 : 1;
    sherd__row_runs runs;
    bool known;

    if (!runs_in(&runs, call))
        return SHERD_OK;
    sherd_status status = sherd__layout_settle(&value, sherd__way_given(ways, VALUE));
    if (!status)
        status = sherd__lay_run_rows(&operand[X], &known, value, &runs, own, in, 0);
    if (status || !known)
        return status;
    operand[VALUE] = value;
    status = lay_scales(&operand[SCALE], value, call->in[SCALE]);
    if (!status)
        status = sherd__lay_run_rows(&result, &known, value, &runs, &operand[X]->spec.dim[0], out,
                                     sherd__dim_bits(&value->spec.dim[in]));
    if (!status && sherd__is_pairs(call->in[VALUE]))
        status = lay_pairs(how->turned ? &result : &operand[X]);
    return status ? status : sherd_way_add(ways, operand, &result);
}

static const char *describe(sherd_call *call)
{
    static const char *const rules[] = {
        "nk,emk,em,*,*->nm", "nk,emk,em*,*,*->nm", "nkt,emk,em,*,*->nm", "nkt,emk,em*,*,*->nm",
        "nm,emk,em,*,*->nk", "nm,emk,em*,*,*->nk", "nm,emk,em,*,*->nkt", "nm,emk,em*,*,*->nkt"};
    const grouped *how = call->attributes;
    const sherd_tensor *x = call->in[X], *value = call->in[VALUE];
    bool pairs = sherd__is_pairs(value);
    const char *misfit;

    if (value->ndim != 3)
        return "value must have three dims";
    misfit = sherd__quantized_fault(call, VALUE, SCALE, how->columns);
    if (!misfit)
        misfit = sherd__runs_misfit(call, ENDS, GROUP, value->shape[0]);
    if (!misfit && pairs && !how->turned && (x->ndim != 3 || x->shape[2] != 2))
        misfit = sherd_call_reason(call, "of 4 bits x must have %lld columns, two for each byte",
                                   (long long)value->shape[2] * 2);
    if (misfit)
        return misfit;
    strcpy(call->rule, rules[4 * how->turned + 2 * pairs + (how->columns > 0)]);
    if (pairs && how->turned)
        call->shape[0][2] = 2;
    call->linearity = sherd__quantized_linearity(value, call->in[SCALE]);
    return NULL;
}

/* ---- rows by weights ------------------------------------------------------------------------- */

/* Weight g of this rank. */
static sherd__quantized weight_at(const sherd_call *call, int64_t g)
{
    const sherd_tensor *value = call->in[VALUE];
    sherd__quantized q =
        sherd__quantized_piece(call, VALUE, SCALE, ((const grouped *)call->attributes)->columns);
    int64_t before = g * value->local[1];

    q.rows = value->local[1];
    if (sherd__is_dry(call->world))
        return q;
    q.value = q.value ? q.value + before * q.cols : NULL;
    q.pairs = q.pairs ? q.pairs + before * q.cols / 2 : NULL;
    q.scale += before * q.scales;
    return q;
}

/* The rows of run r; zeros if another rank holds its group. False: no memory. */
static bool multiply(sherd_call *call, const sherd__row_runs *runs, int64_t r,
                     sherd__quantized_rooms *rooms)
{
    const grouped *how = call->attributes;
    const sherd_tensor *x = call->in[X], *out = call->out[0], *value = call->in[VALUE];
    int64_t first, rows = sherd__run_here(call, runs, r, &first);
    int64_t g = sherd__run_group(runs, r) - sherd_call_box(call, VALUE).offset[0];
    int64_t bytes = (int64_t)sherd_dtype_bytes(out->dtype);
    int64_t row = bytes * sherd__local_count(out, 1, out->ndim);
    char *y = (char *)call->to[0] + first * row;

    if (rows == 0)
        return true;
    if (g < 0 || g >= value->local[0]) {
        if (!sherd__is_dry(call->world))
            memset(y, 0, sherd__bytes(rows * row));
        return true;
    }
    const sherd__quantized_product p = {.q = weight_at(call, g),
                                        .m = rows,
                                        .dtype = x->dtype,
                                        .x = (const char *)call->from[X] +
                                             first * bytes * sherd__local_count(x, 1, x->ndim),
                                        .y = y,
                                        .rooms = rooms};
    return how->turned ? sherd__quantized_back(call, &p) : sherd__quantized_multiply(call, &p);
}

/* The longest run comes first, so that its scratch memory is enough for the others. */
static bool rows_by_weights(sherd_call *call)
{
    sherd__quantized_rooms rooms = {{NULL}, {0}};
    int64_t longest = 0, most = 0, first;
    sherd__row_runs runs;
    bool good = true;

    if (!runs_in(&runs, call) || !sherd__runs_begin(call, &runs))
        return false;
    if (call->out[0]->count == 0)
        return true;
    for (int64_t r = 0; r < runs.count; r++) {
        int64_t rows = sherd__run_here(call, &runs, r, &first);
        longest = rows > most ? r : longest;
        most = sherd__max(rows, most);
    }
    if (runs.count)
        good = multiply(call, &runs, longest, &rooms);
    for (int64_t r = 0; good && r < runs.count; r++)
        good = r == longest || multiply(call, &runs, r, &rooms);
    return good;
}

static double operations(const sherd_call *call)
{
    const sherd_tensor *x = call->in[X];

    return 2.0 * (double)call->out[0]->count * (double)sherd__local_count(x, 1, x->ndim);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static sherd_tensor *apply_by(sherd_tensor *const in[OPERANDS], grouped how)
{
    sherd_tensor *operand[OPERANDS];

    memcpy(operand, in, sizeof operand);
    operand[ENDS] = sherd__known(operand[ENDS]);
    operand[GROUP] = sherd__known(operand[GROUP]);
    how.digest = sherd__known_digest(&operand[ENDS], 2);
    return sherd_apply(&sherd__grouped_linear_quantized_op, operand, OPERANDS, &how);
}

/* Each way is the gradient of the other one. */
static void rows_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const grouped *how = sherd_node_attributes(node);
    const int64_t *shape;
    sherd_tensor *group =
        sherd_node_shape(node, GROUP, &shape) ? sherd_node_operand(node, GROUP) : NULL;

    if (sherd_node_wants(node, X))
        grad_in[X] = apply_by((sherd_tensor *[]){grad_out[0], sherd_node_operand(node, VALUE),
                                                 sherd_node_operand(node, SCALE),
                                                 sherd_node_operand(node, ENDS), group},
                              (grouped){.columns = how->columns, .turned = !how->turned});
}

const sherd_op sherd__grouped_linear_quantized_op = {
    .name = function,
    .summary = "rows times the weights of their groups, of 8 or 4 bits with scales",
    .autocast = SHERD_AUTOCAST_LOW,
    .layouts = "`nk,emk,em->nm`; sums k; e with n: rows are where their groups are; else sums e; "
               "groups of scales are whole",
    .operand = {{"x", 0},
                {"value", SHERD_OP_ANY},
                {"scale", SHERD_OP_ANY},
                {"ends", SHERD_OP_INDEX},
                {"group", SHERD_OP_INDEX | SHERD_OP_OPTIONAL}},
    .result = {{"y", 0}},
    .field = GROUPED_FIELDS,
    .attributes = sizeof(grouped),
    .linearity = SHERD_LINEAR,
    .whole = "t",
    .describe = describe,
    .ways = lie,
    .forward = rows_by_weights,
    .dry = rows_by_weights,
    .operations = operations,
    .backward = rows_back,
    .needs = {[X] = SHERD_NEEDS_OPERAND(VALUE) | SHERD_NEEDS_OPERAND(SCALE) |
                    SHERD_NEEDS_OPERAND(ENDS) | SHERD_NEEDS_OPERAND(GROUP)}};

/* Whether x has two columns for each byte of weights of 4 bits, or is to be refused for others. */
static bool has_columns(const sherd_tensor *x, const sherd_tensor *value)
{
    return value->ndim != 3 || x->ndim != 2 || x->shape[1] == 2 * value->shape[2];
}

sherd_tensor *sherd_grouped_linear_quantized(sherd_tensor *x, sherd_tensor *value,
                                             sherd_tensor *scale, int64_t columns,
                                             sherd_tensor *bias, sherd_tensor *ends,
                                             sherd_tensor *group)
{
    bool pairs = x && value && !sherd_tensor_failed(x) && !sherd_tensor_failed(value) &&
                 sherd__is_pairs(value);
    sherd_tensor *rows = x;

    if (pairs && !has_columns(x, value))
        return sherd__fail_tensor(x->world, x->layout || value->layout, SHERD_EINVAL,
                                  "%s: x is %.120s, value %.120s: of 4 bits x must have two "
                                  "columns for each byte of a row",
                                  function, sherd_tensor_text(x), sherd_tensor_text(value));
    if (pairs && columns % 2 == 0 && x->ndim == 2)
        rows = sherd__in_pairs(x, function);
    sherd_tensor *y = apply_by((sherd_tensor *[]){rows, value, scale, ends, group},
                               (grouped){.columns = columns});
    if (!bias || sherd_tensor_failed(y) || sherd_tensor_failed(bias))
        return bias && sherd_tensor_failed(bias) ? bias : y;
    bool begun = sherd__doing_begin(x->world, function);
    y = sherd_add(y, sherd__run_biases(x, bias, ends, group, function));
    sherd__doing_end(x->world, begun);
    return y;
}
