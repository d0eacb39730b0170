/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows times a weight of 8 or 4 bits, and their gradient, for operators (quantized.c, and of groups
 * functional/grouped_quantized.c). Of few rows the time is that of reading the weight, and a kernel
 * reads it as it is. Of more, some rows of the weight at a time become numbers that the usual
 * product takes, in tiles while it packs them: they stay in the cache. Those of bf16 hold 8 bits
 * exactly, so a scale of a whole row is applied to the sum instead. docs/decisions/210, 223
 */
#include "quantize.h"

#include <string.h>

#include "base/num.h"
#include "vector/bodies.h"
#include "vector/choose.h"
#include "vector/quantized_tiles.h"

/* Rows of x that the kernel of few takes, or where there are tiles; and rows of the weight that are
 * expanded at once, or packed in tiles. */
enum { FEW = 8, FEWER = 4, AT_ONCE = 256, IN_TILES = 512 };

/* What scratch memory holds (sherd__quantized_rooms). */
enum { COPY, APART, SUMS, ROWS, PART, WORKSPACE };

/* A call on this rank: y[m,out] of x[m,in], or dx[m,in] of dy[m,out]. */
typedef struct work {
    sherd__quantized q;
    int64_t m;
    sherd_dtype dtype; /* of x, and of the result */
    sherd_dtype by;    /* of the product */
    const void *x;
    void *y;
    sherd__quantized_rooms *rooms;
    const sherd__kernels *table;
    bool scaled;        /* the weight is expanded with its scales */
    sherd__product one; /* with AT_ONCE rows of the weight */
    bool packs;         /* by the table's product, in its workspace; else by gemm */
} work;

static int64_t bytes_of(int64_t count, sherd_dtype dtype)
{
    return count * (int64_t)sherd_dtype_bytes(dtype);
}

/* The product of all rows with `some` rows of the weight. */
static sherd__product product_with(const work *w, int64_t some, bool back)
{
    sherd__product p = {.dtype = w->by,
                        .result = sherd__quantized_sums(w->by),
                        .tb = !back,
                        .adds = back,
                        .m = w->m,
                        .n = back ? w->q.cols : some,
                        .k = back ? some : w->q.cols};
    return p;
}

/* bf16 is multiplied as such where its table can; f16 would lose what is small. */
static work work_of(const sherd_call *call, const sherd__quantized_product *p, bool back)
{
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    work w = {.q = p->q, .m = p->m, .dtype = p->dtype, .x = p->x, .y = p->y, .rooms = p->rooms};

    w.by = w.dtype == SHERD_BF16 && set->bf16.product ? SHERD_BF16 : sherd__quantized_sums(w.dtype);
    w.table = sherd__kernels_of(set, w.by);
    w.scaled = back || w.q.group > 0 || w.dtype == SHERD_F64;
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

/* Scratch memory that one product after the other takes. NULL: there is no memory. */
static void *room_of(sherd_call *call, const work *w, int i, int64_t bytes)
{
    if (w->rooms->at[i] && w->rooms->bytes[i] >= bytes)
        return w->rooms->at[i];
    w->rooms->bytes[i] = bytes;
    return w->rooms->at[i] = sherd_call_scratch(call, bytes);
}

/* The same for so many elements, also for none. */
static void *room_for(sherd_call *call, const work *w, int i, int64_t count, sherd_dtype dtype)
{
    return room_of(call, w, i, bytes_of(sherd__max(count, 1), dtype));
}

/* x, of so many columns, in the dtype of the product: where it is, or a copy. NULL: no memory. */
static const void *taken(sherd_call *call, const work *w, int64_t cols, sherd_dtype by)
{
    int64_t count = w->m * cols;

    if (w->dtype == by && count)
        return w->x;
    void *to = room_for(call, w, COPY, count, by);
    if (to && !sherd__is_dry(call->world))
        sherd__convert(sherd__world_kernels(call->world), by, w->dtype, count, to, w->x);
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
    char *y = (char *)w->y + bytes_of(lo, w->dtype);

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
    const float *x = taken(call, w, w->q.cols, SHERD_F32);
    int64_t half = w->q.cols / 2;
    float *to = w->q.pairs && x ? room_for(call, w, APART, w->m * w->q.cols, SHERD_F32) : NULL;
    float *at = to;

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
    float *y = wide ? w->y : room_for(call, w, SUMS, w->m * w->q.rows, SHERD_F32);
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
    const uint16_t *x = w->x;
    float *y = room_for(call, w, SUMS, w->m * w->q.rows, SHERD_F32);
    void *room = room_of(call, w, WORKSPACE, sherd__pairs_workspace(&w->q, w->m));
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
    const uint16_t *x = w->x;
    float *y = room_for(call, w, SUMS, w->m * w->q.rows, SHERD_F32);
    void *room = room_of(call, w, WORKSPACE, sherd__quantized_workspace(&w->q, w->m));
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
    const uint16_t *x = w->x;
    int64_t most = sherd__min(IN_TILES, q->rows);
    float *sums = room_for(call, w, SUMS, w->m * most, SHERD_F32);
    void *room = room_of(call, w, WORKSPACE, sherd__quantized_panel_workspace(q, w->m, most));

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
    sherd_dtype sum = sherd__quantized_sums(w->by);
    const void *x = taken(call, w, w->q.cols, w->by);
    void *rows = room_for(call, w, ROWS, most * w->q.cols, w->by);
    void *sums = room_for(call, w, SUMS, w->m * most, sum);
    void *room = workspace ? room_of(call, w, WORKSPACE, workspace) : NULL;

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

bool sherd__quantized_multiply(sherd_call *call, const sherd__quantized_product *p)
{
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    const work w = work_of(call, p, false);

    if (w.dtype == SHERD_BF16 && w.m > 0 && w.m <= SHERD__PAIRS_ROWS && sherd__pairs_fit(set, &w.q))
        return rows_by_pairs(call, &w, p->bias);
    if (w.dtype == SHERD_BF16 && w.m > FEWER && w.packs && sherd__quantized_fits(set, &w.q))
        return w.m <= SHERD__QUANTIZED_TILE_ROWS ? some_rows(call, &w, p->bias)
                                                 : rows_in_tiles(call, &w, p->bias);
    return w.m <= FEW && w.dtype != SHERD_F64 ? few_rows(call, &w, p->bias)
                                              : many_rows(call, &w, p->bias);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* dx[m,in] += dy[m, some] by some rows of the weight, one after the other. */
bool sherd__quantized_back(sherd_call *call, const sherd__quantized_product *of)
{
    const sherd__quantized_kernels *k =
        sherd__quantized_by(&sherd__world_kernels(call->world)->f32);
    const work w = work_of(call, of, true);
    int64_t most = sherd__min(AT_ONCE, w.q.rows), workspace = workspace_of(&w, true);
    sherd_dtype sum = sherd__quantized_sums(w.by);
    int64_t count = w.m * w.q.cols;
    const char *dy = taken(call, &w, w.q.rows, w.by);
    void *rows = room_for(call, &w, ROWS, most * w.q.cols, w.by);
    char *some_dy = room_for(call, &w, PART, w.m * most, w.by);
    void *dx = w.dtype == sum ? w.y : room_for(call, &w, SUMS, count, sum);
    void *room = workspace ? room_of(call, &w, WORKSPACE, workspace) : NULL;

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
        sherd__convert(sherd__world_kernels(call->world), w.dtype, sum, count, w.y, dx);
    return true;
}
