/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stress run: rounds of random programs, right and wrong, on 2 to 16 ranks, as threads and as
 * processes, with failing allocations, deaths and stops, for as long as is asked. A round follows
 * from its seed alone (only when a blow falls does not), and any can be run again. Some hundred
 * rounds a second.
 */
#include "counts.h"
#include "under_mpi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char usage[] =
    "usage: stress [OPTIONS]\n"
    "  --seconds N    run for N seconds (60)\n"
    "  --rounds N     run N rounds, however long they take\n"
    "  --seed N       where the seeds of the rounds begin (the time)\n"
    "  --round SEED   run this round alone; with --print show its programs\n"
    "  --mpi KIND     ranks are processes that mpirun.KIND starts: openmpi or mpich\n"
    "  --hosts N      there ranks believe to be on N hosts, 1 to 4\n"
    "  --times N      each world runs its programs N times, and memory must not grow\n"
    "  --threads      ranks are threads, never processes\n"
    "  --kind NAME    only rounds that are legal, wrong, starved, small, killed, stopped, paused, "
    "orphaned\n"
    "  --ranks N      worlds of N ranks, 2 to 16\n"
    "  --keep-going   count bad rounds and go on, instead of stopping at the first\n"
    "  --json FILE    write the counts there\n";

typedef struct settings {
    double seconds;
    int64_t rounds;
    uint64_t seed, round;
    bool one, print, keep_going;
    const char *json, *program;
    round_options options;
} settings;

/* ---- the command line ------------------------------------------------------------------------ */

static int kind_named(const char *name)
{
    for (int k = 0; k < ROUND_KINDS; k++)
        if (strcmp(name, round_name((round_kind)k)) == 0)
            return k;
    return -1;
}

/* An option with a value; false if there is no such one, or the value is none of its. */
static bool read_value(settings *s, const char *name, const char *value)
{
    if (strcmp(name, "--seconds") == 0)
        return (s->seconds = atof(value)) > 0;
    if (strcmp(name, "--rounds") == 0)
        return (s->rounds = atoll(value)) > 0;
    if (strcmp(name, "--ranks") == 0)
        return (s->options.ranks = atoi(value)) >= 2 && s->options.ranks <= RANKS;
    if (strcmp(name, "--hosts") == 0)
        return (s->options.hosts = atoi(value)) >= 1 && s->options.hosts <= 4;
    if (strcmp(name, "--times") == 0)
        return (s->options.times = atoi(value)) >= 1;
    if (strcmp(name, "--kind") == 0)
        return (s->options.kind = kind_named(value)) >= 0;
    if (strcmp(name, "--mpi") == 0)
        s->options.mpi = value;
    else if (strcmp(name, "--seed") == 0)
        s->seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "--json") == 0)
        s->json = value;
    else if (strcmp(name, "--round") == 0)
        s->round = strtoull(value, NULL, 10);
    else
        return false;
    s->one |= strcmp(name, "--round") == 0;
    return true;
}

static bool read_arguments(settings *s, int count, char **argument)
{
    for (int i = 1; i < count; i++) {
        if (strcmp(argument[i], "--threads") == 0)
            s->options.threads = true;
        else if (strcmp(argument[i], "--keep-going") == 0)
            s->keep_going = true;
        else if (strcmp(argument[i], "--print") == 0)
            s->print = true;
        else if (i + 1 == count || !read_value(s, argument[i], argument[i + 1]))
            return false;
        else
            i++;
    }
    return true;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void show_output(int output)
{
    char text[4096];
    ssize_t count = pread(output, text, sizeof text, 0);

    if (count > 0)
        fprintf(stderr, "it wrote:\n%.*s\n", (int)count, text);
}

static void report(const settings *s, const round_plan *r, const outcome *o, int output)
{
    fprintf(stderr, "\nBAD round: %s, %d %s%s: %s\n", round_name(r->kind), r->ranks,
            r->threads ? "threads" : "processes", r->verified ? ", SHERD_VERIFY=1" : "", o->wrong);
    show_output(output);
    fprintf(stderr, "again: %s --round %" PRIu64 "%s", s->program, r->seed,
            s->options.threads ? " --threads" : "");
    if (s->options.kind >= 0)
        fprintf(stderr, " --kind %s", round_name((round_kind)s->options.kind));
    if (s->options.ranks)
        fprintf(stderr, " --ranks %d", s->options.ranks);
    if (s->options.mpi)
        fprintf(stderr, " --mpi %s", s->options.mpi);
    if (s->options.hosts)
        fprintf(stderr, " --hosts %d", s->options.hosts);
    if (s->options.times)
        fprintf(stderr, " --times %d", s->options.times);
    fprintf(stderr, " --print\n");
}

static void clear_board(board *b)
{
    int fd = b->fd;

    memset(b, 0, sizeof *b);
    b->fd = fd;
}

static bool run_one(const settings *s, counts *c, board *b, int output, uint64_t seed)
{
    round_plan r;
    outcome o;

    clear_board(b);
    if (ftruncate(output, 0) || lseek(output, 0, SEEK_SET))
        return false;
    round_draw(&r, seed, &s->options);
    watch_round(&o, &r, b, output, s->print);
    counts_add(c, &r, &b->tally, &o);
    if (o.bad)
        report(s, &r, &o, output);
    return !o.bad;
}

static void run(const settings *s, counts *c, board *b, int output)
{
    double start = now_seconds();
    bool good = true;

    if (s->one)
        run_one(s, c, b, output, s->round);
    for (int64_t i = 0; !s->one && (good || s->keep_going); i++) {
        if (s->rounds ? i == s->rounds : now_seconds() - start >= s->seconds)
            break;
        good = run_one(s, c, b, output, mix(s->seed + (uint64_t)i) >> 16);
    }
    c->seconds = now_seconds() - start;
}

int main(int count, char **argument)
{
    settings s = {.seconds = 60, .seed = (uint64_t)now_seconds(), .program = argument[0]};
    counts c = {0};
    int output = memfd_create("output", MFD_CLOEXEC), files = shared_files();

    s.options.kind = -1;
    if (count == 3 && strcmp(argument[1], "--rank-of") == 0)
        return be_rank_of(argument[2]);
    if (!read_arguments(&s, count, argument)) {
        fputs(usage, stderr);
        return 2;
    }
    board *b = board_create();
    if (!b || output < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1)) {
        perror("stress");
        return 2;
    }
    c.seed = s.seed;
    if (!s.one)
        printf("seed %" PRIu64 "\n", s.seed);
    run(&s, &c, b, output);
    if (shared_files() > files) {
        fprintf(stderr, "left behind: files in /dev/shm\n");
        c.bad++;
    }
    counts_print(&c);
    if (s.json && !counts_write(&c, s.json)) {
        perror(s.json);
        return 2;
    }
    return c.bad > 0;
}
