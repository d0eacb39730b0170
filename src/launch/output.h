/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks of `sherd run` read and print. Rank 0 alone has the launcher's standard input.
 * Output goes where the launcher's goes, or through the launcher, which puts the rank in front of
 * each line, or into a file a rank; or both.
 */
#ifndef SHERD__LAUNCH_OUTPUT_H
#define SHERD__LAUNCH_OUTPUT_H

#include <poll.h>

#include "base/alloc.h"
#include "base/diag.h"

enum { SHERD__OUTPUT_FDS = 2 * SHERD_MAX_RANKS + 2 };

/* Where lines go: standard output or standard error of this process. */
typedef struct sherd__sink {
    int fd;
    bool own;    /* opened anew, so that writing never blocks */
    bool socket; /* ... which a socket does when it is told so */
    bool waits;  /* it may block: only what surely fits is written */
    bool gone;   /* nobody reads it any more */
    bool lost;   /* it could not be written: what comes is thrown away */
    char *text;  /* what is still to be written */
    size_t length;
    int polled; /* its place in the list for poll, or -1 */
} sherd__sink;

/* Standard output or standard error of one rank. */
typedef struct sherd__stream {
    int rank;
    int in;  /* where it is read, -1 = not, or not any more */
    int out; /* what the rank writes to: a pipe or a file; -1 = as this process */
    int log; /* where it is written unchanged, -1 = nowhere */
    char *text;
    size_t length;
    sherd__sink *to;
    int polled;
} sherd__stream;

typedef struct sherd__output {
    sherd__heap heap;
    int streams;
    sherd__stream *stream; /* of rank r: 2 r, 2 r + 1 */
    sherd__sink sink[2];
    int sinks;  /* 1: standard output and standard error are the same */
    int width;  /* of the largest rank */
    bool last;  /* all ranks have ended: there is nothing more than what is there */
    int failed; /* errno of what could not be written */
} sherd__output;

/*
 * Prepare for `ranks`: with `prefix` through pipes; with `folder` into its files rank-0.out,
 * rank-0.err, ...; the folder is made if it is not there. EINVAL the files can not be written;
 * ENOMEM.
 */
sherd_status sherd__output_open(sherd__output *out, int ranks, bool prefix, const char *folder,
                                sherd__diag *diag);
/* In the child that becomes a rank: its standard files. False: errno. */
bool sherd__output_enter(const sherd__output *out, int rank);
/* In the launcher, once all ranks are started. */
void sherd__output_begin(sherd__output *out);
/* Add what is to be waited for to fds[SHERD__OUTPUT_FDS]; how many. */
int sherd__output_poll(sherd__output *out, struct pollfd *fds);
/* Do what poll says is possible. Never blocks. */
void sherd__output_move(sherd__output *out, const struct pollfd *fds);
/* All ranks have ended: whether something is still to be written. */
bool sherd__output_remains(sherd__output *out);
/* A text of the launcher's own for standard error, among the lines. False: no room. */
bool sherd__output_say(sherd__output *out, const char *text);
/* Write all that is still to be written, unless nothing of it goes for so many nanoseconds. */
void sherd__output_finish(sherd__output *out, int64_t patience);
void sherd__output_close(sherd__output *out);

#endif
