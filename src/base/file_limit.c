/* SPDX-License-Identifier: Apache-2.0 */
/* Writing to files under a limit on their size: see base/file_limit.h. */
#include "base/file_limit.h"

#include <errno.h>
#include <time.h>

static void only(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGXFSZ);
}

void sherd__file_signal_hold(sherd__file_signal *out)
{
    sigset_t limit, pending;

    only(&limit);
    sigemptyset(&pending);
    (void)sigpending(&pending);
    out->held =
        !sigismember(&pending, SIGXFSZ) && !pthread_sigmask(SIG_BLOCK, &limit, &out->before);
}

/* The kernel sends it to the thread that writes, so it is this thread's if it is there. */
void sherd__file_signal_drop(const sherd__file_signal *signal)
{
    const struct timespec at_once = {0, 0};
    int error = errno;
    sigset_t limit;

    if (!signal->held)
        return;
    only(&limit);
    while (sigtimedwait(&limit, NULL, &at_once) < 0 && errno == EINTR)
        ;
    (void)pthread_sigmask(SIG_SETMASK, &signal->before, NULL);
    errno = error;
}
