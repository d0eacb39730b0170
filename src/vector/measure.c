/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of this core, measured in a few tens of milliseconds: what `sherd info` and the benchmarks
 * compare with. */
#include "fast.h"
#include "choose.h"
#include "measure.h"
#include "kernels/engine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#ifndef SHERD__SIMD128
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
#endif

typedef double spin_function(int64_t rounds);

/* Chosen before the clock starts: to ask what a processor has can take as long, on a virtual one,
 * as a tenth of a spin. */
static spin_function *fastest_spin(void)
{
#if defined(__x86_64__)
    if (sherd__has_avx512())
        return sherd__avx512.spin;
    if (sherd__has_avx2())
        return sherd__avx2.spin;
#endif
#ifdef SHERD__SIMD128
    return sherd__simd128.spin;
#else
    return spin_plain;
#endif
}

/* That of bf16, NULL: there is none. */
static spin_function *bf16_spin(void)
{
#ifdef SHERD_HAVE_AVX512_BF16
    return sherd__has_fast_pairs() ? sherd__spin_pairs : NULL;
#else
    return NULL;
#endif
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Spins of a quarter of a millisecond, until `end`. */
static double spin_until(double end, double best, spin_function *spin)
{
    do {
        double start = seconds();
        best = larger(best, spin(20000) / (seconds() - start) * 1e-9);
    } while (seconds() < end);
    return best;
}

double sherd__measure_now(double length)
{
    spin_function *spin = fastest_spin();
    double begin = seconds(), flops = 0, now;

    do {
        flops += spin(20000);
        now = seconds();
    } while (now < begin + length);
    return flops / (now - begin) * 1e-9;
}

enum { SIDE = 1024 };
static const sherd__product measured = {
    .dtype = SHERD_F32, .result = SHERD_F32, .m = SIDE, .n = SIDE, .k = SIDE};

/* Whether products are made of parts of bf16 (product_f32_amx.c), for which the rate of f32 is no
 * peak. */
static bool is_in_parts(const sherd__kernel_set *set)
{
    return set->tiles && sherd__has_amx() && set->f32.product_fits &&
           set->f32.product_fits(&measured);
}

/* `a` is three matrices, and behind them room for the table's own product. */
static double multiply(const sherd__kernel_set *set, sherd__engine *engine, bool parts, float *a)
{
    const float *b = a + SIDE * SIDE;
    float *c = a + 2 * SIDE * SIDE;
    bool own = strcmp(sherd__gemm_name(set), set->f32.gemm_name) == 0;
    double begin = seconds();

    if (parts)
        set->f32.product(&measured, c, a, b, NULL, c + SIDE * SIDE);
    else if (!engine || own || set->product(engine, &measured, c, a, b, NULL) != SHERD__DONE)
        set->f32.gemm(false, false, SIDE, SIDE, SIDE, 1, a, SIDE, b, SIDE, 0, c, SIDE);
    return 2.0 * SIDE * SIDE * SIDE / (seconds() - begin) * 1e-9;
}

/*
 * In turns, since cores change their speed from one millisecond to the next, and the best of each:
 * the machine's, not a neighbour's. What a product of multiply-adds reaches the machine can do,
 * whatever spinning says.
 */
sherd__rates sherd__measure_rates(const sherd__kernel_set *set)
{
    enum { COUNT = 3 * SIDE * SIDE, TURNS = 4 };
    bool parts = is_in_parts(set);
    size_t more = parts ? (size_t)set->f32.product_workspace(&measured) : 0;
    spin_function *f32 = fastest_spin(), *bf16 = bf16_spin();
    sherd__rates best = {0, 0, 0};
    sherd__heap heap = {0};
    sherd__engine *engine = sherd__engine_create(&heap);
    float *a = malloc(COUNT * sizeof *a + more);

    if (a)
        set->f32.fill(a, COUNT, 0.5);
    for (int i = 0; i < TURNS; i++) {
        best.peak = spin_until(seconds() + 0.005, best.peak, f32);
        if (bf16)
            best.bf16 = spin_until(seconds() + 0.002, best.bf16, bf16);
        double rate = a ? multiply(set, engine, parts, a) : 0;
        best.gemm = i ? larger(best.gemm, rate) : 0; /* the first one warms up */
        best.peak = larger(best.peak, parts ? 0 : rate);
    }
    free(a);
    sherd__engine_destroy(engine);
    if (!bf16 && !sherd__has_amx())
        best.bf16 = best.peak;
    return best;
}
