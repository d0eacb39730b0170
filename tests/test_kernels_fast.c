/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every fast f32 kernel against the plain one: lengths 0 to 3 vectors and some more, pointers off
 * by one element, NaN and infinity where they have a meaning. The results lie between guard
 * elements that nobody may touch. Tolerance 0 means the same bits.
 */
#define CHECK_PURE
#include "check.h"
#include "kernel_versions.h"

enum { GUARD = 40, LONGEST = 16 * 3 + 5, ROOM = 10000 };

/* One operand: the same numbers for both versions, at any alignment. */
typedef struct arrays {
    float drawn[4][ROOM]; /* uniform in [-1, 1) */
    float in[4][ROOM];
    float plain[3][ROOM], fast[3][ROOM];
} arrays;

static arrays *a;

static void draw(void)
{
    for (uint64_t i = 0; i < 4; i++)
        sherd__ref_f32.uniform(ROOM, a->drawn[i], -1, 1, sherd__philox_key(3, i, 0), 0);
}

/* New inputs in [-range, range); both results are all guard. */
static void start(float range)
{
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < ROOM; j++)
            a->in[i][j] = a->drawn[i][j] * range;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < ROOM; j++)
            a->plain[i][j] = a->fast[i][j] = 12345;
}

static bool same_bits(float x, float y)
{
    return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y));
}

/* Compare all of result i, the guards with it. The tolerance is relative to max(1, |plain|). */
static void compare(const char *version, int i, float tolerance)
{
    for (int j = 0; j < ROOM; j++) {
        float x = a->plain[i][j], y = a->fast[i][j];
        float room = tolerance * (fabsf(x) > 1 ? fabsf(x) : 1);
        if (same_bits(x, y) || (tolerance > 0 && fabsf(x - y) <= room))
            continue;
        fprintf(stderr, "%s: element %d of result %d: %.9g is %.9g\n", version, j, i, (double)x,
                (double)y);
        CHECK(false);
        return;
    }
}

static const int64_t more_lengths[] = {64, 127, 128, 200, 513, 1000, 4099};

/* The i-th length to try, -1 at the end. */
static int64_t length(int i)
{
    if (i <= LONGEST)
        return i;
    return i - LONGEST - 1 < LEN(more_lengths) ? more_lengths[i - LONGEST - 1] : -1;
}

/* Run the body below for every version. */
#define EACH_VERSION(k)             \
    sherd__kernels list[FAST_SETS]; \
    int count = versions(list);     \
    for (const sherd__kernels *k = list; k < list + count; k++)

static void unary_is_the_same(void)
{
    static const float odd[] = {INFINITY, NAN, -200, 0.0f, -0.0f, 1e-30f, 30, -30, 1e-42f};
    static const sherd__unary_kind kinds[] = {
        SHERD__SCALE,   SHERD__RELU, SHERD__GELU, SHERD__SILU,     SHERD__EXP,
        SHERD__SIGMOID, SHERD__TANH, SHERD__NEG,  SHERD__GELU_ERF, SHERD__SOFTPLUS};
    static const float tolerance[] = {0, 0, 1e-6f, 1e-6f, 5e-7f, 2e-7f, 5e-7f, 0, 1e-6f, 1e-6f};
    const double factor[] = {0.3, 5}; /* or beta and threshold */

    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0; i++)
        for (int kind = 0; kind < LEN(kinds); kind++) {
            int64_t n = length(i), off = GUARD + i % 5;
            start(6);
            for (int j = 0; j < LEN(odd) && j < n; j++)
                a->in[0][1 + (7 * j) % n] = odd[j];
            sherd__ref_f32.unary(kinds[kind], n, a->plain[0] + off, a->in[0] + 1, factor);
            k->unary(kinds[kind], n, a->fast[0] + off, a->in[0] + 1, factor);
            compare(k->name, 0, tolerance[kind]);
            if (kinds[kind] == SHERD__SCALE) /* made of operators */
                continue;
            sherd__ref_f32.unary_grad(kinds[kind], n, a->plain[1] + off, a->in[0] + 1, a->in[1] + 2,
                                      factor);
            k->unary_grad(kinds[kind], n, a->fast[1] + off, a->in[0] + 1, a->in[1] + 2, factor);
            compare(k->name, 1, 2 * tolerance[kind]);
        }
}

/* GELU, SiLU and their slopes over a wide range. */
static void curves_are_accurate(void)
{
    static const sherd__unary_kind kinds[] = {SHERD__GELU, SHERD__SILU, SHERD__GELU_ERF};
    const int64_t n = 9600;

    EACH_VERSION(k)
    {
        start(1);
        for (int64_t i = 0; i < n; i++) {
            a->in[0][i] = (float)((double)i / (double)n * 24 - 12);
            a->in[1][i] = 1;
        }
        for (int i = 0; i < LEN(kinds); i++) {
            sherd__ref_f32.unary(kinds[i], n, a->plain[0], a->in[0], NULL);
            k->unary(kinds[i], n, a->fast[0], a->in[0], NULL);
            compare(k->name, 0, 5e-7f);
            sherd__ref_f32.unary_grad(kinds[i], n, a->plain[1], a->in[0], a->in[1], NULL);
            k->unary_grad(kinds[i], n, a->fast[1], a->in[0], a->in[1], NULL);
            compare(k->name, 1, 5e-7f);
        }
    }
}

/* Of both forms of GELU far out, where powers leave the range, and of their slopes: as the plain one
 * in 1e-23, and NaN stays NaN. */
static void gelu_is_right_far_out(void)
{
    static const sherd__unary_kind kinds[] = {SHERD__GELU, SHERD__GELU_ERF};
    static const float far[] = {-INFINITY, -3e38f, -1e13f, -1e10f, -1000, -61,      -20,
                                -3,        -0.0f,  0,      1e-30f, 7,     20,       61,
                                1e3,       1e6,    1e10f,  1e14f,  3e38f, INFINITY, NAN};
    const int64_t n = LEN(far);

    EACH_VERSION(k)
    for (int kind = 0; kind < LEN(kinds); kind++) {
        start(1);
        memcpy(a->in[0], far, sizeof far);
        sherd__ref_f32.unary(kinds[kind], n, a->plain[0], a->in[0], NULL);
        k->unary(kinds[kind], n, a->fast[0], a->in[0], NULL);
        for (int64_t i = 0; i < n; i++)
            a->in[1][i] = 1;
        sherd__ref_f32.unary_grad(kinds[kind], n, a->plain[1], a->in[0], a->in[1], NULL);
        k->unary_grad(kinds[kind], n, a->fast[1], a->in[0], a->in[1], NULL);
        for (int64_t i = 0; i < 2 * n; i++) {
            float x = a->plain[i / n][i % n], y = a->fast[i / n][i % n];
            CHECK(isnan(x) ? isnan(y) : x == y || fabsf(x - y) <= 1e-23f + 1e-6f * fabsf(x));
        }
    }
}

/* The lower tail of GELU by erf, and softplus where it is as small, to a few ulp of what they
 * are. */
static void tails_keep_their_digits(void)
{
    const double parameter[] = {1, 20};
    const int64_t n = 1200;

    EACH_VERSION(k)
    {
        start(1);
        for (int64_t i = 0; i < n; i++)
            a->in[0][i] = -(float)i / 100;
        k->unary(SHERD__GELU_ERF, n, a->fast[0], a->in[0], NULL);
        k->unary(SHERD__SOFTPLUS, n, a->fast[1], a->in[0], parameter);
        for (int64_t i = 1; i < n; i++) {
            double x = (double)a->in[0][i], gelu = x / 2 * erfc(-x / sqrt(2)), soft = log1p(exp(x));
            CHECK_NEAR((double)a->fast[0][i] / gelu, 1, 1e-6);
            CHECK_NEAR((double)a->fast[1][i] / soft, 1, 1e-6);
        }
    }
}

/* In place and with every pair of inner strides that has its own loop. */
static void binary_is_the_same(void)
{
    static const int64_t strides[][2] = {{1, 1}, {1, 0}, {0, 1}, {0, 0}, {2, 1}, {1, 3}};

    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0; i++)
        for (int kind = 0; kind <= SHERD__MINIMUM; kind++)
            for (int s = 0; s < LEN(strides); s++) {
                int64_t n = length(i), off = GUARD + i % 3;
                start(3);
                sherd__ref_f32.binary((sherd__binary_kind)kind, 1, &n, a->plain[0] + off,
                                      a->in[0] + 1, &strides[s][0], a->in[1] + 2, &strides[s][1]);
                k->binary((sherd__binary_kind)kind, 1, &n, a->fast[0] + off, a->in[0] + 1,
                          &strides[s][0], a->in[1] + 2, &strides[s][1]);
                compare(k->name, 0, 0);
            }
}

static void binary_broadcasts_like_the_plain_one(void)
{
    static const struct {
        int ndim;
        int64_t size[4], a[4], b[4];
    } cases[] = {
        {0, {0}, {0}, {0}},
        {2, {5, 33}, {33, 1}, {0, 1}},             /* a bias */
        {2, {5, 33}, {33, 1}, {1, 0}},             /* one number a row */
        {3, {4, 3, 17}, {51, 17, 1}, {17, 0, 1}},  /* a middle dim */
        {3, {4, 3, 17}, {51, 17, 1}, {51, 17, 1}}, /* collapses to one row */
        {4, {2, 1, 3, 20}, {60, 9, 20, 1}, {0, 0, 0, 0}},
        {4, {2, 3, 4, 5}, {60, 20, 5, 1}, {1, 2, 6, 24}}, /* transposed */
        {3, {4, 0, 17}, {0, 17, 1}, {0, 17, 1}},
        {3, {4, 5, 0}, {0, 0, 1}, {0, 0, 1}},
        {1, {1}, {7}, {9}},
    };

    EACH_VERSION(k)
    for (int c = 0; c < LEN(cases); c++)
        for (int kind = 0; kind <= SHERD__MINIMUM; kind++) {
            start(3);
            sherd__ref_f32.binary((sherd__binary_kind)kind, cases[c].ndim, cases[c].size,
                                  a->plain[0] + GUARD, a->in[0], cases[c].a, a->in[1], cases[c].b);
            k->binary((sherd__binary_kind)kind, cases[c].ndim, cases[c].size, a->fast[0] + GUARD,
                      a->in[0], cases[c].a, a->in[1], cases[c].b);
            compare(k->name, 0, 0);
        }
}

static void results_may_lie_on_operands(void)
{
    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0; i++) {
        const int64_t n = length(i), one = 1;
        const void *sources[2] = {a->fast[1] + 1, a->in[1]};
        start(3);
        memcpy(a->plain[0] + 1, a->in[0], sizeof(float) * (size_t)n);
        memcpy(a->fast[0] + 1, a->in[0], sizeof(float) * (size_t)n);
        memcpy(a->plain[1] + 1, a->in[0], sizeof(float) * (size_t)n);
        memcpy(a->fast[1] + 1, a->in[0], sizeof(float) * (size_t)n);
        sherd__ref_f32.binary(SHERD__SUB, 1, &n, a->plain[0] + 1, a->in[1], &one, a->plain[0] + 1,
                              &one);
        k->binary(SHERD__SUB, 1, &n, a->fast[0] + 1, a->in[1], &one, a->fast[0] + 1, &one);
        k->reduce(SHERD_SUM, a->fast[1] + 1, sources, 2, n, 1);
        sources[0] = a->plain[1] + 1;
        sherd__ref_f32.reduce(SHERD_SUM, a->plain[1] + 1, sources, 2, n, 1);
        compare(k->name, 0, 0);
        compare(k->name, 1, 0);
    }
}

static void reduce_has_the_same_bits(void)
{
    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0; i++)
        for (int op = SHERD_SUM; op <= SHERD_PRODUCT; op++)
            for (int sources = 1; sources <= 4; sources++) {
                int64_t n = length(i);
                const void *src[4] = {a->in[0] + 1, a->in[1], a->in[2] + 3, a->in[3]};
                start(2);
                if (n > 3) {
                    a->in[0][2] = NAN;
                    a->in[1][0] = NAN;
                    a->in[0][4] = 0.0f;
                    a->in[1][3] = -0.0f;
                }
                sherd__ref_f32.reduce((sherd_reduce_op)op, a->plain[0] + GUARD, src, sources, n, 3);
                k->reduce((sherd_reduce_op)op, a->fast[0] + GUARD, src, sources, n, 3);
                compare(k->name, 0, 0);
            }
}

static void sums_are_the_same(void)
{
    static const int64_t outer[] = {1, 3, 0}, mid[] = {0, 1, 7, 8, 9, 50};

    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0 && length(i) < 200; i++)
        for (int m = 0; m < LEN(mid); m++)
            for (int o = 0; o < LEN(outer); o++) {
                int64_t inner = length(i);
                start(2);
                sherd__ref_f32.sum(a->plain[0] + GUARD, a->in[0] + 1, outer[o], mid[m], inner,
                                   false);
                k->sum(a->fast[0] + GUARD, a->in[0] + 1, outer[o], mid[m], inner, false);
                sherd__ref_f32.sum(a->plain[1] + GUARD, a->in[0] + 1, outer[o], mid[m], inner,
                                   true);
                k->sum(a->fast[1] + GUARD, a->in[0] + 1, outer[o], mid[m], inner, true);
                compare(k->name, 0, inner == 1 ? 1e-5f : 0);
                compare(k->name, 1, inner == 1 ? 1e-5f : 0);
            }
}

static void whole_sums_and_fills_are_the_same(void)
{
    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0; i++) {
        int64_t n = length(i);
        start(1);
        sherd__ref_f32.fill(a->plain[0] + GUARD, n, 0.1);
        k->fill(a->fast[0] + GUARD, n, 0.1);
        compare(k->name, 0, 0);
        sherd__ref_f32.sum(a->plain[1] + GUARD, a->in[0] + 1, 1, n, 1, false);
        k->sum(a->fast[1] + GUARD, a->in[0] + 1, 1, n, 1, false);
        compare(k->name, 1, 1e-5f);
        double squares = sherd__ref_f32.sum_squares(a->in[0] + 1, n);
        CHECK_NEAR(k->sum_squares(a->in[0] + 1, n), squares, 1e-13 * (squares + 1));
    }
}

static void layer_norm_is_the_same(void)
{
    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0 && length(i) <= 513; i++)
        for (int given = 0; given < 4; given++) {
            int64_t cols = length(i), rows = 1 + i % 4;
            const float *w = given & 1 ? a->in[1] : NULL, *b = given & 2 ? a->in[2] : NULL;
            start(2);
            sherd__ref_f32.layer_norm(rows, cols, a->plain[0] + GUARD, a->plain[1] + GUARD,
                                      a->plain[2] + GUARD, a->in[0] + 1, w, b, 1e-5);
            k->layer_norm(rows, cols, a->fast[0] + GUARD, a->fast[1] + GUARD, a->fast[2] + GUARD,
                          a->in[0] + 1, w, b, 1e-5);
            /* One column has no variance: rounding of the mean would be blown up by 1 / sqrt(eps).
             */
            compare(k->name, 0, 2e-6f);
            compare(k->name, 1, 1e-6f);
            compare(k->name, 2, 2e-6f);
        }
}

static void layer_norm_grad_is_the_same(void)
{
    EACH_VERSION(k)
    for (int i = 2; length(i) >= 0 && length(i) <= 513; i++)
        for (int given = 0; given < 4; given++) {
            int64_t cols = length(i), rows = 1 + i % 4;
            const float *w = given & 1 ? a->in[1] : NULL;
            bool both = given & 2;
            float mean[4], rstd[4], scratch[4 * 513];
            start(2);
            sherd__ref_f32.layer_norm(rows, cols, scratch, mean, rstd, a->in[0] + 1, w, NULL, 1e-5);
            sherd__ref_f32.layer_norm_grad(
                rows, cols, a->plain[0] + GUARD, both ? a->plain[1] + GUARD : NULL,
                both ? a->plain[2] + GUARD : NULL, a->in[3], a->in[0] + 1, w, mean, rstd, false);
            k->layer_norm_grad(rows, cols, a->fast[0] + GUARD, both ? a->fast[1] + GUARD : NULL,
                               both ? a->fast[2] + GUARD : NULL, a->in[3], a->in[0] + 1, w, mean,
                               rstd, false);
            compare(k->name, 0, i < 8 ? 1e-4f : 1e-5f); /* few columns: rstd can be large */
            compare(k->name, 1, 1e-5f);
            compare(k->name, 2, 1e-6f);
        }
}

static void rms_norm_is_the_same(void)
{
    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0 && length(i) <= 513; i++)
        for (int given = 0; given < 4; given++) {
            int64_t cols = length(i), rows = 1 + i % 4;
            const float *w = given & 1 ? a->in[1] : NULL;
            float *plain = given & 2 ? a->plain[2] + GUARD : NULL, rstd[4];
            float *fast = given & 2 ? a->fast[2] + GUARD : NULL;
            start(2);
            sherd__ref_f32.rms_norm(rows, cols, a->plain[0] + GUARD, rstd, a->in[0] + 1, w, 1e-5);
            memcpy(a->plain[1] + GUARD, rstd, (size_t)rows * sizeof *rstd);
            k->rms_norm(rows, cols, a->fast[0] + GUARD, a->fast[1] + GUARD, a->in[0] + 1, w, 1e-5);
            compare(k->name, 0, 2e-6f);
            compare(k->name, 1, 2e-6f);
            sherd__ref_f32.rms_norm_grad(rows, cols, a->plain[0] + GUARD, plain, a->in[3],
                                         a->in[0] + 1, w, rstd, false);
            k->rms_norm_grad(rows, cols, a->fast[0] + GUARD, fast, a->in[3], a->in[0] + 1, w, rstd,
                             false);
            compare(k->name, 0, i < 8 ? 1e-4f : 1e-5f); /* few columns: rstd can be large */
            compare(k->name, 2, 1e-5f);
        }
}

/* Gradients of 5 rows, the first `first` of them by a call of their own. Result i: dx, then
 * dweight, dbias and that of rms. */
static void grad_in_parts(const sherd__kernels *k, float result[][ROOM], int64_t cols,
                          int64_t first, const float *mean, const float *rstd)
{
    enum { ROWS = 5 };
    float *dw = result[1], *db = dw + cols, *dr = db + cols;

    for (int64_t at = 0, n = first; n > 0; at += n, n = ROWS - at) {
        const float *dy = a->in[3] + at * cols, *x = a->in[0] + at * cols;
        k->layer_norm_grad(n, cols, result[0] + at * cols, dw, db, dy, x, a->in[1], mean + at,
                           rstd + at, at > 0);
        k->rms_norm_grad(n, cols, result[2] + at * cols, dr, dy, x, a->in[1], rstd + at, at > 0);
    }
}

static void norm_grads_of_parts_add_up_to_the_same_bits(void)
{
    static const float mean[] = {0.1f, -0.2f, 0, 0.5f, 3}, rstd[] = {1, 2, 0.5f, 1.5f, 0.1f};
    sherd__kernels version[1 + FAST_SETS] = {sherd__ref_f32};

    for (int v = versions(version + 1); v >= 0; v--)
        for (int i = 0; length(i) >= 0 && length(i) <= 513; i++) {
            start(2);
            grad_in_parts(&version[v], a->plain, length(i), 5, mean, rstd);
            grad_in_parts(&version[v], a->fast, length(i), 1 + i % 4, mean, rstd);
            for (int r = 0; r < 3; r++)
                compare(version[v].name, r, 0);
        }
}

static void embedding_grad_has_the_same_bits(void)
{
    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0 && length(i) <= 513; i++) {
        int64_t width = length(i);
        int32_t ids[40];
        start(1);
        for (int j = 0; j < 40; j++)
            ids[j] = (j * j + 3) % 13;
        sherd__ref_f32.embedding_grad(40, width, a->plain[0] + GUARD, a->in[0] + 1, ids, 2, 9,
                                      NULL);
        k->embedding_grad(40, width, a->fast[0] + GUARD, a->in[0] + 1, ids, 2, 9, NULL);
        compare(k->name, 0, 0);
    }
}

/* Also where the lower half of the counter wraps (element 2^34), and past it. */
static void random_numbers_have_the_same_bits(void)
{
    static const int64_t firsts[] = {0,
                                     1,
                                     2,
                                     3,
                                     5,
                                     62,
                                     4097,
                                     ((int64_t)1 << 34) - 67,
                                     ((int64_t)1 << 34) - 256,
                                     ((int64_t)1 << 40) + 3};

    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0; i++)
        for (int f = 0; f < LEN(firsts); f++) {
            int64_t n = length(i);
            sherd__key key = sherd__philox_key(1, 2, (uint64_t)i);
            start(1);
            sherd__ref_f32.dropout(n, a->plain[0] + GUARD, a->in[0] + 1, 0.3, key, firsts[f]);
            k->dropout(n, a->fast[0] + GUARD, a->in[0] + 1, 0.3, key, firsts[f]);
            sherd__ref_f32.uniform(n, a->plain[1] + GUARD, -0.1, 0.7, key, firsts[f]);
            k->uniform(n, a->fast[1] + GUARD, -0.1, 0.7, key, firsts[f]);
            sherd__ref_f32.normal(n, a->plain[2] + GUARD, 1, 0.02, key, firsts[f]);
            k->normal(n, a->fast[2] + GUARD, 1, 0.02, key, firsts[f]);
            for (int j = 0; j < 3; j++)
                compare(k->name, j, 0);
        }
}

static void cross_entropy_is_the_same(void)
{
    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0 && length(i) <= 513; i++) {
        int64_t cols = length(i), rows = 5;
        int32_t targets[5] = {0, 3, 9, 17, 40};
        start(20);
        sherd__ref_f32.cross_entropy(rows, cols, a->plain[0] + GUARD, a->in[0] + 1, targets, 3);
        k->cross_entropy(rows, cols, a->fast[0] + GUARD, a->in[0] + 1, targets, 3);
        compare(k->name, 0, 1e-6f);
        double loss =
            sherd__ref_f32.cross_entropy_join(1, rows, a->plain[1] + GUARD, a->plain[0] + GUARD);
        double fast = k->cross_entropy_join(1, rows, a->fast[1] + GUARD, a->fast[0] + GUARD);
        if (cols)
            CHECK_NEAR(loss, fast, 1e-4);
        compare(k->name, 1, 1e-6f);
        sherd__ref_f32.cross_entropy_grad(rows, cols, a->plain[2] + GUARD, a->in[0] + 1, targets, 3,
                                          a->plain[1] + GUARD, 0.25);
        k->cross_entropy_grad(rows, cols, a->fast[2] + GUARD, a->in[0] + 1, targets, 3,
                              a->plain[1] + GUARD, 0.25);
        compare(k->name, 2, 2e-6f);
    }
}

/* A NaN or an infinite logit must reach the sum, not vanish in the maximum. */
static void cross_entropy_shows_a_nan(void)
{
    EACH_VERSION(k)
    for (int at = 0; at < 40; at++) {
        int32_t target = 1;
        float stats[3];
        start(1);
        a->in[0][at] = NAN;
        k->cross_entropy(1, 40, stats, a->in[0], &target, 0);
        CHECK(isnan(stats[1]));
        sherd__ref_f32.cross_entropy(1, 40, stats, a->in[0], &target, 0);
        CHECK(isnan(stats[1]));
    }
}

static void adamw_is_the_same(void)
{
    const sherd__adamw_step step = {1e-2, 0.9, 0.95, 1e-8, 0.1, 1 - 0.9 * 0.9, 1 - 0.95 * 0.95,
                                    0.5,  0.3};

    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0; i++) {
        int64_t n = length(i);
        start(1);
        for (int64_t j = 0; j < n; j++) { /* p, m, v >= 0 */
            a->plain[0][GUARD + j] = a->fast[0][GUARD + j] = a->in[0][j];
            a->plain[1][GUARD + j] = a->fast[1][GUARD + j] = a->in[1][j];
            a->plain[2][GUARD + j] = a->fast[2][GUARD + j] = fabsf(a->in[2][j]) + 1e-3f;
        }
        sherd__ref_f32.adamw(n, a->plain[0] + GUARD, a->plain[1] + GUARD, a->plain[2] + GUARD,
                             a->in[3] + 1, &step);
        k->adamw(n, a->fast[0] + GUARD, a->fast[1] + GUARD, a->fast[2] + GUARD, a->in[3] + 1,
                 &step);
        for (int j = 0; j < 3; j++)
            compare(k->name, j, 1e-6f);
    }
}

static void sgd_is_the_same(void)
{
    const sherd__sgd_step steps[] = {{1e-2, 0.1, 0.5, 0.9, 0.8, 0.9, false},
                                     {1e-2, 0.1, 0.5, 0.9, 0.8, 0.9, true},
                                     {1e-2, 0, 1, 0, 1, 0.9, true}};

    EACH_VERSION(k)
    for (int i = 0; length(i) >= 0; i++)
        for (int way = 0; way < 6; way++) {
            int64_t n = length(i);
            start(1);
            for (int64_t j = 0; j < n; j++)
                for (int t = 0; t < 2; t++)
                    a->plain[t][GUARD + j] = a->fast[t][GUARD + j] = a->in[t][j];
            sherd__ref_f32.sgd(n, a->plain[0] + GUARD, way < 3 ? a->plain[1] + GUARD : NULL,
                               a->in[3] + 1, &steps[way % 3]);
            k->sgd(n, a->fast[0] + GUARD, way < 3 ? a->fast[1] + GUARD : NULL, a->in[3] + 1,
                   &steps[way % 3]);
            for (int j = 0; j < 2; j++)
                compare(k->name, j, 1e-6f);
        }
}

static const check_test tests[] = {
    {TEST(unary_is_the_same)},
    {TEST(curves_are_accurate)},
    {TEST(gelu_is_right_far_out)},
    {TEST(tails_keep_their_digits)},
    {TEST(binary_is_the_same)},
    {TEST(binary_broadcasts_like_the_plain_one)},
    {TEST(results_may_lie_on_operands)},
    {TEST(reduce_has_the_same_bits)},
    {TEST(sums_are_the_same)},
    {TEST(whole_sums_and_fills_are_the_same)},
    {TEST(layer_norm_is_the_same)},
    {TEST(layer_norm_grad_is_the_same)},
    {TEST(rms_norm_is_the_same)},
    {TEST(norm_grads_of_parts_add_up_to_the_same_bits)},
    {TEST(embedding_grad_has_the_same_bits)},
    {TEST(random_numbers_have_the_same_bits)},
    {TEST(cross_entropy_is_the_same)},
    {TEST(cross_entropy_shows_a_nan)},
    {TEST(adamw_is_the_same)},
    {TEST(sgd_is_the_same)},
};

int main(int argc, char **argv)
{
    a = malloc(sizeof *a);
    if (!a)
        return 2;
    draw();
    int status = check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
    free(a);
    return status;
}
