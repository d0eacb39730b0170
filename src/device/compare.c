/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of compare.cu. */
#include "compare.h"

#include "box.h"
#include "base/num.h"
#include "programs/compare_args.h"

enum { THREADS = 256, BLOCKS = 132 * 8 };

static const char *const unit_name[] = {
    [1] = "unit_1", [2] = "unit_2", [4] = "unit_4", [8] = "unit_8"};

/*
 * The box in groups of `lanes` elements, if places allow. data[k] of operand k, NULL: it has none;
 * bytes[k]: of its elements. How many threads it takes.
 */
static int64_t lay(strided_box *out, const sherd__box *given, int lanes, const void *const *data,
                   const size_t *bytes, const void *dst, size_t dst_bytes)
{
    sherd__box box = *given;
    int last = box.ndim - 1;
    bool wide = sherd__is_aligned(dst, dst_bytes * (size_t)lanes);

    out->n = box.n;
    for (int k = 0; k < box.operands; k++) {
        out->step[k] = (int32_t)(box.stride[k][last] == 1);
        wide = wide && (!out->step[k] || sherd__is_aligned(data[k], bytes[k] * (size_t)lanes));
    }
    if (box.ndim == 1) /* the rest one by one */
        box.size[0] = box.n = box.n / lanes * lanes;
    wide = wide && sherd__box_is_wide(&box, lanes);
    if (wide)
        sherd__box_widen(&box, lanes);
    else
        box = *given;
    out->wide = wide;
    out->items = box.n;
    out->ndim = box.ndim;
    out->small = sherd__box_divisors(&box, out->multiplier, out->shift);
    for (int d = 0; d < box.ndim; d++) {
        out->size[d] = box.size[d];
        for (int k = 0; k < box.operands; k++)
            out->stride[k][d] = box.stride[k][d];
    }
    return wide ? box.n + (out->n > 0) : box.n;
}

/* ---- comparisons ---- */

enum { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };

/*
 * `truth` of compare_args: a bit for each order, or for each pair of truth values, for which the
 * comparison holds.
 */
static uint32_t truth_of(sherd__compare_kind kind)
{
    switch (kind) {
    case SHERD__EQ:
        return EQUAL;
    case SHERD__NE:
        return LESS | GREATER | UNORDERED;
    case SHERD__LT:
        return LESS;
    case SHERD__LE:
        return LESS | EQUAL;
    case SHERD__GT:
        return GREATER;
    case SHERD__GE:
        return GREATER | EQUAL;
    case SHERD__LOGICAL_AND:
        return 1 << 3;
    case SHERD__LOGICAL_OR:
        return 1 << 1 | 1 << 2 | 1 << 3;
    default: /* only one of them */
        return 1 << 1 | 1 << 2;
    }
}

static void launch_compare(sherd__device *device, sherd_dtype dtype, const sherd__box *box,
                           compare_args *args)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_COMPARE, "compare", NULL, dtype, SHERD_DTYPE_NONE};
    size_t element = sherd_dtype_bytes(dtype);
    int64_t threads = lay(&args->box, box, SHERD__WIDE / (int)element, args->operand,
                          (const size_t[]){element, element}, args->dst, 1);

    sherd__device_launch(device, &kernel, sherd__grid_of(threads), args, sizeof *args);
}

void sherd__device_compare(sherd__device *device, sherd_dtype dtype, sherd__compare_kind kind,
                           int ndim, const int64_t *size, void *dst, const void *a,
                           const int64_t *a_stride, const void *b, const int64_t *b_stride)
{
    compare_args args = {.dst = dst,
                         .operand = {a, b},
                         .truth = truth_of(kind),
                         .logic = kind >= SHERD__LOGICAL_AND};
    sherd__box box;

    sherd__box_of(&box, ndim, size, 2, (const int64_t *[]){a_stride, b_stride});
    if (box.n > 0)
        launch_compare(device, dtype, &box, &args);
}

void sherd__device_compare_number(sherd__device *device, sherd_dtype dtype,
                                  sherd__compare_kind kind, int64_t n, void *dst, const void *a,
                                  double number, int64_t whole)
{
    const int64_t one = 1, none = 0;
    compare_args args = {.dst = dst,
                         .operand = {a, NULL},
                         .truth = truth_of(kind),
                         .number = number,
                         .whole = whole};
    sherd__box box;

    sherd__box_of(&box, 1, &n, 2, (const int64_t *[]){&one, &none});
    if (n > 0)
        launch_compare(device, dtype, &box, &args);
}

/* ---- one of two ---- */

void sherd__device_pick(sherd__device *device, size_t element_bytes, int ndim, const int64_t *size,
                        void *dst, const void *mask, const int64_t *mask_stride, sherd__picked a,
                        sherd__picked b)
{
    static const int64_t none[SHERD_MAX_DIMS];
    const sherd__kernel kernel = {SHERD__PROGRAM_COMPARE, "pick", unit_name[element_bytes],
                                  SHERD_DTYPE_NONE, SHERD_DTYPE_NONE};
    pick_args args = {
        .dst = dst, .mask = mask, .operand = {a.data, b.data}, .value = a.data ? b.value : a.value};
    sherd__box box;

    sherd__box_of(
        &box, ndim, size, 3,
        (const int64_t *[]){mask_stride, a.data ? a.stride : none, b.data ? b.stride : none});
    if (box.n == 0)
        return;
    int64_t threads = lay(&args.box, &box, SHERD__WIDE / (int)element_bytes,
                          (const void *[]){mask, a.data, b.data},
                          (const size_t[]){1, element_bytes, element_bytes}, dst, element_bytes);
    sherd__device_launch(device, &kernel, sherd__grid_of(threads), &args, sizeof args);
}

/* ---- rows ---- */

/* Threads of a block that share a row: a power of two. */
static int32_t threads_across(int64_t cols)
{
    int32_t across = 1;

    while (across < THREADS && across < cols)
        across *= 2;
    return across;
}

static sherd__launch_grid grid_of_rows(int64_t rows, int32_t across)
{
    return (sherd__launch_grid){
        .blocks = sherd__min(sherd__ceil_div(rows, THREADS / across), BLOCKS), .threads = THREADS};
}

void sherd__device_corner(sherd__device *device, size_t element_bytes, const sherd__corner *c,
                          void *dst, const void *src)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_COMPARE, "corner", unit_name[element_bytes],
                                  SHERD_DTYPE_NONE, SHERD_DTYPE_NONE};
    corner_args args = {.dst = dst,
                        .src = src,
                        .rows = c->rows,
                        .cols = c->cols,
                        .height = c->height,
                        .edge = c->edge,
                        .across = threads_across(c->cols),
                        .upper = c->upper};

    if (c->rows && c->cols)
        sherd__device_launch(device, &kernel, grid_of_rows(c->rows, args.across), &args,
                             sizeof args);
}

static class_args args_of(const sherd__classes *c, void *dst, const void *src)
{
    return (class_args){.dst = dst,
                        .src = src,
                        .weight = c->weight,
                        .target = c->target,
                        .rows = c->rows,
                        .cols = c->cols,
                        .first = c->first,
                        .ignores = c->ignores,
                        .ignored = c->ignored,
                        .across = threads_across(c->cols)};
}

void sherd__device_take_class(sherd__device *device, sherd_dtype dtype, const sherd__classes *c,
                              void *y, const void *x)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_COMPARE, "take_class", NULL, dtype,
                                  SHERD_DTYPE_NONE};
    const class_args args = args_of(c, y, x);

    sherd__device_launch(device, &kernel, sherd__grid_of(c->rows), &args, sizeof args);
}

void sherd__device_put_class(sherd__device *device, sherd_dtype dtype, const sherd__classes *c,
                             void *dx, const void *dy)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_COMPARE, "put_class", NULL, dtype,
                                  SHERD_DTYPE_NONE};
    const class_args args = args_of(c, dx, dy);

    if (c->cols)
        sherd__device_launch(device, &kernel, grid_of_rows(c->rows, args.across), &args,
                             sizeof args);
}
