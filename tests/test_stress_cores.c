/* SPDX-License-Identifier: Apache-2.0 */
/* What a busy machine takes from the processes of a round of stress is seen, whoever started them. */
#define CHECK_PURE
#include "check.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cores.h"

static double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A process that computes for ever, as nice as that; its parent's end is its own. */
static pid_t start_busy(int by)
{
    pid_t pid = fork();

    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (nice(by) < 0)
        _exit(1);
    for (volatile unsigned n = 0;; n++)
        ;
}

/* All that this process starts from here on shares one core. */
static void take_one_core(void)
{
    cpu_set_t mine, one;

    CPU_ZERO(&mine);
    CPU_ZERO(&one);
    CHECK_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
    for (size_t c = 0; c < CPU_SETSIZE && !CPU_COUNT(&one); c++)
        if (CPU_ISSET(c, &mine))
            CPU_SET(c, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

/* As a round, its launcher and a rank that has not joined yet: only the last wants to run. */
static pid_t start_round(void)
{
    pid_t pid = fork();

    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        start_busy(5);
    }
    for (;;)
        pause();
}

static void a_process_of_a_process_that_gets_no_core_is_seen(void)
{
    static cores before, after;
    double start = seconds_now();

    take_one_core();
    pid_t round = start_round(), hog = start_busy(0);
    while (before.processes < 3 && seconds_now() - start < 10) {
        usleep(1000);
        before.processes = before.threads = 0;
        cores_add(&before, round);
    }
    CHECK_EQ(before.processes, 3);
    CHECK_EQ(before.threads, 3);
    start = seconds_now();
    do {
        usleep(10000);
        after.processes = after.threads = 0;
        cores_add(&after, round);
    } while (cores_lost(&before, &after) < 0.05 && seconds_now() - start < 10);
    CHECK(cores_lost(&before, &after) >= 0.05);
    cores_add(&after, hog);
    CHECK_EQ(after.processes, 4);
    cores_add(&after, round);
    CHECK_EQ(after.processes, 4);
    kill(hog, SIGKILL);
    kill(round, SIGKILL);
    CHECK_EQ(waitpid(hog, NULL, 0), hog);
    CHECK_EQ(waitpid(round, NULL, 0), round);
}

static void each_thread_is_compared_with_itself(void)
{
    static const cores before = {.threads = 2, .thread = {7, 8}, .waited = {5, 1}};
    static const cores after = {.threads = 3, .thread = {7, 9, 8}, .waited = {5, 2, 4}};

    CHECK_EQ((int)cores_lost(&before, &after), 3);
    CHECK_EQ((int)cores_lost(&after, &after), 0);
}

static const check_test tests[] = {
    {TEST(a_process_of_a_process_that_gets_no_core_is_seen)},
    {TEST(each_thread_is_compared_with_itself)},
};

CHECK_MAIN(tests)
