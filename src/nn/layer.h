/* SPDX-License-Identifier: Apache-2.0 */
/* What layers share: their options, their one argument, and how they are made. */
#ifndef SHERD__LAYER_H
#define SHERD__LAYER_H

#include "nn/module.h"
#include "sherd/layers.h"

/* What was given, with the defaults written out. */
sherd_layer_options sherd__layer_options_of(const sherd_layer_options *options);

/* Clears *out. EINVAL: it or the world is NULL, a size is less than 1, or an option is none. */
sherd_status sherd__layer_check(sherd_module **out, sherd_world *world, const char *function,
                                int64_t a, int64_t b, const sherd_layer_options *o);

/*
 * Make a module of these parameters, each of which may be NULL; nothing is left of it on failure, but the payload: that is
 * not the module's yet.
 */
sherd_status sherd__layer_create(sherd_module **out, sherd_world *world,
                                 const sherd_module_options *options, sherd_forward forward,
                                 sherd_tensor *weight, sherd_tensor *bias);

/* Destroy a module that was made in part, but not its payload; NULL is a no-op. */
void sherd__layer_drop(sherd_module *m);

/* The one positional argument; the failed tensor, raised, if there is none. */
sherd_tensor *sherd__layer_argument(const sherd_module *m, const sherd_args *in);

/* The one output. */
void sherd__layer_give(sherd_args *out, sherd_tensor *t);

#endif
