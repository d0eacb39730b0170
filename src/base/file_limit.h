/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing to files that may take no more: at a limit on their size (`ulimit -f`), or pipes that
 * nobody reads any more. The write fails with EFBIG or EPIPE, but the kernel also sends SIGXFSZ or
 * SIGPIPE, which ends the process: they are held back here, so that the failure is an error like
 * any other. Costs four system calls around the writes, or five.
 */
#ifndef SHERD__BASE_FILE_LIMIT_H
#define SHERD__BASE_FILE_LIMIT_H

#include <signal.h>

typedef struct sherd__file_signal {
    sigset_t before; /* the thread's mask */
    sigset_t held;   /* but those that were pending already: the caller's own business */
} sherd__file_signal;

/* From here on this thread gets neither. */
void sherd__file_signal_hold(sherd__file_signal *out);
/* Forget what has come since, and give the mask back. Keeps errno. */
void sherd__file_signal_drop(const sherd__file_signal *signal);

#endif
