/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements put together by index: sums, averages, products, the largest and the smallest, as a loop
 * over them finds them, under every layout; and their gradients, shared among equal ones. By an
 * index for each element, by a column that is expanded, and by an index of slices.
 */
#include "groups.h"

#include <math.h>

#include "sherd/ops_elements.h"
#include "sherd/ops_index.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"

enum { NODES = 12, EDGES = 30, MOST_WIDTH = 3 };

typedef struct graph {
    int64_t nodes, edges, width;
    int32_t to[EDGES * MOST_WIDTH];            /* the same along a row */
    sherd_tensor *a, *source, *index, *column; /* plain */
    sherd_reduce_op reduce;
    bool self;
} graph;

static void draw_graph(scene *s, graph *g, sherd_dtype dtype)
{
    static const sherd_reduce_op ops[] = {SHERD_SUM, SHERD_MIN, SHERD_MAX, SHERD_PRODUCT,
                                          SHERD_AVG};
    int32_t column[EDGES];

    g->nodes = 1 + roll(&s->dice, NODES);
    g->edges = roll(&s->dice, 6) ? roll(&s->dice, EDGES) : 0;
    g->width = 1 + roll(&s->dice, MOST_WIDTH);
    for (int64_t i = 0; i < g->edges; i++) {
        int32_t node = column[i] = roll(&s->dice, (int)g->nodes);
        for (int64_t c = 0; c < g->width; c++)
            g->to[i * g->width + c] = node;
    }
    const int64_t edges[] = {g->edges, g->width}, nodes[] = {g->nodes, g->width};
    g->index = sherd_mark_equal(sherd_from_data(s->world, SHERD_I32, edges, 2, g->to));
    g->column = sherd_mark_equal(sherd_from_data(s->world, SHERD_I32, edges, 1, column));
    g->reduce = ops[roll(&s->dice, dtype == SHERD_I64 ? 4 : 5)];
    int limit = g->reduce == SHERD_PRODUCT ? 5 : 20; /* products are exact too */
    g->a = numbers(s, dtype, 2, nodes, limit);
    g->source = numbers(s, dtype, 2, edges, limit);
    g->self = roll(&s->dice, 2);
}

static double both(sherd_reduce_op reduce, double x, double y)
{
    return reduce == SHERD_MAX       ? fmax(x, y)
           : reduce == SHERD_MIN     ? fmin(x, y)
           : reduce == SHERD_PRODUCT ? x * y
                                     : x + y;
}

/* What a loop finds at an element of the result, and among how many. */
static double expected(const graph *g, int64_t node, int64_t c, double *count)
{
    double own = number_at(sherd_tensor_read(g->a), g->a->dtype, node * g->width + c), value = own;

    *count = g->self;
    for (int64_t i = 0; i < g->edges; i++) {
        if (g->to[i * g->width] != node)
            continue;
        double x = number_at(sherd_tensor_read(g->source), g->a->dtype, i * g->width + c);
        value = *count > 0 ? both(g->reduce, value, x) : x;
        ++*count;
    }
    if (*count == 0)
        *count = 1;
    return g->reduce == SHERD_AVG ? value / *count : value;
}

static bool is_expected(const graph *g, sherd_tensor *y)
{
    sherd_tensor *whole = sherd_full(y);
    const void *got = sherd_tensor_read(whole);
    double count, near = y->dtype == SHERD_BF16 ? 0.01 : 1e-6;
    bool good = CHECK(got != NULL) && CHECK_EQ(whole->count, g->nodes * g->width);

    for (int64_t i = 0; good && i < whole->count; i++) {
        double want = expected(g, i / g->width, i % g->width, &count);
        good = CHECK_NEAR(number_at(got, y->dtype, i), want, near * fabs(want));
    }
    return good;
}

/* What reaches the result's element comes from a and the sources that went into it: as much. */
static bool gradients_add_up(const graph *g, sherd_tensor *da, sherd_tensor *ds)
{
    const double *a = sherd_tensor_read(sherd_full(da)), *s = sherd_tensor_read(sherd_full(ds));
    bool good = CHECK(a != NULL) && CHECK(s != NULL || g->edges == 0);

    for (int64_t at = 0; good && at < g->nodes * g->width; at++) {
        double sum = a[at], count, want = expected(g, at / g->width, at % g->width, &count);
        for (int64_t i = 0; i < g->edges; i++) {
            int64_t e = i * g->width + at % g->width;
            if (g->to[e] != at / g->width)
                continue;
            double x = number_at(sherd_tensor_read(g->source), SHERD_F64, e);
            sum += s[e];
            if (g->reduce == SHERD_MAX || g->reduce == SHERD_MIN)
                good = good && CHECK((s[e] > 0) == (x == want));
        }
        good = good && CHECK_NEAR(sum, g->reduce == SHERD_SUM ? count : 1, 1e-12);
    }
    return good;
}

/* The product of all that goes into a place but the source `without`; -1 = but a's own. */
static double product_without(const graph *g, int64_t node, int64_t c, int64_t without)
{
    const double *a = sherd_tensor_read(g->a), *s = sherd_tensor_read(g->source);
    double value = g->self && without >= 0 ? a[node * g->width + c] : 1;

    for (int64_t i = 0; i < g->edges; i++)
        value *= g->to[i * g->width] == node && i != without ? s[i * g->width + c] : 1;
    return value;
}

static bool gradients_are_products(const graph *g, sherd_tensor *da, sherd_tensor *ds)
{
    const double *a = sherd_tensor_read(sherd_full(da)), *s = sherd_tensor_read(sherd_full(ds));
    bool good = CHECK(a != NULL) && CHECK(s != NULL || g->edges == 0);

    for (int64_t at = 0; good && at < g->nodes * g->width; at++) {
        int64_t node = at / g->width, count = 0;
        for (int64_t i = 0; i < g->edges; i++)
            count += g->to[i * g->width] == node;
        double want = g->self || !count ? product_without(g, node, at % g->width, -1) : 0;
        good = CHECK_NEAR(a[at], want, 1e-12 * fabs(want));
    }
    for (int64_t e = 0; good && e < g->edges * g->width; e++) {
        double want = product_without(g, g->to[e], e % g->width, e / g->width);
        good = CHECK_NEAR(s[e], want, 1e-12 * fabs(want));
    }
    return good;
}

enum { EACH, EXPANDED, SLICES, WAYS };

static sherd_tensor *reduced(scene *s, const sherd_mesh *mesh, const graph *g, sherd_tensor *a,
                             sherd_tensor *source)
{
    int way = roll(&s->dice, WAYS);
    sherd_tensor *plain = way == EACH ? g->index : g->column;
    sherd_tensor *index = roll(&s->dice, 3) ? spread(s, mesh, plain) : plain;

    if (way == SLICES)
        return sherd_index_reduce(a, 0, index, source, g->reduce, g->self);
    if (way == EXPANDED)
        index = sherd_expand(sherd_unsqueeze(index, 1), source->shape, 2);
    return sherd_scatter_reduce(a, 0, index, source, g->reduce, g->self);
}

static bool check_graph(scene *s, const sherd_mesh *mesh)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_I64, SHERD_BF16};
    sherd_dtype dtype = dtypes[roll(&s->dice, 6) % 4];
    graph g;

    draw_graph(s, &g, dtype);
    bool real = dtype == SHERD_F64;
    sherd_tensor *a = sherd_require_grad(spread(s, mesh, g.a), real);
    sherd_tensor *source = sherd_require_grad(spread(s, mesh, g.source), real);
    sherd_tensor *y = reduced(s, mesh, &g, a, source);
    bool good = is_expected(&g, y);
    if (!real || !good)
        return good;
    sherd_backward(sherd_sum(y));
    return (g.reduce == SHERD_PRODUCT ? gradients_are_products
                                      : gradients_add_up)(&g, sherd_grad(a), sherd_grad(source));
}

static void every_layout_finds_what_a_loop_finds(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 1000 : 36;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = small_mesh(world, i);
        sherd_scope_begin(world);
        bool good = check_graph(&s, mesh);
        if (!CHECK_OK(sherd_world_check(world)) || !good)
            fprintf(stderr, "round %d: %s\n", i, sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* NaN is found, -0 and infinities are numbers, and three equal ones share. */
static void odd_numbers(sherd_world *world)
{
    static const int64_t two[] = {2}, five[] = {5};
    sherd_tensor *a = sherd_from_data(world, SHERD_F64, two, 1, (double[]){1, -INFINITY});
    sherd_tensor *to = sherd_from_data(world, SHERD_I32, five, 1, (int32_t[]){0, 0, 0, 1, 1});
    sherd_tensor *x = sherd_from_data(world, SHERD_F64, five, 1, (double[]){1, NAN, 7, -0., 0});
    const double *y = sherd_tensor_read(sherd_scatter_reduce(a, 0, to, x, SHERD_MAX, true));

    CHECK(isnan(y[0]) && y[1] == 0);
    y = sherd_tensor_read(sherd_scatter_reduce(a, 0, to, x, SHERD_MIN, true));
    CHECK(isnan(y[0]) && y[1] == -INFINITY);
    x = sherd_require_grad(sherd_from_data(world, SHERD_F64, five, 1, (double[]){1, 1, 0, 3, 2}),
                           true);
    sherd_require_grad(a, true);
    sherd_backward(sherd_sum(sherd_scatter_reduce(a, 0, to, x, SHERD_MAX, true)));
    const double *da = sherd_tensor_read(sherd_grad(a)), *dx = sherd_tensor_read(sherd_grad(x));
    CHECK_NEAR(da[0], 1. / 3, 1e-15);
    CHECK(da[1] == 0 && dx[2] == 0 && dx[3] == 1 && dx[4] == 0);
    CHECK_NEAR(dx[0] + dx[1], 2. / 3, 1e-15);
    CHECK_OK(sherd_world_check(world));
}

/* The sum of those that have a mean is more than f16 holds. */
static void numbers_of_f16_stay_in_range(sherd_world *world)
{
    static const int64_t one[] = {1}, many[] = {100};
    sherd_tensor *a = sherd_constant(world, SHERD_F16, one, 1, 3);
    sherd_tensor *to = sherd_constant(world, SHERD_I32, many, 1, 0);
    sherd_tensor *x = sherd_constant(world, SHERD_F16, many, 1, 1000);

    CHECK_EQ(sherd_item(sherd_scatter_reduce(a, 0, to, x, SHERD_AVG, false)), 1000);
    CHECK_EQ(sherd_item(sherd_index_reduce(a, 0, to, x, SHERD_AVG, false)), 1000);
    /* as the product times its gradient is, by which that of a factor is made */
    x = sherd_require_grad(sherd_constant(world, SHERD_F16, one, 1, 300), true);
    to = sherd_constant(world, SHERD_I32, one, 1, 0);
    sherd_tensor *y = sherd_scatter_reduce(a, 0, to, x, SHERD_PRODUCT, false);
    sherd_backward(sherd_sum(sherd_scale(sherd_cast(y, SHERD_F32), 400)));
    CHECK_EQ(sherd_item(sherd_grad(x)), 400);
    CHECK_OK(sherd_world_check(world));
}

/* What torch.Tensor.index_reduce gives, and its gradients for dy = 1, 2, .., 8. */
static void as_pytorch_says(sherd_world *world)
{
    static const double a0[] = {2, -1, .5, 3, 1.5, 0, -2, 4};
    static const double s0[] = {1.5, 0, -2, 3, 0, 2, 1.5, -1, 4, 0, -.5, 5};
    static const int32_t to[] = {0, 2, 0, 0, 3, 2};
    static const struct {
        sherd_reduce_op reduce;
        bool self;
        double y[8], da[8], ds[12];
    } stored[] = {
        {SHERD_PRODUCT,
         true,
         {0, 0, 0.5, 3, 1.5, 0, -8, 0},
         {0, 0, 3, 4, 5, 90, 28, 0},
         {0, 4, -3.75, 0, 4.5, 0, 0, 0, -14, 32, -15, 0}},
        {SHERD_PRODUCT,
         false,
         {0, 0, 0.5, 3, 1, 15, 4, 0},
         {0, 0, 3, 4, 0, 0, 0, 0},
         {0, -4, -2.5, 30, 2.25, 0, 0, 0, 7, 8, -10, 18}},
        {SHERD_AVG,
         true,
         {1.25, 0, 0.5, 3, -1. / 3, 8. / 3, 1, 2},
         {0.25, 0.5, 3, 4, 5. / 3, 2, 3.5, 4},
         {0.25, 0.5, 5. / 3, 2, 0.25, 0.5, 0.25, 0.5, 3.5, 4, 5. / 3, 2}},
        {SHERD_AVG,
         false,
         {1, 1. / 3, 0.5, 3, -1.25, 4, 4, 0},
         {0, 0, 3, 4, 0, 0, 0, 0},
         {1. / 3, 2. / 3, 2.5, 3, 1. / 3, 2. / 3, 1. / 3, 2. / 3, 7, 8, 2.5, 3}},
        {SHERD_MAX,
         true,
         {2, 2, 0.5, 3, 1.5, 5, 4, 4},
         {1, 0, 3, 4, 5, 0, 0, 8},
         {0, 0, 0, 0, 0, 2, 0, 0, 7, 0, 0, 6}},
        {SHERD_MAX,
         false,
         {1.5, 2, 0.5, 3, -0.5, 5, 4, 0},
         {0, 0, 3, 4, 0, 0, 0, 0},
         {0.5, 0, 0, 0, 0, 2, 0.5, 0, 7, 8, 5, 6}},
        {SHERD_MIN,
         true,
         {0, -1, 0.5, 3, -2, 0, -2, 0},
         {0, 1, 3, 4, 0, 6, 7, 0},
         {0, 0, 5, 0, 1, 0, 0, 1, 0, 8, 0, 0}},
        {SHERD_MIN,
         false,
         {0, -1, 0.5, 3, -2, 3, 4, 0},
         {0, 0, 3, 4, 0, 0, 0, 0},
         {0, 0, 5, 6, 1, 0, 0, 2, 7, 8, 0, 0}}, /* PyTorch: 1, as if a's own -1 took part */
    };
    static const int64_t nodes[] = {4, 2}, edges[] = {6, 2};
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *l = layout_of(mesh, 2, nodes, "S(0)", NULL),
                       *le = layout_of(mesh, 2, edges, "S(0)", NULL);

    for (int i = 0; i < LEN(stored); i++) {
        sherd_tensor *a = sherd_require_grad(
            sherd_distribute(sherd_from_data(world, SHERD_F64, nodes, 2, a0), l, 0), true);
        sherd_tensor *s = sherd_require_grad(
            sherd_distribute(sherd_from_data(world, SHERD_F64, edges, 2, s0), le, 0), true);
        sherd_tensor *at = sherd_distribute(sherd_from_data(world, SHERD_I32, edges, 1, to),
                                            layout_of(mesh, 1, edges, "S(0)", NULL), 0);
        sherd_tensor *y = sherd_index_reduce(a, 0, at, s, stored[i].reduce, stored[i].self);
        sherd_tensor *dy = sherd_add_scalar(indices_on(l, SHERD_F64), 1);
        sherd_backward_with(&y, &dy, 1, NULL);
        const double *got = sherd_tensor_read(sherd_full(y)),
                     *da = sherd_tensor_read(sherd_full(sherd_grad(a))),
                     *ds = sherd_tensor_read(sherd_full(sherd_grad(s)));
        for (int j = 0; j < 8 && CHECK(got && da); j++) {
            CHECK_NEAR(got[j], stored[i].y[j], 1e-15);
            CHECK_NEAR(da[j], stored[i].da[j], 1e-14);
        }
        for (int j = 0; j < 12 && CHECK(ds != NULL); j++)
            CHECK_NEAR(ds[j], stored[i].ds[j], 1e-14);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The ends of i64 are found too, of which the largest is no f64. */
static void the_ends_of_whole_numbers(sherd_world *world)
{
    static const int64_t three[] = {3}, ends[2][3] = {{INT64_MAX, INT64_MAX - 1, 7},
                                                      {INT64_MIN, INT64_MIN + 1, 7}};
    static const char *const placements[] = {"R", "S(0)"};

    for (int most = 0; most < 2; most++)
        for (int p = 0; p < LEN(placements); p++) {
            const sherd_layout *l = layout_of(line_of_ranks(world), 1, three, placements[p], NULL);
            sherd_tensor *a = sherd_constant_on(l, SHERD_I64, 5);
            sherd_tensor *x = sherd_distribute(
                sherd_mark_equal(sherd_from_data(world, SHERD_I64, three, 1, ends[most])), l, -1);
            sherd_tensor *to =
                sherd_mark_equal(sherd_from_data(world, SHERD_I32, three, 1, (int32_t[]){0, 1, 1}));
            sherd_reduce_op op = most ? SHERD_MAX : SHERD_MIN;
            const int64_t expected[] = {ends[most][0], 7, 5};
            sherd_tensor *y = sherd_full(sherd_scatter_reduce(a, 0, to, x, op, false));
            const int64_t *made = sherd_tensor_read(y);
            for (int i = 0; made && i < 3; i++)
                CHECK_EQ(made[i], expected[i]);
        }
    CHECK_OK(sherd_world_check(world));
}

static void what_does_not_fit_is_refused(sherd_world *world)
{
    const int64_t n[] = {4};
    const sherd_layout *l = layout_of(line_of_ranks(world), 1, n, "S(0)", NULL);
    sherd_tensor *a = indices_on(l, SHERD_F64), *to = sherd_constant_on(l, SHERD_I32, 3);

    CHECK_OK(sherd_world_check(world));
    sherd_scatter_reduce(a, 0, to, a, (sherd_reduce_op)9, true);
    refused(world, "sherd_scatter_reduce: it sums, averages, multiplies, or finds max or min");
    sherd_index_reduce(a, 0, to, a, (sherd_reduce_op)9, true);
    refused(world, "sherd_index_reduce: it sums, averages, multiplies, or finds max or min");
    sherd_index_reduce(a, 1, to, a, SHERD_MAX, true);
    refused(world, "no dim 1");
    sherd_index_reduce(a, 0, to, sherd_narrow(a, 0, 0, 2), SHERD_MAX, true);
    refused(world, "source must be as a, with 4 along dim 0");
    sherd_index_reduce(a, 0, sherd_unsqueeze(to, 0), a, SHERD_MAX, true);
    refused(world, "index must have 1 dim");
    sherd_index_reduce(a, 0, sherd_constant_on(l, SHERD_I32, 6), a, SHERD_PRODUCT, true);
    refused(world, "] = 6 is outside of [0,4)");
    sherd_scatter_reduce(sherd_cast(a, SHERD_I64), 0, to, a, SHERD_AVG, true);
    refused(world, "sherd_scatter_reduce: integers have no average");
    sherd_scatter_reduce(a, 0, sherd_constant_on(l, SHERD_I32, 6), a, SHERD_MAX, true);
    refused(world, "] = 6 is outside of [0,4)");
    sherd_scatter_reduce(a, 1, to, a, SHERD_MIN, true);
    refused(world, "no dim 1");
    sherd_tensor *truths = sherd_cast(a, SHERD_BOOL);
    sherd_scatter_reduce(truths, 0, to, truths, SHERD_PRODUCT, true);
    refused(world, "sherd_scatter_reduce: bool has no sums or products");
    truths = sherd_cast(a, SHERD_BOOL);
    sherd_scatter_reduce(truths, 0, to, truths, SHERD_MIN, true);
    refused(world, "sherd_scatter_reduce: bool has no order");
}

static const check_test tests[] = {
    {TEST(every_layout_finds_what_a_loop_finds), {1, 2, 3, 4, 8}},
    {TEST(odd_numbers), {1}},
    {TEST(numbers_of_f16_stay_in_range), {1}},
    {TEST(the_ends_of_whole_numbers), {1, 2, 3, 4, 8}},
    {TEST(as_pytorch_says), {1, 2, 3}},
    {TEST(what_does_not_fit_is_refused), {1, 2}},
};
CHECK_MAIN(tests)
