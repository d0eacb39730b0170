/* SPDX-License-Identifier: Apache-2.0 */
/* The report that other programs read: one JSON object in a file. */
#ifndef GPT_REPORT_H
#define GPT_REPORT_H

#include "figures.h"

/*
 * Whether a report can be written there; false: `error`, char[LINE_BYTES], says why not. Leaves
 * nothing behind.
 */
bool report_check(const char *path, char *error);

/*
 * Write it: beside the file, then renamed over it, so that nobody ever reads half a report. False
 * as above, and nothing is left.
 */
bool report_write(const char *path, const trainer *t, const figures *f, char *error);

#endif
