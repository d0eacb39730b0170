/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of this core, measured in a few tens of milliseconds: what `sherd info` and the benchmarks
 * compare with. */
#include "fast.h"

#include <stdlib.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Plain C, for machines without a fast file: what the compiler makes of independent chains. */
static double spin_plain(int64_t rounds)
{
    enum { CHAINS = 8 };
    float x[CHAINS], total = 0;

    for (int i = 0; i < CHAINS; i++)
        x[i] = (float)i;
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++)
            x[i] = x[i] * 0.999f + 1.0f;
    for (int i = 0; i < CHAINS; i++)
        total += x[i];
    return 2.0 * CHAINS * (double)rounds + (total < 0 ? 1 : 0);
}

static double spin(int64_t rounds)
{
#if defined(__x86_64__)
    if (sherd__has_avx512())
        return sherd__spin_avx512(rounds);
    if (sherd__has_avx2())
        return sherd__spin_avx2(rounds);
#endif
    return spin_plain(rounds);
}

/* The best of the runs that fit in 20 ms: the machine's, not a neighbour's, rate. */
double sherd__measure_peak(void)
{
    double best = 0, begin = seconds();

    while (seconds() - begin < 0.02) {
        double start = seconds();
        double rate = spin(20000) / (seconds() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
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
