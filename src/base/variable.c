/* SPDX-License-Identifier: Apache-2.0 */
/* Environment variables: see variable.h. */
#include "variable.h"

#include <stddef.h>
#include <stdlib.h>

enum { MOST_SECONDS = 1000000 };

const char *sherd__variable(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

bool sherd__read_seconds(long *out, const char *text)
{
    char *end = NULL;
    long seconds = strtol(text, &end, 10);

    if (end == text || *end || seconds < 0 || seconds > MOST_SECONDS)
        return false;
    *out = seconds;
    return true;
}
