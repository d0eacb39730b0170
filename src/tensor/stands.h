/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the generators of modules stood at the last good check. In a step that fails, ranks stop
 * drawing at different places (a pipeline skips its turns, a program the rest of its step), so
 * after the failed check each generator is put back there: else ranks would draw different numbers
 * from then on, and no later step could succeed. Costs a walk over the generators in use at each
 * check. Generators of the program's own are plain values, which the library does not know.
 */
#ifndef SHERD__TENSOR_STANDS_H
#define SHERD__TENSOR_STANDS_H

#include "sherd/random.h"

/* All zero = not in the world's list. */
typedef struct sherd__standing {
    struct sherd__standing *next, **link; /* in the list; what points to it there */
    sherd_generator *generator;
    sherd_generator since;
} sherd__standing;

/* Keep where a generator stands, from its first use on; both live until sherd__standing_drop. */
void sherd__standing_keep(sherd_world *world, sherd__standing *stand, sherd_generator *generator);
/* All ranks have set the generator anew. */
void sherd__standing_renew(sherd__standing *stand);
void sherd__standing_drop(sherd__standing *stand);

/* After a check: keep where all stand if it was good, otherwise put them back. */
void sherd__standings_checked(sherd_world *world, bool good);

#endif
