/* SPDX-License-Identifier: Apache-2.0 */
/* The check: where the alarm is read and lowered, and where a failure that stayed local is
 * reported. */
#include "devices.h"

#include <string.h>

/* Give the text of what closed the world again. */
static sherd_status say_closed(sherd_world *world)
{
    world->diag.status = world->closed.status;
    memcpy(world->diag.text, world->closed.text, sizeof world->diag.text);
    return world->closed.status;
}

/* On paper there are no other ranks: the alarm is this world's own word. */
static sherd_status check_paper(sherd_world *world)
{
    sherd_status status = sherd__status_in(sherd__look(world->alarm));

    if (status)
        memcpy(world->diag.text, world->closed.text, sizeof world->diag.text);
    atomic_store(world->alarm, 0);
    world->local.status = SHERD_OK;
    return status;
}

sherd_status sherd__check(sherd_world *world, sherd__meeting kind, const char *name)
{
    if (sherd__is_stranger(world))
        return SHERD_EINVAL;
    sherd__raise_local(world);
    if (!world->transport->meet)
        return check_paper(world);
    if (world->closed.status)
        return say_closed(world);
    if (world->device && (kind == SHERD__CLOSE || sherd__alarmed(world)))
        sherd__device_wait(world->device); /* a failed call may still read from others */
    if (world->device)
        sherd__device_sound(world);
    if (!sherd__claims_make(world))
        sherd__raise(world, SHERD_ENOMEM, "%s: out of memory for SHERD_VERIFY", name);
    int64_t start = sherd__trace_start(world);
    sherd_status status = world->transport->meet(world, (int)kind, SHERD_OK, 0, name);
    if (world->devices.sent && kind == SHERD__CHECK)
        sherd__device_sent(world);
    if (kind == SHERD__CHECK && world->watcher.after_check)
        world->watcher.after_check(world, status == SHERD_OK);
    if (start)
        sherd__trace_add(world, &(sherd__event){"call", name, start, {{NULL, NULL, 0}}});
    sherd__trace_flush(world);
    /* Idle memory of this rank may be what another lacks. */
    if (kind == SHERD__CHECK && !world->dry)
        sherd__store_scarce(world, status == SHERD_ENOMEM);
    return sherd__post_told(world, kind, status);
}

sherd_status sherd_world_check(sherd_world *world)
{
    return world ? sherd__check(world, SHERD__CHECK, "sherd_world_check") : SHERD_EINVAL;
}

sherd_status sherd__agree(sherd_world *world, sherd_status mine, uint64_t arguments,
                          const char *name)
{
    if (!world->transport->meet)
        return mine;
    if (sherd__is_stranger(world))
        return SHERD_EINVAL;
    if (world->closed.status)
        return say_closed(world);
    return sherd__post_told(world, SHERD__AGREE,
                            world->transport->meet(world, SHERD__AGREE, mine, arguments, name));
}

const char *sherd_world_error(const sherd_world *world)
{
    return world ? world->diag.text : "";
}
