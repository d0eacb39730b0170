/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is pinned where: all ranks of a job have cores of their own that no other job has, or none is
 * pinned. What other jobs are on this machine must not matter here: where it is allowed the test
 * has a network namespace, and so the locks on cores, for itself; else it only asks for what holds
 * in any case.
 */
#define CHECK_PURE
#include "launched.h"
#include "launch/launch.h"

#include <sched.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { MOST_RANKS = 8 };

static bool alone; /* no other job takes cores */
static const double patience = 10;

/* ---- the ranks ------------------------------------------------------------------------------- */

/* The core that this thread is pinned to; -1 if it may use several. */
static int core_of(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) != 1)
        return -1;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET((size_t)core, &set))
            return core;
    return -1;
}

static int play_rank(const char *mode)
{
    sherd_world_options options = {.no_pin = strcmp(mode, "unpinned") == 0};
    sherd_world *world;

    if (sherd_world_open(&world, &options))
        return 21;
    printf("rank %d is on %d\n", sherd_world_rank(world), core_of());
    fflush(stdout);
    while (strcmp(mode, "stays") == 0)
        sleep(30);
    return sherd_world_close(world) ? 1 : 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Where the ranks of a job say that they are; false if not all say it. */
static bool read_places(program *p, int ranks, int *core)
{
    static char out[PROGRAM_TEXT];
    char said[32];

    for (int r = 0; r < ranks; r++) {
        snprintf(said, sizeof said, "rank %d is on ", r);
        if (!CHECK(program_says(p, said, patience)))
            return false;
        program_read(p->out, out);
        core[r] = atoi(strstr(out, said) + strlen(said));
    }
    return true;
}

/* The same; false also if they are neither all pinned, each to a core of its own, nor all free. Who
 * may use one core only is on it, and free. */
static bool places_of(program *p, int ranks, int *core)
{
    int pinned = 0;
    bool apart = true;

    if (!read_places(p, ranks, core))
        return false;
    for (int r = 0; r < ranks; r++) {
        core[r] = sherd__cores() > 1 ? core[r] : -1;
        pinned += core[r] >= 0;
        for (int q = 0; q < r; q++)
            apart &= core[r] < 0 || core[q] != core[r];
    }
    return (pinned == 0 || pinned == ranks) && apart;
}

static bool are_disjoint(const int *a, const int *b, int ranks)
{
    for (int i = 0; i < ranks; i++)
        for (int k = 0; k < ranks; k++)
            if (a[i] >= 0 && a[i] == b[k])
                return false;
    return true;
}

static void end_job(program *p, int signal)
{
    send_signal(p->pid, signal);
    program_wait(p);
}

static void two_jobs_share_no_core(void)
{
    int cores = sherd__cores(), a[MOST_RANKS], b[MOST_RANKS], c[MOST_RANKS];

    for (int killed = 0; killed < 2; killed++) {
        program first = launch("-n 2", "stays");
        CHECK(places_of(&first, 2, a));
        program second = launch("-n 2", "stays");
        CHECK(places_of(&second, 2, b));
        CHECK(are_disjoint(a, b, 2));
        if (alone) {
            CHECK_EQ(a[0] >= 0, cores >= 2);
            CHECK_EQ(b[0] >= 0, cores >= 4);
        }
        /* The locks go with their holder, however it ends. */
        end_job(&first, killed ? SIGKILL : SIGTERM);
        program third = launch("-n 2", "stays");
        CHECK(places_of(&third, 2, c));
        CHECK(are_disjoint(b, c, 2));
        if (alone)
            CHECK_EQ(c[0] >= 0, cores >= 2);
        end_job(&second, SIGTERM);
        end_job(&third, SIGTERM);
        CHECK_EQ(program_orphans(patience), 0);
    }
}

/* A core that somebody has is not taken, and half of a job is not pinned. */
static void what_is_left_is_taken_whole_or_not(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int cores = sherd__cores(), core[MOST_RANKS], first = 0;
    int lock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cpu_set_t set;

    sched_getaffinity(0, sizeof set, &set);
    while (!CPU_ISSET((size_t)first, &set))
        first++;
    int length = 1 + sprintf(name.sun_path + 1, "sherd-core-%d", first);
    bind(lock, (struct sockaddr *)&name,
         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length));
    program p = launch("-n 2", "well");
    CHECK(places_of(&p, 2, core));
    CHECK(core[0] != first && core[1] != first);
    if (alone)
        CHECK_EQ(core[0] >= 0, cores >= 3);
    CHECK_EQ(program_wait(&p)->status, 0);
    close(lock);
}

static void who_asks_for_it_is_not_pinned(void)
{
    int core[MOST_RANKS];
    program p = launch("-n 2", "unpinned");

    CHECK(places_of(&p, 2, core));
    CHECK(core[0] < 0);
    end_job(&p, SIGTERM);
}

static void ranks_have_the_cores_that_are_named(void)
{
    char cut[80], where[64];
    const struct {
        const char *options, *says;
    } bad[] = {
        {cut, where},
        {"-n 2 --cores x", "expected a core"},
        {"-n 2 --cores 2-1", "a range must go upwards, as 2-5"},
        {"-n 2 --cores 99999", "core 99999 is not"},
    };
    char options[64];
    cpu_set_t set;
    int last = -1, core[MOST_RANKS];

    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; i < CPU_SETSIZE; i++)
        last = CPU_ISSET((size_t)i, &set) ? i : last;
    snprintf(options, sizeof options, "-n 2 --cores %d", last);
    program p = launch(options, "well");
    CHECK(read_places(&p, 2, core)); /* on one core both */
    CHECK(core[0] == last && core[1] == last);
    CHECK_EQ(program_wait(&p)->status, 0);
    snprintf(cut, sizeof cut, "%s,", options);
    snprintf(where, sizeof where, "column %d of \"%d,\"", snprintf(NULL, 0, "%d,", last) + 1, last);
    for (int i = 0; i < LEN(bad); i++) {
        p = launch(bad[i].options, "well");
        const program_end *end = program_wait(&p);
        CHECK_EQ(end->status, 1);
        CHECK(strstr(end->err, bad[i].says) != NULL);
        CHECK_EQ(program_lines(end->err), 1);
    }
}

/* ---- sherd_spawn ----------------------------------------------------------------------------- */

static _Atomic int *seen; /* core + 1, by rank */

static int tell_core(sherd_world *world, void *payload)
{
    (void)payload;
    atomic_store(&seen[sherd_world_rank(world)], 1 + core_of());
    return 0;
}

static void check_spawned(sherd_ranks_as as, int ranks, bool no_pin, bool taken)
{
    int cores = sherd__cores(), exit_status, pinned = 0;
    sherd_world_options options = {.ranks = ranks, .as = as, .no_pin = no_pin};

    CHECK_OK(sherd_spawn(&exit_status, &options, tell_core, NULL));
    for (int r = 0; r < ranks; r++)
        pinned += atomic_load(&seen[r]) > 0;
    CHECK(cores == 1 || pinned == 0 || pinned == ranks);
    if (cores > 1 && (alone || no_pin))
        CHECK_EQ(pinned, ranks <= cores && !no_pin && !taken ? ranks : 0);
    CHECK_EQ(sherd__cores(), cores); /* the caller's affinity stays */
}

static void spawned_ranks_are_pinned_alike(void)
{
    int core[MOST_RANKS], cores = sherd__cores();

    for (int as = 0; as < 2; as++) {
        for (int no_pin = 0; no_pin < 2; no_pin++) {
            check_spawned((sherd_ranks_as)as, 2, no_pin, false);
            check_spawned((sherd_ranks_as)as, 64, no_pin, false);
        }
        program p = launch("-n 2", "stays");
        CHECK(places_of(&p, 2, core));
        check_spawned((sherd_ranks_as)as, 2, false, cores < 4);
        end_job(&p, SIGTERM);
    }
}

static const check_test tests[] = {
    {TEST(two_jobs_share_no_core)},         {TEST(what_is_left_is_taken_whole_or_not)},
    {TEST(who_asks_for_it_is_not_pinned)},  {TEST(ranks_have_the_cores_that_are_named)},
    {TEST(spawned_ranks_are_pinned_alike)},
};

int main(int argc, char **argv)
{
    self = argv[0];
    if (getenv("SHERD_RANK") && argc > 1)
        return play_launched(argv[1], play_rank);
    alone = unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
