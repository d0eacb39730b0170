/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that a program calls after its module was distributed, where they have nothing to do. */
#include "models.h"

#include "sherd/optimizer.h"

/* A program on more ranks than the mesh has is the same on all of them. */
static void ranks_outside_of_the_mesh_have_nothing_to_do(sherd_world *world)
{
    const int64_t n = sherd_world_ranks(world) - 1;
    const sherd_mesh *mesh = NULL;
    sherd_optimizer *o = NULL;
    sherd_module *m = NULL;
    sherd_tensor *x;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &n, (const char *const[]){"x"}, NULL));
    CHECK_OK(sherd_linear_create(&m, world, 4, 3, NULL));
    CHECK_OK(sherd_parallelize(m, mesh, "x", NULL, 0));
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    CHECK_OK(sherd_optimizer_shard(o, "x"));
    x = sherd_constant(world, SHERD_F32, SHAPE(n, 4), 2, 1);
    if (sherd_mesh_coordinate(mesh, sherd_world_rank(world), (int64_t[1]){0}))
        x = sherd_distribute_as(x, mesh, "S(0)", -1);
    sherd_backward(sherd_sum(sherd_module_call(m, x)));
    sherd_optimizer_step(o, 0.1, 1);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* Sharded ones stay as they are; sherd_module_load is for them. */
static void distributed_tensors_are_not_equalized(sherd_world *world)
{
    const int64_t n = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;
    sherd_module *m = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &n, (const char *const[]){"x"}, NULL));
    CHECK_OK(sherd_linear_create(&m, world, 4, 3, NULL));
    CHECK_OK(sherd_fully_shard(m, mesh, "x", NULL));
    const sherd_tensor *w = sherd_module_parameter(m, "weight");
    double before = sherd_item(sherd_sum(sherd_module_parameter(m, "weight")));
    CHECK_OK(sherd_module_equalize(m, mesh, NULL, n - 1));
    CHECK(sherd_module_parameter(m, "weight") == w);
    CHECK(sherd_item(sherd_sum(sherd_module_parameter(m, "weight"))) == before);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(ranks_outside_of_the_mesh_have_nothing_to_do), {2, 3, 4}},
    {TEST(distributed_tensors_are_not_equalized), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
