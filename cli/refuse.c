/* SPDX-License-Identifier: Apache-2.0 */
/* The error line of a command that cannot be run. */
#include <stdarg.h>
#include <stdio.h>

#include "cli.h"

int cli_refuse(const char *name, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "sherd%s%s: ", name[0] ? " " : "", name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return CLI_UNUSABLE;
}
