/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that a rank has forked has a copy of the rank's world (lists of blocks, numbers of
 * calls), but still shares the memory of tensors and all that ranks show each other. What the child
 * did there would overwrite the rank's tensors and be taken for the rank's own calls. So every way
 * into that memory first asks whether this is such a copy, and then refuses. Each world has a page
 * that the kernel wipes in a child, so asking is one load; handlers of forks (pthread_atfork) would
 * need data of the whole process.
 */
#include "inside.h"

#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 64 };

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static const unsigned char always = 1;

void sherd__own_nothing(sherd_world *world)
{
    world->unforked = &always;
}

/* Kernels before 4.14 do not wipe: there only checks, meetings and the close see a fork. */
bool sherd__own_open(sherd_world *world)
{
    unsigned char *page =
        mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return false;
    if (madvise(page, BYTES, MADV_WIPEONFORK)) {
        munmap(page, BYTES);
        return true;
    }
    *page = 1;
    world->unforked = page;
    return true;
}

void sherd__own_close(sherd_world *world)
{
    if (world->unforked != &always)
        munmap((void *)(uintptr_t)world->unforked, BYTES);
    sherd__own_nothing(world);
}

sherd_status sherd__say_forked(sherd_world *world)
{
    return sherd__fail(
        &world->diag, SHERD_EINVAL,
        "this process was forked from rank %d, whose world only that rank itself can use: copy "
        "what is needed here to memory of your own before the fork, and call nothing of sherd here",
        world->rank);
}

bool sherd__is_stranger(sherd_world *world)
{
    if (!world->transport->meet || (!sherd__is_forked(world) && world->process == (int)getpid()))
        return false;
    (void)sherd__say_forked(world);
    return true;
}
