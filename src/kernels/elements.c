/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions element by element and the softmax, for all types that have fractions. Plain loops at
 * -O3: arithmetic runs at the speed of memory, what calls libm at 3 to 10 ns an element. Most
 * have vectors: fast_elements.inc, fast_soft.inc.
 */
#include <tgmath.h>

#include "half.h"
#include "kernels.h"
#include "quotients.h"
#include "ref.h"
#include "rows.h"

#include "base/num.h"

/* The tanh form is computed in f64: near -3 the halves of 1 + tanh cancel. */
static const double slope_at_0 = 0.7978845608028654; /* sqrt(2 / pi) */
static const double cubic = 0.044715;

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(slope_at_0 * (x + cubic * x * x * x)));
}

/* Beyond 30 it is 0 or 1, and the square may overflow. */
static double gelu_slope(double x)
{
    x = x > 30 ? 30 : x < -30 ? -30 : x;
    double t = tanh(slope_at_0 * (x + cubic * x * x * x));
    double inner = slope_at_0 * (1 + 3 * cubic * x * x);

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}

/* x tanh(log(1 + e^x)), and what it rises by; with e = e^-|x| nothing overflows. */
static double mish(double x)
{
    return x * tanh((x > 0 ? x : 0) + log1p(exp(-fabs(x))));
}

static double mish_slope(double x)
{
    double t = tanh((x > 0 ? x : 0) + log1p(exp(-fabs(x))));

    return t + x * (1 - t * t) / (1 + exp(-x));
}

#define REAL    float
#define NAME(x) x##_f32
#include "functions_body.inc"

#define REAL    double
#define NAME(x) x##_f64
#include "functions_body.inc"

#define ELEMENT float
#define REAL    float
#define NAME(x) x##_f32
#define GET(x)  (x)
#define PUT(x)  (x)
#include "elements_body.inc"

#define ELEMENT double
#define REAL    double
#define NAME(x) x##_f64
#define GET(x)  (x)
#define PUT(x)  (x)
#include "elements_body.inc"

#define ELEMENT uint16_t
#define REAL    float
#define NAME(x) x##_bf16
#define GET(x)  sherd__from_bf16(x)
#define PUT(x)  sherd__to_bf16(x)
#include "elements_body.inc"

#define ELEMENT uint16_t
#define REAL    float
#define NAME(x) x##_f16
#define GET(x)  sherd__from_f16(x)
#define PUT(x)  sherd__to_f16(x)
#include "elements_body.inc"

#define INSTALL(table, type)                              \
    (table)->compare = sherd__compare_##type;             \
    (table)->fold = sherd__fold_##type;                   \
    (table)->extreme = sherd__extreme_##type;             \
    (table)->extreme_join = sherd__extreme_join_##type;   \
    (table)->soft_stats = sherd__soft_stats_##type;       \
    (table)->soft_join = sherd__soft_join_f32;            \
    (table)->soft = sherd__soft_##type;                   \
    (table)->soft_grad_sum = sherd__soft_grad_sum_##type; \
    (table)->soft_grad = sherd__soft_grad_##type;         \
    (table)->soft_spread = sherd__soft_spread_##type

void sherd__install_half_elements(sherd__kernels *bf16, sherd__kernels *f16)
{
    INSTALL(bf16, bf16);
    INSTALL(f16, f16);
}

void sherd__soft_grad_whole(const sherd__kernels *k, size_t element_bytes, sherd__soft_kind kind,
                            int64_t outer, int64_t mid, int64_t inner, void *dx, const void *dy,
                            const void *y, void *total)
{
    enum { BLOCK = 32 << 10 }; /* bytes; 12 to 256 KiB are as fast */
    int64_t row = mid * inner * (int64_t)element_bytes, rows = sherd__max(1, BLOCK / (3 * row));

    for (int64_t o = 0; o < outer; o += rows) {
        int64_t n = sherd__min(rows, outer - o), at = o * row;
        const char *g = (const char *)dy + at, *v = (const char *)y + at;
        k->soft_grad_sum(kind, n, mid, inner, total, g, v);
        k->soft_grad(kind, n, mid, inner, (char *)dx + at, g, v, total);
    }
}
