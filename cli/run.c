/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd run: starts the ranks of a program as processes, and watches them. This process joins no world; what it
 * says about a rank that dies is said by the launcher itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "sherd/status.h"
#include "world/launch.h"

/* The number of ranks; 0 if the text is none. */
static int read_ranks(const char *text)
{
    char *end = NULL;
    long n = strtol(text, &end, 10);

    return end != text && !*end && n >= 1 && n <= SHERD_MAX_RANKS ? (int)n : 0;
}

static int start(int ranks, char **program)
{
    sherd__diag diag = {.rank = -1};
    const sherd__launch_options options = {.ranks = ranks, .argv = program};
    int exit_status = sherd__launch(&options, &diag);

    if (exit_status < 0) {
        fprintf(stderr, "sherd run: %s\n", diag.text);
        return CLI_FAILED;
    }
    return exit_status;
}

int cli_run(int argc, char **argv)
{
    int ranks = 0, i = 1;

    for (; i < argc && argv[i][0] == '-'; i++) {
        const char *value = NULL;
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (strcmp(argv[i], "-n") == 0 || strcmp(argv[i], "--ranks") == 0)
            value = argv[++i]; /* NULL at the end */
        else if (strncmp(argv[i], "--ranks=", 8) == 0)
            value = argv[i] + 8;
        else
            return cli_refuse("run", "there is no option \"%.100s\"", argv[i]);
        ranks = value ? read_ranks(value) : 0;
        if (!ranks)
            return cli_refuse("run", "-n: \"%.100s\" is not a number of ranks from 1 to %d",
                              value ? value : "", SHERD_MAX_RANKS);
    }
    if (!ranks)
        return cli_refuse("run", "how many ranks? sherd run -n N [--] PROGRAM [ARGUMENTS]");
    if (i >= argc)
        return cli_refuse("run", "which program? sherd run -n N [--] PROGRAM [ARGUMENTS]");
    return start(ranks, argv + i);
}
