/* SPDX-License-Identifier: Apache-2.0 */
/* Subjects (bounds.h) that are functions of no table: what runs along a dim, windows, vectors. */
#ifndef SHERD_TESTS_BOUNDS_LINES_H
#define SHERD_TESTS_BOUNDS_LINES_H

#include "bounds_pieces.h"
#include "kernels/cross.h"
#include "kernels/fold.h"
#include "kernels/running.h"

static int64_t draw_lines(trial *t, int64_t size[3])
{
    size[0] = short_length(t, "outer");
    size[1] = length(t, "n");
    size[2] = short_length(t, "inner");
    return size[0] * size[1] * size[2];
}

/* Numbers of which many may be multiplied. */
static void try_running_product(trial *t)
{
    int64_t size[3], n = draw_lines(t, size);

    range(t, -1, 1, 1);
    whole_range(t, -1, 1);
    const void *src = in(t, "src", n);
    void *dst = out(t, "dst", n);
    ready(t);
    sherd__running_product(dtype_now(t), size, dst, src);
}

static void try_running_most(trial *t)
{
    int64_t size[3], n = draw_lines(t, size);
    bool least = draw(t, "least", 2);

    range(t, -3, 3, 1);
    const void *src = in(t, "src", n);
    int32_t *index = part_of(t, "index", WRITTEN, I32S, n);
    ready(t);
    sherd__running_most(dtype_now(t), size, least, index, src);
}

static void try_running_log_sum(trial *t)
{
    int64_t size[3], n = draw_lines(t, size);
    const void *src = in(t, "src", n);
    void *dst = out(t, "dst", n);

    ready(t);
    sherd__running_log_sum(dtype_now(t), size, dst, src);
}

static void try_recurrence(trial *t)
{
    int64_t size[3], n = draw_lines(t, size);
    sherd__course course = {draw(t, "reverse", 2), draw(t, "behind", 2)};

    range(t, -1, 1, 1.0 / 64);
    const void *a = in(t, "a", n), *b = in(t, "b", n);
    void *dst = out(t, "dst", n);
    t->slack = 8;
    ready(t);
    sherd__recurrence(dtype_now(t), size, course, dst, a, b);
}

static void try_fold(trial *t)
{
    sherd__fold_of f = {.outer = short_length(t, "outer"),
                        .n = length(t, "n"),
                        .inner = short_length(t, "inner"),
                        .windows = short_length(t, "windows"),
                        .size = 1 + draw(t, "size", 5),
                        .step = 1 + draw(t, "step", 7),
                        .first = draw(t, "first", 9) - 4};
    const void *src = in(t, "src", f.outer * f.windows * f.inner * f.size);
    void *dst = out(t, "dst", f.outer * f.n * f.inner);

    t->slack = 8;
    ready(t);
    sherd__fold_windows_of(dtype_now(t), &f, dst, src);
}

/* [rows, n, 3], with a or b the same for all rows. */
static void try_cross(trial *t)
{
    int64_t rows = short_length(t, "rows"), n = length(t, "n"), size[] = {rows, n};
    bool alike = draw(t, "alike", 2);
    const int64_t stride[] = {3 * n, 3, 1}, same[] = {0, 3, 1};
    const void *a = in(t, "a", rows * n * 3), *b = in(t, "b", (alike ? 1 : rows) * n * 3);
    void *dst = out(t, "dst", rows * n * 3);

    t->slack = 8;
    ready(t);
    if (rows * n > 0)
        sherd__cross(dtype_now(t), 3, size, dst, a, stride, b, alike ? same : stride);
}

#endif
