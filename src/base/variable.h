/* SPDX-License-Identifier: Apache-2.0 */
/* Environment variables that users set. An empty one counts as not set, as elsewhere in Unix. */
#ifndef SHERD__BASE_VARIABLE_H
#define SHERD__BASE_VARIABLE_H

#include <stdbool.h>

/* The value of a variable; NULL: it is not set, or empty. */
const char *sherd__variable(const char *name);
/* A whole number of seconds, 0 to 1000000; false, and *out stays, if the text is none. */
bool sherd__read_seconds(long *out, const char *text);

#endif
