/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner of kernels: see grid.h. A stack takes one thread of the block after another as long as
 * they run to their ends; when one waits, the next one gets another stack. So a block whose threads
 * never wait needs one, and no switch. Stacks are kept by the thread that runs grids, at most 128
 * KiB of addresses for each of 1024.
 */
#include "grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WITH_TSAN
#include <mutex>
#include <sanitizer/tsan_interface.h>
#endif

namespace
{

enum { MOST_THREADS = 1024, LANES = 32, MOST_SHARED = 227 << 10 };
#if defined(WITH_ASAN) || defined(WITH_TSAN)
enum { STACK_BYTES = 512 << 10 };
#else
enum { STACK_BYTES = 128 << 10 };
#endif

/* ThreadSanitizer knows 8000 stacks in all: so many are kept by a thread, and blocks of more threads
 * run one at a time. */
enum { KEPT_STACKS = 256 };

const uint64_t untouched = 0x7374616b656e6421; /* at the far end of each stack */

enum thread_state { AT_WORK, AT_BLOCK, AT_WARP, DONE };

/* A stack, or where the runner itself is. */
struct fiber {
#if defined(__x86_64__)
    void *pointer;
#else
    ucontext_t context;
#endif
    unsigned char *low;
    size_t bytes;
#ifdef WITH_ASAN
    void *fake;
#endif
#ifdef WITH_TSAN
    void *tsan;
#endif
};

struct thread {
    thread_state state;
    fiber *on;
    bool votes; /* a ballot, not an exchange */
    unsigned mask, from;
    uint64_t value, result;
};

struct runner {
    void (*kernel)(const void *);
    const void *args;
    int threads;
    bool backwards;
    int started, alive, at_block, current;
    thread thread_at[MOST_THREADS];
    unsigned at_warp[MOST_THREADS / LANES];
    int ready[MOST_THREADS], first_ready, ready_count;
    fiber home, stack[MOST_THREADS], *free[MOST_THREADS], *running;
    int stacks, free_count;
    unsigned char *memory;

    ~runner();
};

/* The runner of this thread of the process; freed with it. */
struct runner_holder {
    runner *r;
    ~runner_holder()
    {
        delete r;
    }
};
thread_local runner_holder holder;
__thread runner *now;

__attribute__((noreturn)) void give_up(const char *what)
{
    fprintf(stderr, "emulated CUDA: block %u, thread %u: %s\n", grid_here.block.x,
            grid_here.thread.x, what);
    abort();
}

/* ---- stacks ---------------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* Keeps what a called function must keep; the rest the compiler does not expect to survive. */
extern "C" void sherd_grid_switch(void **from, void *to);
asm(".text\n"
    ".p2align 4\n"
    ".globl sherd_grid_switch\n"
    ".hidden sherd_grid_switch\n"
    ".type sherd_grid_switch, @function\n"
    "sherd_grid_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size sherd_grid_switch, .-sherd_grid_switch\n");

void prepare(fiber *f, void (*entry)())
{
    enum { KEPT = 6 };
    void **top = reinterpret_cast<void **>(f->low + f->bytes);

    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void *>(entry);
    for (int i = 0; i < KEPT; i++)
        top[-3 - i] = nullptr;
    f->pointer = top - 2 - KEPT;
}

void go(fiber *from, fiber *to)
{
    sherd_grid_switch(&from->pointer, to->pointer);
}
#else
void prepare(fiber *f, void (*entry)())
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->low;
    f->context.uc_stack.ss_size = f->bytes;
    f->context.uc_link = nullptr;
    makecontext(&f->context, entry, 0);
}

void go(fiber *from, fiber *to)
{
    swapcontext(&from->context, &to->context);
}
#endif

/* Said by whoever has just begun to run. All come from the runner, or are it. */
void arrived(runner *r)
{
#ifdef WITH_ASAN
    const void *low;
    size_t bytes;
    __sanitizer_finish_switch_fiber(r->running->fake, &low, &bytes);
    if (r->running != &r->home) {
        r->home.low = static_cast<unsigned char *>(const_cast<void *>(low));
        r->home.bytes = bytes;
    }
#else
    (void)r;
#endif
}

void switch_to(runner *r, fiber *to)
{
    fiber *here = r->running;

    if (here != &r->home && *reinterpret_cast<uint64_t *>(here->low) != untouched)
        give_up("its stack is too small for what it keeps");
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(&here->fake, to->low, to->bytes);
#endif
#ifdef WITH_TSAN
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    r->running = to;
    go(here, to);
    arrived(r);
}

void run_fresh_threads();

/* A stack on which threads that have not begun can run. */
fiber *take_stack(runner *r)
{
    if (r->free_count > 0)
        return r->free[--r->free_count];

    fiber *f = &r->stack[r->stacks];
    f->low = r->memory + static_cast<size_t>(r->stacks) * STACK_BYTES;
    f->bytes = STACK_BYTES - static_cast<size_t>(r->stacks++ % 16) * 256; /* not all in one set of
                                                                             the cache's lines */
    *reinterpret_cast<uint64_t *>(f->low) = untouched;
#ifdef WITH_TSAN
    f->tsan = __tsan_create_fiber(0);
#endif
    prepare(f, run_fresh_threads);
    return f;
}

runner *this_runner()
{
    if (now)
        return now;

    const size_t bytes = static_cast<size_t>(MOST_THREADS) * STACK_BYTES;
    runner *r = new runner();
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        give_up("no memory for stacks");
    r->memory = static_cast<unsigned char *>(memory);
    holder.r = now = r;
    return r;
}

/* Between grids: all but so many stacks. */
void forget_stacks(runner *r, int but)
{
#ifdef WITH_TSAN
    if (r->stacks <= but)
        return;
    while (r->stacks > but)
        __tsan_destroy_fiber(r->stack[--r->stacks].tsan);
    for (int i = 0; i < r->stacks; i++)
        r->free[i] = &r->stack[i];
    r->free_count = r->stacks;
#else
    (void)r, (void)but;
#endif
}

runner::~runner()
{
    const size_t bytes = static_cast<size_t>(MOST_THREADS) * STACK_BYTES;

    forget_stacks(this, 0);
#ifdef WITH_ASAN
    __asan_unpoison_memory_region(memory, bytes);
#endif
    munmap(memory, bytes);
}

/* ---- threads of a block ---------------------------------------------------------------------- */

void enter(runner *r, int t)
{
    r->current = t;
    grid_here.thread.x = static_cast<unsigned>(t);
}

void make_ready(runner *r, int t)
{
    r->thread_at[t].state = AT_WORK;
    r->ready[(r->first_ready + r->ready_count++) % MOST_THREADS] = t;
}

/* The current thread waits until somebody makes it ready. */
void wait_in(runner *r, thread_state state)
{
    thread *t = &r->thread_at[r->current];

    t->state = state;
    t->on = r->running;
    switch_to(r, &r->home);
}

void release_block(runner *r)
{
    r->at_block = 0;
    for (int i = 0; i < r->threads; i++) {
        int t = r->backwards ? r->threads - 1 - i : i;
        if (r->thread_at[t].state == AT_BLOCK)
            make_ready(r, t);
    }
}

/* What a stack does: a thread that has not begun yet, and another one. */
void run_fresh_threads()
{
    runner *r = now;
    fiber *here = r->running;

    arrived(r);
    for (;;) {
        while (r->started < r->threads && r->ready_count == 0) {
            int i = r->started++, t = r->backwards ? r->threads - 1 - i : i;
            enter(r, t);
            r->kernel(r->args);
            r->thread_at[r->current].state = DONE;
            if (--r->alive == r->at_block)
                release_block(r);
        }
        r->free[r->free_count++] = here;
        switch_to(r, &r->home);
    }
}

/* Nobody can run: say who waits, and end. */
__attribute__((noreturn)) void tell_deadlock(const runner *r)
{
    int counts[DONE + 1] = {};
    int last_at[DONE + 1] = {};

    for (int t = 0; t < r->threads; t++) {
        counts[r->thread_at[t].state]++;
        last_at[r->thread_at[t].state] = t;
    }
    fprintf(stderr,
            "emulated CUDA: block %u of %d threads waits for ever: %d at __syncthreads (thread "
            "%d), %d for lanes of their warp (thread %d, mask %08x), %d have returned\n",
            grid_here.block.x, r->threads, counts[AT_BLOCK], last_at[AT_BLOCK], counts[AT_WARP],
            last_at[AT_WARP], r->thread_at[last_at[AT_WARP]].mask, counts[DONE]);
    abort();
}

void run_block(runner *r)
{
    r->started = r->at_block = r->ready_count = r->first_ready = 0;
    r->alive = r->threads;
    for (int t = 0; t < r->threads; t++)
        r->thread_at[t].state = AT_WORK;
    while (r->alive > 0) {
        if (r->ready_count > 0) {
            int t = r->ready[r->first_ready];
            r->first_ready = (r->first_ready + 1) % MOST_THREADS;
            r->ready_count--;
            enter(r, t);
            switch_to(r, r->thread_at[t].on);
        } else if (r->started < r->threads) {
            switch_to(r, take_stack(r));
        } else {
            tell_deadlock(r);
        }
    }
}

/* ---- warps ----------------------------------------------------------------------------------- */

/* All lanes of the mask are there: what each gets. */
void release_warp(runner *r, int first, unsigned mask)
{
    unsigned yes = 0;

    r->at_warp[first / LANES] &= ~mask;
    for (int lane = 0; lane < LANES; lane++) {
        const thread *t = &r->thread_at[first + lane];
        if (!(mask >> lane & 1))
            continue;
        if (t->mask != mask || t->votes != r->thread_at[r->current].votes)
            give_up("lanes that wait for each other name different masks, or do different things");
        yes |= static_cast<unsigned>(t->value != 0) << lane;
    }
    for (int i = 0; i < LANES; i++) {
        int lane = r->backwards ? LANES - 1 - i : i;
        thread *t = &r->thread_at[first + lane];
        if (!(mask >> lane & 1))
            continue;
        t->result = t->votes ? yes : r->thread_at[first + static_cast<int>(t->from)].value;
        if (first + lane != r->current)
            make_ready(r, first + lane);
    }
}

uint64_t meet(unsigned mask, bool votes, uint64_t value, unsigned from)
{
    runner *r = now;
    int self = r->current, first = self / LANES * LANES, lane = self % LANES;
    thread *t = &r->thread_at[self];
    unsigned *there = &r->at_warp[first / LANES];

    if (!(mask >> lane & 1))
        give_up("a mask without the lane itself");
    if (!votes && !(mask >> from & 1))
        give_up("a value is wanted of a lane that does not take part");
    t->votes = votes;
    t->mask = mask;
    t->value = value;
    t->from = from;
    *there |= 1u << lane;
    if ((*there & mask) == mask)
        release_warp(r, first, mask);
    else
        wait_in(r, AT_WARP);
    return t->result;
}

} // namespace

uint64_t grid_exchange(unsigned mask, uint64_t value, unsigned from)
{
    return meet(mask, false, value, from % LANES);
}

unsigned grid_ballot(unsigned mask, bool yes)
{
    return static_cast<unsigned>(meet(mask, true, yes, 0));
}

void grid_sync_block()
{
    runner *r = now;

    if (++r->at_block == r->alive)
        release_block(r);
    else
        wait_in(r, AT_BLOCK);
}

/* ---- the grid -------------------------------------------------------------------------------- */

__thread grid_place grid_here;

void run_grid(void (*kernel)(const void *), const void *args, long long blocks, int threads,
              int shared_bytes)
{
    runner *r = this_runner();
    size_t room = static_cast<size_t>(shared_bytes > 0 ? shared_bytes : 1);

#ifdef WITH_TSAN
    static std::mutex one_large;
    std::unique_lock<std::mutex> turn(one_large, std::defer_lock);
    if (threads > KEPT_STACKS)
        turn.lock();
#endif
    grid_here = grid_place();
    if (threads < LANES || threads > MOST_THREADS || threads % LANES)
        give_up("a block has 32 to 1024 threads, a multiple of 32");
    if (blocks < 0 || blocks > 0x7fffffff)
        give_up("a grid has at most 2^31 - 1 blocks");
    if (shared_bytes < 0 || shared_bytes > MOST_SHARED)
        give_up("a block has at most 227 KiB of shared memory");
    if (posix_memalign(reinterpret_cast<void **>(&grid_here.shared), 128, room))
        give_up("no memory for a block");
    r->kernel = kernel;
    r->args = args;
    r->threads = threads;
    r->running = &r->home;
#ifdef WITH_TSAN
    r->home.tsan = __tsan_get_current_fiber();
#endif
    grid_here.block_size = {static_cast<unsigned>(threads), 1, 1};
    grid_here.grid_size = {static_cast<unsigned>(blocks), 1, 1};
    for (long long b = 0; b < blocks; b++) {
        grid_here.block.x = static_cast<unsigned>(b);
        r->backwards = b % 2 != 0;
        memset(grid_here.shared, 0xff, room);
        run_block(r);
    }
    forget_stacks(r, KEPT_STACKS);
    free(grid_here.shared);
    grid_here.shared = nullptr;
}
