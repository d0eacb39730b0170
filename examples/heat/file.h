/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that is written: a regular one appears at once and whole, or not at all. One rank calls
 * these.
 */
#ifndef HEAT_FILE_H
#define HEAT_FILE_H

#include <limits.h>

#include "options.h"

typedef struct file {
    const char *option, *path; /* as the user gave them, for messages */
    FILE *stream;
    bool beside;           /* what is open is a file beside it, renamed at the end */
    int cause;             /* errno of the first failure; 0 = none */
    char place[PATH_MAX];  /* where it is to be, links resolved */
    char opened[PATH_MAX]; /* what is open */
} file;

/*
 * Whether it can be written; leaves nothing behind. False: `error`, char[LINE_BYTES], says why not.
 */
bool file_check(const char *option, const char *path, char *error);

/* Open it; false as above. */
bool file_open(file *f, const char *option, const char *path, char *error);

/* Add to it; what fails is told by file_close. */
void file_write(file *f, const void *bytes, size_t count);

/*
 * Close it. `good`: what was written so far is; else, and on failure, nothing is left. False as
 * above.
 */
bool file_close(file *f, bool good, char *error);

#endif
