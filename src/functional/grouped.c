/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of rows with the weights of their groups: one product for each run of rows. If groups
 * are sharded, there are two ways. By the rule, each rank computes the rows of its own groups,
 * zeros for the others, and the result is pending. By a way that is added, rows are sharded such
 * that each lies with its group, and nothing is pending.
 */
#include "runs.h"
#include "autograd/node.h"
#include "ops/shared.h"
#include "sherd/ops_groups.h"

#include <string.h>

#include "base/num.h"
#include "world/doing.h"

typedef struct grouped {
    int64_t digest; /* of ends and groups */
    bool turned;    /* weights are [groups, in, out] */
    bool wide;      /* a gradient in f32 of 16-bit operands */
    int64_t groups; /* of the gradient of weights */
} grouped;

#define GROUPED_FIELDS                                                            \
    {                                                                             \
        SHERD_FIELD(grouped, digest, INT64), SHERD_FIELD(grouped, turned, BOOL),  \
            SHERD_FIELD(grouped, wide, BOOL), SHERD_FIELD(grouped, groups, INT64) \
    }

/* What the gradient of an operand needs: another one, and where the runs are. */
#define NEEDS_WITH_RUNS(i) \
    (SHERD_NEEDS_OPERAND(i) | SHERD_NEEDS_OPERAND(ENDS) | SHERD_NEEDS_OPERAND(GROUP))

/* Operands: rows, then weights or rows again, ends, groups; for weights' gradients their layout. */
enum { X, WEIGHT, ENDS, GROUP, LIKE };

static bool runs_in(sherd__row_runs *out, const sherd_call *call, int64_t groups)
{
    return sherd__runs_of(out, call->in[ENDS], call->in[GROUP], call->in[X]->shape[0], groups);
}

static char *element(const void *data, int64_t i, sherd_dtype dtype)
{
    return (char *)(uintptr_t)data + i * (int64_t)sherd_dtype_bytes(dtype);
}

/* Where forward may go on: ends and groups are right. */
static bool begin(sherd_call *call, sherd__row_runs *runs, int64_t groups)
{
    return runs_in(runs, call, groups) && sherd__runs_begin(call, runs);
}

/* ---- layouts --------------------------------------------------------------------------------- */

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const grouped *how = call->attributes;
    const sherd_layout *operand[] = {NULL, NULL, sherd__way_given(ways, ENDS),
                                     sherd__way_given(ways, GROUP)};
    const sherd__dim *own = &sherd__way_given(ways, X)->spec.dim[0];
    const sherd_layout *weight, *result;
    int in = how->turned ? 1 : 2, out = how->turned ? 2 : 1;
    sherd__row_runs runs;
    bool known;

    if (!runs_in(&runs, call, call->in[WEIGHT]->shape[0]))
        return SHERD_OK;
    sherd_status status = sherd__layout_settle(&weight, sherd__way_given(ways, WEIGHT));
    if (!status)
        status = sherd__lay_run_rows(&operand[X], &known, weight, &runs, own, in, 0);
    if (status || !known)
        return status;
    operand[WEIGHT] = weight;
    status = sherd__lay_run_rows(&result, &known, weight, &runs, &operand[X]->spec.dim[0], out,
                                 sherd__dim_bits(&weight->spec.dim[in]));
    return status ? status : sherd_way_add(ways, operand, &result);
}

static sherd_status lie_weight(const sherd_call *call, sherd_ways *ways)
{
    const grouped *how = call->attributes;
    const sherd_layout *operand[] = {NULL, NULL, sherd__way_given(ways, ENDS),
                                     sherd__way_given(ways, GROUP), sherd__way_given(ways, LIKE)};
    const sherd_layout *like = operand[LIKE], *result;
    const sherd__dim *own = &sherd__way_given(ways, X)->spec.dim[0];
    sherd__row_runs runs;
    bool known;

    if (!like || !runs_in(&runs, call, how->groups))
        return SHERD_OK;
    sherd_status status = sherd__lay_run_rows(&operand[X], &known, like, &runs, own, 1, 0);
    if (status || !known)
        return status;
    const sherd__dim *rows = &operand[X]->spec.dim[0];
    status = sherd__lay_run_rows(&operand[WEIGHT], &known, like, &runs, rows, 2, 0);
    sherd__layout_spec spec = like->spec;
    unsigned copies = sherd__dim_bits(rows) & ~sherd__dim_bits(&like->spec.dim[0]);
    sherd__spec_sums(&spec, copies);
    if (!status)
        status = sherd__layout_intern(&result, &spec);
    return status ? status : sherd_way_add(ways, operand, &result);
}

/* ---- the gradient of weights ----------------------------------------------------------------- */

static const char *describe_weight(sherd_call *call)
{
    const grouped *how = call->attributes;
    const char *misfit = sherd__runs_misfit(call, ENDS, GROUP, how->groups);

    if (misfit)
        return misfit;
    strcpy(call->rule, "nm,nk,*,*,emk->emk");
    call->shape[0][0] = how->groups;
    if (how->wide)
        call->dtype[0] = SHERD_F32;
    return NULL;
}

/* Rows of all of a group's runs here, one run behind the other. NULL: no memory. */
static const void *joined(sherd_call *call, const sherd__row_runs *runs, int64_t group, int i,
                          int64_t rows)
{
    const sherd_tensor *t = call->in[i];
    int64_t width = t->local[1], first, done = 0;
    int64_t bytes = (int64_t)sherd_dtype_bytes(t->dtype);
    sherd__device *device = sherd__device_in(call);
    void *to = device ? sherd__device_scratch(call, rows * width * bytes)
                      : sherd_call_scratch(call, rows * width * bytes);

    for (int64_t r = 0; to && r < runs->count; r++) {
        int64_t count =
            sherd__run_group(runs, r) == group ? sherd__run_here(call, runs, r, &first) : 0;
        char *at = element(to, done * width, t->dtype);
        const char *from = element(call->from[i], first * width, t->dtype);
        if (count && width && device)
            sherd__device_move(device, at, from, count * width * bytes);
        else if (count && width && !sherd__is_dry(call->world))
            memcpy(at, from, sherd__bytes(count * width * bytes));
        done += count;
    }
    return to;
}

/* The product of one group: where its rows are, or copies of them if they are in several runs. */
typedef struct piece {
    int64_t rows, first;
    int runs;
} piece;

static void find_pieces(const sherd_call *call, const sherd__row_runs *runs, int64_t from,
                        int64_t n, piece *piece_of)
{
    int64_t first;

    memset(piece_of, 0, sherd__bytes(n) * sizeof *piece_of);
    for (int64_t r = 0; r < runs->count; r++) {
        int64_t g = sherd__run_group(runs, r) - from, rows = sherd__run_here(call, runs, r, &first);
        if (g < 0 || g >= n || rows == 0)
            continue;
        piece_of[g].first = piece_of[g].runs++ ? piece_of[g].first : first;
        piece_of[g].rows += rows;
    }
}

static bool weight_grad(sherd_call *call)
{
    const grouped *how = call->attributes;
    const sherd_tensor *out = call->out[0];
    int64_t from = sherd_tensor_box(out).offset[0], n = out->local[0];
    int64_t m = out->local[1], k = out->local[2];
    sherd_dtype dtype = call->in[X]->dtype;
    sherd__row_runs runs;

    if (!begin(call, &runs, how->groups))
        return false;
    if (out->count == 0)
        return true;
    piece *piece_of = sherd_call_scratch(call, n * (int64_t)sizeof *piece_of);
    sherd__run_product *run = sherd_call_scratch(call, n * (int64_t)sizeof *run);
    if (!piece_of || !run)
        return false;
    find_pieces(call, &runs, from, n, piece_of);
    for (int64_t g = 0; g < n; g++) {
        const piece *p = &piece_of[g];
        run[g] =
            (sherd__run_product){.rows = p->rows, .c = element(call->to[0], g * m * k, out->dtype)};
        if (p->runs == 1) {
            run[g].a = element(call->from[X], p->first * m, dtype);
            run[g].b = element(call->from[WEIGHT], p->first * k, dtype);
        } else if (p->runs > 1) {
            run[g].a = joined(call, &runs, from + g, X, p->rows);
            run[g].b = joined(call, &runs, from + g, WEIGHT, p->rows);
            if (!run[g].a || !run[g].b)
                return false;
        }
    }
    return sherd__multiply_runs(
        call, (sherd__product){.dtype = dtype, .result = out->dtype, .ta = true, .m = m, .n = k},
        run, n);
}

static void weight_grad_back(sherd_node *node, sherd_tensor *const *grad_out,
                             sherd_tensor **grad_in);

/* A multiplication and an addition for each row and element of its weight. */
static double for_weights(const sherd_call *call)
{
    const sherd_tensor *out = call->out[0];

    return 2.0 * (double)call->in[X]->local[0] * (double)out->local[1] * (double)out->local[2];
}

static double for_rows(const sherd_call *call)
{
    return 2.0 * (double)call->out[0]->count * (double)call->in[X]->local[1];
}

static const sherd_op weight_op = {
    .name = "sherd_grouped_linear backward",
    .operand = {{"a", 0},
                {"b", 0},
                {"ends", SHERD_OP_INDEX},
                {"group", SHERD_OP_INDEX | SHERD_OP_OPTIONAL},
                {"weight", SHERD_OP_OPTIONAL}},
    .result = {{"dweight", 0}},
    .field = GROUPED_FIELDS,
    .attributes = sizeof(grouped),
    .linearity = SHERD_LINEAR,
    .describe = describe_weight,
    .ways = lie_weight,
    .forward = weight_grad,
    .operations = for_weights,
    .dry = weight_grad,
    .on_device = sherd__fractions_there,
    .backward = weight_grad_back,
    .needs = {[X] = NEEDS_WITH_RUNS(WEIGHT), [WEIGHT] = NEEDS_WITH_RUNS(X)}};

/* ---- rows by weights ------------------------------------------------------------------------- */

static const char *describe(sherd_call *call)
{
    const grouped *how = call->attributes;
    const sherd_tensor *weight = call->in[WEIGHT];
    const char *misfit =
        weight->ndim == 3 ? sherd__runs_misfit(call, ENDS, GROUP, weight->shape[0]) : NULL;

    if (misfit)
        return misfit;
    strcpy(call->rule, how->turned ? "nk,ekm,*,*->nm" : "nk,emk,*,*->nm");
    if (how->wide)
        call->dtype[0] = SHERD_F32;
    return NULL;
}

static void zero_rows(const sherd_call *call, int64_t first, int64_t rows)
{
    const sherd_tensor *out = call->out[0];
    char *at = element(call->to[0], first * out->local[1], out->dtype);
    int64_t bytes = rows * out->local[1] * (int64_t)sherd_dtype_bytes(out->dtype);

    if (bytes > 0 && sherd__device_in(call))
        sherd__device_set(sherd__device_in(call), at, 0, bytes);
    else if (bytes > 0 && !sherd__is_dry(call->world))
        memset(at, 0, sherd__bytes(bytes));
}

/* Rows of groups that another rank holds are 0 here. */
static bool rows_by_weights(sherd_call *call)
{
    const grouped *how = call->attributes;
    const sherd_tensor *x = call->in[X], *weight = call->in[WEIGHT], *out = call->out[0];
    int64_t from = sherd_call_box(call, WEIGHT).offset[0], n = weight->local[0], count = 0, first;
    int64_t width = x->local[1], features = out->local[1];
    sherd__row_runs runs;

    if (!begin(call, &runs, weight->shape[0]))
        return false;
    sherd__run_product *run = sherd_call_scratch(call, (runs.count + 1) * (int64_t)sizeof *run);
    if (!run)
        return false;
    for (int64_t r = 0; r < runs.count && out->count; r++) {
        int64_t rows = sherd__run_here(call, &runs, r, &first),
                g = sherd__run_group(&runs, r) - from;
        if (g < 0 || g >= n)
            zero_rows(call, first, rows);
        else if (rows)
            run[count++] = (sherd__run_product){
                .rows = rows,
                .a = element(call->from[X], first * width, x->dtype),
                .b = element(call->from[WEIGHT], g * width * features, x->dtype),
                .c = element(call->to[0], first * features, out->dtype)};
    }
    return sherd__multiply_runs(
        call,
        (sherd__product){
            .dtype = x->dtype, .result = out->dtype, .tb = !how->turned, .n = features, .k = width},
        run, count);
}

static sherd_tensor *apply_by(const sherd_op *op, sherd_tensor *const *in, int count, grouped how,
                              const sherd_layout *const *like)
{
    sherd_tensor *operand[SHERD_OP_SLOTS], *out = NULL;

    memcpy(operand, in, sherd__bytes(count) * sizeof *in);
    operand[ENDS] = sherd__known(operand[ENDS]);
    operand[GROUP] = sherd__known(operand[GROUP]);
    how.digest = sherd__known_digest(&operand[ENDS], 2);
    sherd__apply_like(&out, op, operand, count, &how, like);
    return out;
}

static sherd_tensor *group_of(sherd_node *node)
{
    const int64_t *shape;

    return sherd_node_shape(node, GROUP, &shape) ? sherd_node_operand(node, GROUP) : NULL;
}

static sherd_tensor *gradient_of_weight(sherd_node *node, const grouped *how, sherd_tensor *dy,
                                        sherd_tensor *ends, sherd_tensor *group)
{
    sherd_tensor *x = sherd_node_operand(node, X),
                 *in[] = {how->turned ? x : dy, how->turned ? dy : x, ends, group, NULL};
    const sherd_layout *weight = sherd_node_layout(node, WEIGHT),
                       *like[] = {NULL, NULL, NULL, NULL, NULL};
    const int64_t *shape;

    /* The gradient has the layout of the weights, but is not pending where they are. */
    if (weight && sherd__layout_settle(&like[LIKE], weight))
        return sherd__fail_diag(dy->world, true);
    sherd_node_shape(node, WEIGHT, &shape);
    return apply_by(&weight_op, in, 5,
                    (grouped){.groups = shape[0], .wide = sherd__is_wide(node, WEIGHT)}, like);
}

static void rows_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const grouped *how = sherd_node_attributes(node);
    sherd_tensor *ends = sherd_node_operand(node, ENDS), *group = group_of(node);
    sherd_tensor *dy = sherd_cast(grad_out[0], sherd__node_dtype(node, X));

    if (sherd_node_wants(node, X))
        grad_in[X] =
            apply_by(&sherd__grouped_linear_op,
                     (sherd_tensor *[]){dy, sherd_node_operand(node, WEIGHT), ends, group}, 4,
                     (grouped){.turned = !how->turned, .wide = sherd__is_wide(node, X)}, NULL);
    if (sherd_node_wants(node, WEIGHT))
        grad_in[WEIGHT] = gradient_of_weight(node, how, dy, ends, group);
}

/* dw[g] = a^T b over the rows of the group. */
static void weight_grad_back(sherd_node *node, sherd_tensor *const *grad_out,
                             sherd_tensor **grad_in)
{
    sherd_tensor *ends = sherd_node_operand(node, ENDS), *group = group_of(node);
    sherd_tensor *dw = sherd_cast(grad_out[0], sherd__node_dtype(node, X));

    for (int i = X; i <= WEIGHT; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = apply_by(
                &sherd__grouped_linear_op,
                (sherd_tensor *[]){sherd_node_operand(node, i == X ? WEIGHT : X), dw, ends, group},
                4, (grouped){.turned = i == WEIGHT}, NULL);
}

#define ROWS(label, text)                                                                         \
    {                                                                                             \
        .name = label, .summary = text, .autocast = SHERD_AUTOCAST_LOW,                           \
        .layouts = "`nk,emk->nm`; sums k; e with n: rows are where their groups are; else "       \
                   "sums e",                                                                      \
        .operand = {{"x", 0},                                                                     \
                    {"weight", 0},                                                                \
                    {"ends", SHERD_OP_INDEX},                                                     \
                    {"group", SHERD_OP_INDEX | SHERD_OP_OPTIONAL}},                               \
        .result = {{"y", 0}}, .field = GROUPED_FIELDS, .attributes = sizeof(grouped),             \
        .linearity = SHERD_LINEAR, .describe = describe, .ways = lie, .forward = rows_by_weights, \
        .operations = for_rows, .dry = rows_by_weights, .on_device = sherd__fractions_there,      \
        .backward = rows_back, .needs = {                                                         \
            [X] = NEEDS_WITH_RUNS(WEIGHT),                                                        \
            [WEIGHT] = NEEDS_WITH_RUNS(X)                                                         \
        }                                                                                         \
    }

const sherd_op sherd__grouped_linear_op =
    ROWS("sherd_grouped_linear", "rows times the weights of their groups");
const sherd_op sherd__grouped_matmul_op =
    ROWS("sherd_grouped_matmul", "the same with weights [groups, in, out]");

sherd_tensor *sherd_grouped_matmul(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *ends,
                                   sherd_tensor *group)
{
    return apply_by(&sherd__grouped_matmul_op, (sherd_tensor *[]){x, weight, ends, group}, 4,
                    (grouped){.turned = true}, NULL);
}

/* A bias is a product too: of ones. */
sherd_tensor *sherd__run_biases(sherd_tensor *x, sherd_tensor *bias, sherd_tensor *ends,
                                sherd_tensor *group, const char *name)
{
    sherd_tensor *ones = sherd_constant(x->world, x->dtype, (int64_t[]){x->shape[0], 1}, 2, 1);

    ones = sherd__known_beside(x, ones, name);
    return sherd_grouped_matmul(ones, sherd_unsqueeze(bias, 1), ends, group);
}

sherd_tensor *sherd_grouped_linear(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias,
                                   sherd_tensor *ends, sherd_tensor *group)
{
    sherd_tensor *y =
        apply_by(&sherd__grouped_linear_op, (sherd_tensor *[]){x, weight, ends, group}, 4,
                 (grouped){.turned = false}, NULL);

    if (!bias || sherd_tensor_failed(y) || sherd_tensor_failed(bias))
        return bias && sherd_tensor_failed(bias) ? bias : y;
    bool begun = sherd__doing_begin(x->world, "sherd_grouped_linear");
    y = sherd_add(y, sherd__run_biases(x, bias, ends, group, "sherd_grouped_linear"));
    sherd__doing_end(x->world, begun);
    return y;
}
