/* SPDX-License-Identifier: Apache-2.0 */
/* What layers share: their options, their one argument, and how they are made. */
#ifndef SHERD__NN_LAYER_H
#define SHERD__NN_LAYER_H

#include "nn/module.h"
#include "sherd/layers.h"

/* The options with defaults filled in. */
sherd_layer_options sherd__layer_options_of(const sherd_layer_options *options);

/*
 * Sets *out to NULL. EINVAL: `out` or the world is NULL, a size is less than 1, or an option is
 * invalid.
 */
sherd_status sherd__layer_check(sherd_module **out, sherd_world *world, const char *function,
                                int64_t a, int64_t b, const sherd_layer_options *o);

/*
 * Make a module with these parameters, each of which may be NULL. On failure everything is
 * destroyed except the payload, which is not the module's yet.
 */
sherd_status sherd__layer_create(sherd_module **out, sherd_world *world,
                                 const sherd_module_options *options, sherd_forward forward,
                                 sherd_tensor *weight, sherd_tensor *bias);

/* A weight that is drawn, or zero, as the options say; deferred. */
sherd_tensor *sherd__layer_draw(sherd_world *world, const int64_t *shape, int ndim,
                                const sherd_layer_options *o);

/* Parameter i; NULL if the module has not so many. */
static inline sherd_tensor *sherd__layer_parameter(const sherd_module *m, int i)
{
    return i < m->parameters ? m->parameter[i].tensor : NULL;
}

/* Destroy a partly made module, but not its payload; NULL is a no-op. */
void sherd__layer_drop(sherd_module *m);

/*
 * The one positional argument; the failed tensor, raised, if there is none, or anything else.
 * Arguments that are NULL do not count.
 */
sherd_tensor *sherd__layer_argument(const sherd_module *m, const sherd_args *in);
/* The first of at most so many positional arguments, beside keywords of these names (NULL: none;
 * the list ends with NULL). */
sherd_tensor *sherd__layer_arguments(const sherd_module *m, const sherd_args *in, int most,
                                     const char *const *names);

/* The one output. */
void sherd__layer_give(sherd_args *out, sherd_tensor *t);

#endif
