/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that runs out inside oneDNN: the n-th allocation that it makes in this thread fails, or of
 * those only the n-th that throws. A program with sanitizers has an allocator of its own, which this
 * one would replace: nothing fails there.
 */
#ifndef STARVED_H
#define STARVED_H

#include <stdbool.h>
#include <stddef.h>

typedef enum starving { STARVE_NEVER, STARVE_ALL, STARVE_NEW } starving;

/* In this thread: which allocations are counted, the one that fails, from 1, and how many there
 * were. After it there is memory again, or not. */
static _Thread_local starving starved_kind;
static _Thread_local long starved_at, starved_seen;
static _Thread_local bool starved_on;

static inline void starve(starving kind, long at, bool on)
{
    starved_kind = kind;
    starved_at = at;
    starved_on = on;
    starved_seen = 0;
}

/* Whether the allocation that should fail was reached. */
static inline bool starved(void)
{
    return starved_seen >= starved_at;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define STARVED_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STARVED_SANITIZED
#endif
#endif

#ifdef STARVED_SANITIZED
enum { CAN_STARVE = false };
#else
enum { CAN_STARVE = true };

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

/* `operator new` is in the library of C++; without memory it throws. */
static bool is_refused(void *caller)
{
    Dl_info who;

    if (starved_kind == STARVE_NEVER || !dladdr(caller, &who) || !who.dli_fname ||
        !(strstr(who.dli_fname, "libstdc++") ||
          (starved_kind == STARVE_ALL && strstr(who.dli_fname, "libdnnl"))))
        return false;
    starved_seen++;
    return starved_seen == starved_at || (starved_on && starved_seen > starved_at);
}

/* The program's come before those of the C library, also for libraries that are loaded. */
#define SEEN __attribute__((visibility("default")))

SEEN void *malloc(size_t bytes)
{
    if (!is_refused(__builtin_return_address(0)))
        return __libc_malloc(bytes);
    errno = ENOMEM;
    return NULL;
}

SEEN int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *memory =
        is_refused(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);

    *out = memory;
    return memory ? 0 : ENOMEM;
}

SEEN void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (!is_refused(__builtin_return_address(0)))
        return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
    errno = ENOMEM;
    return MAP_FAILED;
}

#endif

#endif
