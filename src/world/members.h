/* SPDX-License-Identifier: Apache-2.0 */
/* Who is in which group (members.c). Part of inside.h. */
#ifndef SHERD__WORLD_MEMBERS_H
#define SHERD__WORLD_MEMBERS_H

#include "inside.h"

/* The axes of a mesh with extent above 1, as bits; the names of some, "dp,tp", into out[room]. */
unsigned sherd__wide_axes(const sherd_mesh *mesh);
void sherd__axes_text(const sherd_mesh *mesh, unsigned axes, char *out, size_t room);
/* What this rank knows of a root mesh; NULL: it has no groups. The mesh that has a lane; NULL: the
 * world's own. */
const sherd__member *sherd__member_of(const sherd_world *world, const sherd_mesh *mesh);
const sherd__member *sherd__member_at(const sherd_world *world, int lane);
/* "dp,tp (ranks 0,2)": the group of a rank in a lane. */
void sherd__lane_text(const sherd_world *world, int lane, int rank, char *out, size_t room);
/* The group of some axes of a mesh: *out NULL if it is this rank alone. False: the mesh has no
 * groups, or I am not in it. */
bool sherd__group_find(sherd_world *world, const sherd_mesh *mesh, unsigned axes,
                       sherd__group **out);
/* The index of each member of a group. */
void sherd__group_places(const sherd__group *group, int16_t place[SHERD_MAX_RANKS]);
/* The group that calls a step: NULL if it is this rank alone. False: there is none. */
bool sherd__step_group(sherd_world *world, const sherd_step *step, const sherd_mesh *among,
                       sherd__group **out);

#endif
