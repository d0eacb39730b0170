/* SPDX-License-Identifier: Apache-2.0 */
/* The largest of a number of each rank. Costs three small exchanges. */
#include "whole.h"

sherd_status sherd_world_most(int64_t *most, sherd_world *world, int64_t mine)
{
    static const char function[] = "sherd_world_most";
    const sherd__argument need[] = {{"most", most}, {"world", world}, {NULL, NULL}};
    sherd_status status = sherd__require(sherd__world_diag(world), function, need);
    int64_t all[SHERD_MAX_RANKS];

    if (!world)
        return status;
    status = sherd__agree(world, status, 0, function);
    if (status)
        return status;
    if (!sherd__share_whole(world, function, mine, all))
        status = sherd__world_diag(world)->status ? sherd__world_diag(world)->status : SHERD_EPEER;
    status = sherd__agree(world, status, 0, function);
    if (status)
        return status;
    *most = mine;
    for (int r = 0; r < sherd_world_ranks(world) && !sherd__is_dry(world); r++)
        *most = all[r] > *most ? all[r] : *most;
    return SHERD_OK;
}
