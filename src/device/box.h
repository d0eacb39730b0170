/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A box that a kernel goes over, element by element, in row-major order: dims of one element are
 * dropped and neighbours that lie alike in all operands are one, so that few divisions are left;
 * those by sizes below 2^31 are multiplications. And how many blocks a kernel gets.
 */
#ifndef SHERD__DEVICE_BOX_H
#define SHERD__DEVICE_BOX_H

#include "device.h"

enum { SHERD__BOX_OPERANDS = SHERD__DEVICE_ADDENDS + 1, SHERD__WIDE = 16 /* bytes of an access */ };

typedef struct sherd__box {
    int ndim, operands; /* ndim >= 1 */
    int64_t n;          /* elements */
    int64_t size[SHERD_MAX_DIMS];
    int64_t stride[SHERD__BOX_OPERANDS][SHERD_MAX_DIMS]; /* elements */
} sherd__box;

/* stride[operands][ndim]; NULL: contiguous. */
void sherd__box_of(sherd__box *box, int ndim, const int64_t *size, int operands,
                   const int64_t *const *stride);
/*
 * Whether `lanes` elements of the last dim can be taken at once: in each operand they are
 * neighbours, and all such groups as aligned as the first, or they are the same element.
 */
bool sherd__box_is_wide(const sherd__box *box, int lanes);
/* Make it a box of groups of `lanes` elements. */
void sherd__box_widen(sherd__box *box, int lanes);
/* What divides by box->size; false: its elements are too many for 31 bits. */
bool sherd__box_divisors(const sherd__box *box, uint32_t *multiplier, uint32_t *shift);

static inline bool sherd__is_aligned(const void *data, size_t bytes)
{
    return (uintptr_t)data % bytes == 0;
}

/* Whether rows of so many elements can be read and written by wide accesses; `together`: where they
 * begin, all pointers by or. */
static inline bool sherd__rows_are_wide(sherd_dtype dtype, int64_t cols, uintptr_t together)
{
    return together % SHERD__WIDE == 0 &&
           cols * (int64_t)sherd_dtype_bytes(dtype) % SHERD__WIDE == 0;
}

/* Threads of 256 a block for `items`, each of which takes little; threads take several of many. */
sherd__launch_grid sherd__grid_of(int64_t items);

#endif
