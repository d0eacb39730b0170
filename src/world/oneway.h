/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes whose calls go one way, for channels: who sends is ahead of who receives. */
#ifndef SHERD__WORLD_ONEWAY_H
#define SHERD__WORLD_ONEWAY_H

#include "world.h"

/*
 * From now on the calls of all axes of a mesh are those of `senders`, ranks of it, and the others
 * may have made fewer of them at a check. On all ranks of the world.
 */
void sherd__goes_one_way(sherd_world *world, const sherd_mesh *mesh, const sherd_mesh *senders);
/* Have the memory for the call of sherd__is_drained; false: there is none, nothing is raised. */
bool sherd__drain_reserve(sherd_world *world);
/*
 * Whether all ranks of a mesh of one axis have made equally many calls on it: nothing is on its
 * way. Collective, the world; false also with the alarm.
 */
bool sherd__is_drained(sherd_world *world, const sherd_mesh *mesh);

/* Inside: whether ranks of a channel have done different things, other than lag. */
struct sherd__member;
bool sherd__one_way_differs(const sherd_world *world, const struct sherd__member *member,
                            char *text, size_t room);

#endif
