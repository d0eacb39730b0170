/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that ranks reduce: each reduction on any mesh and its parts, in rank order; NaN; failures
 * on all ranks alike. */
#include <math.h>

#include "check.h"
#include "sherd/dry.h"
#include "sherd/numbers.h"
#include "sherd/world.h"

enum { OPS = SHERD_PRODUCT + 1, SOME = 5 };

static const sherd_mesh *mesh_of(sherd_world *world, const char *text)
{
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    return mesh;
}

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

/* With all digits: sums of such depend on the order. */
static double number(int rank, int i)
{
    return sin(rank * 7 + i + 1) * pow(10, (rank + i) % 3);
}

static double reduced(sherd_reduce_op op, const int *rank, int ranks, int i)
{
    double x = number(rank[0], i);

    for (int r = 1; r < ranks; r++) {
        double y = number(rank[r], i);
        x = op == SHERD_MIN       ? fmin(x, y)
            : op == SHERD_MAX     ? fmax(x, y)
            : op == SHERD_PRODUCT ? x * y
                                  : x + y;
    }
    return op == SHERD_AVG ? x / ranks : x;
}

static void try_mesh(const sherd_mesh *mesh, int mine, const int *rank, int ranks)
{
    for (int op = 0; op < OPS; op++)
        for (int count = 1; count <= SOME; count++) {
            double numbers[SOME + 1] = {0};
            for (int i = 0; i < count; i++)
                numbers[i] = number(mine, i);
            CHECK(sherd_reduce_numbers(numbers, count, mesh, (sherd_reduce_op)op));
            for (int i = 0; i < count; i++)
                CHECK(numbers[i] == reduced((sherd_reduce_op)op, rank, ranks, i));
            CHECK(numbers[count] == 0);
        }
}

static void all_get_the_same_in_rank_order(sherd_world *world)
{
    int ranks = sherd_world_ranks(world), mine = sherd_world_rank(world), all[8];

    for (int r = 0; r < ranks; r++)
        all[r] = r;
    try_mesh(line(world), mine, all, ranks);
    CHECK_OK(sherd_world_check(world));
}

/* Rows and columns of a mesh, each by itself; and ranks in another order. */
static void a_part_of_a_mesh_reduces_along_its_axes(sherd_world *world)
{
    int mine = sherd_world_rank(world), row = mine / 2, column = mine % 2;
    const sherd_mesh *mesh = mesh_of(world, "a=2,b=2"), *part = NULL;

    CHECK_OK(sherd_mesh_slice(&part, mesh, 1, (const char *[]){"b"}));
    try_mesh(part, mine, (int[]){2 * row, 2 * row + 1}, 2);
    CHECK_OK(sherd_mesh_slice(&part, mesh, 1, (const char *[]){"a"}));
    try_mesh(part, mine, (int[]){column, column + 2}, 2);
    mesh = mesh_of(world, "x=4@2,0,3,1");
    try_mesh(mesh, mine, (int[]){2, 0, 3, 1}, 4);
    mesh = mesh_of(world, "y=2@3,1");
    if (column)
        try_mesh(mesh, mine, (int[]){3, 1}, 2);
    CHECK_OK(sherd_world_check(world));
}

static void many_are_reduced_and_nan_stays(sherd_world *world)
{
    static const sherd_reduce_op ops[] = {SHERD_SUM, SHERD_MIN, SHERD_MAX};
    int ranks = sherd_world_ranks(world), mine = sherd_world_rank(world);
    double many[SHERD_MAX_NUMBERS];

    for (int i = 0; i < SHERD_MAX_NUMBERS; i++)
        many[i] = mine + i;
    CHECK(sherd_reduce_numbers(many, SHERD_MAX_NUMBERS, line(world), SHERD_MAX));
    for (int i = 0; i < SHERD_MAX_NUMBERS; i++)
        CHECK(many[i] == ranks - 1 + i);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < LEN(ops); i++) {
            double x = mine == r ? (double)NAN : mine;
            CHECK(sherd_reduce_numbers(&x, 1, line(world), ops[i]));
            CHECK(isnan(x));
        }
    CHECK_OK(sherd_world_check(world));
}

/* Whose count or reduction is another than the others'. */
static void what_differs_is_found(sherd_world *world)
{
    bool last = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    double numbers[2] = {3, 4};

    CHECK(!sherd_reduce_numbers(numbers, last ? 2 : 1, line(world), SHERD_SUM));
    CHECK(numbers[0] == 3 && numbers[1] == 4);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(!sherd_reduce_numbers(numbers, 1, line(world), last ? SHERD_MAX : SHERD_SUM));
    CHECK(numbers[0] == 3 && numbers[1] == 4);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "sherd_reduce_numbers (") != NULL);
}

/* All ranks pass a count of 0 or less: then there need not be an array. */
static void no_numbers_are_nothing_to_do(sherd_world *world)
{
    CHECK(sherd_reduce_numbers(NULL, 0, line(world), SHERD_SUM));
    CHECK(sherd_reduce_numbers(NULL, -1, line(world), SHERD_MAX));
    CHECK_OK(sherd_world_check(world));
    CHECK(!sherd_reduce_numbers(NULL, 1, line(world), SHERD_SUM));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
}

static void an_alarm_leaves_the_numbers(sherd_world *world)
{
    bool last = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    double many[SHERD_MAX_NUMBERS] = {3};
    const sherd_mesh *mesh = line(world);

    if (last)
        (void)sherd_world_fail(world, SHERD_EINVAL, "a bad day");
    CHECK(!sherd_reduce_numbers(many, 1, mesh, SHERD_SUM));
    CHECK(many[0] == 3);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_world_fail_allocation(world, last);
    CHECK(!sherd_reduce_numbers(many, SHERD_MAX_NUMBERS, mesh, SHERD_SUM));
    sherd_world_fail_allocation(world, 0);
    CHECK(many[0] == 3);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
    CHECK(sherd_reduce_numbers(many, 1, mesh, SHERD_MIN));
    CHECK_OK(sherd_world_check(world));
}

static void ranks_that_are_not_there_have_the_same(sherd_world *world)
{
    sherd_world *dry = NULL, *paper = NULL;
    double x = 2;

    (void)world;
    CHECK_OK(sherd_world_paper(&paper, 4));
    CHECK(!sherd_reduce_numbers(&x, 1, mesh_of(paper, "x=4"), SHERD_SUM));
    CHECK(x == 2);
    CHECK_EQ(sherd_world_check(paper), SHERD_ENOTSUP);
    (void)sherd_world_close(paper);
    CHECK_OK(sherd_world_dry(&dry, 2048, 3, NULL, NULL));
    CHECK(sherd_reduce_numbers(&x, 1, mesh_of(dry, "x=2048"), SHERD_SUM));
    CHECK(x == 4096);
    CHECK_OK(sherd_world_close(dry));
}

static const check_test tests[] = {
    {TEST(all_get_the_same_in_rank_order), {1, 2, 3, 4, 8}},
    {TEST(a_part_of_a_mesh_reduces_along_its_axes), {4}},
    {TEST(many_are_reduced_and_nan_stays), {1, 2, 3, 8}},
    {TEST(what_differs_is_found), {2, 3, 4}},
    {TEST(no_numbers_are_nothing_to_do), {1, 2, 3}},
    {TEST(an_alarm_leaves_the_numbers), {1, 2, 3, 4}},
    {TEST(ranks_that_are_not_there_have_the_same), {1}},
};
CHECK_MAIN(tests)
