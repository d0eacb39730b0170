/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer and RMS norms over several dims, any of which may be sharded: as plain ones under any
 * layout, forward and gradients; x stays, and nothing but a number or two of each row travels; a
 * large mean does no harm.
 */
#include "fields.h"

#include <math.h>

#include "sherd/comm.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"

enum { X, WEIGHT, BIAS, OPERANDS };

typedef struct scene {
    sherd_world *world;
    uint64_t dice;
    int ndim, dims;
    bool rms;
    int operands;
    int64_t shape[4];
} scene;

static void draw(scene *s)
{
    s->rms = roll(&s->dice, 2);
    s->ndim = (int)between(&s->dice, 1, 4);
    s->dims = (int)between(&s->dice, 1, s->ndim);
    s->operands = 1 + roll(&s->dice, s->rms ? 2 : 3);
    for (int d = 0; d < s->ndim; d++)
        s->shape[d] = roll(&s->dice, 40) ? between(&s->dice, 1, 7) : 0;
}

static sherd_tensor *apply(const scene *s, sherd_tensor *const *in)
{
    sherd_tensor *weight = s->operands > WEIGHT ? in[WEIGHT] : NULL;

    if (s->rms)
        return sherd_rms_norm_over(in[X], s->dims, weight, 0.01);
    return sherd_layer_norm_over(in[X], s->dims, weight, s->operands > BIAS ? in[BIAS] : NULL,
                                 0.01);
}

/* ---- plain ----------------------------------------------------------------------------------- */

/* Several dims are one dim of as many elements. */
static void several_dims_are_one_dim(sherd_world *world)
{
    scene s = {.world = world, .dice = 9};

    for (int i = 0; i < 40; i++) {
        sherd_tensor *in[OPERANDS], *flat[OPERANDS];
        int64_t row = 1, count = 1;
        sherd_scope_begin(world);
        draw(&s);
        s.operands = s.rms ? 2 : 3;
        for (int d = 0; d < s.ndim; d++)
            *(d < s.ndim - s.dims ? &count : &row) *= s.shape[d];
        for (int k = X; k < s.operands; k++) {
            int skip = k == X ? 0 : s.ndim - s.dims;
            in[k] = numbers(world, &s.dice, s.ndim - skip, s.shape + skip);
            flat[k] = sherd_view(in[k], k == X ? (int64_t[]){count, row} : &row, k == X ? 2 : 1);
        }
        sherd_tensor *y = apply(&s, in);
        sherd_tensor *want = s.rms ? sherd_rms_norm(flat[X], flat[WEIGHT], 0.01)
                                   : sherd_layer_norm(flat[X], flat[WEIGHT], flat[BIAS], 0.01);
        if (!CHECK(!sherd_tensor_failed(y) && !sherd_tensor_failed(want)))
            break;
        CHECK_EQ(y->ndim, s.ndim);
        CHECK(y->count == 0 || !memcmp(sherd_tensor_read(y), sherd_tensor_read(want),
                                       (size_t)y->count * sizeof(double)));
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- any layout ------------------------------------------------------------------------------ */

static void check_layout(scene *s, const sherd_mesh *mesh)
{
    sherd_tensor *leaf[OPERANDS], *spread[OPERANDS];

    for (int i = X; i < s->operands; i++) {
        int skip = i == X ? 0 : s->ndim - s->dims, ndim = s->ndim - skip;
        const int64_t *shape = s->shape + skip;
        sherd_tensor *plain = numbers(s->world, &s->dice, ndim, shape);
        if (i == X)
            plain = sherd_add_scalar(plain, 3);
        spread[i] = sherd_require_grad(
            sherd_distribute(plain, draw_layout(&s->dice, mesh, ndim, shape), -1), true);
        leaf[i] = sherd_require_grad(plain, true);
    }
    sherd_tensor *want = apply(s, leaf), *y = apply(s, spread);
    if (!CHECK(!sherd_tensor_failed(y) && !sherd_tensor_failed(want)))
        return;
    bool good = CHECK_NEAR(difference(y, want), 0, 1e-12);
    sherd_tensor *dy = numbers(s->world, &s->dice, s->ndim, s->shape);
    sherd_backward_with(&want, &dy, 1, NULL);
    sherd_backward_with(&y, &dy, 1, NULL);
    for (int i = X; i < s->operands; i++) {
        good = CHECK(sherd_grad(spread[i])->layout == spread[i]->layout) && good;
        good = CHECK_NEAR(difference(sherd_grad(spread[i]), sherd_grad(leaf[i])), 0, 1e-11) && good;
    }
    if (!good)
        fprintf(stderr, "%s over %d dims: x %s -> %s\n", s->rms ? "rms" : "layer", s->dims,
                sherd_tensor_text(spread[X]), sherd_tensor_text(y));
}

static void every_layout_is_as_plain(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 4000 : 72;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = draw_mesh(world, i);
        sherd_scope_begin(world);
        draw(&s);
        check_layout(&s, mesh);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

static void other_dtypes_are_rounded_f64(sherd_world *world)
{
    static const struct {
        sherd_dtype dtype;
        double tolerance;
    } cases[] = {{SHERD_F32, 2e-6}, {SHERD_BF16, 0.03}, {SHERD_F16, 0.004}};
    static const int64_t shape[] = {5, 6, 4};
    const sherd_mesh *mesh = mesh_of(world, "3");
    const sherd_layout *layout = layout_of(mesh, 3, shape, "S(1)", "1:1,5,0"),
                       *along = layout_of(mesh, 2, shape + 1, "R", NULL);
    uint64_t dice = 4;

    for (int i = 0; i < 6; i++) {
        scene s = {.world = world, .dims = 2, .rms = i % 2, .operands = 3 - i % 2};
        sherd_tensor *narrow[OPERANDS], *wide[OPERANDS], *dy[2];
        sherd_dtype dtype = cases[i / 2].dtype;
        for (int k = X; k < s.operands; k++) {
            sherd_tensor *t =
                sherd_cast(numbers(world, &dice, k ? 2 : 3, k ? shape + 1 : shape), dtype);
            wide[k] = sherd_require_grad(sherd_cast(t, SHERD_F64), true);
            narrow[k] = sherd_require_grad(sherd_distribute(t, k ? along : layout, -1), true);
        }
        sherd_tensor *y = apply(&s, narrow), *want = apply(&s, wide);
        CHECK(y->layout == layout);
        CHECK_NEAR(largest_difference(y, want), 0, cases[i / 2].tolerance);
        dy[0] = sherd_cast(numbers(world, &dice, 3, shape), dtype);
        dy[1] = sherd_cast(dy[0], SHERD_F64);
        sherd_backward_with(&y, &dy[0], 1, NULL);
        sherd_backward_with(&want, &dy[1], 1, NULL);
        for (int k = X; k < s.operands; k++)
            CHECK_NEAR(largest_difference(sherd_grad(narrow[k]), sherd_grad(wide[k])), 0,
                       6 * cases[i / 2].tolerance);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- a large mean ---------------------------------------------------------------------------- */

/*
 * Numbers 1e-3 apart around 1e4, of which mean and variance are known: 1e4 + 1e-3 (i - (n - 1) /
 * 2). The mean of squares is known to 1e-8 only, that is a hundredth of the variance. Also where
 * each rank has a mean of its own.
 */
static void a_large_mean_does_no_harm(sherd_world *world)
{
    static const int64_t shape[] = {2, 4, 3};
    static const char *const cuts[] = {NULL, "1:3,1", "1:1,0,3"};
    int ranks = sherd_world_ranks(world), n = 12;
    char text[16];

    snprintf(text, sizeof text, "%d", ranks);
    const sherd_mesh *mesh = mesh_of(world, text);
    double variance = 1e-6 * (double)(n * n - 1) / 12, data[24];
    for (int i = 0; i < 24; i++)
        data[i] = 1e4 + 1e-3 * (i % n - (n - 1) / 2.0);
    sherd_tensor *plain = sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, 3, data));
    const sherd_layout *layout =
        layout_of(mesh, 3, shape, "S(1)", ranks > 1 ? cuts[ranks - 1] : NULL);
    sherd_tensor *x = sherd_require_grad(sherd_distribute(plain, layout, -1), true);
    sherd_tensor *y = sherd_layer_norm_over(x, 2, NULL, NULL, 0);
    const double *out = sherd_tensor_read(sherd_full(y));
    for (int i = 0; out && i < 24; i++)
        CHECK_NEAR(out[i], 1e-3 * (i % n - (n - 1) / 2.0) / sqrt(variance), 1e-8);
    sherd_tensor *leaf = sherd_require_grad(plain, true), *dy = sherd_square(y);
    sherd_tensor *want = sherd_layer_norm_over(leaf, 2, NULL, NULL, 0);
    sherd_tensor *whole = sherd_full(sherd_detach(dy));
    sherd_backward_with(&y, &whole, 1, NULL);
    sherd_backward_with(&want, &whole, 1, NULL);
    CHECK_NEAR(difference(sherd_grad(x), sherd_grad(leaf)), 0, 1e-5); /* of numbers of 1e3 */
    CHECK_OK(sherd_world_check(world));
}

/* ---- what travels ---------------------------------------------------------------------------- */

/* Each rank gets of each row that it shares two numbers of each other part (rms: one), forward and
 * back; x never travels. */
static void only_numbers_of_rows_travel(sherd_world *world)
{
    static const int64_t shape[] = {6, 8, 5};
    static const struct {
        const char *mesh, *x, *cuts, *weight;
        int dims, parts, rows; /* that each rank has */
    } cases[] = {
        {"2", "S(2)", NULL, "S(1)", 2, 2, 6},     {"3", "S(1)", "1:1,7,0", NULL, 2, 3, 6},
        {"3", "S(2)", NULL, NULL, 1, 3, 48},      {"2x2", "S(1)S(2)", NULL, "S(0)S(1)", 2, 4, 6},
        {"2x2", "S(0)S(2)", NULL, NULL, 2, 2, 3}, {"2x2", "S(0)S(1)", NULL, NULL, 3, 4, 1},
    };

    for (int i = 0; i < 2 * LEN(cases); i++) {
        int c = i / 2, ranks = cases[c].mesh[0] - '0', numbers = i % 2 ? 1 : 2;
        if (ranks * (cases[c].mesh[1] ? 2 : 1) != sherd_world_ranks(world))
            continue;
        const sherd_mesh *mesh = mesh_of(world, cases[c].mesh);
        sherd_tensor *in[OPERANDS] = {NULL};
        scene s = {.dims = cases[c].dims, .rms = i % 2, .operands = 1};
        in[X] = sherd_require_grad(
            indices_on(layout_of(mesh, 3, shape, cases[c].x, cases[c].cuts), SHERD_F64), true);
        if (cases[c].weight) {
            s.operands = 2;
            in[WEIGHT] = sherd_require_grad(
                indices_on(layout_of(mesh, 2, shape + 1, cases[c].weight, NULL), SHERD_F64), true);
        }
        int64_t bytes = (int64_t)(cases[c].parts - 1) * numbers * cases[c].rows * 8;
        sherd_comm_reset(world);
        sherd_tensor *y = apply(&s, in);
        CHECK_EQ(sherd_comm_calls(world, NULL), 1);
        CHECK_EQ(sherd_comm_get(world, 0).bytes_received, bytes);
        CHECK(y->layout == in[X]->layout);
        sherd_tensor *dy = sherd_constant_on(y->layout, SHERD_F64, 1);
        sherd_comm_reset(world);
        sherd_backward_with(&y, &dy, 1, NULL);
        CHECK_EQ(sherd_comm_calls(world, NULL), 1);
        CHECK_EQ(sherd_comm_get(world, 0).bytes_received, bytes);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(several_dims_are_one_dim), {1}},
    {TEST(every_layout_is_as_plain), {1, 2, 3, 4, 8}},
    {TEST(other_dtypes_are_rounded_f64), {3}},
    {TEST(a_large_mean_does_no_harm), {1, 2, 3}},
    {TEST(only_numbers_of_rows_travel), {2, 3, 4}},
};
CHECK_MAIN(tests)
