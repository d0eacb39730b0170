/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions as modules: what they compute, their first values, and on a mesh with space and
 * channels sharded. */
#include "styles.h"

#include "sherd/ops_reductions.h"
#include "sherd/ops_stencil.h"

enum { ITEMS = 2, IN = 4, FEATURES = 6, SIDE = 7 };

static const sherd_layer_options f64 = {.name = "conv", .dtype = SHERD_F64, .bias = true};

static sherd_module *make(sherd_world *world, bool transposed)
{
    const sherd_conv_options how = {.stride = {2, 1}, .before = {1, 1}, .after = {1, 1}};
    static const int64_t kernel[] = {3, 3};
    sherd_module *m = NULL;

    CHECK_OK(transposed
                 ? sherd_conv_transposed_create(&m, world, IN, FEATURES, 2, kernel, &how, &f64)
                 : sherd_conv_create(&m, world, IN, FEATURES, 2, kernel, &how, &f64));
    return m;
}

static void a_module_is_the_function(sherd_world *world)
{
    const sherd_conv_options how = {.stride = {2, 1}, .before = {1, 1}, .after = {1, 1}};

    for (int transposed = 0; transposed < 2; transposed++) {
        sherd_module *m = make(world, transposed);
        sherd_tensor *x = wave(world, SHERD_F64, 4, SHAPE(ITEMS, IN, SIDE, SIDE), 3, 1, 0);
        sherd_tensor *w = sherd_module_parameter(m, "weight"),
                     *b = sherd_module_parameter(m, "bias");
        double got[4096], want[4096];
        int64_t n = whole(sherd_module_call(m, x), got);
        CHECK_EQ(
            n, whole(transposed ? sherd_conv_transposed(x, w, b, &how) : sherd_conv(x, w, b, &how),
                     want));
        CHECK(memcmp(got, want, (size_t)n * sizeof *got) == 0);
        /* uniform within 1 / sqrt(9 * channels that are read) */
        double most = 0, bound = 1 / sqrt(9.0 * (transposed ? FEATURES : IN));
        n = whole(w, got);
        for (int64_t i = 0; i < n; i++)
            most = fabs(got[i]) > most ? fabs(got[i]) : most;
        CHECK(most <= bound && most > 0.8 * bound);
        CHECK_EQ(whole(b, got), FEATURES);
        CHECK(got[0] == 0);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Gradients of a step, of weight and bias; `place` is how x lies, `weight` how the weight does;
 * mesh NULL: plain. */
static int64_t step(sherd_world *world, bool transposed, const sherd_mesh *mesh, const char *place,
                    const char *weight, double *grad)
{
    sherd_module *m = make(world, transposed);
    sherd_tensor *x = wave(world, SHERD_F64, 4, SHAPE(ITEMS, IN, SIDE, SIDE), 3, 1, 0);

    if (mesh) {
        sherd_tensor *w =
            sherd_distribute_as(sherd_module_parameter(m, "weight"), mesh, weight, -1);
        CHECK_OK(sherd_module_set_parameter(m, "weight", w));
        CHECK_OK(sherd_distribute_module(m, mesh, NULL, NULL, NULL, NULL));
        x = spread(x, mesh, place);
    }
    sherd_require_grad(sherd_module_parameter(m, "weight"), true);
    sherd_require_grad(sherd_module_parameter(m, "bias"), true);
    sherd_tensor *y = sherd_module_call(m, x);
    sherd_backward(sherd_sum(sherd_mul(y, y)));
    int64_t n = whole(sherd_grad(sherd_module_parameter(m, "weight")), grad);
    n += whole(sherd_grad(sherd_module_parameter(m, "bias")), grad + n);
    sherd_module_destroy(m);
    return n;
}

/* Space on one axis, channels on the other. */
static void space_and_channels_are_split_at_once(sherd_world *world)
{
    static const char *const cases[][2] = {
        {"S(2)R", "RR"},    {"S(3)R", "RS(0)"}, {"S(2)S(1)", "RS(1)"}, {"S(0)S(2)", "RR"},
        {"S(2)S(2)", "RR"}, {"S(2)S(3)", "RR"}, {"RR", "S(0)S(1)"}};
    const sherd_mesh *mesh = mesh_of(world, "x=2,y=2");

    for (int transposed = 0; transposed < 2; transposed++)
        for (int i = 0; i < LEN(cases); i++) {
            double want[1024], got[1024];
            sherd_scope_begin(world);
            int64_t n = step(world, transposed, NULL, NULL, NULL, want);
            CHECK_EQ(step(world, transposed, mesh, cases[i][0], cases[i][1], got), n);
            for (int64_t k = 0; k < n; k++)
                CHECK_NEAR(got[k], want[k], 1e-9);
            CHECK_OK(sherd_world_check(world));
            sherd_scope_end(world);
        }
}

static const check_test tests[] = {
    {TEST(a_module_is_the_function), {1, 2}},
    {TEST(space_and_channels_are_split_at_once), {4}},
};
CHECK_MAIN(tests)
