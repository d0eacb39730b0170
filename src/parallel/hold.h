/* SPDX-License-Identifier: Apache-2.0 */
/* What units have gathered and keep between calls (sherd_module_hold_gathered). */
#ifndef SHERD__PARALLEL_HOLD_H
#define SHERD__PARALLEL_HOLD_H

#include "parallel/unit.h"

/* Whether a unit holds what its parameters are now, gathered. */
bool sherd__is_held(const sherd__unit *u);
/* Then that is what is gathered for this call. */
void sherd__held_take(sherd__unit *u);
/* Hold what was gathered for this call, and nothing else. */
void sherd__held_keep(sherd__unit *u);
void sherd__held_drop(sherd__unit *u);

#endif
