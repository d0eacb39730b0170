/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs along a dim, places in order, diagonals, vectors, windows: PyTorch's results and
 * gradients where elements are equal, 0, infinite or NaN; diagonals of all offsets by their
 * indices, and that no matrix moves for them; windows of sharded dims fetch what they lack. (All
 * layouts, and gradients of gradients: test_ops_table.c, test_ops_twice.c.)
 */
#include "ops_cases.h"

#include "sherd/ops_diagonal.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_running.h"
#include "sherd/ops_sorted.h"
#include "sherd/ops_stencil.h"
#include "sherd/ops_vectors.h"
#include "sherd/values.h"

#define INF  ((double)INFINITY)
#define NONE ((double)NAN)

enum { MOST = 16 };

/* ---- PyTorch's numbers ----------------------------------------------------------------------- */

#define RUN(name, expression)                                     \
    static sherd_tensor *name(sherd_tensor *x, sherd_tensor **at) \
    {                                                             \
        (void)at;                                                 \
        return expression;                                        \
    }
#define AS(...) \
    sherd_view(x, (const int64_t[]){__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8))
#define ONES(...)                                                       \
    sherd_constant(x->world, SHERD_F64, (const int64_t[]){__VA_ARGS__}, \
                   (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), 1)
#define ROW(i) sherd_narrow(AS(2, -1), 0, i, 1)

RUN(cumprod_rows, sherd_cumprod(AS(2, 3), 1))
RUN(cumprod, sherd_cumprod(x, 0))
RUN(cummax, sherd_cummax(x, 0, at))
RUN(cummin, sherd_cummin(x, -1, at))
RUN(logcumsumexp, sherd_logcumsumexp(x, 0))
RUN(discounted, sherd_recurrence(sherd_scale(sherd_sign(x), 0.5), x, 0, true))
RUN(median, sherd_median(x, 0, false, at))
RUN(kth, sherd_kthvalue(x, 4, 0, false, at))
RUN(linear, sherd_quantile(x, 0.4, 0, SHERD_QUANTILE_LINEAR, false))
RUN(linear_far, sherd_quantile(x, 0.75, 0, SHERD_QUANTILE_LINEAR, false))
RUN(lower, sherd_quantile(x, 0.9, 0, SHERD_QUANTILE_LOWER, true))
RUN(higher, sherd_quantile(x, 0.4, -1, SHERD_QUANTILE_HIGHER, false))
RUN(nearest, sherd_quantile(x, 0.5, 0, SHERD_QUANTILE_NEAREST, false))
RUN(midpoint, sherd_quantile(x, 0.9, 0, SHERD_QUANTILE_MIDPOINT, false))
RUN(last, sherd_quantile(x, 1, 0, SHERD_QUANTILE_LINEAR, false))
RUN(above, sherd_diagonal(AS(2, 3), 1, 0, 1))
RUN(below, sherd_trace(AS(2, 3), -1, 0, 1))
RUN(cross, sherd_cross(ROW(0), ROW(1), 1))
RUN(unit, sherd_normalize(AS(2, 3), 1, 1, 1e-12))
RUN(cosine, sherd_cosine_similarity(AS(2, 3), ONES(2, 3), 1, 1e-8))
RUN(cosine_of_0, sherd_cosine_similarity(x, ONES(4), 0, 1e-8))
RUN(cosine_of_one, sherd_cosine_similarity(AS(2, 3), sherd_scale(ONES(2, 1), -2), 1, 1e-8))
RUN(cosine_of_one_before, sherd_cosine_similarity(ONES(1), AS(2, 3), 0, 1e-8))
RUN(cosine_of_two, sherd_cosine_similarity(ONES(3, 1), AS(1, 4), 0, 1e-8))
RUN(overlapping, sherd_unfold(x, 0, 3, 2))
RUN(apart, sherd_unfold(x, 0, 2, 3))
RUN(prelu, sherd_prelu(x, sherd_constant(x->world, SHERD_F64, (int64_t[]){1}, 1, 0.25)))
RUN(shuffled, sherd_pixel_shuffle(AS(4, 2, 2), 2))
RUN(unshuffled, sherd_pixel_unshuffle(AS(1, 4, 4), 2))

typedef struct numbers {
    const char *name;
    sherd_tensor *(*run)(sherd_tensor *x, sherd_tensor **at);
    int count, results;
    double x[MOST], y[MOST], grad[MOST];
    int32_t at[MOST];
} numbers;

static const numbers known[] = {
    {"cumprod", cumprod_rows, 6, 6, .x = {2, 0, 3, -1, 0, 4}, .y = {2, 0, 0, -1, 0, 0},
     .grad = {1, 8, 0, 1, -5, 0}},
    {"cumprod of zeros", cumprod, 5, 5, .x = {2, 0, 3, 0, 5}, .y = {2, 0, 0, 0, 0},
     .grad = {1, 8, 0, 0, 0}},
    {"cummax", cummax, 5, 5, .x = {2, 1, 2, 1, 3}, .y = {2, 2, 2, 2, 3}, .grad = {2, 0, 2, 0, 1},
     .at = {0, 0, 2, 2, 4}},
    {"cummin", cummin, 5, 5, .x = {2, 1, 2, 1, 3}, .y = {2, 1, 1, 1, 1}, .grad = {1, 2, 0, 2, 0},
     .at = {0, 1, 1, 3, 3}},
    {"cummax of NaN", cummax, 5, 5, .x = {1, NONE, 3, NONE, 2}, .y = {1, NONE, NONE, NONE, NONE},
     .grad = {1, 2, 0, 2, 0}, .at = {0, 1, 1, 3, 3}},
    {"logcumsumexp", logcumsumexp, 5, 5, .x = {0, 1, -INF, 1000, 2},
     .y = {0, 1.3132616875182228, 1.3132616875182228, 1000, 1000},
     .grad = {1.5378828427399902, 1.4621171572600098, 0, 2, 0}},
    {"logcumsumexp from -inf", logcumsumexp, 3, 3, .x = {-INF, -INF, 1}, .y = {-INF, -INF, 1},
     .grad = {0, 0, 1}},
    {"discounted", discounted, 3, 3, .x = {1, 2, 4}, .y = {3, 4, 4}, .grad = {1, 1.5, 1.75}},
    {"median", median, 4, 1, .x = {4, 1, 3, 2}, .y = {2}, .grad = {0, 0, 0, 1}, .at = {3}},
    {"median of five", median, 5, 1, .x = {5, 1, 3, 2, 4}, .y = {3}, .grad = {0, 0, 1, 0, 0},
     .at = {2}},
    {"median of NaN", median, 5, 1, .x = {3, 1, NONE, 2, NONE}, .y = {NONE},
     .grad = {0, 0, 1, 0, 0}, .at = {2}},
    {"kthvalue", kth, 5, 1, .x = {5, 1, 3, 2, 4}, .y = {4}, .grad = {0, 0, 0, 0, 1}, .at = {4}},
    {"linear", linear, 4, 1, .x = {1, 8, 2, 4}, .y = {2.4}, .grad = {0, 0, 0.8, 0.2}},
    {"linear, far", linear_far, 4, 1, .x = {1, 8, 2, 4}, .y = {5}, .grad = {0, 0.25, 0, 0.75}},
    {"linear of NaN", linear, 4, 1, .x = {1, NONE, 2, 4}, .y = {NONE}, .grad = {0, 1, 0, 0}},
    {"lower", lower, 4, 1, .x = {1, 8, 2, 4}, .y = {4}, .grad = {0, 0, 0, 1}},
    {"higher", higher, 4, 1, .x = {1, 8, 2, 4}, .y = {4}, .grad = {0, 0, 0, 1}},
    {"nearest", nearest, 4, 1, .x = {1, 8, 2, 4}, .y = {4}, .grad = {0, 0, 0, 1}},
    {"midpoint", midpoint, 4, 1, .x = {1, 8, 2, 4}, .y = {6}, .grad = {0, 0.5, 0, 0.5}},
    {"last", last, 4, 1, .x = {1, INF, 2, 4}, .y = {INF}, .grad = {0, 1, 0, 0}},
    {"diagonal", above, 6, 2, .x = {1, 2, 3, 4, 5, 6}, .y = {2, 6}, .grad = {0, 1, 0, 0, 0, 1}},
    {"trace", below, 6, 1, .x = {1, 2, 3, 4, 5, 6}, .y = {4}, .grad = {0, 0, 0, 1, 0, 0}},
    {"cross", cross, 6, 3, .x = {1, 2, 3, -1, 0.5, 2}, .y = {2.5, -5, 2.5},
     .grad = {-1.5, 3, -1.5, 1, -2, 1}},
    {"normalize", unit, 6, 6, .x = {1, 2, 3, -1, 0.5, 2},
     .y = {1. / 6, 1. / 3, 0.5, -2. / 7, 1. / 7, 4. / 7},
     .grad = {0, 0, 0, 20. / 49, 8. / 49, 8. / 49}},
    {"cosine", cosine, 6, 2, .x = {1, 2, 3, -1, 0.5, 2},
     .y = {0.9258200997725516, 0.37796447300922725},
     .grad = {0.0881733428354811, 0.022043335708870265, -0.044086671417740586, 0.32396954829362334,
              0.21597969886241558, 0.10798984943120776}},
    {"cosine of 0", cosine_of_0, 4, 1, .x = {0, 0, 0, 0}, .y = {0}, .grad = {5e7, 5e7, 5e7, 5e7}},
    {"cosine, stretched", cosine_of_one, 6, 2, .x = {1, 2, 3, -1, 0.5, 2},
     .y = {-0.9258200997725516, -0.37796447300922725},
     .grad = {-0.0881733428354811, -0.022043335708870265, 0.044086671417740586,
              -0.32396954829362334, -0.21597969886241558, -0.10798984943120776}},
    {"cosine of a dim of the result", cosine_of_one_before, 6, 3, .x = {1, 2, 3, 1, 2, -3},
     .y = {1, 1, 0}, .grad = {0, 0, 1. / 6, 0, 0, 1. / 6}},
    {"cosine, both stretched", cosine_of_two, 4, 4, .x = {1, 2, 3, -1}, .y = {1, 1, 1, -1},
     .grad = {0, 0, 0, 0}},
    {"windows", overlapping, 7, 9, .x = {1, 2, 3, 4, 5, 6, 7}, .y = {1, 2, 3, 3, 4, 5, 5, 6, 7},
     .grad = {1, 1, 2, 1, 2, 1, 1}},
    {"windows apart", apart, 7, 4, .x = {1, 2, 3, 4, 5, 6, 7}, .y = {1, 2, 4, 5},
     .grad = {1, 1, 0, 1, 1, 0, 0}},
    {"prelu", prelu, 4, 4, .x = {-1, 0, 2, NONE}, .y = {-0.25, 0, 2, NONE},
     .grad = {0.25, 0.25, 1, 0.25}},
    {"pixel_shuffle", shuffled, 16, 16, .x = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
     .y = {0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15},
     .grad = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {"pixel_unshuffle", unshuffled, 16, 16,
     .x = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
     .y = {0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15},
     .grad = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
};

/* Equal but for rounding; NaN where NaN is wanted. */
static bool are_those(sherd_tensor *t, const double *want, int count)
{
    const double *y = sherd_tensor_failed(t) ? NULL : sherd_tensor_read(t);
    bool good = y && sherd_tensor_count(t) == count;

    for (int i = 0; i < count && good; i++)
        good = isnan(want[i])   ? isnan(y[i])
               : isinf(want[i]) ? y[i] == want[i]
                                : fabs(y[i] - want[i]) <= 1e-12 * fmax(1, fabs(want[i]));
    return good;
}

static void numbers_are_those_of_pytorch(sherd_world *world)
{
    for (int i = 0; i < LEN(known); i++) {
        const numbers *k = &known[i];
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_require_grad(
            sherd_from_data(world, SHERD_F64, (int64_t[]){k->count}, 1, k->x), true);
        sherd_tensor *at = NULL, *y = k->run(x, &at);
        sherd_backward(sherd_sum(y));
        bool good = CHECK(are_those(y, k->y, k->results));
        good &= CHECK(are_those(sherd_grad(x), k->grad, k->count));
        for (int j = 0; at && j < k->results; j++)
            good &= CHECK_EQ(((const int32_t *)sherd_tensor_read(at))[j], k->at[j]);
        if (!good || !CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "  %s\n", k->name);
        sherd_scope_end(world);
    }
}

/* Beside zeros too: the second derivatives of PyTorch. */
static void a_running_product_bends_at_zeros(sherd_world *world)
{
    const double x[] = {2, 0, 3, 0, 5}, weight[] = {1, 2, 3, 4, 5}, want[] = {8, 154, 4, 72, 0};
    const int64_t five = 5;
    sherd_tensor *t = sherd_require_grad(sherd_from_data(world, SHERD_F64, &five, 1, x), true);
    sherd_tensor *y = sherd_sum(sherd_cumprod(t, 0)), *grad = NULL;

    sherd_gradients(&grad, &t, 1, &y, 1, &(sherd_gradients_options){.create_graph = true});
    sherd_backward(sherd_sum(sherd_mul(grad, sherd_from_data(world, SHERD_F64, &five, 1, weight))));
    CHECK(are_those(sherd_grad(t), want, 5));
    CHECK_OK(sherd_world_check(world));
}

/* 16 bits compute in wider numbers, and integers keep the low bits. */
static void other_dtypes_run_too(sherd_world *world)
{
    const double x[] = {3, -2, 100, 7}, product[] = {3, -6, -600, -4200};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16, SHERD_F16, SHERD_I32, SHERD_I64};

    for (int d = 0; d < LEN(dtypes); d++) {
        sherd_tensor *at = NULL,
                     *t = sherd_cast(sherd_from_data(world, SHERD_F64, (int64_t[]){4}, 1, x),
                                     dtypes[d]);
        sherd_tensor *want =
            sherd_cast(sherd_from_data(world, SHERD_F64, (int64_t[]){4}, 1, product), dtypes[d]);
        sherd_tensor *most = sherd_cummax(t, 0, &at), *y = sherd_cumprod(t, 0);
        CHECK_EQ(sherd_tensor_dtype(y), dtypes[d]);
        CHECK(*(const uint8_t *)sherd_tensor_read(sherd_all(sherd_eq(y, want), NULL, 0, false)));
        CHECK(are_those(sherd_cast(most, SHERD_F64), (double[]){3, 3, 100, 100}, 4));
        CHECK(are_those(sherd_cast(at, SHERD_F64), (double[]){0, 0, 2, 2}, 4));
        CHECK(are_those(sherd_cast(sherd_median(t, 0, true, NULL), SHERD_F64), (double[]){3}, 1));
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- nearness -------------------------------------------------------------------------------- */

static void near_numbers_are_close(sherd_world *world)
{
    const double a[] = {1, 1, INF, INF, NONE, 0, 1e300},
                 b[] = {1.00001, 1.1, INF, -INF, NONE, 1e-9, INF};
    const int64_t n = LEN(a);
    sherd_tensor *x = sherd_from_data(world, SHERD_F64, &n, 1, a);
    sherd_tensor *y = sherd_from_data(world, SHERD_F64, &n, 1, b);
    sherd_tensor *strict = sherd_isclose(x, y, 1e-5, 1e-8, false);
    sherd_tensor *loose = sherd_isclose(x, y, 1e-5, 1e-8, true);

    CHECK(are_those(sherd_cast(strict, SHERD_F64), (double[]){1, 0, 1, 0, 0, 1, 0}, (int)n));
    CHECK(are_those(sherd_cast(loose, SHERD_F64), (double[]){1, 0, 1, 0, 1, 1, 0}, (int)n));
    CHECK_OK(sherd_world_check(world));
}

/* ---- diagonals ------------------------------------------------------------------------------- */

/* a[i, j, k] = its index; the diagonal of dims p and q has those where they differ by the offset. */
static void check_diagonal(sherd_tensor *a, int64_t offset, int p, int q)
{
    int other = 3 - p - q;
    double want[256];
    int n = 0;

    for (int64_t o = 0; o < a->shape[other]; o++)
        for (int64_t i = 0; i < a->shape[p]; i++) {
            int64_t at[3] = {0};
            at[other] = o;
            at[p] = i;
            if (offset >= a->shape[q] || i + offset < 0 || i + offset >= a->shape[q])
                continue;
            at[q] = i + offset;
            want[n++] = (double)((at[0] * a->shape[1] + at[1]) * a->shape[2] + at[2]);
        }
    CHECK(are_those(sherd_diagonal(a, offset, p, q - 3), want, n));
}

static void diagonals_have_their_indices(sherd_world *world)
{
    const int64_t shape[] = {3, 4, 5};
    sherd_tensor *a = sherd_view(sherd_arange(world, SHERD_F64, 0, 60, 1), shape, 3);

    for (int p = 0; p < 3; p++)
        for (int q = 0; q < 3; q++)
            for (int64_t offset = -7; offset <= 7 && p != q; offset++) {
                check_diagonal(a, offset, p, q);
                sherd_tensor *back = sherd_diag_embed(a, offset, p, q);
                CHECK_EQ(sherd_tensor_shape(back)[p], 5 + (offset < 0 ? -offset : offset));
                sherd_tensor *same = sherd_diagonal(back, offset, p, q);
                CHECK(same->ndim == 3 && distance(sherd_sub(same, a), (double[60]){0}, 60) == 0);
            }
    check_diagonal(a, INT64_MAX, 0, 1);
    check_diagonal(a, INT64_MIN, 0, 1);
    CHECK_OK(sherd_world_check(world));
}

/* A layout of an n x n matrix over all ranks. */
static const sherd_layout *over_ranks(sherd_world *world, int64_t n, const char *text)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    const sherd_placement rows[] = {sherd_shard(0), sherd_shard(1)};
    int64_t ranks = sherd_world_ranks(world), extents[] = {ranks, 1};

    if (ranks == 4 && text[0] == '2')
        extents[0] = extents[1] = 2;
    CHECK_OK(sherd_mesh_create(&mesh, world, text[0] == '2' ? 2 : 1, extents, NULL, NULL));
    CHECK_OK(sherd_layout_create(&layout, mesh, 2, (int64_t[]){n, n},
                                 text[0] == 'c' ? rows + 1 : rows, NULL));
    return layout;
}

static void no_matrix_moves_for_its_diagonal(sherd_world *world)
{
    static const char *const ways[] = {"rows", "columns", "2"};

    for (int i = 0; i < LEN(ways); i++) {
        sherd_generator generator = sherd_generator_named("matrix");
        sherd_tensor *a =
            sherd_require_grad(sherd_random_on(over_ranks(world, 9, ways[i]), SHERD_F64,
                                               sherd_uniform(0, 1), &generator),
                               true);
        int64_t before = sherd_comm_calls(world, NULL);
        sherd_tensor *y = sherd_diagonal(a, 1, 0, 1), *trace = sherd_trace(a, 0, 0, 1);
        sherd_tensor *parts[] = {a}, *sum = sherd_einsum("ii->", parts, 1);
        CHECK_EQ(sherd_comm_calls(world, NULL), before);
        CHECK(sherd_tensor_layout(y) != NULL);
        sherd_tensor *high = sherd_diagonal(sherd_gt_scalar(a, 0.5), 1, 0, 1);
        CHECK_EQ(sherd_tensor_dtype(high), SHERD_BOOL);
        sherd_tensor *same = sherd_eq(sherd_full(high), sherd_gt_scalar(sherd_full(y), 0.5));
        CHECK(*(const uint8_t *)sherd_tensor_read(sherd_all(same, NULL, 0, false)));
        const double *x = sherd_tensor_read(sherd_full(a)), *d = sherd_tensor_read(sherd_full(y));
        double whole = 0;
        for (int k = 0; x && d && k < 8; k++)
            CHECK_EQ(d[k], x[k * 10 + 1]);
        for (int k = 0; x && k < 9; k++)
            whole += x[k * 10];
        CHECK_NEAR(*(const double *)sherd_tensor_read(sherd_full(trace)), whole, 1e-12);
        CHECK_NEAR(*(const double *)sherd_tensor_read(sherd_full(sum)), whole, 1e-12);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- of a matrix [6,6] ----------------------------------------------------------------------- */

RUN(of_diagonal, sherd_diagonal(x, 1, 1, 0))
RUN(of_embedded, sherd_diag_embed(sherd_narrow(x, 0, 1, 4), -1, 0, 2))
RUN(of_trace, sherd_trace(x, 0, 0, 1))
RUN(of_cumprod, sherd_cumprod(x, 0))
RUN(of_cummax, sherd_cummax(x, 0, at))
RUN(of_logs, sherd_logcumsumexp(x, 0))
RUN(of_recurrence, sherd_recurrence(x, x, 0, true))
RUN(of_median, sherd_median(x, 0, false, at))
RUN(of_quantile, sherd_quantile(x, 0.3, 0, SHERD_QUANTILE_LINEAR, true))
RUN(of_cross, sherd_cross(sherd_narrow(x, 1, 0, 3), sherd_narrow(x, 1, 3, 3), 1))
RUN(of_unit, sherd_normalize(x, 2, 0, 0))
RUN(of_cosine, sherd_cosine_similarity(x, x, 0, 0))
RUN(of_glu, sherd_glu(x, 1))
RUN(of_windows, sherd_unfold(x, 0, 3, 2))
RUN(of_pixels, sherd_pixel_unshuffle(sherd_unsqueeze(x, 0), 2))

static sherd_tensor *(*const functions[])(sherd_tensor *, sherd_tensor **) = {
    of_diagonal, of_embedded, of_trace, of_cumprod, of_cummax, of_logs,    of_recurrence, of_median,
    of_quantile, of_cross,    of_unit,  of_cosine,  of_glu,    of_windows, of_pixels};

/* The result, and the gradient of its sum, in f64. */
static void compute(int i, sherd_tensor *x, double out[2][MOST_ELEMENTS])
{
    sherd_tensor *at = NULL;

    x = sherd_require_grad(sherd_detach(x), true);
    sherd_tensor *y = functions[i](x, &at);
    sherd_backward(sherd_sum(y));
    copy_values(out[0], sherd_cast(sherd_detach(y), SHERD_F64));
    copy_values(out[1], sherd_cast(sherd_grad(x), SHERD_F64));
}

/* What comes before an infinite element gets nothing from what comes after, and that gets 0. */
static void logarithms_beside_an_infinite_one_have_gradients(sherd_world *world)
{
    const double data[] = {1, INFINITY, 2};
    const int64_t shape[] = {3};
    sherd_tensor *x = sherd_require_grad(
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, 1, data)), true);

    sherd_backward(sherd_sum(sherd_logcumsumexp(x, 0)));
    const double *dx = sherd_tensor_read(sherd_grad(x));
    CHECK(dx && dx[0] == 1 && dx[2] == 0);
    CHECK_OK(sherd_world_check(world));
}

/* What 16 bits give is what f32 gives, but for a few roundings. */
static void sixteen_bits_are_near_to_f32(sherd_world *world)
{
    static double few[2][MOST_ELEMENTS], many[2][MOST_ELEMENTS];
    const int64_t shape[] = {6, 6};
    sherd_generator generator = sherd_generator_named("halves");
    sherd_tensor *x = sherd_random(world, SHERD_F32, shape, 2, sherd_uniform(0.5, 1.5), &generator);

    for (int i = 0; i < LEN(functions); i++)
        for (sherd_dtype d = SHERD_F16; d != SHERD_F32;
             d = d == SHERD_F16 ? SHERD_BF16 : SHERD_F32) {
            sherd_tensor *half = sherd_cast(x, d);
            double most = 0, worst = 0;
            memset(few, 0, sizeof few);
            memset(many, 0, sizeof many);
            compute(i, half, few);
            compute(i, sherd_cast(half, SHERD_F32), many);
            for (int j = 0; j < 2; j++)
                for (int k = 0; k < MOST_ELEMENTS; k++) {
                    most = fmax(most, fabs(many[j][k]));
                    worst = fmax(worst, fabs(many[j][k] - few[j][k]));
                }
            if (!CHECK(most > 0 && worst <= (d == SHERD_F16 ? 0.004 : 0.03) * most))
                fprintf(stderr, "  function %d in %s: %g of %g\n", i, sherd_dtype_name(d), worst,
                        most);
        }
    CHECK_OK(sherd_world_check(world));
}

/* The two lie farther apart than f16 reaches. */
static void quantiles_of_f16_stay_in_range(sherd_world *world)
{
    const int64_t shape[] = {2};
    const double data[] = {60000, -60000};
    sherd_tensor *x = sherd_cast(sherd_from_data(world, SHERD_F64, shape, 1, data), SHERD_F16);

    CHECK_EQ(sherd_item(sherd_quantile(x, 0.5, 0, SHERD_QUANTILE_LINEAR, false)), 0);
    CHECK_EQ(sherd_item(sherd_quantile(x, 0.25, 0, SHERD_QUANTILE_LINEAR, false)), -30000);
    CHECK_OK(sherd_world_check(world));
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The n-th allocation of rank 0 fails, for every n, until the call and its gradient go through. */
static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    sherd_generator generator = sherd_generator_named("memory");
    const sherd_layout *rows = over_ranks(world, 6, "rows");
    sherd_tensor *whole = sherd_random_on(rows, SHERD_F64, sherd_uniform(0.5, 1.5), &generator);

    for (int i = 0; i < LEN(functions); i++) {
        sherd_status status = SHERD_ENOMEM;
        int n = 1;
        for (; status && n < 1000; n++) {
            sherd_scope_begin(world);
            sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
            sherd_tensor *at = NULL, *x = sherd_require_grad(sherd_detach(whole), true);
            sherd_backward(sherd_sum(functions[i](x, &at)));
            sherd_world_fail_allocation(world, 0);
            sherd_scope_end(world);
            status = sherd_world_check(world);
            CHECK(!status || status == SHERD_ENOMEM);
        }
        if (!CHECK_OK(status) || !CHECK(n > 3))
            fprintf(stderr, "  function %d\n", i);
    }
}

/* Addends that nearly cancel: numbers of one element have the angle 0 all the same. */
static void the_angle_of_a_sum_is_that_of_what_it_is(sherd_world *world)
{
    const int64_t shape[2] = {1, 3};
    bool first = sherd_world_rank(world) == 0, second = sherd_world_rank(world) == 1;
    const float big[3] = {1.0f / 3, -0.7f, 0.9f}, less[3] = {-0.333f, 0.6999f, -0.89f},
                none[3] = {0};
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    const sherd_mesh *mesh = NULL;
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    sherd_tensor *mine = sherd_from_data(world, SHERD_F32, shape, 2,
                                         first    ? big
                                         : second ? less
                                                  : none);
    sherd_tensor *sum =
        sherd_from_local(mine, mesh, &(sherd_placement){SHERD_PARTIAL, 0, SHERD_SUM}, NULL);
    sherd_tensor *y =
        sherd_cosine_similarity(sherd_constant(world, SHERD_F32, shape, 2, 0.7), sum, 0, 1e-8);
    const float *data = sherd_tensor_read(sherd_full(y));
    for (int i = 0; data && i < 3; i++)
        CHECK_NEAR(data[i], i == 1 ? -1 : 1, 3e-7);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(numbers_are_those_of_pytorch), {1}},
    {TEST(a_running_product_bends_at_zeros), {1}},
    {TEST(other_dtypes_run_too), {1}},
    {TEST(near_numbers_are_close), {1}},
    {TEST(diagonals_have_their_indices), {1}},
    {TEST(no_matrix_moves_for_its_diagonal), {1, 2, 3, 4, 8}},
    {TEST(logarithms_beside_an_infinite_one_have_gradients), {1}},
    {TEST(sixteen_bits_are_near_to_f32), {1}},
    {TEST(the_angle_of_a_sum_is_that_of_what_it_is), {2, 3}},
    {TEST(quantiles_of_f16_stay_in_range), {1}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
