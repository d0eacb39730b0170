/* SPDX-License-Identifier: Apache-2.0 */
/* Moves on real ranks: exact for all pairs of placements, in flight, many at once, with writes
 * around them. */
#include "tensors.h"

#include "sherd/comm.h"

static const int64_t shapes[][3] = {
    {8, 4, 2}, /* even */
    {7, 5, 3}, /* short last shard */
    {1, 1, 1}, /* most shards empty */
    {4, 0, 2}, /* nothing to move */
};

/* Axes that are pending in the target too stay pending: the elements then count these addends
 * less. */
static void check_pair(const sherd_layout *from, const sherd_layout *to, sherd_dtype dtype)
{
    sherd_world *world = sherd__space_world(from->space);
    int64_t nowhere[SHERD_MAX_AXES] = {0};

    sherd_scope_begin(world);
    sherd_tensor *t = indices_on(from, dtype), *moved = sherd__move_to(t, to, false);
    CHECK(moved->layout == to);
    if (from == to)
        CHECK(moved == t);
    else
        CHECK_EQ(count_wrong(moved, addends_of(from, nowhere, NULL)), 0);
    sherd_scope_end(world);
}

static void all_pairs_on(sherd_world *world, const char *text)
{
    const sherd_mesh *mesh = mesh_of(world, text);
    int lists = lists_of(mesh, 3);

    for (int s = 0; s < LEN(shapes); s++)
        for (int i = 0; i < lists; i++)
            for (int j = 0; j < lists; j++) {
                const sherd_layout *from = numbered(mesh, 3, shapes[s], i);
                const sherd_layout *to = numbered(mesh, 3, shapes[s], j);
                if (to->pending_axes == 0)
                    check_pair(from, to, (i + j) % 2 ? SHERD_F32 : SHERD_F64);
            }
    CHECK_OK(sherd_world_check(world));
}

static void every_element_lands_at_its_index(sherd_world *world)
{
    static const char *const meshes[][4] = {{"1"},        {"2", "1x2"}, {"3", "2"},
                                            {"4", "2x2"}, {"5"},        {"3x2", "2x3"}};
    int ranks = sherd_world_ranks(world);

    for (int m = 0; m < 4 && meshes[ranks - 1][m]; m++)
        all_pairs_on(world, meshes[ranks - 1][m]);
}

/* From strided sources too: a transposed view has the placements of its base with dims
 * exchanged. */
static void strided_views_move(sherd_world *world, int64_t rows, int64_t cols)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const char *const from[][2] = {
        {"S(0)R", "S(1)R"}, {"RR", "RR"}, {"P(sum)R", "P(sum)R"}, {"P(sum)S(1)", "P(sum)S(0)"}};
    static const char *const to[] = {"RR", "S(1)S(0)", "S(0)S(0)", "RS(1)"};
    int64_t shape[2] = {rows, cols}, turned[2] = {cols, rows};

    for (int i = 0; i < LEN(from); i++)
        for (int j = 0; j < LEN(to); j++) {
            sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, from[i][0], NULL), SHERD_F32);
            sherd_tensor *v = sherd__new_view(t);
            for (int d = 0; d < 2; d++) {
                v->shape[d] = t->shape[1 - d];
                v->local[d] = t->local[1 - d];
                v->stride[d] = t->stride[1 - d];
            }
            sherd__layout_set(&v->layout, layout_of(mesh, 2, turned, from[i][1], NULL));
            sherd_tensor *m = sherd__move_to(v, layout_of(mesh, 2, turned, to[j], NULL), false);
            const float *data = sherd_tensor_read(m);
            sherd_box box = sherd_tensor_box(m);
            int64_t wrong = data ? 0 : -1, addends = addends_of(t->layout, (int64_t[8]){0}, NULL);
            for (int64_t k = 0; data && k < m->count; k++) {
                int64_t at = global_of(&box, turned, k);
                wrong += data[k] != (float)whole_value(at % rows * cols + at / rows, addends);
            }
            CHECK_EQ(wrong, 0);
        }
    CHECK_OK(sherd_world_check(world));
}

static void a_strided_view_moves(sherd_world *world)
{
    strided_views_move(world, 7, 5);
    strided_views_move(world, 70, 300); /* in long parts */
}

/* A rank's own part is copied in two parts where it is long, along the first dim that is not 1. */
static void a_long_part_of_its_own_is_complete(sherd_world *world)
{
    static const char *const pairs[][2] = {
        {"S(0)", "R"}, {"S(1)", "R"}, {"S(0)", "S(1)"}, {"S(1)", "S(0)"}, {"S(2)", "S(0)"}};
    /* just below and above 16 KiB a rank, one row beyond what is copied last, and more */
    static const int64_t bytes[] = {15 << 10, 16 << 10, (16 << 10) + 24, 40 << 10, 64 << 10};
    int ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = mesh_of(world, (const char *[]){"1", "2", "3", "4"}[ranks - 1]);

    for (int p = 0; p < LEN(pairs); p++)
        for (int b = 0; b < LEN(bytes); b++)
            for (int way = 0; way < 3; way++) {
                int64_t n = ranks * bytes[b] / 4;
                const int64_t shape[][3] = {
                    {n, 1, 1}, {ranks, n / ranks, 1}, {ranks, n / ranks / 8, 8}};
                check_pair(layout_of(mesh, 3, shape[way], pairs[p][0], NULL),
                           layout_of(mesh, 3, shape[way], pairs[p][1], NULL), SHERD_F32);
            }
    CHECK_OK(sherd_world_check(world));
}

/*
 * A rank that keeps its box while others do not has a copy too: what is written to the source
 * afterwards does not show there, as it does not on the others.
 */
static void a_box_that_one_rank_keeps_is_copied(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const char *const cases[][4] = {{"RR", NULL, "S(0)R", "0:0,7"},
                                           {"RR", NULL, "S(0)S(0)", "0:0,0,7,0"},
                                           {"RR", NULL, "S(1)S(0)", "0:7,0;1:5,0"},
                                           {"S(0)R", "0:1,6", "S(0)S(0)", "0:1,0,6,0"}};
    int64_t shape[2] = {7, 5};

    for (int i = 0; i < LEN(cases); i++) {
        const sherd_layout *from = layout_of(mesh, 2, shape, cases[i][0], cases[i][1]);
        const sherd_layout *to = layout_of(mesh, 2, shape, cases[i][2], cases[i][3]);
        sherd_tensor *t = sherd_constant_on(from, SHERD_F32, 1), *m = sherd__move_to(t, to, false);
        float *written = sherd_tensor_write(t);
        for (int64_t k = 0; written && k < t->count; k++)
            written[k] = 3;
        const float *data = sherd_tensor_read(m);
        for (int64_t k = 0; data && k < m->count; k++)
            CHECK_EQ(data[k], 1);
    }
    CHECK_OK(sherd_world_check(world));
}

static void explicit_cuts_and_orders_are_met(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    int64_t shape[2] = {10, 6};
    const sherd_layout *layouts[] = {
        layout_of(mesh, 2, shape, "S(0)R", "0:3,7"),
        layout_of(mesh, 2, shape, "S(0)S(0)", "0:1,0,9,0"),
        layout_of(mesh, 2, shape, "S(0)[1]S(0)[0]", NULL),
        layout_of(mesh, 2, shape, "S(1)S(0)", "1:0,6"),
        layout_of(mesh, 2, shape, "S(0)[1]S(0)[0]", "0:2,2,3,3"),
        layout_of(mesh, 2, shape, "RR", NULL),
    };

    for (int i = 0; i < LEN(layouts); i++)
        for (int j = 0; j < LEN(layouts); j++)
            check_pair(layouts[i], layouts[j], SHERD_I32);
    CHECK_OK(sherd_world_check(world));
}

static void other_reductions_are_exact(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "3");
    static const char *const pending[] = {"P(avg)", "P(min)", "P(max)", "P(product)"};
    static const char *const to[] = {"R", "S(0)", "S(1)"};
    int64_t shape[2] = {4, 5};

    for (int p = 0; p < LEN(pending); p++)
        for (int i = 0; i < LEN(to); i++) {
            sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, pending[p], NULL), SHERD_F64);
            sherd_tensor *m = sherd__move_to(t, layout_of(mesh, 2, shape, to[i], NULL), false);
            const double *data = sherd_tensor_read(m);
            sherd_box box = sherd_tensor_box(m);
            for (int64_t k = 0; data && k < m->count; k++) {
                double x = (double)global_of(&box, shape, k);
                double want[] = {x + 1000, x, x + 2000, x * (x + 1000) * (x + 2000)};
                CHECK_NEAR(data[k], want[p], 1e-9 * (1 + want[p]));
            }
        }
    CHECK_OK(sherd_world_check(world));
}

static void a_box_that_stays_shares_its_storage(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "1x2");
    int64_t shape[2] = {6, 4};
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, "S(1)S(0)", NULL), SHERD_F32);
    sherd_tensor *same = sherd__move_to(t, layout_of(mesh, 2, shape, "RS(0)", NULL), false);

    CHECK(same != t && same->storage == t->storage);
    sherd_tensor *p = indices_on(layout_of(mesh, 2, shape, "P(sum)S(0)", NULL), SHERD_F32);
    sherd_comm_reset(world);
    sherd_tensor *settled = sherd__move_to(p, layout_of(mesh, 2, shape, "RS(0)", NULL), false);
    CHECK(settled->storage == p->storage);
    CHECK_EQ(sherd_comm_count(world), 0);
    CHECK_OK(sherd_world_check(world));
}

/* The data is there when it is read, whatever happened between. */
static void a_move_in_flight_is_complete_when_read(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 2 ? "2" : "3");
    int64_t shape[2] = {7, 5};
    const sherd_layout *rows = layout_of(mesh, 2, shape, "S(0)", NULL);
    const sherd_layout *columns = layout_of(mesh, 2, shape, "S(1)", NULL);
    const sherd_layout *whole = layout_of(mesh, 2, shape, "R", NULL);
    const sherd_layout *sum = layout_of(mesh, 2, shape, "P(sum)", NULL);

    for (int i = 0; i < 20; i++) {
        sherd_scope_begin(world);
        sherd_tensor *a = sherd__move_to(indices_on(rows, SHERD_F32), columns, true);
        sherd_tensor *b = sherd__move_to(indices_on(sum, SHERD_F64), rows, true);
        sherd_tensor *c = sherd__move_to(a, whole, true);
        sherd_tensor *d = sherd__move_to(indices_on(sum, SHERD_F64), whole, true);
        CHECK_EQ(count_wrong(c, 1), 0);
        CHECK_EQ(count_wrong(a, 1), 0);
        CHECK_EQ(count_wrong(d, sherd_world_ranks(world)), 0);
        CHECK_EQ(count_wrong(b, sherd_world_ranks(world)), 0);
        /* Never read, given back in flight. */
        sherd__move_to(indices_on(rows, SHERD_F32), whole, true);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Rank 1 makes its call only when rank 0 has come back from beginning the same one. */
static void beginning_a_move_waits_for_nobody(sherd_world *world)
{
    static atomic_int begun; /* of threads; processes do not share it */
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[2] = {7, 5};
    bool threads = strcmp(sherd_world_transport(world), "threads") == 0;
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, "S(0)", NULL), SHERD_F32);
    const sherd_layout *columns = layout_of(mesh, 2, shape, "S(1)", NULL);

    CHECK_OK(sherd_world_check(world));
    while (threads && sherd_world_rank(world) == 1 && !atomic_load(&begun))
        usleep(100);
    sherd_tensor *m = sherd__move_to(t, columns, true);
    atomic_store(&begun, 1);
    CHECK_EQ(count_wrong(m, 1), 0);
    CHECK_OK(sherd_world_check(world));
}

/* A source may be overwritten right after a call; the writer waits for its readers and nobody
 * else. */
static void writing_after_a_call_does_not_show_in_results(sherd_world *world)
{
    char text[8];
    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    const sherd_mesh *mesh = mesh_of(world, text);
    int64_t shape[2] = {7, 5};
    const sherd_layout *rows = layout_of(mesh, 2, shape, "S(0)", NULL);
    const sherd_layout *columns = layout_of(mesh, 2, shape, "S(1)", NULL);
    sherd_tensor *t = indices_on(rows, SHERD_F32);
    unsigned random = (unsigned)sherd_world_rank(world) * 7919u + 1;

    for (int i = 0; i < 50; i++) {
        sherd_scope_begin(world);
        sherd_tensor *m = sherd__move_to(t, columns, i % 2);
        random = random * 1103515245u + 12345u;
        if ((random >> 16) % 4 == 0)
            usleep((random >> 18) % 300);
        int64_t version = t->storage->version;
        float *data = sherd_tensor_write(t);
        CHECK_EQ(t->storage->version, version + 1);
        for (int64_t k = 0; k < t->count; k++)
            data[k] += 1;
        const float *got = sherd_tensor_read(m);
        sherd_box box = sherd_tensor_box(m);
        int64_t wrong = got ? 0 : -1;
        for (int64_t k = 0; got && k < m->count; k++)
            wrong += got[k] != (float)(global_of(&box, shape, k) + i);
        CHECK_EQ(wrong, 0);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Calls that the log has counted so far, and the bytes of them. */
static int64_t calls(sherd_world *world, int64_t *bytes)
{
    int64_t count = 0;
    *bytes = 0;
    for (int i = 0; i < sherd_comm_count(world); i++) {
        count += sherd_comm_get(world, i).calls;
        *bytes += sherd_comm_get(world, i).bytes_received;
    }
    return count;
}

static void fifty_tensors_move_in_one_call(sherd_world *world)
{
    enum { MANY = 50 };
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 2 ? "2" : "3");
    sherd_tensor *t[MANY], *out[MANY];
    const sherd_layout *to[MANY];
    static const char *const from[] = {"P(sum)", "S(0)", "P(sum)", "S(1)"};
    static const char *const target[] = {"R", "S(1)", "S(0)", "R"};
    int64_t bytes;

    for (int i = 0; i < MANY; i++) {
        int64_t shape[2] = {i % 9 + 1, i % 5 + 2};
        t[i] = indices_on(layout_of(mesh, 2, shape, from[i % 4], NULL), SHERD_F32);
        to[i] = layout_of(mesh, 2, shape, target[i % 4], NULL);
    }
    sherd_comm_reset(world);
    sherd_redistribute_many(out, t, to, MANY);
    CHECK_EQ(calls(world, &bytes), 1);
    for (int i = 0; i < MANY; i++) {
        CHECK(out[i]->layout == to[i]);
        CHECK_EQ(count_wrong(out[i], i % 2 ? 1 : sherd_world_ranks(world)), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static void many_on_two_axes_is_one_call_per_group(sherd_world *world)
{
    enum { MANY = 12 };
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const char *const from[] = {"P(sum)R", "RP(sum)", "P(sum)P(sum)",
                                       "RR",      "RR",      "S(0)S(1)"};
    static const char *const target[] = {"RR", "RS(0)", "RR", "S(0)R", "RR", "S(0)S(1)"};
    static const int addends[] = {2, 2, 4, 1, 1, 1};
    int64_t shape[2] = {6, 5}, bytes;
    sherd_tensor *t[MANY];
    const sherd_layout *to[MANY];

    for (int i = 0; i < MANY; i++) {
        t[i] = indices_on(layout_of(mesh, 2, shape, from[i % 6], NULL), SHERD_F64);
        to[i] = layout_of(mesh, 2, shape, target[i % 6], NULL);
    }
    sherd_tensor *out[MANY];
    sherd_comm_reset(world);
    sherd_redistribute_many(out, t, to, MANY);
    CHECK_EQ(calls(world, &bytes), 3);
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(count_wrong(out[i], addends[i % 6]), 0);
        if (i % 6 >= 4)
            CHECK(out[i] == t[i]);
    }
    sherd_redistribute_many(NULL, NULL, NULL, 0);
    CHECK_OK(sherd_world_check(world));
}

/* What is in the way of one is in the way of all: every result is the failed tensor, nothing
 * leaks. */
static void one_wrong_tensor_fails_all(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2"), *other = mesh_of(world, "1x2");
    int64_t shape[2] = {6, 5}, wrong[2] = {5, 6};
    const sherd_layout *rows = layout_of(mesh, 2, shape, "S(0)", NULL);
    const sherd_layout *whole = layout_of(mesh, 2, shape, "R", NULL);
    const sherd_layout *sum = layout_of(mesh, 2, shape, "P(sum)", NULL);
    sherd_tensor *good = indices_on(rows, SHERD_F32), *out[2];
    int64_t before = sherd_world_memory(world).live_bytes;

    for (int i = 0; i < 5; i++) {
        sherd_scope_begin(world);
        sherd_tensor *t[2] = {good, good};
        const sherd_layout *to[2] = {whole, whole};
        if (i == 0)
            t[1] = sherd_constant(world, SHERD_F32, shape, 2, 1);
        if (i == 1)
            to[1] = layout_of(mesh, 2, wrong, "R", NULL);
        if (i == 2)
            to[1] = sum;
        if (i == 3) {
            t[1] = indices_on(layout_of(other, 2, shape, "RP(sum)", NULL), SHERD_F32);
            to[1] = sum; /* on another mesh: it is settled on the way */
        }
        if (i == 4)
            t[1] = sherd__failed(world);
        sherd_redistribute_many(out, t, to, 2);
        CHECK(sherd_tensor_failed(out[0]) && sherd_tensor_failed(out[1]));
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK_EQ(sherd_world_memory(world).live_bytes, before);
    }
    CHECK(sherd_tensor_failed(
        sherd__move_to(sherd_constant(world, SHERD_F32, shape, 2, 1), whole, false)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_EQ(count_wrong(sherd__move_to(good, whole, false), 1), 0);
    CHECK_OK(sherd_world_check(world));
}

static void ranks_that_disagree_all_get_ediffer(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[2] = {6, 5};
    bool odd = sherd_world_rank(world) == 1;

    for (int i = 0; i < 2; i++) {
        sherd_tensor *t =
            indices_on(layout_of(mesh, 2, shape, "S(0)", NULL), i && odd ? SHERD_F64 : SHERD_F32);
        sherd_tensor *m =
            sherd__move_to(t, layout_of(mesh, 2, shape, i || odd ? "S(1)" : "R", NULL), false);
        if (m->storage)
            sherd_tensor_read(m);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A rank outside of the mesh takes part in nothing, and holds nothing. */
static void a_rank_outside_of_the_mesh_does_not_mind(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "a=2@1,2");
    int64_t shape[2] = {4, 3};
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, "S(0)", NULL), SHERD_F32), *out;
    const sherd_layout *whole = layout_of(mesh, 2, shape, "R", NULL);

    out = sherd__move_to(t, whole, false);
    CHECK_EQ(out->count, sherd_world_rank(world) ? 12 : 0);
    CHECK_EQ(count_wrong(out, 1), 0);
    sherd_redistribute_many(&out, &t, &whole, 1);
    CHECK_EQ(count_wrong(out, 1), 0);
    CHECK_OK(sherd_world_check(world));
}

static void move_scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t shape[2] = {7, 5};
    const sherd_layout *from = NULL, *to = NULL, *sum = NULL;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&from, mesh, 2, shape, "S(0)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&to, mesh, 2, shape, "S(1)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&sum, mesh, 2, shape, "P(sum)", NULL) == SHERD_OK) {
        sherd_tensor *t[2] = {sherd_constant_on(from, SHERD_F32, 1),
                              sherd_constant_on(sum, SHERD_F64, 2)};
        const sherd_layout *target[2] = {to, to};
        sherd_tensor *m = sherd__move_to(sherd__move_to(t[0], to, false), from, true);
        sherd_tensor *out[2];
        sherd_redistribute_many(out, t, target, 2);
        if (m->storage && out[1]->storage) {
            sherd_tensor_read(m);
            sherd_tensor_text(m);
            sherd_item(sherd_constant(world, SHERD_F32, NULL, 0, 1));
        }
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 0, move_scene);
    fail_every_allocation(world, 1, move_scene);
}

static const check_test tests[] = {
    {TEST(every_element_lands_at_its_index), {1, 2, 3, 4, 6}},
    {TEST(a_strided_view_moves), {4}},
    {TEST(a_long_part_of_its_own_is_complete), {1, 2, 3, 4}},
    {TEST(a_box_that_one_rank_keeps_is_copied), {4}},
    {TEST(explicit_cuts_and_orders_are_met), {4}},
    {TEST(other_reductions_are_exact), {3}},
    {TEST(a_box_that_stays_shares_its_storage), {2}},
    {TEST(a_move_in_flight_is_complete_when_read), {2, 3}},
    {TEST(beginning_a_move_waits_for_nobody), {2}},
    {TEST(writing_after_a_call_does_not_show_in_results), {2, 3, 8}},
    {TEST(fifty_tensors_move_in_one_call), {2, 3}},
    {TEST(many_on_two_axes_is_one_call_per_group), {4}},
    {TEST(one_wrong_tensor_fails_all), {2}},
    {TEST(ranks_that_disagree_all_get_ediffer), {2}},
    {TEST(a_rank_outside_of_the_mesh_does_not_mind), {3}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2}},
};
CHECK_MAIN(tests)
