/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round: drawn from its seed, one or two worlds, one after the other, in a process that was
 * forked for it. After each world this process must be what it was before: no file, no mapping, no
 * thread, no child is left.
 */
#include "under_mpi.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

/* ---- what it is ------------------------------------------------------------------------------ */

static round_kind draw_kind(dice *d)
{
    static const int weight[ROUND_KINDS] = {
        [ROUND_LEGAL] = 420, [ROUND_WRONG] = 380, [ROUND_STARVED] = 120, [ROUND_SMALL] = 30,
        [ROUND_KILLED] = 40, [ROUND_STOPPED] = 3, [ROUND_PAUSED] = 3,    [ROUND_ORPHANED] = 4,
    };
    int at = roll(d, 1000), kind = 0;

    while (at >= weight[kind])
        at -= weight[kind++];
    return (round_kind)kind;
}

static int draw_ranks(dice *d)
{
    switch (roll(d, 8)) {
    case 0:
    case 1:
        return 2;
    case 2:
        return 3;
    case 3:
    case 4:
        return 4;
    case 5:
        return 9 + roll(d, 8);
    default:
        return 5 + roll(d, 4);
    }
}

static bool needs_processes(round_kind kind)
{
    return kind == ROUND_KILLED || kind == ROUND_STOPPED || kind == ROUND_PAUSED ||
           kind == ROUND_ORPHANED;
}

bool round_loops(const round_plan *r)
{
    return needs_processes(r->kind);
}

static void draw_blow(round_plan *r, dice *d)
{
    static const int signals[] = {SIGKILL, SIGSEGV, SIGABRT, SIGTERM, SIGKILL, SIGBUS};
    static const int orphans[] = {SIGKILL, SIGTERM, SIGINT, SIGHUP};

    r->victim = roll(d, r->ranks);
    r->signal = r->kind == ROUND_STOPPED    ? SIGSTOP
                : r->kind == ROUND_ORPHANED ? orphans[roll(d, 4)]
                                            : signals[roll(d, 6)];
    r->delay_us = (1 << roll(d, 15)) + roll(d, 50);
    r->pause_us = 1000 * (1 << roll(d, 11));
}

/* One after the other, as a launcher puts ranks, or each anywhere. */
static void draw_hosts(round_plan *r, int hosts, dice *d)
{
    bool mixed = one_in(d, 3);

    for (int q = 0; q < r->ranks; q++)
        r->host[q] = (char)('a' + (mixed ? roll(d, hosts) : q * hosts / r->ranks));
}

/* Who starts the ranks is not ours to stop or to kill there. */
static void draw_mpi(round_plan *r, const round_options *o, dice *d)
{
    snprintf(r->mpi, sizeof r->mpi, "%s", o->mpi);
    r->by = one_in(d, 5) ? BY_ARENA : one_in(d, 2) ? BY_MESSAGES : BY_BOTH;
    if (o->hosts)
        r->by = o->hosts == 1 ? BY_ARENA : BY_BOTH;
    r->threads = false;
    r->worlds = 1;
    if (r->kind == ROUND_PAUSED || r->kind == ROUND_ORPHANED)
        r->kind = ROUND_LEGAL;
    if (r->ranks > 8)
        r->ranks = 2 + r->ranks % 7;
    if (r->by == BY_BOTH)
        draw_hosts(r, o->hosts ? o->hosts : 2 + one_in(d, 3), d);
    if (one_in(d, 4))
        r->part_bytes = 192 << roll(d, 9);
}

void round_draw(round_plan *r, uint64_t seed, const round_options *o)
{
    dice d = {mix(seed)};

    memset(r, 0, sizeof *r);
    r->seed = seed;
    r->kind = draw_kind(&d);
    r->threads = roll(&d, 100) < 72;
    r->ranks = draw_ranks(&d);
    r->worlds = one_in(&d, 8) ? 2 : 1;
    r->verified = one_in(&d, 4);
    r->times = o->times > 1 ? o->times : 1;
    if (o->kind >= 0)
        r->kind = (round_kind)o->kind;
    if (o->threads && needs_processes(r->kind))
        r->kind = ROUND_LEGAL;
    r->threads = (r->threads || o->threads) && !needs_processes(r->kind);
    r->ranks = o->ranks ? o->ranks : r->ranks;
    r->verified &= r->kind == ROUND_LEGAL || r->kind == ROUND_WRONG;
    if (r->kind == ROUND_SMALL) {
        r->region_bytes = (size_t)(16 + roll(&d, 200)) << 10;
        r->by_environment = one_in(&d, 2);
        r->region_bytes += r->by_environment ? 0 : (size_t)2 << 20; /* the least that is allowed */
    }
    if (round_loops(r))
        r->worlds = 1;
    if (o->mpi)
        draw_mpi(r, o, &d);
    draw_blow(r, &d);
}

const char *round_name(round_kind kind)
{
    static const char *const names[ROUND_KINDS] = {"legal",  "wrong",   "starved", "small",
                                                   "killed", "stopped", "paused",  "orphaned"};

    return names[kind];
}

const char *injection_name(int injection)
{
    static const char *const more[] = {"failing allocation", "little memory", "rank killed",
                                       "rank stopped",       "job paused",    "launcher killed"};

    return injection < FAULT_KINDS ? fault_name((fault_kind)injection)
                                   : more[injection - FAULT_KINDS];
}

/* ---- its programs ---------------------------------------------------------------------------- */

static bool add_turn(job *j, dice *d, bool wrong)
{
    const round_plan *r = j->r;
    turn *t = &j->turn[j->turns];
    program *p = &j->p[j->turns];

    const program_options options = {.ops = 10 + roll(d, r->ranks > 8 ? 30 : 60),
                                     .verified = r->verified,
                                     .large = (r->region_bytes && !r->by_environment) ||
                                              (r->mpi[0] && one_in(d, 2))};

    *t = (turn){.p = p, .starved = -1};
    if (!program_draw(p, &j->s, dice_next(d), &options))
        return false;
    t->may_fail = t->little = r->kind == ROUND_SMALL;
    t->verified = r->verified;
    if (wrong && r->kind == ROUND_WRONG)
        t->faults = faults_draw(t->fault, p, r->verified, d);
    if (wrong && r->kind == ROUND_STARVED) {
        t->starved = roll(d, r->ranks);
        t->allocation = (1 << roll(d, 10)) + roll(d, 40);
        t->may_fail = true;
    }
    j->turns++;
    return true;
}

/* Wrong ones in turn with right ones. */
bool draw_job(job *j, uint64_t seed)
{
    dice d = {mix(seed)};
    bool wrong = j->r->kind == ROUND_WRONG || j->r->kind == ROUND_STARVED;
    int turns = wrong ? 2 * (1 + one_in(&d, 3)) : 1 + roll(&d, TURNS - 1);
    bool good = scene_draw(&j->s, j->r->ranks, &d);

    for (int i = 0; i < turns && good; i++)
        good = add_turn(j, &d, wrong && i % 2 == 0);
    if (one_in(&d, 4) && !j->r->mpi[0]) { /* mpirun would end the others */
        j->rank_with_value = roll(&d, j->r->ranks);
        j->value = 1 + roll(&d, 100);
    }
    return good;
}

void clear_job(job *j)
{
    for (int i = 0; i < j->turns; i++)
        program_clear(&j->p[i]);
    scene_close(&j->s);
}

static void print_job(const job *j)
{
    char line[512];

    printf("%s round %llu: %d %s, %d programs\n", round_name(j->r->kind),
           (unsigned long long)j->r->seed, j->r->ranks, j->r->threads ? "threads" : "processes",
           j->turns);
    for (int i = 0; i < j->turns; i++) {
        const turn *t = &j->turn[i];
        printf("program %d\n", i);
        for (int k = 0; k < t->p->ops; k++) {
            op_text(t->p, &t->p->op[k], line, sizeof line);
            printf("  %3d %s\n", k, line);
        }
        for (int k = 0; k < t->faults; k++)
            printf("  fault: %s: %s\n", t->fault[k].text,
                   t->fault[k].sure ? "must be found" : "may be found");
        if (t->starved >= 0)
            printf("  allocation %lld of rank %d fails\n", (long long)t->allocation, t->starved);
    }
    fflush(stdout);
}

/* ---- on a rank ------------------------------------------------------------------------------- */

/* Rank 0 sees that it is enough, and says which turn is the last one before anybody begins the
 * next. */
static bool goes_on(runner *u, int i)
{
    board *b = u->board;

    if (u->rank == 0 && atomic_load(&b->stop) && !atomic_load(&b->last))
        atomic_store(&b->last, i + 1);
    if (!met(u, sherd_world_check(u->world)))
        return false;
    return !atomic_load(&b->last) || i < atomic_load(&b->last);
}

static void run_loop(runner *u, const job *j)
{
    sherd_status verdict = SHERD_OK;

    for (int i = 0;; i++) {
        u->me->turn = i;
        u->me->logged = 0;
        verdict = run_turn(u, &j->turn[i % j->turns]);
        if (verdict || !goes_on(u, i))
            break;
    }
    if (is_closed(u->verdict) && sherd_world_check(u->world) != u->verdict)
        say_wrong(u, "the world is closed, and opens again");
}

/* The log keeps what they said the last time. */
static void run_times(runner *u, const job *j)
{
    u->again = j->r->times > 1;
    for (int time = 0; time < j->r->times; time++) {
        u->me->logged = 0;
        for (int i = 0; i < j->turns; i++) {
            sherd_status status = run_turn(u, &j->turn[i]);
            if (u->left || is_closed(status) || (status && j->r->kind == ROUND_LEGAL))
                return;
        }
        if (j->r->kind != ROUND_STARVED && j->r->kind != ROUND_SMALL) /* they come far by chance */
            watch_memory(u, time, j->r->times);
    }
}

int run_rank(sherd_world *world, void *payload)
{
    const job *j = payload;
    runner u;

    runner_open(&u, world, &j->s, j->b, j->r->seed);
    if (round_loops(j->r))
        run_loop(&u, j);
    else
        run_times(&u, j);
    return u.rank == j->rank_with_value ? j->value : 0;
}

/* ---- around it ------------------------------------------------------------------------------- */

static int count_files(const char *folder)
{
    DIR *dir = opendir(folder);
    int count = 0;

    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static bool has_arena_mapped(void)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    bool found = false;

    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, "memfd:") && strstr(line, "sherd");
    if (maps)
        fclose(maps);
    return found;
}

/* What a process has that a world could leave behind. */
typedef struct possessions {
    int files, threads;
} possessions;

static possessions count_possessions(void)
{
    return (possessions){count_files("/proc/self/fd"), count_files("/proc/self/task")};
}

static void *do_nothing(void *unused)
{
    return unused;
}

/* With its first thread a process gets what a sanitizer needs: that is not the world's. */
static void start_a_thread(void)
{
    pthread_t thread;

    if (!pthread_create(&thread, NULL, do_nothing, NULL))
        pthread_join(thread, NULL);
}

static void look_for_leftovers(board *b, possessions before)
{
    possessions now = count_possessions();

    /* The kernel forgets a thread a moment after it was joined; also one that was counted
     * before. */
    for (int tries = 0; tries < 200 && now.threads > before.threads; tries++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        now = count_possessions();
    }
    if (now.files != before.files)
        blame(b, "left behind: %d open files", now.files - before.files);
    if (now.threads > before.threads)
        blame(b, "left behind: %d threads", now.threads - before.threads);
    if (has_arena_mapped())
        blame(b, "left behind: a mapping of the arena");
    if (waitpid(-1, NULL, WNOHANG) >= 0)
        blame(b, "left behind: a child process");
}

static void run_world(const round_plan *r, board *b, uint64_t seed, bool print)
{
    job *j = calloc(1, sizeof *j);
    possessions before = count_possessions();

    if (!j)
        abort();
    j->r = r;
    j->b = b;
    j->rank_with_value = -1;
    for (int i = 0; i < RANKS; i++)
        memset(&b->rank[i], 0, sizeof b->rank[i]);
    sherd_world_options options = {.ranks = r->ranks,
                                   .as = r->threads ? SHERD_THREADS : SHERD_PROCESSES,
                                   .no_pin = true,
                                   .seed = r->seed,
                                   .region_bytes = r->by_environment ? 0 : r->region_bytes,
                                   .error = j->error};
    if (draw_job(j, seed)) {
        if (print)
            print_job(j);
        if (r->mpi[0])
            run_under_mpi(j, seed);
        else
            j->status = sherd_spawn(&j->exit_status, &options, run_rank, j);
        judge(j);
    } else {
        blame(b, "the programs can not be drawn");
    }
    clear_job(j);
    free(j);
    look_for_leftovers(b, before);
}

enum { PIECE = 256 << 10 }; /* the least that a rank takes, and may have: sherd/world.h */

void round_run(const round_plan *r, board *b, bool print)
{
    char text[32];

    if (r->verified)
        setenv("SHERD_VERIFY", "1", 1);
    if (r->by_environment) {
        snprintf(text, sizeof text, "%zu", r->region_bytes + (size_t)r->ranks * PIECE);
        setenv("SHERD_ARENA_BYTES", text, 1);
    }
    if (r->threads)
        start_a_thread();
    setenv("SHERD_TIMEOUT", r->mpi[0] && round_loops(r) ? "5" : "300", 1);
    if (r->seed % 16)
        setenv("SHERD_GEMM", "reference", 1); /* oneDNN takes 2 ms to start */
    for (int i = 0; i < r->worlds && !b->wrong[0]; i++)
        run_world(r, b, r->seed + (uint64_t)i * 7919, print);
}
