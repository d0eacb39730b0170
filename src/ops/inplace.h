/* SPDX-License-Identifier: Apache-2.0 */
/* A write in place: what is written into what. */
#ifndef SHERD__OPS_INPLACE_H
#define SHERD__OPS_INPLACE_H

#include "shared.h"

typedef enum sherd__write_kind {
    SHERD__WRITE_ADD,
    SHERD__WRITE_ADD_SCALED,
    SHERD__WRITE_MULTIPLY,
    SHERD__WRITE_COPY,
    SHERD__WRITE_FILL,
    SHERD__WRITE_SCALE
} sherd__write_kind;

typedef struct sherd__write_in {
    const char *name;
    sherd__write_kind kind;
    sherd_tensor *a, *b; /* of a fill, and a number, b is NULL */
    double value;
    sherd__device *device; /* it is written in the GPU's memory */
} sherd__write_in;

/* Why it can not be done, static or in text[room]; NULL: it can. */
const char *sherd__write_fault(const sherd__write_in *w, char *text, size_t room);
/* Whether the layout of a takes it: what is pending there may not. */
bool sherd__can_be_written(const sherd__write_in *w);

#endif
