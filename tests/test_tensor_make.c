/* SPDX-License-Identifier: Apache-2.0 */
/* What tensors are: factories, views, what they say of themselves, reading and writing, failing. */
#include "sherd/values.h"
#include "tensors.h"

#include <math.h>

#include "base/num.h"

static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 1}, {2, 3}, {4, 0}};

static void copied_data_is_read_back(sherd_world *world)
{
    for (int dtype = SHERD_DTYPE_NONE + 1; dtype < SHERD_DTYPES; dtype++)
        for (int s = 0; s < LEN(shapes); s++) {
            unsigned char data[8 * 40] = {0};
            int64_t n = shapes[s][0] * shapes[s][1];
            for (int64_t i = 0; i < n; i++)
                set_number(data, (sherd_dtype)dtype, i, (double)i);
            sherd_tensor *t = sherd_from_data(world, (sherd_dtype)dtype, shapes[s], 2, data);
            CHECK_EQ(sherd_tensor_count(t), n);
            CHECK_EQ(t->varies, (unsigned)SHERD__VARIES);
            const void *read = sherd_tensor_read(t);
            CHECK(read != NULL);
            CHECK_EQ(memcmp(read, data, (size_t)n * sherd_dtype_bytes((sherd_dtype)dtype)), 0);
        }
    CHECK_OK(sherd_world_check(world));
}

static void fills_hold_one_value(sherd_world *world)
{
    static const double values[SHERD_DTYPES] = {0, 2.5, -3.25, 1.5, -6, 7, -8, 9, 1, -9};

    for (int dtype = SHERD_DTYPE_NONE + 1; dtype < SHERD_DTYPES; dtype++)
        for (int s = 0; s < LEN(shapes); s++) {
            sherd_tensor *t =
                sherd_constant(world, (sherd_dtype)dtype, shapes[s], 2, values[dtype]);
            CHECK_EQ(t->varies, 0);
            for (int64_t i = 0; i < t->count; i++)
                CHECK(number_at(sherd_tensor_read(t), t->dtype, i) == values[dtype]);
        }
    sherd_tensor *scalar = sherd_constant(world, SHERD_F64, NULL, 0, 6);
    CHECK_EQ(sherd_tensor_count(scalar), 1);
    CHECK(sherd_item(scalar) == 6);
    int64_t nothing[3] = {0, 1LL << 40, 1LL << 40};
    sherd_tensor *empty = sherd_constant(world, SHERD_F64, nothing, 3, 6);
    CHECK(sherd_tensor_read(empty) != NULL && sherd_tensor_write(empty) != NULL);
    CHECK_EQ(sherd_tensor_count(empty), 0);
    CHECK_OK(sherd_world_check(world));
}

/* Also where the sum is pending: the sum of all ranks' addends is the value. */
static void a_distributed_fill_is_the_value_once(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const char *const placements[] = {"RR", "S(0)S(1)", "P(sum)R", "S(1)P(sum)",
                                             "P(sum)P(sum)"};

    for (int s = 0; s < LEN(shapes); s++)
        for (int p = 0; p < LEN(placements); p++) {
            const sherd_layout *layout = layout_of(mesh, 2, shapes[s], placements[p], NULL);
            const sherd_layout *whole = layout_of(mesh, 2, shapes[s], "RR", NULL);
            sherd_tensor *t =
                sherd__move_to(sherd_constant_on(layout, SHERD_F32, 2.5), whole, false);
            CHECK_EQ(t->count, shapes[s][0] * shapes[s][1]);
            const void *data = sherd_tensor_read(t);
            for (int64_t i = 0; i < t->count; i++)
                CHECK(number_at(data, SHERD_F32, i) == 2.5);
        }
    CHECK_OK(sherd_world_check(world));
}

/* Each rank's box of a distributed draw equals the same box of the plain draw of the same call. */
static void random_numbers_do_not_depend_on_the_layout(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const char *const placements[] = {"RR", "S(0)S(1)", "S(1)R", "S(0)S(0)", "S(1)S(0)"};
    static const int64_t many[][3] = {{8, 4, 6}, {7, 5, 3}, {1, 1, 9}, {4, 0, 2}};

    for (int s = 0; s < LEN(many); s++)
        for (int p = 0; p < LEN(placements); p++)
            for (int normal = 0; normal < 2; normal++) {
                sherd_generator a = sherd_generator_named("a.b"), b = a;
                const sherd_layout *layout = layout_of(mesh, 3, many[s], placements[p], NULL);
                a.calls = b.calls = (uint64_t)s;
                sherd_distribution d = normal ? sherd_normal(1, 2) : sherd_uniform(-1, 1);
                sherd_tensor *plain = sherd_random(world, SHERD_F32, many[s], 3, d, &a);
                sherd_tensor *t = sherd_random_on(layout, SHERD_F32, d, &b);
                sherd_box box = sherd_tensor_box(t);
                const float *x = sherd_tensor_read(plain), *y = sherd_tensor_read(t);
                int64_t wrong = 0;
                for (int64_t i = 0; i < t->count; i++)
                    wrong += memcmp(&y[i], &x[global_of(&box, many[s], i)], sizeof *y) != 0;
                CHECK_EQ(wrong, 0);
                CHECK_EQ(a.calls, b.calls);
                CHECK_EQ(a.calls, s + 1);
                CHECK_EQ(plain->varies, 0);
            }
    CHECK_OK(sherd_world_check(world));
}

static void calls_of_a_generator_differ(sherd_world *world)
{
    sherd_generator a = sherd_generator_named("x"), b = sherd_generator_named("y");
    int64_t n = 1000;
    double mean = 0;
    sherd_tensor *t[3] = {sherd_random(world, SHERD_F64, &n, 1, sherd_normal(3, 0.5), &a),
                          sherd_random(world, SHERD_F64, &n, 1, sherd_normal(3, 0.5), &a),
                          sherd_random(world, SHERD_F64, &n, 1, sherd_normal(3, 0.5), &b)};

    for (int i = 0; i < 3; i++)
        for (int j = 0; j < i; j++)
            CHECK(memcmp(sherd_tensor_read(t[i]), sherd_tensor_read(t[j]), 8000) != 0);
    for (int i = 0; i < 1000; i++)
        mean += ((const double *)sherd_tensor_read(t[0]))[i] / 1000;
    CHECK_NEAR(mean, 3, 0.1);
    CHECK_OK(sherd_world_check(world));
}

static void wrong_arguments_are_refused(sherd_world *world)
{
    int64_t bad[2] = {3, -1}, huge[3] = {1LL << 31, 1LL << 31, 4}, good[2] = {2, 2};
    int64_t deep[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    sherd_generator g = sherd_generator_named("g");
    struct {
        sherd_tensor *t;
        sherd_status status;
    } cases[] = {
        {sherd_constant(world, SHERD_F32, bad, 2, 0), SHERD_EINVAL},
    };

    CHECK(sherd_tensor_failed(cases[0].t));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "dim 1 has size -1") != NULL);
    CHECK(sherd_tensor_failed(sherd_constant(world, SHERD_F32, huge, 3, 0)));
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    CHECK(sherd_tensor_failed(sherd_constant(world, SHERD_F32, deep, 9, 0)));
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    CHECK(sherd_tensor_failed(sherd_constant(world, (sherd_dtype)77, good, 2, 0)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_constant(world, SHERD_I32, good, 2, 1e12)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_from_data(world, SHERD_F32, good, 2, NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_random(world, SHERD_I32, good, 2, sherd_normal(0, 1), &g)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_random(world, SHERD_F32, good, 2, sherd_uniform(0, 1), NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_EQ(g.calls, 1);
    CHECK_OK(sherd_world_check(world));
}

static void the_failed_tensor_survives_every_getter(sherd_world *world)
{
    sherd_tensor *f = sherd__failed(world);
    sherd_box box = sherd_tensor_box(f);

    CHECK(sherd_tensor_failed(f));
    CHECK(sherd_tensor_world(f) == world);
    CHECK_EQ(sherd_tensor_ndim(f), 0);
    CHECK_EQ(sherd_tensor_count(f), 0);
    CHECK_EQ(sherd_tensor_shape(f)[0], 0);
    CHECK_EQ(box.ndim, 0);
    CHECK(sherd_tensor_layout(f) == NULL);
    CHECK(strlen(sherd_tensor_text(f)) > 0);
    CHECK(sherd_tensor_read(f) == NULL);
    CHECK(sherd_tensor_write(f) == NULL);
    CHECK(isnan(sherd_item(f)));
    CHECK(sherd_mark_equal(f) == f);
    CHECK(sherd_tensor_retain(f) == f);
    sherd_tensor_release(f);
    sherd_tensor_release(f);
    CHECK(sherd_scope_pass(f) == f);
    CHECK(sherd__new_view(f) == f);
    CHECK(sherd__contiguous(f) == f);
    CHECK(sherd__detached(f) == NULL);
    sherd_tensor_release(NULL);
    /* No check has told of a failure, yet a failed tensor was used: that is one. */
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
}

static void texts_name_dtype_shape_and_layout(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2,y=2");
    int64_t shape[2] = {8, 4};
    sherd_tensor *plain = sherd_constant(world, SHERD_I32, shape, 2, 0);
    sherd_tensor *t =
        sherd_constant_on(layout_of(mesh, 2, shape, "S(0)P(sum)", NULL), SHERD_F32, 0);

    CHECK_TEXT(sherd_tensor_text(plain), "i32[8,4]");
    CHECK_TEXT(sherd_tensor_text(sherd_constant(world, SHERD_F64, NULL, 0, 0)), "f64[]");
    CHECK_TEXT(sherd_tensor_text(t), "f32[8(x),4] P(sum:y) on (x=2,y=2)");
    CHECK_TEXT(sherd_tensor_text(t), "f32[8(x),4] P(sum:y) on (x=2,y=2)");
    CHECK_OK(sherd_world_check(world));
}

/* A view as transposing makes it. */
static sherd_tensor *transposed(sherd_tensor *t)
{
    sherd_tensor *v = sherd__new_view(t);
    for (int i = 0; i < 2; i++) {
        v->shape[i] = t->shape[1 - i];
        v->local[i] = t->local[1 - i];
        v->stride[i] = t->stride[1 - i];
    }
    return v;
}

static void a_view_is_compacted_to_be_read(sherd_world *world)
{
    int64_t shape[2] = {5, 3};
    sherd_tensor *t = indices_plain(world, SHERD_F32, 2, shape), *v = transposed(t);
    const float *first, *again;

    CHECK(sherd__is_contiguous(t));
    CHECK(!sherd__is_contiguous(v));
    CHECK(sherd__contiguous(t) == t);
    CHECK_EQ(t->storage->refs, 2);
    first = sherd_tensor_read(v);
    for (int i = 0; i < 15; i++)
        CHECK(first[i] == (float)(i % 5 * 3 + i / 5));
    ((float *)sherd_tensor_write(t))[1] = 99;
    CHECK_EQ(t->storage->version, 1);
    again = sherd_tensor_read(v);
    CHECK(again == first);
    CHECK(again[5] == 99);
    CHECK(sherd_tensor_write(v) == NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_tensor *c = sherd__contiguous(v);
    CHECK(sherd__is_contiguous(c) && c->storage != t->storage);
    CHECK_EQ(memcmp(sherd_tensor_read(c), again, sizeof(float) * 15), 0);
    CHECK_OK(sherd_world_check(world));
}

static void dims_of_one_do_not_make_a_view_strided(sherd_world *world)
{
    int64_t shape[2] = {5, 1}, none[2] = {0, 7};

    CHECK(sherd__is_contiguous(transposed(indices_plain(world, SHERD_F32, 2, shape))));
    CHECK(sherd__is_contiguous(transposed(indices_plain(world, SHERD_F32, 2, none))));
    CHECK_OK(sherd_world_check(world));
}

static void writing_makes_a_plain_tensor_vary(sherd_world *world)
{
    int64_t n = 3;
    sherd_tensor *t = sherd_constant(world, SHERD_F32, &n, 1, 0);

    CHECK(sherd__mutable(t) != NULL);
    CHECK_EQ(t->varies, 0);
    CHECK(sherd_tensor_write(t) != NULL);
    CHECK_EQ(t->varies, (unsigned)SHERD__VARIES);
    CHECK_EQ(t->storage->version, 2);
    CHECK(sherd_mark_equal(t) == t);
    CHECK_EQ(t->varies, 0);
    CHECK_OK(sherd_world_check(world));
}

static void the_alarm_hides_distributed_elements_only(sherd_world *world)
{
    const int64_t shape[2] = {4, 3};
    sherd_tensor *plain = sherd_constant(world, SHERD_F32, shape, 2, 1);
    sherd_tensor *split =
        sherd_constant_on(layout_of(mesh_of(world, "2"), 2, shape, "S(0)", NULL), SHERD_F32, 1);

    sherd_world_fail(world, SHERD_EINVAL, "a failure of the program");
    CHECK(sherd_tensor_read(split) == NULL && sherd_tensor_write(split) == NULL);
    CHECK(sherd_tensor_read(plain) != NULL && sherd_tensor_write(plain) != NULL);
    CHECK(!sherd_tensor_failed(split));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_read(split) != NULL);
    CHECK_OK(sherd_world_check(world));
}

static void an_item_is_the_value_everywhere(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    int64_t one[2] = {1, 1}, two[1] = {2};
    static const char *const placements[] = {"RR", "S(0)S(1)", "S(1)R", "P(sum)R", "P(sum)P(sum)"};

    for (int p = 0; p < LEN(placements); p++) {
        const sherd_layout *layout = layout_of(mesh, 2, one, placements[p], NULL);
        sherd_tensor *t = sherd_constant_on(layout, SHERD_F64, 5.5);
        CHECK(sherd_item(t) == 5.5);
        int64_t live = sherd_world_memory(world).live_bytes;
        CHECK(sherd_item(t) == 5.5);
        CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    }
    CHECK(sherd_item(sherd_constant(world, SHERD_I32, one, 2, -3)) == -3);
    CHECK(sherd_item(sherd_constant(world, SHERD_BOOL, one, 2, 1)) == 1);
    CHECK_OK(sherd_world_check(world));
    CHECK(isnan(sherd_item(sherd_constant(world, SHERD_F32, two, 1, 1))));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_OK(sherd_world_check(world));
}

/* Of what is plain, one rank may be wrong: it stops no other before the check. */
static void a_plain_item_is_refused_where_it_is(sherd_world *world)
{
    int64_t two[1] = {2};

    if (sherd_world_rank(world) == 0) {
        CHECK(isnan(sherd_item(sherd_constant(world, SHERD_F32, two, 1, 1))));
        CHECK(!sherd__alarmed(world));
    }
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_tensor *t =
        sherd_constant_on(layout_of(line_of_ranks(world), 1, two, "R", NULL), SHERD_F64, 3);
    CHECK(isnan(sherd_item(t)));
    CHECK(sherd__alarmed(world));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_OK(sherd_world_check(world));
}

static void only_what_does_not_vary_is_promoted(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    int64_t shape[2] = {3, 2};
    sherd_tensor *equal = sherd_constant(world, SHERD_F32, shape, 2, 4);
    sherd_tensor *p = sherd__promote(equal, mesh, "test");

    CHECK(p->layout == layout_of(mesh, 2, shape, "RR", NULL));
    CHECK(p->storage == equal->storage);
    CHECK(sherd__promote(p, mesh, "test") == p);
    CHECK_OK(sherd_world_check(world));
    CHECK(sherd_tensor_failed(
        sherd__promote(indices_plain(world, SHERD_F32, 2, shape), mesh, "test")));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_mark_equal") != NULL);
    CHECK(sherd_tensor_failed(sherd_mark_equal(p)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);

    sherd_tensor *piece =
        sherd__local_view(indices_on(layout_of(mesh, 2, shape, "S(0)R", NULL), SHERD_F32));
    CHECK_EQ(piece->varies, 1);
    const sherd_mesh *thin = mesh_of(world, "1x4");
    piece = sherd__local_view(indices_on(layout_of(thin, 2, shape, "S(0)R", NULL), SHERD_F32));
    CHECK_EQ(piece->varies, 0);
    CHECK(!sherd_tensor_failed(sherd__promote(piece, thin, "test")));
    piece = sherd__local_view(indices_on(layout_of(mesh, 2, shape, "S(0)R", NULL), SHERD_F32));
    CHECK_OK(sherd_world_check(world));
    CHECK(sherd_tensor_failed(sherd__promote(piece, mesh, "test")));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "axis a0") != NULL);
    CHECK_OK(sherd_world_check(world));
}

/* A failure of plain tensors is reported by the check, though it raised no alarm. */
static void a_local_failure_meets_a_distributed_operand(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[1] = {4}, bad[1] = {-4};
    sherd_tensor *d = indices_on(layout_of(mesh, 1, shape, "S(0)", NULL), SHERD_F32);
    sherd_tensor *operands[2] = {d, d};

    CHECK(!sherd__stop(world, "test", operands, 2));
    operands[1] = NULL;
    CHECK(!sherd__stop(world, "test", operands, 2));
    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == 0) {
        operands[1] = sherd_constant(world, SHERD_F32, bad, 1, 0);
        CHECK(!sherd__alarmed(world));
        CHECK(sherd__stop(world, "test", operands + 1, 1));
        CHECK(!sherd__alarmed(world));
        CHECK(sherd__stop(world, "test", operands, 2));
        CHECK(sherd__alarmed(world));
        CHECK(sherd_tensor_read(d) == NULL);
        CHECK(sherd_tensor_write(d) == NULL);
    }
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "rank 0") != NULL);
    CHECK_OK(sherd_world_check(world));
}

/* As a tensor of global indices that is there. */
static void each_rank_gives_what_it_has(sherd_world *world)
{
    static const int64_t sizes[][2] = {{8, 3}, {7, 2}, {1, 5}, {0, 3}};
    static const char *const ways[] = {"R", "S(0)", "S(1)", "P"};

    for (int i = 0; i < LEN(sizes) * LEN(ways); i++) {
        const int64_t *shape = sizes[i / LEN(ways)];
        double data[24], whole[24], expected[24];
        sherd_scope_begin(world);
        const sherd_layout *layout =
            layout_of(line_of_ranks(world), 2, shape, ways[i % LEN(ways)], NULL);
        sherd_tensor *t = indices_on(layout, SHERD_F64);
        int64_t n = sherd_tensor_local_count(t);
        CHECK_EQ(n, sherd_tensor_size(t, 0) * sherd_tensor_size(t, 1));
        const void *from = sherd_tensor_read(t);
        if (n)
            memcpy(data, from, (size_t)n * sizeof *data);
        sherd_tensor *y = sherd_from_data_on(layout, SHERD_F64, n ? data : NULL);
        CHECK(sherd_tensor_layout(y) == layout);
        CHECK_EQ(sherd_tensor_local_count(y), n);
        memset(data, 0xFF, sizeof data);
        CHECK(sherd_full_read(expected, sizeof expected, t, SHERD_F64, -1));
        CHECK(sherd_full_read(whole, sizeof whole, y, SHERD_F64, -1));
        for (int64_t j = 0; j < shape[0] * shape[1]; j++)
            CHECK(whole[j] == expected[j]);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

static void a_rank_without_its_data_is_told_on_all(sherd_world *world)
{
    const sherd_layout *layout = layout_of(line_of_ranks(world), 1, (int64_t[]){4}, "R", NULL);
    const float data[4] = {0};
    bool last = sherd_world_rank(world) == sherd_world_ranks(world) - 1;

    sherd_from_data_on(layout, SHERD_F32, last ? NULL : data);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_from_data_on: data is NULL") != NULL);
}

static void a_paper_world_has_no_tensors(sherd_world *world)
{
    sherd_world *paper = NULL;
    int64_t shape[1] = {4};

    CHECK_OK(sherd_world_paper(&paper, 1000));
    CHECK(sherd_tensor_failed(sherd_constant(paper, SHERD_F32, shape, 1, 0)));
    CHECK_EQ(sherd_world_close(paper), SHERD_ENOTSUP);
    CHECK_OK(sherd_world_check(world));
}

static void outside_of_the_mesh_a_tensor_is_empty(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "a=2@1,2");
    int64_t shape[2] = {4, 2};
    bool inside = sherd_world_rank(world) != 0;
    sherd_tensor *t = sherd_constant_on(layout_of(mesh, 2, shape, "R", NULL), SHERD_F32, 1);
    sherd_tensor *s = sherd_constant_on(layout_of(mesh, 0, NULL, "R", NULL), SHERD_F32, 1);

    CHECK_EQ(t->count, inside ? 8 : 0);
    CHECK_EQ(s->count, inside ? 1 : 0);
    CHECK_EQ(sherd_tensor_count(s), 1);
    CHECK(sherd_tensor_read(s) != NULL);
    CHECK(inside ? sherd_item(s) == 1 : isnan(sherd_item(s)));
    CHECK_EQ(sherd__local_view(s)->count, inside ? 1 : 0);
    CHECK_EQ(sherd_tensor_count(sherd__local_view(s)), inside ? 1 : 0);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(copied_data_is_read_back), {1, 2}},
    {TEST(fills_hold_one_value), {1, 2}},
    {TEST(each_rank_gives_what_it_has), {1, 2, 3, 4, 8}},
    {TEST(a_rank_without_its_data_is_told_on_all), {1, 2, 3}},
    {TEST(a_distributed_fill_is_the_value_once), {4}},
    {TEST(random_numbers_do_not_depend_on_the_layout), {4}},
    {TEST(calls_of_a_generator_differ), {1, 2}},
    {TEST(wrong_arguments_are_refused), {1, 3}},
    {TEST(the_failed_tensor_survives_every_getter), {1, 2}},
    {TEST(texts_name_dtype_shape_and_layout), {4}},
    {TEST(a_view_is_compacted_to_be_read), {1, 2}},
    {TEST(dims_of_one_do_not_make_a_view_strided), {1}},
    {TEST(writing_makes_a_plain_tensor_vary), {1, 2}},
    {TEST(the_alarm_hides_distributed_elements_only), {2}},
    {TEST(a_plain_item_is_refused_where_it_is), {1, 2, 3}},
    {TEST(an_item_is_the_value_everywhere), {4}},
    {TEST(only_what_does_not_vary_is_promoted), {4}},
    {TEST(a_local_failure_meets_a_distributed_operand), {2, 3}},
    {TEST(a_paper_world_has_no_tensors), {1}},
    {TEST(outside_of_the_mesh_a_tensor_is_empty), {3}},
};
CHECK_MAIN(tests)
