/* SPDX-License-Identifier: Apache-2.0 */
/* Names similar to a given one, for error messages. */
#ifndef SHERD__BASE_NEAR_H
#define SHERD__BASE_NEAR_H

#include <stddef.h>

/* The i-th of the existing names, valid until the next call; NULL: there are no more. */
typedef const char *(*sherd__name_at)(void *of, int i);

/*
 * Write at most five names, separated by commas, the most similar to `name` first, to out[room].
 */
void sherd__near_names(char *out, size_t room, sherd__name_at at, void *of, const char *name);

#endif
