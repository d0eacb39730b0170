/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gates that run as one pass (ops/gates.c), against the operators that they are made of elsewhere:
 * the same elements and gradients, also of gradients, in every layout and of every type.
 */
#include "ops_cases.h"

#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_vectors.h"
#include "sherd/values.h"

enum { SHAPES = 4, SHAPE_DIMS = 3 };

/* Even everywhere, with rows that are long enough for one pass. */
static const int64_t shapes[SHAPES][SHAPE_DIMS] = {{6, 40}, {4, 6, 10}, {34}, {8, 2, 1500}};
static const int ndims[SHAPES] = {2, 3, 1, 3};
static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16};

typedef struct gate {
    sherd_tensor *a, *slope; /* slope: NULL = halves of dim `dim` */
    int dim;
    bool steps;
} gate;

static sherd_tensor *value_of(const gate *g)
{
    sherd_tensor *a = g->a, *slope = g->slope;

    if (!g->steps)
        return slope ? sherd_prelu(a, slope) : sherd_glu(a, g->dim);
    int ndim = sherd_tensor_ndim(a);
    if (slope) {
        for (int d = 2; d < ndim && sherd_tensor_shape(slope)[0] != 1; d++)
            slope = sherd_unsqueeze(slope, -1);
        return sherd_where(sherd_gt_scalar(a, 0), a, sherd_mul(a, slope));
    }
    int64_t half = sherd_tensor_shape(a)[g->dim] / 2;
    sherd_dtype own = sherd_tensor_dtype(a), wide = own == SHERD_F64 ? own : SHERD_F32;
    a = sherd_cast(a, wide);
    return sherd_cast(sherd_mul(sherd_narrow(a, g->dim, 0, half),
                                sherd_sigmoid(sherd_narrow(a, g->dim, half, half))),
                      own);
}

/* The largest difference of two tensors, relative to the largest element. */
static double apart(sherd_tensor *x, sherd_tensor *y)
{
    sherd_tensor *a = sherd_full(sherd_cast(sherd_detach(x), SHERD_F64));
    sherd_tensor *b = sherd_full(sherd_cast(sherd_detach(y), SHERD_F64));
    sherd_tensor *gap = sherd_max(sherd_abs(sherd_sub(a, b)), NULL, 0, false);
    sherd_tensor *most = sherd_max(sherd_abs(b), NULL, 0, false);
    const double *g = sherd_tensor_read(gap), *m = sherd_tensor_read(most);

    return g && m && *m > 0 ? *g / *m : (double)INFINITY;
}

/* The value, its gradients, and gradients of their squares: one pass, and by steps. */
static void try_gate(sherd_world *world, gate g)
{
    sherd_tensor *y[2], *first[2][2] = {{NULL}}, *second[2][2] = {{NULL}};
    sherd_dtype dtype = sherd_tensor_dtype(g.a);
    double most = dtype == SHERD_F64 ? 1e-14 : dtype == SHERD_F32 ? 1e-5 : 2e-2;
    int n = g.slope ? 2 : 1;

    for (int i = 0; i < 2; i++) {
        g.steps = i;
        sherd_tensor *in[] = {sherd_require_grad(sherd_detach(g.a), true),
                              g.slope ? sherd_require_grad(sherd_detach(g.slope), true) : NULL};
        gate own = {in[0], in[1], g.dim, g.steps};
        y[i] = value_of(&own);
        sherd_tensor *total = sherd_sum(sherd_square(y[i]));
        sherd_gradients(first[i], in, n, &total, 1,
                        &(sherd_gradients_options){.create_graph = true});
        total = sherd_sum(sherd_square(first[i][0]));
        sherd_gradients(second[i], in, n, &total, 1, NULL);
        sherd_tensor *again = value_of(&own); /* by backward, which takes the other way */
        sherd_backward(sherd_sum(sherd_square(again)));
        for (int k = 0; k < n; k++)
            CHECK(apart(sherd_grad(in[k]), first[i][k]) <= most);
    }
    CHECK(apart(y[0], y[1]) == 0);
    for (int k = 0; k < n; k++) {
        CHECK(apart(first[0][k], first[1][k]) <= most);
        CHECK(apart(second[0][k], second[1][k]) <= most);
    }
    CHECK_OK(sherd_world_check(world));
}

static const sherd_layout *cut(sherd_world *world, int shape, sherd_placement by)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    int64_t ranks = sherd_world_ranks(world);

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    CHECK_OK(sherd_layout_create(&layout, mesh, ndims[shape], shapes[shape], &by, NULL));
    return layout;
}

static void gates_are_their_steps(sherd_world *world)
{
    const sherd_placement ways[] = {sherd_replicate(), sherd_shard(0)};
    sherd_generator generator = sherd_generator_named("gates");

    for (int s = 0; s < SHAPES; s++)
        for (int w = 0; w < LEN(ways); w++)
            for (int t = 0; t < (s == 0 ? LEN(dtypes) : 1); t++) {
                sherd_scope_begin(world);
                const sherd_layout *layout = cut(world, s, ways[w]);
                const int64_t slopes[] = {1, ndims[s] > 1 ? shapes[s][1] : 1};
                gate g = {.a =
                              sherd_random_on(layout, dtypes[t], sherd_uniform(-2, 2), &generator)};
                for (g.dim = 0; g.dim < ndims[s]; g.dim++)
                    try_gate(world, g);
                for (int k = 0; k < LEN(slopes); k++) {
                    g.slope = sherd_random(world, dtypes[t], &slopes[k], 1, sherd_uniform(0.1, 0.5),
                                           &generator);
                    try_gate(world, g);
                }
                sherd_scope_end(world);
            }
}

/* x dy is more than f16 holds, and the gradient a quarter of it; of few and many elements. */
static void gradients_of_f16_stay_in_range(sherd_world *world)
{
    static const int64_t sizes[] = {6, 200};

    for (int s = 0; s < LEN(sizes); s++) {
        int64_t n = sizes[s], half = n / 2;
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_constant(world, SHERD_F16, &half, 1, 1000);
        sherd_tensor *gates =
            sherd_require_grad(sherd_constant(world, SHERD_F16, &half, 1, 0), true);
        sherd_tensor *y = sherd_glu(sherd_cat((sherd_tensor *[]){x, gates}, 2, 0), 0);
        sherd_backward(sherd_sum(sherd_scale(sherd_cast(y, SHERD_F32), 192)));
        const float *slope = sherd_tensor_read(sherd_cast(sherd_grad(gates), SHERD_F32));
        for (int64_t i = 0; slope && i < half; i++)
            CHECK_NEAR(slope[i], 48000, 0);
        CHECK(slope);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

static const check_test tests[] = {
    {TEST(gates_are_their_steps), {1, 2, 3}},
    {TEST(gradients_of_f16_stay_in_range), {1}},
};
CHECK_MAIN(tests)
