/* SPDX-License-Identifier: Apache-2.0 */
/* The whole of a tensor in memory of the caller's, on every rank or on one, in any dtype. */
#include "tensors.h"

#include "sherd/comm.h"

enum { MOST = 64 };

static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 3}, {4, 0}, {0, 5}};

/* All ranks as one axis, or as two. */
static const sherd_mesh *mesh_for(sherd_world *world, bool square)
{
    char text[32];
    int ranks = sherd_world_ranks(world), rows = square && ranks % 2 == 0 ? 2 : 1;

    snprintf(text, sizeof text, "x=%d,y=%d", rows, ranks / rows);
    return mesh_of(world, text);
}

/* Read on one rank (-1 = on all) what holds indices, with so many addends; what is behind must stay
 * as it was. */
static void check_read(sherd_tensor *t, int64_t addends, sherd_dtype dtype, int rank)
{
    double room[MOST + 1], before = -77;
    size_t bytes = sherd_dtype_bytes(dtype);
    int64_t count = sherd_tensor_count(t);
    bool mine = rank < 0 || rank == sherd_world_rank(t->world);

    for (int i = 0; i <= MOST; i++)
        set_number(room, dtype, i, before);
    before = number_at(room, dtype, 0);
    CHECK_EQ(sherd_full_read(room, (size_t)count * bytes, t, dtype, rank), mine);
    for (int64_t i = 0; i <= count; i++) {
        double wanted = mine && i < count ? whole_value(i, addends) : before;
        double cast = wanted;
        unsigned char one[8];
        set_number(one, dtype, 0, wanted);
        cast = number_at(one, dtype, 0);
        CHECK_EQ(number_at(room, dtype, i), cast);
    }
}

static void every_layout_is_read_whole(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world, true);

    for (int s = 0; s < LEN(shapes); s++)
        for (int i = 0; i < lists_of(mesh, 2); i++) {
            sherd_scope_begin(world);
            const sherd_layout *layout = numbered(mesh, 2, shapes[s], i);
            sherd_tensor *t = indices_on(layout, SHERD_F64);
            int64_t addends = addends_of(layout, (int64_t[SHERD_MAX_AXES]){0}, NULL);
            for (int rank = -1; rank < sherd_world_ranks(world); rank++)
                check_read(t, addends, SHERD_F64, rank);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

static void cuts_and_orders_are_no_matter(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2,y=2");
    static const char *const texts[][2] = {
        {"S(0)[1]S(0)[0]", NULL}, {"S(0)S(1)", "0:0,7;1:4,1"}, {"S(1)[1]S(1)[0]", "1:0,0,5,0"}};

    for (int i = 0; i < LEN(texts); i++)
        for (int rank = -1; rank < 4; rank++)
            check_read(
                indices_on(layout_of(mesh, 2, shapes[1], texts[i][0], texts[i][1]), SHERD_F32), 1,
                SHERD_F32, rank);
    CHECK_OK(sherd_world_check(world));
}

static void any_dtype_becomes_any_other(sherd_world *world)
{
    const sherd_layout *rows = layout_of(mesh_for(world, false), 2, shapes[0], "RS(0)", NULL);

    for (int from = SHERD_DTYPE_NONE + 1; from < SHERD_DTYPES; from++)
        for (int to = SHERD_DTYPE_NONE + 1; to < SHERD_DTYPES; to++) {
            if (from == SHERD_BOOL || to == SHERD_BOOL)
                continue; /* indices are no truths */
            sherd_scope_begin(world);
            check_read(indices_on(rows, (sherd_dtype)from), 1, (sherd_dtype)to, 0);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

static void scalars_plain_tensors_and_views_are_read(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world, false);
    const sherd_layout *scalar = layout_of(mesh, 0, NULL, "RP(sum)", NULL);
    int last = sherd_world_ranks(world) - 1;
    double x = -1;

    sherd_tensor *t = sherd_constant_on(scalar, SHERD_F32, 3);
    CHECK_EQ(sherd_full_read(&x, sizeof x, t, SHERD_F64, last), sherd_world_rank(world) == last);
    CHECK_EQ(x, sherd_world_rank(world) == last ? 3 : -1);
    CHECK(sherd_full_read(&x, sizeof x, t, SHERD_F64, -1));
    CHECK_EQ(x, 3);
    for (int rank = -1; rank <= last; rank++)
        check_read(indices_plain(world, SHERD_F64, 2, shapes[1]), 1, SHERD_F32, rank);
    sherd_tensor *view =
        sherd__new_view(indices_on(layout_of(mesh, 2, shapes[0], "RR", NULL), SHERD_F64));
    double turned[32];
    view->shape[0] = view->local[0] = 4; /* every second row */
    view->stride[0] *= 2;
    view->count = 16;
    sherd__layout_set(&view->layout, layout_of(mesh, 2, view->shape, "RR", NULL));
    CHECK(sherd_full_read(turned, sizeof turned, view, SHERD_DTYPE_NONE, -1));
    for (int i = 0; i < 16; i++)
        CHECK_EQ(turned[i], i / 4 * 8 + i % 4);
    CHECK_OK(sherd_world_check(world));
}

static int64_t received(sherd_world *world)
{
    int64_t bytes = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        bytes += sherd_comm_get(world, i).bytes_received;
    return bytes;
}

static void only_the_rank_that_asked_receives(sherd_world *world)
{
    const sherd_layout *rows = layout_of(mesh_for(world, false), 2, shapes[0], "RS(0)", NULL);
    int ranks = sherd_world_ranks(world), last = ranks - 1;
    sherd_tensor *t = indices_on(rows, SHERD_F64);
    int64_t live = sherd_world_memory(world).live_bytes;

    sherd_comm_reset(world);
    check_read(t, 1, SHERD_F64, last);
    CHECK_EQ(received(world), sherd_world_rank(world) == last ? (32 - t->count) * 8 : 0);
    CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    CHECK_OK(sherd_world_check(world));
}

static void a_rank_outside_of_the_mesh_reads_nothing(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2@1,0");
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shapes[0], "S(0)", NULL), SHERD_F64);
    bool inside = sherd_world_rank(world) < 2;
    double room[32] = {-1};

    CHECK_EQ(sherd_full_read(room, sizeof room, t, SHERD_DTYPE_NONE, -1), inside);
    CHECK_EQ(room[31], inside ? 31 : 0);
    CHECK(!sherd_full_read(room, sizeof room, t, SHERD_DTYPE_NONE, 1) ||
          sherd_world_rank(world) == 1);
    CHECK_OK(sherd_world_check(world));
    sherd_full_read(room, sizeof room, t, SHERD_DTYPE_NONE, 2);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
}

static void too_little_room_on_one_rank_fails_on_all(sherd_world *world)
{
    const sherd_layout *rows = layout_of(mesh_for(world, false), 2, shapes[0], "RS(0)", NULL);
    int last = sherd_world_ranks(world) - 1;
    double room[32];
    size_t bytes = sizeof room - (sherd_world_rank(world) == last);

    sherd_full_read(room, bytes, indices_on(rows, SHERD_F64), SHERD_F64, -1);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_full_read: f64[8"));
    CHECK(strstr(sherd_world_error(world), "too few bytes"));
    check_read(indices_on(rows, SHERD_F64), 1, SHERD_F64, last); /* the world goes on */
    CHECK_OK(sherd_world_check(world));
}

static void read_scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *rows = NULL;
    float room[32];

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&rows, mesh, 2, shapes[0], "S(0)", NULL) == SHERD_OK) {
        sherd_tensor *t = sherd_constant_on(rows, SHERD_F64, 1);
        sherd_full_read(room, sizeof room, t, SHERD_F32, -1);
        sherd_full_read(room, sizeof room, t, SHERD_F32, 1);
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 0, read_scene);
    fail_every_allocation(world, 1, read_scene);
}

static const check_test tests[] = {
    {TEST(every_layout_is_read_whole), {1, 2, 3, 4, 8}},
    {TEST(cuts_and_orders_are_no_matter), {4}},
    {TEST(any_dtype_becomes_any_other), {1, 2, 3}},
    {TEST(scalars_plain_tensors_and_views_are_read), {1, 2, 3, 4, 8}},
    {TEST(only_the_rank_that_asked_receives), {1, 2, 3, 4, 8}},
    {TEST(a_rank_outside_of_the_mesh_reads_nothing), {3, 4}},
    {TEST(too_little_room_on_one_rank_fails_on_all), {1, 2, 3, 4}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2}},
};
CHECK_MAIN(tests)
