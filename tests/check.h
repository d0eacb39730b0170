/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test harness. A test file is one process: a table of named tests, each with the rank counts
 * that it runs with. Ranks are threads by default; SHERD_TEST_AS=processes forks them; under mpirun
 * they are what that has started, and those tests run that are for so many ranks. A check never
 * returns early: a rank that left would leave the others waiting. A watchdog ends the process after
 * 110 seconds (SHERD_TEST_SECONDS) and prints where each rank was last.
 *
 * Tests of rooms below world/ define CHECK_PURE first: then tests take no world and run once.
 */
#ifndef SHERD_CHECK_H
#define SHERD_CHECK_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "sherd/status.h"

enum { CHECK_RANKS = SHERD_MAX_RANKS };

/* Shared by all ranks, threads or processes. */
typedef struct check_board {
    atomic_int failures;
    const char *file[CHECK_RANKS];
    atomic_int line[CHECK_RANKS];
    atomic_int mark; /* for tests: a word that all ranks see, whatever they live in */
} check_board;

static check_board *check_state;
static _Thread_local int check_rank;

static void check_watchdog(int sig)
{
    char text[128];
    (void)sig;
    for (int r = 0; r < CHECK_RANKS; r++) {
        int line = atomic_load(&check_state->line[r]);
        if (line == 0)
            continue;
        int n = snprintf(text, sizeof text, "watchdog: rank %d was last at line %d\n", r, line);
        if (write(2, text, (size_t)n) < 0)
            break;
    }
    kill(0, SIGKILL);
}

static inline void check_at(int line)
{
    atomic_store_explicit(&check_state->line[check_rank], line, memory_order_relaxed);
}

static inline bool check_report(bool good, const char *file, int line, const char *what)
{
    check_at(line);
    if (!good) {
        atomic_fetch_add(&check_state->failures, 1);
        fprintf(stderr, "%s:%d: rank %d: %s\n", file, line, check_rank, what);
    }
    return good;
}

static inline bool check_equal(long long a, long long b, const char *file, int line,
                               const char *what)
{
    char text[256];
    if (a != b)
        snprintf(text, sizeof text, "%s: %lld and %lld differ", what, a, b);
    return check_report(a == b, file, line, a == b ? what : text);
}

static inline bool check_equal_real(double a, double b, const char *file, int line,
                                    const char *what)
{
    char text[256];
    bool same = a == b || (a != a && b != b);
    if (!same)
        snprintf(text, sizeof text, "%s: %.17g and %.17g differ", what, a, b);
    return check_report(same, file, line, same ? what : text);
}

static inline bool check_near(double a, double b, double tolerance, const char *file, int line,
                              const char *what)
{
    char text[256];
    double d = a > b ? a - b : b - a;
    bool good = d <= tolerance;
    if (!good)
        snprintf(text, sizeof text, "%s: %.9g and %.9g differ by %.3g > %.3g", what, a, b, d,
                 tolerance);
    return check_report(good, file, line, good ? what : text);
}

/* Each returns whether it held, and goes on either way. */
#define CHECK(condition) check_report(condition, __FILE__, __LINE__, #condition)
/* Numbers, to the last bit; of fractions any two NaN are equal. */
/* clang-format off */
#define CHECK_EQ(a, b)                                                                          \
    _Generic((a) + (b),                                                                         \
        float: check_equal_real((double)(a), (double)(b), __FILE__, __LINE__, #a " == " #b),    \
        double: check_equal_real((double)(a), (double)(b), __FILE__, __LINE__, #a " == " #b),   \
        default: check_equal((long long)(a), (long long)(b), __FILE__, __LINE__, #a " == " #b))
/* clang-format on */
#define CHECK_NEAR(a, b, tol) check_near(a, b, tol, __FILE__, __LINE__, #a " ~ " #b)
#define CHECK_OK(status)      check_equal((long long)(status), 0, __FILE__, __LINE__, #status)
#define CHECK_TEXT(a, b)                                             \
    (strcmp(a, b) == 0 ? check_report(true, __FILE__, __LINE__, "")  \
                       : (fprintf(stderr, "\"%s\"\n\"%s\"\n", a, b), \
                          check_report(false, __FILE__, __LINE__, #a " reads " #b)))
#define LEN(array)     ((int)(sizeof(array) / sizeof((array)[0])))
#define TEST(function) #function, function

/*
 * The step through a table of like cases: 1 in the long form (SHERD_PROOF), else n, so that only
 * each n-th case is run. An n that shares no factor with the lengths of inner loops meets all that
 * they go through.
 */
static inline int check_stride(int n)
{
    return getenv("SHERD_PROOF") ? 1 : n;
}

/* Of a clock that only goes forward. */
static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The last line of a text, with its end. */
static inline const char *last_line(const char *text)
{
    const char *last = text;

    for (; *text; text++)
        if (text[0] == '\n' && text[1])
            last = text + 1;
    return last;
}

/* A die that falls the same way in every run; *dice is its state. */
static inline int roll(uint64_t *dice, int sides)
{
    *dice = *dice * 6364136223846793005u + 1442695040888963407u;
    return (int)((*dice >> 33) % (uint64_t)sides);
}

static check_board *check_board_create(void)
{
    return mmap(NULL, sizeof(check_board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                0);
}

static int check_start(void)
{
    const char *seconds = getenv("SHERD_TEST_SECONDS");
    setpgid(0, 0);
    check_state = check_board_create();
    if (check_state == MAP_FAILED)
        return 1;
    signal(SIGINT, SIG_DFL); /* shells ignore it for what they start in the background, and */
    signal(SIGHUP, SIG_DFL); /* nohup this one: programs that a test starts would go on */
    signal(SIGALRM, check_watchdog);
    alarm(seconds ? (unsigned)atoi(seconds) : 110);
    return 0;
}

static int check_finish(int ran)
{
    int failures = atomic_load(&check_state->failures);
    printf("%d passed, %d failed\n", failures ? 0 : ran, failures);
    return failures ? 1 : 0;
}

#ifdef CHECK_PURE

typedef struct check_test {
    const char *name;
    void (*run)(void);
} check_test;

static inline void check_one(const check_test *test)
{
    int before = atomic_load(&check_state->failures);

    test->run();
    printf("%-6s %s\n", atomic_load(&check_state->failures) == before ? "ok" : "FAILED",
           test->name);
    fflush(stdout);
}

static inline int check_main(const check_test *tests, int count, const char *only)
{
    int ran = 0;
    if (check_start())
        return 2;
    for (int i = 0; i < count; i++) {
        if (only && !strstr(tests[i].name, only))
            continue;
        check_one(&tests[i]);
        ran++;
    }
    return check_finish(ran);
}

/* A test in a process of its own, which has what is left of the time. */
static inline void check_apart(const check_test *test)
{
    unsigned left = alarm(0);

    alarm(left);
    fflush(stdout);
    pid_t pid = fork();
    if (pid > 0)
        return;
    if (pid == 0) {
        check_state = check_board_create();
        if (check_state == MAP_FAILED)
            _exit(2);
        alarm(left);
        check_one(test);
        _exit(atomic_load(&check_state->failures) ? 1 : 0);
    }
    CHECK(pid > 0);
}

/* One of them has ended; 1. */
static inline int check_join(void)
{
    int status;

    if (wait(&status) < 0 || status)
        atomic_fetch_add(&check_state->failures, 1);
    return 1;
}

/*
 * The same, each test in a process of its own and some at a time: for tests that mostly wait for
 * the programs that they start. They share no files and no ports.
 */
static inline int check_main_apart(const check_test *tests, int count, const char *only)
{
    enum { MOST = 3 };
    int ran = 0, ended = 0;
    if (check_start())
        return 2;
    for (int i = 0; i < count; i++) {
        if (only && !strstr(tests[i].name, only))
            continue;
        if (ran - ended == MOST)
            ended += check_join();
        check_apart(&tests[i]);
        ran++;
    }
    while (ended < ran)
        ended += check_join();
    return check_finish(ran);
}

#else

#include "sherd/world.h"

typedef struct check_test {
    const char *name;
    void (*run)(sherd_world *world);
    int ranks[8]; /* zero-terminated */
} check_test;

static int check_body(sherd_world *world, void *payload)
{
    const check_test *test = payload;
    check_rank = sherd_world_rank(world);
    check_at(0);
    test->run(world);
    return 0;
}

/* How many ranks mpirun has started; 0: it has not, or SHERD_TEST_AS does not say that they are to
 * be taken. */
static int check_ranks_there(const char *as)
{
    const char *ranks = getenv("OMPI_COMM_WORLD_SIZE");

    if (!as || strcmp(as, "mpi") != 0)
        return 0;
    ranks = ranks ? ranks : getenv("PMI_SIZE");
    return ranks ? atoi(ranks) : 0;
}

/* Whether a test is one of those in a list "one,two"; "-one,two": none of them. */
static bool check_wanted(const char *only, const char *name)
{
    bool without = only && only[0] == '-', found = false;
    const char *at = only ? only + without : "";

    for (size_t n; *at && !found; at += n + (at[n] == ',')) {
        char word[128];
        n = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        found = strstr(name, word) != NULL;
    }
    return !only || found != without;
}

static int check_main(const check_test *tests, int count, const char *only)
{
    const char *as = getenv("SHERD_TEST_AS");
    int ran = 0, there = check_ranks_there(as);
    if (check_start())
        return 2;
    for (int i = 0; i < count; i++) {
        if (!check_wanted(only, tests[i].name))
            continue;
        for (int j = 0; j < LEN(tests[i].ranks) && tests[i].ranks[j]; j++) {
            if (there && there != tests[i].ranks[j])
                continue;
            char why[SHERD_ERROR_BYTES] = "";
            sherd_world_options options = {
                .ranks = tests[i].ranks[j], .no_pin = true, .seed = 1, .error = why};
            int before = atomic_load(&check_state->failures), exit_status = -1;
            options.as = as && strcmp(as, "processes") == 0 ? SHERD_PROCESSES : SHERD_THREADS;
            check_rank = 0;
            CHECK_OK(sherd_spawn(&exit_status, &options, check_body, (void *)(uintptr_t)&tests[i]));
            if (*why)
                printf("%s\n", why);
            check_rank = 0;
            CHECK_EQ(exit_status, 0);
            for (int r = 0; r < CHECK_RANKS; r++)
                atomic_store(&check_state->line[r], 0);
            ran++;
            printf("%-6s %s, %d ranks\n",
                   atomic_load(&check_state->failures) == before ? "ok" : "FAILED", tests[i].name,
                   tests[i].ranks[j]);
            fflush(stdout);
        }
    }
    return check_finish(ran);
}

#endif

#define CHECK_MAIN(tests)                                                \
    int main(int argc, char **argv)                                      \
    {                                                                    \
        return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL); \
    }

#endif
