/* SPDX-License-Identifier: Apache-2.0 */
/* State of parameters that are frozen for some steps, in files. */
#include "models.h"
#include "scratch.h"
#include "sherd/files.h"

/* A layer on ranks 0 and 1, of which one parameter is frozen while the optimizer is made. */
static sherd_module *frozen_but_one(sherd_world *world, const char *frozen, sherd_dtype dtype,
                                    sherd_optimizer **o)
{
    const sherd_layer_options options = {.bias = true, .dtype = dtype};
    const sherd_mesh *mesh = NULL;
    sherd_module *m = NULL;

    CHECK_OK(sherd_mesh_parse(&mesh, world, sherd_world_ranks(world) > 1 ? "tp=2" : "tp=1"));
    CHECK_OK(sherd_linear_create(&m, world, 4, 2, &options));
    fill_layer(m, dtype, 1, 0);
    sherd_require_grad(sherd_module_parameter(m, frozen), false);
    CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
    CHECK_OK(sherd_adamw_create(o, m, NULL));
    return m;
}

static sherd_module *half_frozen(sherd_world *world, sherd_dtype dtype, sherd_optimizer **o)
{
    return frozen_but_one(world, "bias", dtype, o);
}

static void step_inside(sherd_module *m, sherd_optimizer *o, sherd_dtype dtype)
{
    sherd_world *world = sherd_module_world(m);

    if (sherd_world_rank(world) < 2) {
        sherd_backward(
            sherd_sum(sherd_module_call(m, wave(world, dtype, 2, SHAPE(3, 4), 1, 1, 0))));
        sherd_optimizer_step(o, 0.1, 1);
        sherd_optimizer_clear(o);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A bias that is thawed late: before its first step the file has no state of it, and then state
 * that ranks outside the mesh did not make. Both runs go on from the file alike. */
static void what_is_thawed_late_is_written_and_read(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16};
    char room[256];
    const char *path = scratch(room, "thawed");

    for (int k = 0; k < LEN(dtypes); k++) {
        sherd_optimizer *o = NULL, *other_o = NULL;
        sherd_module *m = half_frozen(world, dtypes[k], &o);
        sherd_tensor *bias = sherd_module_parameter(m, "bias");
        double a[2], b[2];
        step_inside(m, o, dtypes[k]);
        CHECK_OK(sherd_module_write(m, o, path));
        sherd_require_grad(bias, true);
        sherd_module *other = half_frozen(world, dtypes[k], &other_o);
        sherd_tensor *its = sherd_require_grad(sherd_module_parameter(other, "bias"), true);
        step_inside(other, other_o, dtypes[k]); /* what is read takes the place of this */
        CHECK_OK(sherd_module_read(other, other_o, path, NULL));
        for (int i = 0; i < 2; i++) {
            step_inside(m, o, dtypes[k]);
            step_inside(other, other_o, dtypes[k]);
            if (sherd_world_rank(world) < 2) {
                CHECK_EQ(whole(bias, a), whole(its, b));
                CHECK(a[0] == b[0] && a[1] == b[1]);
            }
            CHECK_OK(sherd_module_write(m, o, path));
            CHECK_OK(sherd_module_read(other, other_o, path, NULL));
        }
        sherd_optimizer_destroy(o);
        sherd_optimizer_destroy(other_o);
        sherd_module_destroy(m);
        sherd_module_destroy(other);
    }
    CHECK_OK(sherd_world_check(world));
    remove_file(world, path);
}

/* The state of a parameter that was frozen when this optimizer was made, but not when the file was
 * written, begins when it is read, whatever of it is read. */
static void state_is_read_of_what_is_frozen(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16};
    static const char *const only[] = {"weight"};
    const sherd_read_options some = {.only = only, .only_count = 1, .more = true};
    char room[256];
    const char *path = scratch(room, "refrozen");

    for (int k = 0; k < LEN(dtypes); k++) {
        sherd_optimizer *o = NULL, *other_o = NULL;
        sherd_module *m = half_frozen(world, dtypes[k], &o);
        sherd_tensor *bias = sherd_require_grad(sherd_module_parameter(m, "bias"), true);
        double a[2], b[2];
        step_inside(m, o, dtypes[k]);
        step_inside(m, o, dtypes[k]);
        CHECK_OK(sherd_module_write(m, o, path));
        sherd_module *other = half_frozen(world, dtypes[k], &other_o);
        sherd_tensor *its = sherd_module_parameter(other, "bias");
        int before = sherd_optimizer_state(other_o, NULL, 0);
        CHECK_OK(sherd_module_read(other, other_o, path, &some));
        CHECK_EQ(sherd_optimizer_state(other_o, NULL, 0), before);
        CHECK_OK(sherd_module_read(other, other_o, path, NULL));
        CHECK_EQ(sherd_optimizer_state(other_o, NULL, 0), 2 * before);
        CHECK(!sherd_requires_grad(its));
        sherd_require_grad(its, true);
        step_inside(m, o, dtypes[k]);
        step_inside(other, other_o, dtypes[k]);
        if (sherd_world_rank(world) < 2) {
            CHECK_EQ(whole(bias, a), whole(its, b));
            CHECK(a[0] == b[0] && a[1] == b[1]);
        }
        sherd_optimizer_destroy(o);
        sherd_optimizer_destroy(other_o);
        sherd_module_destroy(m);
        sherd_module_destroy(other);
    }
    CHECK_OK(sherd_world_check(world));
    remove_file(world, path);
}

/* Whichever parameter was frozen: its state begins anew, and no list of what is missing has it. */
static void state_that_begins_anew_is_not_missing(sherd_world *world)
{
    static const char *const names[] = {"weight", "bias"};
    char room[256];
    const char *path = scratch(room, "anew");

    for (int k = 0; k < LEN(names); k++) {
        sherd_optimizer *o = NULL, *other_o = NULL;
        sherd_module *m = frozen_but_one(world, names[k], SHERD_F32, &o);
        sherd_module *other = frozen_but_one(world, names[k], SHERD_F32, &other_o);
        CHECK_OK(sherd_module_write(m, o, path));
        sherd_require_grad(sherd_module_parameter(other, names[k]), true);
        step_inside(other, other_o, SHERD_F32);
        CHECK_OK(sherd_module_read(other, other_o, path, NULL));
        step_inside(other, other_o, SHERD_F32);
        CHECK_OK(
            sherd_module_add_buffer(other, "seen", sherd_constant(world, SHERD_F32, NULL, 0, 4)));
        CHECK_EQ(sherd_module_read(other, other_o, path, NULL), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "\"seen\", f32[]: the file has none") != NULL);
        CHECK(!strstr(sherd_world_error(world), ", nor"));
        sherd_optimizer_destroy(o);
        sherd_optimizer_destroy(other_o);
        sherd_module_destroy(m);
        sherd_module_destroy(other);
    }
    CHECK_OK(sherd_world_check(world));
    remove_file(world, path);
}

static const check_test tests[] = {
    {TEST(what_is_thawed_late_is_written_and_read), {1, 2, 3, 4}},
    {TEST(state_is_read_of_what_is_frozen), {1, 2, 3, 4}},
    {TEST(state_that_begins_anew_is_not_missing), {1, 2, 3}},
};
CHECK_MAIN(tests)
