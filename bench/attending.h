/* SPDX-License-Identifier: Apache-2.0 */
/* The attention that benchmarks measure: of positions to themselves, each head with its own keys. */
#ifndef SHERD_BENCH_ATTENDING_H
#define SHERD_BENCH_ATTENDING_H

#include <math.h>

#include "kernels/kernels.h"

static inline sherd__attending self_attention(int64_t batch, int64_t heads, int64_t positions,
                                              int64_t width, bool causal)
{
    return (sherd__attending){.batch = batch,
                              .groups = heads,
                              .repeat = 1,
                              .queries = positions,
                              .keys = positions,
                              .width = width,
                              .scale = 1 / sqrt((double)width),
                              .causal = causal};
}

#endif
