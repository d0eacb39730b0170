/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of running.cu. Running sums have a block for each row, or a thread for each column, and
 * more if there are few of them; everything else has a thread for each line.
 */
#include "running.h"

#include "box.h"
#include "base/num.h"
#include "programs/running_args.h"

enum {
    THREADS = 256,
    BLOCKS = 132 * 4,
    AT_ONCE = 4,                        /* elements of a thread, as in running.cu */
    LEAST_PART = 4 * AT_ONCE * THREADS, /* of a row */
    LEAST_ROWS = 64,                    /* of a part of a column */
    MOST_BYTES = 8                      /* of a sum */
};

static void launch(sherd__device *device, const char *family, sherd_dtype dtype, int64_t blocks,
                   const running_args *args)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_RUNNING, family, NULL, dtype, SHERD_DTYPE_NONE};

    sherd__device_launch(
        device, &kernel,
        (sherd__launch_grid){.blocks = sherd__min(blocks, BLOCKS * 4), .threads = THREADS}, args,
        sizeof *args);
}

/* `parts` of them, each a multiple of `unit`. */
static void cut(running_args *args, int64_t parts, int64_t unit)
{
    int64_t units = sherd__ceil_div(sherd__ceil_div(args->n, sherd__max(1, parts)), unit);

    args->length = units * unit;
    args->parts = sherd__ceil_div(args->n, args->length);
}

static void run(sherd__device *device, sherd_dtype dtype, running_args *args)
{
    bool rows = args->inner == 1;
    int64_t sums = args->outer * args->parts * args->inner;
    int64_t blocks = rows ? sums : sherd__ceil_div(sums, THREADS);
    sherd__device_block *totals = NULL;

    if (args->parts > 1) {
        totals = sherd__device_take(device, sums * MOST_BYTES);
        if (!totals) {
            sherd__device_lack(device, "out of GPU memory for the parts of a running sum");
            return;
        }
        args->totals = totals->data;
        launch(device, rows ? "row_totals" : "column_totals", dtype, blocks, args);
        launch(device, "running_starts", dtype, sherd__ceil_div(args->outer * args->inner, THREADS),
               args);
    }
    launch(device, rows ? "running_rows" : "running_columns", dtype, blocks, args);
    sherd__device_give(device, totals);
}

void sherd__device_running_sum(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                               bool reverse, void *dst, const void *src)
{
    size_t group = AT_ONCE * sherd_dtype_bytes(dtype);
    running_args args = {.dst = dst,
                         .src = src,
                         .outer = size[0],
                         .n = size[1],
                         .inner = size[2],
                         .reverse = reverse};

    if (args.outer == 0 || args.n == 0 || args.inner == 0)
        return;
    if (args.inner == 1) {
        args.wide =
            args.n % AT_ONCE == 0 && sherd__is_aligned(dst, group) && sherd__is_aligned(src, group);
        cut(&args, sherd__min(args.n / LEAST_PART, BLOCKS / args.outer), AT_ONCE * THREADS);
    } else {
        int64_t columns = sherd__ceil_div(args.outer * args.inner, THREADS);
        cut(&args, sherd__min(args.n / LEAST_ROWS, BLOCKS / columns), AT_ONCE);
    }
    run(device, dtype, &args);
}

/* ---- lines ----------------------------------------------------------------------------------- */

bool sherd__device_runs(const int64_t size[3])
{
    enum { SHORT = 4096, MUCH = 256 };

    return size[1] <= SHORT || size[1] / MUCH <= size[0] * size[2];
}

static void run_lines(sherd__device *device, sherd_dtype dtype, const char *law,
                      const int64_t size[3], line_args args)
{
    bool rows = size[2] == 1;
    const sherd__kernel kernel = {SHERD__PROGRAM_RUNNING, rows ? "line_rows" : "line_columns", law,
                                  dtype, SHERD_DTYPE_NONE};
    int64_t lines = size[0] * size[2];

    args.outer = size[0];
    args.n = size[1];
    args.inner = size[2];
    if (args.n > 0)
        sherd__device_launch(device, &kernel,
                             (sherd__launch_grid){.blocks = sherd__ceil_div(lines, LINE_THREADS),
                                                  .threads = LINE_THREADS},
                             &args, sizeof args);
}

void sherd__device_running_product(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                                   void *dst, const void *src)
{
    run_lines(device, dtype, "products", size, (line_args){.dst = dst, .src = src});
}

void sherd__device_running_log_sum(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                                   void *dst, const void *src)
{
    run_lines(device, dtype, "log_sums", size, (line_args){.dst = dst, .src = src});
}

void sherd__device_recurrence(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                              sherd__course course, void *dst, const void *a, const void *b)
{
    run_lines(
        device, dtype, "recurrences", size,
        (line_args){
            .dst = dst, .src = a, .more = b, .reverse = course.reverse, .behind = course.behind});
}

void sherd__device_running_most(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                                bool least, void *dst, int32_t *index, const void *src)
{
    run_lines(device, dtype, least ? "least" : "largest", size,
              (line_args){.dst = dst, .where = index, .src = src});
}
