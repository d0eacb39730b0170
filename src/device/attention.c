/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of attention.cu, and of 16 bits attention_half.cu. Rows of tiles have 32, 64 or 128
 * elements; wider heads, masks and dropout are left to the CPU.
 */
#include "box.h"

#include "base/dtype.h"
#include "base/num.h"
#include "attention_args.h"

enum { MOST_WIDTH = 128, WARPS = ATTENTION_THREADS / 32 };
static const int64_t most_blocks = 1 << 20;

static bool fits(sherd_dtype dtype, const sherd__attending *s)
{
    return sherd__device_computes(dtype) && !s->mask && s->p <= 0 && s->width <= MOST_WIDTH;
}

/* Queries or keys of a tile. */
static int side_of(sherd_dtype dtype)
{
    if (sherd__is_half(dtype))
        return ATTENTION_HALF_SIDE;
    return 16 * (dtype == SHERD_F64 ? ATTENTION_EACH / 2 : ATTENTION_EACH);
}

static attending args_of(const sherd__attending *s, const void *q, const void *k, const void *v)
{
    return (attending){.batch = s->batch,
                       .groups = s->groups,
                       .repeat = s->repeat,
                       .queries = s->queries,
                       .keys = s->keys,
                       .width = s->width,
                       .ahead = s->first_query - s->first_key,
                       .scale = s->scale,
                       .causal = s->causal,
                       .q = q,
                       .k = k,
                       .v = v};
}

/* Rows of tiles have 32 << n elements; also with twice the rows. */
static const char *const widths[][2] = {{"w32", "w32_tall"}, {"w64", "w64_tall"}, {"w128", "w128"}};

static int width_of(int64_t width)
{
    return width <= 32 ? 0 : width <= 64 ? 1 : 2;
}

/* With memory of a block for so many tiles, and one of scores. */
static void launch_plain(sherd__device *device, const char *family, sherd_dtype dtype,
                         int64_t heads, int64_t length, int tiles, const attending *args)
{
    int which = width_of(args->width), width = 32 << which, side = side_of(dtype);
    int bytes = (int)sherd_dtype_bytes(sherd__statistics_dtype(dtype)),
        gap = ATTENTION_PIECE / bytes;
    sherd__kernel kernel = {SHERD__PROGRAM_ATTENTION, family, widths[which][0], dtype,
                            SHERD_DTYPE_NONE};
    sherd__grid grid = {heads * sherd__ceil_div(length, side), ATTENTION_THREADS,
                        side * (tiles * (width + gap) + side + gap) * bytes};

    sherd__device_launch(device, &kernel, grid, args, sizeof *args);
}

/* Of 16 bits: so many tiles of the block's own rows, two buffers of two tiles, and `more` bytes.
 * Blocks with twice the rows load half as much, if there are enough of them for all processors. */
static void launch_half(sherd__device *device, const char *family, sherd_dtype dtype, int64_t heads,
                        int64_t length, int own_tiles, int more, const attending *args)
{
    enum { SIDE = ATTENTION_HALF_SIDE, ENOUGH = 400 };
    int which = width_of(args->width), width = 32 << which;
    bool tall = which < 2 && heads * sherd__ceil_div(length, 2 * SIDE) >= ENOUGH;
    int rows = tall ? 2 * SIDE : SIDE;
    sherd__kernel kernel = {SHERD__PROGRAM_ATTENTION_HALF, family, widths[which][tall], dtype,
                            SHERD_DTYPE_NONE};
    sherd__grid grid = {heads * sherd__ceil_div(length, rows), ATTENTION_HALF_THREADS,
                        (own_tiles * rows + 4 * SIDE) * (width + ATTENTION_HALF_GAP) * 2 + more};

    sherd__device_launch(device, &kernel, grid, args, sizeof *args);
}

bool sherd__device_attention(sherd__device *device, sherd_dtype dtype, const sherd__attending *s,
                             void *out, void *log_sum, const void *q, const void *k, const void *v)
{
    attending args = args_of(s, q, k, v);
    int64_t heads = s->batch * s->groups * s->repeat;

    if (!fits(dtype, s))
        return false;
    args.wide = sherd__rows_are_wide(dtype, s->width,
                                     (uintptr_t)q | (uintptr_t)k | (uintptr_t)v | (uintptr_t)out);
    args.out = out;
    args.log_sum = log_sum;
    if (sherd__is_half(dtype))
        launch_half(device, "attention_half", dtype, heads, s->queries, 1, 0, &args);
    else
        launch_plain(device, "attention", dtype, heads, s->queries, 2, &args);
    return true;
}

static void launch_delta(sherd__device *device, sherd_dtype dtype, int64_t rows,
                         const attending *args)
{
    bool half = sherd__is_half(dtype);
    int64_t in_block = half ? ATTENTION_THREADS / ATTENTION_DELTA_LANES : WARPS;
    sherd__kernel kernel = {half ? SHERD__PROGRAM_ATTENTION_HALF : SHERD__PROGRAM_ATTENTION,
                            half ? "attention_half_delta" : "attention_delta", NULL, dtype,
                            SHERD_DTYPE_NONE};
    sherd__grid grid = {sherd__min(sherd__ceil_div(rows, in_block), most_blocks), ATTENTION_THREADS,
                        0};

    sherd__device_launch(device, &kernel, grid, args, sizeof *args);
}

static void launch_grad(sherd__device *device, sherd_dtype dtype, const sherd__attending *s,
                        const attending *args)
{
    int64_t groups = s->batch * s->groups, heads = groups * s->repeat;
    int known = 2 * ATTENTION_HALF_SIDE * 2 * (int)sizeof(float);

    launch_delta(device, dtype, heads * s->queries, args);
    if (sherd__is_half(dtype)) {
        launch_half(device, "attention_half_dq", dtype, heads, s->queries, 2, 0, args);
        launch_half(device, "attention_half_dkv", dtype, groups, s->keys, 2, known, args);
    } else {
        launch_plain(device, "attention_dq", dtype, heads, s->queries, 3, args);
        launch_plain(device, "attention_dkv", dtype, groups, s->keys, 4, args);
    }
}

bool sherd__device_attention_grad(sherd__device *device, sherd_dtype dtype,
                                  const sherd__attending *s, void *dq, void *dk, void *dv,
                                  const void *dout, const void *q, const void *k, const void *v,
                                  const void *out, const void *log_sum)
{
    attending args = args_of(s, q, k, v);
    int64_t rows = s->batch * s->groups * s->repeat * s->queries;
    sherd__device_block *delta = NULL;

    if (!fits(dtype, s))
        return false;
    if (rows) {
        int64_t bytes = (int64_t)sherd_dtype_bytes(sherd__statistics_dtype(dtype)) *
                        (sherd__is_half(dtype) ? 2 : 1);
        delta = sherd__device_take(device, rows * bytes);
        if (!delta) {
            sherd__device_lack(device, "out of GPU memory for the gradient of attention");
            return true;
        }
        args.delta = delta->data;
    }
    args.wide =
        sherd__rows_are_wide(dtype, s->width,
                             (uintptr_t)q | (uintptr_t)k | (uintptr_t)v | (uintptr_t)out |
                                 (uintptr_t)dout | (uintptr_t)dq | (uintptr_t)dk | (uintptr_t)dv);
    args.out = (void *)(uintptr_t)out; /* only read */
    args.log_sum = (void *)(uintptr_t)log_sum;
    args.dout = dout;
    args.dq = dq;
    args.dk = dk;
    args.dv = dv;
    launch_grad(device, dtype, s, &args);
    sherd__device_give(device, delta);
    return true;
}
