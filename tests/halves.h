/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the 16-bit tables share: each kernel runs beside the f32 one on the same
 * numbers. What is stored may differ from it by one rounding (half a step) and by what f32 sums
 * differ in another order.
 */
#ifndef SHERD_TESTS_HALVES_H
#define SHERD_TESTS_HALVES_H

#include "check.h"
#include "fast_sets.h"
#include "vector/choose.h"

enum { ROOM = 6000, VERSIONS = FAST_SETS + 2, TYPES = 2, INS = 4, OUTS = 3 };

typedef struct version {
    sherd__kernels half[TYPES];
} version;

static inline int versions(version *out)
{
    fast_set sets[FAST_SETS];
    int n = fast_sets(sets);

    for (int i = 0; i < n; i++)
        sets[i].half(&out[i].half[0], &out[i].half[1]);
    sherd__install_half_ref(&out[n].half[0], &out[n].half[1]);
    n++;
    sherd__kernel_set set; /* with what is put over these */
    sherd__kernels_choose(&set);
    out[n].half[0] = set.bf16;
    out[n].half[1] = set.f16;
    return n + 1;
}

/* Largest error of one rounding, relative. */
static const double rounding[TYPES] = {1.0 / 256, 1.0 / 2048};

/* Inputs that both know exactly, as halves and as floats; results of both. `end` marks what nobody
 * may touch. */
typedef struct arrays {
    uint16_t in[INS][ROOM], out[OUTS][ROOM];
    float wide_in[INS][ROOM], wide_out[OUTS][ROOM], got[ROOM];
    float stats[2][ROOM]; /* of the halves; of f32 */
    float more[2][ROOM];
    struct { /* what was drawn last */
        const sherd__kernels *by;
        double low, high;
        uint16_t in[INS][ROOM];
    } drawn;
} arrays;

static arrays *a;

static inline void draw(const sherd__kernels *k, double low, double high)
{
    for (uint64_t i = 0; i < INS; i++)
        k->uniform(ROOM, a->drawn.in[i], low, high, sherd__philox_key(5, i, 0), 0);
    a->drawn.by = k;
    a->drawn.low = low;
    a->drawn.high = high;
}

static inline void start(const sherd__kernels *k, double low, double high)
{
    if (a->drawn.by != k || a->drawn.low != low || a->drawn.high != high)
        draw(k, low, high);
    memcpy(a->in, a->drawn.in, sizeof a->in);
    for (int i = 0; i < INS; i++)
        k->widen(ROOM, a->wide_in[i], a->in[i]);
    for (int i = 0; i < OUTS; i++)
        for (int j = 0; j < ROOM; j++) {
            a->out[i][j] = 0x4242;
            a->wide_out[i][j] = 0;
        }
    memset(a->stats, 0, sizeof a->stats);
    memset(a->more, 0, sizeof a->more);
}

/* n results within one rounding and a little; behind them nothing was touched. */
static inline void compare(const sherd__kernels *k, int type, int out, int64_t n, double tolerance,
                           const char *what)
{
    k->widen(ROOM, a->got, a->out[out]);
    for (int64_t i = 0; i < ROOM; i++) {
        double x = (double)a->wide_out[out][i], y = (double)a->got[i];
        bool good = i < n ? x == y || (isnan(x) && isnan(y)) ||
                                fabs(x - y) <= rounding[type] * fabs(x) + tolerance + 1e-7
                          : a->out[out][i] == 0x4242;
        if (good)
            continue;
        fprintf(stderr, "%s, %s, type %d: element %lld of %d: %.9g is %.9g\n", k->name, what, type,
                (long long)i, out, x, y);
        CHECK(false);
        return;
    }
}

typedef void (*check_kernel)(const sherd__kernels *k, int type);

static inline void for_all(check_kernel check)
{
    version all[VERSIONS];
    int n = versions(all);

    a = calloc(1, sizeof *a);
    for (int v = 0; v < n; v++)
        for (int type = 0; type < TYPES; type++) {
            start(&all[v].half[type], -2, 2);
            check(&all[v].half[type], type);
        }
    free(a);
}

static const sherd__kernels *const f32 = &sherd__ref_f32;
static const int64_t lengths[] = {0, 1, 7, 16, 17, 511, 512, 513, 1025, 2000};

#endif
