/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of several steps on real ranks, written by hand so that they do not depend on what a
 * planner likes: exact, begun, out of strided sources, counted step by step, failing in the middle,
 * and leaving nothing behind. And partitions; and who reads a tensor that is written.
 */
#include "tensors.h"

#include "search/planners.h"
#include "search/plans.h"
#include "sherd/comm.h"
#include "world/blocks.h"

enum { STOPS = 5 };

/* Make the plan between two layouts go through these stops: all but the first are "placements on
 * mesh". */
static void plan_through(sherd_world *world, const sherd_layout *const *stop, int stops,
                         size_t element_bytes)
{
    const sherd_plan *found = NULL;
    sherd__space *space = sherd__world_space(world);
    const sherd__request request = {.per_host = 1};
    const sherd__problem problem =
        sherd__problem_of(space, stop[0], stop[stops - 1], element_bytes, &request);

    if (!CHECK_OK(sherd__plan_find(&found, stop[0], stop[stops - 1], element_bytes, NULL)))
        return;
    sherd_plan *plan = (sherd_plan *)(uintptr_t)found;
    for (int i = 0; i < plan->steps; i++)
        sherd__schedule_destroy(space, plan->mine[i]);
    sherd__free(space->heap, plan->mine);
    sherd__free(space->heap, plan->step);
    plan->steps = stops - 1;
    plan->step = sherd__alloc(space->heap, STOPS, sizeof *plan->step);
    plan->mine = sherd__alloc(space->heap, STOPS, sizeof(sherd__schedule *));
    for (int i = 0; i < plan->steps; i++) {
        sherd__priced priced;
        CHECK_OK(sherd__step_price(&priced, &problem, stop[i], stop[i + 1]));
        plan->step[i] = priced.step;
        CHECK_OK(sherd__schedule_create(&plan->mine[i], space, &plan->step[i], element_bytes,
                                        sherd_world_rank(world)));
    }
}

/* A path, and the same made the plan between its ends. */
typedef struct path {
    int stops;
    const char *mesh[STOPS], *placements[STOPS];
    int addends;
} path;

static const path paths[] = {
    {4, {"2x2"}, {"P(sum)S(0)", "S(1)S(0)", "S(1)R", "RR"}, 2},
    {3, {"2x2"}, {"P(sum)P(sum)", "S(0)P(sum)", "RR"}, 4},
    {4, {"2x2"}, {"P(sum)P(sum)", "P(sum)R", "RR", "S(0)S(1)"}, 4},
    {3, {"4"}, {"S(0)", "R", "S(1)"}, 1},
    {5, {"2x2"}, {"S(0)S(1)", "S(0)R", "S(0)S(0)", "RS(0)", "S(1)S(0)"}, 1},
    /* the last step goes to another mesh, which rank 0 or rank 3 is not in */
    {3, {"2x2", "2x2", "3@3,1,2"}, {"P(sum)S(0)", "S(1)S(0)", "S(0)"}, 2},
    {4, {"3@2,0,1", "3@2,0,1", "3@2,0,1", "2@3,1"}, {"P(sum)", "S(0)", "S(1)", "R"}, 3},
    {3, {"2@0,1", "2@0,1", "2@2,3"}, {"P(sum)", "R", "S(1)"}, 2},
};

static const sherd_layout *stop_of(sherd_world *world, const path *p, int i, const int64_t *shape)
{
    const char *mesh = p->mesh[0];

    for (int k = 0; k <= i; k++)
        mesh = p->mesh[k] ? p->mesh[k] : mesh;
    return layout_of(mesh_of(world, mesh), 2, shape, p->placements[i], NULL);
}

static void lay_out(sherd_world *world, const path *p, const int64_t *shape,
                    const sherd_layout **stop)
{
    for (int i = 0; i < p->stops; i++)
        stop[i] = stop_of(world, p, i, shape);
    plan_through(world, stop, p->stops, sizeof(double));
}

static void every_path_is_exact(sherd_world *world)
{
    static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 3}, {4, 0}, {70, 130}};

    for (int s = 0; s < LEN(shapes); s++)
        for (int i = 0; i < LEN(paths); i++) {
            const sherd_layout *stop[STOPS];
            lay_out(world, &paths[i], shapes[s], stop);
            for (int turn = 0; turn < 4; turn++) {
                sherd_scope_begin(world);
                sherd_tensor *t = indices_on(stop[0], SHERD_F64);
                sherd_tensor *m = sherd__move_to(t, stop[paths[i].stops - 1], turn % 2);
                CHECK(m->layout == stop[paths[i].stops - 1]);
                CHECK_EQ(count_wrong(m, paths[i].addends), 0);
                sherd_scope_end(world);
            }
        }
    CHECK_OK(sherd_world_check(world));
}

/* Of many tensors with plans of different lengths. */
static void many_go_round_by_round(sherd_world *world)
{
    sherd_tensor *t[LEN(paths)], *out[LEN(paths)];
    const sherd_layout *to[LEN(paths)], *stop[STOPS];
    int64_t shape[2] = {7, 5};

    for (int i = 0; i < LEN(paths); i++) {
        lay_out(world, &paths[i], shape, stop);
        t[i] = indices_on(stop[0], SHERD_F64);
        to[i] = stop[paths[i].stops - 1];
    }
    for (int turn = 0; turn < 10; turn++) {
        sherd_scope_begin(world);
        if (turn % 4 == sherd_world_rank(world))
            usleep(500);
        sherd_redistribute_many(out, t, to, LEN(paths));
        for (int i = 0; i < LEN(paths); i++)
            CHECK_EQ(count_wrong(out[i], paths[i].addends), 0);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A view that is transposed: each step reads strides, and a sliced all-reduce a compact copy. */
static void a_strided_source_goes_all_the_way(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const int64_t sizes[][2] = {{7, 5}, {90, 130}}; /* the larger one in slices */

    for (int s = 0; s < LEN(sizes); s++) {
        int64_t shape[2] = {sizes[s][0], sizes[s][1]}, turned[2] = {shape[1], shape[0]};
        const sherd_layout *stop[] = {layout_of(mesh, 2, turned, "P(sum)R", NULL),
                                      layout_of(mesh, 2, turned, "RR", NULL),
                                      layout_of(mesh, 2, turned, "S(0)S(1)", NULL),
                                      layout_of(mesh, 2, turned, "S(1)R", NULL)};
        plan_through(world, stop, LEN(stop), sizeof(double));
        sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, "P(sum)R", NULL), SHERD_F64);
        sherd_tensor *v = sherd__new_view(t);
        for (int d = 0; d < 2; d++) {
            v->shape[d] = t->shape[1 - d];
            v->local[d] = t->local[1 - d];
            v->stride[d] = t->stride[1 - d];
        }
        sherd__layout_set(&v->layout, stop[0]);
        sherd_tensor *m = sherd__move_to(v, stop[3], false);
        const double *data = sherd_tensor_read(m);
        sherd_box box = sherd_tensor_box(m);
        int64_t wrong = data ? 0 : -1;
        for (int64_t k = 0; data && k < m->count; k++) {
            int64_t at = global_of(&box, turned, k);
            wrong += data[k] != whole_value(at % shape[0] * shape[1] + at / shape[0], 2);
        }
        CHECK_EQ(wrong, 0);
        CHECK(!v->compact || v->compact->refs == 1); /* the copy is not kept for longer */
    }
    CHECK_OK(sherd_world_check(world));
}

static int64_t calls_of(sherd_world *world, const char *op, const char *axes, int64_t *bytes)
{
    for (int i = 0; i < sherd_comm_count(world); i++) {
        sherd_comm_entry entry = sherd_comm_get(world, i);
        if (strcmp(entry.op, op) == 0 && strcmp(entry.axes, axes) == 0) {
            *bytes = entry.bytes_received;
            return entry.calls;
        }
    }
    *bytes = 0;
    return 0;
}

static void the_log_counts_each_step(sherd_world *world)
{
    int64_t shape[2] = {8, 4}, bytes;
    const sherd_layout *stop[STOPS];

    lay_out(world, &paths[0], shape, stop);
    sherd_tensor *t = indices_on(stop[0], SHERD_F64);
    sherd_comm_reset(world);
    CHECK_EQ(count_wrong(sherd__move_to(t, stop[3], false), 2), 0);
    CHECK_EQ(sherd_comm_count(world), 3);
    CHECK_EQ(calls_of(world, "reduce_scatter", "a0", &bytes), 1);
    CHECK_EQ(bytes, 4 * 2 * 8);
    CHECK_EQ(calls_of(world, "all_gather", "a1", &bytes), 1);
    CHECK_EQ(bytes, 4 * 2 * 8);
    CHECK_EQ(calls_of(world, "all_gather", "a0", &bytes), 1);
    CHECK_EQ(bytes, 8 * 2 * 8);
    CHECK_OK(sherd_world_check(world));
}

static int64_t bytes_of(sherd_world *world, const sherd_layout *layout)
{
    sherd_box box = sherd_layout_box(layout, sherd_world_rank(world), 0);

    return sherd__in_mesh(world, layout->spec.mesh)
               ? sherd__box_count(&box) * (int64_t)sizeof(double)
               : 0;
}

/* Between steps there are two results at most, and in the end only the last. */
static void intermediates_go_when_their_step_is_done(sherd_world *world)
{
    enum { TURNS = 60, WARM = 20 };
    int64_t shape[2] = {64, 64}, objects = 0;
    const sherd_layout *stop[STOPS];

    for (int i = 0; i < LEN(paths); i++) {
        const sherd_layout *last;
        int64_t most = 0;
        lay_out(world, &paths[i], shape, stop);
        last = stop[paths[i].stops - 1];
        for (int k = 1; k < paths[i].stops; k++) {
            int64_t both = bytes_of(world, stop[k]) + (k > 1 ? bytes_of(world, stop[k - 1]) : 0);
            most = both > most ? both : most;
        }
        sherd_tensor *t = indices_on(stop[0], SHERD_F64);
        int64_t before = sherd_world_memory(world).live_bytes;
        for (int turn = 0; turn < TURNS; turn++) {
            sherd_scope_begin(world);
            sherd_world_memory_reset(world);
            sherd_tensor *m = sherd__move_to(t, last, turn % 2);
            CHECK_EQ(sherd_world_memory(world).live_bytes, before + bytes_of(world, last));
            CHECK(sherd_world_memory(world).peak_bytes <= before + most);
            CHECK_EQ(count_wrong(m, paths[i].addends), 0);
            sherd_scope_end(world);
            CHECK_EQ(sherd_world_memory(world).live_bytes, before);
            if (turn == WARM)
                objects = sherd__world_heap(world)->live;
        }
        /* Blocks and call objects are kept for reuse, a few of each. */
        CHECK(sherd__world_heap(world)->live - objects <= 8);
        CHECK_OK(sherd_world_check(world));
    }
}

/* The plan stands; then allocations fail one after the other, in each of its steps. */
static void three_steps(sherd_world *world)
{
    int64_t shape[2] = {7, 5};
    const sherd_layout *from = stop_of(world, &paths[0], 0, shape);
    const sherd_layout *to = stop_of(world, &paths[0], 3, shape);

    sherd_scope_begin(world);
    if (from && to && !sherd__alarmed(world)) {
        sherd_tensor *m = sherd__move_to(sherd_constant_on(from, SHERD_F64, 1), to, false);
        if (m->storage)
            sherd_tensor_read(m);
    }
    sherd_scope_end(world);
}

static void a_failure_in_any_step_fails_on_all(sherd_world *world)
{
    int64_t shape[2] = {7, 5};
    const sherd_layout *stop[STOPS];

    lay_out(world, &paths[0], shape, stop);
    fail_every_allocation(world, 0, three_steps);
    fail_every_allocation(world, 3, three_steps);
}

/*
 * Rank 1 makes no call. Ranks 0 and 2 get through the first step without it; in the second rank 0
 * waits for rank 1, and rank 2 for rank 3, which waits for it in the first one. Then it raises the
 * alarm.
 */
static void an_alarm_between_steps_leaves_nothing(sherd_world *world)
{
    int64_t shape[2] = {7, 5};
    const sherd_layout *stop[STOPS];

    lay_out(world, &paths[0], shape, stop);
    sherd_tensor *t = indices_on(stop[0], SHERD_F64);
    int64_t before = sherd_world_memory(world).live_bytes, objects = 0;
    for (int turn = 0; turn < 5; turn++) {
        sherd_scope_begin(world);
        bool me = sherd_world_rank(world) == 1;
        sherd_tensor *m = me ? NULL : sherd__move_to(t, stop[3], turn % 2);
        if (me) {
            usleep(2000);
            sherd__raise(world, SHERD_EINVAL, "rank 1 has had enough");
        } else {
            CHECK(sherd_tensor_read(m) == NULL);
        }
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK_EQ(sherd_world_memory(world).live_bytes, before);
        if (turn == 2)
            objects = sherd__world_heap(world)->live;
        if (turn > 2)
            CHECK_EQ(sherd__world_heap(world)->live, objects);
    }
    CHECK_EQ(count_wrong(sherd__move_to(t, stop[3], false), 2), 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- partitions ----------------------------------------------------------------------------- */

/* What was replicated is the pending reduction of the same value. */
static void a_partition_reduces_to_what_it_was(sherd_world *world)
{
    static const char *const ops[] = {"P(sum)", "P(avg)", "P(min)", "P(max)", "P(product)"};
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    int64_t shape[2] = {7, 5};
    char placements[64];

    for (int i = 0; i < LEN(ops); i++)
        for (int on = 1; on <= 3; on++) /* bits of the axes */
            for (int turn = 0; turn < 4; turn++) {
                const char *other = turn % 2 ? "S(1)" : "R", *from = on == 1 ? "RS(1)" : "S(1)R";
                snprintf(placements, sizeof placements, "%s%s", on & 1 ? ops[i] : other,
                         on & 2 ? ops[i] : other);
                sherd_scope_begin(world);
                sherd_tensor *t = indices_on(
                    layout_of(mesh, 2, shape, turn % 2 && on < 3 ? from : "RR", NULL), SHERD_F64);
                sherd_tensor *p = sherd__move_planned(
                    t, layout_of(mesh, 2, shape, placements, NULL), NULL, NULL, turn / 2);
                CHECK(p->layout == layout_of(mesh, 2, shape, placements, NULL));
                sherd_tensor *back =
                    sherd__move_to(p, layout_of(mesh, 2, shape, "S(0)R", NULL), false);
                CHECK_EQ(count_wrong(back, 1), 0);
                sherd_scope_end(world);
            }
    CHECK_OK(sherd_world_check(world));
}

/* A result shares the storage if all ranks keep what they hold; else the first one has a copy, and the
 * others have zeroes or ones. */
static void coordinate_0_keeps_what_it_holds(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "3");
    int64_t shape[2] = {2, 3};
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, "R", NULL), SHERD_F32);
    static const char *const ops[] = {"P(sum)", "P(product)", "P(max)"};

    for (int i = 0; i < LEN(ops); i++) {
        sherd_tensor *p =
            sherd__move_planned(t, layout_of(mesh, 2, shape, ops[i], NULL), NULL, NULL, false);
        bool keeps = i == 2 || sherd_world_rank(world) == 0;
        const float *data = sherd_tensor_read(p), *held = sherd_tensor_read(t);
        CHECK_EQ(p->storage == t->storage, i == 2);
        for (int64_t k = 0; data && held && k < p->count; k++)
            CHECK_EQ(data[k], keeps ? held[k] : (float)i);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The table of docs/concepts.md and the words of comm.h. */
static void the_log_has_the_names_of_the_steps(sherd_world *world)
{
    static const struct {
        const char *from, *to, *op, *axes; /* op NULL = nothing travels */
    } moves[] = {
        {"[8,8] on (x=2,y=2)", "[8(x),8] on (x=2,y=2)", NULL, NULL},
        {"[8(x),8] on (x=2,y=2)", "[8,8] on (x=2,y=2)", "all_gather", "x"},
        {"[8(x,y),8] on (x=2,y=2)", "[8,8] on (x=2,y=2)", "all_gather", "x,y"},
        {"[8(x),8] on (x=2,y=2)", "[8,8(x)] on (x=2,y=2)", "all_to_all", "x"},
        {"[8(x,y),4] on (x=2,y=2)", "[8(y,x),4] on (x=2,y=2)", "exchange", "x,y"},
        {"[10(x:4,6)] on (x=2,y=2)", "[10(x)] on (x=2,y=2)", "exchange", "x"},
        {"[8,8] P(sum:y) on (x=2,y=2)", "[8(y),8] on (x=2,y=2)", "reduce_scatter", "y"},
        {"[8(x),4] P(sum:y) on (x=2,y=2)", "[8,4(x)] on (x=2,y=2)", "reduce_exchange", "x,y"},
        {"[8,8] P(sum:y) on (x=2,y=2)", "[8,8] on (x=2,y=2)", "all_reduce", "y"},
        {"[8(x),8] on (x=2,y=2)", "[8(z),8] on (z=4@3,2,1,0)", "exchange", "world"},
    };

    for (int i = 0; i < LEN(moves); i++) {
        const sherd_layout *from, *to;
        CHECK_OK(sherd_layout_parse(&from, world, moves[i].from, NULL));
        CHECK_OK(sherd_layout_parse(&to, world, moves[i].to, NULL));
        sherd_scope_begin(world);
        sherd_comm_reset(world);
        CHECK(sherd__move_to(sherd_constant_on(from, SHERD_F32, 1), to, false)->layout == to);
        CHECK_EQ(sherd_comm_count(world), moves[i].op ? 1 : 0);
        if (moves[i].op) {
            CHECK_TEXT(sherd_comm_get(world, 0).op, moves[i].op);
            CHECK_TEXT(sherd_comm_get(world, 0).axes, moves[i].axes);
        }
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/*
 * Seven groups of ranks read one tensor; its block notes the readers of six. Before the last call
 * they must have read, and before the tensor is written all of them.
 */
static void more_groups_read_than_a_block_has_tickets(sherd_world *world)
{
    static const char *const to[] = {"RS(1)S(2)", "S(0)RS(2)", "S(0)S(1)R", "RRS(2)",
                                     "RS(1)R",    "S(0)RR",    "RRR"};
    static const int64_t shape[] = {4, 6, 2};
    const sherd_mesh *mesh = mesh_of(world, "2x2x2");
    const sherd_layout *from = layout_of(mesh, 3, shape, "S(0)S(1)S(2)", NULL);

    for (int turn = 0; turn < 20; turn++) {
        sherd_tensor *moved[LEN(to)];
        sherd_scope_begin(world);
        sherd_tensor *t = indices_on(from, SHERD_F64);
        for (int i = 0; i < LEN(to); i++) {
            if (i == LEN(to) - 1)
                CHECK_EQ(t->storage->block->tickets, SHERD__TICKETS);
            moved[i] = sherd__move_to(t, layout_of(mesh, 3, shape, to[i], NULL), turn % 2);
        }
        double *data = sherd_tensor_write(t);
        for (int64_t i = 0; data && i < t->count; i++)
            data[i] = -1;
        for (int i = 0; i < LEN(to); i++)
            CHECK_EQ(count_wrong(moved[i], 1), 0);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/*
 * Two groups read one tensor, all of which half of the ranks hold. The readers of the first have
 * left; the others, of the second, come late, and a write waits for them all the same.
 */
static void readers_that_have_left_hide_no_others(sherd_world *world)
{
    static const int64_t shape[] = {4, 4};
    const sherd_mesh *mesh = mesh_of(world, "2x2"), *line = line_of_ranks(world);
    bool late = sherd_world_rank(world) % 2;

    for (int turn = 0; turn < 4; turn++) {
        sherd_scope_begin(world);
        sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, "S(0)S(1)", "1:4,0"), SHERD_F64);
        sherd_tensor *first = sherd__move_to(t, layout_of(mesh, 2, shape, "RS(1)", "1:4,0"), false);
        call_together(world, line);
        if (late)
            usleep(10000);
        sherd_tensor *second = sherd__move_to(t, layout_of(mesh, 2, shape, "S(0)R", NULL), true);
        double *data = late ? NULL : sherd_tensor_write(t);
        for (int64_t i = 0; data && i < t->count; i++)
            data[i] = -1;
        CHECK_EQ(count_wrong(first, 1), 0);
        CHECK_EQ(count_wrong(second, 1), 0);
        if (late)
            CHECK(sherd_tensor_write(t) != NULL); /* all ranks do the same */
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(every_path_is_exact), {4}},
    {TEST(many_go_round_by_round), {4}},
    {TEST(a_strided_source_goes_all_the_way), {4}},
    {TEST(the_log_counts_each_step), {4}},
    {TEST(the_log_has_the_names_of_the_steps), {4}},
    {TEST(intermediates_go_when_their_step_is_done), {4}},
    {TEST(a_failure_in_any_step_fails_on_all), {4}},
    {TEST(an_alarm_between_steps_leaves_nothing), {4}},
    {TEST(a_partition_reduces_to_what_it_was), {4}},
    {TEST(coordinate_0_keeps_what_it_holds), {3}},
    {TEST(more_groups_read_than_a_block_has_tickets), {8}},
    {TEST(readers_that_have_left_hide_no_others), {4}},
};
CHECK_MAIN(tests)
