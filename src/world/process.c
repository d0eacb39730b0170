/* SPDX-License-Identifier: Apache-2.0 */
#include "inside.h"
#include "launch.h"
#include <stdlib.h>
sherd_status sherd__spawn_processes(int *exit_status, const sherd__launch_plan *plan,
                                    sherd__diag *diag)
{
    (void)exit_status;
    (void)plan;
    return sherd__fail(diag, SHERD_ENOTSUP, "not yet");
}
bool sherd__is_launched(void)
{
    return false;
}
sherd_status sherd__spawn_here(int *exit_status, const sherd__launch_plan *plan, sherd__diag *diag)
{
    (void)exit_status;
    (void)plan;
    return sherd__fail(diag, SHERD_ENOTSUP, "not yet");
}
sherd_status sherd_world_open(sherd_world **out, const sherd_world_options *options)
{
    return sherd_world_alone(out, options);
}
