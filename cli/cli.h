/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `sherd` command: what its commands share. Each command is one file and one row of the table
 * in main.c.
 */
#ifndef SHERD_CLI_H
#define SHERD_CLI_H

#include <stdbool.h>

enum {
    CLI_FAILED = 1,
    CLI_UNUSABLE = 2
}; /* exit statuses: it went wrong; the call itself was wrong */

/* Each gets its own name and what follows it, ended by NULL; returns the exit status. */
int cli_run(int argc, char **argv);
int cli_dry(int argc, char **argv);
int cli_info(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_layout(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_show(int argc, char **argv);

/* Whether all that was printed has gone out; else it is said why not. "" = no command. */
bool cli_flush(const char *name);

/* One line on standard error, "sherd COMMAND: ..."; returns CLI_UNUSABLE. */
int cli_refuse(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
