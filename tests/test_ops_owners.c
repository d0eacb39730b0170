/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of a sharded dim that owners send and take: as plain under any layout, also gradients;
 * and what travels: what is asked for, once, and nothing else. Tensors are wide, so that asking pays.
 */
#include "points.h"

#include "sherd/comm.h"
#include "sherd/ops_index.h"

enum { WIDE = 1000 };

static const char *const meshes[][3] = {
    {"1", "1x1", "1"},   {"2", "1x2", "2"},   {"3", "2", "3"},   {"4", "2x2", "2x2"},
    {"5", "2x2", "1x3"}, {"6", "2x3", "3x2"}, {"7", "2x3", "2"}, {"8", "2x2x2", "2x4"}};

/* Whole numbers, so that sums are exact in any order. */
static sherd_tensor *numbers(scene *s, sherd_dtype dtype, int ndim, const int64_t *shape, int limit)
{
    int64_t count = 1;

    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    int32_t *x = malloc(sizeof *x * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++)
        x[i] = roll(&s->dice, limit);
    sherd_tensor *t = sherd_mark_equal(sherd_from_data(s->world, SHERD_I32, shape, ndim, x));
    free(x);
    return dtype == SHERD_I32 ? t : sherd_cast(t, dtype);
}

static sherd_tensor *spread(scene *s, const sherd_mesh *mesh, sherd_tensor *t)
{
    const sherd_layout *layout = NULL;

    if (t->ndim == 2)
        return sherd_distribute(t, draw_layout(s, mesh, t->shape), -1);
    CHECK_OK(sherd_layout_create(
        &layout, mesh, 1, t->shape,
        (sherd_placement[]){roll(&s->dice, 3) ? sherd_shard(0) : sherd_replicate(),
                            roll(&s->dice, 2) ? sherd_shard(0) : sherd_replicate(),
                            sherd_replicate(), sherd_replicate()},
        NULL));
    return sherd_distribute(t, layout, -1);
}

/* With an index of slices, one for each element, and one that is an expanded column. */
enum { SELECT, GATHER, GATHER_COLUMN, ADD_SLICES, REDUCE, ADD, ADD_COLUMN, KINDS };

static bool is_flat(int kind)
{
    return kind != GATHER && kind != ADD;
}

static sherd_tensor *apply(int kind, sherd_reduce_op reduce, sherd_tensor *const *in)
{
    sherd_tensor *a = in[0], *at = in[1];

    if (kind == GATHER_COLUMN || kind == ADD_COLUMN)
        at = sherd_expand(sherd_unsqueeze(at, 1), (int64_t[]){-1, a->shape[1]}, 2);
    if (kind == SELECT)
        return sherd_index_select(a, 0, at);
    if (kind <= GATHER_COLUMN)
        return sherd_gather(a, 0, at);
    if (kind == REDUCE)
        return sherd_index_reduce(a, 0, at, in[2], reduce, true);
    return (kind == ADD_SLICES ? sherd_index_add : sherd_scatter_add)(a, 0, at, in[2]);
}

static bool same(sherd_tensor *y, sherd_tensor *want)
{
    return CHECK_EQ(count_different(y, want), 0);
}

static void check_call(scene *s, const sherd_mesh *mesh, int kind, sherd_dtype dtype)
{
    int64_t entries[2] = {1 + roll(&s->dice, 60), WIDE + roll(&s->dice, 9)};
    int64_t rows[2] = {roll(&s->dice, 30), entries[1]};
    int operands = kind >= ADD_SLICES ? 3 : 2;
    sherd_reduce_op reduce = (sherd_reduce_op)(SHERD_MIN + roll(&s->dice, 3));
    bool flat = is_flat(kind);

    if (kind == REDUCE && reduce == SHERD_PRODUCT && dtype != SHERD_I32)
        dtype = SHERD_F64; /* in which 3^30 is exact */
    sherd_tensor *plain[3] = {numbers(s, dtype, 2, entries, 64),
                              numbers(s, SHERD_I32, flat ? 1 : 2, rows, (int)entries[0]),
                              numbers(s, dtype, 2, rows, 4)};
    sherd_tensor *in[3];
    bool graded = dtype != SHERD_I32;

    for (int i = 0; i < operands; i++) {
        in[i] = spread(s, mesh, plain[i]);
        if (i != 1 && graded) {
            sherd_require_grad(in[i], true);
            sherd_require_grad(plain[i], true);
        }
    }
    sherd_tensor *want = apply(kind, reduce, plain), *y = apply(kind, reduce, in);
    if (!CHECK(!sherd_tensor_failed(want) && !sherd_tensor_failed(y)))
        return;
    bool good = same(y, want);
    if (graded) {
        sherd_tensor *dy = numbers(s, dtype, 2, want->shape, 5);
        sherd_backward_with(&want, &dy, 1, NULL);
        sherd_backward_with(&y, &dy, 1, NULL);
        for (int i = 0; i < operands; i += 2)
            good = same(sherd_grad(in[i]), sherd_grad(plain[i])) && good;
    }
    if (!good)
        fprintf(stderr, "%d of %s by %s -> %s\n", kind, sherd_tensor_text(in[0]),
                sherd_tensor_text(in[1]), sherd_tensor_text(y));
}

static void every_layout_is_as_plain(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_F16, SHERD_I32};
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 3000 : 42;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = mesh_of(world, meshes[sherd_world_ranks(world) - 1][i % 3]);
        sherd_scope_begin(world);
        check_call(&s, mesh, i / 3 % KINDS, dtypes[roll(&s.dice, LEN(dtypes))]);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- what travels ---------------------------------------------------------------------------- */

enum { ENTRIES = 4000, ROWS = 1000, WIDTH = 8 };

static int64_t owner(int64_t j, int ranks)
{
    return j * 37 % ENTRIES / ((ENTRIES + ranks - 1) / ranks);
}

/* Rows j of rank `from` that lie with rank `at`. */
static int64_t asked(int from, int at, int ranks)
{
    int64_t length = (ROWS + ranks - 1) / ranks, count = 0;

    for (int64_t j = from * length; j < (from + 1) * length && j < ROWS; j++)
        count += owner(j, ranks) == at;
    return count;
}

static int64_t received(sherd_world *world)
{
    int64_t sum = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        sum += sherd_comm_get(world, i).bytes_received;
    return sum;
}

/* Counts, what is asked of this rank, and the rows that it asks for: three calls. Gradients go the
 * other way, in two. */
static void what_is_asked_for_travels(sherd_world *world)
{
    static const int64_t shape[2] = {ENTRIES, WIDTH}, rows[1] = {ROWS};
    int ranks = sherd_world_ranks(world), me = sherd_world_rank(world);
    int64_t counts = (int64_t)(ranks - 1) * (ranks + 1) * 8, row = WIDTH * 8, to = 0, from = 0;
    int32_t index[ROWS];
    char text[16];

    snprintf(text, sizeof text, "%d", ranks);
    const sherd_mesh *mesh = mesh_of(world, text);
    for (int64_t j = 0; j < ROWS; j++)
        index[j] = (int32_t)(j * 37 % ENTRIES);
    for (int r = 0; r < ranks; r++) {
        from += r == me ? 0 : asked(me, r, ranks);
        to += r == me ? 0 : asked(r, me, ranks);
    }
    sherd_tensor *a =
        sherd_require_grad(indices_on(layout_of(mesh, 2, shape, "S(0)", NULL), SHERD_F64), true);
    sherd_tensor *at =
        sherd_distribute(sherd_mark_equal(sherd_from_data(world, SHERD_I32, rows, 1, index)),
                         layout_of(mesh, 1, rows, "S(0)", NULL), -1);
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_index_select(a, 0, at);
    CHECK_EQ(sherd_comm_calls(world, NULL), 3);
    CHECK_EQ(received(world), counts + to * 4 + from * row);
    sherd_tensor *dy = sherd_constant_on(y->layout, SHERD_F64, 1);
    sherd_comm_reset(world);
    sherd_backward_with(&y, &dy, 1, NULL);
    CHECK_EQ(sherd_comm_calls(world, NULL), 2);
    CHECK_EQ(received(world), counts + to * (4 + row));
    CHECK_OK(sherd_world_check(world));
}

/*
 * Each rank has edges around its own nodes, EDGES of each, the last of which is in the next shard for
 * NEAR of them: these NEAR nodes travel, once, and no node that nobody lacks.
 */
enum { NODES = 9000, EDGES = 3, NEAR = 5, CHANNELS = 32 };

static int32_t node_of(int64_t edge)
{
    int64_t node = edge / EDGES + (edge % EDGES ? NEAR : 0);

    return (int32_t)(node < NODES ? node : NODES - 1);
}

/* The same where the index is a column that is expanded, as PyTorch Geometric does it. */
static void check_columns(sherd_tensor *nodes, sherd_tensor *at, sherd_tensor *messages,
                          int64_t given, int64_t taken)
{
    sherd_world *world = nodes->world;
    sherd_tensor *column = sherd_expand(sherd_unsqueeze(at, 1), messages->shape, 2);

    sherd_comm_reset(world);
    sherd_tensor *of = sherd_gather(nodes, 0, column);
    CHECK_EQ(received(world), taken);
    sherd_comm_reset(world);
    sherd_backward_with(&of, &messages, 1, NULL);
    CHECK_EQ(received(world), given);
    sherd_comm_reset(world);
    sherd_tensor *sums = sherd_scatter_add(nodes, 0, column, messages);
    CHECK_EQ(received(world), given);
    sherd_comm_reset(world);
    sherd_backward_with(&sums, &(sherd_tensor *){sherd_detach(nodes)}, 1, NULL);
    CHECK_EQ(received(world), taken);
    sherd_comm_reset(world);
    sherd_scatter_reduce(sherd_detach(nodes), 0, column, sherd_detach(messages), SHERD_MIN, true);
    CHECK_EQ(received(world), given);
}

static void slices_of_a_graph_travel_once(sherd_world *world)
{
    static const int64_t shape[2] = {NODES, CHANNELS}, edges[1] = {EDGES * NODES},
                         wide[2] = {EDGES * NODES, CHANNELS};
    int32_t index[EDGES * NODES];
    int ranks = sherd_world_ranks(world), me = sherd_world_rank(world);
    int64_t counts = (int64_t)(ranks - 1) * (ranks + 1) * 8, slice = CHANNELS * 4;
    int64_t from = me < ranks - 1 ? NEAR : 0, to = me > 0 ? NEAR : 0;
    char text[16];

    for (int64_t j = 0; j < EDGES * NODES; j++)
        index[j] = node_of(j);
    snprintf(text, sizeof text, "%d", ranks);
    const sherd_mesh *mesh = mesh_of(world, text);
    sherd_tensor *nodes =
        sherd_require_grad(indices_on(layout_of(mesh, 2, shape, "S(0)", NULL), SHERD_F32), true);
    sherd_tensor *at = sherd_distribute(sherd_from_data(world, SHERD_I32, edges, 1, index),
                                        layout_of(mesh, 1, edges, "S(0)", NULL), 0);
    sherd_tensor *messages = sherd_require_grad(
        sherd_constant_on(layout_of(mesh, 2, wide, "S(0)", NULL), SHERD_F32, 1), true);
    sherd_comm_reset(world);
    sherd_tensor *of = sherd_index_select(nodes, 0, at);
    CHECK_EQ(received(world), counts + to * 4 + from * slice);
    sherd_comm_reset(world);
    sherd_backward_with(&of, &messages, 1, NULL);
    CHECK_EQ(received(world), counts + to * (4 + slice));
    sherd_comm_reset(world);
    sherd_tensor *sums = sherd_index_add(nodes, 0, at, messages);
    CHECK_EQ(received(world), counts + to * (4 + slice));
    sherd_comm_reset(world);
    sherd_backward_with(&sums, &(sherd_tensor *){sherd_detach(nodes)}, 1, NULL);
    CHECK_EQ(received(world), counts + to * 4 + from * slice);
    sherd_comm_reset(world);
    sherd_index_reduce(sherd_detach(nodes), 0, at, sherd_detach(messages), SHERD_MAX, true);
    CHECK_EQ(received(world), counts + to * (4 + slice));
    check_columns(nodes, at, messages, counts + to * (4 + slice), counts + to * 4 + from * slice);
    CHECK_OK(sherd_world_check(world));
}

/* An index that is outside is said by all, also where only one rank has it. */
static void an_index_that_is_outside_is_said_by_all(sherd_world *world)
{
    static const int64_t shape[2] = {ENTRIES, WIDTH}, rows[1] = {ROWS};
    const sherd_mesh *mesh = mesh_of(world, "2");
    static const int32_t zeroes[ROWS];
    int32_t index[ROWS];

    memcpy(index, zeroes, sizeof index);
    index[ROWS - 1] = ENTRIES;
    sherd_tensor *a = indices_on(layout_of(mesh, 2, shape, "S(0)", NULL), SHERD_F64);
    sherd_index_select(
        a, 0,
        sherd_distribute(sherd_mark_equal(sherd_from_data(world, SHERD_I32, rows, 1, index)),
                         layout_of(mesh, 1, rows, "S(0)", NULL), -1));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "index[999] = 4000 is outside of [0,4000)") != NULL);
    CHECK_OK(sherd_world_check(world));
}

/* ---- lack of memory -------------------------------------------------------------------------- */

static void take_and_give(sherd_world *world)
{
    static const int64_t shape[2] = {ENTRIES, WIDTH}, rows[1] = {ROWS};
    const sherd_mesh *mesh = NULL;
    const sherd_layout *a = NULL, *index = NULL;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&a, mesh, 2, shape, "S(0)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&index, mesh, 1, rows, "S(0)", NULL) == SHERD_OK)
        sherd_backward(sherd_sum(
            sherd_index_select(sherd_require_grad(sherd_constant_on(a, SHERD_F16, 1), true), 0,
                               sherd_constant_on(index, SHERD_I32, 7))));
    else
        sherd__raise(world, SHERD_ENOMEM, "no layouts");
    sherd_scope_end(world);
}

static void lack_of_memory_is_said_by_all(sherd_world *world)
{
    fail_every_allocation(world, 1, take_and_give);
}

static const check_test tests[] = {
    {TEST(every_layout_is_as_plain), {1, 2, 3, 4, 8}},
    {TEST(what_is_asked_for_travels), {2, 3, 4}},
    {TEST(slices_of_a_graph_travel_once), {2, 3, 4}},
    {TEST(an_index_that_is_outside_is_said_by_all), {2}},
    {TEST(lack_of_memory_is_said_by_all), {2}},
};
CHECK_MAIN(tests)
