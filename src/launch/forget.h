/* SPDX-License-Identifier: Apache-2.0 */
/* How a forked process (a guard) gives up the memory that it was forked with: forget.c. */
#ifndef SHERD__LAUNCH_FORGET_H
#define SHERD__LAUNCH_FORGET_H

#include <stdint.h>

typedef struct sherd__span {
    uintptr_t begin, end;
} sherd__span;

/*
 * Drop all private memory but the spans, which are widened to whole pages, and the variables of
 * libraries. From then on this process may use its stack as far as it is in a span, memory that is
 * shared, and functions of the C library that it has called before and that need no memory of their
 * own.
 */
void sherd__forget_memory(sherd__span *keep, int count);

#endif
