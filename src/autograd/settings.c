/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of this room in a world (sherd__tape), set up when it is first asked for, and what
 * programs set of it: whether operators are recorded, whether gradients wait to be settled, the
 * dtype of autocast. saved.c has the hooks on saved tensors.
 */
#include "autograd/node.h"

#include <string.h>

#include "sherd/autocast.h"

/*
 * The tensors still hold nodes, and freeing nodes needs this state: so the tensors are emptied
 * first.
 */
static void destroy(sherd_world *world, void *memory)
{
    sherd__tape *tape = memory;

    sherd__tensors_empty(world);
    sherd__free(sherd__world_heap(world), tape->hooks);
    memset(tape, 0, sizeof *tape);
}

sherd__tape *sherd__tape_open(sherd_world *world)
{
    sherd__tape *tape = sherd__spare(world);

    tape->world = world;
    sherd__world_set_state(world, SHERD__ROOM_AUTOGRAD, tape, destroy);
    return tape;
}

bool sherd_set_recording(sherd_world *world, bool on)
{
    if (!world)
        return false;

    sherd__tape *tape = sherd__tape_of(world);
    bool before = !tape->paused;

    tape->paused = !on;
    return before;
}

bool sherd_set_gradient_sync(sherd_world *world, bool on)
{
    if (!world)
        return false;

    sherd__tape *tape = sherd__tape_of(world);
    bool before = !tape->waits;

    tape->waits = !on;
    return before;
}

sherd_dtype sherd__low(sherd_world *world)
{
    return sherd__tape_of(world)->low;
}

sherd_dtype sherd__set_low(sherd_world *world, sherd_dtype dtype)
{
    sherd__tape *tape = sherd__tape_of(world);
    sherd_dtype before = tape->low;

    tape->low = dtype;
    return before;
}

sherd_dtype sherd_set_autocast(sherd_world *world, sherd_dtype dtype)
{
    if (!world)
        return SHERD_DTYPE_NONE;
    if (dtype == SHERD_DTYPE_NONE || sherd__is_half(dtype))
        return sherd__set_low(world, dtype);
    sherd__raise(world, SHERD_EINVAL,
                 "sherd_set_autocast: %s (%d) is neither bf16 nor f16: SHERD_DTYPE_NONE ends it",
                 sherd_dtype_name(dtype), (int)dtype);
    return sherd__low(world);
}

sherd_dtype sherd_autocast(const sherd_world *world)
{
    const sherd__tape *tape = world ? sherd__world_state(world, SHERD__ROOM_AUTOGRAD) : NULL;

    return tape ? tape->low : SHERD_DTYPE_NONE;
}

bool sherd__makes_graph(sherd_world *world)
{
    return sherd__tape_of(world)->graph;
}
