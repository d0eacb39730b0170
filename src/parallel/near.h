/* SPDX-License-Identifier: Apache-2.0 */
/* Names that look like a name. */
#ifndef SHERD__NEAR_H
#define SHERD__NEAR_H

#include "sherd/module.h"

/*
 * At most five names of children of a module, with commas, those nearest to `name` first, into
 * out[room].
 */
void sherd__near_names(char *out, size_t room, const sherd_module *module, const char *name);

#endif
