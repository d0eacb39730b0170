/* SPDX-License-Identifier: Apache-2.0 */
/* Children that are ended because another could not be started: none is left behind. */
#define CHECK_PURE
#include "check.h"

#include "launch/watch.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 3, BYTES = 48 << 20 }; /* so many take some milliseconds to give back */

static void nothing(int signal)
{
    (void)signal;
}

static _Noreturn void be_large(int ready)
{
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory != MAP_FAILED)
        memset(memory, 1, BYTES);
    if (write(ready, "", 1) == 1)
        for (;;)
            pause();
    _exit(1);
}

/* The program has a timer, whose signals interrupt what waits. */
static void signals_leave_no_child_behind(void)
{
    const struct sigaction handled = {.sa_handler = nothing};
    const struct itimerval often = {{0, 200}, {0, 200}};
    struct itimerval watchdog;
    sherd__child child[CHILDREN] = {{0}};
    struct sigaction before;
    int ready[2];
    char byte;

    if (!CHECK_EQ(pipe(ready), 0))
        return;
    for (int r = 0; r < CHILDREN; r++)
        if ((child[r].pid = fork()) == 0)
            be_large(ready[1]);
    for (int r = 0; r < CHILDREN; r++)
        CHECK_EQ(read(ready[0], &byte, 1), 1);
    sigaction(SIGALRM, &handled, &before);
    setitimer(ITIMER_REAL, &often, &watchdog);
    sherd__end_children(child, CHILDREN);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    sigaction(SIGALRM, &before, NULL);
    setitimer(ITIMER_REAL, &watchdog, NULL);
    for (int r = 0; r < CHILDREN; r++)
        CHECK(waitpid(child[r].pid, NULL, WNOHANG) < 0 && errno == ECHILD);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    close(ready[0]);
    close(ready[1]);
}

static const check_test tests[] = {{TEST(signals_leave_no_child_behind)}};
CHECK_MAIN(tests)
