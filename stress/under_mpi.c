/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world of a round whose ranks mpirun starts: each is this program again, draws the same programs
 * from the seed and writes what it sees on the same board, which it finds in the list of files of
 * whoever started it. A second or two a world.
 */
#include "under_mpi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

board *board_create(void)
{
    int fd = memfd_create("board", 0);
    board *b = fd < 0 || ftruncate(fd, sizeof *b)
                   ? MAP_FAILED
                   : mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (b == MAP_FAILED)
        return NULL;
    b->fd = fd;
    return b;
}

/* ---- who starts them ------------------------------------------------------------------------- */

enum { ARGUMENTS = 8 * RANKS };

typedef struct command {
    const char *word[ARGUMENTS];
    int count;
} command;

static void add(command *c, const char *word)
{
    if (c->count < ARGUMENTS - 1)
        c->word[c->count++] = word;
}

/* `ranks` ranks that believe to be on a host; NULL: where they are. */
static void add_ranks(command *c, int ranks, const char *host, const char *self, const char *path)
{
    static const char *const digits[] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                         "9", "10", "11", "12", "13", "14", "15", "16"};
    add(c, "-n");
    add(c, digits[ranks]);
    if (host) {
        add(c, "env");
        add(c, host);
    }
    add(c, self);
    add(c, "--rank-of");
    add(c, path);
}

/* Neighbours on one host together. */
static void add_hosts(command *c, const round_plan *r, const char *self, const char *path)
{
    static const char *const hosts[] = {"SHERD_HOST=a", "SHERD_HOST=b", "SHERD_HOST=c",
                                        "SHERD_HOST=d"};

    for (int first = 0, last; first < r->ranks; first = last) {
        for (last = first + 1; last < r->ranks && r->host[last] == r->host[first]; last++)
            ;
        if (first)
            add(c, ":");
        add_ranks(c, last - first, hosts[r->host[first] - 'a'], self, path);
    }
}

/* Open MPI's launchers that run elsewhere remove their common folder while this one makes it. */
static const char folder_name[] = "OMPI_MCA_orte_tmpdir_base";

static void remove_folder(const char *folder)
{
    char line[64];

    snprintf(line, sizeof line, "rm -rf %s", folder);
    if (system(line))
        fprintf(stderr, "stress: %s stays\n", folder);
}

static _Noreturn void become_launcher(const round_plan *r, int fd, int output, const char *folder)
{
    char path[64], self[4096], part[16], launcher[32];
    command c = {.count = 0};

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getppid(), fd);
    snprintf(part, sizeof part, "%d", r->part_bytes);
    snprintf(launcher, sizeof launcher, "mpirun.%s", r->mpi);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length < 0 ? 0 : length] = 0;
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
    if (folder)
        setenv(folder_name, folder, 1);
    if (r->by == BY_MESSAGES)
        setenv("SHERD_TRANSPORT", "mpi", 1);
    if (r->part_bytes)
        setenv("SHERD_PART", part, 1);
    add(&c, launcher);
    if (r->by == BY_BOTH)
        add_hosts(&c, r, self, path);
    else
        add_ranks(&c, r->ranks, NULL, self, path);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execvp(launcher, (char **)(uintptr_t)c.word);
    fprintf(stderr, "stress: %s: %s\n", launcher, strerror(errno));
    _exit(127);
}

/* What the launcher and its ranks said; the first of it is what judges look at. */
static void read_output(job *j, int output)
{
    ssize_t count = pread(output, j->said, sizeof j->said - 1, 0);

    j->said[count < 0 ? 0 : count] = '\0';
    fputs(j->said, stderr);
    fflush(stderr);
}

void run_under_mpi(job *j, uint64_t seed)
{
    int output = memfd_create("said", MFD_CLOEXEC), status = 0;
    char name[] = "/tmp/sherd_stress_XXXXXX";
    const char *folder = getenv(folder_name) ? NULL : mkdtemp(name);

    j->b->plan = *j->r;
    j->b->seed = seed;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        become_launcher(j->r, j->b->fd, output, folder);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (folder)
        remove_folder(folder);
    read_output(j, output);
    close(output);
    j->exit_status = child < 0             ? 127
                     : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                           : WEXITSTATUS(status);
    for (int q = 0; q < j->r->ranks; q++)
        if (j->b->rank[q].closed && !j->status) {
            j->status = (sherd_status)j->b->rank[q].closed;
            snprintf(j->error, sizeof j->error, "%s", j->b->rank[q].error);
        }
}

/* ---- who is started -------------------------------------------------------------------------- */

int be_rank_of(const char *path)
{
    job *j = calloc(1, sizeof *j);
    sherd_world *world;
    int fd = open(path, O_RDWR);

    if (!j || fd < 0)
        return perror(path), 2;
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (b == MAP_FAILED)
        return perror(path), 2;
    j->r = &b->plan;
    j->b = b;
    j->rank_with_value = -1;
    const sherd_world_options options = {.no_pin = true,
                                         .seed = b->plan.seed,
                                         .region_bytes =
                                             b->plan.by_environment ? 0 : b->plan.region_bytes,
                                         .error = j->error};
    if (!draw_job(j, b->seed) || sherd_world_open(&world, &options))
        return fprintf(stderr, "%s\n", j->error), 2;
    rank_board *me = &b->rank[sherd_world_rank(world)];
    run_rank(world, j);
    me->closed = sherd_world_close(world);
    clear_job(j);
    free(j);
    return 0;
}
