/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that start ranks by the mpirun of each MPI that is here, and that sherd has a module
 * for. */
#ifndef SHERD_MPIRUN_H
#define SHERD_MPIRUN_H

#include <ctype.h>

#include "check.h"
#include "program.h"
#include "sherd/world.h"

static const char *self; /* this program */
static const char *const mpi_kinds[] = {"openmpi", "mpich"};
static int mpi_only = -1; /* the place of the one MPI that was run last; -1: all that are here */

/* The launcher of an MPI, as a path; NULL: it is not here, or sherd was built without it. */
static inline const char *mpirun_of(const char *kind)
{
    static const char *const places[] = {"/usr/bin", "/usr/local/bin", "/opt/bin"};
    static char path[256];

    snprintf(path, sizeof path, "%s/sherd_mpi_%s.so", SHERD_BUILD_DIR, kind);
    for (int i = 0; access(path, R_OK) == 0 && i < LEN(places); i++) {
        char launcher[256];
        snprintf(launcher, sizeof launcher, "%s/mpirun.%s", places[i], kind);
        if (access(launcher, X_OK) == 0) {
            snprintf(path, sizeof path, "%s", launcher);
            return path;
        }
    }
    return NULL;
}

static inline bool mpi_is_run(int i)
{
    return (mpi_only < 0 || mpi_only == i) && mpirun_of(mpi_kinds[i]);
}

/*
 * What to run a line with: all MPIs in the proof; else one of those that are here, by the line, as
 * launchers take most of the time of such tests.
 */
static inline void mpi_choose(const char *line)
{
    const char *at = strrchr(line, '/');
    unsigned sum = 0;

    mpi_only = -1;
    for (int i = 0; i < LEN(mpi_kinds); i++)
        if (getenv("SHERD_PROOF") || !mpirun_of(mpi_kinds[i]))
            return;
    for (at = at ? at : line; *at; at++)
        sum += (unsigned char)*at;
    mpi_only = (int)(sum % LEN(mpi_kinds));
}

/* Whether this very process is a rank. */
static inline bool is_mpi_rank(void)
{
    return getenv("OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK");
}

/* As root, and with more ranks than cores. */
static inline void allow_mpirun(void)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    /* Seconds that ranks have to say what they have learnt, once one has died. One is little on a
     * full machine; it is waited out twice. */
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "2", 1);
    /* MPI leaves some; and what can not be had is NULL, as without the sanitizer. */
    setenv("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1", 1);
}

/*
 * Launchers of Open MPI that start and end at once remove their common folder from each other ("A
 * call to mkdir was unable to create the desired directory"): each run gets one of its own. False:
 * there is one already.
 */
static inline bool make_mpi_folder(char *name)
{
    return !getenv("OMPI_MCA_orte_tmpdir_base") && mkdtemp(name) &&
           setenv("OMPI_MCA_orte_tmpdir_base", name, 1) == 0;
}

static inline void remove_mpi_folder(const char *name)
{
    char line[64];

    snprintf(line, sizeof line, "rm -rf %s", name);
    CHECK_EQ(system(line), 0);
    unsetenv("OMPI_MCA_orte_tmpdir_base");
}

/*
 * `PROGRAM apart LINE...`: become this line, which has a folder of its own in that of the run; for
 * launchers and programs that one line starts several of.
 */
static inline int become_apart(char **line)
{
    const char *folder = getenv("OMPI_MCA_orte_tmpdir_base");
    char name[256];

    snprintf(name, sizeof name, "%s/XXXXXX", folder ? folder : "/tmp");
    if (mkdtemp(name) && setenv("OMPI_MCA_orte_tmpdir_base", name, 1) == 0)
        execv(line[0], line);
    perror(line[0]);
    return 127;
}

/* A program that starts such, with a folder. The result is valid until the next call. */
static inline const program_end *run_with_mpi_folder(const char *line)
{
    char folder[] = "/tmp/sherd_mpi_XXXXXX";
    bool made = make_mpi_folder(folder);
    const program_end *end;

    allow_mpirun();
    end = program_run(line);
    if (made)
        remove_mpi_folder(folder);
    return end;
}

/* `mpirun -n RANKS LINE` */
static inline program mpi_start(const char *kind, int ranks, const char *line)
{
    char all[4096];

    allow_mpirun();
    snprintf(all, sizeof all, "%s -n %d %s", mpirun_of(kind), ranks, line);
    return program_start(all);
}

/*
 * The same for each MPI that is chosen, at once: launchers are asleep most of the time. `%s` in the
 * line, if it is there, is the MPI's kind. The ends, in the order of mpi_kinds, are valid until the
 * next call; what the programs leave behind has some seconds to go.
 */
static inline const program_end *mpi_run_each(int ranks, const char *line)
{
    static program_end end[LEN(mpi_kinds)];
    program p[LEN(mpi_kinds)];
    char all[3072], folder[] = "/tmp/sherd_mpi_XXXXXX";
    bool made = make_mpi_folder(folder);

    mpi_choose(line);
    for (int i = 0; i < LEN(mpi_kinds); i++) {
        const char *place = strstr(line, "%s");
        int before = place ? (int)(place - line) : (int)strlen(line);
        snprintf(all, sizeof all, "%.*s%s%s", before, line, place ? mpi_kinds[i] : "",
                 place ? place + 2 : "");
        if (mpi_is_run(i))
            p[i] = mpi_start(mpi_kinds[i], ranks, all);
    }
    for (int i = 0; i < LEN(mpi_kinds); i++)
        if (mpi_is_run(i))
            program_join(&p[i], &end[i]);
    CHECK_EQ(program_orphans(8), 0);
    if (made)
        remove_mpi_folder(folder);
    return end;
}

/* The same with this program and a word that says what its ranks do. */
static inline const program_end *mpi_run(int ranks, const char *mode)
{
    char line[512];

    snprintf(line, sizeof line, "%s %s", self, mode);
    return mpi_run_each(ranks, line);
}

/* The same with mpi_part.c, which is linked to each MPI, and what its ranks are to do. */
static inline const program_end *mpi_run_part(int ranks, const char *what)
{
    char line[256];

    /* a space behind the program would be an argument of its own */
    snprintf(line, sizeof line, "%s/mpi_part_%%s%s%s", SHERD_BUILD_DIR, *what ? " " : "", what);
    return mpi_run_each(ranks, line);
}

/* Ranks end with this status where something was not as it must be; the line is on their standard
 * error output. */
#define MUST(condition) \
    ((condition)        \
         ? (void)0      \
         : (fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition), exit(9)))

/* What a rank opens: it ends where that fails. */
static inline sherd_world *open_world(void)
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world = NULL;

    if (sherd_world_open(&world, &(sherd_world_options){.seed = 4, .error = text}))
        fprintf(stderr, "%s\n", text);
    MUST(world);
    return world;
}

/* Once for each MPI that was run last; kind_i is its place in mpi_kinds. */
#define FOR_EACH_MPI(kind)                                                                         \
    for (int kind##_i = 0; kind##_i < LEN(mpi_kinds); kind##_i++)                                  \
        for (const char *kind = mpi_only < 0 || mpi_only == kind##_i ? mpi_kinds[kind##_i] : NULL; \
             kind && (mpirun_of(kind) || (printf("skipped: no %s here\n", kind), false));          \
             kind = NULL)

#define MPIRUN_MAIN(tests, rank)                                               \
    int main(int argc, char **argv)                                            \
    {                                                                          \
        self = argv[0];                                                        \
        if (argc > 2 && strcmp(argv[1], "apart") == 0)                         \
            return become_apart(argv + 2);                                     \
        if (is_mpi_rank() && argc > 1)                                         \
            return rank(argv[1]);                                              \
        return check_main_apart(tests, LEN(tests), argc > 1 ? argv[1] : NULL); \
    }

#endif
