/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks with GPUs that believe to be on two machines, two on each: what ranks of one machine move
 * goes from GPU to GPU, what goes to the other machine by way of the CPU, within one plan too. This
 * program is what mpirun starts.
 */
#define CHECK_PURE
#include "mpirun.h"

#include <sherd.h>

#include "tensor/tensor.h"

static sherd_tensor *made_on(const sherd_mesh *mesh, const char *placements)
{
    enum { ROWS = 8, COLS = 6 };
    const int64_t shape[] = {ROWS, COLS};
    static _Thread_local double data[ROWS * COLS];
    const sherd_layout *layout = NULL;

    for (int i = 0; i < ROWS * COLS; i++)
        data[i] = i;
    MUST(!sherd_layout_parse_placements(&layout, mesh, 2, shape, placements, NULL));
    sherd_tensor *t = sherd_mark_equal(
        sherd_from_data(sherd__space_world(mesh->space), SHERD_F64, shape, 2, data));
    return sherd_scale(sherd_distribute(t, layout, -1), 1); /* on the GPU */
}

/* The whole tensor is `by` times the indices. */
static void is_right(sherd_tensor *t, double by)
{
    sherd_tensor *all = sherd_full(t);
    const double *data = sherd_tensor_read(all);

    MUST(data);
    for (int64_t i = 0; i < sherd_tensor_count(all); i++)
        MUST(data[i] == by * (double)i);
}

static int play(const char *mode)
{
    sherd_world *world = open_world();
    const sherd_mesh *mesh = NULL;

    (void)mode;
    MUST(!sherd_mesh_parse(&mesh, world, "node=2,gpu=2"));
    sherd_scope_begin(world);
    sherd_tensor *t = made_on(mesh, "RS(0)"), *within = sherd_redistribute_to(t, "RS(1)", NULL),
                 *between = sherd_redistribute_to(made_on(mesh, "S(0)R"), "S(1)R", NULL),
                 *both = sherd_redistribute_to(made_on(mesh, "S(0)S(1)"), "S(1)S(0)", NULL);
    MUST(sherd__is_only_there(t) && sherd__is_only_there(within) && !sherd__is_there(between));
    is_right(within, 1);
    is_right(between, 1);
    is_right(both, 1);
    sherd_tensor *sum =
        sherd_matmul(made_on(mesh, "S(0)S(1)"), sherd_transpose(made_on(mesh, "RS(1)"), 0, 1));
    MUST(sherd_tensor_read(sherd_full(sum)));
    MUST(!sherd_world_check(world));
    sherd_scope_end(world);
    MUST(!sherd_world_close(world));
    return 0;
}

static void ranks_of_a_machine_move_there(void)
{
    char line[2048];

    snprintf(line, sizeof line, "env SHERD_HOST=north %s play : -n 2 env SHERD_HOST=south %s play",
             self, self);
    const program_end *ends = mpi_run_each(2, line);
    FOR_EACH_MPI(kind)
    {
        CHECK_EQ(ends[kind_i].status, 0);
        CHECK_TEXT(ends[kind_i].err, "");
    }
}

static const check_test tests[] = {
    {TEST(ranks_of_a_machine_move_there)},
};

MPIRUN_MAIN(tests, play)
