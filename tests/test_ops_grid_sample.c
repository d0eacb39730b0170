/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields at points: as the formula of each point says, with PyTorch's coordinates, under every
 * layout; points at elements give these; linear fields are found exactly.
 */
#include "groups.h"

#include <math.h>

#include "sherd/ops_elements.h"
#include "sherd/ops_points.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"

enum { BATCH = 2, CHANNELS = 2, POINTS = 5, MOST_COORDINATES = BATCH * POINTS * 3 };

typedef struct trial {
    int dims;
    int64_t size[3];
    double at[MOST_COORDINATES]; /* [batch, points, dims] */
    sherd_tensor *x, *grid;      /* plain */
    sherd_grid_sample_options how;
} trial;

static void draw_trial(scene *s, trial *t)
{
    t->dims = 1 + roll(&s->dice, 3);
    int64_t shape[5] = {BATCH, CHANNELS};
    const int64_t points[] = {BATCH, POINTS, t->dims};

    for (int d = 0; d < t->dims; d++)
        shape[2 + d] = t->size[d] = 1 + roll(&s->dice, 5);
    /* Some far outside, some at elements; all so short that halfway between two elements any
     * formula finds the same one the nearest. */
    for (int i = 0; i < BATCH * POINTS * t->dims; i++)
        t->at[i] = roll(&s->dice, 6) == 0 ? roll(&s->dice, 5) - 2
                                          : (double)(roll(&s->dice, 2601) - 1300) / 1024;
    t->x = numbers(s, SHERD_F64, 2 + t->dims, shape, 50);
    t->grid = sherd_mark_equal(sherd_from_data(s->world, SHERD_F64, points, 3, t->at));
    t->how = (sherd_grid_sample_options){.nearest = roll(&s->dice, 3) == 0,
                                         .border = roll(&s->dice, 2),
                                         .align_corners = roll(&s->dice, 2)};
}

/* The element, or 0 outside. */
static double element(const trial *t, int64_t plane, const int64_t *index)
{
    const double *x = sherd_tensor_read(t->x);
    int64_t at = plane;

    for (int d = 0; d < t->dims; d++) {
        if (index[d] < 0 || index[d] >= t->size[d])
            return 0;
        at = at * t->size[d] + index[d];
    }
    return x[at];
}

static double position(const trial *t, int d, double g)
{
    double n = (double)t->size[d];
    double at = t->how.align_corners ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;

    return t->how.border ? fmin(fmax(at, 0), n - 1) : at;
}

/* What is found at a point of a plane (batch and channel). */
static double expected(const trial *t, int64_t plane, int64_t point)
{
    const double *g = t->at + (plane / CHANNELS * POINTS + point) * t->dims;
    double sum = 0;

    for (int corner = 0; corner < 1 << t->dims; corner++) {
        double weight = 1;
        int64_t index[3];
        for (int d = 0; d < t->dims; d++) {
            double at = position(t, d, g[t->dims - 1 - d]), low = floor(at);
            bool above = corner >> d & 1;
            index[d] = (int64_t)(t->how.nearest ? rint(at) : low) + above;
            weight *= t->how.nearest ? !above : above ? at - low : 1 - (at - low);
        }
        if (weight != 0)
            sum += weight * element(t, plane, index);
    }
    return sum;
}

/* In even shards of any dims: a field has more dims than `spread` cuts. */
static sherd_tensor *even(scene *s, const sherd_mesh *mesh, sherd_tensor *t)
{
    sherd_placement placement[SHERD_MAX_AXES];
    const sherd_layout *layout = NULL;

    for (int a = 0; a < sherd_mesh_axes(mesh); a++) {
        int dim = roll(&s->dice, t->ndim + 1);
        placement[a] = dim < t->ndim ? sherd_shard(dim) : sherd_replicate();
    }
    CHECK_OK(sherd_layout_create(&layout, mesh, t->ndim, t->shape, placement, NULL));
    return sherd_distribute(t, layout, -1);
}

static bool check_trial(scene *s, const sherd_mesh *mesh)
{
    trial t;

    draw_trial(s, &t);
    sherd_tensor *x = even(s, mesh, t.x);
    sherd_tensor *grid = roll(&s->dice, 3) ? spread(s, mesh, t.grid) : t.grid;
    sherd_tensor *y = sherd_full(sherd_grid_sample(x, grid, &t.how));
    const double *got = sherd_tensor_read(y);
    bool good = CHECK(got != NULL) && CHECK_EQ(y->count, BATCH * CHANNELS * POINTS);

    for (int64_t i = 0; good && i < y->count; i++)
        good = CHECK_NEAR(got[i], expected(&t, i / POINTS, i % POINTS), 1e-10);
    return good;
}

static void points_find_what_the_formula_says(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 500 : 40;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = small_mesh(world, i);
        sherd_scope_begin(world);
        bool good = check_trial(&s, mesh);
        if (!CHECK_OK(sherd_world_check(world)) || !good)
            fprintf(stderr, "round %d: %s\n", i, sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* Of x = 3 column + row, with corners aligned, the gradient by the coordinates is constant. */
static void slopes_are_gradients(sherd_world *world)
{
    static const int64_t shape[] = {1, 1, 4, 5}, points[] = {1, 2, 1, 2};
    double x[20];

    for (int i = 0; i < 20; i++)
        x[i] = 3 * (i % 5) + i / 5;
    sherd_tensor *grid = sherd_require_grad(
        sherd_from_data(world, SHERD_F64, points, 4, (double[]){0.1, -0.3, 0.7, 0.2}), true);
    sherd_tensor *field = sherd_from_data(world, SHERD_F64, shape, 4, x);
    sherd_tensor *y =
        sherd_grid_sample(field, grid, &(sherd_grid_sample_options){.align_corners = true});
    CHECK(CHECK_EQ(y->ndim, 4) && CHECK_EQ(y->shape[2], 2) && CHECK_EQ(y->shape[3], 1));
    sherd_backward(sherd_sum(y));
    const double *d = sherd_tensor_read(sherd_grad(grid));
    for (int i = 0; d && i < 2; i++) {
        CHECK_NEAR(d[2 * i], 3 * 2, 1e-12); /* 2 = (5 - 1) / 2 */
        CHECK_NEAR(d[2 * i + 1], 1.5, 1e-12);
    }
    const double nowhere[] = {NAN, 0.5};
    const int64_t one[] = {1, 2};
    y = sherd_grid_sample(field, sherd_from_data(world, SHERD_F64, one, 2, nowhere), NULL);
    CHECK(CHECK_EQ(y->ndim, 2) && *(const double *)sherd_tensor_read(y) == 0);
    CHECK_OK(sherd_world_check(world));
}

/* With one operator, and composed, as for a backward that is recorded: the same bits forward (of a
 * field that is sharded; see above), and gradients alike. */
static void whole_fields_have_the_gradients_of_composed_ones(sherd_world *world)
{
    enum { B = 2, C = 3, H = 6, W = 5, P = 300 };
    static const int64_t shape[] = {B, C, H, W}, points[] = {B, P, 2}, result[] = {B, C, P};
    scene s = {.world = world, .dice = 5};

    for (int i = 0; i < 8; i++) {
        const sherd_grid_sample_options how = {i & 1, i >> 1 & 1, i >> 2 & 1};
        double at[B * P * 2];
        sherd_scope_begin(world);
        for (int k = 0; k < B * P * 2; k++)
            at[k] = roll(&s.dice, 2601) * 1e-3 - 1.3;
        sherd_tensor *in[] = {numbers(&s, SHERD_F64, 4, shape, 50),
                              sherd_from_data(world, SHERD_F64, points, 3, at)};
        sherd_tensor *dy = numbers(&s, SHERD_F64, 3, result, 50), *of[2][2];
        for (int k = 0; k < 2; k++)
            in[k] = sherd_require_grad(in[k], true);
        for (int graph = 0; graph < 2; graph++) {
            sherd_tensor *y = sherd_grid_sample(in[0], in[1], &how);
            sherd_gradients(of[graph], in, 2, &y, 1,
                            &(sherd_gradients_options){.gradients = &dy, .create_graph = graph});
        }
        for (int k = 0; k < 2; k++) {
            const double *one = sherd_tensor_read(of[0][k]),
                         *composed = sherd_tensor_read(of[1][k]);
            bool good = CHECK(one && composed);
            for (int64_t j = 0; good && j < in[k]->count; j++)
                good = CHECK_NEAR(one[j], composed[j], 1e-9);
        }
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* As in PyTorch; a field in rows goes by the composed gradient. */
static void points_at_a_border_do_not_move(sherd_world *world)
{
    const double x[3] = {0, 1, 4}, at[5] = {-1, -0.5, 0, 1, 3}, wanted[5] = {0, 1, 3, 0, 0};
    const sherd_grid_sample_options how = {.border = true, .align_corners = true};
    const int64_t shape[3] = {1, 1, 3}, points[3] = {1, 5, 1};
    sherd_tensor *field = sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, 3, x));

    for (int spread = 0; spread < 2; spread++) {
        sherd_tensor *grid = sherd_mark_equal(sherd_from_data(world, SHERD_F64, points, 3, at));
        sherd_require_grad(grid, true);
        if (spread)
            field = sherd_distribute(field, layout_of(line_of_ranks(world), 3, shape, "S(2)", NULL),
                                     -1);
        sherd_backward(sherd_sum(sherd_grid_sample(field, grid, &how)));
        const double *g = sherd_tensor_read(sherd_full(sherd_grad(grid)));
        for (int i = 0; g && i < 5; i++)
            CHECK_NEAR(g[i], wanted[i], 1e-12);
        CHECK_OK(sherd_world_check(world));
    }
}

/* One NaN, in the first element: it is neither what is outside of the field nor behind its end. */
static void what_is_not_finite_stays_where_it_is(sherd_world *world)
{
    const double x[6] = {NAN, 2, 3, 4, 5, 6}, at[6] = {3, 0.1, 1, 1, 0.2, 0.9};
    const double wanted[2][3] = {{0, 1.5, 3.18}, {0, 0, 5}}; /* PyTorch's */
    const double moved[2][6] = {{0, 0, -4.5, -3, 0.9, -5.3}, {0}};
    const int64_t shape[4] = {1, 1, 2, 3}, points[3] = {1, 3, 2};
    sherd_tensor *field = sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, 4, x));

    for (int i = 0; i < 4; i++) {
        const sherd_grid_sample_options how = {.nearest = i & 1};
        sherd_tensor *grid = sherd_mark_equal(sherd_from_data(world, SHERD_F64, points, 3, at));
        if (i == 2) /* composed */
            field = sherd_distribute(field, layout_of(line_of_ranks(world), 4, shape, "S(3)", NULL),
                                     -1);
        sherd_require_grad(grid, true);
        sherd_tensor *y = sherd_grid_sample(field, grid, &how);
        sherd_backward(sherd_sum(y));
        const double *g = sherd_tensor_read(sherd_full(sherd_grad(grid)));
        const double *got = sherd_tensor_read(sherd_full(y));
        for (int k = 0; CHECK(g && got) && k < 6; k++) {
            CHECK_NEAR(got[k / 2], wanted[i & 1][k / 2], 1e-12);
            CHECK_NEAR(g[k], moved[i & 1][k], 1e-12);
        }
        CHECK_OK(sherd_world_check(world));
    }
}

/* The grid's dtype has no 16777219, nor BF16 a 999, and rounds both up. */
static void the_last_element_may_round_up(sherd_world *world)
{
    const sherd_grid_sample_options how = {.align_corners = true};
    const int64_t points[] = {1, 1, 1};

    for (int i = 0; i < 2; i++) {
        const int64_t shape[] = {1, 1, i ? 1000 : 16777220};
        sherd_tensor *end = sherd_from_data(world, SHERD_F32, points, 3, (float[]){1});
        sherd_tensor *field = sherd_constant(world, SHERD_F32, shape, 3, 2);
        if (i)
            end = sherd_cast(end, SHERD_BF16);
        const float *y = sherd_tensor_read(sherd_grid_sample(field, end, &how));
        CHECK(y && CHECK_NEAR((double)*y, 2, 0));
        CHECK_OK(sherd_world_check(world));
    }
}

static const check_test tests[] = {
    {TEST(points_find_what_the_formula_says), {1, 2, 3, 4, 8}},
    {TEST(slopes_are_gradients), {1}},
    {TEST(whole_fields_have_the_gradients_of_composed_ones), {1}},
    {TEST(points_at_a_border_do_not_move), {1, 2}},
    {TEST(what_is_not_finite_stays_where_it_is), {1, 2}},
    {TEST(the_last_element_may_round_up), {1}},
};
CHECK_MAIN(tests)
