/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's memory runs out inside oneDNN: all ranks get the same status and line, and the next
 * call computes what it would have.
 */
#include "tensors.h"
#include "starved.h"

#include "sherd/ops.h"
#include "sherd/ops_stencil.h"

static sherd_tensor *field(const sherd_mesh *mesh, int ndim, const int64_t *shape, const char *how)
{
    return indices_on(layout_of(mesh, ndim, shape, how, NULL), SHERD_F32);
}

static sherd_tensor *product(const sherd_mesh *mesh)
{
    const int64_t a[] = {24, 40}, b[] = {40, 24};

    return sherd_matmul(field(mesh, 2, a, "S(0)"), field(mesh, 2, b, "R"));
}

static sherd_tensor *convolution(const sherd_mesh *mesh)
{
    const int64_t x[] = {8, 16, 6, 7}, w[] = {16, 16, 3, 3};
    const sherd_conv_options same = {.same = true};

    return sherd_conv(field(mesh, 4, x, "S(0)"), field(mesh, 4, w, "R"), NULL, &same);
}

/* The n-th allocation that throws on the last rank, for all n. */
static void starve_each(sherd_world *world, sherd_tensor *(*call)(const sherd_mesh *mesh))
{
    const sherd_mesh *mesh = line_of_ranks(world);
    bool mine = CAN_STARVE && sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    sherd_status status = SHERD_ENOMEM;

    for (long n = 1; status == SHERD_ENOMEM && n < 1000; n++) {
        sherd_scope_begin(world);
        starve(mine ? STARVE_NEW : STARVE_NEVER, n, false);
        sherd_tensor *made = call(mesh);
        starve(STARVE_NEVER, 0, false);
        status = sherd_world_check(world);
        check_same(world, status);
        if (status)
            CHECK(strstr(sherd_world_error(world), ": out of memory for a ") != NULL);
        CHECK(status == SHERD_ENOMEM || !sherd_tensor_failed(made));
        sherd_scope_end(world);
    }
    CHECK_OK(status);
}

static void all_ranks_say_so(sherd_world *world)
{
    sherd_tensor *(*const calls[])(const sherd_mesh *mesh) = {product, convolution};

    for (int i = 0; i < LEN(calls); i++) {
        sherd_scope_begin(world); /* once, so that all is compiled: test_kernels_starved.c */
        CHECK(!sherd_tensor_failed(calls[i](line_of_ranks(world))));
        sherd_scope_end(world);
        starve_each(world, calls[i]);
    }
}

static const check_test tests[] = {
    {TEST(all_ranks_say_so), {1, 2, 3}},
};

CHECK_MAIN(tests)
