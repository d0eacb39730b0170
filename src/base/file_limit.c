/* SPDX-License-Identifier: Apache-2.0 */
/* Writing to files that may take no more: see base/file_limit.h. */
#include "base/file_limit.h"

#include <errno.h>
#include <time.h>

void sherd__file_signal_hold(sherd__file_signal *out)
{
    static const int sent[] = {SIGXFSZ, SIGPIPE};
    sigset_t pending;

    sigemptyset(&pending);
    (void)sigpending(&pending);
    sigemptyset(&out->held);
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        if (!sigismember(&pending, sent[i]))
            sigaddset(&out->held, sent[i]);
    (void)pthread_sigmask(SIG_BLOCK, &out->held, &out->before);
}

/* The kernel sends them to the thread that writes, so they are this thread's if they are there. */
void sherd__file_signal_drop(const sherd__file_signal *signal)
{
    const struct timespec at_once = {0, 0};
    int error = errno;

    while (sigtimedwait(&signal->held, NULL, &at_once) > 0 || errno == EINTR)
        ;
    (void)pthread_sigmask(SIG_SETMASK, &signal->before, NULL);
    errno = error;
}
