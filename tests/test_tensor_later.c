/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors left for later: what they hold, when they take memory, what a rank draws that keeps only
 * its box. */
#include "tensors.h"

static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 1}, {2, 3}, {4, 0}};

static int64_t live(sherd_world *world)
{
    return sherd_world_memory(world).live_bytes;
}

static int64_t bytes_of(const sherd_tensor *t)
{
    return t->count * (int64_t)sherd_dtype_bytes(t->dtype);
}

/* The same tensor now and later. `kind`: a constant, uniform or normal numbers. */
static void make_both(sherd_tensor *out[2], sherd_world *world, sherd_dtype dtype,
                      const int64_t *shape, int kind)
{
    sherd_generator a = sherd_generator_named("later"), b = a;
    sherd_distribution d = kind == 1 ? sherd_uniform(-1, 1) : sherd_normal(1, 2);

    a.calls = b.calls = 3;
    if (kind == 0) {
        out[0] = sherd_constant(world, dtype, shape, 2, 1);
        out[1] = sherd_constant_later(world, dtype, shape, 2, 1);
    } else {
        out[0] = sherd_random(world, dtype, shape, 2, d, &a);
        out[1] = sherd_random_later(world, dtype, shape, 2, d, &b);
        CHECK_EQ(b.calls, 4);
    }
}

static bool same_data(sherd_tensor *a, sherd_tensor *b)
{
    const void *x = sherd_tensor_read(a), *y = sherd_tensor_read(b);
    return x && y && memcmp(x, y, (size_t)bytes_of(a)) == 0;
}

static void memory_comes_with_the_first_look(sherd_world *world)
{
    for (int dtype = SHERD_DTYPE_NONE + 1; dtype < SHERD_DTYPES; dtype++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int kind = 0; kind < (dtype < SHERD_I32 ? 3 : 1); kind++) {
                sherd_tensor *t[2];
                sherd_scope_begin(world);
                make_both(t, world, (sherd_dtype)dtype, shapes[s], kind);
                int64_t before = live(world);
                CHECK_EQ(sherd_tensor_count(t[1]), shapes[s][0] * shapes[s][1]);
                CHECK_EQ(sherd_tensor_dtype(t[1]), dtype);
                CHECK_TEXT(sherd_tensor_text(t[1]), sherd_tensor_text(t[0]));
                CHECK_EQ(t[1]->varies, 0);
                CHECK_EQ(live(world), before);
                CHECK(same_data(t[0], t[1]));
                CHECK_EQ(live(world), before + bytes_of(t[0]));
                CHECK(sherd_tensor_read(t[1]) == sherd_tensor_read(t[1]));
                sherd_scope_end(world);
            }
    CHECK_OK(sherd_world_check(world));
}

static sherd_tensor *turned_view(sherd_tensor *t)
{
    sherd_tensor *turned = sherd__new_view(t);

    for (int d = 0; d < 2; d++) {
        turned->shape[d] = turned->local[d] = t->shape[1 - d];
        turned->stride[d] = t->stride[1 - d];
    }
    return turned;
}

/* Who writes one element finds the others there. */
static void a_writer_finds_the_values(sherd_world *world)
{
    sherd_tensor *t[2];

    make_both(t, world, SHERD_F32, shapes[1], 1);
    float *x = sherd_tensor_write(t[1]);
    if (CHECK(x != NULL))
        x[7] = ((const float *)sherd_tensor_read(t[0]))[7];
    CHECK(same_data(t[0], t[1]));
    CHECK_EQ(t[1]->varies, (unsigned)SHERD__VARIES);
    CHECK_OK(sherd_world_check(world));
}

/* Views share what is made, whoever looks first. */
static void views_are_made_with_their_tensor(sherd_world *world)
{
    for (int first = 0; first < 2; first++) {
        sherd_tensor *t[2];
        make_both(t, world, SHERD_F64, shapes[0], 2);
        sherd_tensor *turned = turned_view(t[1]);
        int64_t before = live(world);
        const double *a = first ? sherd_tensor_read(turned) : sherd_tensor_read(t[1]);
        const double *x = sherd_tensor_read(t[1]), *y = sherd_tensor_read(turned);
        CHECK(a != NULL);
        for (int i = 0; x && y && i < 32; i++)
            CHECK(x[i] == y[i % 4 * 8 + i / 4]);
        CHECK_EQ(live(world), before + 2 * bytes_of(t[0])); /* and the view's compact copy */
        CHECK(same_data(t[0], t[1]));
    }
    CHECK_OK(sherd_world_check(world));
}

/* Spread over a mesh each rank draws its box; the whole is never made. */
static void a_rank_draws_its_box_alone(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 4 ? "2x2" : "x=3");

    for (int dtype = SHERD_F32; dtype <= SHERD_F16; dtype++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int i = 0; i < 3 * lists_of(mesh, 2); i++) {
                const sherd_layout *layout = numbered(mesh, 2, shapes[s], i / 3);
                sherd_tensor *t[2];
                if (layout->pending_axes)
                    continue;
                sherd_scope_begin(world);
                make_both(t, world, (sherd_dtype)dtype, shapes[s], i % 3);
                int64_t before = live(world);
                sherd_world_memory_reset(world);
                sherd_tensor *box = sherd_distribute(t[1], layout, -1);
                CHECK_EQ(live(world), before + bytes_of(box));
                CHECK_EQ(sherd_world_memory(world).peak_bytes, live(world));
                CHECK(same_data(sherd_distribute(t[0], layout, -1), box));
                /* What is left of it is as good as before. */
                CHECK(same_data(t[0], t[1]));
                sherd_scope_end(world);
            }
    CHECK_OK(sherd_world_check(world));
}

/* From one rank, as a piece, as a strided view: the data is looked at, and right. */
static void other_ways_to_spread_it_work_too(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=3");
    const sherd_layout *rows = layout_of(mesh, 2, shapes[1], "S(0)", NULL);
    sherd_placement copies[] = {sherd_replicate()};
    sherd_tensor *t[2], *u[2];

    make_both(t, world, SHERD_F32, shapes[1], 2);
    CHECK(same_data(sherd_distribute(t[0], rows, 1), sherd_distribute(t[1], rows, 1)));
    make_both(t, world, SHERD_F32, shapes[1], 2);
    for (int i = 0; i < 2; i++)
        u[i] = sherd__move_to(sherd__from_local(t[i], mesh, copies, NULL), rows, false);
    CHECK(same_data(u[0], u[1]));
    make_both(t, world, SHERD_F32, (int64_t[]){5, 7}, 2);
    for (int i = 0; i < 2; i++)
        u[i] = sherd_distribute(turned_view(t[i]), rows, -1);
    CHECK(same_data(u[0], u[1]));
    CHECK_OK(sherd_world_check(world));
}

/*
 * Looking at what does not vary is this rank's own business: another rank may look later, or never.
 * And a rank that gets nothing of a view has no need to look.
 */
static void one_rank_may_look_before_the_others(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *rows = layout_of(mesh, 2, shapes[3], "S(0)", NULL);
    sherd_placement copies[] = {sherd_replicate()};
    bool looks = sherd_world_rank(world) == 0;
    sherd_tensor *t[2];

    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < 3; i++) {
            make_both(t, world, SHERD_F32, shapes[3], kind);
            if (looks)
                CHECK(sherd_tensor_read(t[1]) != NULL);
            if (i == 0)
                CHECK(
                    same_data(sherd_distribute(t[1], rows, -1), sherd_distribute(t[0], rows, -1)));
            else if (i == 1)
                CHECK(same_data(sherd__from_local(t[1], mesh, copies, NULL), t[0]));
            else
                CHECK(same_data(sherd__promote(t[1], mesh, "test"), t[0]));
            CHECK_OK(sherd_world_check(world));
        }
        make_both(t, world, SHERD_F32, (int64_t[]){3, 2}, kind);
        sherd_tensor *turned = turned_view(t[1]);
        CHECK(same_data(sherd_distribute(turned, rows, -1),
                        sherd_distribute(turned_view(t[0]), rows, -1)));
        CHECK_OK(sherd_world_check(world));
    }
}

/* Once it is written its description is that of something else. */
static void what_was_written_is_not_what_was_left(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *t = sherd_constant_later(world, SHERD_F32, shapes[3], 2, 1);

    if (sherd_world_rank(world) == 0)
        *(float *)sherd_tensor_write(t) = 2;
    sherd__promote(sherd_mark_equal(t), mesh, "test");
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
}

static void an_item_is_made_to_be_read(sherd_world *world)
{
    sherd_generator g = sherd_generator_named("g"), h = g;
    sherd_tensor *now = sherd_random(world, SHERD_F64, NULL, 0, sherd_normal(0, 1), &g);
    sherd_tensor *later = sherd_random_later(world, SHERD_F64, NULL, 0, sherd_normal(0, 1), &h);

    CHECK(sherd_item(later) == sherd_item(now));
    CHECK(sherd_item(sherd_constant_later(world, SHERD_I32, NULL, 0, 5)) == 5);
    CHECK_OK(sherd_world_check(world));
}

static void wrong_arguments_are_refused_at_once(sherd_world *world)
{
    int64_t bad[2] = {3, -1}, huge[3] = {1LL << 31, 1LL << 31, 4}, good[2] = {2, 2};
    sherd_generator g = sherd_generator_named("g");
    sherd_distribution d = sherd_normal(0, 1);

    CHECK(sherd_tensor_failed(sherd_constant_later(world, SHERD_F32, bad, 2, 0)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_constant_later: dim 1 has size -1") != NULL);
    CHECK(sherd_tensor_failed(sherd_random_later(world, SHERD_F32, huge, 3, d, &g)));
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    CHECK(sherd_tensor_failed(sherd_constant_later(world, SHERD_U8, good, 2, -1)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_random_later(world, SHERD_I32, good, 2, d, &g)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd_random_later(world, SHERD_F32, good, 2, d, NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_constant_later(NULL, SHERD_F32, good, 2, 0) == NULL);
    CHECK(sherd_random_later(NULL, SHERD_F32, good, 2, d, &g) == NULL);
    CHECK_OK(sherd_world_check(world));
}

/* There is no memory when it is needed: everybody learns of it, and later there may be. */
static void no_memory_for_it_raises_the_alarm(sherd_world *world)
{
    bool mine = sherd_world_rank(world) == 0;
    sherd_tensor *t[2];

    make_both(t, world, SHERD_F32, shapes[0], 1);
    for (int n = 1; n <= 2; n++) {
        sherd_world_fail_allocation(world, mine);
        const char *said = n == 1 ? "sherd_tensor_read: out of memory: a tensor of 128 bytes"
                                  : "sherd_tensor_write: out of memory: a tensor of 128 bytes";
        const void *data = n == 1 ? sherd_tensor_read(t[1]) : sherd_tensor_write(t[1]);
        CHECK_EQ(data == NULL, mine);
        sherd_world_fail_allocation(world, 0);
        CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
        CHECK(strstr(sherd_world_error(world), said));
    }
    CHECK(same_data(t[0], t[1]));
    CHECK_OK(sherd_world_check(world));
}

static void scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *rows = NULL;
    sherd_placement copies[] = {sherd_replicate()};
    sherd_tensor *t[2];

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "x=2") == SHERD_OK &&
        sherd_layout_parse_placements(&rows, mesh, 2, shapes[1], "S(0)", NULL) == SHERD_OK) {
        make_both(t, world, SHERD_F32, shapes[1], 1);
        sherd_distribute(t[1], rows, -1);
        sherd_distribute(t[1], rows, 0);
        make_both(t, world, SHERD_F32, shapes[1], 0);
        sherd__move_to(sherd__from_local(t[1], mesh, copies, NULL), rows, false);
        make_both(t, world, SHERD_F32, shapes[1], 2); /* never made */
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 0, scene);
    fail_every_allocation(world, 1, scene);
}

static const check_test tests[] = {
    {TEST(memory_comes_with_the_first_look), {1, 2}},
    {TEST(a_writer_finds_the_values), {1, 2}},
    {TEST(views_are_made_with_their_tensor), {1}},
    {TEST(a_rank_draws_its_box_alone), {3, 4}},
    {TEST(other_ways_to_spread_it_work_too), {3}},
    {TEST(one_rank_may_look_before_the_others), {1, 2, 3, 4}},
    {TEST(what_was_written_is_not_what_was_left), {2, 3}},
    {TEST(an_item_is_made_to_be_read), {1, 2}},
    {TEST(wrong_arguments_are_refused_at_once), {1, 2}},
    {TEST(no_memory_for_it_raises_the_alarm), {1, 2, 3}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2}},
};
CHECK_MAIN(tests)
