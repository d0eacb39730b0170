/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where position p of sequence b is in a pool of blocks: the place p % together of the block
 * table[b, p / together]. Reading and writing report the same errors about that.
 */
#ifndef SHERD__ATTENTION_BLOCKS_H
#define SHERD__ATTENTION_BLOCKS_H

#include "tensor/tensor.h"

enum { SHERD__BLOCK_FAULT = 160 };

/* Of a sequence, counted in the whole. NULL: its table has the position. */
const char *sherd__position_fault(char text[SHERD__BLOCK_FAULT], const sherd_tensor *pool,
                                  const sherd_tensor *table, int64_t sequence, int64_t position);

/* Of an entry of the table. NULL: this rank has the block with that number. */
const char *sherd__block_fault(char text[SHERD__BLOCK_FAULT], const sherd_tensor *pool,
                               int64_t sequence, int64_t entry, int32_t number);

#endif
