/* SPDX-License-Identifier: Apache-2.0 */
/* The plain versions, as tables to start from, and small helpers that all versions share. */
#ifndef SHERD__REF_H
#define SHERD__REF_H

#include "cast.h"
#include "kernels.h"

#include <math.h>

extern const sherd__kernels sherd__ref_f32;
extern const sherd__kernels sherd__ref_f64;
/* Only reduce and fill. */
extern const sherd__kernels sherd__whole_i32, sherd__whole_i64, sherd__whole_u8, sherd__whole_bool;

/* Kernels of elements.c, order.c, by type: an X-list of what each has. */
#define SHERD__FUNCTION_KERNELS(type)                                                            \
    void sherd__unary_##type(sherd__unary_kind kind, int64_t n, void *dst, const void *src,      \
                             const double *parameter);                                           \
    void sherd__unary_grad_##type(sherd__unary_kind kind, int64_t n, void *dx, const void *at,   \
                                  const void *dy, const double *parameter);                      \
    void sherd__binary_##type(sherd__binary_kind kind, int ndim, const int64_t *size, void *dst, \
                              const void *a, const int64_t *a_stride, const void *b,             \
                              const int64_t *b_stride);                                          \
    void sherd__soft_join_##type(int64_t parts, int64_t n, void *most, void *total,              \
                                 const void *stats);
#define SHERD__ELEMENT_KERNELS(type)                                                               \
    void sherd__binary_grad_##type(sherd__binary_kind kind, int which, int ndim,                   \
                                   const int64_t *size, void *dst, const void *dy, const void *a,  \
                                   const int64_t *a_stride, const void *b,                         \
                                   const int64_t *b_stride);                                       \
    void sherd__soft_stats_##type(int64_t outer, int64_t mid, int64_t inner, void *most,           \
                                  void *total, const void *src);                                   \
    void sherd__soft_##type(sherd__soft_kind kind, int64_t outer, int64_t mid, int64_t inner,      \
                            void *dst, const void *src, const void *most, const void *total);      \
    void sherd__soft_grad_sum_##type(sherd__soft_kind kind, int64_t outer, int64_t mid,            \
                                     int64_t inner, void *total, const void *dy, const void *y);   \
    void sherd__soft_grad_##type(sherd__soft_kind kind, int64_t outer, int64_t mid, int64_t inner, \
                                 void *dx, const void *dy, const void *y, const void *total);      \
    void sherd__soft_spread_##type(int64_t outer, int64_t mid, int64_t inner, void *dx,            \
                                   const void *src, const void *log_sum, const void *dy);
#define SHERD__ORDER_KERNELS(type)                                                           \
    void sherd__compare_##type(sherd__compare_kind kind, int ndim, const int64_t *size,      \
                               uint8_t *dst, const void *a, const int64_t *a_stride,         \
                               const void *b, const int64_t *b_stride);                      \
    void sherd__fold_##type(sherd_reduce_op op, int ndim, const int64_t *size, void *dst,    \
                            const int64_t *dst_stride, const void *src);                     \
    void sherd__extreme_##type(bool least, int ndim, const int64_t *size, void *best,        \
                               const int64_t *best_stride, int64_t *index,                   \
                               const int64_t *index_stride, int64_t first, const void *src); \
    void sherd__extreme_join_##type(bool least, int64_t parts, int64_t n, int32_t *dst,      \
                                    const void *best, const int64_t *index);

SHERD__FUNCTION_KERNELS(f32)
SHERD__FUNCTION_KERNELS(f64)
SHERD__ELEMENT_KERNELS(f32)
SHERD__ELEMENT_KERNELS(f64)
SHERD__ELEMENT_KERNELS(bf16)
SHERD__ELEMENT_KERNELS(f16)
SHERD__ORDER_KERNELS(f32)
SHERD__ORDER_KERNELS(f64)
SHERD__ORDER_KERNELS(bf16)
SHERD__ORDER_KERNELS(f16)
SHERD__ORDER_KERNELS(i32)
SHERD__ORDER_KERNELS(i64)
SHERD__ORDER_KERNELS(u8)
SHERD__ORDER_KERNELS(bool)

/* Those of them that the tables of 16-bit types have as they are. */
void sherd__install_half_elements(sherd__kernels *bf16, sherd__kernels *f16);

void sherd__install_half_ref(sherd__kernels *bf16, sherd__kernels *f16);

/* A uniform number is the upper 24 bits of its word over 2^24: exact in f32, so both types draw the
 * same. */
enum { SHERD__UNIFORM_BITS = 24 };

/* keep(j) of dropout in integers: word >> 8 >= threshold is uniform >= p, exactly. */
static inline uint32_t sherd__keep_threshold(double p)
{
    return (uint32_t)ceil(p * (double)(1 << SHERD__UNIFORM_BITS));
}

/* Two normal numbers from two words (Box-Muller), in f64. One function for all versions, so that
 * their bits are equal. */
void sherd__normal_pair(double out[2], const uint32_t word[2], double mean, double deviation);

/* Keys that query i sees. */
static inline int64_t sherd__visible(const sherd__attention_shape *s, int64_t i)
{
    int64_t end = i + 1 + s->ahead;

    return !s->causal || end > s->keys ? s->keys : end < 0 ? 0 : end;
}

/* Where head h of batch item b begins in a tensor of so many positions; 0 if it has none, so that
 * it may be NULL. */
static inline int64_t sherd__head(const sherd__attention_shape *s, int64_t positions, int64_t b,
                                  int64_t h)
{
    return positions ? b * positions * s->stride + h * s->width : 0;
}

#endif
