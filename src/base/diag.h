/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where the text of an error is written: once, by the function that detects the error. An error at
 * a position in a text that was parsed keeps that position too, so that a program can point at it.
 */
#ifndef SHERD__BASE_DIAG_H
#define SHERD__BASE_DIAG_H

#include <stdbool.h>

#include "sherd/status.h"

typedef struct sherd__diag {
    int rank; /* prefix of every text, "rank 2: "; -1 = no prefix */
    sherd_status status;
    int column;         /* 1-based, in bytes, in its line of `source`; 0 = no position */
    const char *source; /* the text that was parsed; only for comparison; NULL if column is 0 */
    bool told;          /* somebody else says it: a launcher, or another rank */
    char text[SHERD_ERROR_BYTES];
} sherd__diag;

/*
 * Write the text (truncated, one line, valid UTF-8) and the status, without a position; returns the
 * status.
 */
sherd_status sherd__fail(sherd__diag *diag, sherd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for lack of memory in `function`. */
sherd_status sherd__no_memory(sherd__diag *diag, const char *function);

/*
 * The text of a world that did not open, which no world holds: to the program's own buffer (the
 * options' `error`); without one to standard error, unless somebody else says it.
 */
void sherd__tell_why(char *error, const sherd__diag *diag);

/* What makes a text one line of valid UTF-8: control characters become blanks, and what is invalid
 * question marks. */
void sherd__one_line(char *text);

/* An argument that must not be NULL; a NULL name ends a list of them. */
typedef struct sherd__argument {
    const char *name;
    const void *value;
} sherd__argument;

/*
 * EINVAL that names the first argument that is NULL; OK if none is. `diag` may be NULL: then no
 * text is written.
 */
sherd_status sherd__require(sherd__diag *diag, const char *function, const sherd__argument *list);

/*
 * A broken invariant inside the library: prints rank, file and line, and aborts. Never for a user's
 * mistake.
 */
_Noreturn void sherd__broken(int rank, const char *file, int line, const char *what);
#define sherd__assert(rank, condition) \
    ((condition) ? (void)0 : sherd__broken((rank), __FILE__, __LINE__, #condition))

#endif
