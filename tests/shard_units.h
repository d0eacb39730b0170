/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of units share: the mesh of all ranks, a deep model of wide layers, calls counted. */
#ifndef SHERD__TESTS_SHARD_UNITS_H
#define SHERD__TESTS_SHARD_UNITS_H

#include "models.h"

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "dp=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static int64_t calls(sherd_world *world, const char *op, sherd_comm_direction direction)
{
    return sherd_comm_calls(world, &(sherd_comm_filter){.op = op, .direction = direction});
}

enum { WIDE = 64, DEEP = 4 };

static sherd_module *deep_stack(sherd_world *world)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    sherd_module *root = container(world, stack_forward, NULL);

    for (int i = 0; i < DEEP; i++) {
        sherd_module *b = add_layer(root, names[i], container(world, stack_forward, NULL));
        linear_layer(b, "up", SHERD_F64, WIDE, WIDE, i);
        linear_layer(b, "down", SHERD_F64, WIDE, WIDE, i + 2);
    }
    return root;
}

static sherd_tensor *few_rows(sherd_world *world, const sherd_mesh *mesh)
{
    return spread(wave(world, SHERD_F64, 2, SHAPE(8, WIDE), 1, 1, 0), mesh, "S(0)");
}

#endif
