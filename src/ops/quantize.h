/* SPDX-License-Identifier: Apache-2.0 */
/* What operators on weights of 8 bits with scales share. */
#ifndef SHERD__OPS_QUANTIZE_H
#define SHERD__OPS_QUANTIZE_H

#include "shared.h"
#include "kernels/quantized.h"

/* Why operands `value` and `scale` are no weight of 8 bits with this group; NULL: they are. Scales
 * have the dims of values but for the last, which is that of the groups or lacks. */
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
