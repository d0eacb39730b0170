/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The zigzag order of a sequence's positions (sherd_zigzag): which position a row has. Pure. The
 * rows of a shard are two runs of positions that follow one another.
 */
#ifndef SHERD__OPS_ZIGZAG_H
#define SHERD__OPS_ZIGZAG_H

#include <stdint.h>

/*
 * The position of a row, 0 <= row < n; *run gets how many rows from it on have positions that
 * follow one another. In order if there are no more than one shard.
 */
int64_t sherd__zigzag_position(int64_t n, int64_t shards, int64_t row, int64_t *run);

/*
 * The rows [*first, *end) from the first to the last whose positions lie in [lo, hi), within
 * [0, n); equal if lo >= hi. Costs the same for any number of shards.
 */
void sherd__zigzag_rows(int64_t n, int64_t shards, int64_t lo, int64_t hi, int64_t *first,
                        int64_t *end);

#endif
