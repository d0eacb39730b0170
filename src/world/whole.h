/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks of a world tell each other where there is no mesh of them. */
#ifndef SHERD__WORLD_WHOLE_H
#define SHERD__WORLD_WHOLE_H

#include "world.h"

/*
 * All ranks of the world exchange one number: all[ranks]; in a dry world, where there may be any
 * number of ranks that all have the same, all[1]. False: the alarm is raised.
 */
bool sherd__share_whole(sherd_world *world, const char *name, int64_t mine, int64_t *all);

#endif
