/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest of a number of each rank. It goes through a mesh of all ranks, which is made by the
 * first call and found by the others. Costs three small exchanges.
 */
#include "world.h"

sherd_status sherd_world_most(int64_t *most, sherd_world *world, int64_t mine)
{
    static const char function[] = "sherd_world_most";
    const sherd__argument need[] = {{"most", most}, {"world", world}, {NULL, NULL}};
    sherd_status status = sherd__require(sherd__world_diag(world), function, need);
    int64_t ranks = sherd_world_ranks(world), all[SHERD_MAX_RANKS];
    const sherd_mesh *mesh = NULL;

    if (!world)
        return status;
    status = sherd__agree(world, status, 0, function);
    if (!status && ranks > SHERD_MAX_RANKS)
        status = sherd__fail(sherd__world_diag(world), SHERD_ENOTSUP,
                             "%s: the ranks of a paper world have no numbers", function);
    if (!status)
        status = sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"ranks"}, NULL);
    if (status)
        return status;
    if (!sherd__share(world, mesh, function, &mine, 1, all))
        status = sherd__world_diag(world)->status ? sherd__world_diag(world)->status : SHERD_EPEER;
    status = sherd__agree(world, status, 0, function);
    if (status)
        return status;
    *most = mine;
    for (int64_t r = 0; r < ranks; r++)
        *most = all[r] > *most ? all[r] : *most;
    return SHERD_OK;
}
