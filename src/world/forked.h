/* SPDX-License-Identifier: Apache-2.0 */
/* A process that a rank has forked: forked.c. Included by inside.h. */
#ifndef SHERD__WORLD_FORKED_H
#define SHERD__WORLD_FORKED_H

/* Begin to notice a fork; false for lack of memory. */
bool sherd__own_open(sherd_world *world);
void sherd__own_close(sherd_world *world);
/* A world that no fork is noticed in: it shares nothing. */
void sherd__own_nothing(sherd_world *world);
/* Whether this is the copy of a world in a process that was forked: nothing there may touch what
 * ranks share. One load. */
static inline bool sherd__is_forked(const sherd_world *world)
{
    return !*world->unforked;
}
/* The text for that into the diag; returns its status. */
sherd_status sherd__say_forked(sherd_world *world);
/* Whether it is, also where the kernel does not wipe; then the diag says so. Asks the kernel. */
bool sherd__is_stranger(sherd_world *world);

#endif
