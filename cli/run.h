/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `sherd run` share. */
#ifndef SHERD_CLI_RUN_H
#define SHERD_CLI_RUN_H

#include "launch/flight.h"

/* Whether a record can be written to this file, as far as can be told beforehand. False: errno. */
bool cli_record_possible(const char *path);
/* Write a record to the file `path` (a text), as JSON; a failure is told on standard error. */
void cli_record_write(const sherd__flight *flight, void *path);

#endif
