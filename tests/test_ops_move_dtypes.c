/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redistribute in another dtype: the tensor is rounded before it moves, its gradient before it
 * moves back, and the leaf's gradient has the leaf's dtype. Every number is compared exactly with
 * the roundings done by hand.
 */
#include "check.h"
#include "boxes.h"

#include "autograd/tape.h"
#include "kernels/cast.h"
#include "sherd/comm.h"
#include "sherd/ops.h"

static const sherd_dtype choices[] = {SHERD_DTYPE_NONE, SHERD_BF16, SHERD_F32};

static const sherd_mesh *line_of_ranks(sherd_world *world)
{
    int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    return mesh;
}

static const sherd_layout *row_of(const sherd_mesh *mesh, int64_t n, const char *placements)
{
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 1, &n, placements, NULL));
    return layout;
}

static const sherd_layout *layout_of(const sherd_mesh *mesh, const int64_t *shape,
                                     const char *placements)
{
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 2, shape, placements, NULL));
    return layout;
}

/* Not a bf16 for most i, but an f32. */
static double element(int64_t i)
{
    return 1 + (double)i / 1024;
}

static double weight(int64_t i)
{
    return 0.5 - (double)i / 2048;
}

static double rounded(double x, sherd_dtype dtype)
{
    unsigned char data[8];
    double value;

    sherd__cast(dtype, SHERD_F64, 1, data, &x);
    sherd__cast(SHERD_F64, dtype, 1, &value, data);
    return value;
}

static double number_at(const void *data, sherd_dtype dtype, int64_t i)
{
    double value;

    sherd__cast(SHERD_F64, dtype, 1, &value,
                (const char *)data + (size_t)i * sherd_dtype_bytes(dtype));
    return value;
}

static sherd_tensor *filled_on(const sherd_layout *layout, sherd_dtype dtype, double (*f)(int64_t))
{
    sherd_tensor *t = sherd__new_on(layout, dtype);
    sherd_box box = sherd_tensor_box(t);

    for (int64_t i = 0; i < t->count; i++) {
        double x = f(global_of(&box, t->shape, i));
        sherd__cast(dtype, SHERD_F64, 1,
                    (char *)sherd__fresh(t) + (size_t)i * sherd_dtype_bytes(dtype), &x);
    }
    return t;
}

/* f rounded to these dtypes, one after the other; NONE rounds nothing. */
static int64_t count_wrong(sherd_tensor *t, double (*f)(int64_t), sherd_dtype first,
                           sherd_dtype second)
{
    const void *data = sherd_tensor_read(t);
    sherd_box box = sherd_tensor_box(t);
    int64_t wrong = data ? 0 : 1;

    for (int64_t i = 0; data && i < t->count; i++) {
        double x = f(global_of(&box, t->shape, i));
        x = first ? rounded(x, first) : x;
        x = second ? rounded(x, second) : x;
        wrong += number_at(data, t->dtype, i) != x;
    }
    return wrong;
}

/* A loss whose gradient to y is the weights in y's dtype, in this layout. */
static void inject_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_layout *const *layout = sherd_node_attributes(node);

    grad_in[0] = filled_on(*layout, grad_out[0]->dtype, weight);
}

static const sherd_op inject_table = {
    .name = "inject", .takes_pending = false, .backward = inject_back};

static sherd_tensor *inject(sherd_tensor *y, const sherd_layout *grad)
{
    const sherd_layout *scalar = NULL;

    CHECK_OK(sherd__replicated(&scalar, y->layout->spec.mesh, 0, NULL));
    sherd_tensor *loss = sherd_constant_on(scalar, y->dtype, 0);
    sherd__record_node(y->world, &inject_table, &y, 1, &loss, 1, &grad, sizeof grad);
    return loss;
}

static int64_t received(sherd_world *world)
{
    int64_t bytes = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        bytes += sherd_comm_get(world, i).bytes_received;
    return bytes;
}

/* One move of a leaf, or of the result of an operator. */
static void check_move(sherd_tensor *leaf, bool is_leaf, const sherd_layout *to,
                       const sherd_redistribute_options *o)
{
    sherd_world *world = leaf->world;
    sherd_dtype out = o->forward_dtype ? o->forward_dtype : SHERD_F32;
    sherd_tensor *x = is_leaf ? leaf : sherd_scale(leaf, 1);

    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_redistribute(x, to, o);
    CHECK(y->dtype == out && y->layout == to);
    CHECK_EQ(count_wrong(y, element, out, SHERD_DTYPE_NONE), 0);
    int64_t missing = y->count - (leaf->layout == to ? y->count : leaf->count);
    CHECK_EQ(received(world), missing * (int64_t)sherd_dtype_bytes(out));
    CHECK_EQ(sherd_comm_count(world), leaf->layout != to && sherd_world_ranks(world) > 1);

    sherd_comm_reset(world);
    sherd_backward(inject(y, to));
    sherd_tensor *g = sherd_grad(leaf);
    if (CHECK(g && g->dtype == SHERD_F32 && g->layout == leaf->layout))
        CHECK_EQ(count_wrong(g, weight, out, o->backward_dtype), 0);
    CHECK_EQ(sherd_comm_count(world), 0);
    sherd_clear_grad(leaf);
}

/* R to R and S to R, all pairs of dtypes: what travels are elements of the forward dtype; the way
 * back costs nothing. */
static void moves_round_where_they_are_told(sherd_world *world)
{
    static const struct {
        int64_t shape[2];
        const char *split;
    } cases[] = {
        {{12, 3}, "S(0)"}, {{13, 3}, "S(0)"}, {{14, 3}, "S(0)"},
        {{3, 12}, "S(1)"}, {{3, 13}, "S(1)"}, {{3, 14}, "S(1)"},
    };
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int c = 0; c < LEN(cases); c++)
        for (int how = 0; how < 2 * 2 * 2 * 9; how++) {
            sherd_redistribute_options o = {.begin = how / 4 % 2,
                                            .forward_dtype = choices[how / 8 % 3],
                                            .backward_dtype = choices[how / 24]};
            const sherd_layout *whole = layout_of(mesh, cases[c].shape, "R");
            const sherd_layout *split = layout_of(mesh, cases[c].shape, cases[c].split);
            sherd_scope_begin(world);
            sherd_tensor *leaf = filled_on(how % 2 ? whole : split, SHERD_F32, element);
            check_move(sherd_require_grad(leaf, true), how / 2 % 2, whole, &o);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* Addends 1 and, on all other ranks, 2^-10: as bf16 each is exact, their sum is not. */
static double small_addend(int64_t i)
{
    (void)i;
    return 1.0 / 1024;
}

static double one(int64_t i)
{
    (void)i;
    return 1;
}

static void pending_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_layout *const *layout = sherd_node_attributes(node);
    bool first = sherd_world_rank(sherd__node_world(node)) == 0;

    grad_in[0] = filled_on(*layout, grad_out[0]->dtype, first ? one : small_addend);
}

static const sherd_op pending_table = {
    .name = "pending", .takes_pending = false, .backward = pending_back};

/* The sum on the way back is made in the backward dtype, and rounded to it once. */
static void gradients_add_up_in_their_dtype(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t shape[] = {5, 3};
    const sherd_layout *split = layout_of(mesh, shape, "S(0)"), *scalar = NULL;
    const sherd_layout *whole = layout_of(mesh, shape, "R");
    const sherd_layout *pending = layout_of(mesh, shape, "P(sum)");

    CHECK_OK(sherd__replicated(&scalar, mesh, 0, NULL));
    for (int f = 0; f < LEN(choices); f++)
        for (int b = 0; b < LEN(choices); b++)
            for (int is_leaf = 0; is_leaf < 2; is_leaf++) {
                sherd_redistribute_options o = {.forward_dtype = choices[f],
                                                .backward_dtype = choices[b]};
                double sum = 1 + (double)(sherd_world_ranks(world) - 1) / 1024;
                sherd_dtype back = choices[b] ? choices[b] : SHERD_F32;
                sherd_scope_begin(world);
                sherd_tensor *leaf = sherd_require_grad(filled_on(split, SHERD_F32, element), true);
                sherd_tensor *y =
                    sherd_redistribute(is_leaf ? leaf : sherd_scale(leaf, 1), whole, &o);
                sherd_tensor *loss = sherd_constant_on(scalar, y->dtype, 0);
                sherd__record_node(world, &pending_table, &y, 1, &loss, 1, &pending,
                                   sizeof pending);
                sherd_backward(loss);
                sherd_tensor *g = sherd_grad(leaf);
                if (CHECK(g && g->dtype == SHERD_F32 && g->layout == split))
                    for (int64_t i = 0; i < g->count; i++)
                        CHECK(number_at(sherd_tensor_read(g), SHERD_F32, i) == rounded(sum, back));
                sherd_scope_end(world);
            }
    CHECK_OK(sherd_world_check(world));
}

/* A pending sum is rounded addend by addend, and once more when it is added up. */
static void pending_sums_move_in_another_dtype(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t shape[] = {5, 3};
    bool first = sherd_world_rank(world) == 0;
    double sum = 1 + (double)(sherd_world_ranks(world) - 1) / 1024;
    static const char *const targets[] = {"R", "S(0)", "P(sum)"};
    sherd_redistribute_options o = {.forward_dtype = SHERD_BF16};

    for (int to = 0; to < LEN(targets); to++) {
        sherd_tensor *t =
            filled_on(layout_of(mesh, shape, "P(sum)"), SHERD_F32, first ? one : small_addend);
        sherd_tensor *y = sherd_redistribute(t, layout_of(mesh, shape, targets[to]), &o);
        CHECK(y->dtype == SHERD_BF16);
        y = sherd_redistribute(y, layout_of(mesh, shape, "R"), NULL);
        for (int64_t i = 0; i < y->count; i++)
            CHECK(number_at(sherd_tensor_read(y), SHERD_BF16, i) == rounded(sum, SHERD_BF16));
    }
    CHECK_OK(sherd_world_check(world));
}

/* All addends are added in f32 and the sum is rounded, however large it is and over however many
 * axes: one by one none would count. */
static void a_sum_of_16_bits_is_rounded_once(sherd_world *world)
{
    static const int64_t sizes[] = {3, 5000, 300000};
    static const char *const pending[] = {"P(sum)", "P(sum)P(sum)"};
    static const char *const targets[][2] = {{"R", "S(0)"}, {"RR", "S(0)S(0)"}};
    int ranks = sherd_world_ranks(world);
    bool first = sherd_world_rank(world) == 0;

    for (int axes = 1; axes <= (ranks == 4 ? 2 : 1); axes++) {
        const sherd_mesh *mesh = line_of_ranks(world);
        if (axes == 2)
            CHECK_OK(sherd_mesh_parse(&mesh, world, "x=2,y=2"));
        for (int i = 0; i < LEN(sizes); i++)
            for (int to = 0; to < 2; to++) {
                sherd_scope_begin(world);
                sherd_tensor *t =
                    sherd_constant_on(row_of(mesh, sizes[i], pending[axes - 1]), SHERD_BF16, 0);
                uint16_t *x = sherd_tensor_write(t);
                for (int64_t e = 0; x && e < sizes[i]; e++)
                    x[e] =
                        first ? 0x3F80 : 0x3B00; /* 1, and 2^-9: half of what would still count */
                sherd_tensor *y =
                    sherd_redistribute(t, row_of(mesh, sizes[i], targets[axes - 1][to]), NULL);
                CHECK_EQ(sherd_tensor_dtype(y), SHERD_BF16);
                const void *sum = sherd_tensor_read(y);
                for (int64_t e = 0; sum && e < y->count; e += 97)
                    CHECK(number_at(sum, SHERD_BF16, e) ==
                          rounded(1 + (double)(ranks - 1) / 512, SHERD_BF16));
                sherd_scope_end(world);
            }
    }
    CHECK_OK(sherd_world_check(world));
}

/* What an operator saves of the result is the cast source; moved again in backward it has the same
 * bits. */
static void a_saved_result_is_moved_again(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t shape[] = {13, 3};
    sherd_redistribute_options o = {.forward_dtype = SHERD_BF16};
    sherd_tensor *leaf =
        sherd_require_grad(filled_on(layout_of(mesh, shape, "S(0)"), SHERD_F32, element), true);

    sherd_scope_begin(world);
    sherd_tensor *y = sherd_redistribute(leaf, layout_of(mesh, shape, "R"), &o);
    sherd_tensor *loss = sherd_scope_pass(sherd_sum(sherd_mul(y, y)));
    sherd_scope_end(world);
    sherd_backward(loss);
    sherd_tensor *g = sherd_grad(leaf);
    sherd_box box = sherd_tensor_box(leaf);
    for (int64_t i = 0; g && i < g->count; i++)
        CHECK(number_at(sherd_tensor_read(g), SHERD_F32, i) ==
              2 * rounded(element(global_of(&box, shape, i)), SHERD_BF16));
    CHECK(g != NULL);
    CHECK_OK(sherd_world_check(world));
}

static void dtypes_that_cannot_be_are_refused(sherd_world *world)
{
    static const struct {
        sherd_dtype forward, backward;
        const char *said;
    } cases[] = {
        {SHERD_I32, 0, "forward_dtype has no fractions"},
        {SHERD_BOOL, 0, "forward_dtype has no fractions"},
        {SHERD_BF16, SHERD_U8, "backward_dtype has no fractions"},
        {0, SHERD_I64, "backward_dtype has no fractions"},
        {(sherd_dtype)77, 0, "forward_dtype is not a dtype"},
        {0, (sherd_dtype)-1, "backward_dtype is not a dtype"},
    };
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t shape[] = {4, 2};
    const sherd_layout *whole = layout_of(mesh, shape, "R");
    sherd_tensor *t = filled_on(layout_of(mesh, shape, "S(0)"), SHERD_F32, element);

    for (int wanted = 0; wanted < 2; wanted++) {
        sherd_require_grad(t, wanted);
        for (int i = 0; i < LEN(cases); i++) {
            sherd_redistribute_options o = {.forward_dtype = cases[i].forward,
                                            .backward_dtype = cases[i].backward};
            bool none = strstr(cases[i].said, "not a dtype") != NULL;
            sherd_tensor *y = sherd_redistribute(t, whole, &o);
            CHECK_EQ(sherd_tensor_failed(y), wanted || none);
            CHECK_EQ(sherd_world_check(world), wanted || none ? SHERD_EINVAL : SHERD_OK);
            if (wanted || none)
                CHECK(strstr(sherd_world_error(world), cases[i].said) != NULL);
            else if (cases[i].forward)
                CHECK_EQ(y->dtype, cases[i].forward);
        }
    }
}

static const check_test tests[] = {
    {TEST(moves_round_where_they_are_told), {1, 2, 3, 4}},
    {TEST(gradients_add_up_in_their_dtype), {1, 2, 3, 4}},
    {TEST(pending_sums_move_in_another_dtype), {1, 2, 3, 4, 8}},
    {TEST(a_sum_of_16_bits_is_rounded_once), {1, 2, 3, 4, 8}},
    {TEST(a_saved_result_is_moved_again), {1, 2, 3, 4}},
    {TEST(dtypes_that_cannot_be_are_refused), {1, 2}},
};
CHECK_MAIN(tests)
