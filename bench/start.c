/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long ranks take to start: start [-n RANKS] [--rounds N]. It starts `sherd run -n RANKS` on
 * itself, again and again, and prints medians of the time from before the fork to rank 0's main, to
 * its open world, past the first collective (of which all ranks are a part), and to the end of the
 * last process.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command_line.h"
#include "timing.h"
#include <sherd.h>

enum { MAIN, OPEN, FIRST, END, EVENTS, MOST_ROUNDS = 999 };
static const char *const names[EVENTS] = {"rank 0's main", "its world is open",
                                          "past the first collective", "all have ended"};

/* A rank: tells its times, which are of a clock that all processes share. */
static int run_rank(void)
{
    double at[EVENTS] = {seconds()};
    sherd_world *world = NULL;
    sherd_status status = sherd_world_open(&world, NULL);

    at[OPEN] = seconds();
    if (status == SHERD_OK)
        status = sherd_world_check(world);
    at[FIRST] = seconds();
    if (status == SHERD_OK && sherd_world_rank(world) == 0)
        printf("%.9f %.9f %.9f\n", at[MAIN], at[OPEN], at[FIRST]);
    sherd_world_close(world);
    return status != SHERD_OK;
}

static void become(const char *self, const char *sherd, const char *ranks, int out)
{
    dup2(out, STDOUT_FILENO);
    execl(sherd, sherd, "run", "-n", ranks, self, "--rank", (char *)NULL);
    fprintf(stderr, "start: %s can not be run\n", sherd);
    _exit(1);
}

/* One start; false if it failed. */
static bool run_round(const char *self, const char *sherd, const char *ranks, double *took)
{
    char text[256] = "";
    int ends[2], status = 1;
    double at[EVENTS] = {0}, begin = seconds();

    if (pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0)
        become(self, sherd, ranks, ends[1]);
    close(ends[1]);
    FILE *said = fdopen(ends[0], "r");
    bool read = said && fgets(text, sizeof text, said) &&
                sscanf(text, "%lf %lf %lf", &at[MAIN], &at[OPEN], &at[FIRST]) == 3;
    if (child > 0)
        waitpid(child, &status, 0);
    at[END] = seconds();
    if (said)
        fclose(said);
    for (int i = 0; i < EVENTS; i++)
        took[i] = at[i] - begin;
    return read && status == 0;
}

int main(int argc, char **argv)
{
    static double took[EVENTS][MOST_ROUNDS];
    char self[4096], sherd[4096 + 16];
    const char *ranks = "4";
    int64_t rounds = 41;
    const bench_option options[] = {{"-n", "RANKS", .text = &ranks},
                                    {"--rounds", "N", .number = &rounds, .most = MOST_ROUNDS}};

    if (argc == 2 && strcmp(argv[1], "--rank") == 0)
        return run_rank();
    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return fprintf(stderr, "start: where this program lies is unknown\n"), 1;
    self[length] = 0;
    snprintf(sherd, sizeof sherd, "%.*s/../sherd", (int)(strrchr(self, '/') - self), self);
    for (int r = 0; r < rounds; r++) {
        double one[EVENTS];
        if (!run_round(self, sherd, ranks, one))
            return fprintf(stderr, "start: %s ranks did not start\n", ranks), 1;
        for (int i = 0; i < EVENTS; i++)
            took[i][r] = one[i];
    }
    for (int i = 0; i < EVENTS; i++) {
        double middle = median(took[i], (int)rounds);
        printf("%-26s %7.2f ms (fastest %.2f, slowest %.2f)\n", names[i], 1e3 * middle,
               1e3 * took[i][0], 1e3 * took[i][rounds - 1]);
    }
    return 0;
}
