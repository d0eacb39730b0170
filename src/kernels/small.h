/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of small matrices, many behind each other: what it costs to choose a kernel and to pack
 * for it would be most of the time of each.
 */
#ifndef SHERD__SMALL_H
#define SHERD__SMALL_H

#include "kernels.h"

enum { SHERD__SMALL = 8 /* rows, columns and terms at most */ };

/* Whether sherd__small_products makes this one: of f32 and f64, without bias and gaps. */
bool sherd__is_small_product(const sherd__product *p);

/*
 * c[times,m,n] = op(a) op(b), or +=; a and b as p says, times behind each other. The terms of an
 * element are rounded and added in order, whatever the shapes.
 */
void sherd__small_products(const sherd__product *p, int64_t times, void *c, const void *a,
                           const void *b);

#endif
