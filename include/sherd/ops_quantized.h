/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of 8 or 4 bits, for inference: whole numbers, each times a scale, f32, that a row shares,
 * or `group` columns of a row (0 = the row). They take a quarter or an eighth of the memory of f32,
 * and where a few rows are multiplied by them, which takes as long as reading them does, that part
 * of its time. Scales are symmetric: there is no zero point.
 *
 *     sherd_tensor *scale, *value = sherd_quantize(w, 8, 0, &scale); // once
 *     y = sherd_linear_quantized(x, value, scale, 0, NULL); // x f32, bf16 or f16
 *
 * How numbers lie, so that files of other programs can be converted:
 *
 *     8 bits  i8 [..., in]: -127..127
 *     4 bits  u8 [..., in / 2]: -8..7, each plus 8. Byte b of a row holds column 2b in its lower
 *             four bits and column 2b + 1 in the upper ones, so 0x2B is 3 and then -6. Eight
 *             columns are a little-endian word of 32 bits whose lowest bits are the first column
 *     scales  f32 [...] without groups; else [..., ceil(in / group)], of which the last one may
 *             have fewer columns
 *
 * Of 4 bits in and group are even, and a shard ends with a byte, within a group or not; use groups,
 * of 32 to 128 columns. The dtype of values says which they are.
 *
 * sherd_module_quantize (layers.h) does that with all Linears and experts of a module. "See ops.h"
 * means what that header's first comment says.
 */
#ifndef SHERD_OPS_QUANTIZED_H
#define SHERD_OPS_QUANTIZED_H

#include "ops.h"

SHERD_BEGIN

/**
 * The numbers of a weight in 8 or 4 bits: to the nearest of its element divided by its scale, ties
 * to even. A scale is the largest element, without its sign, that shares it, divided by 127, or by
 * 7.5 for 4 bits, of which 7.5 becomes 7 and -7.5 -8; so no element is off by more than half a
 * scale. Where one is infinite or NaN the scale is NaN, and so will be what is computed with it;
 * where all are 0 it is 0.
 *
 * @collective see ops.h; a sharded last dim is moved to another dim, or gathered
 * @shapes     weight: [..., in], f32, f64, bf16 or f16; the result: values as above; *scale: f32
 * @numerics   in f32, to which f64 is rounded first; scales below 2^-126 are rounded up
 * @owns       both belong to the scope; *scale is the failed tensor if the result is; no gradient
 * @errors     see ops.h; EINVAL no dims, other bits, a negative group, of 4 bits an odd `in` or
 *             group or 8 dims, `scale` is NULL
 */
SHERD_API sherd_tensor *sherd_quantize(sherd_tensor *weight, int bits, int64_t group,
                                       sherd_tensor **scale);

/**
 * The weight that numbers of 8 or 4 bits stand for: number times scale, rounded to a dtype.
 *
 * @collective see ops.h; any dim may be sharded, but not the groups of scales
 * @shapes     value: i8 [..., in] or u8 [..., in / 2]; scale: f32, as sherd_quantize makes it with
 *             this group; the result: [..., in]
 * @owns       scope; no gradient
 * @errors     see ops.h; EINVAL no dims, a negative group, of 4 bits an odd one or 8 dims, a dtype
 *             without fractions
 */
SHERD_API sherd_tensor *sherd_dequantize(sherd_tensor *value, sherd_tensor *scale, int64_t group,
                                         sherd_dtype dtype);

/**
 * x W^T + b, as sherd_linear, where W is value times scale: [..., in] x [out, in] -> [..., out].
 * `bias` [out] may be NULL; it is added once. What is computed has x's dtype.
 *
 * The weight may be sharded by `out`, with its scales, and by `in`, also within groups: the result
 * is then a pending sum. The groups of scales are not sharded: every rank has those of its rows.
 * Of 4 bits x that is sharded by `in` with a cut between the columns of a byte is moved.
 *
 * Gradients are those of x and bias. Neither value nor scale has one: to train on top of frozen
 * weights of 8 or 4 bits, add a product with two small weights (LoRA).
 *
 * @collective see ops.h
 * @shapes     value: i8 [out, in] or u8 [out, in / 2]; scale: f32 [out], or with a group
 *             [out, ceil(in / group)]
 * @numerics   sums in f32 (of f64 in f64), of the whole numbers as they are, times the scale of
 *             the row. With groups, and in gradients, the weight is rounded first: to f32, but of
 *             more than 4 rows of bf16 to that; of up to 4 rows of bf16 and 4 bits sums of 32 or
 *             64 columns may be scaled instead. Up to 4 rows of x a row has the same bits whatever
 *             others there are
 * @owns       scope
 * @errors     see ops.h; EINVAL a negative group, of 4 bits an odd one or 8 dims of x, values that
 *             are neither i8 nor u8, scales that are not f32
 */
SHERD_API sherd_tensor *sherd_linear_quantized(sherd_tensor *x, sherd_tensor *value,
                                               sherd_tensor *scale, int64_t group,
                                               sherd_tensor *bias);

/**
 * A product of each row with the weights of its group, as sherd_grouped_linear (ops_groups.h),
 * where those are value times scale: experts of 8 or 4 bits. `columns` share a scale, 0 = a row.
 *
 * The weights may be sharded by groups, with their scales, by `out` and by `in`, as there; groups
 * of scales are not sharded. Gradients are those of x and bias.
 *
 * @collective see ops.h
 * @shapes     x [rows, in]; value: i8 [groups, out, in] or u8 [groups, out, in / 2]; scale: f32
 *             [groups, out], or with columns [groups, out, ceil(in / columns)]; bias, ends, group:
 *             as sherd_grouped_linear
 * @numerics   the rows of a run: as sherd_linear_quantized
 * @owns       scope
 * @errors     see ops.h; EINVAL as sherd_grouped_linear; negative columns, of 4 bits an odd number,
 *             values that are neither i8 nor u8, scales that are not f32
 */
SHERD_API sherd_tensor *sherd_grouped_linear_quantized(sherd_tensor *x, sherd_tensor *value,
                                                       sherd_tensor *scale, int64_t columns,
                                                       sherd_tensor *bias, sherd_tensor *ends,
                                                       sherd_tensor *group);

SHERD_END

#endif
