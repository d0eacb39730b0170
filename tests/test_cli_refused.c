/* SPDX-License-Identifier: Apache-2.0 */
/* sherd dry where the kernel refuses what it would rather use: a memfd for the report, and a
 * descriptor that signals are read from. */
#define CHECK_PURE
#include <errno.h>

#include "check.h"
#include "program.h"
#include "refused.h"

#define NO_RATE "--rates f32=1e9,half=2e9,memory=1e10 "

static const char *self; /* this program */

static program start_without(int call, int reason, const char *what)
{
    char line[512];

    snprintf(line, sizeof line, "%s without %d %d %s dry -n 2 " NO_RATE "%s", self, call, reason,
             SHERD, what);
    return program_start(line);
}

static void a_file_takes_the_place_of_a_memfd(void)
{
    static const int reasons[] = {ENOSYS, EPERM};

    for (int i = 0; i < LEN(reasons); i++) {
        program p = start_without(SYS_memfd_create, reasons[i], "/bin/true");
        const program_end *end = program_wait(&p);
        if (end->status != REFUSED_NOT)
            CHECK(strstr(end->err, "can not be started") == NULL);
    }
}

static void signals_come_without_a_descriptor(void)
{
    program p = start_without(SYS_signalfd4, ENOSYS, "/bin/sh -c echo\tx;exec\tsleep\t20");

    CHECK(program_says(&p, "x\n", 10));
    double begin = program_clock();
    program_kill(&p, SIGTERM);
    const program_end *end = program_wait(&p);
    CHECK(program_clock() - begin < 10);
    CHECK_EQ(end->status, 128 + SIGTERM);
    CHECK_EQ(end->left, 0);
}

static const check_test tests[] = {
    {TEST(a_file_takes_the_place_of_a_memfd)},
    {TEST(signals_come_without_a_descriptor)},
};

int main(int argc, char **argv)
{
    self = argv[0];
    refused_play(argc, argv);
    return check_main_apart(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
