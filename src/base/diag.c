/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error texts: formatted once, where the error is detected, into the buffer that the caller's
 * object embeds. Control characters become blanks, and invalid UTF-8 becomes question marks (also
 * half a character where a value was truncated), so that a text is one line that any program can
 * read, whatever values it contains.
 */
#include "diag.h"

#include "utf8.h"

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

void sherd__one_line(char *text)
{
    while (*text) {
        unsigned char c = (unsigned char)*text;
        int length = c < 0x80 ? 1 : sherd__utf8_length(text);
        if (c < ' ' || c == 0x7f)
            *text = ' ';
        if (length == 0)
            *text = '?';
        text += length ? length : 1;
    }
}

sherd_status sherd__fail(sherd__diag *diag, sherd_status status, const char *format, ...)
{
    size_t start = put_prefix(diag);
    va_list arguments;

    diag->status = status;
    diag->column = 0;
    diag->source = NULL;
    diag->text[start] = '\0';
    va_start(arguments, format);
    vsnprintf(diag->text + start, sizeof diag->text - start, format, arguments);
    va_end(arguments);
    sherd__one_line(diag->text);
    return status;
}

sherd_status sherd__no_memory(sherd__diag *diag, const char *function)
{
    return sherd__fail(diag, SHERD_ENOMEM, "%s: out of memory", function);
}

sherd_status sherd__require(sherd__diag *diag, const char *function, const sherd__argument *list)
{
    for (; list->name; list++)
        if (!list->value)
            return diag ? sherd__fail(diag, SHERD_EINVAL, "%s: %s is NULL", function, list->name)
                        : SHERD_EINVAL;
    return SHERD_OK;
}

void sherd__tell_why(char *error, const sherd__diag *diag)
{
    if (error)
        snprintf(error, SHERD_ERROR_BYTES, "%s", diag->text);
    else if (!diag->told)
        fprintf(stderr, "sherd: %s\n", diag->text);
}

_Noreturn void sherd__broken(int rank, const char *file, int line, const char *what)
{
    fprintf(stderr, "rank %d: %s:%d: broken invariant: %s\n", rank, file, line, what);
    abort();
}
