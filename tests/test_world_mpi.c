/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that mpirun starts, on one machine: they meet in an arena as under `sherd run`. This
 * program is what it starts. */
#define CHECK_PURE
#include "mpirun.h"
#include "world/world.h"

#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what ranks do --------------------------------------------------------------------------- */

static const sherd_mesh *line_of_ranks(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t extent = sherd_world_ranks(world);

    MUST(!sherd_mesh_create(&mesh, world, 1, &extent, NULL, NULL));
    return mesh;
}

/* A call: all learn all numbers. */
static bool share(sherd_world *world, const sherd_mesh *mesh)
{
    int64_t mine = 7 * sherd_world_rank(world), all[SHERD_MAX_RANKS];
    bool good = sherd__share(world, mesh, "share", &mine, 1, all);

    for (int r = 0; good && r < sherd_world_ranks(world); r++)
        MUST(all[r] == 7 * r);
    return good;
}

static int body(sherd_world *world, void *payload)
{
    MUST(share(world, line_of_ranks(world)));
    *(int *)payload = sherd_world_ranks(world);
    return 0;
}

/* What a rank starts is none: this program again, alone. */
static void start_another(const char *mode)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        execl(self, self, mode, (char *)NULL);
        _exit(98);
    }
    waitpid(pid, &status, 0);
    MUST(status == 0);
}

/* Two worlds, one after the other; then sherd_spawn, which runs here. */
static int play_twice(void)
{
    int exit_status = -1, ranks = 0, rank = 0;
    char text[SHERD_ERROR_BYTES];
    const sherd_world_options quiet = {.error = text};

    for (int turn = 0; turn < 2; turn++) {
        sherd_world *world = open_world(), *second = NULL;
        MUST(sherd_world_ranks(world) == 3 && sherd_world_seed(world) == 4);
        MUST(strcmp(sherd_world_transport(world), "arena") == 0);
        MUST(sherd_world_open(&second, &quiet) == SHERD_EINVAL && !second);
        MUST(share(world, line_of_ranks(world)));
        rank = sherd_world_rank(world);
        if (turn == 1 && rank == 1)
            start_another("alone");
        MUST(!sherd_world_close(world));
    }
    MUST(!sherd_spawn(&exit_status, NULL, body, &ranks) && exit_status == 0 && ranks == 3);
    printf("rank %d was there\n", rank);
    return 0;
}

static int play_alone(void)
{
    sherd_world *world = open_world();

    MUST(sherd_world_ranks(world) == 1);
    return sherd_world_close(world) ? 1 : 0;
}

/* Rank 1 has no room for its world: nobody gets one, and all may try again. */
static int play_roomless(void)
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world_options options = {.seed = 4, .error = text};
    sherd_world *world = NULL;
    bool none = strcmp(getenv(getenv("PMI_RANK") ? "PMI_RANK" : "OMPI_COMM_WORLD_RANK"), "1") == 0;

    MUST(sherd_world_open(none ? NULL : &world, &options) == SHERD_EINVAL && !world);
    MUST(strcmp(text, "rank 1: sherd_world_open: out is NULL") == 0);
    world = open_world();
    return sherd_world_close(world) ? 1 : 0;
}

static void *open_elsewhere(void *world)
{
    *(sherd_world **)world = open_world();
    return NULL;
}

static void *close_elsewhere(void *world)
{
    MUST(!sherd_world_close(*(sherd_world **)world));
    return NULL;
}

static void in_a_thread(void *(*what)(void *), sherd_world **world)
{
    pthread_t thread;

    MUST(!pthread_create(&thread, NULL, what, world) && !pthread_join(thread, NULL));
}

/* A thread opens a world and ends, and another has it then; or it stays, but another closes the
 * world. */
static int play_threads(void)
{
    for (int turn = 0; turn < 4; turn++) {
        sherd_world *world = NULL;
        if (turn % 2)
            in_a_thread(open_elsewhere, &world);
        else
            world = open_world();
        usleep(20000);
        MUST(share(world, line_of_ranks(world)));
        in_a_thread(close_elsewhere, &world);
    }
    puts("went on");
    return 0;
}

/* Rank 1 makes another mesh: all learn that, and go on. */
static int play_wrong(const char *transport)
{
    sherd_world *world = open_world();
    int64_t extents[2] = {1, sherd_world_ranks(world)};
    const sherd_mesh *mesh = NULL;

    MUST(strcmp(sherd_world_transport(world), transport) == 0);
    if (sherd_world_rank(world) == 1)
        MUST(sherd_mesh_create(&mesh, world, 2, extents, NULL, NULL) == SHERD_EDIFFER);
    else
        MUST(sherd_mesh_create(&mesh, world, 1, extents + 1, NULL, NULL) == SHERD_EDIFFER);
    printf("%s\n", sherd_world_error(world));
    MUST(share(world, line_of_ranks(world)));
    return sherd_world_close(world) ? 1 : 0;
}

/* Rank 1 is killed; what the others learn, they say. */
static int play_death(void)
{
    sherd_world *world = open_world();
    const sherd_mesh *mesh = line_of_ranks(world);

    if (sherd_world_rank(world) == 1)
        kill(getpid(), SIGKILL);
    signal(SIGTERM, SIG_IGN); /* as who saves what it has */
    share(world, mesh);
    MUST(sherd_world_check(world) == SHERD_EPEER);
    printf("told: %s\n", sherd_world_error(world));
    fflush(stdout);
    return sherd_world_close(world) == SHERD_EPEER ? 4 : 9;
}

/* ---- memory of guards ------------------------------------------------------------------------ */

/* What stands behind a name in a file of /proc. */
static bool read_line_of(const char *path, const char *name, char out[64])
{
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "r");

    while (file && !found && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0) {
            snprintf(out, 64, "%.60s", line + strlen(name));
            found = true;
        }
    if (file)
        fclose(file);
    return found;
}

/* Whether a process is a guard: this program, in a session whose first process is gone. */
static bool is_guard(int process)
{
    char path[64], mine[64], its[64];
    pid_t session = getsid(process);

    snprintf(path, sizeof path, "/proc/%d/comm", process);
    return session > 0 && kill(session, 0) < 0 && read_line_of("/proc/self/comm", "", mine) &&
           read_line_of(path, "", its) && strcmp(mine, its) == 0;
}

/* Memory that only this process has, kB; of one that is gone 0. */
static long private_kb(int process)
{
    char path[64], line[64] = "0";

    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", process);
    return read_line_of(path, "Private_Dirty:", line) ? atol(line) : 0;
}

/* The most that a guard on this machine has alone, kB; -1: there are fewer than `least`. */
static long heaviest_guard(int least)
{
    DIR *all = opendir("/proc");
    long most = 0;

    MUST(all);
    for (struct dirent *one; (one = readdir(all));) {
        int process = atoi(one->d_name);
        if (process <= 0 || !is_guard(process))
            continue;
        long kb = private_kb(process);
        most = kb > most ? kb : most;
        least--;
    }
    closedir(all);
    return least > 0 ? -1 : most;
}

/* What a guard may have alone; with a sanitizer in the program it keeps what it was forked with. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LIGHT_KB = INT_MAX };
#else
enum { LIGHT_KB = 4096 };
#endif

/* Ranks write memory that they had before they opened their world: their guards have no old copies
 * of it. Some is of the heap, some a mapping of its own. */
static int play_heavy(void)
{
    enum { BLOCKS = 256, BLOCK = 64 << 10 };
    const size_t bytes = (size_t)BLOCKS * BLOCK;
    char *block[BLOCKS], *large = malloc(bytes);
    long kb = -1;

    for (int i = 0; i < BLOCKS; i++) {
        MUST(large && (block[i] = malloc(BLOCK)));
        memset(block[i], 1, BLOCK);
    }
    memset(large, 1, bytes);
    sherd_world *world = open_world();
    const sherd_mesh *mesh = line_of_ranks(world);
    for (int i = 0; i < BLOCKS; i++)
        memset(block[i], 2, BLOCK);
    memset(large, 2, bytes);
    MUST(share(world, mesh));
    for (int i = 0; i < 500 && (kb < 0 || kb > LIGHT_KB); i++) {
        kb = heaviest_guard(sherd_world_ranks(world));
        usleep(10000);
    }
    printf("guards: %s\n", kb >= 0 && kb <= LIGHT_KB ? "light" : "heavy");
    MUST(share(world, mesh));
    for (int i = 0; i < BLOCKS; i++)
        MUST(block[i][BLOCK - 1] == 2);
    MUST(large[bytes - 1] == 2);
    return sherd_world_close(world) ? 1 : 0;
}

static int play_rank(const char *mode)
{
    if (strcmp(mode, "roomless") == 0)
        return play_roomless();
    if (strcmp(mode, "heavy") == 0)
        return play_heavy();
    if (strcmp(mode, "threads") == 0)
        return play_threads();
    if (strcmp(mode, "twice") == 0)
        return play_twice();
    if (strcmp(mode, "alone") == 0)
        return play_alone();
    if (strcmp(mode, "wrong") == 0)
        return play_wrong("arena");
    if (strcmp(mode, "hosts") == 0)
        return play_wrong("mpi");
    if (strcmp(mode, "killed") == 0)
        return play_death();
    char text[SHERD_ERROR_BYTES] = ""; /* "refused" */
    sherd_world *world = NULL;
    sherd_status status = sherd_world_open(&world, &(sherd_world_options){.error = text});
    /* MPICH's launcher is ended by SIGPIPE where its ranks are gone before it has met them. */
    usleep(500000);
    printf("%s: %s\n", sherd_status_name(status), text);
    return status && !world ? 0 : 1;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void ranks_join_again_and_again_and_what_they_start_is_none(void)
{
    const program_end *ends = mpi_run(3, "twice");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(end->status, 0);
        CHECK_EQ(times(end->out, "was there"), 3);
        CHECK_TEXT(end->err, "");
    }
}

static void a_wrong_call_is_the_same_error_on_all_ranks(void)
{
    const program_end *ends = mpi_run(3, "wrong");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(end->status, 0);
        CHECK_EQ(times(end->out, "rank 0: sherd_mesh_create: rank 0 passed ("), 3);
    }
}

static void who_brings_no_room_is_an_error_on_all_ranks(void)
{
    const program_end *ends = mpi_run(2, "roomless");
    FOR_EACH_MPI(kind)
    {
        CHECK_EQ(ends[kind_i].status, 0);
        CHECK_TEXT(ends[kind_i].err, "");
    }
}

/* Nobody takes the end of a thread for that of a rank. */
static void a_world_may_go_to_another_thread(void)
{
    const program_end *ends = mpi_run(3, "threads");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(end->status, 0);
        CHECK_EQ(times(end->out, "went on"), 3);
        CHECK_TEXT(end->err, "");
    }
}

/* Open MPI asks its ranks to end before it kills them: they learn who died. MPICH kills them at
 * once, and says where. */
static void who_dies_is_named_with_its_host_and_nothing_is_left(void)
{
    char host[64] = "", ours[128], theirs[128];

    gethostname(host, sizeof host - 1);
    snprintf(ours, sizeof ours, "sherd: host %s: rank 1 ended before closing its world", host);
    snprintf(theirs, sizeof theirs, "RUNNING AT %s", host);
    const program_end *ends = mpi_run(3, "killed");
    FOR_EACH_MPI(kind)
    {
        bool kills = strcmp(kind, "mpich") == 0;
        const program_end *end = &ends[kind_i];
        CHECK(end->status != 0 && end->seconds < 30);
        CHECK(strstr(end->err, ours) || (kills && strstr(end->out, theirs)));
        CHECK(kills || times(end->out, "told: rank 1 ended before closing its world") == 2);
    }
}

/* Nobody tells the others by messages; the line is there all the same, of the one that died or of
 * one that was killed with it. */
static void who_dies_is_named_also_where_ranks_share_nothing(void)
{
    char host[64] = "", ours[128];

    gethostname(host, sizeof host - 1);
    snprintf(ours, sizeof ours, "sherd: host %s: rank ", host);
    setenv("SHERD_TRANSPORT", "mpi", 1);
    const program_end *ends = mpi_run(3, "killed");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK(end->seconds < 30);
        CHECK(strstr(end->err, ours) || strstr(end->out, ours));
        CHECK(strstr(end->err, "rank 1 ended before") || strstr(end->err, "so did rank 1") ||
              strcmp(kind, "mpich") == 0);
    }
    unsetenv("SHERD_TRANSPORT");
}

static void who_dies_is_told_in_each_of_its_worlds(void)
{
    const program_end *ends = mpi_run_part(3, "dies");
    FOR_EACH_MPI(kind)
    {
        bool kills = strcmp(kind, "mpich") == 0;
        const program_end *end = &ends[kind_i];
        CHECK(end->status != 0 && end->seconds < 30);
        CHECK(kills || times(end->out, "EPEER in world 0: rank 1 ended before") == 2);
        CHECK(kills || times(end->out, "EPEER in world 1: rank 1 ended before") == 2);
    }
}

static void a_module_that_does_not_load_is_one_clear_line(void)
{
    setenv("SHERD_MPI_MODULE", "/nowhere/module.so", 1);
    const program_end *ends = mpi_run(2, "refused");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(end->status, 0);
        CHECK_EQ(times(end->out, "EINVAL: "), 2);
        CHECK_EQ(times(end->out, "of a job of MPI, but sherd's module for it can not be loaded"),
                 2);
        CHECK_EQ(times(end->out, "/nowhere/module.so"), 2);
        CHECK_EQ(times(end->out, "\n"), 2);
    }
    unsetenv("SHERD_MPI_MODULE");
}

/* Ranks 0 and 1 believe to be on one host, and rank 2 on another. */
static void ranks_of_two_hosts_are_one_world(void)
{
    char line[2048];

    snprintf(line, sizeof line,
             "env SHERD_HOST=north %s hosts : -n 1 env SHERD_HOST=south %s hosts", self, self);
    const program_end *ends = mpi_run_each(2, line);
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(end->status, 0);
        CHECK_TEXT(end->err, "");
        CHECK_EQ(times(end->out, "rank 0: sherd_mesh_create: rank 0 passed ("), 3);
    }
}

/* Half of the ranks of a program with a communicator; its own messages go on meanwhile. */
static void a_part_of_a_communicator_is_a_world(void)
{
    const program_end *ends = mpi_run_part(4, "");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(end->status, 0);
        CHECK_TEXT(end->err, "");
        CHECK_EQ(times(end->out, "of 2 in world"), 8);
    }
}

static void a_guard_has_no_copy_of_what_its_rank_writes(void)
{
    const program_end *ends = mpi_run(2, "heavy");
    FOR_EACH_MPI(kind)
    {
        const program_end *end = &ends[kind_i];
        CHECK_EQ(end->status, 0);
        CHECK_EQ(times(end->out, "guards: light"), 2);
        CHECK_TEXT(end->err, "");
    }
}

/* Each rank of `sherd run` starts a job of its own by mpirun, and the other way round. */
static void the_launcher_that_is_nearest_counts(void)
{
    char line[2048];

    mpi_choose("nearest");
    FOR_EACH_MPI(kind)
    {
        for (int outer = 0; outer < 2; outer++) {
            if (outer)
                snprintf(line, sizeof line, "%s -n 2 %s run -n 3 %s twice", mpirun_of(kind), SHERD,
                         self);
            else
                snprintf(line, sizeof line, "%s run -n 2 %s apart %s -n 3 %s twice", SHERD, self,
                         mpirun_of(kind), self);
            const program_end *end = run_with_mpi_folder(line);
            CHECK_EQ(end->status, 0);
            CHECK_EQ(times(end->out, "was there"), 6);
            CHECK_TEXT(end->err, "");
        }
    }
}

static const check_test tests[] = {
    {TEST(ranks_join_again_and_again_and_what_they_start_is_none)},
    {TEST(a_wrong_call_is_the_same_error_on_all_ranks)},
    {TEST(who_brings_no_room_is_an_error_on_all_ranks)},
    {TEST(a_world_may_go_to_another_thread)},
    {TEST(who_dies_is_named_with_its_host_and_nothing_is_left)},
    {TEST(who_dies_is_named_also_where_ranks_share_nothing)},
    {TEST(who_dies_is_told_in_each_of_its_worlds)},
    {TEST(a_module_that_does_not_load_is_one_clear_line)},
    {TEST(ranks_of_two_hosts_are_one_world)},
    {TEST(a_part_of_a_communicator_is_a_world)},
    {TEST(the_launcher_that_is_nearest_counts)},
    {TEST(a_guard_has_no_copy_of_what_its_rank_writes)},
};
MPIRUN_MAIN(tests, play_rank)
