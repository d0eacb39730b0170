/* SPDX-License-Identifier: Apache-2.0 */
/* Pinning a rank to its core (pin.c). */
#ifndef SHERD__WORLD_PIN_H
#define SHERD__WORLD_PIN_H

#include "arena.h"

/* Cores in the affinity mask of this thread. */
int sherd__cores(void);
/* Pin this thread to the core that its rank has, if it has one; what it was is returned, for
 * unpin. */
sherd__pinning sherd__pin(const sherd__post *post);
void sherd__unpin(const sherd__pinning *before);

#endif
