/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `sherd check` share. */
#ifndef SHERD_CLI_CHECK_H
#define SHERD_CLI_CHECK_H

#include "cases.h"

enum { CLI_RUNS = 5 };

/* ---- job.c: who runs the command ------------------------------------------------------------- */

/* The job that this process is a rank of, if a launcher has started it. */
typedef struct cli_job {
    bool joined;
    int ranks; /* of the job */
} cli_job;

/* Finds it; from then on only rank 0 can be heard. False: it was said why there is none. */
bool cli_job_find(cli_job *out, const char *name);

/* ---- check_run.c: moving --------------------------------------------------------------------- */

/* What rank 0 reports; where this command has started it, in memory that they share. */
typedef struct cli_findings {
    char error[SHERD_ERROR_BYTES];
    int ranks;
    int64_t wrong, elements;
    double seconds[CLI_RUNS]; /* of the slowest rank each */
    sherd_plan_price price;   /* of the plan that was run, under the world's price */
} cli_findings;

/*
 * Start ranks, or be one, move the data of a problem in all its passes, compare all elements.
 * Blocks until the ranks have ended. A failure is in the diag of the problem, whose world may be of
 * paper.
 */
sherd_status cli_check_run(cli_findings *found, cli_problem *p, int ranks);

/* Sorts them. */
double cli_median(double *x, int count);

/* ---- lists, and links ------------------------------------------------------------------------ */

/* The list of `--all`: the exit status. */
int cli_check_all(const cli_values *values, const cli_job *job);

/* `--calibrate`: the exit status. */
int cli_check_calibrate(const cli_values *values);

#endif
