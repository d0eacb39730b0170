/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with weights of 8 or 4 bits (include/sherd/ops_quantized.h). Of few rows the time is
 * that of reading the weight, and a kernel reads it as it is. Of more, some rows of the weight at a
 * time become numbers that the usual product takes, in tiles while it packs them: they stay in the
 * cache. Those of bf16 hold 8 bits exactly, so a scale of a whole row is applied to the sum
 * instead. docs/decisions/210, 223
 */
#include "quantize.h"

#include <string.h>

#include "base/num.h"
#include "sherd/ops_quantized.h"
#include "vector/bodies.h"
#include "vector/choose.h"
#include "vector/quantized_tiles.h"

enum { X, VALUE, SCALE, BIAS };

typedef struct quantized {
    int64_t group;
} quantized;

#define QUANTIZED .field = {SHERD_FIELD(quantized, group, INT64)}, .attributes = sizeof(quantized)

/* Rows of x that the kernel of few takes, or where there are tiles; and rows of the weight that are
 * expanded at once, or packed in tiles. */
enum { FEW = 8, FEWER = 4, AT_ONCE = 256, IN_TILES = 512 };

/* A call on this rank: y[m,out] of x[m,in], or dx[m,in] of dy[m,out]. */
typedef struct work {
    sherd__quantized q;
    int64_t m;
    sherd_dtype dtype; /* of x, and of the result */
    sherd_dtype by;    /* of the product */
    const sherd__kernels *table;
    bool scaled;        /* the weight is expanded with its scales */
    sherd__product one; /* with AT_ONCE rows of the weight */
    bool packs;         /* by the table's product, in its workspace; else by gemm */
} work;

static int64_t bytes_of(int64_t count, sherd_dtype dtype)
{
    return count * (int64_t)sherd_dtype_bytes(dtype);
}

static sherd_dtype sums_of(sherd_dtype dtype)
{
    return dtype == SHERD_F64 ? SHERD_F64 : SHERD_F32;
}

/* The product of all rows with `some` rows of the weight. */
static sherd__product product_with(const work *w, int64_t some, bool back)
{
    sherd__product p = {.dtype = w->by,
                        .result = sums_of(w->by),
                        .tb = !back,
                        .adds = back,
                        .m = w->m,
                        .n = back ? w->q.cols : some,
                        .k = back ? some : w->q.cols};
    return p;
}

/* bf16 is multiplied as such where its table can; f16 would lose what is small. */
static work work_of(const sherd_call *call, int x, int value, int scale, bool back)
{
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    int64_t group = ((const quantized *)call->attributes)->group;
    const sherd_tensor *of = call->in[x];
    bool in_pairs = !back && sherd__is_pairs(call->in[value]);
    work w = {.q = sherd__quantized_piece(call, value, scale, group),
              .m = sherd__local_count(of, 0, of->ndim - 1 - in_pairs),
              .dtype = of->dtype};

    w.by = w.dtype == SHERD_BF16 && set->bf16.product ? SHERD_BF16 : sums_of(w.dtype);
    w.table = sherd__kernels_of(set, w.by);
    w.scaled = back || group > 0 || w.dtype == SHERD_F64;
    w.one = product_with(&w, sherd__min(AT_ONCE, w.q.rows), back);
    w.packs = w.by == SHERD_BF16 ||
              (w.table->product && w.table->product_fits && w.table->product_fits(&w.one));
    return w;
}

/* Of all products of a call the last one may be of other rows. */
static int64_t workspace_of(const work *w, bool back)
{
    int64_t last = w->q.rows % AT_ONCE;
    const sherd__product p = product_with(w, last ? last : AT_ONCE, back);

    return !w->packs
               ? 0
               : sherd__max(w->table->product_workspace(&w->one), w->table->product_workspace(&p));
}

static void multiply(const work *w, const sherd__product *p, void *c, const void *a, const void *b,
                     void *workspace)
{
    if (w->packs)
        w->table->product(p, c, a, b, NULL, workspace);
    else
        w->table->gemm(false, p->tb, p->m, p->n, p->k, 1, a, sherd__max(p->k, 1), b,
                       sherd__max(p->tb ? p->k : p->n, 1), p->adds ? 1 : 0, c, p->n);
}

/* Scratch memory for so many elements, also for none. NULL: there is no memory. */
static void *room_for(sherd_call *call, int64_t count, sherd_dtype dtype)
{
    return sherd_call_scratch(call, bytes_of(sherd__max(count, 1), dtype));
}

/* Operand i in the dtype of the product: where it is, or a copy. NULL: no memory. */
static const void *taken(sherd_call *call, int i, sherd_dtype by)
{
    const sherd_tensor *t = call->in[i];

    if (t->dtype == by && t->count)
        return call->from[i];
    void *to = room_for(call, t->count, by);
    if (to && !sherd__is_dry(call->world))
        sherd__convert(sherd__world_kernels(call->world), by, t->dtype, t->count, to,
                       call->from[i]);
    return to;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* What a column of sums becomes: times its scale, plus its bias; NULL: not. */
typedef struct finish {
    const float *scale;
    const void *bias; /* of the dtype of sums */
    int64_t n, row;   /* columns of sums, and of y */
} finish;

static void end_f64(const finish *f, double *y, const double *sums)
{
    for (int64_t j = 0; j < f->n; j++)
        y[j] = f->bias ? sums[j] + ((const double *)f->bias)[j] : sums[j];
}

static void end_row(const finish *f, float *sums)
{
    const float *bias = f->bias;

    if (f->scale && bias)
        for (int64_t j = 0; j < f->n; j++)
            sums[j] = sums[j] * f->scale[j] + bias[j];
    else if (f->scale)
        for (int64_t j = 0; j < f->n; j++)
            sums[j] *= f->scale[j];
    else if (bias)
        for (int64_t j = 0; j < f->n; j++)
            sums[j] += bias[j];
}

/* Rows of sums into columns lo.. of y. */
static void give(const sherd_call *call, const work *w, const finish *f, int64_t lo, void *sums)
{
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    char *y = (char *)call->to[0] + bytes_of(lo, w->dtype);

    for (int64_t i = 0; i < w->m; i++, y += bytes_of(f->row, w->dtype)) {
        if (w->dtype == SHERD_F64) {
            end_f64(f, (double *)(void *)y, (const double *)sums + i * f->n);
            continue;
        }
        float *row = (float *)sums + i * f->n;
        end_row(f, row);
        sherd__convert(set, w->dtype, SHERD_F32, f->n, y, row);
    }
}

/* x as the kernel of few rows takes it: of 4 bits even columns of a row come first. */
static const float *taken_apart(sherd_call *call, const work *w)
{
    const float *x = taken(call, X, SHERD_F32);
    int64_t half = w->q.cols / 2;
    float *to = w->q.pairs && x ? room_for(call, w->m * w->q.cols, SHERD_F32) : NULL, *at = to;

    if (!w->q.pairs || !to || sherd__is_dry(call->world))
        return w->q.pairs ? to : x;
    for (int64_t i = 0; i < w->m; i++, x += w->q.cols, at += w->q.cols)
        for (int64_t j = 0; j < half; j++) {
            at[j] = x[2 * j];
            at[half + j] = x[2 * j + 1];
        }
    return to;
}

static bool few_rows(sherd_call *call, const work *w, const void *bias)
{
    bool wide = w->dtype == SHERD_F32, dry = sherd__is_dry(call->world);
    const float *x = taken_apart(call, w);
    float *y = wide ? call->to[0] : room_for(call, w->m * w->q.rows, SHERD_F32);
    const finish f = {NULL, bias, w->q.rows, w->q.rows};

    if (!x || (!wide && !y))
        return false;
    if (dry)
        return true;
    sherd__quantized_by(&sherd__world_kernels(call->world)->f32)->few(&w->q, w->m, y, x);
    for (int64_t i = 0; i < w->m && wide; i++)
        end_row(&f, y + i * w->q.rows);
    if (!wide)
        give(call, w, &f, 0, y);
    return true;
}

/* Few rows of bf16 by whole numbers of 4 bits. */
static bool rows_by_pairs(sherd_call *call, const work *w, const void *bias)
{
    const uint16_t *x = call->from[X];
    float *y = room_for(call, w->m * w->q.rows, SHERD_F32);
    void *room = sherd_call_scratch(call, sherd__pairs_workspace(&w->q, w->m));
    const finish f = {NULL, bias, w->q.rows, w->q.rows};

    if (!y || !room)
        return false;
    if (sherd__is_dry(call->world))
        return true;
    sherd__pairs_rows(&w->q, w->m, y, x, room);
    give(call, w, &f, 0, y);
    return true;
}

/* Rows of bf16 in tiles. */
static bool some_rows(sherd_call *call, const work *w, const void *bias)
{
    const uint16_t *x = call->from[X];
    float *y = room_for(call, w->m * w->q.rows, SHERD_F32);
    void *room = sherd_call_scratch(call, sherd__quantized_workspace(&w->q, w->m));
    const finish f = {w->q.group ? NULL : w->q.scale, bias, w->q.rows, w->q.rows};

    if (!y || !room)
        return false;
    if (sherd__is_dry(call->world))
        return true;
    sherd__quantized_rows(&w->q, w->m, y, x, room);
    give(call, w, &f, 0, y);
    return true;
}

/* Many of them: some rows of the weight after the other. */
static bool rows_in_tiles(sherd_call *call, const work *w, const float *bias)
{
    const sherd__quantized *q = &w->q;
    const uint16_t *x = call->from[X];
    int64_t most = sherd__min(IN_TILES, q->rows);
    float *sums = room_for(call, w->m * most, SHERD_F32);
    void *room = sherd_call_scratch(call, sherd__quantized_panel_workspace(q, w->m, most));

    if (!sums || !room)
        return false;
    for (int64_t j = 0; j < q->rows && !sherd__is_dry(call->world); j += IN_TILES) {
        int64_t some = sherd__min(IN_TILES, q->rows - j);
        const finish f = {q->group ? NULL : q->scale + j, bias ? bias + j : NULL, some, q->rows};
        sherd__quantized_panel(q, j, some, w->m, sums, x, room);
        give(call, w, &f, j, sums);
    }
    return true;
}

static bool many_rows(sherd_call *call, const work *w, const char *bias)
{
    const sherd__quantized_kernels *k =
        sherd__quantized_by(&sherd__world_kernels(call->world)->f32);
    int64_t most = sherd__min(AT_ONCE, w->q.rows), workspace = workspace_of(w, false);
    sherd_dtype sum = sums_of(w->by);
    const void *x = taken(call, X, w->by);
    void *rows = room_for(call, most * w->q.cols, w->by);
    void *sums = room_for(call, w->m * most, sum);
    void *room = workspace ? sherd_call_scratch(call, workspace) : NULL;

    if (!x || !rows || !sums || (workspace && !room))
        return false;
    for (int64_t j = 0; j < w->q.rows && !sherd__is_dry(call->world); j += AT_ONCE) {
        int64_t some = sherd__min(AT_ONCE, w->q.rows - j);
        const sherd__product p = product_with(w, some, false);
        const finish f = {w->scaled ? NULL : w->q.scale + j, bias ? bias + bytes_of(j, sum) : NULL,
                          some, w->q.rows};
        k->expand(&w->q, j, some, w->scaled, w->by, rows);
        multiply(w, &p, sums, x, rows, room);
        give(call, w, &f, j, sums);
    }
    return true;
}

static bool linear(sherd_call *call)
{
    const work w = work_of(call, X, VALUE, SCALE, false);
    bool biased = call->in[BIAS] && !(call->once >> BIAS & 1);
    const void *bias = NULL;

    if (call->out[0]->count == 0)
        return true;
    if (biased && !(bias = taken(call, BIAS, sums_of(w.dtype))))
        return false;
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    if (w.dtype == SHERD_BF16 && w.m > 0 && w.m <= SHERD__PAIRS_ROWS && sherd__pairs_fit(set, &w.q))
        return rows_by_pairs(call, &w, bias);
    if (w.dtype == SHERD_BF16 && w.m > FEWER && w.packs && sherd__quantized_fits(set, &w.q))
        return w.m <= SHERD__QUANTIZED_TILE_ROWS ? some_rows(call, &w, bias)
                                                 : rows_in_tiles(call, &w, bias);
    return w.m <= FEW && w.dtype != SHERD_F64 ? few_rows(call, &w, bias)
                                              : many_rows(call, &w, bias);
}

static bool is_pending(const sherd_tensor *t)
{
    return t->layout && t->layout->pending_axes;
}

/* Rules of a product, for scales of rows and of groups; of 8 bits, and of 4. */
typedef struct rules {
    const char *rows, *groups, *rows_of_pairs, *groups_of_pairs;
} rules;

/* Addends of whole numbers, or of scales, are no addends of the product. */
static const char *describe_with(sherd_call *call, const rules *by)
{
    const quantized *how = call->attributes;
    bool pairs = sherd__is_pairs(call->in[VALUE]);

    if (call->in[VALUE]->ndim != 2)
        return "value must have two dims";
    strcpy(call->rule, how->group ? pairs ? by->groups_of_pairs : by->groups
                       : pairs    ? by->rows_of_pairs
                                  : by->rows);
    call->linearity =
        is_pending(call->in[VALUE]) || is_pending(call->in[SCALE]) ? SHERD_NONLINEAR : SHERD_LINEAR;
    return sherd__quantized_fault(call, VALUE, SCALE, how->group);
}

static const char *describe(sherd_call *call)
{
    static const rules by = {"...k,nk,n,n->...n", "...k,nk,n*,n->...n", "...kt,nk,n,n->...n",
                             "...kt,nk,n*,n->...n"};
    const sherd_tensor *x = call->in[X], *value = call->in[VALUE];
    const char *reason = describe_with(call, &by);

    if (!reason && sherd__is_pairs(value) && (x->ndim < 2 || x->shape[x->ndim - 1] != 2))
        reason = sherd_call_reason(call, "of 4 bits x must have %lld columns, two for each byte",
                                   (long long)value->shape[1] * 2);
    return reason;
}

/* Two for each element of the result and each term. */
static double operations(const sherd_call *call)
{
    const sherd_tensor *x = call->in[X];
    int last = x->ndim - 1 - sherd__is_pairs(call->in[VALUE]);

    return 2.0 * (double)call->out[0]->count * (double)sherd__local_count(x, last, x->ndim);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* dx[m,in] += dy[m, some] by some rows of the weight, one after the other. */
static bool linear_dx(sherd_call *call)
{
    const sherd__quantized_kernels *k =
        sherd__quantized_by(&sherd__world_kernels(call->world)->f32);
    const work w = work_of(call, X, VALUE, SCALE, true);
    int64_t most = sherd__min(AT_ONCE, w.q.rows), workspace = workspace_of(&w, true);
    sherd_dtype sum = sums_of(w.by);
    int64_t count = w.m * w.q.cols;

    if (call->out[0]->count == 0)
        return true;
    const char *dy = taken(call, X, w.by);
    void *rows = room_for(call, most * w.q.cols, w.by);
    char *some_dy = room_for(call, w.m * most, w.by);
    void *dx = w.dtype == sum ? call->to[0] : room_for(call, count, sum);
    void *room = workspace ? sherd_call_scratch(call, workspace) : NULL;
    if (!dy || !rows || !some_dy || !dx || (workspace && !room))
        return false;
    if (sherd__is_dry(call->world))
        return true;
    memset(dx, 0, sherd__bytes(bytes_of(count, sum)));
    for (int64_t j = 0; j < w.q.rows; j += AT_ONCE) {
        int64_t some = sherd__min(AT_ONCE, w.q.rows - j);
        const sherd__product p = product_with(&w, some, true);
        k->expand(&w.q, j, some, true, w.by, rows);
        sherd__copy_box(sherd_dtype_bytes(w.by), 2, (int64_t[]){w.m, some}, some_dy,
                        (int64_t[]){some, 1}, dy + bytes_of(j, w.by), (int64_t[]){w.q.rows, 1});
        multiply(&w, &p, dx, some_dy, rows, room);
    }
    if (w.dtype != sum)
        sherd__convert(sherd__world_kernels(call->world), w.dtype, sum, count, call->to[0], dx);
    return true;
}

static const char *describe_dx(sherd_call *call)
{
    static const rules by = {"...n,nk,n->...k", "...n,nk,n*->...k", "...n,nk,n->...kt",
                             "...n,nk,n*->...kt"};

    if (sherd__is_pairs(call->in[VALUE]))
        call->shape[0][call->in[X]->ndim] = 2;
    return describe_with(call, &by);
}

static double operations_dx(const sherd_call *call)
{
    const sherd_tensor *dy = call->in[X];

    return 2.0 * (double)call->out[0]->count * (double)dy->local[dy->ndim - 1];
}

/* The gradient of dx is [..., k, 2], where dx is. */
static void linear_dx_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *with[] = {grad_out[0], sherd_node_operand(node, VALUE),
                            sherd_node_operand(node, SCALE), NULL};

    grad_in[X] = sherd_apply(&sherd__linear_quantized_op, with, 4, sherd_node_attributes(node));
}

#define NEEDS_WEIGHT (SHERD_NEEDS_OPERAND(VALUE) | SHERD_NEEDS_OPERAND(SCALE))

static const sherd_op linear_dx_op = {
    .name = "sherd_linear_quantized backward",
    .operand = {{"dy", 0}, {"value", SHERD_OP_ANY}, {"scale", SHERD_OP_ANY}},
    .result = {{"dx", 0}},
    QUANTIZED,
    .whole = "t",
    .describe = describe_dx,
    .forward = linear_dx,
    .dry = linear_dx,
    .operations = operations_dx,
    .backward = linear_dx_back,
    .needs = {[X] = NEEDS_WEIGHT}};

static void linear_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *dy = grad_out[0];

    if (sherd_node_wants(node, X))
        grad_in[X] = sherd_apply(&linear_dx_op,
                                 (sherd_tensor *[]){dy, sherd_node_operand(node, VALUE),
                                                    sherd_node_operand(node, SCALE)},
                                 3, sherd_node_attributes(node));
    if (sherd_node_wants(node, BIAS))
        grad_in[BIAS] = sherd__sum_to_operand(node, BIAS, dy);
}

const sherd_op sherd__linear_quantized_op = {
    .name = "sherd_linear_quantized",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "x W^T + b, W of 8 or 4 bits with scales",
    .layouts = "`...k,nk,n,n->...n`; sums k; groups of scales are whole",
    .operand = {{"x", 0},
                {"value", SHERD_OP_ANY},
                {"scale", SHERD_OP_ANY},
                {"bias", SHERD_OP_OPTIONAL | SHERD_OP_TERM}},
    .result = {{"y", 0}},
    .linearity = SHERD_LINEAR,
    QUANTIZED,
    .whole = "t",
    .describe = describe,
    .forward = linear,
    .dry = linear,
    .operations = operations,
    .backward = linear_back,
    .in_parts = true,
    .needs = {[X] = NEEDS_WEIGHT}};

sherd_tensor *sherd_linear_quantized(sherd_tensor *x, sherd_tensor *value, sherd_tensor *scale,
                                     int64_t group, sherd_tensor *bias)
{
    bool pairs = value && !sherd_tensor_failed(value) && sherd__is_pairs(value);

    if (pairs && value->ndim == 2 && x && !sherd_tensor_failed(x) && x->ndim > 0 &&
        x->shape[x->ndim - 1] != 2 * value->shape[1])
        return sherd__fail_tensor(x->world, x->layout || value->layout, SHERD_EINVAL,
                                  "sherd_linear_quantized: x is %.120s, value %.120s: of 4 bits x "
                                  "must have two columns for each byte of a row",
                                  sherd_tensor_text(x), sherd_tensor_text(value));
    if (pairs && group % 2 == 0)
        x = sherd__in_pairs(x, "sherd_linear_quantized");
    return sherd_apply(&sherd__linear_quantized_op, (sherd_tensor *[]){x, value, scale, bias}, 4,
                       &(quantized){group});
}
