/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the generators of modules stood at the last good check. In a step that fails, ranks stop
 * drawing at different places (a pipeline skips its turns, a program the rest of its step), so
 * after the failed check each generator is put back there: else ranks would draw different numbers
 * from then on, and no later step could succeed. Costs a walk over the generators in use at each
 * check after which something was drawn. Generators of the program's own are plain values, which
 * the library does not know.
 */
#ifndef SHERD__TENSOR_STANDS_H
#define SHERD__TENSOR_STANDS_H

#include "sherd/random.h"

/* All zero = not in the world's list. */
typedef struct sherd__stand {
    struct sherd__stand *next, **link; /* in the list; what points to it there */
    sherd_generator *generator;
    sherd_generator since;
} sherd__stand;

/* Keep where a generator stands now, from its first use on; both live until sherd__stand_drop. */
void sherd__stand_keep(sherd_world *world, sherd__stand *stand, sherd_generator *generator);
/* All ranks have set the generator anew. */
void sherd__stand_renew(sherd__stand *stand);
void sherd__stand_drop(sherd__stand *stand);

/* After a check: keep where all stand, or put them back. */
void sherd__stands_good(sherd_world *world);
void sherd__stands_failed(sherd_world *world);

#endif
