/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See small.h. Rows of b are copied to a fixed width, so that the compiler vectorises the loops
 * over them.
 */
#include "small.h"

#include <string.h>

#include "sums.h"

#define REAL    float
#define NAME(x) x##_f32
#include "small_body.inc"

#define REAL    double
#define NAME(x) x##_f64
#include "small_body.inc"

bool sherd__is_small_product(const sherd__product *p)
{
    bool fits = p->dtype == SHERD_F32 || p->dtype == SHERD_F64;

    return fits && p->result == p->dtype && !p->bias && !p->a_row && !p->b_row && !p->c_row &&
           p->k > 0 && p->k <= SHERD__SMALL && p->m <= SHERD__SMALL && p->n <= SHERD__SMALL;
}

void sherd__small_products(const sherd__product *p, int64_t times, void *c, const void *a,
                           const void *b)
{
    if (p->dtype == SHERD_F32)
        products_f32(p, times, c, a, b);
    else
        products_f64(p, times, c, a, b);
}

bool sherd__is_dot(const sherd__product *p)
{
    bool fits = p->dtype == SHERD_F32 || p->dtype == SHERD_F64;

    return fits && p->result == p->dtype && !p->bias && !p->a_row && !p->b_row && !p->c_row &&
           p->m == 1 && p->n == 1 && p->k > 0 && p->k <= SHERD__LONG_PART;
}

void sherd__dots(const sherd__product *p, int64_t times, void *c, const void *a, const void *b)
{
    if (p->dtype == SHERD_F32)
        dots_f32(p, times, c, a, b);
    else
        dots_f64(p, times, c, a, b);
}
