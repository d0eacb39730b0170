/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd run: starts the ranks of a program as processes and watches them. This process joins no
 * world; the launcher (launch/launcher.c) reports how they ended.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "run.h"
#include "sherd/status.h"
#include "launch/launch.h"
#include "world/limit.h"

static const char usage[] = "sherd run -n N [OPTIONS] [--] PROGRAM [ARGUMENTS]";

/* What the launcher finds in the environment, and leaves there for worlds inside of worlds. */
static bool set_environment(const cli_values *values)
{
    const char *grace = values->of[CLI_RUN_GRACE], *memory = values->of[CLI_RUN_MEMORY];
    uint64_t bytes = 0;
    char text[32];

    if (memory && !sherd__bytes_read(&bytes, memory))
        return cli_refuse("run", "--memory: \"%.100s\" is no size, for example 8G", memory) == 0;
    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    if (grace && cli_whole_number(grace, 0, 1000000) < 0)
        return cli_refuse("run", "--grace: \"%.100s\" is no number of seconds", grace) == 0;
    return cli_ask_trace(values->of[CLI_RUN_TRACE]) &&
           (!grace || setenv("SHERD_GRACE", grace, 1) == 0) &&
           (!memory || setenv("SHERD_ARENA_BYTES", text, 1) == 0);
}

int cli_run(int argc, char **argv)
{
    sherd__diag diag = {.rank = -1};
    cli_values values;
    int at = 0;

    if (!cli_values_before_program(&values, CLI_OF_RUN, "run", argc, argv, &at))
        return CLI_UNUSABLE;
    const char *ranks = values.of[CLI_RUN_RANKS];
    if (!ranks)
        return cli_refuse("run", "how many ranks? %s", usage);
    const char *record = values.of[CLI_RUN_RECORD];
    const sherd__launch_options options = {.ranks =
                                               (int)cli_whole_number(ranks, 1, SHERD_MAX_RANKS),
                                           .argv = argv + at,
                                           .cores = values.of[CLI_RUN_CORES],
                                           .drain = values.of[CLI_RUN_DRAIN] != NULL,
                                           .prefix = values.of[CLI_RUN_PREFIX] != NULL,
                                           .logs = values.of[CLI_RUN_LOGS],
                                           .recorded = record ? cli_record_write : NULL,
                                           .payload = (void *)(uintptr_t)record};
    if (options.ranks < 0)
        return cli_refuse("run", "-n: \"%.100s\" is not a number of ranks from 1 to %d", ranks,
                          SHERD_MAX_RANKS);
    if (at >= argc)
        return cli_refuse("run", "which program? %s", usage);
    if (record && !cli_record_possible(record))
        return cli_refuse("run", "--record: can not write %.200s: %s", record, strerror(errno));
    if (!set_environment(&values))
        return CLI_UNUSABLE;
    int exit_status = sherd__launch(&options, &diag);
    if (exit_status >= 0)
        return exit_status;
    fprintf(stderr, "sherd run: %s\n", diag.text);
    return CLI_FAILED;
}
