/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error texts: formatted once, where the error is decided, into the room that the caller's object
 * embeds. Control characters become blanks, so that a text stays one line whatever values went into
 * it.
 */
#include "diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Room is left for at least one character behind the prefix: a prefix is at most 17 bytes. */
static size_t put_prefix(sherd__diag *diag)
{
    if (diag->rank < 0)
        return 0;
    return (size_t)snprintf(diag->text, sizeof diag->text, "rank %d: ", diag->rank);
}

static void one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ')
            *text = ' ';
}

sherd_status sherd__fail(sherd__diag *diag, sherd_status status, const char *format, ...)
{
    size_t start = put_prefix(diag);
    va_list arguments;

    diag->status = status;
    diag->text[start] = '\0';
    va_start(arguments, format);
    vsnprintf(diag->text + start, sizeof diag->text - start, format, arguments);
    va_end(arguments);
    one_line(diag->text);
    return status;
}

sherd_status sherd__no_memory(sherd__diag *diag, const char *function)
{
    return sherd__fail(diag, SHERD_ENOMEM, "%s: out of memory", function);
}

_Noreturn void sherd__broken(int rank, const char *file, int line, const char *what)
{
    fprintf(stderr, "rank %d: %s:%d: broken invariant: %s\n", rank, file, line, what);
    abort();
}
