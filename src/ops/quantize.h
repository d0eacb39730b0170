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

/* How many groups a row has. */
static inline int64_t sherd__groups_of(int64_t in, int64_t group)
{
    return in / group + (in % group != 0);
}

#endif
