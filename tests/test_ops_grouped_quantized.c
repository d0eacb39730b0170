/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows by the weights of their groups, of 8 and 4 bits: the numbers and gradients of
 * sherd_grouped_linear with the weights that they stand for, on drawn meshes and layouts, with
 * groups that have no rows; where rows lie; what is refused; and no memory.
 */
#include "groups.h"

#include "sherd/ops_elements.h"
#include "sherd/ops_quantized.h"
#include "sherd/ops_reductions.h"

/* Some rows of some groups. */
typedef struct product {
    sherd_tensor *x, *value, *scale, *bias, *ends, *group;
    int64_t columns;
} product;

static product draw_product(scene *s, int64_t most, sherd_dtype dtype)
{
    int64_t rows = roll(&s->dice, (int)most), groups = 1 + roll(&s->dice, 5), end = 0;
    int bits = roll(&s->dice, 2) ? 8 : 4;
    int64_t in = 2 * (1 + roll(&s->dice, 9)), out = 1 + roll(&s->dice, 7);
    product p = {.columns = 2 * roll(&s->dice, 4)};
    int32_t ends[8], group[8];

    for (int32_t g = 0; g < groups; g++) {
        end = g + 1 < groups ? end + roll(&s->dice, (int)(rows - end) + 1) : rows;
        ends[g] = (int32_t)end;
        group[g] = (int32_t)groups - 1 - g;
    }
    sherd_tensor *w = numbers(s, SHERD_F32, 3, (int64_t[]){groups, out, in}, 15);
    p.value = sherd_quantize(w, bits, p.columns, &p.scale);
    p.x = numbers(s, dtype, 2, (int64_t[]){rows, in}, 9);
    p.bias = roll(&s->dice, 2) ? numbers(s, dtype, 2, (int64_t[]){groups, out}, 9) : NULL;
    p.ends = sherd_mark_equal(sherd_from_data(s->world, SHERD_I32, &groups, 1, ends));
    if (roll(&s->dice, 3) == 0)
        p.group = sherd_mark_equal(sherd_from_data(s->world, SHERD_I32, &groups, 1, group));
    return p;
}

/* The largest difference, in units of the largest number. */
static double off_by(sherd_tensor *a, sherd_tensor *plain)
{
    sherd_tensor *wide = sherd_cast(sherd_full(a), SHERD_F64), *like = sherd_cast(plain, SHERD_F64);
    const double *x = sherd_tensor_read(wide), *y = sherd_tensor_read(like);
    double most = 1e-30, off = x && y ? 0 : 1;

    for (int64_t i = 0; x && y && i < like->count; i++) {
        off = fmax(off, fabs(x[i] - y[i]));
        most = fmax(most, fabs(y[i]));
    }
    return off / most;
}

static void check_product(scene *s, const sherd_mesh *mesh, int64_t most, sherd_dtype dtype,
                          double off)
{
    const product p = draw_product(s, most, dtype);
    sherd_tensor *w = sherd_dequantize(p.value, p.scale, p.columns, SHERD_F32);
    sherd_tensor *x[2] = {sherd_require_grad(spread(s, mesh, p.x), true),
                          sherd_require_grad(sherd_cast(p.x, SHERD_F32), true)};
    sherd_tensor *b[2] = {NULL};

    if (p.bias) {
        b[0] = sherd_require_grad(spread(s, mesh, p.bias), true);
        b[1] = sherd_require_grad(sherd_cast(p.bias, SHERD_F32), true);
    }
    sherd_tensor *y = sherd_grouped_linear_quantized(
        x[0], spread(s, mesh, p.value), spread(s, mesh, p.scale), p.columns, b[0], p.ends, p.group);
    sherd_tensor *want = sherd_grouped_linear(x[1], w, b[1], p.ends, p.group);
    CHECK_EQ(sherd_tensor_dtype(y), dtype);
    bool good = CHECK(off_by(y, want) <= off);
    sherd_tensor *dy = numbers(s, dtype, 2, want->shape, 5), *wide = sherd_cast(dy, SHERD_F32);
    sherd_backward_with(&y, &dy, 1, NULL);
    sherd_backward_with(&want, &wide, 1, NULL);
    good = CHECK(off_by(sherd_grad(x[0]), sherd_grad(x[1])) <= off) && good;
    if (p.bias)
        good = CHECK(off_by(sherd_grad(b[0]), sherd_grad(b[1])) <= off) && good;
    if (!good)
        fprintf(stderr, "x %s, values %s, groups of %lld\n", sherd_tensor_text(x[0]),
                sherd_tensor_text(p.value), (long long)p.columns);
}

static void every_layout_is_as_the_weights(sherd_world *world)
{
    static const struct {
        sherd_dtype dtype;
        double off;
    } kinds[] = {{SHERD_F32, 2e-6}, {SHERD_F32, 2e-6}, {SHERD_F64, 2e-6}, {SHERD_BF16, 3e-2}};
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 2000 : 24;

    for (int i = 0; i < rounds; i++) {
        sherd_scope_begin(world);
        check_product(&s, small_mesh(world, i), i % 3 ? 12 : 80, kinds[i % 4].dtype,
                      kinds[i % 4].off);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* Where experts are sharded rows are cut where they are, and nothing is pending or moved. */
static void rows_lie_with_their_groups(sherd_world *world)
{
    const int64_t tokens[] = {TOKENS, 6};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *choice = choices_on(world, mesh, "S(0)"), *x = ones_on(mesh, 2, tokens, "S(0)");
    sherd_groups to;

    for (int bits = 4; bits <= 8; bits += 4) {
        sherd_tensor *w = ones_on(mesh, 3, (int64_t[]){GROUPS, 4, 6}, "S(0)");
        sherd_tensor *scale, *value = sherd_quantize(w, bits, 2, &scale);
        CHECK(sherd_group_rows(&to, choice, value));
        sherd_tensor *rows = sherd_dispatch(x, &to);
        int64_t calls = sherd_comm_calls(world, NULL);
        sherd_tensor *y =
            sherd_grouped_linear_quantized(rows, value, scale, 2, NULL, to.ends, to.group);
        CHECK(!sherd_tensor_failed(y));
        CHECK_EQ(sherd_comm_calls(world, NULL), calls);
        CHECK_EQ(sherd_tensor_layout(y)->pending_axes, 0);
        CHECK_TEXT(sherd_layout_placements(sherd_tensor_layout(y)), "S(0)");
    }
    CHECK_OK(sherd_world_check(world));
}

/* Features of either side: the input's give a pending sum, as plain weights do. */
static void features_may_be_sharded(sherd_world *world)
{
    static const int32_t ends[] = {1, 1, 6};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *end = sherd_mark_equal(sherd_from_data(world, SHERD_I32, &(int64_t){3}, 1, ends));

    for (int bits = 4; bits <= 8; bits += 4)
        for (int dim = 1; dim <= 2; dim++) {
            sherd_tensor *w = ones_on(mesh, 3, (int64_t[]){3, 16, 16}, "R");
            sherd_tensor *scale, *value = sherd_quantize(w, bits, 4, &scale);
            const char *by = dim == 1 ? "S(1)" : "S(2)";
            value = sherd_redistribute(
                value, layout_of(mesh, 3, sherd_tensor_shape(value), by, NULL), NULL);
            sherd_tensor *x = ones_on(mesh, 2, (int64_t[]){6, 16}, dim == 1 ? "R" : "S(1)");
            sherd_tensor *y = sherd_grouped_linear_quantized(x, value, scale, 4, NULL, end, NULL);
            const char *lies = sherd_layout_placements(sherd_tensor_layout(y));
            CHECK_TEXT(lies, dim == 1 ? "S(1)" : "P(sum)");
        }
    CHECK_OK(sherd_world_check(world));
}

static void what_does_not_fit_is_refused_by_all(sherd_world *world)
{
    static const int32_t right[] = {1, 2, 6}, beyond[] = {1, 2, 7};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = ones_on(mesh, 2, (int64_t[]){6, 4}, "S(0)"), *scale;
    sherd_tensor *w = ones_on(mesh, 3, (int64_t[]){3, 5, 4}, "S(0)");
    sherd_tensor *value = sherd_quantize(w, 4, 2, &scale), *ends[2];

    for (int i = 0; i < 2; i++)
        ends[i] = sherd_mark_equal(
            sherd_from_data(world, SHERD_I32, &(int64_t){3}, 1, i ? beyond : right));
    sherd_grouped_linear_quantized(x, value, scale, 2, NULL, ends[1], NULL);
    refused(world, "sherd_grouped_linear_quantized: ends[2] is 7: must be in [2, 6]");
    sherd_grouped_linear_quantized(x, value, scale, 4, NULL, ends[0], NULL);
    refused(world, "4 columns have 1 groups of 4");
    sherd_grouped_linear_quantized(x, value, scale, 3, NULL, ends[0], NULL);
    refused(world, "of 4 bits it must be even");
    sherd_grouped_linear_quantized(x, w, scale, 2, NULL, ends[0], NULL);
    refused(world, "value must be i8, or u8 of 4 bits");
    sherd_grouped_linear_quantized(ones_on(mesh, 2, (int64_t[]){6, 6}, "R"), value, scale, 2, NULL,
                                   ends[0], NULL);
    refused(world, "of 4 bits x must have two columns for each byte of a row");
}

static void multiply(sherd_world *world)
{
    static const int32_t ends[] = {3, 20};
    const sherd_layout *by_row = NULL, *by_group = NULL;
    const sherd_mesh *mesh = NULL;
    int64_t runs = 2;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&by_row, mesh, 2, (int64_t[]){20, 8}, "S(0)", NULL) ==
            SHERD_OK &&
        sherd_layout_parse_placements(&by_group, mesh, 3, (int64_t[]){2, 5, 8}, "S(0)", NULL) ==
            SHERD_OK) {
        sherd_tensor *x = sherd_require_grad(sherd_constant_on(by_row, SHERD_BF16, 1), true);
        sherd_tensor *scale,
            *value = sherd_quantize(sherd_constant_on(by_group, SHERD_F32, 1), 4, 2, &scale);
        sherd_tensor *end = sherd_mark_equal(sherd_from_data(world, SHERD_I32, &runs, 1, ends));
        sherd_backward(
            sherd_sum(sherd_grouped_linear_quantized(x, value, scale, 2, NULL, end, NULL)));
    } else {
        sherd__raise(world, SHERD_ENOMEM, "no layouts");
    }
    sherd_scope_end(world);
}

static void lack_of_memory_is_said_by_all(sherd_world *world)
{
    fail_every_allocation(world, 1, multiply);
}

static const check_test tests[] = {
    {TEST(every_layout_is_as_the_weights), {1, 2, 3, 4, 8}},
    {TEST(rows_lie_with_their_groups), {1, 2, 4, 8}},
    {TEST(features_may_be_sharded), {2, 4}},
    {TEST(what_does_not_fit_is_refused_by_all), {1, 2, 3}},
    {TEST(lack_of_memory_is_said_by_all), {2}},
};
CHECK_MAIN(tests)
