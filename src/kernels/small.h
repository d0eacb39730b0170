/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of many small matrices, or of two vectors each, that follow one another in memory. To
 * choose a kernel and to pack for it would take most of the time of each.
 */
#ifndef SHERD__KERNELS_SMALL_H
#define SHERD__KERNELS_SMALL_H

#include "kernels.h"

enum { SHERD__SMALL = 8 /* rows, columns and terms at most */ };

/* Whether sherd__small_products makes this one: of f32 and f64, without bias and gaps. */
bool sherd__is_small_product(const sherd__product *p);

/*
 * c[times,m,n] = op(a) op(b), or +=; `times` products, whose matrices follow one another; p
 * describes one. The terms of an element are rounded and added in order, whatever the shapes.
 */
void sherd__small_products(const sherd__product *p, int64_t times, void *c, const void *a,
                           const void *b);

/* Whether c has one element, whose terms sherd__dots adds up: of f32 and f64, without bias. */
bool sherd__is_dot(const sherd__product *p);

/* c[times] = the sums of the products of k elements, or +=. By lanes: the order depends on k
 * alone. */
void sherd__dots(const sherd__product *p, int64_t times, void *c, const void *a, const void *b);

#endif
