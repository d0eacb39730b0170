/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes in place: under all layouts they do what they do to plain tensors; views change with the
 * tensor; what the tape has saved is found to be written; ranks that write different things are
 * found; no gradient is lost in silence.
 */
#include "ops_cases.h"
#include "tensors.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

typedef sherd_tensor *(*writer)(sherd_tensor *a, sherd_tensor *b);

static sherd_tensor *fill(sherd_tensor *a, sherd_tensor *b)
{
    (void)b;
    return sherd_fill(a, -2.5);
}

/* Two of the rows, and two of the columns, by views of the same storage. */
static sherd_tensor *add_to_part(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *part = sherd_slice(a, 0, 1, INT64_MAX, 2);

    sherd_add_to(part, sherd_slice(b, b->ndim - 2, 0, 2, 1));
    sherd_fill(sherd_narrow(a, 1, 0, 1), 3);
    return sherd_tensor_failed(part) ? part : a;
}

static sherd_tensor *mul_turned(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *turned = sherd_mul_by(sherd_transpose(a, 0, 1), sherd_transpose(b, -1, -2));

    return sherd_tensor_failed(turned) ? turned : a;
}

static sherd_tensor *scale_by(sherd_tensor *a, sherd_tensor *b)
{
    (void)b;
    return sherd_scale_by(a, 0.3);
}

static sherd_tensor *add_scaled_to(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_add_scaled_to(a, b, -0.7);
}

static sherd_tensor *add_scaled_to_turned(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *turned =
        sherd_add_scaled_to(sherd_transpose(a, 0, 1), sherd_transpose(b, -1, -2), 0.7);

    return sherd_tensor_failed(turned) ? turned : a;
}

static sherd_tensor *scale_part(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *part = sherd_scale_by(sherd_narrow(sherd_transpose(a, 0, 1), 0, 1, 1), -3);

    (void)b;
    return sherd_tensor_failed(part) ? part : a;
}

static const struct {
    const char *name;
    writer run;
    int ndim;
    int64_t shape[2]; /* of b */
} writes[] = {
    {"add_to", sherd_add_to, 2, {4, 3}},
    {"add_to row", sherd_add_to, 1, {3}},
    {"add_to column", sherd_add_to, 2, {4, 1}},
    {"add_to scalar", sherd_add_to, 0, {0}},
    {"add_scaled_to", add_scaled_to, 2, {4, 3}},
    {"add_scaled_to row", add_scaled_to, 1, {3}},
    {"add_scaled_to column", add_scaled_to, 2, {4, 1}},
    {"add_scaled_to turned", add_scaled_to_turned, 2, {4, 3}},
    {"mul_by", sherd_mul_by, 2, {4, 3}},
    {"mul_by row", sherd_mul_by, 2, {1, 3}},
    {"copy_from", sherd_copy_from, 2, {4, 3}},
    {"copy_from row", sherd_copy_from, 1, {3}},
    {"fill", fill, 1, {1}},
    {"scale_by", scale_by, 1, {1}},
    {"scaled part", scale_part, 1, {1}},
    {"part", add_to_part, 2, {4, 3}},
    {"turned", mul_turned, 2, {4, 3}},
};

static void writes_are_those_of_plain_tensors(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < LEN(writes); i++) {
        op_case c = {
            .name = writes[i].name, .operands = 2, .ndim = {2, writes[i].ndim}, .shape = {{4, 3}}};
        memcpy(c.shape[1], writes[i].shape, sizeof writes[i].shape);
        sherd_tensor *in[] = {plain_operand(world, &c, 0, NULL), plain_operand(world, &c, 1, NULL)};
        double want[12];
        copy_values(want, writes[i].run(in[0], in[1]));
        int64_t step, all = combinations(mesh, &c, 400, &step);
        for (int64_t number = 0; number < all; number += step) {
            sherd_scope_begin(world);
            place_all(mesh, &c, number, in);
            const sherd_layout *layout = in[0]->layout;
            int64_t version = in[0]->storage->version;
            CHECK(writes[i].run(in[0], in[1]) == in[0]);
            CHECK(in[0]->layout == layout && in[0]->storage->version > version);
            if (!CHECK(distance(sherd_full(in[0]), want, 12) <= 1e-12)) {
                say_layouts(&c, in);
                number = all;
            }
            sherd_scope_end(world);
        }
        if (!CHECK_OK(sherd_world_check(world)))
            say_error(world);
    }
}

static void a_write_is_seen_through_all_views(sherd_world *world)
{
    sherd_tensor *t = sherd_constant(world, SHERD_F32, SIZES(4), 1, 1);
    sherd_tensor *head = sherd_narrow(t, 0, 0, 3), *tail = sherd_narrow(t, 0, 1, 3);
    static const float want[] = {1, 2, 3, 4};

    /* b is another part of what is written: each element as it was before. */
    sherd_add_to(tail, head);
    sherd_add_to(sherd_narrow(t, 0, 2, 2), sherd_constant(world, SHERD_F32, NULL, 0, 1));
    sherd_add_to(sherd_narrow(t, 0, 3, 1), sherd_constant(world, SHERD_F32, NULL, 0, 1));
    CHECK(memcmp(sherd_tensor_read(t), want, sizeof want) == 0);
    sherd_tensor *whole = sherd_constant(world, SHERD_I32, SIZES(2, 2), 2, 0);
    sherd_copy_from(sherd_select(whole, 1, 0), sherd_narrow(t, 0, 2, 2));
    CHECK_EQ(((const int32_t *)sherd_tensor_read(whole))[2], 4);
    sherd_fill(sherd_select(whole, 0, 0), 7);
    CHECK_EQ(((const int32_t *)sherd_tensor_read(whole))[1], 7);
    CHECK_EQ(((const int32_t *)sherd_tensor_read(whole))[2], 4);
    CHECK_OK(sherd_world_check(world));
}

/* ---- the tape -------------------------------------------------------------------------------- */

static void saved_tensors_notice(sherd_world *world)
{
    sherd_tensor *t = sherd_require_grad(sherd_constant(world, SHERD_F64, SIZES(3), 1, 2), true);
    sherd_tensor *loss = sherd_sum(sherd_mul(t, t));

    CHECK(!sherd_tensor_failed(sherd_fill(sherd_detach(t), 5)));
    sherd_backward(loss);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "written") != NULL);
}

static void no_gradient_is_lost_in_silence(sherd_world *world)
{
    sherd_tensor *t = sherd_require_grad(sherd_constant(world, SHERD_F64, SIZES(3), 1, 2), true);
    sherd_tensor *b = sherd_constant(world, SHERD_F64, SIZES(3), 1, 2), *y = sherd_scale(t, 2);

    sherd_add_to(t, b);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_add_to: a is a leaf that wants a gradient: stop "
                                           "recording (sherd_set_recording) to write it: a is "
                                           "f64[3], b is f64[3]") != NULL);
    sherd_mul_by(y, b);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_mul_by: a gradient would be lost") != NULL);
    sherd_copy_from(b, t);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_set_recording(world, false);
    CHECK(sherd_add_to(t, b) == t);
    sherd_set_recording(world, true);
    CHECK_EQ(((const double *)sherd_tensor_read(t))[0], 4);
    CHECK_OK(sherd_world_check(world));
}

/* What was moved and then written is saved as it is, not as what it was moved from. */
static void a_written_result_of_a_move_is_itself(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *rows = NULL, *whole = NULL;

    CHECK_OK(sherd_layout_parse_placements(&rows, mesh, 1, SIZES(4), "S(0)", NULL));
    CHECK_OK(sherd__replicated(&whole, mesh, 1, SIZES(4)));
    sherd_tensor *w = sherd_require_grad(sherd_constant_on(whole, SHERD_F64, 1), true);
    sherd_tensor *y = sherd_redistribute(sherd_constant_on(rows, SHERD_F64, 1), whole, NULL);
    sherd_fill(sherd_detach(y), 3);
    sherd_backward(sherd_sum(sherd_mul(w, y)));
    sherd_tensor *g = sherd_grad(w);
    CHECK(g && ((const double *)sherd_tensor_read(g))[3] == 3);
    CHECK_OK(sherd_world_check(world));
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static void ranks_that_write_different_things_are_found(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *whole = NULL;

    CHECK_OK(sherd__replicated(&whole, mesh, 1, SIZES(4)));
    sherd_tensor *t = sherd_constant_on(whole, SHERD_F64, 1);
    CHECK_OK(sherd_world_check(world));
    sherd_fill(t, sherd_world_rank(world) == 1 ? 3 : 4);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    t = sherd_constant_on(whole, SHERD_F64, 1);
    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) != 1)
        sherd_add_to(t, t);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
}

/*
 * What one rank alone has written through a view is seen through every other: none of them is left
 * to be read there.
 */
static void a_write_that_is_lost_is_lost_in_all_views(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *whole = NULL;
    bool alone = sherd_world_rank(world) == 0;

    CHECK_OK(sherd__replicated(&whole, mesh, 1, SIZES(4)));
    for (int way = 0; way < 3; way++) {
        sherd_tensor *t = sherd_constant_on(whole, SHERD_F64, 1), *kept = sherd_scale(t, 2);
        sherd_tensor *part = sherd_narrow(t, 0, 0, 2), *other = sherd_detach(t);
        CHECK_OK(sherd_world_check(world));
        if (alone)
            sherd_fill(way ? t : part, 5);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        CHECK(sherd_tensor_failed(t) && sherd_tensor_failed(part) && sherd_tensor_failed(other));
        CHECK_EQ(sherd_item(sherd_sum(kept)), 8);
        CHECK_OK(sherd_world_check(world));
        sherd_scale(way == 2 ? part : other, 2);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    }
}

static void only_sums_can_be_written(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *most = NULL;

    CHECK_OK(sherd_layout_parse_placements(&most, mesh, 1, SIZES(4), "P(max)", NULL));
    sherd_tensor *t = sherd__new_on(most, SHERD_F64);
    sherd_fill(t, 1);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK(strstr(sherd_world_error(world), "sherd_fill: only a pending sum can be written") !=
          NULL);
}

static void scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *rows = NULL, *whole = NULL;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "x=3") == SHERD_OK &&
        sherd_layout_parse_placements(&rows, mesh, 2, SIZES(4, 3), "S(0)", NULL) == SHERD_OK &&
        sherd__replicated(&whole, mesh, 2, SIZES(4, 3)) == SHERD_OK) {
        sherd_tensor *t = sherd_constant_on(whole, SHERD_F64, 1);
        sherd_add_to(sherd_transpose(t, 0, 1),
                     sherd_transpose(sherd_constant_on(rows, SHERD_F64, 2), 0, 1));
        sherd_copy_from(t, sherd_constant(world, SHERD_F32, NULL, 0, 1));
        sherd_full(t);
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 1, scene);
}

/* Pending sums too; only their addends are written. */
static void scaled_in_place_is_scaled(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};
    static const char *const ways[] = {"R", "S(0)", "P"};

    for (int i = 0; i < LEN(dtypes) * LEN(ways); i++) {
        const char *way = ways[i / LEN(dtypes)];
        sherd_dtype dtype = dtypes[i % LEN(dtypes)];
        double x[15], y[15];
        sherd_scope_begin(world);
        const sherd_layout *layout = layout_of(line_of_ranks(world), 2, SIZES(5, 3), way, NULL);
        sherd_tensor *t = indices_on(layout, dtype), *scaled = sherd_scale(t, 0.3);
        CHECK(sherd_scale_by(t, 0.3) == t && sherd_tensor_layout(t) == layout);
        CHECK(sherd_full_read(x, sizeof x, t, SHERD_F64, -1));
        CHECK(sherd_full_read(y, sizeof y, scaled, SHERD_F64, -1));
        CHECK(memcmp(x, y, sizeof x) == 0);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* What C computes modulo 2^bits; of bool whether it is not 0. */
static int64_t kept(sherd_dtype dtype, uint64_t value)
{
    return dtype == SHERD_I32  ? (int32_t)(uint32_t)value
           : dtype == SHERD_U8 ? (uint8_t)value
           : dtype == SHERD_I8 ? (int8_t)value
                               : (int64_t)(dtype == SHERD_BOOL ? value != 0 : value);
}

static sherd_tensor *of_columns(sherd_tensor *t)
{
    return sherd_narrow(t, 1, 1, 2); /* strided */
}

static bool holds_integers(sherd_tensor *t, sherd_dtype dtype, const uint64_t want[15])
{
    int64_t got[15], wrong = 0;

    if (!CHECK(sherd_full_read(got, sizeof got, t, SHERD_I64, -1)))
        return false;
    for (int i = 0; i < 15; i++)
        wrong += got[i] != kept(dtype, want[i]);
    return wrong == 0;
}

/* Integers and bool, as operators compute them: all layouts, whole tensors and strided views. */
static void integers_are_written_too(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_I32, SHERD_I64, SHERD_U8, SHERD_BOOL, SHERD_I8};
    static const char *const ways[] = {"R", "S(0)", "S(1)", "P"};

    for (int i = 0; i < LEN(dtypes) * LEN(ways); i++) {
        sherd_dtype dtype = dtypes[i % LEN(dtypes)];
        const char *way = ways[i / LEN(dtypes)];
        uint64_t big = dtype == SHERD_I64 ? UINT64_C(1) << 53 : dtype == SHERD_I32 ? 1 << 30 : 1;
        uint64_t want[15];
        sherd_scope_begin(world);
        const sherd_layout *layout = layout_of(line_of_ranks(world), 2, SIZES(5, 3), way, NULL);
        sherd_tensor *t = sherd_constant_on(layout, dtype, 1);
        sherd_tensor *two = sherd_constant(world, dtype, SIZES(2), 1, dtype == SHERD_BOOL ? 1 : 2);
        CHECK(sherd_add_to(t, sherd_constant(world, dtype, NULL, 0, (double)big)) == t);
        sherd_add_to(of_columns(t), two);
        sherd_mul_by(of_columns(t), two);
        sherd_scale_by(t, dtype == SHERD_BOOL ? 1 : 7);
        for (int k = 0; k < 15; k++)
            want[k] = dtype == SHERD_BOOL ? 1 : 7 * (k % 3 ? (1 + big + 2) * 2 : 1 + big);
        CHECK(holds_integers(t, dtype, want));
        sherd_scale_by(of_columns(t), 0);
        for (int k = 0; k < 15; k++)
            want[k] = k % 3 ? 0 : want[k];
        CHECK(holds_integers(t, dtype, want));
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
    sherd_scale_by(sherd_constant(world, SHERD_I32, SIZES(3), 1, 1), 0.5);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_scale_by: 0.5 is no i32: a is i32[3]") != NULL);
    sherd_fill(sherd_constant(world, SHERD_I32, SIZES(3), 1, 1), 2147483648.0);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_fill: 2147483648 is no i32: a is") != NULL);
}

/*
 * Data of unknown origin, written through one view of plain storage, is seen through the others: so
 * these no longer pass for equal on all ranks. Views that share no element with it do.
 */
static void all_views_vary_with_what_is_written(sherd_world *world)
{
    const double here[] = {sherd_world_rank(world), 1};
    const int32_t row[] = {0};

    for (int how = 0; how < 4; how++) {
        sherd_tensor *t = sherd_constant(world, SHERD_F64, SIZES(2, 3), 2, 0);
        sherd_tensor *apart = sherd_narrow(t, 0, 1, 1), *alias = sherd_detach(t);
        sherd_tensor *part = sherd_view(sherd_narrow(t, 0, 0, 1), SIZES(1, 3, 1), 3);
        sherd_tensor *new = sherd_from_data(world, SHERD_F64, SIZES(1, 1, 1), 3, here);
        sherd_tensor *written = sherd_narrow(part, 1, 1, 1);
        sherd_tensor *index = sherd_from_data(world, SHERD_I32, SIZES(1, 1), 2, row);
        if (how == 3)
            CHECK(sherd_tensor_write(written) != NULL);
        else
            CHECK(!sherd_tensor_failed(how == 0   ? sherd_copy_from(written, new)
                                       : how == 1 ? sherd_add_to(written, new)
                                                  : sherd_write_rows(written, index, new)));
        CHECK(written->varies && part->varies && t->varies && alias->varies);
        CHECK(!apart->varies);
        sherd_fill(t, 1); /* t is equal again; of the others nobody knows */
        CHECK(!t->varies && alias->varies);
        CHECK_OK(sherd_world_check(world));
    }
}

static const check_test tests[] = {
    {TEST(all_views_vary_with_what_is_written), {1, 2}},
    {TEST(writes_are_those_of_plain_tensors), {1, 2, 3, 4}},
    {TEST(scaled_in_place_is_scaled), {1, 2, 3, 4, 8}},
    {TEST(integers_are_written_too), {1, 2, 3, 4, 8}},
    {TEST(a_write_is_seen_through_all_views), {1}},
    {TEST(saved_tensors_notice), {1}},
    {TEST(no_gradient_is_lost_in_silence), {1}},
    {TEST(a_written_result_of_a_move_is_itself), {2, 3}},
    {TEST(ranks_that_write_different_things_are_found), {2, 3}},
    {TEST(a_write_that_is_lost_is_lost_in_all_views), {2, 3, 4}},
    {TEST(only_sums_can_be_written), {2}},
    {TEST(no_memory_on_one_rank_fails_on_all), {3}},
};
CHECK_MAIN(tests)
