/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mapping that the ranks of one machine share. Address space is reserved generously and pages
 * are committed by the kernel as they are first touched (2.3 us a page), so a region never moves
 * and blocks in it are recycled for ever. Nothing has a name in a file system: the last process
 * that ends takes it all along.
 */
#include "inside.h"
#include "notice.h"
#include "shared_file.h"

#include "base/num.h"
#include "base/variable.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Begins every arena. It depends on the sizes of what is in it, so that a program does not join the
 * arena of a launcher that was built from another version.
 */
static const uint64_t magic =
    UINT64_C(0x7368657264303036) ^ sizeof(sherd__control) << 16 ^ sizeof(sherd__lane);
enum { PAGE_LOG2 = 21 };            /* regions begin at multiples of 2 MB, so that huge pages fit */
enum { APART = 11, APART_OF = 16 }; /* pages; see step_of */
enum { HOLES = 32 << 20 };          /* bytes of holes for which a limited region has room */

/* Where lanes, needs and regions begin. */
typedef struct outline {
    size_t lanes, needs, regions;
} outline;

static outline outline_of(int ranks)
{
    size_t lanes = sherd__round_up(sizeof(sherd__control), 4096);
    size_t needs = sherd__round_up(lanes + (size_t)ranks * SHERD__LANES * sizeof(sherd__lane),
                                   sizeof(sherd__need));
    size_t regions = sherd__round_up(needs + (size_t)ranks * SHERD__NEEDS * sizeof(sherd__need),
                                     (size_t)1 << PAGE_LOG2);

    return (outline){lanes, needs, regions};
}

/* How much of the address space a whole arena may take. */
static size_t most_addresses(int ranks)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur >= (rlim_t)1 << 45)
        return (size_t)1 << 45;
    return (size_t)sherd__limit_share(limit.rlim_cur, ranks);
}

/*
 * Bytes for one region if none were asked for: the machine's memory. If the user has set a limit,
 * addresses may be short, so twice that limit, since one rank may come to hold nearly all of it,
 * with holes between.
 */
static size_t usual_region(void)
{
    const char *text = sherd__variable("SHERD_ARENA_BYTES");
    uint64_t most = sherd__machine_memory(), limit = 0;

    if (text && sherd__bytes_read(&limit, text) && limit < most / 2 && 2 * limit + HOLES < most)
        most = 2 * limit + HOLES;
    return (size_t)most;
}

/*
 * The distance from one region to the next: 11 times 2 MB beyond a multiple of 32 MB; for smaller
 * regions an odd number of pages. Ranks that do the same have the same data at the same place of
 * their regions, and an AMD core finds a line in its first cache by a hash of some address bits: if
 * regions were 1 GB apart, writing a sum into two of them would take four times as long.
 */
static size_t step_of(size_t region)
{
    size_t pages = sherd__round_up(region, (size_t)1 << PAGE_LOG2) >> PAGE_LOG2;

    if (pages < APART)
        return (pages | 1) << PAGE_LOG2;
    while (pages % APART_OF != APART)
        pages++;
    return pages << PAGE_LOG2;
}

/* The largest region that, with the gap behind it, takes at most `room`; 0: none. */
static size_t region_within(size_t room)
{
    size_t pages = room >> PAGE_LOG2;

    if (pages >= APART)
        pages -= (pages - APART) % APART_OF;
    else
        pages -= pages > 0 && pages % 2 == 0;
    return pages << PAGE_LOG2;
}

/* Bytes for one region: what was asked for, but so that the arena fits into the address space and
 * leaves some of it. */
static size_t region_size(int ranks, size_t asked)
{
    size_t all = most_addresses(ranks), before = outline_of(ranks).regions;
    size_t most = all > before ? region_within((all - before) / (size_t)ranks) : 0;
    size_t bytes = asked ? asked : usual_region();
    const size_t floor = (size_t)1 << SHERD__REGION_FLOOR_LOG2,
                 least = bytes < floor ? bytes : floor;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    /* Shadow memory is a multiple of this. */
    most = ((size_t)1 << 34) / (size_t)ranks;
#endif
    if (bytes > most)
        bytes = most;
    if (bytes < least)
        bytes = least;
    return sherd__round_up(bytes, (size_t)1 << PAGE_LOG2);
}

/* Map `bytes`; with `fd` through a file without a name, which is left open. *where: what failed. */
static void *reserve(size_t bytes, int *fd, const char **where)
{
    int flags = MAP_SHARED | MAP_NORESERVE;
    void *base;

    *where = "mmap";
    if (!fd) {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
        return base == MAP_FAILED ? NULL : base;
    }
    if ((*fd = sherd__shared_file(bytes, where)) < 0)
        return NULL;
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, *fd, 0);
    if (base == MAP_FAILED) {
        close(*fd);
        *fd = -1;
        return NULL;
    }
    return base;
}

/* Addresses that this process has, in MB; 0: nobody says. */
static size_t addresses(void)
{
    char text[64];

    return sherd__read_file("/proc/self/statm", text, sizeof text)
               ? (size_t)strtoull(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE) >> 20
               : 0;
}

static sherd_status no_space(sherd__diag *diag, int ranks, size_t asked, const char *where)
{
    size_t least =
        outline_of(ranks).regions + (size_t)ranks * step_of((size_t)1 << SHERD__REGION_FLOOR_LOG2);
    int reason = errno;
    struct rlimit limit;

    if (reason == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0)
        return sherd__fail(diag, SHERD_ENOMEM,
                           "files of this process are limited to %llu bytes, and so is memory that "
                           "processes share: raise `ulimit -f`",
                           (unsigned long long)limit.rlim_max);
    if (reason == ENOMEM && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        return sherd__fail(diag, SHERD_ENOMEM,
                           "no address space: the arena of %d ranks takes %zu MB of it at least, "
                           "but this process, which has %zu MB already, is limited to %llu MB "
                           "(RLIMIT_AS): raise `ulimit -v`",
                           ranks, least >> 20, addresses(),
                           (unsigned long long)limit.rlim_cur >> 20);
    if (reason == ENOSPC)
        return sherd__fail(diag, SHERD_ENOMEM,
                           "memfd_create is forbidden here (seccomp), and %s has no room for the "
                           "%zu MB that %d ranks need at least: allow memfd_create, or make it "
                           "larger (docker run --shm-size)",
                           where, least >> 20, ranks);
    if (sherd__is_forbidden(reason))
        return sherd__fail(diag, SHERD_ENOMEM,
                           "no memory that processes share: %s: %s: the seccomp profile of this "
                           "container or service forbids it, and must allow it",
                           where, strerror(reason));
    return sherd__fail(diag, SHERD_ENOMEM, "no address space for %d regions of %zu MB: %s", ranks,
                       asked >> 20, strerror(reason));
}

sherd_status sherd__arena_create(sherd__arena *out, int ranks, size_t region_bytes, int *fd,
                                 sherd__diag *diag)
{
    const outline parts = outline_of(ranks);
    size_t region = region_size(ranks, region_bytes);
    size_t asked = region;
    void *base = NULL;
    const char *where;

    memset(out, 0, sizeof *out);
    while (!(base = reserve(parts.regions + step_of(region) * (size_t)ranks, fd, &where))) {
        if (region >> (SHERD__REGION_FLOOR_LOG2 + 1) == 0)
            return no_space(diag, ranks, asked, where);
        region = sherd__round_up(region / 2, (size_t)1 << PAGE_LOG2);
    }
    out->base = base;
    out->bytes = parts.regions + step_of(region) * (size_t)ranks;
    out->control = base;
    out->control->ranks = ranks;
    out->control->region_bytes = region;
    out->control->region_step = step_of(region);
    out->control->regions = parts.regions;
    out->control->lanes = parts.lanes;
    out->control->needs = parts.needs;
    out->control->magic = magic;
    return SHERD_OK;
}

/* The largest limit of tensors, in MB, with which an arena takes no more than `room`; 0: none that
 * so many ranks open a world with. */
static size_t fitting_limit(int ranks, size_t room)
{
    size_t before = outline_of(ranks).regions;
    size_t region = room > before ? region_within((room - before) / (size_t)ranks) : 0;
    size_t fits = region > HOLES ? (region - HOLES) / 2 >> 20 : 0;

    return fits << 20 < (size_t)ranks * SHERD__PIECE ? 0 : fits;
}

/* A wrapper may have given a rank less than its launcher has. */
static sherd_status no_room_to_map(int fd, long long bytes, const char *function, sherd__diag *diag)
{
    int reason = errno, ranks = 0;
    struct rlimit limit;
    char advice[96] = "";

    if (reason != ENOMEM || getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return sherd__fail(diag, SHERD_ENOMEM, "%s: no address space for an arena of %lld MB: %s",
                           function, bytes >> 20, strerror(reason));
    if (pread(fd, &ranks, sizeof ranks, offsetof(sherd__control, ranks)) != sizeof ranks ||
        ranks < 1 || ranks > SHERD_MAX_RANKS)
        ranks = 1;
    /* With some left for the program. */
    size_t fits = fitting_limit(ranks, (size_t)limit.rlim_cur / 4 * 3);
    if (fits)
        snprintf(advice, sizeof advice,
                 ", or start with `sherd run --memory %zuM` (SHERD_ARENA_BYTES) or less", fits);
    return sherd__fail(diag, SHERD_ENOMEM,
                       "%s: each rank maps the tensors of all %d, which takes %lld "
                       "MB of addresses, but this one is limited to %llu MB (RLIMIT_AS): raise "
                       "`ulimit -v`%s",
                       function, ranks, bytes >> 20, (unsigned long long)limit.rlim_cur >> 20,
                       advice);
}

sherd_status sherd__arena_map(sherd__arena *out, int fd, const char *function, sherd__diag *diag)
{
    struct stat file;

    memset(out, 0, sizeof *out);
    if (fstat(fd, &file) || (size_t)file.st_size < sizeof(sherd__control))
        return sherd__fail(diag, SHERD_EINVAL,
                           "the arena of this launch is gone (file descriptor %d): was it closed?",
                           fd);
    void *base =
        mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED)
        return no_room_to_map(fd, (long long)file.st_size, function, diag);
    out->base = base;
    out->bytes = (size_t)file.st_size;
    out->control = base;
    if (out->control->magic != magic) {
        sherd__arena_unmap(out);
        return sherd__fail(diag, SHERD_EINVAL,
                           "file descriptor %d is not an arena of this version of sherd", fd);
    }
    return SHERD_OK;
}

void sherd__arena_unmap(sherd__arena *arena)
{
    if (arena->own_bytes)
        munmap(arena->control, arena->own_bytes);
    if (arena->base)
        munmap(arena->base, arena->bytes);
    memset(arena, 0, sizeof *arena);
}

void sherd__ring_ranks(sherd__control *control, int first, uint64_t ranks)
{
    for (; ranks; ranks &= ranks - 1) {
        sherd__post *post = &control->post[first + __builtin_ctzll(ranks)];
        atomic_fetch_add_explicit(&post->bell, 1, memory_order_seq_cst);
        syscall(SYS_futex, &post->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

void sherd__ring_all(sherd__arena *arena)
{
    for (int w = 0; w < sherd__rank_words(arena->control->ranks); w++)
        sherd__ring_ranks(arena->control, w * 64, sherd__look(&arena->control->sleepers.word[w]));
}

bool sherd__seems_asleep(const sherd__arena *arena, const sherd__ranks *ranks)
{
    uint64_t asleep = 0;

    for (int w = 0; w < ranks->words; w++)
        asleep |= sherd__peek(&arena->control->sleepers.word[w]) & ranks->word[w];
    return asleep != 0;
}
