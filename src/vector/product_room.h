/* SPDX-License-Identifier: Apache-2.0 */
/* How the operands of a product lie, and its workspace: for the files that make products. */
#ifndef SHERD__VECTOR_PRODUCT_ROOM_H
#define SHERD__VECTOR_PRODUCT_ROOM_H

#include "fast.h"

/* From one row as stored to the next. */
static inline int64_t product_a_row(const sherd__product *p)
{
    return p->a_row ? p->a_row : p->ta ? p->m : p->k;
}

static inline int64_t product_b_row(const sherd__product *p)
{
    return p->b_row ? p->b_row : p->tb ? p->k : p->n;
}

static inline int64_t product_c_row(const sherd__product *p)
{
    return p->c_row ? p->c_row : p->n;
}

/* The next part of a workspace, which begins with a cache line. */
static inline void *product_take(char **space, int64_t bytes)
{
    char *p = *space + (SHERD__LINE - (uintptr_t)*space % SHERD__LINE) % SHERD__LINE;

    *space = p + bytes;
    return p;
}

#endif
