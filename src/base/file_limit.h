/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing to files under a limit on their size (`ulimit -f`). At the limit a write fails with
 * EFBIG, but the kernel also sends SIGXFSZ, which ends the process: it is held back here, so that
 * the failure is an error like any other. Costs four system calls around the writes.
 */
#ifndef SHERD__BASE_FILE_LIMIT_H
#define SHERD__BASE_FILE_LIMIT_H

#include <signal.h>
#include <stdbool.h>

typedef struct sherd__file_signal {
    sigset_t before; /* the thread's mask */
    bool held;       /* false: the caller's own business, as it was blocked and pending already */
} sherd__file_signal;

/* From here on this thread gets no SIGXFSZ. */
void sherd__file_signal_hold(sherd__file_signal *out);
/* Forget one that has come since, and give the mask back. Keeps errno. */
void sherd__file_signal_drop(const sherd__file_signal *signal);

#endif
