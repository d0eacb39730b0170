/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machines that keep GPUs apart: processes of one machine that cannot open each other's memory, as
 * in some containers, and GPUs that do not reach each other. Ranks find that out when the world is
 * opened, and move by way of the CPU; all else stays on their GPUs. Emulated; elsewhere skipped.
 */
#include "tensors.h"

#include "sherd/halo.h"
#include "sherd/ops.h"
#include "sherd/pipeline.h"

/* Moves within a mesh and to another one, a halo, a channel: right, and made on the CPU. */
static void moves_go_by_the_cpu(sherd_world *world)
{
    const sherd_mesh *line = line_of_ranks(world), *from = mesh_of(world, "x=1"),
                     *to = mesh_of(world, "x=1@1");
    const int64_t shape[] = {7, 5};
    const sherd_layout *rows = layout_of(line, 2, shape, "S(0)", NULL),
                       *columns = layout_of(line, 2, shape, "S(1)", NULL);
    const sherd_halo_options o = {.before[0] = {1, SHERD_BORDER_PERIODIC}};
    sherd_channel *c = NULL;
    int rank = sherd_world_rank(world);

    CHECK_OK(sherd_channel_create(&c, from, to, NULL));
    sherd_scope_begin(world);
    sherd_tensor *t = sherd_scale(indices_on(rows, SHERD_F64), 1);
    CHECK(t->count == 0 || sherd__is_only_there(t));
    sherd_tensor *y = sherd_redistribute(t, columns, NULL);
    CHECK(!sherd__is_there(y));
    CHECK_EQ(count_wrong(y, 1), 0);
    CHECK(!sherd__is_there(sherd_halo(t, &o)));
    if (rank < 2) {
        t = sherd_scale(indices_on(layout_of(from, 2, shape, "R", NULL), SHERD_F64), 1);
        if (rank == 0)
            sherd_channel_send(c, &t, 1);
        else
            sherd_channel_receive(c, &y, 1);
        CHECK_EQ(rank == 0 ? 0 : count_wrong(y, 1), 0);
    }
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    sherd_channel_destroy(c);
}

static const check_test tests[] = {
    {"moves_go_by_the_cpu", moves_go_by_the_cpu, {2, 3}},
};

int main(void)
{
    const char *library = getenv("SHERD_CUDA_LIBRARY");

    if (!library || !*library)
        return 0; /* what a real machine keeps apart cannot be chosen */
    /* Processes first: threads use CUDA in this one. */
    setenv("SHERD_TEST_AS", "processes", 1);
    setenv("SHERD_EMULATED_CUDA_ALONE", "1", 1);
    int wrong = check_main(tests, LEN(tests), NULL);
    unsetenv("SHERD_EMULATED_CUDA_ALONE");
    unsetenv("SHERD_TEST_AS");
    setenv("SHERD_EMULATED_CUDA_DEVICES", "2", 1);
    setenv("SHERD_EMULATED_CUDA_APART", "1", 1);
    return wrong | check_main(tests, LEN(tests), NULL);
}
