/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest sherd program, and the example in README.md: a matrix product over four ranks. */
#include <sherd.h>
#include <stdio.h>

/* Every rank runs this. The columns of a and the rows of b are sharded over the four ranks. */
static int product(sherd_world *world, void *unused)
{
    const sherd_layout *columns, *rows, *whole;
    (void)unused;
    if (sherd_layout_parse(&columns, world, "[6,8(x)] on (x=4)", NULL) ||
        sherd_layout_parse(&rows, world, "[8(x),5] on (x=4)", NULL) ||
        sherd_layout_parse(&whole, world, "[6,5] on (x=4)", NULL))
        return 1;
    sherd_tensor *a = sherd_constant_on(columns, SHERD_F32, 1.0);
    sherd_tensor *b = sherd_constant_on(rows, SHERD_F32, 0.5);
    sherd_tensor *c = sherd_matmul(a, b);                 /* nothing moves: a sum is pending */
    sherd_tensor *d = sherd_redistribute(c, whole, NULL); /* one all-reduce */
    if (sherd_world_check(world)) {                       /* same status and text on all ranks */
        fprintf(stderr, "%s\n", sherd_world_error(world));
        return 1;
    }
    if (sherd_world_rank(world) == 0)
        printf("%s\n%s = %g\n", sherd_tensor_text(c), sherd_tensor_text(d),
               ((const float *)sherd_tensor_read(d))[0]);
    return 0;
}

int main(void)
{
    int exit_status;
    return sherd_spawn(&exit_status, &(sherd_world_options){.ranks = 4}, product, NULL)
               ? 1
               : exit_status;
}
