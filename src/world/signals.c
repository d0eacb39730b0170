/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signals of a process that watches over ranks: for as long as it does so it reads those that end it from a
 * descriptor, and must be told of its children's ends, whatever the program (or whoever started it) does with SIGCHLD.
 * Afterwards, and in each child, all is as it was.
 */
#include "launch.h"

static const int ending[] = {SIGINT, SIGTERM, SIGHUP};

void sherd__signals_take(sherd__signals *out)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};

    sigemptyset(&out->taken);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++)
        sigaddset(&out->taken, ending[i]);
    sigprocmask(SIG_BLOCK, &out->taken, &out->mask);
    /* Where it is ignored the kernel throws the exit status of each child away. */
    sigemptyset(&usual.sa_mask);
    sigaction(SIGCHLD, &usual, &out->child);
}

void sherd__signals_give_back(const sherd__signals *signals)
{
    sigaction(SIGCHLD, &signals->child, NULL);
    sigprocmask(SIG_SETMASK, &signals->mask, NULL);
}
