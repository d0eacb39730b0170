/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels: what is sent arrives, whatever it is, in order, without others, and while the sender
 * goes on.
 */
#include "tensors.h"

#include "sherd/comm.h"
#include "sherd/ops.h"
#include "sherd/pipeline.h"

static sherd_channel *open_channel(const sherd_mesh *from, const sherd_mesh *to,
                                   const char *placements)
{
    sherd_channel *c = NULL;

    CHECK_OK(sherd_channel_create(&c, from, to, placements));
    return c;
}

static bool is_in(const sherd_mesh *mesh, sherd_world *world)
{
    return sherd_mesh_coordinate(mesh, sherd_world_rank(world), NULL);
}

/* One tensor from every layout of a mesh to `placements` on another. */
static void send_all(sherd_world *world, const char *meshes[2], const char *placements)
{
    static const int64_t shapes[][2] = {{7, 5}, {1, 3}, {0, 4}, {64, 33}};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_I64};
    const sherd_mesh *from = mesh_of(world, meshes[0]), *to = mesh_of(world, meshes[1]);
    sherd_channel *c = open_channel(from, to, placements);

    for (int s = 0; s < LEN(shapes); s++)
        for (int i = 0; i < lists_of(from, 2); i++) {
            sherd_dtype dtype = s == 3 ? SHERD_F64 : dtypes[i % LEN(dtypes)];
            const sherd_layout *layout = numbered(from, 2, shapes[s], i);
            int64_t nowhere[SHERD_MAX_AXES] = {0};
            sherd_tensor *t, *y = NULL;
            if (layout->pending_axes && dtype == SHERD_BF16)
                dtype = SHERD_F64;
            sherd_scope_begin(world);
            if (is_in(from, world)) {
                t = indices_on(layout, dtype);
                sherd_channel_send(c, &t, 1);
            }
            if (is_in(to, world)) {
                sherd_channel_receive(c, &y, 1);
                CHECK(y && y->layout && y->layout->spec.mesh == to && y->dtype == dtype);
                CHECK_EQ(count_wrong(y, addends_of(layout, nowhere, NULL)), 0);
                CHECK(placements || !y->layout->pending_axes);
            }
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
    sherd_channel_destroy(c);
}

static void what_is_sent_arrives(sherd_world *world)
{
    static const char *three[] = {"x=1@2", "y=2"}, *back[] = {"x=2", "x=1@2"},
                      *four[] = {"x=2@3,1", "x=2@0,2"}, *uneven[] = {"a=3@1,2,4", "b=2@0,3"},
                      *grid[] = {"a=2,b=2@0,1,2,3", "a=2,b=2@4,5,7,6"};
    static const char *const to[] = {NULL, "R", "S(0)", "S(1)"};
    static const char *const to_grid[] = {NULL, "RR", "S(0)S(1)", "S(1)[1]S(1)[0]"};
    int ranks = sherd_world_ranks(world);

    for (int i = 0; i < LEN(to); i++) {
        send_all(world, three, to[i]);
        send_all(world, back, to[i]);
        if (ranks >= 4)
            send_all(world, four, to[i]);
        if (ranks >= 5)
            send_all(world, uneven, to[i]);
        if (ranks >= 8)
            send_all(world, grid, to_grid[i]);
    }
}

/* Cuts stay where the meshes have the same axes; their text may be long. */
static void uneven_cuts_travel_too(sherd_world *world)
{
    const sherd_mesh *from = mesh_of(world, "x=2"), *to = mesh_of(world, "x=2@3,2");
    sherd_channel *c = open_channel(from, to, NULL);

    sherd_scope_begin(world);
    for (int count = 0; count <= SHERD_MAX_ARGS; count++) {
        sherd_tensor *t[SHERD_MAX_ARGS], *y[SHERD_MAX_ARGS];
        const sherd_layout *wanted[SHERD_MAX_ARGS];
        for (int i = 0; i < count; i++) {
            int64_t shape[4] = {100 + i, 1, 3 + i, 1};
            char cuts[64];
            snprintf(cuts, sizeof cuts, "0:%d,%d", (int)shape[0] - i - 1, i + 1);
            const sherd_layout *layout = layout_of(from, 4, shape, "S(0)", cuts);
            wanted[i] = layout_of(to, 4, shape, "S(0)", cuts);
            if (is_in(from, world))
                t[i] = indices_on(layout, SHERD_F64);
        }
        if (is_in(from, world))
            sherd_channel_send(c, t, count);
        if (is_in(to, world)) {
            sherd_channel_receive(c, y, count);
            for (int i = 0; i < count; i++) {
                CHECK(y[i]->layout == wanted[i]);
                CHECK_EQ(count_wrong(y[i], 1), 0);
            }
        }
    }
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    sherd_channel_destroy(c);
}

/* Scalars, views, plain tensors; a leaf's copy wants nothing. */
static void all_sorts_of_tensors_are_sent(sherd_world *world)
{
    const sherd_mesh *from = mesh_of(world, "x=1"), *to = mesh_of(world, "x=1@1");
    sherd_channel *c = open_channel(from, to, NULL);
    int64_t shape[2] = {4, 6}, one[1] = {5};
    sherd_tensor *y[3];

    if (is_in(from, world)) {
        sherd_tensor *a = indices_on(layout_of(from, 2, shape, "S(0)", NULL), SHERD_F64);
        sherd_require_grad(a, true);
        sherd_tensor *t[] = {sherd_sum(a), sherd_transpose(a, 0, 1),
                             sherd_constant(world, SHERD_I32, one, 1, 3)};
        sherd_channel_send(c, t, 3);
    }
    if (is_in(to, world)) {
        sherd_channel_receive(c, y, 3);
        CHECK_EQ(sherd_item(y[0]), 276);
        CHECK_EQ(sherd_tensor_ndim(y[0]), 0);
        const double *columns = sherd_tensor_read(y[1]);
        CHECK(columns && columns[1] == 6 && columns[23] == 23);
        const int32_t *threes = sherd_tensor_read(y[2]);
        CHECK(threes && threes[4] == 3);
        CHECK(!sherd_requires_grad(y[0]) && !sherd_requires_grad(y[1]));
    }
    CHECK_OK(sherd_world_check(world));
    sherd_channel_destroy(c);
}

/* A sender is ahead, and writes into what it has sent: who receives sees it as it was. */
static void a_sender_goes_on(sherd_world *world)
{
    enum { SENDS = 30 };
    const sherd_mesh *from = mesh_of(world, "x=1"), *to = mesh_of(world, "x=1@1");
    sherd_channel *c = open_channel(from, to, NULL);
    int64_t shape[1] = {1000};
    const sherd_layout *layout = layout_of(from, 1, shape, "R", NULL);

    if (is_in(from, world)) {
        sherd_tensor *t = sherd_constant_on(layout, SHERD_F64, 0);
        for (int i = 0; i < SENDS; i++) {
            sherd_channel_send(c, &t, 1);
            if (i % 3 == 0)
                sherd_add_to(t, sherd_constant_on(layout, SHERD_F64, 1));
        }
    }
    for (int i = 0, value = 0; i < SENDS && is_in(to, world); i++) {
        sherd_tensor *y;
        sherd_channel_receive(c, &y, 1);
        const double *data = sherd_tensor_read(y);
        CHECK(data && data[0] == value && data[999] == value);
        value += i % 3 == 0;
    }
    CHECK_OK(sherd_world_check(world));
    sherd_channel_destroy(c);
}

/* Each has its own order, though ranks are the same. */
static void channels_do_not_wait_for_each_other(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "x=1"), *b = mesh_of(world, "x=1@1");
    sherd_channel *c[] = {open_channel(a, b, NULL), open_channel(a, b, "R"),
                          open_channel(b, a, NULL)};
    int64_t shape[1] = {3};
    sherd_tensor *y;

    if (is_in(a, world)) {
        for (int i = 0; i < 4; i++) {
            sherd_tensor *t = sherd_constant_on(layout_of(a, 1, shape, "R", NULL), SHERD_F32, i);
            sherd_channel_send(c[i % 2], &t, 1);
        }
        sherd_channel_receive(c[2], &y, 1);
        CHECK_EQ(((const float *)sherd_tensor_read(y))[0], 9);
    }
    if (is_in(b, world)) {
        static const int order[] = {1, 3, 0, 2};
        sherd_tensor *t = sherd_constant_on(layout_of(b, 1, shape, "R", NULL), SHERD_F32, 9);
        sherd_channel_send(c[2], &t, 1);
        for (int i = 0; i < 4; i++) {
            sherd_channel_receive(c[order[i] % 2], &y, 1);
            CHECK_EQ(((const float *)sherd_tensor_read(y))[0], order[i]);
        }
    }
    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < 3; i++)
        sherd_channel_destroy(c[i]);
}

/* More than a world has groups, one after another. */
static void channels_come_and_go(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "x=1"), *b = mesh_of(world, "x=1@1");
    sherd_channel *c[3] = {NULL};

    for (int i = 0; i < 1100; i++) {
        sherd_channel_destroy(c[i % 3]);
        c[i % 3] = open_channel(a, b, NULL);
        CHECK(c[i % 3] != NULL);
    }
    for (int i = 0; i < 3; i++)
        sherd_channel_destroy(c[i]);
    CHECK_OK(sherd_world_check(world));
}

/* Wrong numbers of tensors, and what comes after that. */
static void a_wrong_number_is_named(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "x=1"), *b = mesh_of(world, "x=1@1");
    sherd_channel *c = open_channel(a, b, NULL);
    int64_t shape[1] = {3};
    sherd_tensor *y[2];

    for (int round = 0; round < 3; round++) {
        if (is_in(a, world)) {
            sherd_tensor *t = sherd_constant_on(layout_of(a, 1, shape, "R", NULL), SHERD_F32, 7);
            sherd_channel_send(c, &t, 1);
        }
        if (is_in(b, world)) {
            sherd_channel_receive(c, y, round % 2 ? 2 : 1);
            CHECK_EQ(sherd_tensor_failed(y[0]), round % 2);
        }
        CHECK_EQ(sherd_world_check(world), round % 2 ? SHERD_EDIFFER : SHERD_OK);
        if (round % 2)
            CHECK(strstr(sherd_world_error(world), "sends 1 tensors, and 2 are received") != NULL);
    }
    sherd_channel_destroy(c);
}

static void destroying_in_another_order_is_found(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "x=1"), *b = mesh_of(world, "x=1@1");
    sherd_channel *c[] = {open_channel(a, b, NULL), open_channel(a, b, NULL)}, *next = NULL;
    int first = sherd_world_rank(world) > 0;

    sherd_channel_destroy(c[first]);
    CHECK_EQ(sherd_channel_create(&next, a, b, NULL), SHERD_EDIFFER);
    CHECK(next == NULL);
    sherd_channel_destroy(c[!first]);
    next = open_channel(a, b, NULL);
    sherd_channel_destroy(next);
    CHECK_OK(sherd_world_check(world));
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void send_value(sherd_world *world, sherd_channel *c, const sherd_mesh *from, double value)
{
    if (!is_in(from, world))
        return;
    sherd_tensor *t =
        sherd_constant_on(layout_of(from, 1, (int64_t[]){4}, "R", NULL), SHERD_F64, value);
    sherd_channel_send(c, &t, 1);
}

static void receive_value(sherd_world *world, sherd_channel *c, const sherd_mesh *to, double value)
{
    sherd_tensor *t = NULL;

    if (!is_in(to, world))
        return;
    sherd_channel_receive(c, &t, 1);
    const double *data = sherd_tensor_read(t);
    CHECK(data && data[0] == value && data[3] == value);
}

/* Up to as many sends as fit, checks among them, and then all of it arrives. */
static void what_is_sent_before_a_check_arrives_after_it(sherd_world *world)
{
    static const char *const meshes[][2] = {{"x=1@0", "x=1@1"}, {"x=2@1,2", "y=1@0"}};

    for (int i = 0; i < (sherd_world_ranks(world) > 2 ? 2 : 1); i++) {
        const sherd_mesh *from = mesh_of(world, meshes[i][0]), *to = mesh_of(world, meshes[i][1]);
        sherd_channel *c = open_channel(from, to, "R");
        int sent = 0, received = 0;
        for (int behind = 0; behind <= 8; behind++) {
            sherd_scope_begin(world);
            while (sent - received < behind)
                send_value(world, c, from, sent++);
            CHECK_OK(sherd_world_check(world));
            if (received < sent)
                receive_value(world, c, to, received++);
            CHECK_OK(sherd_world_check(world));
            sherd_scope_end(world);
        }
        while (received < sent)
            receive_value(world, c, to, received++);
        CHECK_OK(sherd_world_check(world));
        sherd_channel_destroy(c);
    }
}

/* It is no difference, and the next channel does not get it. */
static void what_is_lost_with_a_channel_is_gone(sherd_world *world)
{
    const sherd_mesh *from = mesh_of(world, "x=1@1"), *to = mesh_of(world, "x=1@0");

    for (int lost = 0; lost < 4; lost++) {
        sherd_channel *c = open_channel(from, to, "R");
        send_value(world, c, from, lost);
        receive_value(world, c, to, lost);
        for (int i = 0; i < lost; i++)
            send_value(world, c, from, 100);
        sherd_channel_destroy(c);
        if (lost % 2)
            CHECK_OK(sherd_world_check(world));
    }
}

/* Senders that differ, and what is received by one of two. */
static void only_receivers_may_lag(sherd_world *world)
{
    const sherd_mesh *two = mesh_of(world, "x=2@0,1"), *one = mesh_of(world, "x=1@2");
    sherd_channel *forth = open_channel(two, one, "R"), *back = open_channel(one, two, "R");

    if (sherd_world_rank(world) != 1)
        send_value(world, forth, two, 1);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "made 2 calls in group channel0") != NULL);
    send_value(world, back, one, 1);
    if (sherd_world_rank(world) == 1)
        receive_value(world, back, two, 1);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    send_value(world, forth, two, 1);
    receive_value(world, forth, one, 1);
    CHECK_OK(sherd_world_check(world));
    sherd_channel_destroy(forth);
    sherd_channel_destroy(back);
}

static void malformed_placements_are_refused(sherd_world *world)
{
    static const char *const wrong[] = {"S(0", "S(0)R", "Q", "S(0))"};
    static const char *const right[] = {"S(0)", "S(5)", "R", NULL};
    const sherd_mesh *from = mesh_of(world, "x=1@0"), *to = mesh_of(world, "x=1@1");
    sherd_channel *c = NULL;

    for (int i = 0; i < LEN(wrong); i++) {
        CHECK_EQ(sherd_channel_create(&c, from, to, wrong[i]), SHERD_EINVAL);
        CHECK(c == NULL && strstr(sherd_world_error(world), "sherd_channel_create"));
    }
    for (int i = 0; i < LEN(right); i++)
        sherd_channel_destroy(open_channel(from, to, right[i]));
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {{TEST(what_is_sent_arrives), {3, 4, 5, 8}},
                                   {TEST(uneven_cuts_travel_too), {4}},
                                   {TEST(all_sorts_of_tensors_are_sent), {2, 3}},
                                   {TEST(a_sender_goes_on), {2, 3}},
                                   {TEST(channels_do_not_wait_for_each_other), {2, 4}},
                                   {TEST(channels_come_and_go), {2}},
                                   {TEST(a_wrong_number_is_named), {2, 3}},
                                   {TEST(what_is_sent_before_a_check_arrives_after_it), {2, 3}},
                                   {TEST(what_is_lost_with_a_channel_is_gone), {2, 3}},
                                   {TEST(only_receivers_may_lag), {3}},
                                   {TEST(malformed_placements_are_refused), {2}},
                                   {TEST(destroying_in_another_order_is_found), {2, 3}}};
CHECK_MAIN(tests)
