/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operator's backward against central differences in f64, on plain operands and on operands
 * under every placement, with default cuts and with uneven ones. The loss weighs each element of
 * the result differently, so that a gradient at a wrong place shows. SHERD_PROOF=1: more layouts.
 */
#include "ops_oracles.h"

static void gradients_equal_differences(sherd_world *world)
{
    all_equal_differences(world, cases, LEN(cases), getenv("SHERD_PROOF") ? 300 : 20);
}

/* ---- gradients that lie otherwise ---------------------------------------------------------- */

/* A strided gradient, in whatever layout it came. */
static void twist_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *g = grad_out[0];

    (void)node;
    if (g->ndim > 1)
        g = sherd_transpose(sherd__contiguous(sherd_transpose(g, 0, -1)), 0, -1);
    grad_in[0] = g;
}

static const sherd_op twist_table = {
    .name = "twist", .takes_pending = true, .backward = twist_back};

/* Equal to y, but in another layout, and so is the gradient that it hands back, which is strided
 * too. */
static sherd_tensor *twist(sherd_tensor *y, int number)
{
    const sherd_layout *to = NULL;
    sherd_placement placements[SHERD_MAX_AXES];
    sherd_tensor *z;

    if (sherd_tensor_failed(y))
        return y;
    for (int a = 0; y->layout && a < y->layout->spec.mesh->axes; a++, number /= y->ndim + 1) {
        int way = number % (y->ndim + 1);
        placements[a] = way < y->ndim ? sherd_shard(way) : sherd_replicate();
    }
    if (y->layout)
        CHECK_OK(
            sherd_layout_create(&to, y->layout->spec.mesh, y->ndim, y->shape, placements, NULL));
    z = y->layout && y->layout != to ? sherd__move_to(y, to, false) : sherd__new_view(y);
    if (!sherd_tensor_failed(z))
        sherd__record_node(y->world, &twist_table, &y, 1, &z, 1, NULL, 0);
    return z;
}

static void gradients_may_lie_anyhow(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    static gradients want_of[CHECK_RANKS];
    double(*want)[MOST_ELEMENTS] = want_of[sherd_world_rank(world)];
    int64_t most = getenv("SHERD_PROOF") ? 60 : 12;

    for (int i = 0; i < LEN(cases); i++) {
        const op_case *c = &cases[i];
        int64_t step, all = combinations(mesh, c, most, &step);
        sherd_scope_begin(world);
        differences(world, c, want);
        for (int64_t number = 0; number < all; number += step) {
            sherd_tensor *in[MOST_IN];
            sherd_scope_begin(world);
            place_all(mesh, c, number, in);
            for (int j = 0; j < c->operands && number == 0; j++)
                in[j] = plain_operand(world, c, j, NULL);
            want_gradients(c, in);
            lose(twist(c->run(in), (int)(number / step)));
            if (!same_gradients(c, in, want))
                say_layouts(c, in);
            sherd_scope_end(world);
        }
        sherd_scope_end(world);
        if (!CHECK_OK(sherd_world_check(world)))
            say_error(world);
    }
}

/* ---- ranks that hold nothing ----------------------------------------------------------------- */

static void a_rank_outside_of_the_mesh_takes_no_part(sherd_world *world)
{
    all_without_rank_1(world, cases, LEN(cases), 40);
}

static const check_test tests[] = {
    {TEST(gradients_equal_differences), {1, 2, 3, 4}},
    {TEST(gradients_may_lie_anyhow), {2, 3, 4}},
    {TEST(a_rank_outside_of_the_mesh_takes_no_part), {3}},
};
CHECK_MAIN(tests)
