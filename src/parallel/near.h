/* SPDX-License-Identifier: Apache-2.0 */
/* Names similar to a given one, for error messages. */
#ifndef SHERD__NEAR_H
#define SHERD__NEAR_H

#include "sherd/module.h"

/*
 * Write at most five names of children of a module, separated by commas, the most similar to `name`
 * first, to out[room].
 */
void sherd__near_names(char *out, size_t room, const sherd_module *module, const char *name);

#endif
