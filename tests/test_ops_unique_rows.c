/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distinct slices along a dim, in order, and runs of equal slices, are those that a comparison of
 * all slices finds, on any layout and of every dtype; where each slice is among them, and how often
 * each is there.
 */
#include <math.h>

#include "dry.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_sorted.h"
#include "tensors.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

enum { MOST = 512 };

static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64,  SHERD_I32, SHERD_I64, SHERD_BF16,
                                     SHERD_U8,  SHERD_BOOL, SHERD_F16, SHERD_I8};

static int order_of(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

/* A tensor as slices along a dim: [n, m]. */
typedef struct slices {
    int64_t n, m;
    double x[MOST];
} slices;

static void take(slices *s, sherd_tensor *t, int dim)
{
    static _Thread_local double x[MOST];
    int64_t inner = 1, n = sherd_tensor_shape(t)[dim], count = sherd_tensor_count(t);

    for (int d = dim + 1; d < sherd_tensor_ndim(t); d++)
        inner *= sherd_tensor_shape(t)[d];
    s->n = n;
    s->m = n ? count / n : 0;
    CHECK(sherd_full_read(x, sizeof x, t, SHERD_F64, -1));
    for (int64_t i = 0; i < count; i++)
        s->x[i / inner % n * s->m + i / (n * inner) * inner + i % inner] = x[i];
}

static int compare(const slices *a, int64_t i, const slices *b, int64_t j)
{
    int order = 0;

    for (int64_t k = 0; k < a->m && !order; k++)
        order = order_of(a->x[i * a->m + k], b->x[j * b->m + k]);
    return order;
}

static void read_numbers(int64_t *out, sherd_tensor *t, int64_t count)
{
    static _Thread_local double x[MOST];

    CHECK_EQ(sherd_tensor_count(t), count);
    if (CHECK(sherd_full_read(x, sizeof x, t, SHERD_F64, -1)))
        for (int64_t i = 0; i < count; i++)
            out[i] = (int64_t)x[i];
}

static void check(sherd_tensor *plain, sherd_tensor *a, int dim, bool runs)
{
    static _Thread_local slices given, found;
    int64_t place[MOST], often[MOST], seen[MOST] = {0};
    sherd_tensor *inverse, *counts;
    sherd_tensor *y = runs ? sherd_unique_consecutive(a, dim, &inverse, &counts)
                           : sherd_unique_along(a, dim, &inverse, &counts);

    if (!CHECK(!sherd_tensor_failed(y)) || !CHECK_EQ(inverse->dtype, SHERD_I32) ||
        !CHECK_EQ(counts->dtype, SHERD_I64) || !CHECK_EQ(y->dtype, a->dtype))
        return;
    take(&given, plain, dim);
    take(&found, y, dim);
    read_numbers(place, inverse, given.n);
    read_numbers(often, counts, found.n);
    for (int64_t i = 0; i < given.n; i++) {
        if (!CHECK(place[i] >= 0 && place[i] < found.n))
            return;
        CHECK_EQ(compare(&given, i, &found, place[i]), 0);
        seen[place[i]]++;
        CHECK(!runs || i == 0 ||
              place[i] == place[i - 1] + (compare(&given, i, &given, i - 1) != 0));
    }
    for (int64_t i = 0; i < found.n; i++) {
        CHECK_EQ(seen[i], often[i]);
        CHECK(runs || i == 0 || compare(&found, i - 1, &found, i) < 0);
    }
    sherd_tensor *alone = runs ? sherd_unique_consecutive(a, dim - a->ndim, NULL, NULL)
                               : sherd_unique_along(a, dim, NULL, NULL);
    CHECK_EQ(alone->shape[dim], found.n);
}

/* Few numbers, so that many slices are equal; some are NaN, infinite or -0. */
static sherd_tensor *draw(sherd_world *world, uint64_t *dice, sherd_dtype dtype, int ndim,
                          const int64_t *shape, int limit)
{
    static const double odds[] = {NAN, INFINITY, -INFINITY, -0.0};
    int64_t count = 1;
    double x[MOST];

    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    for (int64_t i = 0; i < count; i++) {
        x[i] = roll(dice, limit);
        if (limit > 2 && (dtype < SHERD_I32 || dtype == SHERD_BF16 || dtype == SHERD_F16) &&
            roll(dice, 5) == 0)
            x[i] = odds[roll(dice, LEN(odds))];
    }
    return sherd_cast(sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, ndim, x)), dtype);
}

static void slices_of_every_layout(sherd_world *world)
{
    static const int64_t shapes[][3] = {{12, 2, 1}, {9, 3, 2}, {2, 13, 2}, {1, 5, 3},
                                        {5, 1, 1},  {0, 3, 2}, {30, 2, 2}};
    static const int limits[] = {2, 3, 2, 7, 2};
    const sherd_mesh *mesh =
        sherd_world_ranks(world) == 4 ? mesh_of(world, "x=2,y=2") : line_of_ranks(world);
    int rounds = getenv("SHERD_PROOF") ? 400 : 36;
    uint64_t dice = (uint64_t)sherd_world_ranks(world);

    for (int i = 0; i < rounds; i++) {
        const int64_t *shape = shapes[roll(&dice, LEN(shapes))];
        int ndim = 1 + roll(&dice, 3), dim = roll(&dice, ndim);
        sherd_scope_begin(world);
        sherd_tensor *plain = draw(world, &dice, dtypes[i % LEN(dtypes)], ndim, shape,
                                   limits[roll(&dice, LEN(limits))]);
        const sherd_layout *layout;
        do
            layout = numbered(mesh, ndim, shape, roll(&dice, lists_of(mesh, ndim)));
        while (layout->pending_axes);
        sherd_tensor *a = i % 7 ? sherd_distribute(plain, layout, -1) : plain;
        if (shape[0] > 0 || dim == 0)
            check(plain, a, dim, i % 2);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "round %d: %s\n  %s, dim %d\n", i, sherd_world_error(world),
                    sherd_tensor_text(a), dim);
        sherd_scope_end(world);
    }
}

/* Values that take many rounds: wide rows that differ only at the end. */
static void long_slices_are_compared_to_the_end(sherd_world *world)
{
    enum { ROWS = 8, LONG = 60 };
    double x[ROWS * LONG];
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < ROWS * LONG; i++)
        x[i] = i % LONG + (i % LONG == LONG - 1 ? (5 * (i / LONG)) % 4 * 1e6 : 0);
    sherd_tensor *plain =
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, SIZES(ROWS, LONG), 2, x));
    check(plain, sherd_distribute_as(plain, mesh, "S(0)", -1), 0, false);
    check(plain, sherd_distribute_as(plain, mesh, "S(1)", -1), 0, false);
    check(plain, sherd_distribute_as(plain, mesh, "S(0)", -1), 1, false);
    CHECK_OK(sherd_world_check(world));
}

static void says(sherd_world *world, sherd_tensor *t, const char *text)
{
    CHECK(sherd_tensor_failed(t));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  the error is \"%s\"\n", sherd_world_error(world));
}

static void what_cannot_be_is_refused(sherd_world *world)
{
    sherd_tensor *a = sherd_constant(world, SHERD_F32, SIZES(3, 2), 2, 1), *inverse, *counts;

    says(world, sherd_unique_along(a, 2, &inverse, &counts),
         "sherd_unique_along: no dim 2: a is f");
    CHECK(sherd_tensor_failed(inverse) && sherd_tensor_failed(counts));
    says(world, sherd_unique_consecutive(a, -3, NULL, NULL), "sherd_unique_consecutive: no dim -3");
    says(world,
         sherd_unique_along(sherd_constant(world, SHERD_F32, SIZES(3, 0), 2, 1), 0, NULL, NULL),
         "slices have no elements");
}

/* They know neither counts nor slices, and go on. */
static void ranks_outside_go_on(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const double x[] = {1, 2, 3, 1, 1, 2, 1, 2, 3, 3};

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, SIZES(2), NULL, (const int[]){0, 2}));
    sherd_tensor *plain = sherd_mark_equal(sherd_from_data(world, SHERD_F64, SIZES(5, 2), 2, x));
    sherd_tensor *a = sherd_distribute_as(plain, mesh, "S(0)", -1), *inverse, *counts;
    bool inside = sherd_mesh_coordinate(mesh, sherd_world_rank(world), NULL);

    for (int runs = 0; runs < 2; runs++) {
        if (inside)
            check(plain, a, 0, runs);
        else if (runs)
            CHECK_EQ(sherd_unique_consecutive(a, 0, &inverse, &counts)->count, 0);
        else
            CHECK_EQ(sherd_unique_along(a, 0, &inverse, &counts)->count, 0);
        if (!inside && runs)
            sherd_unique_consecutive(a, -2, NULL, NULL);
        else if (!inside)
            sherd_unique_along(a, 0, NULL, NULL);
        CHECK_OK(sherd_world_check(world));
    }
    sherd_tensor *all = sherd_distribute_as(plain, line_of_ranks(world), "S(0)", -1);
    check(plain, all, 0, false);
    CHECK_OK(sherd_world_check(world));
}

static _Thread_local sherd_tensor *operand;

static void scene(sherd_world *world)
{
    sherd_tensor *inverse, *counts;

    sherd_scope_begin(world);
    sherd_unique_along(operand, 0, &inverse, &counts);
    sherd_unique_consecutive(operand, 1, &inverse, &counts);
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    const sherd_layout *layout = layout_of(line_of_ranks(world), 2, SIZES(5, 3), "S(0)", NULL);

    operand = sherd_constant_on(layout, SHERD_F32, 2);
    CHECK_OK(sherd_world_check(world));
    fail_every_allocation(world, sherd_world_ranks(world) - 1, scene);
}

static void finds_slices(sherd_world *world, void *placements)
{
    const int64_t shape[] = {40, 6};
    const sherd_layout *layout = NULL;
    sherd_tensor *inverse, *counts;

    CHECK_OK(
        sherd_layout_parse_placements(&layout, line_of_ranks(world), 2, shape, placements, NULL));
    sherd_tensor *a = sherd_constant_on(layout, SHERD_F32, 1);
    CHECK(sherd_unique_along(a, 0, &inverse, &counts)->shape[0] > 0);
    CHECK(sherd_unique_consecutive(a, 0, &inverse, &counts)->shape[0] > 0);
}

/* It takes all for distinct. */
static void a_dry_world_goes_on(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(1)", "S(0)"};
    account *dry = malloc(sizeof *dry);
    sherd_world *alone = dry_as(world);

    for (int i = 0; i < LEN(placements) && dry && alone; i++) {
        run_into(dry, alone, finds_slices, (void *)(uintptr_t)placements[i]);
        if (!CHECK_EQ(dry->status, SHERD_OK))
            fprintf(stderr, "  %s\n", dry->error);
    }
    CHECK_OK(sherd_world_close(alone));
    free(dry);
}

static const check_test tests[] = {
    {TEST(a_dry_world_goes_on), {1, 2, 4}},
    {TEST(ranks_outside_go_on), {3, 4}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2}},
    {TEST(slices_of_every_layout), {1, 2, 3, 4}},
    {TEST(long_slices_are_compared_to_the_end), {1, 2, 4}},
    {TEST(what_cannot_be_is_refused), {1, 2}},
};
CHECK_MAIN(tests)
