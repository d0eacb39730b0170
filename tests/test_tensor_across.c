/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves from one mesh to another on real ranks: exact there and back, many at once, with ranks in
 * one mesh, in both and in neither, who waits for whom, and what happens when ranks disagree or
 * have no memory.
 */
#include "tensors.h"

#include "sherd/comm.h"

enum { PAIRS = 5 };

static const int64_t shapes[][2] = {
    {8, 4}, /* even */
    {7, 5}, /* short last shard */
    {1, 1}, /* most shards empty */
    {4, 0}, /* nothing to move */
};

/* Pairs of meshes for a number of ranks. */
static const struct {
    int ranks;
    const char *pair[PAIRS][2];
} meshes[] = {
    {1, {{"1", "1x1"}}},
    {2, {{"2", "2@1,0"}, {"1@0", "1@1"}, {"1@1", "1x2"}}},
    {3, {{"2@0,1", "2@2,1"}, {"1@2", "2@0,1"}, {"3", "3@2,0,1"}}},
    {4, {{"2x2", "4"}, {"2@0,1", "2@2,3"}, {"3@0,1,2", "3@2,1,3"}, {"2x2@3,1,0,2", "2x2"}}},
    {8, {{"2x2@0,1,2,3", "2x2@4,5,6,7"}, {"8", "3x2"}, {"3x2", "8"}, {"5@7,3,5,1,0", "2x2"}}},
};

/* There, and back to where it was settled. */
static void check_pair(const sherd_layout *from, const sherd_layout *to, sherd_dtype dtype)
{
    sherd_world *world = sherd__space_world(from->space);
    int64_t nowhere[SHERD_MAX_AXES] = {0}, addends = addends_of(from, nowhere, NULL);
    const sherd_layout *settled = NULL;

    sherd_scope_begin(world);
    CHECK_OK(sherd__layout_settle(&settled, from));
    sherd_tensor *t = indices_on(from, dtype), *there = sherd__move_to(t, to, addends % 2);
    sherd_tensor *back = sherd__move_to(there, settled, false);
    CHECK(there->layout == to && back->layout == settled);
    CHECK_EQ(there->count,
             sherd__box_count(&(sherd_box){.ndim = 2, .size = {there->local[0], there->local[1]}}));
    if (!sherd__in_mesh(world, to->spec.mesh))
        CHECK_EQ(there->count, 0);
    CHECK_EQ(count_wrong(there, addends), 0);
    CHECK_EQ(count_wrong(back, addends), 0);
    sherd_scope_end(world);
}

static void all_pairs_on(sherd_world *world, const char *a, const char *b)
{
    const sherd_mesh *from = mesh_of(world, a), *to = mesh_of(world, b);

    for (int s = 0; s < LEN(shapes); s++)
        for (int i = 0; i < lists_of(from, 2); i++)
            for (int j = 0; j < lists_of(to, 2); j++) {
                const sherd_layout *source = numbered(from, 2, shapes[s], i);
                const sherd_layout *target = numbered(to, 2, shapes[s], j);
                if (target->pending_axes == 0)
                    check_pair(source, target, (i + j) % 2 ? SHERD_F32 : SHERD_F64);
            }
    CHECK_OK(sherd_world_check(world));
}

static void every_element_lands_and_comes_back(sherd_world *world)
{
    for (int m = 0; m < LEN(meshes); m++)
        for (int i = 0; i < PAIRS && meshes[m].pair[i][0]; i++)
            if (meshes[m].ranks == sherd_world_ranks(world))
                all_pairs_on(world, meshes[m].pair[i][0], meshes[m].pair[i][1]);
}

/* To the bit: all target ranks add in the order of the source's mesh. */
static void other_reductions_are_exact(sherd_world *world)
{
    static const char *const from[] = {"P(avg)P(sum)", "P(min)P(min)", "P(max)R", "P(product)S(1)"};
    const sherd_mesh *a = mesh_of(world, "2x2"), *b = mesh_of(world, "3@3,0,2");
    int64_t shape[2] = {4, 5};

    for (int i = 0; i < LEN(from); i++)
        for (int j = 0; j < 3; j++) {
            sherd_tensor *t = indices_on(layout_of(a, 2, shape, from[i], NULL), SHERD_F64);
            sherd_tensor *m = sherd__move_to(t, numbered(b, 2, shape, j), false);
            const double *data = sherd_tensor_read(m);
            sherd_box box = sherd_tensor_box(m);
            for (int64_t k = 0; data && k < m->count; k++) {
                double x = (double)global_of(&box, shape, k);
                double want[] = {(4 * x + 6000) / 2, x, x + 1000, x * (x + 1000)};
                CHECK(data[k] == want[i]);
            }
        }
    CHECK_OK(sherd_world_check(world));
}

static int64_t calls_on(sherd_world *world, const char *axes, int64_t *bytes)
{
    int64_t count = 0;

    *bytes = 0;
    for (int i = 0; i < sherd_comm_count(world); i++) {
        sherd_comm_entry entry = sherd_comm_get(world, i);
        if (strcmp(entry.axes, axes) != 0)
            continue;
        count += entry.calls;
        *bytes += entry.bytes_received;
    }
    return count;
}

/* A rank in neither mesh is in the call, with nothing, and gets a tensor without data. */
static void a_rank_in_neither_mesh_takes_part(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "2@0,1"), *b = mesh_of(world, "2@1,2");
    int64_t shape[2] = {6, 4}, bytes;
    const sherd_layout *to = layout_of(b, 2, shape, "S(1)", NULL);
    static const int64_t lacks[] = {0, 3 * 2 * 4, 6 * 2 * 4, 0};
    int rank = sherd_world_rank(world);

    sherd_comm_reset(world);
    sherd_tensor *t = indices_on(layout_of(a, 2, shape, "S(0)", NULL), SHERD_F32);
    sherd_tensor *m = sherd__move_to(t, to, false);
    CHECK(m->layout == to);
    CHECK_EQ(m->count, rank == 1 || rank == 2 ? 12 : 0);
    CHECK_EQ(count_wrong(m, 1), 0);
    CHECK_EQ(calls_on(world, "world", &bytes), 1);
    CHECK_EQ(bytes, lacks[rank]);
    CHECK_EQ(sherd_tensor_box(m).size[1], rank == 1 || rank == 2 ? 2 : 0);
    CHECK_OK(sherd_world_check(world));
}

/* The late ones come only when the others have what they asked for. */
static void late(sherd_world *world, const char *from, const char *to, const char *cuts,
                 uint64_t latecomers, int others)
{
    const sherd_mesh *a = mesh_of(world, from), *b = mesh_of(world, to);
    int64_t shape[2] = {8, 4};
    sherd_tensor *t = indices_on(layout_of(a, 2, shape, "S(0)", NULL), SHERD_F32);
    const sherd_layout *target = layout_of(b, 2, shape, "S(0)", cuts);
    bool comes_late = latecomers >> sherd_world_rank(world) & 1;

    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == 0)
        atomic_store(&check_state->mark, 0);
    CHECK_OK(sherd_world_check(world));
    while (comes_late && atomic_load(&check_state->mark) < others)
        usleep(100);
    sherd_tensor *m = sherd__move_to(t, target, false);
    CHECK_EQ(count_wrong(m, 1), 0);
    atomic_fetch_add(&check_state->mark, 1);
    CHECK_OK(sherd_world_check(world));
}

static void nobody_waits_for_a_rank_that_brings_nothing(sherd_world *world)
{
    late(world, "2@0,1", "2@1,0", NULL, 1 << 2 | 1 << 3, 2);
    /* 0 brings to 2, and 1 to 3: neither pair waits for the other */
    late(world, "2@0,1", "2@2,3", NULL, 1 << 1 | 1 << 3, 2);
    late(world, "2@0,1", "2@2,3", NULL, 1 << 0 | 1 << 2, 2);
    /* a source does not wait for who takes from it, and who gets nothing waits for nobody */
    late(world, "2@0,1", "2@2,3", "0:8,0", 1 << 2, 3);
}

/* Moves within two meshes and between them, of one list: one call per group. */
static void many_on_two_meshes_is_one_call_per_group(sherd_world *world)
{
    enum { MANY = 14 };
    const sherd_mesh *mesh[2] = {mesh_of(world, "u=2@0,1"), mesh_of(world, "v=3@3,1,2")};
    static const struct {
        int from, to, addends;
        const char *before, *after;
    } moves[] = {
        {0, 0, 1, "S(0)", "S(1)"}, {1, 1, 3, "P(sum)", "R"}, {0, 1, 1, "S(0)", "S(0)"},
        {1, 0, 3, "P(sum)", "R"},  {0, 0, 2, "P(sum)", "R"}, {1, 1, 1, "R", "S(1)"},
        {0, 0, 1, "R", "R"},
    };
    sherd_tensor *t[MANY], *out[MANY];
    const sherd_layout *to[MANY];
    int64_t shape[2] = {6, 5}, bytes;

    for (int i = 0; i < MANY; i++) {
        int k = i % LEN(moves);
        t[i] =
            indices_on(layout_of(mesh[moves[k].from], 2, shape, moves[k].before, NULL), SHERD_F64);
        to[i] = layout_of(mesh[moves[k].to], 2, shape, moves[k].after, NULL);
    }
    for (int turn = 0; turn < 20; turn++) {
        sherd_scope_begin(world);
        sherd_comm_reset(world);
        if (turn % 4 == sherd_world_rank(world))
            usleep(500);
        sherd_redistribute_many(out, t, to, MANY);
        CHECK_EQ(calls_on(world, "world", &bytes), 1);
        CHECK_EQ(calls_on(world, "u", &bytes), sherd__in_mesh(world, mesh[0]));
        CHECK_EQ(calls_on(world, "v", &bytes), sherd__in_mesh(world, mesh[1]));
        for (int i = 0; i < MANY; i++) {
            CHECK(out[i]->layout == to[i]);
            CHECK_EQ(count_wrong(out[i], moves[i % LEN(moves)].addends), 0);
        }
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Random lists, with ranks that come at different times: groups of both meshes and the world by
 * turns. */
static void random_lists_come_to_an_end(sherd_world *world)
{
    enum { MANY = 9, MESHES = 4 };
    static const char *const texts[MESHES] = {"2@0,1", "2@2,3", "3@3,1,0", "2x2@2,0,3,1"};
    const sherd_mesh *mesh[MESHES];
    uint64_t dice = 5, own = (uint64_t)sherd_world_rank(world) + 1;
    int64_t shape[2] = {7, 5}, nowhere[SHERD_MAX_AXES] = {0};

    for (int i = 0; i < MESHES; i++)
        mesh[i] = mesh_of(world, texts[i]);
    for (int turn = 0; turn < 60; turn++) {
        sherd_tensor *t[MANY], *out[MANY];
        const sherd_layout *to[MANY];
        sherd_scope_begin(world);
        for (int i = 0; i < MANY; i++) {
            const sherd_mesh *a = mesh[roll(&dice, MESHES)], *b = mesh[roll(&dice, MESHES)];
            const sherd_layout *from = numbered(a, 2, shape, roll(&dice, lists_of(a, 2)));
            const sherd_layout *target = numbered(b, 2, shape, roll(&dice, lists_of(b, 2)));
            t[i] = indices_on(from, SHERD_F32);
            CHECK_OK(sherd__layout_settle(&to[i], target));
        }
        if (roll(&own, 3) == 0)
            usleep((unsigned)roll(&own, 300));
        sherd_redistribute_many(out, t, to, MANY);
        for (int i = 0; i < MANY; i++)
            CHECK_EQ(count_wrong(out[i], addends_of(t[i]->layout, nowhere, NULL)), 0);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The source may be overwritten right after the call: the writer waits for its readers of the other
 * mesh. */
static void writing_after_a_call_does_not_show(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "2@0,1"), *b = mesh_of(world, "2@2,3");
    int64_t shape[2] = {6, 5};
    sherd_tensor *t = indices_on(layout_of(a, 2, shape, "S(0)", NULL), SHERD_F32);
    const sherd_layout *to = layout_of(b, 2, shape, "S(1)", NULL);
    uint64_t own = (uint64_t)sherd_world_rank(world) + 1;

    for (int i = 0; i < 60; i++) {
        sherd_scope_begin(world);
        sherd_tensor *m = sherd__move_to(t, to, i % 2);
        if (roll(&own, 4) == 0)
            usleep((unsigned)roll(&own, 300));
        float *data = sherd_tensor_write(t);
        for (int64_t k = 0; k < t->count; k++)
            data[k] += 1;
        const float *got = sherd_tensor_read(m);
        sherd_box box = sherd_tensor_box(m);
        int64_t wrong = 0;
        for (int64_t k = 0; got && k < m->count; k++)
            wrong += got[k] != (float)(global_of(&box, shape, k) + i);
        CHECK_EQ(wrong, 0);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static void ranks_that_disagree_all_get_ediffer(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "2@0,1"), *b = mesh_of(world, "2@1,2");
    int64_t shape[2] = {6, 5};
    const sherd_layout *rows = layout_of(a, 2, shape, "S(0)", NULL);
    const sherd_layout *columns = layout_of(b, 2, shape, "S(1)", NULL);
    const sherd_layout *whole = layout_of(b, 2, shape, "R", NULL);

    for (int odd = 0; odd < sherd_world_ranks(world); odd++)
        for (int how = 0; how < 4; how++) {
            bool me = sherd_world_rank(world) == odd;
            sherd_scope_begin(world);
            sherd_tensor *t = indices_on(rows, me && how == 1 ? SHERD_F64 : SHERD_F32);
            if (me && how == 0)
                sherd__move_to(t, whole, false); /* somewhere else */
            else if (me && how == 2)
                sherd__move_to(indices_on(whole, SHERD_F32), rows, false); /* the way back */
            else if (!me || how == 1)
                sherd__move_to(t, columns, false);
            sherd_scope_end(world);
            sherd_status status = sherd_world_check(world);
            CHECK_EQ(status, SHERD_EDIFFER);
            check_same(world, status);
        }
    CHECK_EQ(count_wrong(sherd__move_to(indices_on(rows, SHERD_F32), columns, false), 1), 0);
    CHECK_OK(sherd_world_check(world));
}

/* A call within a mesh and one to another, in the opposite order. */
static void opposite_orders_end_in_ediffer(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "2@0,1"), *b = mesh_of(world, "2@1,0");
    int64_t shape[2] = {6, 5};
    const sherd_layout *rows = layout_of(a, 2, shape, "S(0)", NULL);
    const sherd_layout *columns = layout_of(a, 2, shape, "S(1)", NULL);
    const sherd_layout *there = layout_of(b, 2, shape, "S(1)", NULL);

    for (int i = 0; i < 5; i++) {
        sherd_scope_begin(world);
        sherd_tensor *t = indices_on(rows, SHERD_F32);
        bool first = sherd_world_rank(world) == 1;
        sherd__move_to(t, first ? there : columns, false);
        sherd__move_to(t, first ? columns : there, false);
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    }
}

static void what_cannot_be_is_refused_by_all(sherd_world *world)
{
    const sherd_mesh *a = mesh_of(world, "2@0,1"), *b = mesh_of(world, "2@1,2");
    int64_t shape[2] = {6, 5};
    sherd_tensor *t = indices_on(layout_of(a, 2, shape, "S(0)", NULL), SHERD_F32);
    sherd_tensor *p = indices_on(layout_of(a, 2, shape, "P(avg)", NULL), SHERD_I32);

    CHECK(sherd_tensor_failed(sherd__move_to(t, layout_of(b, 2, shape, "P(sum)", NULL), false)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "pending") != NULL);
    CHECK(sherd_tensor_failed(sherd__move_to(p, layout_of(b, 2, shape, "R", NULL), false)));
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
}

static void scene(sherd_world *world)
{
    const sherd_mesh *a = NULL, *b = NULL;
    int64_t shape[2] = {7, 5};
    const sherd_layout *rows = NULL, *columns = NULL, *sum = NULL, *here = NULL;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&a, world, "2@0,1") == SHERD_OK &&
        sherd_mesh_parse(&b, world, "2@1,2") == SHERD_OK &&
        sherd_layout_parse_placements(&rows, a, 2, shape, "S(0)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&here, a, 2, shape, "S(1)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&sum, a, 2, shape, "P(sum)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&columns, b, 2, shape, "S(1)", NULL) == SHERD_OK) {
        sherd_tensor *t[3] = {sherd_constant_on(rows, SHERD_F32, 1),
                              sherd_constant_on(sum, SHERD_F64, 2),
                              sherd_constant_on(rows, SHERD_F64, 2)};
        const sherd_layout *to[3] = {columns, columns, here};
        sherd_tensor *out[3];
        sherd_tensor *m = sherd__move_to(sherd__move_to(t[0], columns, false), rows, true);
        sherd_redistribute_many(out, t, to, 3);
        if (m->storage && out[1]->storage)
            sherd_tensor_read(m);
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    for (int rank = 0; rank < sherd_world_ranks(world); rank++)
        fail_every_allocation(world, rank, scene);
}

/*
 * Ranks that keep their boxes have copies: what is written to the result would show in the source,
 * where other ranks may have replicas, and in whose ledger the write is not.
 */
static void boxes_that_stay_are_copied(sherd_world *world)
{
    const int64_t shape[] = {4, 3};
    const char *const others[] = {"1@1", "2@1,0"};
    sherd_tensor *t = indices_on(layout_of(line_of_ranks(world), 2, shape, "R", NULL), SHERD_F32);

    for (int i = 0; i < LEN(others); i++) {
        const sherd_layout *to = layout_of(mesh_of(world, others[i]), 2, shape, "R", NULL);
        sherd_tensor *y = sherd__move_to(t, to, false);
        if (y->count > 0) {
            float *data = sherd_tensor_write(y);
            for (int64_t k = 0; data && k < y->count; k++)
                data[k] = -1;
        }
        CHECK_EQ(count_wrong(t, 1), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(every_element_lands_and_comes_back), {1, 2, 3, 4, 8}},
    {TEST(other_reductions_are_exact), {4}},
    {TEST(a_rank_in_neither_mesh_takes_part), {3, 4}},
    {TEST(nobody_waits_for_a_rank_that_brings_nothing), {4}},
    {TEST(many_on_two_meshes_is_one_call_per_group), {4}},
    {TEST(random_lists_come_to_an_end), {4}},
    {TEST(writing_after_a_call_does_not_show), {4}},
    {TEST(boxes_that_stay_are_copied), {2, 3, 4}},
    {TEST(ranks_that_disagree_all_get_ediffer), {3, 4}},
    {TEST(opposite_orders_end_in_ediffer), {2}},
    {TEST(what_cannot_be_is_refused_by_all), {3}},
    {TEST(no_memory_on_one_rank_fails_on_all), {3, 4}},
};
CHECK_MAIN(tests)
