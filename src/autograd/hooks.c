/* SPDX-License-Identifier: Apache-2.0 */
/* Running the hooks on a gradient that is complete (sherd_tensor_hook); watch.c keeps them. */
#include "autograd/node.h"
#include "layout/shape.h"
#include "tensor/state.h"

#include <string.h>

/* Whether a hook's result may replace the gradient. */
static bool is_like(sherd_world *world, sherd_tensor *grad, sherd_tensor *other)
{
    if (other->world == world && other->dtype == grad->dtype &&
        (other->layout != NULL) == (grad->layout != NULL) &&
        sherd__same_shape(other->ndim, other->shape, grad->ndim, grad->shape))
        return true;
    sherd__raise(world, SHERD_EINVAL,
                 "sherd_tensor_hook: a hook returned %s in the place of the gradient %s",
                 other->world == world ? sherd_tensor_text(other) : "a tensor of another world",
                 sherd_tensor_text(grad));
    return false;
}

/* A hook may call sherd_backward, which may run hooks. */
static bool has_room(sherd_world *world)
{
    if (!sherd__is_deep(world))
        return true;
    sherd__raise(world, SHERD_ELIMIT,
                 "sherd_tensor_hook: %d functions are running, each called by the one before, and "
                 "no more may: does a hook call itself?",
                 (int)SHERD__DEEPEST);
    return false;
}

/* Run one hook; its temporaries are released at once. */
static bool run_hook(sherd__watch *watch, const sherd__grad_hook *hook, sherd_tensor **grad,
                     const sherd_layout *layout)
{
    sherd_world *world = watch->world;
    int floor = sherd__scope_enter(world);
    bool graph = sherd__makes_graph(world);
    bool recording = sherd_set_recording(world, graph), good = true;
    sherd_tensor *before = *grad, *after = hook->run(before, hook->payload);

    sherd__scope_leave(world, floor);
    sherd_set_recording(world, graph);
    sherd__set_low(world, SHERD_DTYPE_NONE);
    if (after && after != before) {
        if (after->world == world && sherd__is_failed(after)) {
            sherd__raise_failed(world, "a hook on a gradient");
            good = false;
        } else if (!is_like(world, before, after)) {
            good = false;
        } else {
            after = sherd__settled_to(after, layout, false);
            good = after->storage != NULL;
        }
        if (good) {
            *grad = sherd_tensor_retain(after);
            sherd_tensor_release(before);
        }
    }
    sherd_set_recording(world, recording);
    sherd_scope_end(world);
    return good && !sherd__alarmed(world);
}

bool sherd__watch_run(sherd__watch *watch, sherd_tensor **grad, const sherd_layout *layout)
{
    bool good = true;
    int64_t first_new = watch->hooked; /* one that a hook adds runs from the next backward on */

    if (!watch->hook)
        return true;
    watch->head.refs++;
    watch->running++;
    for (sherd__grad_hook *hook = watch->hook; hook && good; hook = hook->next)
        if (hook->id && hook->turn < first_new)
            good = has_room(watch->world) && run_hook(watch, hook, grad, layout);
    if (--watch->running == 0)
        sherd__watch_sweep(watch, false);
    sherd__refcounted_release(&watch->head);
    return good;
}
