/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of products are added to what has come before, and those of functions written over it:
 * by the operator itself where that lies alike and is the tape's alone, and never where somebody
 * else has it.
 */
#include "fields.h"
#include "apply/operator.h"

#include "sherd/ops_elements.h"

enum { USES = 5 };

typedef enum kind { LINEAR, MATMUL, FROM_RIGHT, ADD, MULTIPLY, KINDS } kind;

/* A tensor that several operators read. */
typedef struct scene {
    sherd_world *world;
    uint64_t dice;
    sherd_dtype dtype;
    int64_t shape[2]; /* of it */
    int uses;
    kind kind[USES];
    int64_t width[USES];
    sherd_tensor *other[USES], *weight[USES]; /* the second operand; of the loss */
} scene;

static sherd_tensor *draw_numbers(scene *s, int64_t rows, int64_t cols)
{
    return sherd_cast(numbers(s->world, &s->dice, 2, (int64_t[]){rows, cols}), s->dtype);
}

static void draw_scene(scene *s)
{
    s->dtype = roll(&s->dice, 2) ? SHERD_F32 : SHERD_F64;
    for (int d = 0; d < 2; d++)
        s->shape[d] = roll(&s->dice, 30) ? between(&s->dice, 1, roll(&s->dice, 8) ? 9 : 50) : 0;
    s->uses = (int)between(&s->dice, 2, USES);
    for (int i = 0; i < s->uses; i++) {
        int64_t n = s->width[i] = between(&s->dice, roll(&s->dice, 9) ? 1 : 0, 7);
        int64_t rows = s->shape[0], cols = s->shape[1];
        s->kind[i] = (kind)roll(&s->dice, 3) ? (kind)roll(&s->dice, KINDS) : LINEAR;
        switch (s->kind[i]) {
        case LINEAR:
            s->other[i] = draw_numbers(s, n, cols);
            s->weight[i] = draw_numbers(s, rows, n);
            break;
        case MATMUL:
            s->other[i] = draw_numbers(s, cols, n);
            s->weight[i] = draw_numbers(s, rows, n);
            break;
        case FROM_RIGHT:
            s->other[i] = draw_numbers(s, n, rows);
            s->weight[i] = draw_numbers(s, n, cols);
            break;
        default:
            s->other[i] = draw_numbers(s, rows, cols);
            s->weight[i] = draw_numbers(s, rows, cols);
        }
    }
}

static const sherd_layout *on_all(const sherd_mesh *mesh, const int64_t *shape)
{
    sherd_placement all[SHERD_MAX_AXES];
    const sherd_layout *layout = NULL;

    for (int a = 0; a < SHERD_MAX_AXES; a++)
        all[a] = sherd_replicate();
    CHECK_OK(sherd_layout_create(&layout, mesh, 2, shape, all, NULL));
    return layout;
}

/* The part of the loss that use i makes. */
static sherd_tensor *use(const scene *s, int i, sherd_tensor *y, sherd_tensor *other)
{
    sherd_tensor *out = s->kind[i] == LINEAR       ? sherd_linear(y, other, NULL)
                        : s->kind[i] == MATMUL     ? sherd_matmul(y, other)
                        : s->kind[i] == FROM_RIGHT ? sherd_matmul(other, y)
                        : s->kind[i] == ADD        ? sherd_add(y, other)
                                                   : sherd_mul(y, other);
    sherd_tensor *weight = s->weight[i];

    if (y->layout)
        weight = sherd_distribute(weight, on_all(y->layout->spec.mesh, weight->shape), -1);
    return sherd_sum(sherd_mul(out, weight));
}

/* Each use by itself, on plain tensors: the leaf adds them up. */
static void run_apart(const scene *s, sherd_tensor *x, sherd_tensor **other)
{
    for (int i = 0; i < s->uses; i++) {
        other[i] = sherd_require_grad(sherd_clone(s->other[i]), true);
        sherd_backward(use(s, i, sherd_scale(x, 3), other[i]));
    }
}

static void run_together(scene *s, const sherd_mesh *mesh, sherd_tensor *x, sherd_tensor **other,
                         int times)
{
    sherd_tensor *y = sherd_scale(x, 3), *loss = NULL;

    for (int i = 0; i < s->uses; i++) {
        const sherd_layout *l = draw_layout(&s->dice, mesh, 2, s->other[i]->shape);
        other[i] = sherd_require_grad(sherd_distribute(s->other[i], l, -1), true);
        sherd_tensor *one = use(s, i, y, other[i]);
        loss = loss ? sherd_add(loss, one) : one;
    }
    for (int t = 0; t < times; t++)
        sherd_backward_with(&loss, NULL, 1, &(sherd_backward_options){.retain = t + 1 < times});
}

static void gradients_add_up(sherd_world *world)
{
    for (uint64_t seed = 0; seed < 150; seed++) {
        scene s = {.world = world, .dice = seed};
        sherd_tensor *apart_[USES], *together[USES];
        int times = 1 + (seed % 4 == 0);
        sherd_scope_begin(world);
        draw_scene(&s);
        const sherd_mesh *mesh = draw_mesh(world, (int)seed);
        sherd_tensor *values = draw_numbers(&s, s.shape[0], s.shape[1]);
        sherd_tensor *x = sherd_require_grad(sherd_clone(values), true);
        sherd_tensor *z = sherd_require_grad(
            sherd_distribute(values, draw_layout(&s.dice, mesh, 2, s.shape), -1), true);
        run_apart(&s, x, apart_);
        run_together(&s, mesh, z, together, times);
        double limit = s.dtype == SHERD_F32 ? 1e-5 : 1e-12, most;
        most = apart(sherd_grad(z), sherd_scale(sherd_grad(x), times));
        for (int i = 0; i < s.uses; i++) {
            double one = apart(sherd_grad(together[i]), sherd_scale(sherd_grad(apart_[i]), times));
            most = one > most ? one : most;
        }
        if (!(most <= limit))
            printf("seed %llu: apart by %g\n", (unsigned long long)seed, most);
        CHECK(most <= limit);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* ---- the door ------------------------------------------------------------------------------- */

/* x W^T, of small whole numbers, where x lies like this; then the same onto it. */
static void try_onto(sherd_world *world, const sherd_mesh *mesh, sherd_placement x_lies,
                     sherd_placement sum_lies, sherd_dtype dtype, sherd_dtype sum_dtype, bool fits)
{
    sherd_tensor *in[2], *sum, *result = NULL, *product;
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_layout_create(&layout, mesh, 2, (int64_t[]){6, 5}, &x_lies, NULL));
    in[0] = sherd_distribute(sherd_constant(world, dtype, (int64_t[]){6, 5}, 2, 2), layout, -1);
    in[1] = sherd_distribute(sherd_constant(world, dtype, (int64_t[]){4, 5}, 2, 1),
                             on_all(mesh, (int64_t[]){4, 5}), -1);
    product = sherd_linear(in[0], in[1], NULL); /* 10 each */
    CHECK_OK(sherd_layout_create(&layout, mesh, 2, (int64_t[]){6, 4}, &sum_lies, NULL));
    sum = sum_lies.kind == SHERD_PARTIAL
              ? sherd_linear(in[0], in[1], NULL)
              : sherd_distribute(sherd_constant(world, sum_dtype, (int64_t[]){6, 4}, 2, 10), layout,
                                 -1);
    CHECK(sherd__apply_into(&result, &sherd__linear_op, in, 2, NULL,
                            (sherd__into){sum, SHERD__ADDED_TO}));
    CHECK((result == sum) == fits);
    CHECK(result->layout == product->layout && result->dtype == product->dtype);
    sherd_tensor *plain = sherd_constant(world, SHERD_F64, (int64_t[]){6, 4}, 2, fits ? 20 : 10);
    CHECK(largest_difference(result, plain) == 0);
    plain = sherd_constant(world, SHERD_F64, (int64_t[]){6, 4}, 2, 10);
    CHECK(fits || largest_difference(sum, plain) == 0);
}

static void a_product_adds_to_what_lies_like_it(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_placement rows = sherd_shard(0), inner = sherd_shard(1), all = sherd_replicate();

    try_onto(world, mesh, rows, rows, SHERD_F32, SHERD_F32, true);
    try_onto(world, mesh, rows, rows, SHERD_F64, SHERD_F64, true);
    try_onto(world, mesh, all, all, SHERD_F32, SHERD_F32, true);
    try_onto(world, mesh, inner, sherd_partial(SHERD_SUM), SHERD_F32, SHERD_F32, true);
    try_onto(world, mesh, rows, all, SHERD_F32, SHERD_F32, false);
    try_onto(world, mesh, inner, all, SHERD_F32, SHERD_F32, false);
    try_onto(world, mesh, rows, rows, SHERD_F32, SHERD_F64, false);
    try_onto(world, mesh, rows, rows, SHERD_BF16, SHERD_BF16, false);
    CHECK_OK(sherd_world_check(world));
}

/* A function of numbers that lie like this, over them if they lie like its result. */
static void try_over(sherd_world *world, const sherd_mesh *mesh, sherd_placement lies,
                     sherd_placement over_lies, sherd_dtype dtype, sherd_dtype over_dtype,
                     bool fits)
{
    const sherd_op *op = &sherd__unary_ops[SHERD__SQUARE];
    const int64_t shape[] = {6, 5};
    const sherd_layout *layout = NULL;
    sherd_tensor *in, *over, *result = NULL;

    CHECK_OK(sherd_layout_create(&layout, mesh, 2, shape, &lies, NULL));
    in = sherd_distribute(sherd_constant(world, dtype, shape, 2, 3), layout, -1);
    CHECK_OK(sherd_layout_create(&layout, mesh, 2, shape, &over_lies, NULL));
    over = fits ? in : sherd_distribute(sherd_constant(world, over_dtype, shape, 2, 3), layout, -1);
    CHECK(sherd__apply_into(&result, op, &in, 1, NULL, (sherd__into){over, SHERD__WRITTEN_OVER}));
    CHECK((result == over) == fits);
    CHECK(largest_difference(result, sherd_constant(world, SHERD_F64, shape, 2, 9)) == 0);
    if (!fits)
        CHECK(largest_difference(over, sherd_constant(world, SHERD_F64, shape, 2, 3)) == 0);
}

static void a_function_is_written_over_what_lies_like_it(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_placement rows = sherd_shard(0), all = sherd_replicate();

    try_over(world, mesh, rows, rows, SHERD_F32, SHERD_F32, true);
    try_over(world, mesh, all, all, SHERD_BF16, SHERD_BF16, true);
    try_over(world, mesh, rows, all, SHERD_F32, SHERD_F32, false);
    try_over(world, mesh, rows, rows, SHERD_F32, SHERD_F64, false);
    CHECK_OK(sherd_world_check(world));
}

/* A product reads y = x^2: the gradient of x could take the place of that of y, if nobody kept
 * that. */
static void what_is_kept_is_not_written_over(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *values = sherd_constant(world, SHERD_F32, (int64_t[]){6, 5}, 2, 2);
    sherd_tensor *weight = sherd_constant(world, SHERD_F32, (int64_t[]){4, 5}, 2, 1);

    for (int keeps = 0; keeps < 2; keeps++) {
        sherd_tensor *x =
            sherd_require_grad(sherd_distribute(values, on_all(mesh, (int64_t[]){6, 5}), -1), true);
        sherd_tensor *y = sherd_square(x);
        if (keeps)
            sherd_retain_grad(y);
        sherd_backward(sherd_sum(sherd_linear(y, weight, NULL)));
        CHECK(largest_difference(sherd_grad(x),
                                 sherd_constant(world, SHERD_F64, (int64_t[]){6, 5}, 2, 16)) == 0);
        if (keeps)
            CHECK(largest_difference(sherd_grad(y), sherd_constant(world, SHERD_F64,
                                                                   (int64_t[]){6, 5}, 2, 4)) == 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(gradients_add_up), {1, 2, 3, 4}},
    {TEST(a_function_is_written_over_what_lies_like_it), {1, 2, 3}},
    {TEST(what_is_kept_is_not_written_over), {1, 2, 3}},
    {TEST(a_product_adds_to_what_lies_like_it), {1, 2, 3}},
};
CHECK_MAIN(tests)
