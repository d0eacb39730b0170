/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that use MPI themselves, and are started in another way than by mpirun, or end in
 * another order. */
#define CHECK_PURE
#include "mpirun.h"

#include <signal.h>
#include <unistd.h>

/* mpi_opens.c of an MPI, under `sherd` with these words before it. */
static const program_end *under_sherd(const char *words, const char *kind, const char *what)
{
    char line[1024];

    snprintf(line, sizeof line, SHERD " %s %s apart %s/mpi_opens_%s %s", words, self,
             SHERD_BUILD_DIR, kind, what);
    return run_with_mpi_folder(line);
}

/* Its ranks under the mpirun of each MPI. */
static const program_end *under_mpirun(int ranks, const char *what)
{
    char line[1024];

    snprintf(line, sizeof line, "%s/mpi_opens_%%s %s", SHERD_BUILD_DIR, what);
    return mpi_run_each(ranks, line);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void a_dry_run_writes_nothing(void)
{
    char path[] = "/tmp/sherd_opens_XXXXXX", what[64];
    int fd = mkstemp(path);

    if (!CHECK(fd >= 0))
        return;
    close(fd);
    unlink(path);
    snprintf(what, sizeof what, "writes %s", path);
    FOR_EACH_MPI(kind)
    {
        const program_end *end = under_sherd("dry -n 4 --rank 2 --rates f32=1", kind, what);
        CHECK_EQ(end->status, 0);
        CHECK_EQ(times(end->out, "rank 2 of 4\n"), 1);
        CHECK_EQ(times(end->out, "rank 2 of 4, dry: nothing was computed"), 1);
        CHECK(access(path, F_OK) != 0);
    }
    unlink(path);
}

/* Three processes that are alone for MPI would do the same work three times. */
static void ranks_that_mpi_does_not_connect_are_refused(void)
{
    FOR_EACH_MPI(kind)
    {
        const program_end *end = under_sherd("run -n 3", kind, "");
        CHECK(end->status != 0);
        CHECK(times(end->out, "open EINVAL: sherd_world_open_mpi: SHERD_RANKS is 3, but "
                              "MPI_COMM_WORLD has one rank") >= 1);
        CHECK_EQ(times(end->out, "rank 0 of 1"), 0);
        end = under_sherd("run -n 1", kind, "");
        CHECK_EQ(end->status, 0);
        CHECK_EQ(times(end->out, "rank 0 of 1"), 1);
    }
}

static void what_a_rank_starts_is_none(void)
{
    const program_end *ends = under_mpirun(2, "starts");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(end->status, 0);
        CHECK_EQ(times(end->out, "alone: 1\n"), 2);
    }
}

static void a_world_that_outlives_mpi_is_one_clear_line(void)
{
    setenv("SHERD_TRANSPORT", "mpi", 1);
    const program_end *ends = under_mpirun(2, "early");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(end->status, 0);
        CHECK_EQ(times(end->out, "check EPEER: rank "), 2);
        CHECK_EQ(times(end->out, "MPI_Finalize was called while the world was open"), 2);
        CHECK_EQ(times(end->out, "close EPEER"), 2);
        CHECK_TEXT(end->err, "sherd: rank 0: MPI_Finalize was called while the world was open: "
                             "close the world first\n");
    }
    unsetenv("SHERD_TRANSPORT");
}

static void a_transport_that_there_is_not_is_refused(void)
{
    setenv("SHERD_TRANSPORT", "MPI", 1);
    const program_end *ends = under_mpirun(2, "");
    FOR_EACH_MPI(kind)
    CHECK_EQ(times(ends[kind_i].out,
                   "open EINVAL: rank 0: SHERD_TRANSPORT=MPI: expected arena, threads or mpi"),
             2);
    unsetenv("SHERD_TRANSPORT");
}

/* Nobody waits for the rank that has made the mistake. */
static void a_rank_without_a_place_fails_on_all(void)
{
    const program_end *ends = under_mpirun(2, "nowhere");
    FOR_EACH_MPI(kind)
    CHECK_EQ(times(ends[kind_i].out, "open EINVAL: rank 1: sherd_world_open_mpi: out is NULL"), 2);
}

static void a_wait_may_have_no_limit(void)
{
    setenv("SHERD_TIMEOUT", "none", 1);
    const program_end *ends = under_mpirun(2, "");
    FOR_EACH_MPI(kind)
    {
        CHECK_EQ(ends[kind_i].status, 0);
        CHECK_EQ(times(ends[kind_i].out, " of 2\n"), 2);
    }
    unsetenv("SHERD_TIMEOUT");
}

/* Ranks whose job is ended from outside, as by Ctrl-C. */
static int play_asleep(const char *mode)
{
    sherd_world *world = open_world();

    if (sherd_world_rank(world) == 0)
        puts(mode);
    fflush(stdout);
    sleep(30);
    return sherd_world_close(world) ? 1 : 0;
}

/* Of MPICH's launcher ranks get SIGKILL, which may have been the cause of all. */
static void who_was_asked_to_end_is_not_reported(void)
{
    char line[512], folder[] = "/tmp/sherd_mpi_XXXXXX";
    program_end end;

    if (!mpirun_of(mpi_kinds[0])) {
        printf("skipped: no %s here\n", mpi_kinds[0]);
        return;
    }
    bool made = make_mpi_folder(folder);
    snprintf(line, sizeof line, "%s asleep", self);
    program p = mpi_start(mpi_kinds[0], 3, line);
    CHECK(program_says(&p, "asleep\n", 30));
    program_kill(&p, SIGINT);
    program_join(&p, &end);
    CHECK(end.status != 0);
    CHECK_EQ(program_orphans(8), 0);
    CHECK_EQ(times(end.err, "sherd: host"), 0);
    if (made)
        remove_mpi_folder(folder);
}

static const check_test tests[] = {
    {TEST(a_dry_run_writes_nothing)},
    {TEST(ranks_that_mpi_does_not_connect_are_refused)},
    {TEST(what_a_rank_starts_is_none)},
    {TEST(a_world_that_outlives_mpi_is_one_clear_line)},
    {TEST(a_transport_that_there_is_not_is_refused)},
    {TEST(a_rank_without_a_place_fails_on_all)},
    {TEST(a_wait_may_have_no_limit)},
    {TEST(who_was_asked_to_end_is_not_reported)},
};
MPIRUN_MAIN(tests, play_asleep)
