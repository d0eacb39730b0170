/* SPDX-License-Identifier: Apache-2.0 */
/* The public headers as C99: this file is compiled with -std=c99 -pedantic-errors and runs a
 * little. */
#include "sherd.h"

#include <stdio.h>
#include <string.h>

int main(void)
{
    static const int64_t shape[] = {5, 3};
    sherd_placement placements[2];
    sherd_world *world = NULL;
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    int failures = 0;

    placements[0] = sherd_shard(0);
    placements[1] = sherd_partial(SHERD_SUM);
    if (sherd_world_paper(&world, 4) != SHERD_OK ||
        sherd_mesh_parse(&mesh, world, "x=2,y=2") != SHERD_OK ||
        sherd_layout_create(&layout, mesh, 2, shape, placements, NULL) != SHERD_OK)
        failures++;
    else if (strcmp(sherd_layout_text(layout), "[5(x),3] P(sum:y) on (x=2,y=2)") != 0)
        failures++;
    if (sherd_world_close(world) != SHERD_OK)
        failures++;
    printf("%d passed, %d failed\n", failures ? 0 : 1, failures);
    return failures;
}
