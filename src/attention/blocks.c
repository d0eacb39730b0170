/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a table of blocks: see blocks.h. */
#include "blocks.h"

#include <stdio.h>

const char *sherd__position_fault(char text[SHERD__BLOCK_FAULT], const sherd_tensor *pool,
                                  const sherd_tensor *table, int64_t sequence, int64_t position)
{
    int64_t blocks = table->shape[1], together = pool->shape[1];

    if (position / together < blocks)
        return NULL;
    snprintf(text, SHERD__BLOCK_FAULT,
             "position %lld of sequence %lld is beyond its table: %lld blocks of %lld",
             (long long)position, (long long)sequence, (long long)blocks, (long long)together);
    return text;
}

const char *sherd__block_fault(char text[SHERD__BLOCK_FAULT], const sherd_tensor *pool,
                               int64_t sequence, int64_t entry, int32_t number)
{
    int64_t all = pool->shape[0], first = sherd_tensor_offset(pool, 0), here = pool->local[0];

    if (number >= first && number < first + here)
        return NULL;
    int at = snprintf(text, SHERD__BLOCK_FAULT, "table[%lld,%lld] is %d, outside of ",
                      (long long)sequence, (long long)entry, (int)number);
    if (number < 0 || number >= all)
        snprintf(text + at, (size_t)(SHERD__BLOCK_FAULT - at), "a pool of %lld blocks",
                 (long long)all);
    else
        snprintf(text + at, (size_t)(SHERD__BLOCK_FAULT - at),
                 "the blocks from %lld to %lld, which the shard of this sequence has",
                 (long long)first, (long long)(first + here - 1));
    return text;
}
