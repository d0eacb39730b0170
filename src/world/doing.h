/* SPDX-License-Identifier: Apache-2.0 */
/* What this rank is doing: the name that stands before a failure that is found where nobody knows
 * for whom, as lack of memory is. */
#ifndef SHERD__WORLD_DOING_H
#define SHERD__WORLD_DOING_H

#include "world/world.h"

/*
 * The program has called a function of this static name, or an operator's. Inside of another one it
 * is a part of that, and nothing changes; nor without a world (NULL), where a function was given no
 * tensor. Pass the answer to sherd__doing_end.
 */
bool sherd__doing_begin(sherd_world *world, const char *name);
void sherd__doing_end(sherd_world *world, bool begun);

/* The name of what the program has called, of which `function` is a part; "": there is none. */
const char *sherd__doing_around(const sherd_world *world, const char *function);

/* That, or what calls functions (a backward), or the function itself: whose deed it is. */
const char *sherd__doing_name(const sherd_world *world, const char *function);

/*
 * Something of this static name calls functions and operators from now on, as a backward does: both
 * names are said. NULL: nothing does. Returns what there was before.
 */
const char *sherd__doing_within(sherd_world *world, const char *name);

/*
 * Fail with the names of what this rank is doing before the text. As sherd__raise, if
 * `distributed`; else as sherd__fail_locally.
 */
sherd_status sherd__fail_doing(sherd_world *world, bool distributed, sherd_status status,
                               const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
