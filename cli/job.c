/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command started by `sherd run` or mpirun is a rank of that job, and starts no ranks. All ranks
 * do the same; rank 0 alone prints. Costs opening the world once.
 */
#include "check.h"

#include <stdio.h>

#include "launch/carried.h"

bool cli_job_find(cli_job *out, const char *name)
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world;

    *out = (cli_job){.joined = sherd__is_launched() || sherd__is_carried()};
    if (!out->joined)
        return true;
    if (sherd_world_open(&world, &(sherd_world_options){.error = text})) {
        cli_refuse(name, "%s", text);
        return false;
    }
    int rank = sherd_world_rank(world);
    out->ranks = sherd_world_ranks(world);
    if (sherd_world_close(world) != SHERD_OK) {
        cli_refuse(name, "the other ranks of this job are gone");
        return false;
    }
    return rank == 0 || (freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr));
}
