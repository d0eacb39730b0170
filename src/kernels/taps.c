/* SPDX-License-Identifier: Apache-2.0 */
/* Plain weighted sums along a dim: rows of `inner` elements are added, so that the compiler has a
 * loop to vectorise. Sums of many are f64. */
#include "taps.h"

#include <string.h>

#include "base/num.h"
#include "sums.h"

enum { COLUMNS = 256, LANES = 8 };

static double weight_of(const sherd__tap *tap, int64_t k)
{
    return tap->even ? 1 : tap->weight[k];
}

/* Whether a row of x gives to many rows of y, as in much that is interpolated between few. */
static bool gives_much(const sherd__taps_pass *p)
{
    int64_t taps = 0;

    for (int64_t o = 0; o < p->rows; o++)
        taps += p->tap[o].count;
    return taps > SHERD__ROWS_OF_SUM / 2 * p->in;
}

/* A row that lies between two of x: two weights and no more. */
static bool is_between_two(const sherd__tap *tap)
{
    return tap->count == 2 && !tap->even && tap->divisor == 1;
}

/* Whether most rows do, of an x whose places fit the numbers of columns_of_two. */
static bool between_two(const sherd__taps_pass *p)
{
    return p->rows > 2 && p->in < INT32_MAX && is_between_two(&p->tap[p->rows / 2]);
}

/* Whether each row is one of x, as it is. */
static bool is_whole(const sherd__taps_pass *p)
{
    bool whole = true;

    for (int64_t o = 0; whole && o < p->rows; o++)
        whole = p->tap[o].count == 1 && p->tap[o].even && p->tap[o].divisor == 1;
    return whole;
}

#define REAL    float
#define NAME(x) f32_##x
#define TABLE   f32_taps
#include "taps_body.inc"

#define REAL    double
#define NAME(x) f64_##x
#define TABLE   f64_taps
#include "taps_body.inc"

#define ELEMENT uint16_t
#define NAME(x) x##_2
#include "taps_copy.inc"
#define ELEMENT uint32_t
#define NAME(x) x##_4
#include "taps_copy.inc"
#define ELEMENT uint64_t
#define NAME(x) x##_8
#include "taps_copy.inc"

/* Rows of several elements. */
static void copy_rows(size_t row_bytes, const sherd__taps_pass *p, char *y, const char *x)
{
    for (int64_t a = 0; a < p->outer; a++, x += (size_t)p->in * row_bytes)
        for (int64_t o = 0; o < p->rows; o++, y += row_bytes)
            memcpy(y, x + (size_t)p->tap[o].first * row_bytes, row_bytes);
}

void sherd__taps_copy(size_t element_bytes, const sherd__taps_pass *p, void *y, const void *x)
{
    if (p->inner != 1)
        copy_rows((size_t)p->inner * element_bytes, p, y, x);
    else if (element_bytes == 2)
        copy_2(p, y, x);
    else if (element_bytes == 4)
        copy_4(p, y, x);
    else
        copy_8(p, y, x);
}

const sherd__taps_kernels *sherd__taps_kernels_of(sherd_dtype dtype)
{
    return dtype == SHERD_F64 ? &f64_taps : &f32_taps;
}
