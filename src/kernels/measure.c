/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of this core, measured in a few tens of milliseconds: what `sherd info` and the benchmarks compare with. */
#include "kernels.h"

#include <stdlib.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { CHAINS = 8, ROUNDS = 20000 };

/* Independent chains of multiply and add in registers: plain C reaches what the compiler makes of it. */
static double chains(float *out)
{
    float x[CHAINS];

    for (int i = 0; i < CHAINS; i++)
        x[i] = (float)i;
    double begin = seconds();
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < CHAINS; i++)
            x[i] = x[i] * 0.999f + 1.0f;
    double time = seconds() - begin;
    for (int i = 0; i < CHAINS; i++)
        *out += x[i];
    return 2.0 * CHAINS * ROUNDS / time * 1e-9;
}

double sherd__measure_peak(void)
{
    volatile float keep;
    float total = 0;
    double best = 0, begin = seconds();

    while (seconds() - begin < 0.02) {
        double rate = chains(&total);
        best = rate > best ? rate : best;
    }
    keep = total;
    (void)keep;
    return best;
}

/* The best of three products of 1024^3, after one to warm up; 0 if there is no memory. */
double sherd__measure_gemm(const sherd__kernels *kernels)
{
    enum { N = 1024 };
    float *a = malloc(3 * sizeof(float) * N * N);
    double best = 0;

    if (!a)
        return 0;
    kernels->fill(a, 3 * (int64_t)N * N, 0.5);
    for (int i = 0; i < 4; i++) {
        double begin = seconds();
        kernels->gemm(false, false, N, N, N, 1, a, N, a + N * N, N, 0, a + 2 * N * N, N);
        double rate = 2.0 * N * N * N / (seconds() - begin) * 1e-9;
        best = i && rate > best ? rate : best;
    }
    free(a);
    return best;
}
