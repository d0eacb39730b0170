/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient check finds what is wrong, where it is, and passes what is right, in any layout. */
#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/op.h"
#include "tensors.h"

enum { ROWS = 5, COLUMNS = 3 };

static const int64_t shape[] = {ROWS, COLUMNS};

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static sherd_tensor *input(sherd_world *world, const char *placements, const char *name)
{
    sherd_generator g = sherd_generator_named(name);
    sherd_tensor *t = sherd_random(world, SHERD_F64, shape, 2, sherd_uniform(0.5, 1.5), &g);

    if (strcmp(placements, "plain") == 0)
        return sherd_require_grad(t, true);
    bool pending = strcmp(placements, "P(sum)") == 0;
    const sherd_layout *layout = layout_of(line(world), 2, shape, pending ? "R" : placements, NULL);
    t = sherd_distribute(t, layout, -1);
    if (pending)
        t = sherd__move_planned(t, layout_of(line(world), 2, shape, placements, NULL), NULL, NULL,
                                false);
    return sherd_require_grad(t, true);
}

/* Twice its operand; what backward says of element (3,1) is wrong where `attributes` say so. */
typedef struct wrong_attributes {
    double factor;
} wrong_attributes;

static bool twice(sherd_call *call)
{
    const double *from = call->from[0];
    double *to = call->to[0];

    for (int64_t i = 0; i < call->out[0]->count; i++)
        to[i] = 2 * from[i];
    return true;
}

static void twice_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const wrong_attributes *a = sherd_node_attributes(node);
    sherd_tensor *g = sherd_scale(grad_out[0], 2);
    sherd_box box = sherd_tensor_box(g);
    double *data = sherd__mutable(g);

    for (int64_t i = 0; data && i < g->count; i++)
        if (global_of(&box, shape, i) == 3 * COLUMNS + 1)
            data[i] *= a->factor;
    grad_in[0] = g;
}

static const sherd_op twice_op = {.name = "test_twice",
                                  .operand = {{"a", 0}},
                                  .result = {{"y", 0}},
                                  .field = {SHERD_FIELD(wrong_attributes, factor, DOUBLE)},
                                  .attributes = sizeof(wrong_attributes),
                                  .rule = "...->...",
                                  .forward = twice,
                                  .backward = twice_back};

static sherd_tensor *function(sherd_tensor *const *inputs, int count, void *payload)
{
    sherd_tensor *y = sherd_apply(&twice_op, inputs, 1, payload);

    for (int i = 1; i < count; i++)
        y = sherd_mul(sherd_mul(y, inputs[i]), y);
    return sherd_matmul(sherd_transpose(y, 0, 1), y); /* pending where rows are sharded */
}

static void what_is_right_passes(sherd_world *world)
{
    static const char *const kinds[] = {"plain", "R", "S(0)", "S(1)", "P(sum)"};
    wrong_attributes right = {1};
    const sherd_check_options options = {.payload = &right};

    for (int a = 0; a < LEN(kinds); a++)
        for (int b = 0; b < LEN(kinds); b++) {
            sherd_tensor *x[2] = {input(world, kinds[a], "a"), input(world, kinds[b], "b")};
            if (!CHECK_OK(sherd_check_gradients(function, x, 2, &options)))
                fprintf(stderr, "  %s %s: %s\n", kinds[a], kinds[b], sherd_world_error(world));
            CHECK(sherd_grad(x[0]) == NULL && sherd_grad(x[1]) == NULL);
        }
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

static void the_first_wrong_element_is_named(sherd_world *world)
{
    static const char *const kinds[] = {"plain", "R", "S(0)", "S(1)"};
    wrong_attributes wrong = {1.01};
    const sherd_check_options options = {.payload = &wrong},
                              loose = {.payload = &wrong, .relative = 0.1};

    for (int a = 0; a < LEN(kinds); a++) {
        sherd_tensor *x[2] = {input(world, "S(0)", "b"), input(world, kinds[a], "a")};
        sherd_tensor *swapped[2] = {x[1], x[0]};
        CHECK_EQ(sherd_check_gradients(function, swapped, 2, &options), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "input 0, f64[5") != NULL);
        CHECK(strstr(sherd_world_error(world), "element (3,1): backward says") != NULL);
        CHECK_OK(sherd_check_gradients(function, swapped, 2, &loose));
    }
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

static sherd_tensor *first_only(sherd_tensor *const *inputs, int count, void *payload)
{
    (void)count, (void)payload;
    return sherd_mul(inputs[0], inputs[0]);
}

static void what_cannot_be_checked_is_said(sherd_world *world)
{
    sherd_tensor *x[2] = {input(world, "S(0)", "a"), input(world, "R", "b")};
    sherd_tensor *constant[2] = {x[0], sherd_constant(world, SHERD_F32, shape, 2, 1)};

    CHECK_EQ(sherd_check_gradients(first_only, x, 2, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "does not depend on input 1, f64[5,3]") != NULL);
    CHECK_OK(sherd_check_gradients(first_only, constant, 2, NULL));
    sherd_require_grad(constant[1], true);
    CHECK_EQ(sherd_check_gradients(first_only, constant, 2, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "f64 is checked") != NULL);
}

/* On all ranks but the last one, and on all; what is made of a tensor of one lies on the other. */
typedef struct meshes {
    const sherd_layout *fewer, *all, *to;
    wrong_attributes a;
} meshes;

static sherd_tensor *moved_over(sherd_tensor *const *inputs, int count, void *payload)
{
    const meshes *m = payload;
    sherd_tensor *y = m->to ? sherd_redistribute(inputs[0], m->to, NULL) : inputs[0];

    (void)count;
    y = sherd_apply(&twice_op, &y, 1, &m->a);
    return sherd_mul(y, y);
}

static void ranks_outside_a_mesh_call_as_often(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    int64_t fewer = ranks - 1;
    const sherd_mesh *part = NULL;

    CHECK_OK(sherd_mesh_create(&part, world, 1, &fewer, NULL, NULL));
    for (int i = 0; i < 12; i++) {
        static const char *const kinds[] = {"R", "S(0)"};
        bool right = i < 8;
        meshes m = {.fewer = layout_of(part, 2, shape, kinds[i % 2], NULL),
                    .all = layout_of(line(world), 2, shape, kinds[i / 2 % 2], NULL),
                    .a = {right ? 1 : 1.01}};
        sherd_scope_begin(world);
        bool from_all = i / 4 % 2;
        m.to = from_all ? m.fewer : i % 4 == 3 ? NULL : m.all;
        sherd_tensor *x =
            sherd_require_grad(sherd_constant_on(from_all ? m.all : m.fewer, SHERD_F64, 0.5), true);
        sherd_status status =
            sherd_check_gradients(moved_over, &x, 1, &(sherd_check_options){.payload = &m});
        if (!CHECK_EQ(status, right ? SHERD_OK : SHERD_EINVAL))
            fprintf(stderr, "  case %d: %s\n", i, sherd_world_error(world));
        if (!right)
            CHECK(strstr(sherd_world_error(world), "element (3,1): backward says") != NULL);
        sherd_scope_end(world);
    }
}

/* A tensor without dims has an element on each rank of its mesh, and none elsewhere. */
static void a_number_on_fewer_ranks_is_checked(sherd_world *world)
{
    int64_t fewer = sherd_world_ranks(world) - 1;
    const sherd_mesh *part = NULL;

    CHECK_OK(sherd_mesh_create(&part, world, 1, &fewer, NULL, NULL));
    sherd_tensor *x = sherd_require_grad(
        sherd_constant_on(layout_of(part, 0, shape, "R", NULL), SHERD_F64, 0.5), true);
    CHECK_OK(sherd_check_gradients(first_only, &x, 1, NULL));
}

static const check_test tests[] = {
    {TEST(ranks_outside_a_mesh_call_as_often), {2, 3, 4}},
    {TEST(a_number_on_fewer_ranks_is_checked), {2, 3, 4}},
    {TEST(what_is_right_passes), {1, 2, 3, 4}},
    {TEST(the_first_wrong_element_is_named), {1, 2, 3, 4}},
    {TEST(what_cannot_be_checked_is_said), {1, 2, 3}},
};
CHECK_MAIN(tests)
