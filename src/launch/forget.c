/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A forked process drops the memory that it was forked with. Until it does, each page that its
 * parent writes is in memory twice, since the child keeps the old contents. Only private memory is
 * dropped; shared memory is not copied anyway.
 *
 * It costs a system call for each piece of memory. These are plain system calls, because what is
 * dropped includes the heap, the tables of the dynamic linker (so functions that were not called
 * before cannot be found), and the lists of an MPI that intercepts munmap.
 */
#include "forget.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * So much is kept at the beginning of a mapped file, and of the memory right behind it, since the
 * variables of libraries are there. The size of a large page, of which no part can be dropped.
 */
enum { KEPT_OF_FILE = 2 << 20 };

/* A line of /proc/self/maps. */
typedef struct mapping {
    uintptr_t begin, end;
    bool own, file; /* private and writable; of a file */
} mapping;

static uintptr_t read_hex(const char **at)
{
    uintptr_t value = 0;

    for (;; (*at)++) {
        char c = **at;
        if (c >= '0' && c <= '9')
            value = value << 4 | (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* "begin-end rw-p offset device inode     name" */
static mapping read_line(const char *at)
{
    mapping m = {.begin = read_hex(&at)};

    at++;
    m.end = read_hex(&at);
    m.own = at[2] == 'w' && at[4] == 'p';
    while (*at != '\n' && *at != '/')
        at++;
    m.file = *at == '/';
    return m;
}

/*
 * Empty the pages rather than unmap them: that keeps their page tables, but a stray read finds 0
 * instead of a fault. They are unmapped where old kernels cannot empty them (large pages).
 */
static void drop(uintptr_t begin, uintptr_t end)
{
    if (begin < end && syscall(SYS_madvise, begin, end - begin, MADV_DONTNEED))
        syscall(SYS_munmap, begin, end - begin);
}

/* Drop all of [at, end) but what is kept. */
static void drop_between(uintptr_t at, uintptr_t end, const sherd__span *keep, int count)
{
    while (at < end) {
        uintptr_t stop = end, next = end;
        for (int i = 0; i < count; i++)
            if (keep[i].end > at && keep[i].begin < stop) {
                stop = keep[i].begin;
                next = keep[i].end;
            }
        drop(at, stop);
        at = next;
    }
}

/* Widen a span to whole pages. */
static void widen(sherd__span *span)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    span->begin -= span->begin % page;
    span->end += page - 1 - (span->end - 1) % page;
}

/* Memory right behind a file's is of the same library: variables that begin as 0. */
static void drop_line(const char *line, uintptr_t *behind, const sherd__span *keep, int count)
{
    mapping m = read_line(line);
    bool variables = m.file || m.begin == *behind;

    if (m.own)
        drop_between(m.begin + (variables ? KEPT_OF_FILE : 0), m.end, keep, count);
    *behind = m.file ? m.end : 0;
}

void sherd__forget_memory(sherd__span *keep, int count)
{
    char text[2048], line[256];
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    uintptr_t behind = 0;

    for (int i = 0; i < count; i++)
        widen(&keep[i]);
    for (long n; fd >= 0 && (n = syscall(SYS_read, fd, text, sizeof text)) > 0;)
        for (long i = 0; i < n; i++) {
            line[length] = text[i];
            if (text[i] == '\n') {
                drop_line(line, &behind, keep, count);
                length = 0;
            } else if (length + 2 < sizeof line) { /* long names are cut: they are not read */
                line[++length] = '\n';
            }
        }
    syscall(SYS_close, fd);
}
