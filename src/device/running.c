/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of running.cu: one block a row, or of few long rows several. */
#include "running.h"

#include "base/num.h"
#include "box.h"
#include "running_args.h"

enum {
    THREADS = 256,
    BLOCKS = 132 * 4,
    AT_ONCE = THREADS * 4,    /* elements of a block, as in running.cu */
    LEAST_PART = 4 * AT_ONCE, /* of a row */
    MOST_BYTES = 8            /* of a sum */
};

static void launch(sherd__device *device, const char *family, sherd_dtype dtype, int64_t blocks,
                   const void *args, size_t bytes)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_RUNNING, family, NULL, dtype, SHERD_DTYPE_NONE};

    sherd__device_launch(
        device, &kernel,
        (sherd__grid){.blocks = sherd__min(blocks, BLOCKS * 4), .threads = THREADS}, args, bytes);
}

static void run_rows(sherd__device *device, sherd_dtype dtype, running_rows_args args)
{
    int64_t parts = sherd__max(1, sherd__min(args.n / LEAST_PART, BLOCKS / args.outer));
    sherd__device_block *totals = NULL;

    args.length = sherd__max(1, sherd__ceil_div(sherd__ceil_div(args.n, parts), AT_ONCE)) * AT_ONCE;
    args.parts = sherd__max(1, sherd__ceil_div(args.n, args.length));
    if (args.parts > 1) {
        totals = sherd__device_take(device, args.outer * args.parts * MOST_BYTES);
        if (!totals) {
            sherd__device_lack(device, "out of GPU memory for the parts of a running sum");
            return;
        }
        args.totals = totals->data;
        launch(device, "running_totals", dtype, args.outer * args.parts, &args, sizeof args);
        launch(device, "running_starts", dtype, sherd__ceil_div(args.outer, THREADS), &args,
               sizeof args);
    }
    launch(device, "running_rows", dtype, args.outer * args.parts, &args, sizeof args);
    sherd__device_give(device, totals);
}

void sherd__device_running_sum(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                               bool reverse, void *dst, const void *src)
{
    const running_columns_args columns = {dst, src, size[0], size[1], size[2], reverse};

    if (size[0] == 0 || size[1] == 0 || size[2] == 0)
        return;
    if (size[2] == 1)
        run_rows(device, dtype,
                 (running_rows_args){
                     .dst = dst, .src = src, .outer = size[0], .n = size[1], .reverse = reverse});
    else
        launch(device, "running_columns", dtype, sherd__ceil_div(size[0] * size[2], THREADS),
               &columns, sizeof columns);
}
