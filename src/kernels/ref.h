/* SPDX-License-Identifier: Apache-2.0 */
/* The plain versions, as tables to start from, and small helpers that all versions share. */
#ifndef SHERD__KERNELS_REF_H
#define SHERD__KERNELS_REF_H

#include "cast.h"
#include "kernels.h"

#include <math.h>

extern const sherd__kernels sherd__ref_f32;
extern const sherd__kernels sherd__ref_f64;
/* Only reduce and fill. */
extern const sherd__kernels sherd__whole_i32, sherd__whole_i64, sherd__whole_i8, sherd__whole_u8,
    sherd__whole_bool;

/* Kernels of elements.c, order.c, by type: an X-list of what each has. */
#define SHERD__FUNCTION_KERNELS(type)                                                             \
    void sherd__unary_##type(sherd__unary_kind kind, int64_t n, void *dst, const void *src,       \
                             const double *parameter);                                            \
    void sherd__unary_grad_##type(sherd__unary_kind kind, int64_t n, void *dx, const void *at,    \
                                  const void *dy, const double *parameter);                       \
    void sherd__binary_##type(sherd__binary_kind kind, int ndim, const int64_t *size, void *dst,  \
                              const void *a, const int64_t *a_stride, const void *b,              \
                              const int64_t *b_stride);                                           \
    void sherd__binary_grad_##type(sherd__binary_kind kind, int which, int ndim,                  \
                                   const int64_t *size, void *dst, const void *dy, const void *a, \
                                   const int64_t *a_stride, const void *b,                        \
                                   const int64_t *b_stride);                                      \
    void sherd__soft_join_##type(int64_t parts, int64_t n, void *most, void *total,               \
                                 const void *stats);
#define SHERD__ELEMENT_KERNELS(type)                                                               \
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
SHERD__ORDER_KERNELS(i8)
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

/*
 * Query i sees the keys sherd__unseen .. sherd__visible - 1. Neither falls from one query to the
 * next.
 */
static inline int64_t sherd__visible(const sherd__attending *s, int64_t i)
{
    int64_t end = s->keys, own = i + 1 + s->first_query - s->first_key;

    if (s->causal && own < end)
        end = own;
    if (s->span && s->span[2 * i + 1] - s->first_key < end)
        end = s->span[2 * i + 1] - s->first_key;
    return end < 0 ? 0 : end;
}

static inline int64_t sherd__unseen(const sherd__attending *s, int64_t i)
{
    int64_t first = s->window ? i + 1 + s->first_query - s->first_key - s->window : 0;

    if (s->span && s->span[2 * i] - s->first_key > first)
        first = s->span[2 * i] - s->first_key;
    return first < 0 ? 0 : first > s->keys ? s->keys : first;
}

/* Whether there may be keys before the first that a query sees. */
static inline bool sherd__begins_late(const sherd__attending *s)
{
    return s->window || s->span;
}

/* From one query or key of a head to the next, elements. */
static inline int64_t sherd__query_stride(const sherd__attending *s)
{
    return s->groups * s->repeat * s->width;
}

static inline int64_t sherd__key_stride(const sherd__attending *s)
{
    return s->groups * s->width;
}

/* Where keys of a group begin; 0 if there are none, so that they may be NULL. */
static inline int64_t sherd__keys_at(const sherd__attending *s, int64_t b, int64_t g)
{
    return s->keys ? (b * s->keys * s->groups + g) * s->width : 0;
}

/* Where a query is: in q and out, in log_sum, in the mask, and in the whole tensor of scores. The
 * last two: with its first key. */
typedef struct sherd__query {
    int64_t at, row, mask, score;
} sherd__query;

static inline sherd__query sherd__query_of(const sherd__attending *s, int64_t b, int64_t g,
                                           int64_t r, int64_t i)
{
    const int64_t *stride = s->mask_stride;
    int64_t head = (s->first[1] + g) * s->all_repeat + s->first[2] + r;
    int64_t heads = (s->first[0] + b) * s->all_heads + head;

    return (sherd__query){.at = (((b * s->queries + i) * s->groups + g) * s->repeat + r) * s->width,
                          .row = ((b * s->groups + g) * s->repeat + r) * s->queries + i,
                          .mask = b * stride[0] + g * stride[1] + r * stride[2] + i * stride[3] +
                                  s->first_key * stride[4],
                          .score = (heads * s->all_queries + s->first_query + i) * s->all_keys +
                                   s->first_key};
}

#endif
