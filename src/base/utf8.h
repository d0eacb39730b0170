/* SPDX-License-Identifier: Apache-2.0 */
/* Valid UTF-8: no surrogates, no overlong encodings. Costs one pass over the bytes. */
#ifndef SHERD__BASE_UTF8_H
#define SHERD__BASE_UTF8_H

#include <stdbool.h>

/* Bytes of the multi-byte character that begins here, 2 to 4; 0 if none does. */
int sherd__utf8_length(const char *text);

bool sherd__is_utf8(const char *text);

#endif
