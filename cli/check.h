/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `sherd check` share. */
#ifndef SHERD_CLI_CHECK_H
#define SHERD_CLI_CHECK_H

#include "cases.h"

enum { CLI_RUNS = 5 };

/* What ranks report. In memory that all of them share, whatever they live in. */
typedef struct cli_findings {
    char error[SHERD_ERROR_BYTES];
    int64_t wrong[SHERD_MAX_RANKS], elements[SHERD_MAX_RANKS];
    double seconds[CLI_RUNS][SHERD_MAX_RANKS];
} cli_findings;

/*
 * Start ranks, move the data of a problem in all its passes, compare all elements. Blocks until the ranks have ended.
 * A failure is in the diag of the problem, whose world may be of paper.
 */
sherd_status cli_check_run(cli_findings *found, cli_problem *p, int ranks);

/* The list of `--all`: the exit status. */
int cli_check_all(const cli_values *values);

#endif
