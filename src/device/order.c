/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorting on the GPU: launches of order.cu, and memory for the keys of long rows and their counts.
 */
#include "box.h"
#include "inside.h"
#include "order.h"

#include "base/num.h"
#include "programs/order_args.h"

enum { LEAST_THREADS = 32, MOST_THREADS = 1024, SCAN_THREADS = 256, SCAN_BLOCKS = 1024 };

/* ---- by digits ------------------------------------------------------------------------------- */

static void launch_pass(sherd__device *device, int bytes, const radix_count_args *args)
{
    const char *kind = bytes == 8 ? "key_8" : "key_4";
    const sherd__kernel count = {SHERD__PROGRAM_ORDER, "radix_count", kind, SHERD_DTYPE_NONE,
                                 SHERD_DTYPE_NONE};
    const sherd__kernel scan = {SHERD__PROGRAM_ORDER, "radix_scan", "key_4", SHERD_DTYPE_NONE,
                                SHERD_DTYPE_NONE};
    const sherd__kernel move = {SHERD__PROGRAM_ORDER, "radix_move", kind, SHERD_DTYPE_NONE,
                                SHERD_DTYPE_NONE};
    const sherd__launch_grid tiles = {args->rows * args->tiles, RADIX_THREADS, 0};
    int64_t warps = SCAN_THREADS / 32;

    sherd__device_launch(device, &count, tiles, args, sizeof *args);
    sherd__device_launch(
        device, &scan,
        (sherd__launch_grid){sherd__min(sherd__ceil_div(args->rows * RADIX, warps), SCAN_BLOCKS),
                             SCAN_THREADS, 0},
        args, sizeof *args);
    if (!device->lacks) /* otherwise there are no counts, and it would write anywhere */
        sherd__device_launch(device, &move, tiles, args, sizeof *args);
}

int sherd__device_radix(sherd__device *device, const sherd__radix *r)
{
    radix_count_args args = {
        .rows = r->rows, .n = r->n, .tiles = sherd__ceil_div(r->n, RADIX_TILE)};
    int64_t counts = r->rows * RADIX * (args.tiles + 1) * (int64_t)sizeof *args.count;
    int now = 0;

    if (counts == 0 || r->n == 0)
        return 0;
    sherd__device_block *room = sherd__device_take(device, counts);
    if (!room) {
        sherd__device_lack(device, "out of GPU memory for sorting");
        return -1;
    }
    args.count = room->data;
    args.total = args.count + r->rows * RADIX * args.tiles;
    /* At least one pass, even if there are no bits to sort by, since it writes positions. */
    for (int shift = r->low; shift < r->high || shift == r->low; shift += RADIX_BITS, now = !now) {
        args.shift = shift;
        args.key = r->key[now];
        args.position = shift == r->low ? NULL : r->position[now];
        args.to_key = r->key[!now];
        args.to_position = r->position[!now];
        launch_pass(device, r->bytes, &args);
    }
    sherd__device_give(device, room);
    return device->lacks ? -1 : now;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* From which bit on keys of a dtype may differ, in whole digits. */
static int low_bit(sherd_dtype dtype)
{
    return dtype == SHERD_BF16 ? 16 : dtype == SHERD_F16 ? 8 : 0;
}

/*
 * The bit above the highest one by which keys differ: keys of bytes have the byte, or its
 * complement, in the low 8 bits.
 */
static int high_bit(sherd_dtype dtype, int bytes)
{
    return sherd_dtype_bytes(dtype) == 1 ? 8 : 8 * bytes;
}

static void order_all(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t n,
                      int64_t inner, int64_t k, bool descending, void *values, int32_t *index,
                      const void *src)
{
    static const char *const unit[] = {
        [1] = "unit_1", [2] = "unit_2", [4] = "unit_4", [8] = "unit_8"};
    int bytes = dtype == SHERD_F64 || dtype == SHERD_I64 ? 8 : 4;
    int64_t all = rows * n, element = bytes + (int64_t)sizeof(int32_t);
    const sherd__kernel keys = {SHERD__PROGRAM_ORDER, "order_keys", NULL, dtype, SHERD_DTYPE_NONE};
    const sherd__kernel write = {SHERD__PROGRAM_ORDER, "order_write",
                                 unit[sherd_dtype_bytes(dtype)], SHERD_DTYPE_NONE,
                                 SHERD_DTYPE_NONE};
    sherd__device_block *room = sherd__device_take(device, 2 * all * element);

    if (!room) {
        sherd__device_lack(device, "out of GPU memory for sorting");
        return;
    }
    char *key = room->data;
    int32_t *position = (int32_t *)(void *)(key + 2 * all * bytes);
    const sherd__radix r = {.rows = rows,
                            .n = n,
                            .bytes = bytes,
                            .low = low_bit(dtype),
                            .high = high_bit(dtype, bytes),
                            .key = {key, key + all * bytes},
                            .position = {position, position + all}};
    const order_keys_args args = {rows, n, inner, src, key, descending};
    sherd__device_launch(device, &keys, sherd__grid_of(all), &args, sizeof args);
    int at = sherd__device_radix(device, &r);
    const order_write_args to = {rows, n, inner, k, r.position[at > 0], src, values, index};
    if (at >= 0)
        sherd__device_launch(device, &write, sherd__grid_of(rows * k), &to, sizeof to);
    sherd__device_give(device, room);
}

void sherd__device_order(sherd__device *device, sherd_dtype dtype, const int64_t size[3], int64_t k,
                         bool descending, void *values, int32_t *index, const void *src)
{
    int64_t rows = size[0] * size[2], n = size[1], threads = LEAST_THREADS;
    const order_select_args args = {rows, n, size[2], k, src, values, index, descending};
    const sherd__kernel select = {SHERD__PROGRAM_ORDER, "order_select", NULL, dtype,
                                  SHERD_DTYPE_NONE};

    if (rows * k == 0)
        return;
    if (n > SELECT_MOST && k > SELECT_MOST) {
        order_all(device, dtype, rows, n, size[2], k, descending, values, index, src);
        return;
    }
    while (threads < MOST_THREADS && 2 * threads < n)
        threads *= 2;
    sherd__device_launch(device, &select, (sherd__launch_grid){rows, (int)threads, 0}, &args,
                         sizeof args);
}
