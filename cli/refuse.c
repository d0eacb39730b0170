/* SPDX-License-Identifier: Apache-2.0 */
/* The error line of a command that cannot be run, or whose output is lost. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/diag.h"
#include "cli.h"

int cli_refuse(const char *name, const char *format, ...)
{
    char line[2 * SHERD_ERROR_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    sherd__one_line(line);
    fprintf(stderr, "sherd%s%s: %s\n", name[0] ? " " : "", name, line);
    return CLI_UNUSABLE;
}

/* If an earlier write has failed, its errno is lost, and only ferror tells. */
bool cli_flush(const char *name)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    cli_refuse(name, "standard output: %s", errno ? strerror(errno) : "it could not be written");
    return false;
}
