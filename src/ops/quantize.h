/* SPDX-License-Identifier: Apache-2.0 */
/* What operators on weights of 8 or 4 bits with scales share. */
#ifndef SHERD__OPS_QUANTIZE_H
#define SHERD__OPS_QUANTIZE_H

#include "shared.h"
#include "kernels/quantized.h"

/*
 * Of 4 bits rules have a letter for bytes, and one, "t", for the two columns of a byte: [..., in]
 * seen as [..., in / 2, 2], whose last dim is never sharded. So a byte is never cut. Without a dim,
 * or with an odd number of columns, it is returned as it is; fails if it has no room for a dim.
 */
sherd_tensor *sherd__in_pairs(sherd_tensor *t, const char *function);

static inline bool sherd__is_pairs(const sherd_tensor *value)
{
    return value->dtype == SHERD_U8;
}

/* Why operands `value` and `scale` are no weight of 8 or 4 bits with this group; NULL: they are.
 * Scales have the dims of values but for the last, which is that of the groups or lacks. */
const char *sherd__quantized_fault(sherd_call *call, int value, int scale, int64_t group);

/* The pieces of operands `value` and `scale` as a kernel takes them. */
sherd__quantized sherd__quantized_piece(const sherd_call *call, int value, int scale,
                                        int64_t group);

/* Scratch memory that the products of a call take one after the other: {{NULL}, {0}} at first. It
 * is that of the largest one if that comes first. */
enum { SHERD__QUANTIZED_ROOMS = 6 };
typedef struct sherd__quantized_rooms {
    void *at[SHERD__QUANTIZED_ROOMS];
    int64_t bytes[SHERD__QUANTIZED_ROOMS];
} sherd__quantized_rooms;

/* A product within a call on this rank: y[m,rows of q] = x[m,cols of q] by its transpose, plus bias
 * (of the dtype of sums, or NULL); or back y[m,cols of q] = x[m,rows of q] by it. */
typedef struct sherd__quantized_product {
    sherd__quantized q;
    int64_t m;
    sherd_dtype dtype; /* of x and y: with fractions */
    const void *x, *bias;
    void *y;
    sherd__quantized_rooms *rooms;
} sherd__quantized_product;

/* False: there is no memory. */
bool sherd__quantized_multiply(sherd_call *call, const sherd__quantized_product *p);
bool sherd__quantized_back(sherd_call *call, const sherd__quantized_product *p);

static inline sherd_dtype sherd__quantized_sums(sherd_dtype dtype)
{
    return dtype == SHERD_F64 ? SHERD_F64 : SHERD_F32;
}

/* Addends of whole numbers, or of scales, are no addends of a product with them. */
static inline sherd_linearity sherd__quantized_linearity(const sherd_tensor *value,
                                                         const sherd_tensor *scale)
{
    return (value->layout && value->layout->pending_axes) ||
                   (scale->layout && scale->layout->pending_axes)
               ? SHERD_NONLINEAR
               : SHERD_LINEAR;
}

/* How many groups a row has. */
static inline int64_t sherd__groups_of(int64_t in, int64_t group)
{
    return in / group + (in % group != 0);
}

#endif
