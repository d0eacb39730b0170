/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of known values, styles applied to them, and how their results lie. */
#ifndef SHERD_TESTS_STYLES_H
#define SHERD_TESTS_STYLES_H

#include "models.h"

static inline sherd_module *linear(sherd_world *world, int64_t in, int64_t out)
{
    sherd_layer_options o = {.dtype = SHERD_F64, .bias = true};
    sherd_module *m = NULL;
    CHECK_OK(sherd_linear_create(&m, world, in, out, &o));
    fill_layer(m, SHERD_F64, 1, 0);
    return m;
}

static inline sherd_module *table(sherd_world *world, int64_t entries, int64_t width)
{
    sherd_layer_options o = {.dtype = SHERD_F64};
    sherd_module *m = NULL;
    CHECK_OK(sherd_embedding_create(&m, world, entries, width, &o));
    fill_layer(m, SHERD_F64, 1, 0);
    return m;
}

static inline sherd_status apply(sherd_module *m, const sherd_mesh *mesh, sherd_style style)
{
    const sherd_parallel_entry entry = {"", style};
    return sherd_parallelize(m, mesh, "tp", &entry, 1);
}

static inline const char *placements(sherd_tensor *t)
{
    return sherd_tensor_layout(t) ? sherd_layout_placements(sherd_tensor_layout(t)) : "plain";
}

#endif
