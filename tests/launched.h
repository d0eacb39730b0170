/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of `sherd run` that are themselves what it starts: the argument of the program says what it
 * shall be there, "behind:closing:waits" for a rank that waits behind two wrappers, of which one
 * closes what it has inherited. They define CHECK_PURE.
 */
#ifndef SHERD_LAUNCHED_H
#define SHERD_LAUNCHED_H

#include <sys/wait.h>

#include "check.h"
#include "program.h"
#include "world/world.h"

static const char *self; /* this program */

/* Runs the rest of its text as a program, and returns 0 whatever comes of that: `sh -c 'program;
 * true'`. */
static inline int wrap(const char *mode, bool closing)
{
    pid_t pid = fork();

    if (pid == 0) {
        for (int fd = 3; closing && fd < 1024; fd++)
            close(fd);
        execl(self, self, mode, (char *)NULL);
        _exit(98);
    }
    waitpid(pid, NULL, 0);
    return 0;
}

/* What this program does as a rank: it is a wrapper, or `rank` is called with what remains of the
 * mode. */
static inline int play_launched(const char *mode, int (*rank)(const char *mode))
{
    if (strncmp(mode, "behind:", 7) == 0)
        return wrap(mode + 7, false);
    if (strncmp(mode, "closing:", 8) == 0)
        return wrap(mode + 8, true);
    if (strncmp(mode, "twice:", 6) == 0)
        return wrap(mode + 6, false) || wrap(mode + 6, false);
    return rank(mode);
}

/* A line of a rank, "rank 1 is 4711", in one piece. */
static inline void say(const char *word, int rank)
{
    printf("%s %d is %d\n", word, rank, (int)getpid());
    fflush(stdout);
}

static inline const sherd_mesh *line_of_ranks(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t extent = sherd_world_ranks(world);

    return sherd_mesh_create(&mesh, world, 1, &extent, NULL, NULL) ? NULL : mesh;
}

/* A call that all ranks make. */
static inline bool meet(sherd_world *world, const sherd_mesh *mesh)
{
    int64_t mine = 1, all[SHERD_MAX_RANKS];

    return mesh && sherd__share(world, mesh, "share", &mine, 1, all);
}

/* `sherd run OPTIONS -- this-program MODE` */
static inline program launch(const char *options, const char *mode)
{
    char line[1024];

    snprintf(line, sizeof line, "%s run %s -- %s %s", SHERD, options, self, mode);
    return program_start(line);
}

/* The process of a rank that has said that it is there; 0 if it does not. */
static inline pid_t process_of(program *p, int rank)
{
    static char out[PROGRAM_TEXT];
    char said[32];
    int pid = 0;

    snprintf(said, sizeof said, "rank %d is ", rank);
    if (!CHECK(program_says(p, said, 20)))
        return 0;
    program_read(p->out, out);
    sscanf(strstr(out, said) + strlen(said), "%d", &pid);
    return pid;
}

static inline void send_signal(pid_t pid, int signal)
{
    if (pid > 0) /* else it would be for others, too */
        kill(pid, signal);
}

#define LAUNCHED_MAIN(tests, rank)                                             \
    int main(int argc, char **argv)                                            \
    {                                                                          \
        self = argv[0];                                                        \
        if (getenv("SHERD_RANK") && argc > 1)                                  \
            return play_launched(argv[1], rank);                               \
        return check_main_apart(tests, LEN(tests), argc > 1 ? argv[1] : NULL); \
    }

#endif
