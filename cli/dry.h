/* SPDX-License-Identifier: Apache-2.0 */
/* sherd dry: the rates that it assumes, and its report. */
#ifndef SHERD_CLI_DRY_H
#define SHERD_CLI_DRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The rates of a core of this machine, as SHERD_DRY_RATES wants them, into out[room]. False: no
 * memory. */
bool cli_dry_rates(char *out, size_t room);

/* The report of a world, a line of JSON, as tables for people. False: it is none. */
bool cli_dry_print(FILE *to, const char *line);

#endif
