/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory between pages that nobody may touch: what lies at its end, or at its begin, cannot be
 * overrun unseen, also by vectors that only read. An access outside ends what runs inside
 * `fence_caught` and tells where it was. Costs a mapping per fence, and two system calls for each
 * thing that is given.
 */
#ifndef SHERD_TESTS_FENCES_H
#define SHERD_TESTS_FENCES_H

#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FENCE_BODY = 1 << 23, FENCE_SIGNALS = 2 };

typedef struct fence {
    char *body;  /* [FENCE_BODY], where only the pages of what is given can be touched */
    char *given; /* in it */
    size_t bytes;
} fence;

static const int fence_signal[FENCE_SIGNALS] = {SIGSEGV, SIGBUS};
static sigjmp_buf fence_caught; /* where to go on after an access outside */
static char *fence_fault;       /* its address */

static void fence_on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    fence_fault = info->si_addr;
    siglongjmp(fence_caught, 1);
}

static inline void fences_begin(struct sigaction *was)
{
    const struct sigaction action = {.sa_sigaction = fence_on_fault, .sa_flags = SA_SIGINFO};

    for (int i = 0; i < FENCE_SIGNALS; i++)
        sigaction(fence_signal[i], &action, &was[i]);
}

static inline void fences_end(const struct sigaction *was)
{
    for (int i = 0; i < FENCE_SIGNALS; i++)
        sigaction(fence_signal[i], &was[i], NULL);
}

static inline bool fence_build(fence *f)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *all = mmap(NULL, FENCE_BODY + 2 * page, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    f->body = f->given = all == MAP_FAILED ? NULL : all + page;
    f->bytes = 0;
    return f->body != NULL;
}

static inline void fence_raze(fence *f)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (f->body)
        CHECK_EQ(munmap(f->body - page, FENCE_BODY + 2 * page), 0);
    f->body = NULL;
}

/* What may be done with the pages of what is given. */
static inline void fence_protect(fence *f, int how)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), first = (size_t)(f->given - f->body);
    size_t end = (first + f->bytes + page - 1) / page * page;

    first = first / page * page;
    if (f->bytes)
        CHECK_EQ(mprotect(f->body + first, end - first, how), 0);
}

/*
 * Room for some bytes at the end of the body, or at its begin, in the place of what was given
 * before.
 */
static inline void *fence_give(fence *f, size_t bytes, bool at_end)
{
    CHECK(bytes <= FENCE_BODY);
    fence_protect(f, PROT_NONE);
    f->bytes = bytes;
    f->given = f->body + (at_end ? FENCE_BODY - bytes : 0);
    fence_protect(f, PROT_READ | PROT_WRITE);
    return f->given;
}

/* If the fault lies at this fence, say which byte of what was given. */
static inline void fence_tell(const fence *f, const char *name)
{
    if (fence_fault && fence_fault >= f->body - 4096 && fence_fault < f->body + FENCE_BODY + 4096)
        fprintf(stderr, "  byte %lld of %zu of %s\n", (long long)(fence_fault - f->given), f->bytes,
                name);
}

#endif
