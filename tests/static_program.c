/* SPDX-License-Identifier: Apache-2.0 */
/* A static executable, for test_world_static.c: it opens a world, and computes a larger product. */
#include <sherd.h>
#include <stdio.h>

int main(void)
{
    const int64_t rows[] = {36, 48}, square[] = {48, 48};
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world;

    sherd_status status = sherd_world_open(&world, &(sherd_world_options){.error = text});
    if (status) {
        printf("%s: %s\n", sherd_status_name(status), text);
        return 3;
    }
    sherd_tensor *y = sherd_linear(sherd_constant(world, SHERD_F32, rows, 2, 1),
                                   sherd_constant(world, SHERD_F32, square, 2, 1), NULL);
    printf("sum %g\n", sherd_item(sherd_sum(y)));
    return sherd_world_close(world) ? 1 : 0;
}
