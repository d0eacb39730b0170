/* SPDX-License-Identifier: Apache-2.0 */
/* What is UTF-8: no surrogates, no longer ways to write a letter. Costs a look at each byte. */
#ifndef SHERD__UTF8_H
#define SHERD__UTF8_H

#include <stdbool.h>

/* Length of the letter that begins here, 2 to 4 bytes; 0 if none of more than one byte does. */
int sherd__utf8_length(const char *text);

bool sherd__is_utf8(const char *text);

#endif
