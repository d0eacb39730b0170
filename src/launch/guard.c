/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: a process that watches over a rank which a launcher of MPI has started. That one ends
 * the job when a rank dies, but not every one says which rank it was, and none tells the others,
 * who could save what they have. The guard is nobody's child (a rank must not find one that it did
 * not start) and in a session of its own (a launcher that ends the job's processes would end it
 * before it has said a word). It sleeps in the kernel and costs nothing but a fork.
 *
 * Each rank has one. A guard of all of them would find several dead when it gets its turn, since
 * launchers are quick to kill the others, and could not say who was first; and ranks that share no
 * memory could not tell it that they close their world. For the same reason it waits for a robust
 * mutex that the rank holds: the kernel lets that go when a thread begins to end, before its memory
 * is given back and its files are closed, which is what launchers see.
 */
#include "carried.h"
#include "hello.h"
#include "watch.h"
#include "world/inside.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* What rank and guard share. */
struct sherd__guard {
    pthread_mutex_t mutex; /* the rank holds it */
    _Atomic int dismissed;
};

/* What a guard knows. */
typedef struct watched {
    sherd__arena arena;
    int rank;
    int process; /* its pidfd */
    bool main;   /* its first thread has the mutex */
    uint64_t job;
} watched;

/* ---- who was first --------------------------------------------------------------------------- */

/* What a guard tells the first one of its job. */
typedef struct notice {
    int rank;
    int64_t at; /* when it saw its rank end; nanoseconds */
} notice;

static socklen_t name_of(struct sockaddr_un *name, uint64_t job)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "sherd-%016llx",
                     (unsigned long long)job);
    return (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)n;
}

/*
 * A socket if no other guard of this job was here before: its name is one that the kernel gives to
 * one process, and takes back with it. Else -1, and the first one is told.
 */
static int be_first(uint64_t job, const notice *mine)
{
    struct sockaddr_un name;
    socklen_t length = name_of(&name, job);
    int own = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (own >= 0 && bind(own, (struct sockaddr *)&name, length) == 0)
        return own;
    (void)sendto(own, mine, sizeof *mine, MSG_DONTWAIT, (struct sockaddr *)&name, length);
    return -1;
}

static void say(const char *format, ...)
{
    char host[SHERD__HOST_BYTES] = "?", line[SHERD_ERROR_BYTES + 128];
    va_list arguments;

    (void)gethostname(host, sizeof host);
    int n = snprintf(line, sizeof line, "sherd: host %s: ", host);
    va_start(arguments, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, arguments);
    va_end(arguments);
    line[n++] = '\n';
    if (write(2, line, (size_t)n) < 0)
        return;
}

/* Close the world for the others, and say who it was. */
static void tell(sherd__arena *arena, int rank)
{
    char text[SHERD_ERROR_BYTES];

    sherd__end_world(arena, sherd__end_word(SHERD__END_VANISHED, rank, 0, SHERD_EPEER));
    sherd__end_text(arena->control, sherd__look(&arena->control->death), text, sizeof text);
    say("%.*s", SHERD_ERROR_BYTES - 1, text);
}

/*
 * Others that ended at almost the same time, of which one may have been the first: guards get their
 * turn when they do. Those that the launcher has killed come later. `told`: what the first one did
 * was told, so there is something to add.
 */
static void hear(int own, int64_t at, bool told)
{
    enum { LAUNCHERS_MS = 1000, SAME_NS = 10000000 };
    int64_t end = sherd__now() + INT64_C(1000000) * LAUNCHERS_MS;
    struct pollfd file = {.fd = own, .events = POLLIN};
    notice other;

    for (int64_t now; (now = sherd__now()) < end;) {
        if (poll(&file, 1, (int)((end - now) / 1000000) + 1) <= 0 ||
            recv(own, &other, sizeof other, MSG_DONTWAIT) != sizeof other)
            continue;
        double ms = 1e-6 * (double)(other.at - at);
        if (told && other.at - at < SAME_NS)
            say("so did rank %d, %.1f ms %s", other.rank, ms < 0 ? -ms : ms,
                ms < 0 ? "before" : "later");
    }
}

/* ---- watching -------------------------------------------------------------------------------- */

/* Wait for the end of a process. False: its descriptor is gone. */
static bool is_over(int process)
{
    struct pollfd file = {.fd = process, .events = POLLIN};

    while (poll(&file, 1, -1) < 0 && errno == EINTR)
        ;
    return file.revents & POLLIN;
}

/* Until the rank has closed its world (false), or is over. */
static bool wait_for(sherd__guard *guard, const watched *w, int64_t *at)
{
    (void)pthread_mutex_lock(&guard->mutex);
    *at = sherd__now();
    /* Where a thread has ended another may have the world now: the process is asked. */
    return (w->main || is_over(w->process)) && !atomic_load(&guard->dismissed);
}

static _Noreturn void watch(sherd__guard *guard, watched *w)
{
    notice mine = {.rank = w->rank};
    int own = wait_for(guard, w, &mine.at) ? be_first(w->job, &mine) : -1;
    if (own < 0)
        _exit(0);
    bool tells =
        !sherd__look(&w->arena.control->death); /* else somebody did, or they knew it before */
    if (tells)
        tell(&w->arena, w->rank);
    sherd__arena_unmap(&w->arena); /* memory that others may want */
    hear(own, mine.at, tells);
    _exit(0);
}

/* All but this one and the standard error output: a file that others wait to be closed must not
 * stay open. */
static void keep_only(int file)
{
    syscall(SYS_close_range, 0u, 1u, 0u);
    if (file > 3)
        syscall(SYS_close_range, 3u, (unsigned)file - 1, 0u);
    syscall(SYS_close_range, (unsigned)file + 1, ~0u, 0u);
}

/* Memory that both see; the rank has the mutex. */
static sherd__guard *create(void)
{
    sherd__guard *guard =
        mmap(NULL, sizeof *guard, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t kind;

    if (guard == MAP_FAILED)
        return NULL;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&guard->mutex, &kind);
    pthread_mutexattr_destroy(&kind);
    pthread_mutex_lock(&guard->mutex);
    return guard;
}

sherd__guard *sherd__guard_post(const sherd__arena *arena, int rank, uint64_t job)
{
    watched mine = {.arena = *arena,
                    .rank = rank,
                    .process = (int)syscall(SYS_pidfd_open, getpid(), 0),
                    .main = getpid() == gettid(),
                    .job = job};
    sherd__guard *guard = create();

    /* MPI is not for a process that was forked: where ranks send messages it tells people only. */
    mine.arena.remote = NULL;
    pid_t child = guard && mine.process >= 0 ? fork() : -1;
    if (child == 0) {
        if (setsid() < 0 || fork() != 0)
            _exit(0);
        keep_only(mine.process);
        watch(guard, &mine);
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    if (mine.process >= 0)
        close(mine.process);
    return guard;
}

void sherd__guard_dismiss(sherd__guard *guard)
{
    if (!guard)
        return;
    atomic_store(&guard->dismissed, 1);
    /* Another thread's stays, and its page: that thread's list of robust mutexes has it until the
     * thread ends. */
    if (pthread_mutex_unlock(&guard->mutex) == 0)
        munmap(guard, sizeof *guard);
}
