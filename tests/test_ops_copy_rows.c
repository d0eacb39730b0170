/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows copied onto others in place are what a copy of each by hand gives, on any layout of the
 * tensor and of the numbers, with rows that change places; where rows are not sharded nothing
 * moves, and a shard receives no more than the rows that it lacks.
 */
#include "sherd/autograd.h"
#include "dry.h"
#include "sherd/ops_shape.h"
#include "tensors.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

enum { ROWS = 11, MIDDLE = 4, WIDTH = 6, ROW = MIDDLE * WIDTH, MOST = 9, ELEMENTS = ROWS * ROW };

typedef struct pairs {
    int n;
    int32_t from[MOST], to[MOST]; /* to[0] = -9: none are given */
} pairs;

static const pairs cases[] = {{3, {0, 1, 2}, {10, 9, 8}},
                              {2, {3, 7}, {7, 3}},                         /* they change places */
                              {4, {1, 2, 3, 4}, {5, 5, 6, 5}},             /* the last one counts */
                              {5, {-1, 4, 10, -2, 0}, {3, -1, 0, -5, 10}}, /* some copy nothing */
                              {9, {2, 2, 0, 0, 1, 5, 5, 5, 8}, {-9}},      /* beams */
                              {3, {6, 6, 6}, {6, 5, 0}},
                              {1, {-1}, {-1}},
                              {0, {0}, {0}}};

static sherd_tensor *numbers(sherd_world *world, const int32_t *from, int64_t n)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, SIZES(n), 1, from));
}

/* What must be there: whole_value of the index of each element before. */
static void expect(const pairs *p, double *out)
{
    for (int i = 0; i < ELEMENTS; i++)
        out[i] = i;
    for (int i = 0; i < p->n; i++) {
        int32_t to = p->to[0] == -9 ? i : p->to[i];
        for (int k = 0; k < ROW && p->from[i] >= 0 && to >= 0; k++)
            out[to * ROW + k] = p->from[i] * ROW + k;
    }
}

static bool holds(sherd_tensor *a, const pairs *p)
{
    double have[ELEMENTS], wanted[ELEMENTS];

    if (sherd_tensor_layout(a) &&
        !sherd_mesh_coordinate(sherd_layout_mesh(sherd_tensor_layout(a)),
                               sherd_world_rank(sherd_tensor_world(a)), NULL))
        return true;
    expect(p, wanted);
    return CHECK(sherd_full_read(have, sizeof have, a, SHERD_F64, -1)) &&
           CHECK(memcmp(have, wanted, sizeof have) == 0);
}

static sherd_tensor *copy(sherd_tensor *a, const pairs *p, const sherd_mesh *mesh, const char *way)
{
    sherd_tensor *from = numbers(sherd_tensor_world(a), p->from, p->n), *to = NULL;

    if (p->to[0] != -9)
        to = numbers(sherd_tensor_world(a), p->to, p->n);
    if (way) {
        from = sherd_distribute_as(from, mesh, way, -1);
        to = to ? sherd_distribute_as(to, mesh, sherd_mesh_axes(mesh) > 1 ? "RR" : "R", -1) : NULL;
    }
    return sherd_copy_rows(a, from, to);
}

static void run_on(sherd_world *world, const sherd_layout *layout, const char *way)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_I32};

    for (int i = 0; i < LEN(cases); i++) {
        sherd_scope_begin(world);
        sherd_tensor *a = indices_on(layout, dtypes[i % LEN(dtypes)]);
        CHECK(copy(a, &cases[i], sherd_layout_mesh(layout), way) == a);
        CHECK(sherd_tensor_layout(a) == layout);
        holds(a, &cases[i]);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static void rows_are_copied_on_any_layout(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(1)", "S(2)"};
    static const char *const ways[] = {NULL, "R", "S(0)"};
    const sherd_mesh *mesh = line_of_ranks(world);
    const int64_t *shape = SIZES(ROWS, MIDDLE, WIDTH);
    char cuts[32] = "0:1";

    for (int i = 0; i < LEN(placements); i++)
        for (int w = 0; w < LEN(ways); w++)
            run_on(world, layout_of(mesh, 3, shape, placements[i], NULL), ways[w]);
    /* One row, none, .., the rest. */
    for (int r = 1; r < sherd_world_ranks(world); r++)
        strcat(cuts, r + 1 == sherd_world_ranks(world) ? ",10" : ",0");
    if (sherd_world_ranks(world) > 1)
        run_on(world, layout_of(mesh, 3, shape, "S(0)", cuts), NULL);
}

static void rows_are_copied_on_two_axes(sherd_world *world)
{
    static const char *const placements[] = {"S(0)S(0)", "S(0)R", "RS(0)", "S(0)S(2)", "S(1)S(2)"};
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 4 ? "x=2,y=2" : "x=2,y=3");

    for (int i = 0; i < LEN(placements); i++) {
        const sherd_layout *layout =
            layout_of(mesh, 3, SIZES(ROWS, MIDDLE, WIDTH), placements[i], NULL);
        run_on(world, layout, NULL);
        run_on(world, layout, "S(0)R");
    }
}

/* Plain ones, and a view whose rows are no rows of memory. */
static void plain_tensors_and_views(sherd_world *world)
{
    for (int i = 0; i < LEN(cases); i++) {
        sherd_scope_begin(world);
        sherd_tensor *a = indices_plain(world, SHERD_F32, 3, SIZES(ROWS, MIDDLE, WIDTH));
        CHECK(copy(a, &cases[i], NULL, NULL) == a);
        holds(a, &cases[i]);
        sherd_tensor *b = indices_plain(world, SHERD_F64, 3, SIZES(ROWS, MIDDLE, WIDTH));
        sherd_tensor *t = sherd_clone(sherd_permute(b, (const int[]){1, 2, 0}, 3));
        sherd_tensor *view = sherd_permute(t, (const int[]){2, 0, 1}, 3);
        CHECK(copy(view, &cases[i], NULL, NULL) == view);
        holds(view, &cases[i]);
        CHECK(sherd_tensor_read(t) != NULL);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static int64_t received(sherd_world *world)
{
    int64_t bytes = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        bytes += sherd_comm_get(world, i).bytes_received;
    return bytes;
}

static void only_what_is_lacking_moves(sherd_world *world)
{
    enum { BIG = 40, LONG = 30000 };
    static const pairs last = {2, {0, 39}, {39, 38}};
    const sherd_mesh *mesh = line_of_ranks(world);
    int ranks = sherd_world_ranks(world), me = sherd_world_rank(world);

    for (int sharded = 0; sharded < 2; sharded++) {
        sherd_scope_begin(world);
        const sherd_layout *layout =
            layout_of(mesh, 2, SIZES(BIG, LONG), sharded ? "S(0)" : "S(1)", NULL);
        sherd_tensor *a = sherd_constant_on(layout, SHERD_F32, 1);
        sherd_tensor *from = numbers(world, last.from, 2), *to = numbers(world, last.to, 2);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_copy_rows(a, from, to);
        int64_t bytes = received(world);
        CHECK(sharded || bytes == 0);
        if (sharded && me == ranks - 1) /* one row, and what says which */
            CHECK(bytes >= LONG * 4 && bytes < LONG * 4 + 2000);
        CHECK(me == ranks - 1 || bytes < 2000);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static void ranks_outside_know_the_layout_only(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, SIZES(2), NULL, (const int[]){1, 2}));
    run_on(world, layout_of(mesh, 3, SIZES(ROWS, MIDDLE, WIDTH), "S(0)", NULL), "R");
    run_on(world, layout_of(mesh, 3, SIZES(ROWS, MIDDLE, WIDTH), "S(1)", NULL), NULL);
}

/* `t` failed, with this in its one line. */
static void says(sherd_world *world, sherd_tensor *t, const char *text)
{
    CHECK(sherd_tensor_failed(t));
    CHECK(sherd_world_check(world) != SHERD_OK);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  the error is \"%s\"\n", sherd_world_error(world));
}

static void what_cannot_be_is_refused(sherd_world *world)
{
    static const int32_t good[] = {0, 1}, far[] = {1, ROWS}, many[ROWS + 1] = {0};
    const sherd_mesh *mesh = line_of_ranks(world);
    const pairs none = {.n = 0};
    sherd_tensor *a =
        indices_on(layout_of(mesh, 3, SIZES(ROWS, MIDDLE, WIDTH), "S(0)", NULL), SHERD_F32);
    sherd_tensor *ok = numbers(world, good, 2), *bad = numbers(world, far, 2);
    sherd_tensor *wanted = sherd_require_grad(sherd_clone(a), true);

    CHECK_OK(sherd_world_check(world));
    says(world, sherd_copy_rows(a, bad, ok), "number 1 is 11, outside of the 11 rows of a");
    says(world, sherd_copy_rows(a, ok, bad), "number 1 is 11, outside of the 11 rows of a");
    says(world, sherd_copy_rows(a, numbers(world, many, ROWS + 1), NULL),
         "there are more numbers than rows of a");
    says(world, sherd_copy_rows(a, ok, numbers(world, far, 1)), "of the same size");
    says(world, sherd_copy_rows(wanted, ok, ok), "a gradient would be lost");
    says(world,
         sherd_copy_rows(
             sherd_expand(sherd_constant(world, SHERD_F32, SIZES(1, 3), 2, 1), SIZES(4, 3), 2), ok,
             ok),
         "a is an expanded view");
    says(world, sherd_copy_rows(sherd_constant(world, SHERD_F32, NULL, 0, 1), ok, ok),
         "a has no dims");
    says(world, sherd_copy_rows(sherd_constant(world, SHERD_F32, SIZES(0, 3), 2, 1), ok, ok),
         "outside of the 0 rows of a");
    sherd_tensor *no = numbers(world, (const int32_t[]){-1, -2}, 2);
    CHECK(!sherd_tensor_failed(
        sherd_copy_rows(sherd_constant(world, SHERD_F32, SIZES(0, 3), 2, 1), no, no)));
    holds(a, &none);
}

static _Thread_local sherd_tensor *operand[3];

static void scene(sherd_world *world)
{
    sherd_scope_begin(world);
    sherd_fill(operand[0], 0.5); /* what failed before has lost it */
    sherd_copy_rows(operand[0], operand[1], operand[2]);
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    static const int32_t from[] = {0, 5, 3}, to[] = {4, 1, 3};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 2; i++) {
        operand[0] = sherd_constant_on(layout_of(mesh, 2, SIZES(6, 5), i ? "R" : "S(0)", NULL),
                                       SHERD_F32, 1);
        operand[1] = sherd_distribute_as(numbers(world, from, 3), mesh, "R", -1);
        operand[2] = sherd_distribute_as(numbers(world, to, 3), mesh, "R", -1);
        CHECK_OK(sherd_world_check(world));
        fail_every_allocation(world, sherd_world_ranks(world) - 1, scene);
    }
}

static void copies_and_counts(sherd_world *world, void *placements)
{
    static const int32_t from[] = {0, 5, 3, 2}, to[] = {4, 1, 3, 6};
    const int64_t shape[] = {8, 12};
    const sherd_layout *layout = NULL;

    CHECK_OK(
        sherd_layout_parse_placements(&layout, line_of_ranks(world), 2, shape, placements, NULL));
    sherd_copy_rows(sherd_constant_on(layout, SHERD_F32, 1), numbers(world, from, 4),
                    numbers(world, to, 4));
}

/* Where rows are sharded, a dry world does not know where they go. */
static void a_dry_world_copies_too(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(1)", "S(0)"};
    account *dry = malloc(sizeof *dry);

    for (int i = 0; i < 2; i++)
        CHECK(same_dry(world, copies_and_counts, (void *)(uintptr_t)placements[i]));
    sherd_world *alone = dry_as(world);
    if (dry && alone)
        run_into(dry, alone, copies_and_counts, (void *)(uintptr_t)placements[2]);
    CHECK(dry && dry->status == SHERD_OK);
    CHECK_OK(sherd_world_close(alone));
    free(dry);
}

static const check_test tests[] = {
    {TEST(a_dry_world_copies_too), {1, 2, 4}},
    {TEST(rows_are_copied_on_any_layout), {1, 2, 3, 4}},
    {TEST(rows_are_copied_on_two_axes), {4, 6}},
    {TEST(plain_tensors_and_views), {1, 2}},
    {TEST(only_what_is_lacking_moves), {2, 3, 4}},
    {TEST(ranks_outside_know_the_layout_only), {3, 4}},
    {TEST(what_cannot_be_is_refused), {1, 2}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2}},
};
CHECK_MAIN(tests)
