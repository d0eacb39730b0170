/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as forked processes: how they end, by themselves and otherwise. */
#include "world_scene.h"

#include <pthread.h>

/* ---- a rank is killed ------------------------------------------------------------------------ */

/* All but the victim wait for its call; it computes. */
static int victim_computes(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 2)
        compute(30);
    share(world, mesh);
    tell(world, sherd_world_check(world));
    sherd_status again = sherd_world_check(world); /* it stays closed */
    return again == SHERD_EPEER && !share(world, mesh) ? 7 : 8;
}

/* All wait for rank 0, which computes; a rank that waits is killed. */
static int victim_waits(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 0)
        compute(0.6);
    share(world, mesh);
    tell(world, sherd_world_check(world));
    return 7;
}

static int victim_is_at_the_check(sherd_world *world, void *payload)
{
    (void)payload;
    line_of_ranks(world);
    if (sherd_world_rank(world) == 0)
        compute(0.6);
    tell(world, sherd_world_check(world));
    return 7;
}

/* No rank waits for another: those that ask are told. */
static int nobody_waits(sherd_world *world, void *payload)
{
    for (line_of_ranks(world); !payload && sherd_world_ended(world) == SHERD_OK;)
        sleep_for(0.01);
    tell(world, sherd_world_check(world));
    return sherd_world_ended(world) == SHERD_EPEER ? 7 : 8;
}

static void kill_one(part body, int signal, const char *line)
{
    int err = memory_file();
    pid_t parent = start_scene(err, RANKS, body, NULL);

    CHECK(wait_ready(RANKS, 60));
    sleep_for(0.1);
    double begin = seconds();
    kill(atomic_load(&shown->pid[2]), signal);
    ending e = end_scene(parent, err, begin, 0.2);
    CHECK_EQ(e.status, 0);
    CHECK(!e.left);
    CHECK(e.seconds < soon);
    CHECK_TEXT(e.err, line);
    CHECK_EQ(atomic_load(&shown->spawn_status), SHERD_EPEER);
    CHECK_EQ(atomic_load(&shown->exit_status), 128 + signal);
    for (int r = 0; r < RANKS; r++) {
        CHECK_EQ(atomic_load(&shown->status[r]), r == 2 ? 1 : SHERD_EPEER);
        if (r != 2)
            CHECK(strncmp(shown->text[r], "rank 2 was ", 11) == 0);
    }
    CHECK(strncmp(shown->spawn_text, "rank 2 was ", 11) == 0);
}

static void a_killed_rank_is_named_and_ends_all(void)
{
    const char *line = "sherd: rank 2 was killed by signal 9 (SIGKILL)\n";

    kill_one(victim_computes, SIGKILL, line);
    kill_one(victim_waits, SIGKILL, line);
    kill_one(victim_is_at_the_check, SIGKILL, line);
    kill_one(nobody_waits, SIGKILL, line);
    kill_one(victim_computes, SIGXCPU, "sherd: rank 2 was killed by signal 24 (SIGXCPU)\n");
}

/* What names a rank has room for more than 64. */
static void a_rank_far_up_is_named(void)
{
    enum { MANY = 66, FAR_UP = 65 };
    int err = memory_file();
    pid_t parent = start_scene(err, MANY, victim_waits, NULL);

    CHECK(wait_ready(MANY, 60));
    double begin = seconds();
    kill(atomic_load(&shown->pid[FAR_UP]), SIGKILL);
    ending e = end_scene(parent, err, begin, 1);
    CHECK_TEXT(last_line(e.err), "sherd: rank 65 was killed by signal 9 (SIGKILL)\n");
    CHECK(!e.left);
    for (int r = 0; r < MANY; r++)
        CHECK_EQ(atomic_load(&shown->status[r]), r == FAR_UP ? 1 : SHERD_EPEER);
}

/* A stopped rank counts as dead after half a second. */
static void a_stopped_rank_is_named_and_ends_all(void)
{
    kill_one(victim_computes, SIGSTOP, "sherd: rank 2 was stopped by signal 19 (SIGSTOP)\n");
}

/* Ranks that never look at their world again are killed. */
static int deaf(sherd_world *world, void *payload)
{
    (void)payload;
    line_of_ranks(world);
    compute(30);
    return 0;
}

static void survivors_that_do_not_end_are_killed(void)
{
    int err = memory_file();

    setenv("SHERD_GRACE", "1", 1);
    pid_t parent = start_scene(err, RANKS, deaf, NULL);
    CHECK(wait_ready(RANKS, 60));
    double begin = seconds();
    kill(atomic_load(&shown->pid[1]), SIGKILL);
    ending e = end_scene(parent, err, begin, 0.2);
    unsetenv("SHERD_GRACE");
    CHECK(e.seconds > 0.9 && e.seconds < soon && !e.left);
    CHECK_TEXT(e.err, "sherd: rank 1 was killed by signal 9 (SIGKILL)\n");
    CHECK_EQ(atomic_load(&shown->exit_status), 137);
}

/* ---- the parent is killed -------------------------------------------------------------------- */

static void ranks_vanish_with_their_parent(void)
{
    static const int signals[] = {SIGKILL, SIGTERM, SIGINT, SIGHUP};

    for (int i = 0; i < LEN(signals); i++) {
        int err = memory_file();
        pid_t parent = start_scene(err, RANKS, i % 2 ? deaf : victim_waits, NULL);
        CHECK(wait_ready(RANKS, 60));
        double begin = seconds();
        kill(parent, signals[i]);
        ending e = end_scene(parent, err, begin, soon);
        CHECK_EQ(e.status, 128 + signals[i]);
        CHECK(!e.left);
        CHECK(e.seconds < soon);
        CHECK_TEXT(e.err, "");
    }
}

/* ---- exits ----------------------------------------------------------------------------------- */

static int leaves(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 1)
        _exit(3);
    share(world, mesh);
    tell(world, sherd_world_check(world));
    return 1;
}

static int aborts(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 1)
        abort();
    share(world, mesh);
    return sherd_world_check(world) == SHERD_EPEER;
}

static void a_rank_that_leaves_is_named(void)
{
    ending e = play(RANKS, leaves, NULL);

    CHECK(e.seconds < soon && !e.left);
    CHECK_TEXT(e.err, "sherd: rank 1 exited with status 3 before closing its world\n");
    CHECK_EQ(atomic_load(&shown->exit_status), 3);
    CHECK_EQ(atomic_load(&shown->spawn_status), SHERD_EPEER);
    CHECK_EQ(atomic_load(&shown->status[0]), SHERD_EPEER);
    e = play(RANKS, aborts, NULL);
    CHECK_TEXT(e.err, "sherd: rank 1 was killed by signal 6 (SIGABRT)\n");
    CHECK_EQ(atomic_load(&shown->exit_status), 134);
}

static int all_return_a_value(sherd_world *world, void *payload)
{
    (void)payload;
    return sherd_world_rank(world) >= 2 ? 4 + sherd_world_rank(world) : 0;
}

static int fails_unread(sherd_world *world, void *payload)
{
    (void)payload;
    if (sherd_world_rank(world) == 1)
        sherd_world_fail(world, SHERD_ENOTSUP, "nobody looks");
    return 0;
}

/* Returns while the others wait for its call. */
static int returns_early(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 1)
        return 5;
    share(world, mesh);
    tell(world, sherd_world_check(world));
    return sherd_world_check(world) == SHERD_EPEER ? 0 : 9;
}

static int leaves_first(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 0)
        return 0;
    share(world, mesh);
    tell(world, sherd_world_check(world));
    return 0;
}

/* Whichever rank closed its world while others went on: the world was lost, though all returned
 * 0. */
static void a_world_that_one_left_is_lost(void)
{
    for (int as = 0; as < 2; as++) {
        int exit_status = -1;
        CHECK_EQ(spawn(RANKS, (sherd_ranks_as)as, leaves_first, &exit_status), SHERD_EPEER);
        CHECK_EQ(exit_status, 1);
        CHECK_TEXT(shown->spawn_text, "rank 0 closed its world while others went on");
    }
}

static void what_bodies_return_comes_out(void)
{
    for (int as = 0; as < 2; as++) {
        int exit_status = -1, files = open_files();
        CHECK_OK(spawn(RANKS, (sherd_ranks_as)as, all_return_a_value, &exit_status));
        CHECK_EQ(exit_status, 6);
        CHECK_EQ(spawn(RANKS, (sherd_ranks_as)as, fails_unread, &exit_status), SHERD_ENOTSUP);
        CHECK_EQ(exit_status, 1);
        CHECK_TEXT(shown->spawn_text, "rank 1: nobody looks");
        double begin = seconds();
        CHECK_EQ(spawn(RANKS, (sherd_ranks_as)as, returns_early, &exit_status), SHERD_EPEER);
        CHECK_EQ(exit_status, 5);
        CHECK(seconds() - begin < soon);
        for (int r = 0; r < RANKS; r++)
            if (r != 1)
                CHECK_EQ(atomic_load(&shown->status[r]), SHERD_EDIFFER);
        CHECK_EQ(open_files(), files);
        CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
    }
}

/* ---- a parent that deals with its children --------------------------------------------------- */

static void ignore_children(void)
{
    signal(SIGCHLD, SIG_IGN);
}

static void reap_all(int signal)
{
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static void reap_in_a_handler(void)
{
    signal(SIGCHLD, reap_all);
}

static void *steal(void *unused)
{
    for (;; sleep_for(0.0002))
        reap_all(0);
    return unused;
}

static void reap_in_a_thread(void)
{
    pthread_t thief;

    CHECK_EQ(pthread_create(&thief, NULL, steal, NULL), 0);
}

static int one_returns_three(sherd_world *world, void *payload)
{
    (void)payload;
    return share(world, line_of_ranks(world)) && sherd_world_rank(world) == 2 ? 3 : 0;
}

static int one_is_killed(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 2)
        raise(SIGKILL);
    share(world, mesh);
    return sherd_world_check(world) == SHERD_EPEER ? 0 : 9;
}

/* Also where the status of a child goes to somebody else in the program, or to nobody. */
static void the_status_of_a_rank_is_not_lost(void)
{
    static void (*const parents[])(void) = {ignore_children, reap_in_a_handler, reap_in_a_thread};

    for (int i = 0; i < LEN(parents); i++) {
        bool stolen = parents[i] == reap_in_a_thread;
        before = parents[i];
        ending e = play(RANKS, one_returns_three, NULL);
        CHECK_EQ(e.status, 0);
        CHECK_EQ(atomic_load(&shown->spawn_status), SHERD_OK);
        CHECK_EQ(atomic_load(&shown->exit_status), 3);
        e = play(RANKS, one_is_killed, NULL);
        CHECK(e.seconds < soon && !e.left);
        CHECK_EQ(atomic_load(&shown->spawn_status), SHERD_EPEER);
        if (!stolen)
            CHECK_EQ(atomic_load(&shown->exit_status), 137);
        CHECK(atomic_load(&shown->exit_status) != 0);
        CHECK(strncmp(e.err, "sherd: rank 2 ", 14) == 0);
    }
    before = NULL;
}

/* ---- limits ---------------------------------------------------------------------------------- */

static int nothing(sherd_world *world, void *payload)
{
    (void)payload;
    return share(world, line_of_ranks(world)) ? 0 : 1;
}

static void rank_counts_are_limited(void)
{
    int exit_status = -1;

    for (int as = 0; as < 2; as++) {
        CHECK_OK(spawn(65, (sherd_ranks_as)as, nothing, &exit_status));
        CHECK_EQ(exit_status, 0);
        CHECK_EQ(spawn(SHERD_MAX_RANKS + 1, (sherd_ranks_as)as, nothing, &exit_status),
                 SHERD_ELIMIT);
        CHECK(strstr(shown->spawn_text, "1024") != NULL);
        CHECK_EQ(spawn(-1, (sherd_ranks_as)as, nothing, &exit_status), SHERD_EINVAL);
        CHECK_OK(spawn(0, (sherd_ranks_as)as, nothing, &exit_status));
    }
}

/* Whoever opens a world: a name with an error in it is no name. */
static void a_transport_that_there_is_not_is_refused(void)
{
    static const char *const wrong[] = {"pigeon", "MPI", "arena "};
    static const char *const right[] = {"", "arena", "threads", "mpi"};
    char text[SHERD_ERROR_BYTES];
    const sherd_world_options options = {.error = text};
    sherd_world *world;
    int exit_status;

    for (int i = 0; i < LEN(wrong); i++) {
        setenv("SHERD_TRANSPORT", wrong[i], 1);
        CHECK_EQ(spawn(2, SHERD_THREADS, nothing, &exit_status), SHERD_EINVAL);
        CHECK_EQ(sherd_world_open(&world, &options), SHERD_EINVAL);
        CHECK(!world && strstr(text, ": expected arena, threads or mpi"));
    }
    for (int i = 0; i < LEN(right); i++) {
        setenv("SHERD_TRANSPORT", right[i], 1);
        CHECK_OK(sherd_world_open(&world, &options));
        CHECK_OK(sherd_world_close(world));
    }
    unsetenv("SHERD_TRANSPORT");
}

static int too_late(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    while (sherd_world_rank(world) == 1 && sherd_world_ended(world) == SHERD_OK)
        sleep_for(0.01);
    share(world, mesh);
    tell(world, sherd_world_check(world));
    return 0;
}

static void a_rank_that_never_comes_ends_all_at_last(void)
{
    int exit_status = -1;

    setenv("SHERD_TIMEOUT", "1", 1);
    CHECK_EQ(spawn(3, SHERD_THREADS, too_late, &exit_status), SHERD_ETIMEDOUT);
    for (int r = 0; r < 3; r++) {
        CHECK_EQ(atomic_load(&shown->status[r]), SHERD_ETIMEDOUT);
        CHECK(strstr(shown->text[r], "for rank 1") != NULL);
    }
    setenv("SHERD_TIMEOUT", "soon", 1);
    CHECK_EQ(spawn(2, SHERD_THREADS, nothing, &exit_status), SHERD_EINVAL);
    setenv("SHERD_TIMEOUT", "1000001", 1);
    CHECK_EQ(spawn(2, SHERD_THREADS, nothing, &exit_status), SHERD_EINVAL);
    setenv("SHERD_TIMEOUT", "-1", 1);
    CHECK_EQ(spawn(2, SHERD_THREADS, nothing, &exit_status), SHERD_EINVAL);
    unsetenv("SHERD_TIMEOUT");
}

static int waits_for_a_while(sherd_world *world, void *payload)
{
    (void)payload;
    if (sherd_world_rank(world) == 1)
        sleep_for(0.3);
    share(world, line_of_ranks(world));
    return sherd_world_check(world) ? 1 : 0;
}

static void a_wait_may_have_no_limit(void)
{
    static const char *const none[] = {"0", "none"};
    int exit_status = -1;

    for (int i = 0; i < LEN(none); i++) {
        setenv("SHERD_TIMEOUT", none[i], 1);
        CHECK_OK(spawn(2, SHERD_THREADS, waits_for_a_while, &exit_status));
        CHECK_EQ(exit_status, 0);
    }
    unsetenv("SHERD_TIMEOUT");
}

static int computes_for_a_while(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 1)
        compute(0.6);
    share(world, mesh);
    tell(world, sherd_world_check(world));
    return 0;
}

/* The whole job is stopped, as by Ctrl-Z, for longer than a rank may wait: that is nobody's
 * fault. */
static void time_in_which_all_are_stopped_does_not_count(void)
{
    memset(shown, 0, sizeof *shown);
    setenv("SHERD_TIMEOUT", "1", 1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int exit_status = -1;
        setpgid(0, 0);
        _exit(spawn(3, SHERD_PROCESSES, computes_for_a_while, &exit_status) || exit_status);
    }
    CHECK(wait_ready(3, 60));
    kill(-pid, SIGSTOP);
    sleep_for(2);
    kill(-pid, SIGCONT);
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
    for (int r = 0; r < 3; r++)
        CHECK_EQ(atomic_load(&shown->status[r]), SHERD_OK);
    unsetenv("SHERD_TIMEOUT");
}

static const check_test tests[] = {
    {TEST(a_killed_rank_is_named_and_ends_all)},
    {TEST(a_rank_far_up_is_named)},
    {TEST(a_stopped_rank_is_named_and_ends_all)},
    {TEST(survivors_that_do_not_end_are_killed)},
    {TEST(ranks_vanish_with_their_parent)},
    {TEST(a_rank_that_leaves_is_named)},
    {TEST(what_bodies_return_comes_out)},
    {TEST(a_world_that_one_left_is_lost)},
    {TEST(the_status_of_a_rank_is_not_lost)},
    {TEST(rank_counts_are_limited)},
    {TEST(a_transport_that_there_is_not_is_refused)},
    {TEST(a_rank_that_never_comes_ends_all_at_last)},
    {TEST(a_wait_may_have_no_limit)},
    {TEST(time_in_which_all_are_stopped_does_not_count)},
};

int main(int argc, char **argv)
{
    set_scene(argv[0]);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
