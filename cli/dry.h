/* SPDX-License-Identifier: Apache-2.0 */
/* sherd dry: what is asked for, running a program, the rates that it assumes, and its report. */
#ifndef SHERD_CLI_DRY_H
#define SHERD_CLI_DRY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "launch/watch.h"

enum { CLI_DRY_MOST = 256 };

/* Signals to this process go to the program that runs; those that end one end this one, once it
 * has removed its folder. */
typedef struct cli_dry_signals {
    sherd__signals taken;
    int last; /* that came; 0 = none */
} cli_dry_signals;

/* Which ranks, and of how many: 0 = nobody says. */
typedef struct cli_dry_asked {
    long which[CLI_DRY_MOST];
    int count;
    long of;
    cli_dry_signals *signals;
} cli_dry_asked;

typedef enum cli_dry_output { CLI_DRY_AS_IT_IS, CLI_DRY_TO_ERRORS, CLI_DRY_NOWHERE } cli_dry_output;

/* What became of a program. */
typedef struct cli_dry_end {
    int status;   /* as of waitpid; -1 and errno: it can not be started */
    char *report; /* a line of JSON for each world that it has closed; the caller frees it; NULL: no
                     memory, or not started */
    /* what it said of a bad end, one line; "" = nothing: its last words on standard error, if these
       go nowhere, else the last failure that it reports */
    char said[SHERD_ERROR_BYTES];
} cli_dry_end;

/* Run a program as the i-th of the ranks; `output`: where what it prints goes. */
void cli_dry_program(cli_dry_end *out, const cli_dry_asked *ranks, int i, char **argv,
                     cli_dry_output output);

/* The rates of a core of this machine, as SHERD_DRY_RATES wants them, into out[room]. False: no
 * memory. */
bool cli_dry_rates(char *out, size_t room);

/* How a rank ended badly: "rank 3 exited with status 1: what it said". */
void cli_dry_end_text(char *out, size_t room, long rank, const cli_dry_end *end);

/* ---- dry_text.c: the report of a world, a line of JSON --------------------------------------- */

/* What it counted: of the last step, or of everything where there were no steps. */
const json_t *cli_dry_counts(const json_t *report);
/* The sum of the numbers under a key, over all objects of a list. */
double cli_dry_sum(const json_t *list, const char *key);
/* The whole as tables for people. False: it is none. */
bool cli_dry_print(FILE *to, const char *line);

/* ---- dry_meshes.c ---------------------------------------------------------------------------- */

/* Whether "dp,tp" are axes of which meshes can be made, and a program takes one; else refused. */
bool cli_dry_axes_fit(const char *axes, long ranks, char *const *argv);
/*
 * Run the program on each such mesh, and print what it takes, the fastest first. What ranks send
 * goes into the folder. The exit status: 0 if it ran on any.
 */
int cli_dry_meshes(const cli_dry_asked *ranks, const char *axes, const char *folder, char **argv,
                   bool json);

#endif
