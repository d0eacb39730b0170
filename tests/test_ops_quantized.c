/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with weights of 8 and 4 bits: against f64 sums of the weight that they stand for, of few
 * rows and of many, for each dtype, in every layout, with cuts in the middle of groups; what is
 * rounded, the gradient, and what faults say.
 */
#include "tensors.h"

#include <math.h>

#include "autograd/tape.h"
#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_quantized.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

enum { MOST = 70 * 40 };

static double value_at(int64_t i, int salt)
{
    uint64_t h = (uint64_t)(i * 31 + salt + 1) * 0x9E3779B97F4A7C15u;

    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return (double)(h >> 11) / 4503599627370496.0 - 1;
}

static sherd_tensor *numbers(sherd_world *world, sherd_dtype dtype, const int64_t *shape, int ndim,
                             int salt)
{
    double x[MOST];
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    for (int64_t i = 0; i < n; i++)
        x[i] = value_at(i, salt);
    return sherd_mark_equal(sherd_cast(sherd_from_data(world, SHERD_F64, shape, ndim, x), dtype));
}

static bool all_of(double *out, sherd_tensor *t)
{
    return sherd_full_read(out, (size_t)sherd_tensor_count(t) * sizeof *out, t, SHERD_F64, -1);
}

static const struct {
    int64_t rows, in, out, group;
    int bits;
} sizes[] = {{1, 40, 13, 0, 8},  {3, 40, 13, 16, 8}, {9, 33, 20, 0, 8}, {20, 40, 70, 7, 8},
             {12, 64, 5, 64, 8}, {2, 1, 1, 0, 8},    {0, 8, 3, 2, 8},   {4, 8, 0, 0, 8},
             {1, 40, 13, 0, 4},  {3, 40, 13, 32, 4}, {9, 34, 20, 0, 4}, {20, 40, 70, 6, 4},
             {12, 64, 5, 64, 4}, {2, 2, 1, 0, 4},    {0, 8, 3, 2, 4},   {4, 8, 0, 0, 4}};

/* y, or dx, by the definition. */
static void expect(double *y, double *size, const double *x, const double *w, const double *b,
                   int64_t rows, int64_t in, int64_t out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < out; i++) {
            double sum = b ? b[i] : 0, most = fabs(sum);
            for (int64_t j = 0; j < in; j++) {
                sum += x[r * in + j] * w[i * in + j];
                most += fabs(x[r * in + j] * w[i * in + j]);
            }
            y[r * out + i] = sum;
            size[r * out + i] = most;
        }
}

static void products_are_those_of_the_weight(sherd_world *world)
{
    static const struct {
        sherd_dtype dtype;
        double few, many; /* errors, of the sum of all terms without their signs, and the result */
    } kinds[] = {{SHERD_F32, 1e-6, 1e-6},
                 {SHERD_F64, 1e-14, 1e-14},
                 {SHERD_BF16, 4e-3, 8e-3},
                 {SHERD_F16, 5e-4, 5e-4}};
    double x[MOST], w[MOST], b[MOST], y[MOST], want[MOST], size[MOST];

    for (int k = 0; k < LEN(kinds); k++)
        for (int s = 0; s < LEN(sizes); s++) {
            int64_t rows = sizes[s].rows, in = sizes[s].in, out = sizes[s].out;
            int64_t group = sizes[s].group;
            sherd_scope_begin(world);
            sherd_tensor *scale,
                *value = sherd_quantize(numbers(world, SHERD_F32, SIZES(out, in), 2, 1),
                                        sizes[s].bits, group, &scale);
            sherd_tensor *tx = numbers(world, kinds[k].dtype, SIZES(rows, in), 2, 2);
            sherd_tensor *tb = numbers(world, kinds[k].dtype, SIZES(out), 1, 3);
            sherd_tensor *ty = sherd_linear_quantized(tx, value, scale, group, s % 2 ? tb : NULL);
            CHECK_EQ(sherd_tensor_dtype(value), sizes[s].bits == 4 ? SHERD_U8 : SHERD_I8);
            CHECK_EQ(value->shape[1], in * sizes[s].bits / 8);
            CHECK_EQ(sherd_tensor_dtype(ty), kinds[k].dtype);
            CHECK(all_of(x, tx) && all_of(b, tb) && all_of(y, ty));
            CHECK(all_of(w, sherd_dequantize(value, scale, group, SHERD_F64)));
            expect(want, size, x, w, s % 2 ? b : NULL, rows, in, out);
            double off = rows <= 8 ? kinds[k].few : kinds[k].many;
            for (int64_t i = 0; i < rows * out; i++)
                CHECK_NEAR(y[i], want[i], off * size[i]);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* No further than half a scale, in any layout the same bits. */
static void weights_are_rounded_alike_in_all_layouts(sherd_world *world)
{
    static const struct {
        int64_t group;
        int bits;
    } ways[] = {{0, 8}, {4, 8}, {7, 8}, {100, 8}, {0, 4}, {4, 4}, {100, 4}};
    const sherd_mesh *mesh = line_of_ranks(world);
    double w[MOST], back[MOST], s[MOST];
    const int64_t shape[] = {11, 30};

    for (int g = 0; g < LEN(ways); g++)
        for (int i = 0; i < lists_of(mesh, 2); i++) {
            int64_t group = ways[g].group;
            const sherd_layout *layout = numbered(mesh, 2, shape, i);
            if (layout->pending_axes)
                continue;
            sherd_scope_begin(world);
            sherd_tensor *plain = numbers(world, SHERD_F32, shape, 2, 5), *first;
            sherd_tensor *value = sherd_quantize(plain, ways[g].bits, group, &first);
            sherd_tensor *t = sherd_redistribute(
                sherd_distribute(plain, layout_of(mesh, 2, shape, "R", NULL), -1), layout, NULL);
            sherd_tensor *scale, *q = sherd_quantize(t, ways[g].bits, group, &scale);
            CHECK_EQ(sherd_item(sherd_sum(sherd_ne(q, value))), 0);
            CHECK_EQ(sherd_item(sherd_sum(sherd_ne(scale, first))), 0);
            const sherd_layout *like = numbered(mesh, 2, sherd_tensor_shape(q), i);
            sherd_tensor *again = sherd_redistribute(q, like, NULL);
            CHECK(all_of(w, plain) && all_of(s, scale));
            CHECK(all_of(back, sherd_dequantize(again, scale, group, SHERD_F32)));
            int64_t each = group ? (shape[1] + group - 1) / group : 1;
            for (int64_t j = 0; j < shape[0] * shape[1]; j++) {
                int64_t at = j / shape[1] * each + (group ? j % shape[1] / group : 0);
                CHECK(fabs(w[j] - back[j]) <= 0.500001 * s[at]);
            }
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* Sharded by features, by inputs within groups, unevenly, and by rows of x. */
static void layouts_give_what_plain_tensors_give(sherd_world *world)
{
    static const char *const ways[][3] = {{"R", "S(0)", "R"},
                                          {"S(1)", "S(1)", "R"},
                                          {"S(0)", "R", "R"},
                                          {"R", "S(1)", "S(0)"},
                                          {"S(1)", "S(0)", "S(0)"}};
    const sherd_mesh *mesh = line_of_ranks(world);
    double y[MOST], want[MOST];

    for (int s = 0; s < LEN(sizes); s++)
        for (int w = 0; w < LEN(ways); w++) {
            int64_t rows = sizes[s].rows, in = sizes[s].in, out = sizes[s].out;
            int64_t group = sizes[s].group;
            sherd_scope_begin(world);
            sherd_tensor *scale,
                *value = sherd_quantize(numbers(world, SHERD_F32, SIZES(out, in), 2, 1),
                                        sizes[s].bits, group, &scale);
            sherd_tensor *x = numbers(world, SHERD_F32, SIZES(rows, in), 2, 2);
            sherd_tensor *b = numbers(world, SHERD_F32, SIZES(out), 1, 3);
            CHECK(all_of(want, sherd_linear_quantized(x, value, scale, group, b)));
            x = sherd_distribute(x, layout_of(mesh, 2, SIZES(rows, in), "R", NULL), -1);
            x = sherd_redistribute(x, layout_of(mesh, 2, SIZES(rows, in), ways[w][0], NULL), NULL);
            const int64_t *of = sherd_tensor_shape(value);
            value = sherd_distribute(value, layout_of(mesh, 2, of, ways[w][1], NULL), -1);
            b = sherd_distribute(b, layout_of(mesh, 1, SIZES(out), ways[w][2], NULL), -1);
            sherd_tensor *t = sherd_linear_quantized(x, value, scale, group, b);
            if (ways[w][0][0] == 'S' && ways[w][1][0] == 'S' && ways[w][1][2] == '1')
                CHECK(t->layout->pending_axes != 0);
            CHECK(all_of(y, t));
            for (int64_t i = 0; i < rows * out; i++)
                CHECK_NEAR(y[i], want[i], 2e-5);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* One rank has most of the columns, another none: groups of 8 are cut at 3, 3 and 21. */
static void pieces_may_begin_within_a_group(sherd_world *world)
{
    double y[MOST], want[MOST];
    sherd_tensor *scale,
        *value = sherd_quantize(numbers(world, SHERD_F32, SIZES(6, 30), 2, 1), 8, 8, &scale);
    sherd_tensor *x = numbers(world, SHERD_BF16, SIZES(2, 30), 2, 2);
    const sherd_mesh *mesh = line_of_ranks(world);

    CHECK(all_of(want, sherd_linear_quantized(x, value, scale, 8, NULL)));
    x = sherd_distribute(x, layout_of(mesh, 2, SIZES(2, 30), "S(1)", "1:3,0,18,9"), -1);
    value = sherd_distribute(value, layout_of(mesh, 2, SIZES(6, 30), "S(1)", "1:3,0,18,9"), -1);
    sherd_tensor *t = sherd_linear_quantized(x, value, scale, 8, NULL);
    CHECK(t->layout->pending_axes != 0);
    CHECK(all_of(y, t));
    for (int i = 0; i < 12; i++)
        CHECK_NEAR(y[i], want[i], 2e-2 * (1 + fabs(want[i])));
    CHECK(all_of(y, sherd_dequantize(value, scale, 8, SHERD_F64)));
    CHECK_OK(sherd_world_check(world));
}

/* The same of 4 bits, in bytes: groups of 8 columns are cut at 2, 2 and 20. x that is cut between
 * the columns of a byte moves. */
static void pieces_of_4_bits_end_with_a_byte(sherd_world *world)
{
    static const char *const cuts[] = {"1:2,0,18,10", "1:3,0,18,9"};
    double y[MOST], want[MOST], w[MOST];
    sherd_tensor *scale,
        *value = sherd_quantize(numbers(world, SHERD_F32, SIZES(6, 30), 2, 1), 4, 8, &scale);
    sherd_tensor *plain = numbers(world, SHERD_BF16, SIZES(2, 30), 2, 2);
    const sherd_mesh *mesh = line_of_ranks(world);

    CHECK(all_of(want, sherd_linear_quantized(plain, value, scale, 8, NULL)));
    CHECK(all_of(w, sherd_dequantize(value, scale, 8, SHERD_F64)));
    value = sherd_distribute(value, layout_of(mesh, 2, SIZES(6, 15), "S(1)", "1:1,0,9,5"), -1);
    for (int c = 0; c < 2; c++) {
        sherd_tensor *x =
            sherd_distribute(plain, layout_of(mesh, 2, SIZES(2, 30), "S(1)", cuts[c]), -1);
        sherd_tensor *t = sherd_linear_quantized(x, value, scale, 8, NULL);
        if (c == 0)
            CHECK(t->layout->pending_axes != 0);
        CHECK(all_of(y, t));
        for (int i = 0; i < 12; i++)
            CHECK_NEAR(y[i], want[i], 2e-2 * (1 + fabs(want[i])));
    }
    sherd_tensor *back = sherd_dequantize(value, scale, 8, SHERD_F64);
    CHECK_TEXT(sherd_layout_placements(back->layout), "S(1)");
    CHECK(all_of(y, back));
    CHECK_EQ(memcmp(y, w, 180 * sizeof *y), 0);
    CHECK_OK(sherd_world_check(world));
}

/* Byte by byte, as the header says. */
static void bytes_are_two_columns(sherd_world *world)
{
    const float w[] = {3, -6, 7.5F, 0, -7.5F, 1}, scale_of[] = {1, 2};
    const uint8_t bytes[] = {0x2B, 0x8F, 0x90};
    uint8_t got[3];
    double back[6], s[2];
    sherd_tensor *scale, *t = sherd_from_data(world, SHERD_F32, SIZES(1, 6), 2, w);
    sherd_tensor *value = sherd_quantize(t, 4, 0, &scale);

    CHECK(sherd_full_read(got, sizeof got, value, SHERD_U8, -1));
    CHECK_EQ(memcmp(got, bytes, sizeof got), 0);
    scale = sherd_from_data(world, SHERD_F32, SIZES(1, 2), 2, scale_of);
    CHECK(all_of(back, sherd_dequantize(value, scale, 4, SHERD_F64)) && all_of(s, scale));
    CHECK(back[0] == 3 && back[1] == -6 && back[2] == 7 && back[3] == 0);
    CHECK(back[4] == -16 && back[5] == 2);
    CHECK_OK(sherd_world_check(world));
}

/* Rows that go through tiles where there are: few, some, many, and a last panel of few columns. */
static void many_rows_are_those_of_the_weight(sherd_world *world)
{
    enum { IN = 160, OUT = 520 };
    static const int64_t rows[] = {5, 64, 65, 100}, groups[] = {0, 32};
    static double y[100 * OUT], want[100 * OUT];
    static float w[OUT * IN];

    for (int i = 0; i < OUT * IN; i++)
        w[i] = (float)value_at(i, 1);
    sherd_tensor *weight = sherd_from_data(world, SHERD_F32, SIZES(OUT, IN), 2, w);
    for (int bits = 4; bits <= 8; bits += 4)
        for (int g = 0; g < 2; g++)
            for (int r = 0; r < LEN(rows); r++) {
                sherd_scope_begin(world);
                sherd_generator dice = sherd_generator_named("x");
                sherd_tensor *scale, *value = sherd_quantize(weight, bits, groups[g], &scale);
                sherd_tensor *x = sherd_random(world, SHERD_BF16, SIZES(rows[r], IN), 2,
                                               sherd_normal(0, 1), &dice);
                sherd_tensor *wide = sherd_dequantize(value, scale, groups[g], SHERD_F32);
                CHECK(all_of(y, sherd_linear_quantized(x, value, scale, groups[g], NULL)));
                CHECK(all_of(want, sherd_linear(sherd_cast(x, SHERD_F32), wide, NULL)));
                for (int64_t i = 0; i < rows[r] * OUT; i++)
                    CHECK_NEAR(y[i], want[i], 0.05 + 0.008 * fabs(want[i]));
                sherd_scope_end(world);
            }
    CHECK_OK(sherd_world_check(world));
}

/* Of 8 bits that are pending the addends are added first: of the product they are none. */
static void pending_values_are_settled_first(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int ranks = sherd_world_ranks(world);
    double y[6];

    sherd_tensor *value = sherd__new_on(layout_of(mesh, 2, SIZES(3, 2), "P", NULL), SHERD_I8);
    sherd__fill(value, 100);
    sherd_tensor *scale = sherd_constant(world, SHERD_F32, SIZES(3), 1, 0.5);
    sherd_tensor *x = sherd_constant(world, SHERD_F32, SIZES(2, 2), 2, 1);
    CHECK(all_of(y, sherd_linear_quantized(x, value, scale, 0, NULL)));
    for (int i = 0; i < 6; i++)
        CHECK(y[i] == (int8_t)(100 * ranks));
    CHECK_OK(sherd_world_check(world));
}

static void a_pending_input_stays_pending(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int ranks = sherd_world_ranks(world);
    double y[6];

    sherd_tensor *x = sherd__new_on(layout_of(mesh, 2, SIZES(2, 4), "P", NULL), SHERD_F32);
    sherd__fill(x, 3);
    sherd_tensor *value = sherd_constant(world, SHERD_I8, SIZES(3, 4), 2, -2);
    sherd_tensor *scale = sherd_constant(world, SHERD_F32, SIZES(3), 1, 0.5);
    sherd_tensor *bias = sherd_constant(world, SHERD_F32, SIZES(3), 1, 1);
    sherd_tensor *t = sherd_linear_quantized(x, value, scale, 0, bias);
    CHECK(t->layout->pending_axes != 0);
    CHECK(all_of(y, t));
    for (int i = 0; i < 6; i++)
        CHECK(y[i] == 1 - 12 * ranks);
    CHECK_OK(sherd_world_check(world));
}

/* As that of a linear with the weight that is stood for; of few rows and of many. */
static void gradients_are_those_of_the_weight(sherd_world *world)
{
    static const struct {
        sherd_dtype dtype;
        double off;
    } kinds[] = {{SHERD_F64, 1e-13}, {SHERD_F32, 1e-5}, {SHERD_BF16, 3e-2}, {SHERD_F16, 4e-3}};
    double got[MOST], want[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int k = 0; k < LEN(kinds); k++)
        for (int s = 0; s < LEN(sizes); s++)
            for (int way = 0; way < 3; way++) {
                static const char *const ways[] = {"R", "S(0)", "S(1)"};
                int64_t rows = sizes[s].rows, in = sizes[s].in, out = sizes[s].out;
                int64_t group = sizes[s].group;
                sherd_dtype dtype = kinds[k].dtype;
                sherd_scope_begin(world);
                sherd_tensor *scale,
                    *value = sherd_quantize(numbers(world, SHERD_F32, SIZES(out, in), 2, 1),
                                            sizes[s].bits, group, &scale);
                sherd_tensor *w = sherd_dequantize(value, scale, group, dtype);
                sherd_tensor *x[2], *b[2];
                for (int i = 0; i < 2; i++) {
                    x[i] = numbers(world, dtype, SIZES(rows, in), 2, 2);
                    b[i] = numbers(world, dtype, SIZES(out), 1, 3);
                    sherd_require_grad(x[i], true);
                    sherd_require_grad(b[i], true);
                }
                const int64_t *of = sherd_tensor_shape(value);
                value = sherd_distribute(value, layout_of(mesh, 2, of, ways[way], NULL), -1);
                sherd_tensor *y = sherd_linear_quantized(x[0], value, scale, group, b[0]);
                sherd_tensor *dy = numbers(world, dtype, SIZES(rows, out), 2, 4);
                sherd_backward(sherd_sum(sherd_mul(y, dy)));
                sherd_backward(sherd_sum(sherd_mul(sherd_linear(x[1], w, b[1]), dy)));
                for (int i = 0; i < 2; i++) {
                    sherd_tensor *a = sherd_grad(i ? b[0] : x[0]);
                    sherd_tensor *expected = sherd_grad(i ? b[1] : x[1]);
                    CHECK(all_of(got, a) && all_of(want, expected));
                    for (int64_t j = 0; j < sherd_tensor_count(expected); j++)
                        CHECK_NEAR(got[j], want[j], kinds[k].off * (1 + fabs(want[j])));
                }
                sherd_scope_end(world);
            }
    CHECK_OK(sherd_world_check(world));
}

/* Texts have the shapes that were given, not those of pairs of columns. */
static void faults_are_told_in_columns(sherd_world *world)
{
    sherd_tensor *w = sherd_constant(world, SHERD_F32, SIZES(3, 6), 2, 1), *scale;
    sherd_tensor *value = sherd_quantize(w, 4, 2, &scale);

    CHECK(sherd_tensor_failed(sherd_quantize(w, 4, 3, &scale)));
    CHECK(strstr(sherd_world_error(world), "it must be even: weight is f32[3,6]"));
    (void)sherd_world_check(world);
    sherd_quantize(w, 4, 2, &scale);
    CHECK(sherd_tensor_failed(sherd_linear_quantized(w, value, scale, 3, NULL)));
    CHECK(strstr(sherd_world_error(world), "it must be even: x is f32[3,6]"));
    (void)sherd_world_check(world);
}

/* Also where columns become pairs, and pairs columns. */
static void lack_of_memory_names_what_was_called(sherd_world *world)
{
    static const char *const names[] = {
        "sherd_quantize:", "sherd_linear_quantized:", "sherd_dequantize:"};
    const sherd_layout *layout = layout_of(line_of_ranks(world), 2, SIZES(6, 14), "S(1)", NULL);
    sherd_tensor *w = sherd_constant_on(layout, SHERD_F32, 1), *value = NULL, *scale = NULL;

    for (int i = 0; i < LEN(names); i++) {
        sherd_status status = SHERD_ENOMEM;
        if (i == 1)
            value = sherd_quantize(w, 4, 2, &scale);
        CHECK_OK(sherd_world_check(world));
        for (int n = 1; status && n < 200; n++) {
            sherd_tensor *other;
            sherd_scope_begin(world);
            sherd_world_fail_allocation(world, sherd_world_rank(world) ? 0 : n);
            if (i == 0)
                sherd_quantize(w, 4, 2, &other);
            else if (i == 1)
                sherd_linear_quantized(w, value, scale, 2, NULL);
            else
                sherd_dequantize(value, scale, 2, SHERD_F32);
            sherd_world_fail_allocation(world, 0);
            status = sherd_world_check(world);
            if (status && !CHECK(strstr(sherd_world_error(world), names[i])))
                fprintf(stderr, "  %s\n", sherd_world_error(world));
            sherd_scope_end(world);
        }
        CHECK_OK(status);
    }
}

static const check_test tests[] = {
    {TEST(products_are_those_of_the_weight), {1, 2}},
    {TEST(weights_are_rounded_alike_in_all_layouts), {1, 2, 3}},
    {TEST(layouts_give_what_plain_tensors_give), {1, 2, 3, 4, 8}},
    {TEST(pieces_may_begin_within_a_group), {4}},
    {TEST(pieces_of_4_bits_end_with_a_byte), {4}},
    {TEST(bytes_are_two_columns), {1}},
    {TEST(many_rows_are_those_of_the_weight), {1}},
    {TEST(faults_are_told_in_columns), {1}},
    {TEST(lack_of_memory_names_what_was_called), {2, 3}},
    {TEST(pending_values_are_settled_first), {1, 2, 3}},
    {TEST(a_pending_input_stays_pending), {2, 3}},
    {TEST(gradients_are_those_of_the_weight), {1, 2, 3}},
};
CHECK_MAIN(tests)
