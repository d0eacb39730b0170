/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions element by element on the GPU, each by a kernel of its row of kernels/functions.inc:
 * see elements.cu. Under a microsecond besides the driver's launch.
 */
#include "box.h"
#include "programs/elements_args.h"

#include "kernels/ref.h"

static const char *const unary_name[SHERD__UNARY_KINDS] = {
    [SHERD__SCALE] = "f_scale",
    [SHERD__SHIFT] = "f_shift",
#define UNARY0(name, NAME, ...)  [SHERD__##NAME] = "f_" #name,
#define UNARY1(name, NAME, ...)  [SHERD__##NAME] = "f_" #name,
#define UNARY2(name, NAME, ...)  [SHERD__##NAME] = "f_" #name,
#define HIDDEN1(name, NAME, ...) [SHERD__##NAME] = "f_" #name,
#include "kernels/functions.inc"
};

/* How many parameters it has: the caller need not have more. */
static const int unary_parameters[SHERD__UNARY_KINDS] = {
    [SHERD__SCALE] = 1,
    [SHERD__SHIFT] = 1,
#define UNARY1(name, NAME, ...)  [SHERD__##NAME] = 1,
#define UNARY2(name, NAME, ...)  [SHERD__##NAME] = 2,
#define HIDDEN1(name, NAME, ...) [SHERD__##NAME] = 1,
#include "kernels/functions.inc"
};

static const char *const binary_name[SHERD__BINARY_KINDS] = {
    [SHERD__ADD] = "f_add",
    [SHERD__SUB] = "f_sub",
    [SHERD__MUL] = "f_mul",
#define BINARY(name, NAME, ...) [SHERD__##NAME] = "f_" #name,
#include "kernels/functions.inc"
};

static int lanes_of(sherd_dtype dtype)
{
    return SHERD__WIDE / (int)sherd_dtype_bytes(dtype);
}

static bool all_aligned(const void *a, const void *b, const void *c)
{
    return sherd__is_aligned(a, SHERD__WIDE) && sherd__is_aligned(b, SHERD__WIDE) &&
           sherd__is_aligned(c, SHERD__WIDE);
}

/* A kernel of n elements, of which each thread takes `lanes` at once. */
static void launch(sherd__device *device, const char *family, const char *kind, sherd_dtype dtype,
                   int64_t items, const void *args, size_t bytes)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_ELEMENTS, family, kind, dtype, SHERD_DTYPE_NONE};

    sherd__device_launch(device, &kernel, sherd__grid_of(items), args, bytes);
}

/* ---- of one operand ---- */

static void launch_unary(sherd__device *device, const char *family, sherd_dtype dtype,
                         sherd__unary_kind kind, unary_args *args, const double *parameter)
{
    int lanes = lanes_of(dtype);

    for (int i = 0; parameter && i < unary_parameters[kind]; i++)
        args->parameter[i] = parameter[i];
    args->wide = all_aligned(args->dst, args->src, args->dy);
    launch(device, family, unary_name[kind], dtype,
           args->wide ? (args->n + lanes - 1) / lanes : args->n, args, sizeof *args);
}

void sherd__device_unary(sherd__device *device, sherd_dtype dtype, sherd__unary_kind kind,
                         int64_t n, void *dst, const void *src, const double *parameter)
{
    unary_args args = {.dst = dst, .src = src, .n = n};

    launch_unary(device, "unary", dtype, kind, &args, parameter);
}

void sherd__device_unary_grad(sherd__device *device, sherd_dtype dtype, sherd__unary_kind kind,
                              int64_t n, void *dx, const void *at, const void *dy,
                              const double *parameter)
{
    unary_grad_args args = {.dst = dx, .src = at, .dy = dy, .n = n};

    if (kind != SHERD__SCALE && kind != SHERD__SHIFT) /* those are made of operators */
        launch_unary(device, "unary_grad", dtype, kind, &args, parameter);
}

/* ---- of two operands ---- */

static void launch_binary(sherd__device *device, const char *family, sherd_dtype dtype,
                          sherd__binary_kind kind, const sherd__box *given, binary_args *args)
{
    int lanes = lanes_of(dtype), last = given->ndim - 1;
    sherd__box box = *given;

    args->n = box.n;
    for (int k = 0; k < 2; k++)
        args->step[k] = (int32_t)(box.stride[k][last] == 1);
    bool wide = all_aligned(args->dst, args->dy, NULL);
    for (int k = 0; k < 2; k++)
        wide = wide && (!args->step[k] || sherd__is_aligned(args->operand[k], SHERD__WIDE));
    if (box.ndim == 1) /* the rest one by one */
        box.size[0] = box.n = box.n / lanes * lanes;
    args->wide = wide && sherd__box_is_wide(&box, lanes);
    if (args->wide)
        sherd__box_widen(&box, lanes);
    else
        box = *given;
    args->items = box.n;
    args->ndim = box.ndim;
    args->small = sherd__box_divisors(&box, args->multiplier, args->shift);
    for (int d = 0; d < box.ndim; d++) {
        args->size[d] = box.size[d];
        for (int k = 0; k < 2; k++)
            args->stride[k][d] = box.stride[k][d];
    }
    launch(device, family, binary_name[kind], dtype, args->wide ? box.n + (args->n > 0) : box.n,
           args, sizeof *args);
}

void sherd__device_binary(sherd__device *device, sherd_dtype dtype, sherd__binary_kind kind,
                          int ndim, const int64_t *size, void *dst, const void *a,
                          const int64_t *a_stride, const void *b, const int64_t *b_stride)
{
    binary_args args = {.dst = dst, .operand = {a, b}};
    sherd__box box;

    sherd__box_of(&box, ndim, size, 2, (const int64_t *[]){a_stride, b_stride});
    if (box.n > 0)
        launch_binary(device, "binary", dtype, kind, &box, &args);
}

void sherd__device_binary_grad(sherd__device *device, sherd_dtype dtype, sherd__binary_kind kind,
                               int which, int ndim, const int64_t *size, void *dst, const void *dy,
                               const void *a, const int64_t *a_stride, const void *b,
                               const int64_t *b_stride)
{
    binary_args args = {.dst = dst, .dy = dy, .operand = {a, b}};
    sherd__box box;

    sherd__box_of(&box, ndim, size, 2, (const int64_t *[]){a_stride, b_stride});
    if (box.n > 0 && kind > SHERD__MUL) /* the others are made of operators */
        launch_binary(device, which == 0 ? "binary_grad_a" : "binary_grad_b", dtype, kind, &box,
                      &args);
}

/* ---- the rest ---- */

void sherd__device_fill(sherd__device *device, sherd_dtype dtype, void *dst, int64_t n,
                        double value)
{
    int lanes = lanes_of(dtype);
    const fill_args args = {
        .dst = dst, .n = n, .wide = sherd__is_aligned(dst, SHERD__WIDE), .value = value};

    launch(device, "fill", NULL, dtype, args.wide ? (n + lanes - 1) / lanes : n, &args,
           sizeof args);
}

void sherd__device_convert(sherd__device *device, sherd_dtype to, sherd_dtype from, int64_t n,
                           void *dst, const void *src)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_ELEMENTS, "convert", NULL, to, from};
    size_t to_bytes = sherd_dtype_bytes(to), from_bytes = sherd_dtype_bytes(from);
    size_t lanes = SHERD__WIDE / (to_bytes > from_bytes ? to_bytes : from_bytes);
    const convert_args args = {.dst = dst,
                               .src = src,
                               .n = n,
                               .wide = sherd__is_aligned(dst, to_bytes * lanes) &&
                                       sherd__is_aligned(src, from_bytes * lanes)};

    if (to == from)
        sherd__device_move(device, dst, src, n * (int64_t)to_bytes);
    else
        sherd__device_launch(device, &kernel,
                             sherd__grid_of(args.wide ? n / (int64_t)lanes + (n > 0) : n), &args,
                             sizeof args);
}

void sherd__device_dropout(sherd__device *device, sherd_dtype dtype, int64_t n, void *dst,
                           const void *src, double p, sherd__key key, int64_t first)
{
    size_t bytes = 4 * sherd_dtype_bytes(dtype);
    const dropout_args args = {.dst = dst,
                               .src = src,
                               .n = n,
                               .first = first,
                               .wide = first % 4 == 0 && sherd__is_aligned(dst, bytes) &&
                                       sherd__is_aligned(src, bytes),
                               .threshold = sherd__keep_threshold(p),
                               .word = {key.word[0], key.word[1]},
                               .high = {key.high[0], key.high[1]},
                               .factor = 1 / (1 - p)};

    if (n > 0)
        launch(device, "dropout", NULL, dtype, n / 4 + 2, &args, sizeof args);
}
