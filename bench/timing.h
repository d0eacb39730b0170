/* SPDX-License-Identifier: Apache-2.0 */
/* What every benchmark does: read the clock, and sort what it read. */
#ifndef SHERD_BENCH_TIMING_H
#define SHERD_BENCH_TIMING_H

#include <stdlib.h>
#include <time.h>

static inline double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static inline void sort_times(double *x, int count)
{
    qsort(x, (size_t)count, sizeof *x, compare_times);
}

/* Sorts them. */
static inline double median(double *x, int count)
{
    sort_times(x, count);
    return count % 2 ? x[count / 2] : 0.5 * (x[count / 2 - 1] + x[count / 2]);
}

#endif
