/* SPDX-License-Identifier: Apache-2.0 */
/* What weights of 8 or 4 bits need of modules and layers. */
#ifndef SHERD__NN_QUANTIZE_H
#define SHERD__NN_QUANTIZE_H

#include "nn/module.h"

/* The bits of its weight, if that is a buffer "weight" of whole numbers, whose scales are
 * "weight_scale": 8, of i8, or 4, of u8. 0: it has none. */
int sherd__weight_bits(const sherd_module *m);

/* Whether the buffer is the scales, "NAME_scale", of another one, "NAME", of whole numbers. */
bool sherd__is_scale(const sherd_module *m, const char *name);

/* What the weights of a Linear or of experts were made by sherd_module_quantize with. */
typedef struct sherd__whole_numbers {
    sherd_world *world;
    int64_t group;
    int bits;
} sherd__whole_numbers;

/* NULL: it was not. */
const sherd__whole_numbers *sherd__whole_numbers_of(const sherd_module *m);

/* Where experts keep it, 0 bits before; NULL: the module is none: experts.c. */
sherd__whole_numbers *sherd__experts_numbers(const sherd_module *m);

/* The forward of a Linear, by which it is known: layers.c. */
void sherd__linear_forward(sherd_module *self, const sherd_args *in, sherd_args *out);

/* A parameter that becomes a buffer of the same name, placed as it was, beside another buffer. */
typedef struct sherd__buffering {
    sherd__map names; /* of the module afterwards */
    char *name;       /* of the other buffer */
} sherd__buffering;

/* Take the memory for it. False: there is none. Afterwards, in any case, drop it or end it. */
bool sherd__buffering_begin(sherd__buffering *t, sherd_module *m, int parameter, const char *name);
void sherd__buffering_drop(sherd__buffering *t, sherd_module *m);
/* Do it, which cannot fail. */
void sherd__buffering_end(sherd__buffering *t, sherd_module *m, int parameter, sherd_tensor *value,
                          sherd_tensor *more);

#endif
