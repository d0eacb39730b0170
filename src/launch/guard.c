/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: a process that watches over a rank which a launcher of MPI has started. Launchers end
 * the job when a rank dies, but not all of them say which rank it was, and none tells the other
 * ranks, which could still save their data. The guard is not the rank's child (a program must not
 * find a child that it did not start), and it has a session of its own, so that a launcher that
 * ends the processes of the job does not end the guard first. It sleeps in the kernel. It costs a
 * fork, and after it a page fault for each page that the rank writes. It drops the memory that it
 * was forked with (forget.c), so it uses only plain system calls, and functions that were called
 * before. Not where a sanitizer is in the program: that has a part in each function of the C
 * library, and its own memory is among what would be dropped.
 *
 * Each rank has its own guard. One guard for all would find several ranks dead by the time it runs,
 * since launchers kill the others quickly, and could not say which died first; and ranks that share
 * no memory could not tell it that they close their world. To be quick, a guard waits for a robust
 * mutex that the rank holds: the kernel releases it when a thread begins to end, before memory and
 * files are released, which is what launchers notice. The kernel finds it in a list in the rank's
 * memory, which may be lost (a rank that was killed for lack of memory has none left, a program may
 * have replaced the list): so every other second a guard looks whether its rank is there. Where the
 * kernel keeps no such list, as in some sandboxes, it asks fifty times a second.
 */
#include "carried.h"
#include "forget.h"
#include "hello.h"
#include "watch.h"
#include "world/inside.h"

#include "base/open.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What rank and guard share. */
struct sherd__world_guard {
    pthread_mutex_t mutex; /* the rank holds it */
    _Atomic int dismissed;
};

/* What a guard knows. */
typedef struct watched {
    sherd__arena arena;
    int rank;
    int number;             /* its process, */
    int process;            /* and the pidfd */
    bool main;              /* its first thread has the mutex */
    bool keeps;             /* the memory that it was forked with */
    bool asks;              /* the kernel does not release what a thread holds at its end */
    char stat[32];          /* its file in /proc, which says how it ended until it is reaped */
    struct sockaddr_un job; /* the name of the job's guards */
    socklen_t job_bytes;
    char host[SHERD__HOST_BYTES];
} watched;

static _Noreturn void leave(void)
{
    for (;;)
        syscall(SYS_exit_group, 0);
}

/* ---- who was first --------------------------------------------------------------------------- */

/* What a guard tells the first one of its job. */
typedef struct notice {
    int rank;
    bool asked; /* it was asked to end */
    int64_t at; /* when it saw its rank end; nanoseconds */
} notice;

static void name_job(watched *w, uint64_t job)
{
    w->job = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(w->job.sun_path + 1, sizeof w->job.sun_path - 1, "sherd-%016llx",
                     (unsigned long long)job);
    w->job_bytes = (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)n;
}

/*
 * A socket if no other guard of this job was here before: its name is one that the kernel gives to
 * one process, and takes back with it. Else -1, and the first one is told.
 */
static int be_first(const watched *w, const notice *mine)
{
    int own = (int)syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (own >= 0 && syscall(SYS_bind, own, &w->job, w->job_bytes) == 0)
        return own;
    syscall(SYS_sendto, own, mine, sizeof *mine, MSG_DONTWAIT, &w->job, w->job_bytes);
    return -1;
}

/* `whole`: with the process and the number of ranks, for a job may have several worlds. */
static void say(const watched *w, const char *text, bool whole)
{
    char line[SHERD_ERROR_BYTES + 192], who[64] = "";

    if (whole)
        snprintf(who, sizeof who, " (process %d, in a world of %d ranks)", w->number,
                 w->arena.control->ranks);
    int n = snprintf(line, sizeof line, "sherd: host %s: %s%s\n", w->host, text, who);
    syscall(SYS_write, 2, line, (size_t)n);
}

/* Close the world for the others, and say who it was: this guard's rank, or another. */
static void tell(watched *w, int rank)
{
    char text[SHERD_ERROR_BYTES];
    sherd__control *control = w->arena.control;

    sherd__end_world(&w->arena, sherd__end_word(SHERD__END_VANISHED, rank, 0, SHERD_EPEER));
    sherd__end_text(control, sherd__look(&control->death), text, sizeof text);
    say(w, text, rank == w->rank);
}

/* Whether there is something to be read, or a process has ended, after some nanoseconds at most;
 * negative: for ever. */
static bool wait_file(int fd, int64_t ns)
{
    struct pollfd file = {.fd = fd, .events = POLLIN};
    struct timespec most = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    return syscall(SYS_ppoll, &file, 1, ns < 0 ? NULL : &most, NULL, 0) > 0 &&
           (file.revents & POLLIN);
}

/* What another guard tells until then, of a rank that was not asked to end; false: nothing. */
static bool next_notice(int own, int64_t end, notice *out)
{
    for (int64_t now; (now = sherd__now()) < end;)
        if (wait_file(own, end - now) &&
            syscall(SYS_recvfrom, own, out, sizeof *out, MSG_DONTWAIT, NULL, NULL) == sizeof *out &&
            !out->asked)
            return true;
    return false;
}

/*
 * Hear of other ranks that ended at almost the same time, since the first guard to run need not be
 * that of the first rank to die. Those that the launcher has killed come later. `told`: this rank's
 * end was printed, so those are printed too.
 */
static void hear(const watched *w, int own, int64_t at, bool told)
{
    const int64_t launchers = 1000000000, same = 10000000, end = sherd__now() + launchers;
    char text[64];
    notice other;

    while (next_notice(own, end, &other)) {
        int64_t apart = other.at - at, tenths = (apart < 0 ? -apart : apart) / 100000;
        if (!told || apart >= same)
            continue;
        snprintf(text, sizeof text, "so did rank %d, %lld.%lld ms %s", other.rank,
                 (long long)tenths / 10, (long long)tenths % 10, apart < 0 ? "before" : "later");
        say(w, text, false);
    }
}

/* ---- watching -------------------------------------------------------------------------------- */

enum { LOOK_SECONDS = 2 };

/* Wait until the thread that has the mutex unlocks it, or ends; or all is over without that. */
static void wait_for_thread(sherd__world_guard *guard, const watched *w)
{
    const int64_t tick = 20000000;
    struct timespec until;

    while (w->asks && !atomic_load(&guard->dismissed) && !wait_file(w->process, tick))
        ;
    if (w->asks)
        return;
    do {
        clock_gettime(CLOCK_MONOTONIC, &until); /* which nobody sets back */
        until.tv_sec += LOOK_SECONDS;
    } while (pthread_mutex_clocklock(&guard->mutex, CLOCK_MONOTONIC, &until) == ETIMEDOUT &&
             !atomic_load(&guard->dismissed) && !wait_file(w->process, 0));
}

/* How a process ends, as far as is known until its parent reaps it: else all is 0. */
typedef struct ending {
    int signal, threads;
} ending;

static ending look(const watched *w)
{
    char text[1024];
    int file = (int)syscall(SYS_openat, AT_FDCWD, w->stat, O_RDONLY | O_CLOEXEC), status = 0;
    int64_t n = file < 0 ? 0 : syscall(SYS_read, file, text, sizeof text), at = n;
    ending e = {0};

    syscall(SYS_close, file);
    while (n > 0 && (text[n - 1] < '0' || text[n - 1] > '9'))
        n--;
    for (int unit = 1; n > 0 && unit < 1000000 && text[n - 1] != ' '; unit *= 10)
        status += unit * (text[--n] - '0'); /* the last number, as wait() gives it */
    e.signal = status & 0x7F;
    n = at;
    while (at > 0 && text[at - 1] != ')') /* the end of its name */
        at--;
    for (int number = 2; at > 0 && at < n && number < 20; at++)
        number += text[at] == ' ';
    for (; at > 0 && at < n && text[at] >= '0' && text[at] <= '9' && e.threads < 1000000; at++)
        e.threads = 10 * e.threads + (text[at] - '0');
    return e;
}

/*
 * Wait until the rank has closed its world (false), or has ended. A process may live on after one
 * of its threads: wait for its own end then, unless it is known that it is ending.
 */
static bool wait_for(sherd__world_guard *guard, const watched *w, int64_t *at)
{
    wait_for_thread(guard, w);
    *at = sherd__now();
    if (atomic_load(&guard->dismissed))
        return false;
    ending e = w->main ? look(w) : (ending){.threads = 2};
    return (e.signal || e.threads <= 1 || wait_file(w->process, -1)) &&
           !atomic_load(&guard->dismissed);
}

/*
 * The end of a rank that was asked to end, as launchers do when the job is ended, or when another
 * rank has died, which that rank's guard reports. It is told to the other ranks, but not printed;
 * nor are those that the launcher then kills. `own`: this guard is the first, and hears of others:
 * one that had ended before may be why.
 */
static _Noreturn void tell_nobody(watched *w, int own, const notice *mine, int signal)
{
    const struct timespec others = {.tv_nsec = 300000000};
    const int64_t end = sherd__now() + others.tv_nsec;
    bool why = false;
    notice other;

    if (own < 0)
        syscall(SYS_ppoll, NULL, 0, &others, NULL, 0);
    while (own >= 0 && !why && next_notice(own, end, &other))
        why = other.at < mine->at;
    if (why)
        tell(w, other.rank);
    else
        sherd__end_world(&w->arena,
                         sherd__end_word(SHERD__END_KILLED, w->rank, signal, SHERD_EPEER));
    if (own >= 0)
        hear(w, own, mine->at, false);
    leave();
}

static _Noreturn void watch(sherd__world_guard *guard, watched *w)
{
    notice mine = {.rank = w->rank};
    bool over = wait_for(guard, w, &mine.at);
    int signal = over ? look(w).signal : 0;

    mine.asked = signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
    int own = over ? be_first(w, &mine) : -1;
    if (mine.asked)
        tell_nobody(w, own, &mine, signal);
    if (own < 0)
        leave();
    bool tells =
        /* otherwise another guard told, or the ranks knew before */
        !sherd__look(&w->arena.control->death);
    if (tells)
        tell(w, w->rank);
    /* memory that others may want */
    if (w->arena.own_bytes)
        syscall(SYS_munmap, w->arena.control, w->arena.own_bytes);
    syscall(SYS_munmap, w->arena.base, w->arena.bytes);
    hear(w, own, mine.at, tells);
    leave();
}

/* ---- posting --------------------------------------------------------------------------------- */

/* Signal handlers of the program need its memory, which is about to be dropped. */
static void forget_handlers(void)
{
    struct sigaction action;

    for (int number = 1; number < NSIG; number++)
        if (!sigaction(number, NULL, &action) && action.sa_handler != SIG_IGN)
            signal(number, SIG_DFL);
}

/*
 * Drop all memory but this part of the stack, what the guard knows, and what the C library keeps
 * for this thread: `errno`, and what pthread_self() points at.
 */
static void forget_memory(const watched *here)
{
    enum { BELOW = 64 << 10, ABOVE = 16 << 10 };
    uintptr_t stack = (uintptr_t)__builtin_frame_address(0);
    uintptr_t own = (uintptr_t)&errno, thread = (uintptr_t)pthread_self();
    sherd__span keep[] = {
        {stack - BELOW, stack + ABOVE},
        {(uintptr_t)here, (uintptr_t)(here + 1)},
        {(own < thread ? own : thread) - ABOVE, (own < thread ? thread : own) + ABOVE},
    };

    sherd__forget_memory(keep, 3);
}

/* What getdents64 writes. */
typedef struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
} entry;

/* Close all files but this one and standard error, one by one: where the kernel has no close_range,
 * or refuses it. */
static void close_each(int file)
{
    int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _Alignas(8) char text[2048];

    for (long n; folder >= 0 && (n = syscall(SYS_getdents64, folder, text, sizeof text)) > 0;)
        for (long at = 0; at < n;) {
            const entry *one = (const entry *)(text + at);
            int number = 0;
            for (const char *c = one->name; *c >= '0' && *c <= '9'; c++)
                number = 10 * number + (*c - '0');
            if (one->name[0] != '.' && number != 2 && number != file && number != folder)
                close(number);
            at += one->bytes;
        }
    if (folder >= 0)
        close(folder);
}

/* Somebody may be waiting until a pipe is closed. */
static void keep_only(int file)
{
    if (syscall(SYS_close_range, 0u, 1u, 0u)) {
        close_each(file);
        return;
    }
    if (file > 3)
        syscall(SYS_close_range, 3u, (unsigned)file - 1, 0u);
    syscall(SYS_close_range, (unsigned)file + 1, ~0u, 0u);
}

/* Memory that both see; the rank has the mutex. */
static sherd__world_guard *create(void)
{
    sherd__world_guard *guard =
        mmap(NULL, sizeof *guard, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct timespec past = {0};
    pthread_mutexattr_t kind;

    if (guard == MAP_FAILED)
        return NULL;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&guard->mutex, &kind);
    pthread_mutexattr_destroy(&kind);
    /* nobody has it; guards call the same */
    pthread_mutex_clocklock(&guard->mutex, CLOCK_MONOTONIC, &past);
    return guard;
}

/*
 * Where the kernel shares out cores by sessions (autogroup), one that has been given more than
 * others may leave them none for seconds, and so the guard's, which it began as any. So the guard
 * takes its rank's share along.
 */
static const char share[] = "/proc/self/autogroup"; /* "/autogroup-25 nice -20\n" */

/* The last word; "" if there is none. */
static void read_share(char *out, size_t room)
{
    char text[64];

    sherd__read_file(share, text, sizeof text);
    const char *last = strrchr(text, ' ');
    snprintf(out, room, "%s", last ? last + 1 : "");
}

/* Where that is not allowed, it stays as it is. */
static void write_share(const char *text)
{
    int file = strtol(text, NULL, 10) ? open(share, O_WRONLY | O_CLOEXEC) : -1;
    bool done = file >= 0 && write(file, text, strlen(text)) > 0;

    (void)done;
    if (file >= 0)
        close(file);
}

static _Noreturn void run(sherd__world_guard *guard, watched *w)
{
    char before[16];

    read_share(before, sizeof before);
    if (setsid() < 0)
        _exit(0);
    write_share(before);
    if (fork() != 0)
        _exit(0);
    keep_only(w->process);
    forget_handlers();
    if (!w->keeps)
        forget_memory(w);
    watch(guard, w);
}

/* The library may have been built without one, and the program with it: a name that all have. */
static bool has_sanitizer(void)
{
    return dlsym(RTLD_DEFAULT, "__sanitizer_set_report_path") != NULL;
}

/* Whether the kernel knows what this thread holds; sandboxes may refuse to be told. */
static bool is_robust(void)
{
    void *list = NULL;
    size_t bytes;

    return syscall(SYS_get_robust_list, 0, &list, &bytes) == 0 && list;
}

sherd__world_guard *sherd__guard_post(const sherd__arena *arena, int rank, uint64_t job)
{
    watched mine = {.arena = *arena,
                    .rank = rank,
                    .number = (int)getpid(),
                    .process = sherd__beyond_standard((int)syscall(SYS_pidfd_open, getpid(), 0)),
                    .main = getpid() == gettid(),
                    .keeps = has_sanitizer(),
                    .asks = !is_robust(),
                    .host = "?"};
    sherd__world_guard *guard = create();

    snprintf(mine.stat, sizeof mine.stat, "/proc/%d/stat", mine.number);
    name_job(&mine, job);
    (void)gethostname(mine.host, sizeof mine.host - 1);
    /* MPI is not for a process that was forked: where ranks send messages it tells people only. */
    mine.arena.remote = NULL;
    pid_t child = guard && mine.process >= 0 ? fork() : -1;
    if (child == 0)
        run(guard, &mine);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    if (mine.process >= 0)
        close(mine.process);
    return guard;
}

void sherd__guard_dismiss(sherd__world_guard *guard)
{
    if (!guard)
        return;
    atomic_store(&guard->dismissed, 1);
    /*
     * If another thread has locked it, unlocking fails, and the page must stay: it is in that
     * thread's list of robust mutexes until the thread ends.
     */
    if (pthread_mutex_unlock(&guard->mutex) == 0)
        munmap(guard, sizeof *guard);
}
