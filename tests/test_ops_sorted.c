/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places in sorted sequences and distinct values, in every layout, against plain loops over the
 * whole tensor; and what travels.
 */
#include "dry.h"
#include "groups.h"

#include "sherd/ops_elements.h"
#include "sherd/ops_sorted.h"

enum { MOST = 400 };

static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16, SHERD_I64,
                                     SHERD_I32, SHERD_U8,  SHERD_BOOL, SHERD_I8};

/* NaN is the largest; equal to NaN. */
static int order_of(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static int by_order(const void *a, const void *b)
{
    return order_of(*(const double *)a, *(const double *)b);
}

/* Few numbers, so that many are equal; of floating-point ones some are NaN, infinite or -0. */
static sherd_tensor *draw_values(scene *s, sherd_dtype dtype, int ndim, const int64_t *shape,
                                 bool odd)
{
    static const double odds[] = {NAN, INFINITY, -INFINITY, -0.0};
    int limit = 2 + roll(&s->dice, 30);
    int64_t count = 1;
    double x[MOST];

    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    for (int64_t i = 0; i < count; i++) {
        x[i] = roll(&s->dice, limit) - (dtype == SHERD_U8 ? 0 : limit / 2);
        if (odd && dtype < SHERD_I32 && roll(&s->dice, 4) == 0)
            x[i] = odds[roll(&s->dice, LEN(odds))];
    }
    return sherd_cast(sherd_mark_equal(sherd_from_data(s->world, SHERD_F64, shape, ndim, x)),
                      dtype);
}

static int64_t draw_shape(scene *s, int64_t shape[4])
{
    int64_t count = 1;
    int ndim = roll(&s->dice, 4);

    for (int d = 0; d < ndim; d++) {
        shape[d] = roll(&s->dice, 9) ? 1 + roll(&s->dice, 7) : 0;
        count *= shape[d];
    }
    shape[3] = ndim;
    return count;
}

/* A tensor made whole, as numbers. */
static const double *numbers_of(sherd_tensor *t, double *x)
{
    sherd_tensor *whole = sherd_full(t);
    const void *data = sherd_tensor_read(whole);

    for (int64_t i = 0; data && i < whole->count && i < MOST; i++)
        x[i] = number_at(data, t->dtype, i);
    return x;
}

/* ---- distinct values ------------------------------------------------------------------------- */

/* The distinct ones of n numbers, and how often they are there. */
static int64_t naive_unique(int64_t n, const double *x, double *values, int64_t *counts)
{
    double sorted[MOST];
    int64_t count = 0;

    memcpy(sorted, x, sizeof *x * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, by_order);
    for (int64_t i = 0; i < n; i++) {
        if (!count || order_of(values[count - 1], sorted[i])) {
            values[count] = sorted[i] == 0 ? 0 : sorted[i];
            counts[count++] = 0;
        }
        counts[count - 1]++;
    }
    return count;
}

static bool check_unique(sherd_tensor *plain, sherd_tensor *a)
{
    double x[MOST], values[MOST], got[MOST];
    int64_t counts[MOST], count = naive_unique(plain->count, numbers_of(plain, x), values, counts);
    sherd_tensor *inverse, *often, *y = sherd_unique(a, &inverse, &often);
    bool good = CHECK(!sherd_tensor_failed(y)) && CHECK_EQ(y->ndim, 1) &&
                CHECK_EQ(y->shape[0], count) && CHECK_EQ(y->count, count) &&
                CHECK_EQ(y->dtype, a->dtype) && CHECK_EQ(inverse->dtype, SHERD_I32) &&
                CHECK_EQ(often->dtype, SHERD_I64) && CHECK_EQ(often->count, count);

    numbers_of(y, got);
    for (int64_t i = 0; good && i < count; i++)
        good = CHECK_EQ(order_of(got[i], values[i]), 0) &&
               CHECK_EQ(((const int64_t *)sherd_tensor_read(often))[i], counts[i]) &&
               CHECK(got[i] != 0 || !signbit(got[i]));
    good = good && CHECK_EQ(inverse->ndim, a->ndim) &&
           CHECK(a->layout && a->layout->pending_axes ? true : inverse->layout == a->layout);
    numbers_of(inverse, got);
    for (int64_t i = 0; good && i < plain->count; i++)
        good = CHECK_EQ(order_of(values[(int64_t)got[i]], x[i]), 0);
    sherd_tensor *alone = sherd_unique(a, NULL, NULL);
    return good && CHECK_EQ(alone->count, count);
}

static void distinct_values_of_every_layout(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 1000 : 36;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = small_mesh(world, i);
        int64_t shape[4];
        sherd_scope_begin(world);
        draw_shape(&s, shape);
        sherd_tensor *plain = draw_values(&s, dtypes[i % LEN(dtypes)], (int)shape[3], shape, true);
        sherd_tensor *a = roll(&s.dice, 6) ? spread(&s, mesh, plain) : plain;
        bool good = check_unique(plain, a);
        if (!CHECK_OK(sherd_world_check(world)) || !good)
            fprintf(stderr, "round %d: %s\n  %s\n", i, sherd_world_error(world),
                    sherd_tensor_text(a));
        sherd_scope_end(world);
    }
}

/* A sum that is pending is added up before it is looked at. */
static void pending_sums_are_settled(sherd_world *world)
{
    static const int64_t shape[] = {6};
    int ranks = sherd_world_ranks(world);
    const sherd_layout *l = layout_of(line_of_ranks(world), 1, shape, "P", NULL);
    sherd_tensor *a = sherd_from_local_as(
        sherd_from_data(world, SHERD_F64, shape, 1, (double[]){1, 0, 2, 1, 1, 2}), l);
    sherd_tensor *counts, *y = sherd_unique(a, NULL, &counts);
    const double *x = sherd_tensor_read(y);

    CHECK(CHECK_EQ(y->count, 3) && x[0] == 0 && x[1] == ranks && x[2] == 2 * ranks);
    CHECK_EQ(((const int64_t *)sherd_tensor_read(counts))[1], 3);
    CHECK_OK(sherd_world_check(world));
}

/* Many numbers of which ten are distinct: ranks exchange what they have of these, and counts. */
static void few_distinct_values_are_exchanged(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world), shape[] = {1000 * ranks, 60};
    const sherd_layout *l = layout_of(line_of_ranks(world), 2, shape, "S(0)", NULL);
    sherd_tensor *a = sherd_cast(
        sherd_scale(indices_on(l, SHERD_F64), 9.99 / (60000.0 * (double)ranks)), SHERD_I64);

    sherd_tensor_read(a);
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_unique(a, NULL, NULL);
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(y->count, 10);
    CHECK(bytes_received(world) <= 8 * (ranks - 1) + 8 * (10 + 2 * ranks));
}

/* ---- places ---------------------------------------------------------------------------------- */

static bool check_places(sherd_tensor *sorted, sherd_tensor *plain, sherd_tensor *sequence,
                         sherd_tensor *values, bool right, sherd_dtype dtype)
{
    double x[MOST], row[MOST], got[MOST];
    int64_t n = sorted->shape[sorted->ndim - 1];
    int64_t m = sorted->ndim > 1 ? plain->shape[plain->ndim - 1] : plain->count;
    sherd_tensor *y = sherd_searchsorted(sequence, values, right, dtype);
    bool good = CHECK(!sherd_tensor_failed(y)) && CHECK_EQ(y->dtype, dtype) &&
                CHECK_EQ(y->ndim, values->ndim);

    good = good && CHECK(!values->layout || sorted->ndim > 1 || y->layout == values->layout);
    numbers_of(plain, x);
    numbers_of(sorted, row);
    numbers_of(y, got);
    for (int64_t i = 0; good && i < plain->count; i++) {
        int64_t place = 0;
        for (int64_t j = 0; j < n; j++) {
            int order = order_of(row[(sorted->ndim > 1 ? i / m * n : 0) + j], x[i]);
            place += order < 0 || (right && order == 0);
        }
        good = CHECK_EQ(got[i], place);
    }
    return good;
}

static void places_in_every_layout(sherd_world *world)
{
    scene s = {.world = world, .dice = 70 + (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 1000 : 36;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = small_mesh(world, i);
        sherd_dtype dtype = dtypes[i % LEN(dtypes)];
        int64_t shape[4], *last = shape;
        int ndim = 1;
        sherd_scope_begin(world);
        draw_shape(&s, shape);
        sherd_tensor *plain = draw_values(&s, dtype, (int)shape[3], shape, true);
        if (plain->ndim > 1 && roll(&s.dice, 2)) {
            ndim = plain->ndim;
            last = shape + ndim - 1;
        }
        *last = roll(&s.dice, 9);
        sherd_tensor *sorted = draw_values(&s, dtype, ndim, shape, true);
        sorted = sherd_detach(sherd_sort(sorted, -1, false, NULL));
        sherd_tensor *sequence = roll(&s.dice, 2) ? spread(&s, mesh, sorted) : sorted;
        sherd_tensor *values = roll(&s.dice, 6) ? spread(&s, mesh, plain) : plain;
        if (!values->layout)
            sequence = sorted;
        bool good = check_places(sorted, plain, sequence, values, roll(&s.dice, 2),
                                 roll(&s.dice, 2) ? SHERD_I64 : SHERD_I32);
        if (!CHECK_OK(sherd_world_check(world)) || !good)
            fprintf(stderr, "round %d: %s\n  %s in %s\n", i, sherd_world_error(world),
                    sherd_tensor_text(values), sherd_tensor_text(sequence));
        sherd_scope_end(world);
    }
}

/* Of values in any layout no element travels if the sequence is on all ranks. */
static void values_stay(sherd_world *world)
{
    const int64_t shape[] = {40, 9}, n[] = {5};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = indices_on(layout_of(mesh, 2, shape, "S(1)", NULL), SHERD_F32);
    sherd_tensor *edges = indices_on(layout_of(mesh, 1, n, "R", NULL), SHERD_F32);

    sherd_comm_reset(world);
    sherd_tensor *y = sherd_searchsorted(edges, x, true, SHERD_I64);
    CHECK(y->layout == x->layout);
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(bytes_received(world), 0);
}

/* ---- other worlds ---------------------------------------------------------------------------- */

static void a_rank_outside_the_mesh_goes_along(sherd_world *world)
{
    scene s = {.world = world, .dice = 5};
    const sherd_mesh *mesh = mesh_of(world, "2");

    for (int i = 0; i < 20; i++) {
        int64_t shape[4];
        sherd_scope_begin(world);
        draw_shape(&s, shape);
        sherd_tensor *plain = draw_values(&s, SHERD_F64, (int)shape[3], shape, true);
        sherd_tensor *inverse, *counts;
        sherd_tensor *y = sherd_unique(spread(&s, mesh, plain), &inverse, &counts);
        CHECK(!sherd_tensor_failed(y) && !sherd_tensor_failed(inverse));
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* Ranks that have other numbers, undeclared, each have their own distinct ones. */
static void plain_tensors_are_of_their_rank(sherd_world *world)
{
    int rank = sherd_world_rank(world);
    const int64_t n[] = {2 + rank};
    int64_t x[16] = {0};

    for (int i = 0; i < n[0]; i++)
        x[i] = -i;
    sherd_tensor *y = sherd_unique(sherd_from_data(world, SHERD_I64, n, 1, x), NULL, NULL);
    CHECK_EQ(y->count, n[0]);
    CHECK_OK(sherd_world_check(world));
}

static void all_distinct(sherd_world *world, void *placements)
{
    const int64_t shape[] = {7, 6};
    sherd_tensor *a =
        indices_on(layout_of(mesh_of(world, "2x2"), 2, shape, placements, NULL), SHERD_F32);
    sherd_tensor *inverse, *counts, *y = sherd_unique(a, &inverse, &counts);

    CHECK_EQ(y->shape[0], 42);
    CHECK_EQ(sherd_searchsorted(y, a, true, SHERD_I32)->count, a->count);
}

static void a_dry_world_takes_all_as_distinct(sherd_world *world)
{
    static const char *const placements[] = {"S(0)S(1)", "S(0)R", "RR", "S(1)S(1)"};

    for (int i = 0; i < LEN(placements); i++)
        CHECK(same_dry(world, all_distinct, (void *)(uintptr_t)placements[i]));
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void what_does_not_fit_is_refused(sherd_world *world)
{
    const int64_t shape[] = {4, 3}, other[] = {3, 3};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = indices_on(layout_of(mesh, 2, shape, "S(0)", NULL), SHERD_F64);
    sherd_tensor *y = indices_on(layout_of(mesh, 2, other, "S(0)", NULL), SHERD_F64);

    sherd_searchsorted(y, x, false, SHERD_I64);
    refused(world, "sherd_searchsorted: sorted must be [n], or [..., n] of the same leading dims");
    sherd_searchsorted(sherd_sum(x), x, false, SHERD_I64);
    refused(world, "sherd_searchsorted: sorted must be [n]");
    sherd_searchsorted(x, x, false, SHERD_U8);
    refused(world, "sherd_searchsorted: the result is to be i64 or i32");
    sherd_searchsorted(sherd_cast(x, SHERD_F32), x, false, SHERD_I64);
    refused(world, "sherd_searchsorted: dtypes differ: cast ");
}

static void go(sherd_world *world)
{
    const int64_t shape[] = {200, 30};
    const sherd_layout *l = NULL;
    const sherd_mesh *mesh = NULL;
    sherd_tensor *inverse, *counts;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&l, mesh, 2, shape, "S(0)", NULL) == SHERD_OK)
        sherd_unique(sherd_constant_on(l, SHERD_BF16, 1), &inverse, &counts);
    else
        sherd__raise(world, SHERD_ENOMEM, "no layouts");
    sherd_scope_end(world);
}

static void lack_of_memory_is_said_by_all(sherd_world *world)
{
    fail_every_allocation(world, 1, go);
}

static const check_test tests[] = {
    {TEST(distinct_values_of_every_layout), {1, 2, 3, 4, 8}},
    {TEST(pending_sums_are_settled), {1, 2, 3}},
    {TEST(few_distinct_values_are_exchanged), {1, 2, 4}},
    {TEST(places_in_every_layout), {1, 2, 3, 4, 8}},
    {TEST(values_stay), {1, 2, 4}},
    {TEST(a_rank_outside_the_mesh_goes_along), {3}},
    {TEST(plain_tensors_are_of_their_rank), {1, 3}},
    {TEST(a_dry_world_takes_all_as_distinct), {4}},
    {TEST(what_does_not_fit_is_refused), {1, 2}},
    {TEST(lack_of_memory_is_said_by_all), {2}},
};
CHECK_MAIN(tests)
