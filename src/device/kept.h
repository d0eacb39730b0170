/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled kernels on disk, so that a program starts at once the next time: see kept.c. */
#ifndef SHERD__DEVICE_KEPT_H
#define SHERD__DEVICE_KEPT_H

#include "base/alloc.h"

/* A hash of all that decides what the compiler makes: add all of it, in an order that is always the
 * same. Begins as zeros. */
typedef struct sherd__kept_key {
    uint64_t word[2];
} sherd__kept_key;

void sherd__kept_add(sherd__kept_key *key, const char *text);

/* What was kept under this key, to be freed; NULL: nothing that is whole, or no memory. */
char *sherd__kept_read(sherd__heap *heap, const sherd__kept_key *key);
/* Keep it, if there is a place for it. */
void sherd__kept_write(const sherd__kept_key *key, const char *binary, size_t bytes);

#endif
