/* SPDX-License-Identifier: Apache-2.0 */
/* What this rank is doing: the name that stands before "out of memory", wherever that is found. */
#ifndef SHERD__DOING_H
#define SHERD__DOING_H

#include "world/world.h"

/*
 * The program has called a function of this static name, or an operator's. Inside of another one it
 * is a part of that, and nothing changes. Pass the answer to sherd__doing_end.
 */
bool sherd__doing_begin(sherd_world *world, const char *name);
void sherd__doing_end(sherd_world *world, bool begun);

#endif
