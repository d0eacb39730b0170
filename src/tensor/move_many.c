/* SPDX-License-Identifier: Apache-2.0 */
/* Moving several tensors at once: what a user may pass. The moving itself is in move.c. */
#include "tensor/state.h"

#include "world/doing.h"

static const char function[] = "sherd_redistribute_many";

static sherd_world *world_of(sherd_tensor *const *t, const sherd_layout *const *to, int count)
{
    for (int i = 0; i < count; i++) {
        if (t && t[i])
            return t[i]->world;
        if (to && to[i])
            return sherd__space_world(to[i]->space);
    }
    return NULL;
}

/*
 * Whether the arrays and their entries are non-NULL and of one world; otherwise it has failed
 * there.
 */
static bool are_given(sherd_world *world, sherd_tensor **out, sherd_tensor *const *t,
                      const sherd_layout *const *to, int count, sherd_tensor **failed)
{
    const sherd__argument need[] = {{"out", out}, {"t", t}, {"to", to}, {NULL, NULL}};

    if (!sherd__given(world, function, need, failed))
        return false;
    for (int i = 0; i < count; i++) {
        const sherd__argument pair[] = {
            {"a tensor in t", t[i]}, {"a layout in to", to[i]}, {NULL, NULL}};
        if (!sherd__given(world, function, pair, failed))
            return false;
        if (t[i]->world != world) {
            *failed = sherd__fail_tensor(world, true, SHERD_EINVAL, "%s: t[%d] is of another world",
                                         function, i);
            return false;
        }
    }
    return true;
}

void sherd_redistribute_many(sherd_tensor **out, sherd_tensor *const *t,
                             const sherd_layout *const *to, int count)
{
    sherd_tensor *failed;

    if (count <= 0)
        return;
    if (are_given(world_of(t, to, count), out, t, to, count, &failed)) {
        sherd_world *world = t[0]->world;
        bool begun = sherd__doing_begin(world, function);
        sherd__move_list(out, t, to, count, false);
        sherd__doing_end(world, begun);
        return;
    }
    for (int i = 0; out && i < count; i++)
        out[i] = failed;
}
