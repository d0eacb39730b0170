/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guards of ranks that a carrier connects: whose ranks end in ways that are hard to see, or go on
 * although it looks as if they had ended. Ranks are processes that this one forks; what they leave
 * is this one's to find.
 */
#define CHECK_PURE
#include "check.h"
#include "program.h"
#include "sherd/carrier.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

enum { RANKS = 2, MOST = 4096 };

/* Somebody sets the time of day back by an hour as soon as it was read: who waits by it, waits so
 * much longer. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
    int status = (int)syscall(SYS_clock_gettime, clock, out);

    if (!status && clock == CLOCK_REALTIME)
        out->tv_sec += 3600;
    return status;
}

/* What a carrier of processes gathers. */
typedef struct table {
    atomic_int came[2], turn;
    char text[RANKS][MOST];
} table;

typedef struct seat {
    table *table;
    int rank;
    FILE *said; /* what a rank has learnt */
} seat;

static void meet(table *t)
{
    int turn = atomic_load(&t->turn);

    if (atomic_fetch_add(&t->came[turn & 1], 1) + 1 == RANKS) {
        atomic_store(&t->came[turn & 1], 0);
        atomic_fetch_add(&t->turn, 1);
    }
    while (atomic_load(&t->turn) == turn)
        sched_yield();
}

static bool bare; /* ranks have no standard output */

static bool gather(void *self, const void *mine, size_t bytes, void *all)
{
    static const char warning[] = "what an MPI may have to say";
    seat *s = self;

    if (bare) /* whatever has that number now */
        CHECK(write(1, warning, sizeof warning) < 0);
    if (bytes > MOST)
        return false;
    memcpy(s->table->text[s->rank], mine, bytes);
    meet(s->table);
    for (int r = 0; r < RANKS; r++)
        memcpy((char *)all + (size_t)r * bytes, s->table->text[r], bytes);
    meet(s->table);
    return true;
}

static void leave(void *self, bool well)
{
    (void)self;
    (void)well;
}

static sherd_world *open_world(seat *s)
{
    const sherd_carrier carrier = {.version = SHERD_CARRIER_VERSION,
                                   .name = "table",
                                   .rank = s->rank,
                                   .ranks = RANKS,
                                   .self = s,
                                   .gather = gather,
                                   .close = leave};
    sherd_world *world = NULL;

    if (sherd_world_open_with(&world, &carrier, &(sherd_world_options){.no_pin = true}))
        _exit(9);
    return world;
}

/* Rank 0 waits for rank 1, and says what has become of it. */
static void learn(sherd_world *world, const seat *s)
{
    double begin = program_clock();
    sherd_status status = sherd_world_check(world);

    /* a guard that is told of no end looks every two seconds */
    fprintf(s->said, "%s %s: %s\n", sherd_status_name(status),
            program_clock() - begin < 1.5 ? "at once" : "late", sherd_world_error(world));
    fflush(s->said);
    if (sherd_world_close(world) != status)
        fprintf(s->said, "closed otherwise\n");
    exit(0);
}

/* ---- what ranks do --------------------------------------------------------------------------- */

/* The kernel finds no mutex that this thread has, as if its memory had been taken. */
static void end_unseen(sherd_world *world)
{
    static struct robust_list_head none;

    (void)world;
    none.list.next = &none.list;
    syscall(SYS_set_robust_list, &none, sizeof none);
    kill(getpid(), SIGKILL);
}

static void *sleep_on(void *nothing)
{
    sleep(60);
    return nothing;
}

/* With a thread, which has no part in the world. */
static void end_with_thread(sherd_world *world)
{
    pthread_t thread;

    (void)world;
    pthread_create(&thread, NULL, sleep_on, NULL);
    _exit(3);
}

static void become_another(sherd_world *world)
{
    (void)world;
    execl("/bin/sleep", "sleep", "0.3", (char *)NULL);
}

static void end_as_asked(sherd_world *world)
{
    (void)world;
    kill(getpid(), SIGTERM);
}

static seat here;

static void *go_on(void *world)
{
    usleep(50000); /* the first thread has ended */
    learn(world, &here);
    return NULL;
}

/* Only its first thread. */
static void end_first_thread(sherd_world *world)
{
    pthread_t thread;

    pthread_create(&thread, NULL, go_on, world);
    pthread_exit(NULL);
}

/* Sessions have shares of the cores (autogroup); its own is to have less than others. */
static bool lesser;

static void take_less(void)
{
    FILE *file = setsid() < 0 ? NULL : fopen("/proc/self/autogroup", "we");

    if (!file || fputs("5\n", file) < 0 || fclose(file))
        _exit(8);
}

/* How many processes of this job have as little, but are in sessions whose first process is gone. */
static int count_lesser_guards(void)
{
    char text[512], name[512], state;
    int parent, group, session, n = 0;
    DIR *all = opendir("/proc");

    for (struct dirent *one; all && (one = readdir(all));) {
        int process = atoi(one->d_name);
        if (process <= 0)
            continue;
        program_proc(process, "stat", name, sizeof name);
        program_proc(process, "autogroup", text, sizeof text);
        const char *at = strrchr(name, ')');
        n += at && sscanf(at + 1, " %c %d %d %d", &state, &parent, &group, &session) == 4 &&
             parent == getppid() && strstr(text, " nice 5 ") && kill(session, 0) < 0;
    }
    if (all)
        closedir(all);
    return n;
}

static void show_guards(sherd_world *world)
{
    int n = 0;

    (void)world;
    for (int i = 0; i < 200 && n == 0; i++, usleep(2000))
        n = count_lesser_guards();
    fprintf(here.said, "%d with less\n", n);
}

/* ---- the tests ------------------------------------------------------------------------------- */

/* Rank 1 does that; *out: what rank 0 has learnt, and what guards have said. `kills`: as a launcher
 * that kills rank 0 then. */
static void play(void (*what)(sherd_world *world), bool kills, char *out, char *err)
{
    table *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int said = program_file("said"), errors = program_file("err");

    *out = *err = 0;
    if (!CHECK(t != MAP_FAILED))
        return;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    pid_t rank[RANKS];
    for (int r = 0; r < RANKS; r++) {
        if ((rank[r] = fork()))
            continue;
        dup2(errors, 2);
        if (r == 1 && lesser)
            take_less();
        here = (seat){.table = t, .rank = r, .said = fdopen(dup(said), "a")};
        if (bare)
            close(1);
        sherd_world *world = open_world(&here);
        if (r == 1)
            what(world);
        learn(world, &here);
    }
    siginfo_t info;
    if (kills && !waitid(P_PID, (id_t)rank[1], &info, WEXITED | WNOWAIT)) {
        program_pause(0.2); /* its guard is quicker, also on a full machine */
        kill(rank[0], SIGKILL);
    }
    CHECK_EQ(program_orphans(8), 0);
    program_read(said, out);
    program_read(errors, err);
    close(said);
    close(errors);
    munmap(t, sizeof *t);
}

static char out[PROGRAM_TEXT], err[PROGRAM_TEXT];

static void who_ends_unseen_is_named_and_its_guard_goes(void)
{
    play(end_unseen, false, out, err);
    CHECK_EQ(times(out, "EPEER "), 1);
    CHECK_EQ(times(out, ": rank 1 ended before closing its world"), 1);
    CHECK_EQ(times(err, ": rank 1 ended before closing its world"), 1);
}

/* Nothing of the library's gets its number: neither memory, into which others would print, nor what
 * a guard watches, which closes such files. */
static void ranks_need_no_standard_output(void)
{
    bare = true;
    play(end_with_thread, false, out, err);
    bare = false;
    CHECK_EQ(times(out, "EPEER "), 1);
    CHECK_EQ(times(out, ": rank 1 ended before closing its world"), 1);
    CHECK_EQ(times(err, ": rank 1 ended before closing its world"), 1);
}

static void who_ends_with_a_thread_is_named_at_once(void)
{
    play(end_with_thread, false, out, err);
    CHECK_EQ(times(out, "EPEER at once: rank 1 ended before closing its world"), 1);
    CHECK_EQ(times(err, ": rank 1 ended before closing its world"), 1);
}

static void who_becomes_another_program_is_named_at_once(void)
{
    play(become_another, false, out, err);
    CHECK_EQ(times(out, "EPEER at once: rank 1 ended before closing its world"), 1);
    CHECK_EQ(times(err, ": rank 1 ended before closing its world"), 1);
}

/* Rank 1 was the cause, and nobody wants to be told of it; rank 0 was not. */
static void who_is_killed_after_one_that_was_asked_is_not_reported(void)
{
    play(end_as_asked, true, out, err);
    CHECK_TEXT(err, "");
}

static void a_rank_outlives_its_first_thread(void)
{
    play(end_first_thread, false, out, err);
    CHECK_EQ(times(out, "OK at once: \n"), 2);
    CHECK_TEXT(err, "");
}

/* What its session is given counts for the guard, too: else it waits long for a core, where ranks
 * were given more. */
static void a_guard_has_its_ranks_share_of_the_cores(void)
{
    if (access("/proc/self/autogroup", W_OK)) {
        puts("skipped: sessions have no shares here");
        return;
    }
    lesser = true;
    play(show_guards, false, out, err);
    CHECK_EQ(times(out, "1 with less\n"), 1);
    CHECK_EQ(times(out, "OK "), 2);
    CHECK_TEXT(err, "");
}

static const check_test tests[] = {
    {TEST(who_ends_unseen_is_named_and_its_guard_goes)},
    {TEST(ranks_need_no_standard_output)},
    {TEST(who_ends_with_a_thread_is_named_at_once)},
    {TEST(who_becomes_another_program_is_named_at_once)},
    {TEST(who_is_killed_after_one_that_was_asked_is_not_reported)},
    {TEST(a_rank_outlives_its_first_thread)},
    {TEST(a_guard_has_its_ranks_share_of_the_cores)},
};

int main(int argc, char **argv)
{
    return check_main_apart(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
