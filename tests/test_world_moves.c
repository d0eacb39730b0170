/* SPDX-License-Identifier: Apache-2.0 */
/* Sampled pairs of layouts on real ranks, every element checked; sources are overwritten right
 * after, with random delays. */
#include "world_moves.h"
#include "world/remote.h"

enum { PAIRS = 120 };

/* ---- pseudo-random choices, equal on all ranks ----------------------------------------------- */

static const char *const meshes[9][3] = {
    {NULL},
    {"1", "1x1", "1x1x1"},
    {"2", "2x1", "1x2"},
    {"3", "1x3", "3"},
    {"4", "2x2", "2x2"},
    {NULL},
    {NULL},
    {NULL},
    {"2x2x2", "2x4", "8"},
};

static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 8, 12, 13, 16};

/* Sizes of the shards of a dim of n: random cuts, or NULL for the default. */
static const int64_t *random_sizes(uint64_t *state, int64_t n, int64_t parts, int64_t *out)
{
    int64_t left = n;

    if (roll(state, 3))
        return NULL;
    for (int64_t i = 0; i < parts; i++) {
        out[i] = i == parts - 1 ? left : roll(state, (int)left + 1);
        left -= out[i];
    }
    return out;
}

static const sherd_layout *random_layout(uint64_t *state, const sherd_mesh *mesh, int ndim,
                                         const int64_t *shape, bool pending, sherd_reduce_op op,
                                         const sherd_layout *source)
{
    int axes = sherd_mesh_axes(mesh), order[SHERD_MAX_AXES], next[SHERD_MAX_DIMS] = {0};
    sherd_placement placements[SHERD_MAX_AXES];
    int64_t room[SHERD_MAX_DIMS][64], parts[SHERD_MAX_DIMS];
    const int64_t *cut[SHERD_MAX_DIMS] = {NULL};
    const sherd_layout *layout = NULL;

    for (int d = 0; d < ndim; d++)
        parts[d] = 1;
    bool backwards = roll(state, 2);
    for (int i = 0; i < axes; i++) {
        int a = backwards ? axes - 1 - i : i, kind = roll(state, ndim ? 3 : 1);
        placements[a] = sherd_replicate();
        order[a] = 0;
        if (kind && (!pending || kind == 1)) {
            int dim = roll(state, ndim);
            placements[a] = sherd_shard(dim);
            order[a] = next[dim]++;
            parts[dim] *= sherd_mesh_extent(mesh, a);
        } else if (pending && roll(state, 4)) {
            placements[a] = sherd_partial(op);
        } else if (source && sherd_layout_placement(source, a).kind == SHERD_PARTIAL &&
                   !roll(state, 3)) {
            placements[a] = sherd_partial(op);
        }
    }
    for (int d = 0; d < ndim; d++)
        cut[d] = parts[d] > 1 ? random_sizes(state, shape[d], parts[d], room[d]) : NULL;
    sherd_layout_options options = {.order = order, .sizes = cut};
    CHECK_OK(sherd_layout_create(&layout, mesh, ndim, shape, placements, &options));
    return layout;
}

static pair random_pair(uint64_t *state, const sherd_mesh *mesh)
{
    int ndim = 1 + roll(state, 3);
    int64_t shape[3];
    pair p = {.op = (sherd_reduce_op)(roll(state, 2) ? SHERD_SUM : roll(state, 5))};

    for (int d = 0; d < ndim; d++)
        shape[d] = sizes[roll(state, LEN(sizes))];
    p.from = random_layout(state, mesh, ndim, shape, roll(state, 2), p.op, NULL);
    p.to = random_layout(state, mesh, ndim, shape, false, p.op, p.from);
    return p;
}

/* Moves p; the source is overwritten as soon as it may be. */
static void run_pair(sherd_world *world, const pair *p, bool begin)
{
    const sherd_plan *plan = NULL;
    tensor from, to;

    CHECK_OK(sherd_plan_create(&plan, p->from, p->to, SHERD_F64, NULL));
    if (!plan || sherd_plan_steps(plan) == 0)
        return;
    from = make(world, p->from);
    to = make(world, p->to);
    fill(world, p, &from);
    sherd__move move = move_of(plan, &from, &to);
    some_time();
    if (sherd_plan_step(plan, 0)->kind == SHERD_STEP_SLICE)
        CHECK(sherd__slice(world, &move));
    else
        CHECK(sherd__call(world, "test", &move, 1, begin));
    some_time();
    if (from.count && CHECK(sherd__block_writable(world, from.block)))
        memset(sherd__block_data(from.block), 0xFF, (size_t)from.count * 8);
    if (!CHECK_EQ(count_wrong(world, p, &to), 0))
        fprintf(stderr, "%s -> %s\n", sherd_layout_text(p->from), sherd_layout_text(p->to));
    sherd__block_give(world, from.block);
    sherd__block_give(world, to.block);
}

static void run_sample(sherd_world *world, uint64_t seed, bool begin)
{
    int ranks = sherd_world_ranks(world);
    uint64_t state = seed;

    dice = (uint64_t)sherd_world_rank(world) * 77 + seed;

    for (int m = 0; m < 3; m++) {
        const sherd_mesh *mesh = NULL;
        CHECK_OK(sherd_mesh_parse(&mesh, world, meshes[ranks][m]));
        for (int i = 0; i < PAIRS; i++) {
            pair p = random_pair(&state, mesh);
            check_at(__LINE__);
            run_pair(world, &p, begin);
        }
        CHECK_OK(sherd_world_check(world));
    }
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void every_element_lands_at_its_index(sherd_world *world)
{
    run_sample(world, 1, false);
}

static void begun_calls_fill_their_results(sherd_world *world)
{
    run_sample(world, 2, true);
}

/* Messages that lie there for calls that are over. */
static int left_over(const sherd_world *world)
{
    int count = 0;

    for (int q = 0; world->remote && q < world->ranks; q++)
        for (const sherd__sheet *sheet = world->remote->inbox[q]; sheet; sheet = sheet->next)
            count++;
    return count;
}

/* Many tensors in one call: the log counts one. */
static void many_of(sherd_world *world, int64_t rows, bool sliced)
{
    enum { MANY = 50 };
    int64_t shape[2] = {rows, 5};
    tensor from[MANY], to[MANY];
    sherd__move moves[MANY];
    const sherd_mesh *mesh = NULL;
    const sherd_plan *plan = NULL;
    pair p = {.op = SHERD_SUM};

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){sherd_world_ranks(world)}, NULL, NULL));
    sherd_placement sum = sherd_partial(SHERD_SUM), all = sherd_replicate();
    CHECK_OK(sherd_layout_create(&p.from, mesh, 2, shape, &sum, NULL));
    CHECK_OK(sherd_layout_create(&p.to, mesh, 2, shape, &all, NULL));
    CHECK_OK(sherd_plan_create(&plan, p.from, p.to, SHERD_F64, NULL));
    CHECK_EQ(plan->step[0].sliced, sliced);
    for (int round = 0; round < (sliced ? 2 : 20); round++) {
        for (int i = 0; i < MANY; i++) {
            from[i] = make(world, p.from);
            to[i] = make(world, p.to);
            fill(world, &p, &from[i]);
            moves[i] = move_of(plan, &from[i], &to[i]);
        }
        sherd_comm_reset(world);
        CHECK(sherd__call(world, "test", moves, MANY, round % 2));
        CHECK_EQ(sherd_comm_count(world), 1);
        CHECK_EQ(sherd_comm_get(world, 0).calls, 1);
        CHECK_TEXT(sherd_comm_get(world, 0).axes, "a0");
        CHECK_EQ(sherd_comm_get(world, 0).bytes_received, MANY * plan->mine[0]->recv_bytes);
        for (int i = 0; i < MANY; i++) {
            CHECK_EQ(count_wrong(world, &p, &to[i]), 0);
            sherd__block_give(world, from[i].block);
            sherd__block_give(world, to[i].block);
        }
    }
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(sherd_world_memory(world).live_bytes, 0);
    CHECK_EQ(left_over(world), 0);
}

static void many_tensors_go_in_one_call(sherd_world *world)
{
    many_of(world, 24, false);
    many_of(world, 2401, true);
}

/* All-reduces by slices in one call, of two tensors, of which some ranks have parts of one only. */
static void a_call_reduces_what_some_ranks_have_nothing_of(sherd_world *world)
{
    static const int64_t shapes[2][2] = {{4, 3000}, {1, 6000}};
    const int64_t extents[2] = {sherd_world_ranks(world) / 2, 2};
    sherd_placement sum[2] = {sherd_partial(SHERD_SUM), sherd_shard(0)};
    sherd_placement all[2] = {sherd_replicate(), sherd_shard(0)};
    const sherd_mesh *mesh = NULL;
    const sherd_plan *plan = NULL;
    sherd__move moves[2];
    tensor from[2], to[2];
    pair p[2];

    CHECK_OK(sherd_mesh_create(&mesh, world, 2, extents, NULL, NULL));
    for (int i = 0; i < 2; i++) {
        p[i].op = SHERD_SUM;
        CHECK_OK(sherd_layout_create(&p[i].from, mesh, 2, shapes[i], sum, NULL));
        CHECK_OK(sherd_layout_create(&p[i].to, mesh, 2, shapes[i], all, NULL));
        CHECK_OK(sherd_plan_create(&plan, p[i].from, p[i].to, SHERD_F64, NULL));
        CHECK(plan->step[0].sliced);
        from[i] = make(world, p[i].from);
        to[i] = make(world, p[i].to);
        fill(world, &p[i], &from[i]);
        moves[i] = move_of(plan, &from[i], &to[i]);
    }
    CHECK(sherd__call(world, "test", moves, 2, false));
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(count_wrong(world, &p[i], &to[i]), 0);
        sherd__block_give(world, from[i].block);
        sherd__block_give(world, to[i].block);
    }
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(left_over(world), 0);
}

/* A strided source: the transposed view of what lies in memory. */
static void a_strided_source_is_read_where_it_lies(sherd_world *world)
{
    int64_t shape[2] = {9, 11};
    const sherd_mesh *mesh = NULL;
    const sherd_plan *plan = NULL;
    pair p = {.op = SHERD_SUM};

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){sherd_world_ranks(world)}, NULL, NULL));
    sherd_placement rows = sherd_shard(0), columns = sherd_shard(1);
    CHECK_OK(sherd_layout_create(&p.from, mesh, 2, shape, &rows, NULL));
    CHECK_OK(sherd_layout_create(&p.to, mesh, 2, shape, &columns, NULL));
    CHECK_OK(sherd_plan_create(&plan, p.from, p.to, SHERD_F64, NULL));
    tensor from = make(world, p.from), to = make(world, p.to);
    double *x = sherd__block_data(from.block);
    int64_t stride[2] = {1, from.box.size[0]};
    for (int64_t i = 0; i < from.box.size[0]; i++)
        for (int64_t j = 0; j < 11; j++)
            x[i + j * stride[1]] = (double)((from.box.offset[0] + i) * 11 + j);
    sherd__move move = move_of(plan, &from, &to);
    move.source_stride = stride;
    CHECK(sherd__call(world, "test", &move, 1, false));
    CHECK_EQ(count_wrong(world, &p, &to), 0);
    sherd__block_give(world, from.block);
    sherd__block_give(world, to.block);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(every_element_lands_at_its_index), {1, 2, 3, 4, 8}},
    {TEST(begun_calls_fill_their_results), {1, 2, 3, 4, 8}},
    {TEST(many_tensors_go_in_one_call), {2, 3, 4, 8}},
    {TEST(a_call_reduces_what_some_ranks_have_nothing_of), {4, 8}},
    {TEST(a_strided_source_is_read_where_it_lies), {2, 3, 4, 8}},
};
CHECK_MAIN(tests)
