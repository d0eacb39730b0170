/* SPDX-License-Identifier: Apache-2.0 */
/* The model, and how it is split over ranks. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include <sherd.h>

#include "options.h"

enum { VOCABULARY = 256 }; /* bytes */

/*
 * Make the model: ids i32 [batch, context] -> logits [batch, context, VOCABULARY], both in the
 * order of options->zigzag; with experts a second output, the mean of their balances
 * (sherd_experts_create). Its parameters are plain, equal on all ranks, and take no memory before
 * it is split. `options` must outlive it.
 */
sherd_status model_create(sherd_module **out, sherd_world *world, const gpt_options *options);

/* Split it over the axes of a mesh, "dp", "cp" (if there is one) and "tp". Collective. */
sherd_status model_split(sherd_module *model, const sherd_mesh *mesh, const gpt_options *options);

#endif
