/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of attention.cu, and of 16 bits attention_half.cu. Rows of tiles have 32, 64 or 128
 * elements; with 256 they are computed by attention.cu, of 16 bits too. Masks,
 * windows, caps and dropout have kernels of their own, so that the others are as fast as without.
 */
#include "attention.h"
#include "box.h"
#include "inside.h"

#include "base/dtype.h"
#include "base/num.h"
#include "kernels/ref.h"
#include "programs/attention_args.h"

enum {
    MOST_WIDTH = 256,
    HALF_WIDTH = 128, /* the most that attention_half.cu has */
    WARPS = ATTENTION_THREADS / 32
};
static const int64_t most_blocks = 1 << 20;

/* ---- what is told ---------------------------------------------------------------------------- */

/* -1: there are no kernels for such a mask. */
static int mask_kind_of(sherd_dtype dtype, sherd_dtype mask)
{
    return mask == SHERD_BOOL   ? ATTENTION_MASK_BOOL
           : mask == dtype      ? ATTENTION_MASK_OWN
           : mask == SHERD_BF16 ? ATTENTION_MASK_BF16
           : mask == SHERD_F16  ? ATTENTION_MASK_F16
                                : -1;
}

static void add_mask(attending *a, sherd_dtype dtype, const sherd__attending *s)
{
    int64_t bytes = (int64_t)sherd_dtype_bytes(s->mask_dtype);

    a->mask = (const char *)s->mask + s->first_key * s->mask_stride[4] * bytes;
    a->mask_kind = mask_kind_of(dtype, s->mask_dtype);
    a->mask_pairs = s->mask_stride[4] == 1 && (uintptr_t)a->mask % (uintptr_t)(2 * bytes) == 0;
    for (int d = 0; d < 5; d++) {
        a->mask_stride[d] = s->mask_stride[d];
        a->mask_pairs = a->mask_pairs && (d == 4 || s->mask_stride[d] % 2 == 0);
    }
}

static void add_dropout(attending *a, const sherd__attending *s)
{
    int64_t head = s->first[1] * s->all_repeat + s->first[2];

    a->drops = 1;
    a->keep = 1 / (1 - s->p);
    a->threshold = sherd__keep_threshold(s->p);
    for (int i = 0; i < 2; i++) {
        a->key_word[i] = s->key.word[i];
        a->key_high[i] = s->key.high[i];
    }
    a->query_scores = s->all_keys;
    a->head_scores = s->all_queries * s->all_keys;
    a->batch_scores = s->all_heads * a->head_scores;
    a->all_repeat = s->all_repeat;
    a->first_score = s->first[0] * a->batch_scores + head * a->head_scores +
                     s->first_query * s->all_keys + s->first_key;
}

static attending args_of(sherd_dtype dtype, const sherd__attending *s, const void *q, const void *k,
                         const void *v)
{
    attending a = {.batch = s->batch,
                   .groups = s->groups,
                   .repeat = s->repeat,
                   .queries = s->queries,
                   .keys = s->keys,
                   .width = s->width,
                   .ahead = s->first_query - s->first_key,
                   .window = s->window,
                   .span = s->span,
                   .span_batch = s->span_batch,
                   .first_key = s->first_key,
                   .scale = s->scale,
                   .cap = s->softcap,
                   .causal = s->causal,
                   .keep = 1,
                   .q = q,
                   .k = k,
                   .v = v};

    if (s->mask)
        add_mask(&a, dtype, s);
    if (s->p > 0)
        add_dropout(&a, s);
    return a;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Rows of tiles have 32 << n elements; with one or two times the rows, or with more. */
static const char *const widths[][3] = {{"w32", "w32_tall", "w64_more"},
                                        {"w64", "w64_tall", "w64_more"},
                                        {"w128", "w128", "w128_more"},
                                        {"w256_more", "w256_more", "w256_more"}};
enum { TALL = 1, MORE };
enum { FORWARD_TILES = 2, DQ_TILES = 3, BACK_TILES = 4 }; /* of attention.cu, at least */
/* Bytes beside tiles of attention_half.cu, where rows are keys. */
enum { KNOWN = ATTENTION_HALF_SIDE * 2 * (int)sizeof(float), KEPT = ATTENTION_HALF_SIDE * 8 };

static bool has_more(const attending *a)
{
    return a->mask || a->drops || a->window || a->span || a->cap != 0;
}

static int width_of(const attending *a)
{
    bool more = has_more(a);

    return a->width <= 32 && !more ? 0 : a->width <= 64 ? 1 : a->width <= HALF_WIDTH ? 2 : 3;
}

static bool is_by_warps(sherd_dtype dtype, const attending *a)
{
    return sherd__is_half(dtype) && a->width <= HALF_WIDTH;
}

/* Queries or keys of a tile of attention.cu. */
static int side_of(sherd_dtype dtype, int64_t width)
{
    return 16 * ATTENTION_EACH / (dtype == SHERD_F64 ? 2 : 1) / (width > HALF_WIDTH ? 2 : 1);
}

/* Bytes of a processor's memory that its blocks share; a block may have 1 KB less. */
static int shared_of(const sherd__device *device)
{
    switch (device->architecture) {
    case 75:
        return 64 << 10;
    case 80:
    case 87:
        return 164 << 10;
    default:
        return (device->architecture < 90 || device->architecture >= 120 ? 100 : 228) << 10;
    }
}

/* How many blocks of so many bytes share a processor, of those that have the registers for it; the
 * driver and kernels take some memory of each. */
static int sharing(const sherd__device *device, int bytes, int most)
{
    enum { TAKEN = 3 << 10 };

    return (int)sherd__min(most, shared_of(device) / (bytes + TAKEN));
}

/* Bytes of a block with so many tiles of attention.cu and one of scores; *tile: of one of them. */
static int plain_bytes(sherd_dtype dtype, const attending *a, int tiles, int *tile)
{
    int width = 32 << width_of(a), side = side_of(dtype, a->width);
    int element = (int)sherd_dtype_bytes(sherd__statistics_dtype(dtype)),
        gap = ATTENTION_PIECE / element;

    *tile = side * (width + gap) * element;
    return tiles * *tile + side * (side + gap) * element;
}

/* The same of attention_half.cu, with tiles of the block's own rows and two buffers of two. */
static int half_bytes(const attending *a, int own_tiles, int rows)
{
    int width = 32 << width_of(a);

    return (own_tiles * rows + 4 * ATTENTION_HALF_SIDE) * (width + ATTENTION_HALF_GAP) * 2;
}

/* As wide as the kernel for the gradient of a mask takes it. */
static attending for_dmask(const attending *a)
{
    attending wider = *a;

    wider.width = sherd__max(a->width, HALF_WIDTH);
    return wider;
}

/* The most that a block of any kernel has, with one tile for each that it needs. */
static int most_bytes(sherd_dtype dtype, const attending *a, sherd__attending_pass pass)
{
    bool back = pass != SHERD__ATTENDING_FORWARD;
    attending wider = for_dmask(a);
    int tile, bytes = plain_bytes(dtype, a, back ? BACK_TILES : FORWARD_TILES, &tile);

    if (is_by_warps(dtype, a))
        bytes = half_bytes(a, back ? 2 : 1, ATTENTION_HALF_SIDE) + (back ? 2 * (KNOWN + KEPT) : 0);
    if (pass == SHERD__ATTENDING_TO_MASK) {
        plain_bytes(dtype, &wider, 0, &tile);
        bytes = (int)sherd__max(bytes, BACK_TILES * tile);
    }
    return bytes;
}

bool sherd__device_attends(const sherd__device *device, sherd_dtype dtype,
                           const sherd__attending *s, sherd__attending_pass pass)
{
    const attending a = {.width = s->width,
                         .window = s->window,
                         .cap = s->softcap,
                         .span = s->span,
                         .mask = s->mask,
                         .drops = s->p > 0};

    return sherd__device_computes(dtype) && s->width <= MOST_WIDTH &&
           (!s->mask || (mask_kind_of(dtype, s->mask_dtype) >= 0 && s->softcap == 0)) &&
           sharing(device, most_bytes(dtype, &a, pass), 1) > 0;
}

/*
 * Launch `blocks` blocks for each tile of `length`. A block has shared memory for `tiles` tiles and
 * one of scores, and for a spare tile if that leaves as many blocks on a processor.
 */
static void launch_plain(sherd__device *device, const char *family, sherd_dtype dtype,
                         int64_t blocks, int64_t length, int tiles, attending *args)
{
    bool more = has_more(args);
    int which = width_of(args), side = side_of(dtype, args->width), most = which == 0 ? 3 : 2;
    int tile, bytes = plain_bytes(dtype, args, tiles, &tile);
    sherd__kernel kernel = {SHERD__PROGRAM_ATTENTION, family, widths[which][more ? MORE : 0], dtype,
                            SHERD_DTYPE_NONE};

    if (tiles == FORWARD_TILES && which == 1 && dtype == SHERD_F32)
        most = 3;
    args->spare = sharing(device, bytes, most) == sharing(device, bytes + tile, most);
    sherd__launch_grid grid = {blocks * sherd__ceil_div(length, side), ATTENTION_THREADS,
                               bytes + (args->spare ? tile : 0)};
    sherd__device_launch(device, &kernel, grid, args, sizeof *args);
}

/*
 * The same for 16 bits: shared memory for `own_tiles` tiles of the block's own rows, two buffers of
 * two tiles, and `more` bytes. If there are enough blocks for all processors, each has twice the
 * rows, so that half as much is loaded.
 */
static void launch_half(sherd__device *device, const char *family, sherd_dtype dtype, int64_t heads,
                        int64_t length, int own_tiles, int more, const attending *args)
{
    enum { SIDE = ATTENTION_HALF_SIDE, ENOUGH = 400 };
    int which = width_of(args);
    bool masked = has_more(args);
    bool tall = which < 2 && !masked && heads * sherd__ceil_div(length, 2 * SIDE) >= ENOUGH;
    int rows = tall ? 2 * SIDE : SIDE;
    sherd__kernel kernel = {SHERD__PROGRAM_ATTENTION_HALF, family,
                            widths[which][masked ? MORE : tall], dtype, SHERD_DTYPE_NONE};
    sherd__launch_grid grid = {heads * sherd__ceil_div(length, rows), ATTENTION_HALF_THREADS,
                               half_bytes(args, own_tiles, rows) + more};

    sherd__device_launch(device, &kernel, grid, args, sizeof *args);
}

bool sherd__device_attention(sherd__device *device, sherd_dtype dtype, const sherd__attending *s,
                             void *out, void *log_sum, const void *q, const void *k, const void *v)
{
    int64_t heads = s->batch * s->groups * s->repeat;

    if (!sherd__device_attends(device, dtype, s, SHERD__ATTENDING_FORWARD))
        return false;
    attending args = args_of(dtype, s, q, k, v);
    args.wide = sherd__rows_are_wide(dtype, s->width,
                                     (uintptr_t)q | (uintptr_t)k | (uintptr_t)v | (uintptr_t)out);
    args.out = out;
    args.log_sum = log_sum;
    if (is_by_warps(dtype, &args))
        launch_half(device, "attention_half", dtype, heads, s->queries, 1, 0, &args);
    else
        launch_plain(device, "attention", dtype, heads, s->queries, FORWARD_TILES, &args);
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

static void launch_delta(sherd__device *device, sherd_dtype dtype, int64_t rows,
                         const attending *args)
{
    bool half = is_by_warps(dtype, args);
    int64_t in_block = half ? ATTENTION_THREADS / ATTENTION_DELTA_LANES : WARPS;
    sherd__kernel kernel = {half ? SHERD__PROGRAM_ATTENTION_HALF : SHERD__PROGRAM_ATTENTION,
                            half ? "attention_half_delta" : "attention_delta", NULL, dtype,
                            SHERD_DTYPE_NONE};
    sherd__launch_grid grid = {sherd__min(sherd__ceil_div(rows, in_block), most_blocks),
                               ATTENTION_THREADS, 0};

    sherd__device_launch(device, &kernel, grid, args, sizeof *args);
}

/* A block for each tile of the mask that is not stretched. */
static void launch_dmask(sherd__device *device, sherd_dtype dtype, const attending *args)
{
    const int64_t *stride = args->mask_stride;
    const attending wider = for_dmask(args);
    int64_t blocks = (stride[0] ? args->batch : 1) * (stride[1] ? args->groups : 1) *
                     (stride[2] ? args->repeat : 1);

    int side = side_of(dtype, wider.width), tile;
    plain_bytes(dtype, &wider, 0, &tile);
    sherd__kernel kernel = {SHERD__PROGRAM_ATTENTION, "attention_dmask",
                            widths[width_of(&wider)][MORE], dtype, SHERD_DTYPE_NONE};
    blocks *= stride[3] ? sherd__ceil_div(args->queries, side) : 1;
    blocks *= stride[4] ? sherd__ceil_div(args->keys, side) : 1;
    sherd__launch_grid grid = {blocks, ATTENTION_THREADS, BACK_TILES * tile};
    sherd__device_launch(device, &kernel, grid, args, sizeof *args);
}

static void launch_grad(sherd__device *device, sherd_dtype dtype, const sherd__attending *s,
                        attending *args)
{
    int64_t groups = s->batch * s->groups, heads = groups * s->repeat;
    bool more = has_more(args);

    launch_delta(device, dtype, heads * s->queries, args);
    if (is_by_warps(dtype, args)) {
        launch_half(device, "attention_half_dq", dtype, heads, s->queries, 2, 0, args);
        launch_half(device, "attention_half_dkv", dtype, groups, s->keys, 2,
                    2 * (KNOWN + (more ? KEPT : 0)), args);
    } else {
        launch_plain(device, "attention_dq", dtype, heads, s->queries, DQ_TILES, args);
        launch_plain(device, "attention_dkv", dtype, groups, s->keys, BACK_TILES, args);
    }
}

/* delta is two numbers of a query in attention_half.cu, one elsewhere. */
static void launch_dmask_after(sherd__device *device, sherd_dtype dtype, int64_t rows,
                               attending *args, double *dmask)
{
    args->dmask = dmask;
    if (is_by_warps(dtype, args)) {
        sherd__kernel kernel = {SHERD__PROGRAM_ATTENTION, "attention_delta", NULL, dtype,
                                SHERD_DTYPE_NONE};
        sherd__launch_grid grid = {sherd__min(sherd__ceil_div(rows, WARPS), most_blocks),
                                   ATTENTION_THREADS, 0};
        sherd__device_launch(device, &kernel, grid, args, sizeof *args);
    }
    launch_dmask(device, dtype, args);
}

/* Memory for delta, and if there is no dout, zeroes for it. False: no memory. */
typedef struct workspace {
    sherd__device_block *delta, *zeroes;
} workspace;

static bool take(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t width, bool zeroes,
                 workspace *w)
{
    int64_t statistic = 2 * (int64_t)sherd_dtype_bytes(sherd__statistics_dtype(dtype));
    int64_t bytes = rows * width * (int64_t)sherd_dtype_bytes(dtype);

    *w = (workspace){NULL, NULL};
    if (rows)
        w->delta = sherd__device_take(device, rows * statistic);
    if (bytes && zeroes)
        w->zeroes = sherd__device_take(device, bytes);
    if (w->zeroes)
        sherd__device_set(device, w->zeroes->data, 0, bytes);
    return (!rows || w->delta) && (!bytes || !zeroes || w->zeroes);
}

bool sherd__device_attention_back(sherd__device *device, sherd_dtype dtype,
                                  const sherd__attending *s, const sherd__attending_back *to)
{
    int64_t rows = s->batch * s->groups * s->repeat * s->queries;
    sherd__attending_pass pass =
        to->dmask && s->mask ? SHERD__ATTENDING_TO_MASK : SHERD__ATTENDING_BACK;
    workspace w;

    if (!sherd__device_attends(device, dtype, s, pass))
        return false;
    if (take(device, dtype, rows, s->width, !to->dout, &w)) {
        attending args = args_of(dtype, s, to->q, to->k, to->v);
        args.dout = w.zeroes ? w.zeroes->data : to->dout;
        args.out = (void *)(uintptr_t)(to->dout ? to->out : args.dout); /* only read */
        args.log_sum = (void *)(uintptr_t)to->log_sum;
        args.dlog_sum = to->dlog_sum;
        args.delta = w.delta ? w.delta->data : NULL;
        args.dq = to->dq;
        args.dk = to->dk;
        args.dv = to->dv;
        args.wide = sherd__rows_are_wide(
            dtype, s->width,
            (uintptr_t)to->q | (uintptr_t)to->k | (uintptr_t)to->v | (uintptr_t)args.out |
                (uintptr_t)args.dout | (uintptr_t)to->dq | (uintptr_t)to->dk | (uintptr_t)to->dv);
        launch_grad(device, dtype, s, &args);
        if (to->dmask && s->mask)
            launch_dmask_after(device, dtype, rows, &args,
                               to->dmask + s->first_key * s->mask_stride[4]);
    } else {
        sherd__device_lack(device, "out of GPU memory for the gradient of attention");
    }
    sherd__device_give(device, w.zeroes);
    sherd__device_give(device, w.delta);
    return true;
}

bool sherd__device_attention_grad(sherd__device *device, sherd_dtype dtype,
                                  const sherd__attending *s, void *dq, void *dk, void *dv,
                                  const void *dout, const void *q, const void *k, const void *v,
                                  const void *out, const void *log_sum)
{
    const sherd__attending_back to = {.dq = dq,
                                      .dk = dk,
                                      .dv = dv,
                                      .dout = dout,
                                      .q = q,
                                      .k = k,
                                      .v = v,
                                      .out = out,
                                      .log_sum = log_sum};

    return sherd__device_attention_back(device, dtype, s, &to);
}

/* ---- more keys ------------------------------------------------------------------------------- */

void sherd__device_attention_join(sherd__device *device, sherd_dtype dtype,
                                  const sherd__attending *s, void *out, void *log_sum,
                                  const void *more, const void *more_log_sum)
{
    int64_t rows = s->batch * s->groups * s->repeat * s->queries;
    const attention_join_args args = {.batch = s->batch,
                                      .groups = s->groups,
                                      .repeat = s->repeat,
                                      .queries = s->queries,
                                      .width = s->width,
                                      .out = out,
                                      .log_sum = log_sum,
                                      .more = more,
                                      .more_log_sum = more_log_sum};
    sherd__kernel kernel = {SHERD__PROGRAM_ATTENTION, "attention_join", NULL, dtype,
                            SHERD_DTYPE_NONE};
    sherd__launch_grid grid = {sherd__min(sherd__ceil_div(rows, WARPS), most_blocks),
                               ATTENTION_THREADS, 0};

    sherd__device_launch(device, &kernel, grid, &args, sizeof args);
}
