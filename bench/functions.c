/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every function of kernels/functions.inc, and its gradient: nanoseconds an element, plain and by
 * this machine's best kernels, of 16,384 elements, which stay in the cache. Medians of several
 * runs. Numbers are between 0 and 1; --most 30 draws from -30 to 30.
 *
 *     bench/functions [--dtype f64] [--most M] [part of a name]
 */
#include "kernels/ref.h"
#include "vector/choose.h"

#include <stdio.h>
#include <string.h>

#include "command_line.h"
#include "timing.h"

enum { N = 16384, RUNS = 9 };

static double x[N], dy[N], y[N]; /* or f32 */
static const double parameters[] = {1.75, 20};

typedef struct function {
    const char *name;
    int kind;
    bool two; /* operands */
} function;

static const function functions[] = {
#define UNARY0(name, NAME, ...) {#name, SHERD__##NAME, false},
#define UNARY1(name, NAME, ...) {#name, SHERD__##NAME, false},
#define UNARY2(name, NAME, ...) {#name, SHERD__##NAME, false},
#define BINARY(name, NAME, ...) {#name, SHERD__##NAME, true},
#include "kernels/functions.inc"
};

static void run(const sherd__kernels *k, const function *f, bool gradient)
{
    const int64_t n = N, one = 1;

    if (f->two && gradient)
        k->binary_grad((sherd__binary_kind)f->kind, 0, 1, &n, y, dy, x, &one, dy, &one);
    else if (f->two)
        k->binary((sherd__binary_kind)f->kind, 1, &n, y, x, &one, dy, &one);
    else if (gradient)
        k->unary_grad((sherd__unary_kind)f->kind, n, y, x, dy, parameters);
    else
        k->unary((sherd__unary_kind)f->kind, n, y, x, parameters);
}

/* Nanoseconds of an element. */
static double time_of(const sherd__kernels *k, const function *f, bool gradient)
{
    double time[RUNS];
    enum { CALLS = 4 };

    run(k, f, gradient);
    for (int i = 0; i < RUNS; i++) {
        double begin = seconds();
        for (int c = 0; c < CALLS; c++)
            run(k, f, gradient);
        time[i] = (seconds() - begin) / CALLS;
    }
    return 1e9 * median(time, RUNS) / N;
}

int main(int argc, char **argv)
{
    const char *part = "", *dtype = "f32";
    int64_t most = 1;
    const bench_option options[] = {{"--dtype", "f32|f64", .text = &dtype},
                                    {"--most", "M", .number = &most},
                                    {NULL, "PART", .text = &part}};
    static sherd__kernel_set set;

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    sherd__kernels_choose(&set);
    bool wide = strcmp(dtype, "f64") == 0;
    const sherd__kernels *plain = wide ? &sherd__ref_f64 : &sherd__ref_f32;
    const sherd__kernels *fast = wide ? &set.f64 : &set.f32;
    double least = most > 1 ? -(double)most : 0;
    plain->uniform(N, x, least, (double)most, (sherd__key){{1, 0}, {0, 0}}, 0);
    plain->uniform(N, dy, 0, 1, (sherd__key){{2, 0}, {0, 0}}, 0);
    printf("%-20s %8s %8s %10s %8s ns\n", dtype, "plain", "fast", "gradient", "fast");
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        const function *f = &functions[i];
        if (strstr(f->name, part))
            printf("%-20s %8.2f %8.2f %10.2f %8.2f\n", f->name, time_of(plain, f, false),
                   time_of(fast, f, false), time_of(plain, f, true), time_of(fast, f, true));
    }
    return 0;
}
