/* SPDX-License-Identifier: Apache-2.0 */
/* Plain weighted sums along a dim: rows of `inner` elements are added, so that the compiler has a
 * loop to vectorise. Sums of many are f64. */
#include "taps.h"

#include <string.h>

#include "base/num.h"
#include "sums.h"

enum { COLUMNS = 256 };

static double weight_of(const sherd__tap *tap, int64_t k)
{
    return tap->even ? 1 : tap->weight[k];
}

/* Whether a row of x gives to many rows of y, as in much that is interpolated between few. */
static bool gives_much(const sherd__pass *p)
{
    int64_t taps = 0;

    for (int64_t o = 0; o < p->rows; o++)
        taps += p->tap[o].count;
    return taps > SHERD__ROWS_OF_SUM / 2 * p->in;
}

#define REAL    float
#define NAME(x) f32_##x
#define TABLE   f32_taps
#include "taps_body.inc"

#define REAL    double
#define NAME(x) f64_##x
#define TABLE   f64_taps
#include "taps_body.inc"

const sherd__taps_kernels *sherd__taps_kernels_of(sherd_dtype dtype)
{
    return dtype == SHERD_F64 ? &f64_taps : &f32_taps;
}
