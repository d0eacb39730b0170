/* SPDX-License-Identifier: Apache-2.0 */
/* Layers: their first values, their forward, dropout's generator. */
#include "modules.h"

#include "sherd/autocast.h"
#include "sherd/ops_layers.h"

static void values_depend_on_seed_and_name_only(sherd_world *world)
{
    static _Thread_local double a[MOST], b[MOST];
    sherd_layer_options one = {.name = "net.1", .dtype = SHERD_F64};
    sherd_layer_options two = {.name = "net.2", .dtype = SHERD_F64, .deviation = 2};
    sherd_module *m = NULL, *same = NULL, *other = NULL;
    double sum = 0, squares = 0;

    CHECK_OK(sherd_linear_create(&m, world, 40, 100, &one));
    CHECK_OK(sherd_linear_create(&same, world, 40, 100, &one));
    CHECK_OK(sherd_linear_create(&other, world, 40, 100, &two));
    CHECK_EQ(whole(sherd_module_parameter(m, "weight"), a), 4000);
    CHECK_EQ(distance_to(sherd_module_parameter(same, "weight"), a, 4000), 0);
    whole(sherd_module_parameter(other, "weight"), b);
    CHECK(fabs(b[0] / a[0] - 100) > 1e-9);
    for (int i = 0; i < 4000; i++) {
        sum += a[i] / 4000;
        squares += a[i] * a[i] / 4000;
    }
    CHECK_NEAR(sum, 0, 0.02 * 5 / sqrt(4000));
    CHECK_NEAR(sqrt(squares), 0.02, 0.02 * 0.06);
    CHECK(sherd_module_parameter(m, "bias") == NULL);
    /* The same as drawing by hand. */
    sherd_generator g = sherd_generator_named("net.1");
    sherd_tensor *t = sherd_random(world, SHERD_F64, SHAPE(100, 40), 2, sherd_normal(0, 0.02), &g);
    CHECK_EQ(distance_to(t, a, 4000), 0);
    sherd_module_destroy(m);
    sherd_module_destroy(same);
    sherd_module_destroy(other);
    CHECK_OK(sherd_world_check(world));
}

static void layers_compute_what_their_operators_do(sherd_world *world)
{
    static _Thread_local double y[MOST];
    sherd_layer_options named = {.name = "x", .dtype = SHERD_F64, .bias = true};
    sherd_module *linear = NULL, *table = NULL, *norm = NULL;
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(2, 3, 4), 3, 1, 0);
    sherd_tensor *ids = sherd_mark_equal(
        sherd_from_data(world, SHERD_I32, SHAPE(3), 1, (const int32_t[]){2, 0, 2}));

    CHECK_OK(sherd_linear_create(&linear, world, 4, 5, &named));
    CHECK_OK(
        sherd_module_set_parameter(linear, "bias", wave(world, SHERD_F64, 1, SHAPE(5), 1, 1, 0)));
    whole(sherd_linear(x, sherd_module_parameter(linear, "weight"),
                       sherd_module_parameter(linear, "bias")),
          y);
    CHECK_EQ(distance_to(sherd_module_call(linear, x), y, 30), 0);
    CHECK(sherd_module_kind_of(linear) == SHERD_MODULE_LINEAR);

    CHECK_OK(sherd_embedding_create(&table, world, 3, 4, &named));
    whole(sherd_module_parameter(table, "weight"), y);
    double rows[12];
    memcpy(rows, y + 8, 4 * sizeof *rows);
    memcpy(rows + 4, y, 4 * sizeof *rows);
    memcpy(rows + 8, y + 8, 4 * sizeof *rows);
    CHECK_EQ(distance_to(sherd_module_call(table, ids), rows, 12), 0);

    CHECK_OK(sherd_layer_norm_create(&norm, world, 4, &named));
    whole(sherd_module_call(norm, x), y);
    double mean = 0, variance = 0, row[4];
    for (int i = 0; i < 4; i++) {
        row[i] = sin(0.1 * (i + 1) * 3);
        mean += row[i] / 4;
    }
    for (int i = 0; i < 4; i++)
        variance += (row[i] - mean) * (row[i] - mean) / 4;
    for (int i = 0; i < 4; i++)
        CHECK_NEAR(y[i], (row[i] - mean) / sqrt(variance + 1e-5), 1e-13);
    CHECK_EQ(sherd_module_parameters(norm), 2);
    sherd_module_destroy(linear);
    sherd_module_destroy(table);
    sherd_module_destroy(norm);
    CHECK_OK(sherd_world_check(world));
}

static void a_bad_layer_is_refused(sherd_world *world)
{
    sherd_module *m = (sherd_module *)&m;
    sherd_layer_options ints = {.dtype = SHERD_I32}, negative = {.deviation = -1};

    CHECK_EQ(sherd_linear_create(&m, world, 0, 4, NULL), SHERD_EINVAL);
    CHECK(m == NULL);
    CHECK_EQ(sherd_linear_create(&m, world, 4, -1, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_linear_create(&m, world, 4, 4, &ints), SHERD_EINVAL);
    CHECK_EQ(sherd_linear_create(&m, world, 4, 4, &negative), SHERD_EINVAL);
    CHECK_EQ(sherd_embedding_create(&m, world, 4, 0, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_layer_norm_create(&m, world, 0, NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_dropout_create(&m, world, 1), SHERD_EINVAL);
    CHECK_EQ(sherd_dropout_create(&m, world, -0.1), SHERD_EINVAL);
    CHECK_EQ(sherd_dropout_create(&m, world, (double)NAN), SHERD_EINVAL);
    CHECK(m == NULL);
    CHECK_OK(sherd_world_check(world)); /* a status is all there was */
}

static void a_layer_wants_a_positional_tensor(sherd_world *world)
{
    sherd_module *m = NULL;
    sherd_args in = {.count = 0}, out;

    CHECK_OK(sherd_linear_create(&m, world, 4, 4, NULL));
    sherd_module_run(m, &in, &out);
    CHECK(sherd_tensor_failed(out.value[0]));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    in = (sherd_args){
        .count = 1, .value = {wave(world, SHERD_F32, 1, SHAPE(4), 1, 1, 0)}, .name = {"x"}};
    sherd_module_run(m, &in, &out);
    CHECK(sherd_tensor_failed(out.value[0]));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_module_destroy(m);
}

/* What a layer does not read is refused, unless it is NULL. */
static void a_layer_takes_nothing_else(sherd_world *world)
{
    sherd_module *layer[4] = {NULL};
    sherd_tensor *x = wave(world, SHERD_F32, 2, SHAPE(3, 4), 1, 1, 0);
    static const char *const names[][3] = {{NULL, NULL}, {NULL, "mask"}, {NULL, NULL, NULL}};
    static const char *const says[] = {"\": it takes one positional tensor, and got more",
                                       "\": it takes no keyword tensor \"mask\"", "more"};

    CHECK_OK(sherd_linear_create(&layer[0], world, 4, 4, NULL));
    CHECK_OK(sherd_dropout_create(&layer[1], world, 0.5));
    CHECK_OK(sherd_group_norm_create(&layer[2], world, 4, 2, NULL, NULL));
    CHECK_OK(sherd_layer_norm_create(&layer[3], world, 4, NULL));
    for (int i = 0; i < 4; i++) {
        for (int how = i == 3 ? 1 : 0; how < LEN(says); how++) {
            sherd_args in = {.count = how == 2 ? 3 : 2, .value = {x, x, x}}, out;
            memcpy(in.name, names[how], sizeof names[how]);
            sherd_module_run(layer[i], &in, &out);
            CHECK(sherd_tensor_failed(out.value[0]));
            CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
            CHECK(strstr(sherd_world_error(world), says[how]) != NULL);
            in.value[1] = in.value[2] = NULL;
            sherd_module_run(layer[i], &in, &out);
            CHECK_OK(sherd_world_check(world));
        }
        sherd_module_destroy(layer[i]);
    }
}

static void dropout_draws_by_path(sherd_world *world)
{
    static _Thread_local double first[MOST], second[MOST];
    sherd_module *root = NULL, *drop = NULL;
    sherd_tensor *x = sherd_constant(world, SHERD_F64, SHAPE(1000), 1, 1);
    sherd_generator g = sherd_generator_named("block.drop");
    int kept = 0;

    CHECK_OK(sherd_module_create(&root, world, NULL, NULL));
    CHECK_OK(sherd_dropout_create(&drop, world, 0.25));
    CHECK_OK(sherd_module_add(root, "block", drop));
    sherd_module *outer = NULL;
    CHECK_OK(sherd_module_create(&outer, world, NULL, NULL));
    CHECK_OK(sherd_module_add(outer, "x", root));
    CHECK(sherd_module_generator(drop)->name == sherd_generator_named("x.block").name);
    g = sherd_generator_named("x.block");
    whole(sherd_dropout(x, 0.25, &g), first);
    whole(sherd_dropout(x, 0.25, &g), second);
    CHECK_EQ(distance_to(sherd_module_call(drop, x), first, 1000), 0);
    CHECK_EQ(distance_to(sherd_module_call(drop, x), second, 1000), 0);
    CHECK(memcmp(first, second, 1000 * sizeof *first) != 0);
    for (int i = 0; i < 1000; i++) {
        CHECK(first[i] == 0 || fabs(first[i] - 1 / 0.75) < 1e-12);
        kept += first[i] != 0;
    }
    CHECK_NEAR(kept, 750, 70);
    sherd_module_train(outer, false);
    CHECK(sherd_module_call(drop, x) == x);
    sherd_module_destroy(outer);
    CHECK_OK(sherd_world_check(world));
}

/* Options that are all zero are f32; parameters, results and gradients of 16-bit layers have 16
 * bits. */
static void layers_have_the_dtype_that_was_asked_for(sherd_world *world)
{
    for (int d = SHERD_DTYPE_NONE; d <= SHERD_BOOL; d++) {
        sherd_layer_options o = {.name = "l", .dtype = (sherd_dtype)d, .bias = true};
        sherd_dtype wanted = d == SHERD_DTYPE_NONE ? SHERD_F32 : (sherd_dtype)d;
        sherd_module *linear = NULL, *norm = NULL;
        if (d >= SHERD_I32) {
            CHECK_EQ(sherd_linear_create(&linear, world, 4, 5, &o), SHERD_EINVAL);
            CHECK(linear == NULL);
            continue;
        }
        CHECK_OK(sherd_linear_create(&linear, world, 4, 5, &o));
        CHECK_OK(sherd_layer_norm_create(&norm, world, 4, &o));
        sherd_tensor *x = wave(world, wanted, 2, SHAPE(3, 4), 3, 1, 0);
        sherd_tensor *y = sherd_module_call(linear, sherd_module_call(norm, x));
        CHECK_EQ(sherd_tensor_dtype(y), wanted);
        sherd_backward(sherd_sum(y));
        sherd_tensor *g = sherd_grad(sherd_module_parameter(norm, "weight"));
        if (CHECK(g != NULL))
            CHECK_EQ(sherd_tensor_dtype(g), wanted);
        sherd_module_destroy(linear);
        sherd_module_destroy(norm);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- norms of a sum -------------------------------------------------------------------------- */

/* x and delta, named `name` if that is something. */
static sherd_tensor *norm_of_sum(sherd_module *m, sherd_tensor *x, sherd_tensor *delta,
                                 const char *name, sherd_tensor **sum)
{
    const sherd_args in = {.count = 2, .value = {x, delta}, .name = {NULL, name}};
    sherd_args out;

    sherd_module_run(m, &in, &out);
    CHECK_EQ(out.count, name ? 1 : 2);
    *sum = out.value[1];
    return out.value[0];
}

/* With a second tensor a norm gives two results, of the dtypes that its options and autocast
 * say. */
static void a_norm_takes_what_is_added_before_it(sherd_world *world)
{
    static _Thread_local double y[MOST], s[MOST], alone[MOST];
    sherd_tensor *x = wave(world, SHERD_F32, 2, SHAPE(3, 8), 3, 1, 0), *sum,
                 *delta = sherd_cast(wave(world, SHERD_F32, 2, SHAPE(3, 8), 5, 1, 0), SHERD_BF16);

    for (int i = 0; i < 8; i++) {
        bool rms = i & 1, low = i & 2, cast = i & 4;
        sherd_module *m = NULL;
        const sherd_layer_options o = {.low = low};
        CHECK_OK(rms ? sherd_rms_norm_create(&m, world, 8, 0.1, &o)
                     : sherd_layer_norm_create(&m, world, 8, &o));
        sherd_tensor *weight = sherd_module_parameter(m, "weight"), *norm;
        sherd_tensor *wide = sherd_cast(delta, SHERD_F32), *want = sherd_add(x, wide);
        sherd_dtype dtype = low && cast ? SHERD_BF16 : SHERD_F32;
        whole(want, s);
        want = rms ? sherd_rms_norm(want, weight, 0.1)
                   : sherd_layer_norm(want, weight, sherd_module_parameter(m, "bias"), 1e-5);
        whole(sherd_cast(want, dtype), y);
        want = rms ? sherd_rms_norm(x, weight, 0.1)
                   : sherd_layer_norm(x, weight, sherd_module_parameter(m, "bias"), 1e-5);
        whole(sherd_cast(want, dtype), alone);
        sherd_set_autocast(world, cast ? SHERD_BF16 : SHERD_DTYPE_NONE);
        norm = norm_of_sum(m, x, delta, NULL, &sum);
        CHECK_EQ(sherd_tensor_dtype(norm), dtype);
        CHECK_EQ(sherd_tensor_dtype(sum), SHERD_F32);
        CHECK_EQ(distance_to(norm, y, 24), 0);
        CHECK_EQ(distance_to(sum, s, 24), 0);
        /* Alone, and beside a name without a tensor. */
        norm = sherd_module_call(m, x);
        CHECK_EQ(sherd_tensor_dtype(norm), dtype);
        CHECK_EQ(distance_to(norm, alone, 24), 0);
        CHECK_EQ(distance_to(norm_of_sum(m, x, NULL, "other", &sum), alone, 24), 0);
        sherd_set_autocast(world, SHERD_DTYPE_NONE);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A low norm alone takes gradients as wide as the one of a sum does: nothing is rounded before it
 * is added up. */
static void a_low_norm_alone_has_the_gradient_of_f32(sherd_world *world)
{
    static _Thread_local double grad[2][MOST];

    for (int low = 0; low < 2; low++) {
        const sherd_layer_options o = {.low = low, .name = "l"};
        sherd_module *norm = NULL, *linear = NULL;
        CHECK_OK(sherd_layer_norm_create(&norm, world, 8, &o));
        CHECK_OK(sherd_linear_create(&linear, world, 8, 6, &o));
        sherd_tensor *x = sherd_require_grad(wave(world, SHERD_F32, 2, SHAPE(3, 8), 3, 1, 0), true);
        sherd_set_autocast(world, SHERD_BF16);
        sherd_tensor *h = sherd_module_call(norm, x), *y = sherd_module_call(linear, h);
        sherd_tensor *loss = sherd_sum(sherd_mul(y, sherd_module_call(linear, h)));
        sherd_set_autocast(world, SHERD_DTYPE_NONE);
        sherd_backward(loss);
        whole(sherd_grad(x), grad[low]);
        sherd_module_destroy(norm);
        sherd_module_destroy(linear);
    }
    for (int i = 0; i < 24; i++)
        CHECK_EQ(grad[0][i], grad[1][i]);
    CHECK_OK(sherd_world_check(world));
}

/* Of one row, by hand in f64. */
static double normal_at(const double *x, int64_t n, int64_t i, double eps)
{
    double mean = 0, square = 0;

    for (int64_t j = 0; j < n; j++)
        mean += x[j] / (double)n;
    for (int64_t j = 0; j < n; j++)
        square += (x[j] - mean) * (x[j] - mean) / (double)n;
    return (x[i] - mean) / sqrt(square + eps);
}

static void norms_go_without_weights(sherd_world *world)
{
    static const sherd_layer_options all[] = {
        {.dtype = SHERD_F64, .eps = 0.5},
        {.dtype = SHERD_F64, .eps = 0.5, .no_bias = true},
        {.dtype = SHERD_F64, .eps = 0.5, .affine = SHERD_NORM_WITHOUT}};
    double x[MOST], y[MOST], sum[MOST];

    for (int k = 0; k < LEN(all); k++) {
        sherd_module *m = NULL, *rms = NULL;
        sherd_args in = {.count = 2}, out;
        CHECK_OK(sherd_layer_norm_create(&m, world, 5, &all[k]));
        CHECK_OK(sherd_rms_norm_create(&rms, world, 5, 0.5, &all[k]));
        CHECK_EQ(sherd_module_parameters(m), 2 - k);
        CHECK_EQ(sherd_module_parameters(rms), k < 2);
        in.value[0] = in.value[1] = wave(world, SHERD_F64, 2, SHAPE(3, 5), 1, 1, 0);
        whole(in.value[0], x);
        whole(sherd_module_call(m, in.value[0]), y);
        sherd_module_run(m, &in, &out);
        whole(out.value[0], sum);
        for (int i = 0; i < 15; i++) {
            double twice[5];
            for (int j = 0; j < 5; j++)
                twice[j] = 2 * x[i / 5 * 5 + j];
            CHECK_NEAR(y[i], normal_at(x + i / 5 * 5, 5, i % 5, 0.5), 1e-14);
            CHECK_NEAR(sum[i], normal_at(twice, 5, i % 5, 0.5), 1e-14);
        }
        sherd_module_run(rms, &in, &out);
        CHECK_EQ(sherd_tensor_count(out.value[0]), 15);
        CHECK_EQ(sherd_tensor_count(sherd_module_call(rms, in.value[0])), 15);
        sherd_module_destroy(m);
        sherd_module_destroy(rms);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(values_depend_on_seed_and_name_only), {1, 2}},
    {TEST(layers_compute_what_their_operators_do), {1}},
    {TEST(a_bad_layer_is_refused), {1}},
    {TEST(a_layer_wants_a_positional_tensor), {1, 2}},
    {TEST(a_layer_takes_nothing_else), {1, 2}},
    {TEST(dropout_draws_by_path), {1}},
    {TEST(layers_have_the_dtype_that_was_asked_for), {1, 2}},
    {TEST(a_norm_takes_what_is_added_before_it), {1, 2}},
    {TEST(norms_go_without_weights), {1, 2}},
    {TEST(a_low_norm_alone_has_the_gradient_of_f32), {1}},
};
CHECK_MAIN(tests)
