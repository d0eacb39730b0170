/* SPDX-License-Identifier: Apache-2.0 */
/* What weights of 8 bits need of modules and layers. */
#ifndef SHERD__NN_QUANTIZE_H
#define SHERD__NN_QUANTIZE_H

#include "nn/module.h"

/* Whether it has a weight of 8 bits: a buffer "weight" of i8, whose scales are "weight_scale". */
bool sherd__has_8_bits(const sherd_module *m);

/* The forward of a Linear, by which it is known: layers.c. */
void sherd__linear_forward(sherd_module *self, const sherd_args *in, sherd_args *out);

/*
 * A parameter becomes a buffer of the same name with the tensor `value`, placed as it was, and the
 * module gets another buffer. False: no memory, and nothing has changed.
 */
bool sherd__turn_into_buffers(sherd_module *m, int parameter, sherd_tensor *value, const char *name,
                              sherd_tensor *t);

#endif
