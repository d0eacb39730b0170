/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that mpirun starts, of which one comes late or never, or whose MPI fails: no rank waits for
 * ever, all say why. This program is what mpirun starts. */
#define CHECK_PURE
#include "mpirun.h"
#include "world/inside.h"

#include <unistd.h>

/* ---- what ranks do --------------------------------------------------------------------------- */

/* Ranks that have said what they were told, as files FOLDER/KIND.RANK. */
static const char *mark_of(const char *marks, int rank)
{
    static char path[600];

    snprintf(path, sizeof path, "%s.%d", marks, rank);
    return path;
}

static void await_mark(const char *marks, int rank)
{
    double end = program_clock() + 20;

    while (access(mark_of(marks, rank), F_OK) && program_clock() < end)
        program_pause(0.005);
}

/* Rank 1 comes when the others have given up, by messages. */
static int play_late(const char *marks)
{
    sherd_world *world = open_world(); /* of which each rank may come as late as it must */
    int rank = sherd_world_rank(world);

    world->patience.deadline_ns = 2000000000;
    for (int other = 0; rank == 1 && other < 3; other += 2)
        await_mark(marks, other);
    MUST(sherd_world_check(world) == SHERD_ETIMEDOUT);
    printf("told: %s\n", sherd_world_error(world));
    fflush(stdout);
    close(open(mark_of(marks, rank), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    await_mark(marks, 1); /* the launcher ends the job when the first has gone */
    return sherd_world_close(world) == SHERD_ETIMEDOUT ? 0 : 1;
}

/* Rank 1 does not open a second world. */
static int play_missing(void)
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world = open_world();
    int rank = sherd_world_rank(world);

    MUST(!sherd_world_close(world));
    setenv("SHERD_TIMEOUT", "1", 1);
    if (rank != 1) {
        sherd_status status = sherd_world_open(&world, &(sherd_world_options){.error = text});
        printf("%s: %s\n", sherd_status_name(status), text);
        fflush(stdout);
    }
    sleep(rank == 1 ? 6 : 3);
    _exit(7); /* the launcher ends the job with the first */
}

/* A program that has been a rank, and one after it. */
static int play_second(void)
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world;
    int how = 1;
    pid_t first = fork();

    if (first == 0)
        exit(sherd_world_close(open_world()) != SHERD_OK);
    MUST(first > 0 && waitpid(first, &how, 0) == first && how == 0);
    sherd_status status = sherd_world_open(&world, &(sherd_world_options){.error = text});
    printf("%s: %s\n", sherd_status_name(status), text);
    return 0;
}

static int play_rank(const char *mode)
{
    if (strcmp(mode, "second") == 0)
        return play_second();
    return strcmp(mode, "missing") == 0 ? play_missing() : play_late(mode);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void a_rank_that_does_not_come_ends_in_a_time_out(void)
{
    char folder[] = "/tmp/sherd-late-XXXXXX", line[512];

    setenv("SHERD_TRANSPORT", "mpi", 1);
    if (!CHECK(mkdtemp(folder) != NULL))
        return;
    snprintf(line, sizeof line, "%s %s/%%s", self, folder);
    const program_end *ends = mpi_run_each(3, line);
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(times(end->out, "told: rank 0: waited 2 s (SHERD_TIMEOUT) for rank 1") +
                     times(end->out, "told: rank 2: waited 2 s (SHERD_TIMEOUT) for rank 1"),
                 3);
        for (int r = 0; r < 3; r++) {
            snprintf(line, sizeof line, "%s/%s", folder, kind);
            CHECK_EQ(unlink(mark_of(line, r)), 0);
        }
    }
    CHECK_EQ(rmdir(folder), 0);
    unsetenv("SHERD_TRANSPORT");
}

static void a_rank_that_does_not_open_it_ends_in_a_time_out(void)
{
    setenv("SHERD_TIMEOUT", "1", 1);
    const program_end *ends = mpi_run_part(3, "missing");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK(end->status != 0);
        CHECK_EQ(times(end->out, "told: sherd_world_open_mpi: "), 2);
        CHECK_EQ(times(end->out, "not told: "), 0);
        CHECK_EQ(times(end->out, "waited 1 s (SHERD_TIMEOUT) for all ranks of the communicator"),
                 2);
    }
    unsetenv("SHERD_TIMEOUT");
}

/* What ends a start in the module of an MPI keeps its status. */
static void a_rank_that_opens_no_second_world_ends_in_a_time_out(void)
{
    const program_end *ends = mpi_run(3, "missing");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(times(end->out, "ETIMEDOUT: "), 2);
        CHECK_EQ(times(end->out, "waited 1 s (SHERD_TIMEOUT) for all ranks of the communicator"),
                 2);
    }
}

/* There is no world yet in which the others could be told. */
static void what_mpi_says_is_wrong_ends_an_opening(void)
{
    setenv("SHERD_TIMEOUT", "1", 1);
    const program_end *ends = mpi_run_part(3, "broken MPI_Iallgather");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(times(end->out, "not opened: rank 1: "), 1);
        CHECK_EQ(times(end->out, ": MPI_Iallgather: "), 1);
        CHECK_EQ(times(end->out, "ranks do not reach each other"), 2);
    }
    unsetenv("SHERD_TIMEOUT");
}

/* As the world's own waits do; it takes longer than most tests. */
static void who_was_stopped_has_not_waited(void)
{
    if (!getenv("SHERD_PROOF"))
        return;
    setenv("SHERD_TIMEOUT", "1", 1);
    const program_end *ends = mpi_run_part(2, "stopped");
    FOR_EACH_MPI(kind)
    {
        CHECK_EQ(ends[kind_i].status, 0);
        CHECK_EQ(times(ends[kind_i].out, "not opened: "), 0);
    }
    unsetenv("SHERD_TIMEOUT");
}

static void who_has_no_memory_for_it_ends_an_opening_on_all_ranks(void)
{
    const program_end *ends = mpi_run_part(3, "poor");
    FOR_EACH_MPI(kind)
    {
        CHECK_EQ(ends[kind_i].status, 0);
        CHECK_EQ(times(ends[kind_i].out, "ENOMEM: "), 3);
        CHECK_EQ(times(ends[kind_i].out, ": rank 1: out of memory"), 3);
    }
}

/* Also where it has none before it meets the others; and then a world opens. */
static void who_has_no_memory_before_it_comes_is_waited_for_by_nobody(void)
{
    setenv("SHERD_TIMEOUT", "5", 1);
    const program_end *ends = mpi_run_part(3, "early");
    FOR_EACH_MPI(kind)
    {
        CHECK_EQ(ends[kind_i].status, 0);
        CHECK_EQ(times(ends[kind_i].out, "early: well"), 3);
    }
    unsetenv("SHERD_TIMEOUT");
}

static void what_mpi_says_is_wrong_all_ranks_learn(void)
{
    static const char *const functions[] = {"MPI_Isend", "MPI_Irecv", "MPI_Test"};

    setenv("SHERD_TRANSPORT", "mpi", 1);
    const program_end *ends = mpi_run_part(3, "broken MPI_Isend MPI_Irecv MPI_Test");
    FOR_EACH_MPI(kind)
    {
        CHECK_EQ(ends[kind_i].status, 0);
        for (int i = 0; i < LEN(functions); i++) {
            char what[64];
            snprintf(what, sizeof what, ": %s: ", functions[i]);
            CHECK_EQ(times(ends[kind_i].out, what), 3);
        }
        CHECK_EQ(times(ends[kind_i].out, "EPEER: rank 1: "), 9);
        CHECK(!strstr(ends[kind_i].out, "error stack:\n")); /* MPICH has several lines */
    }
    unsetenv("SHERD_TRANSPORT");
}

/* What MPI still sends from there lies in a world that is closed. */
static void who_has_given_up_is_read_by_who_comes_late(void)
{
    setenv("SHERD_TIMEOUT", "3", 1); /* opening has it, too */
    setenv("SHERD_TRANSPORT", "mpi", 1);
    const program_end *ends = mpi_run_part(2, "late");
    FOR_EACH_MPI(kind)
    {
        CHECK_EQ(ends[kind_i].status, 0);
        CHECK_EQ(times(ends[kind_i].out, "goes on"), 2);
    }
    unsetenv("SHERD_TRANSPORT");
    unsetenv("SHERD_TIMEOUT");
}

/* Its launcher does not listen to it: MPI_Init would die without a word. */
static void a_second_program_under_mpich_is_refused(void)
{
    char line[512];

    if (!mpirun_of("mpich")) {
        printf("skipped: no mpich here\n");
        return;
    }
    snprintf(line, sizeof line, "%s second", self);
    program p = mpi_start("mpich", 2, line);
    program_end end;
    program_join(&p, &end);
    CHECK_EQ(end.status, 0);
    CHECK_EQ(
        times(end.out, "EINVAL: sherd_world_open: an earlier program of this rank has ended MPI"),
        2);
}

/* The longest first. */
static const check_test tests[] = {
    {TEST(a_rank_that_opens_no_second_world_ends_in_a_time_out)},
    {TEST(who_has_given_up_is_read_by_who_comes_late)},
    {TEST(a_rank_that_does_not_come_ends_in_a_time_out)},
    {TEST(a_rank_that_does_not_open_it_ends_in_a_time_out)},
    {TEST(what_mpi_says_is_wrong_ends_an_opening)},
    {TEST(who_was_stopped_has_not_waited)},
    {TEST(who_has_no_memory_for_it_ends_an_opening_on_all_ranks)},
    {TEST(who_has_no_memory_before_it_comes_is_waited_for_by_nobody)},
    {TEST(what_mpi_says_is_wrong_all_ranks_learn)},
    {TEST(a_second_program_under_mpich_is_refused)},
};
MPIRUN_MAIN(tests, play_rank)
