/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of 8 and 4 bits with scales: each instruction set against the plain loops, in pieces that begin
 * and end in the middle of groups; and that no element is off by more than half its scale.
 */
#define CHECK_PURE
#include "check.h"

#include "fast_sets.h"
#include "kernels/cast.h"
#include "kernels/quantized.h"
#include "kernels/half.h"
#include "vector/bodies.h"
#include "vector/choose.h"
#include "vector/quantized_tiles.h"

enum { ROWS = 21, COLS = 150, MOST_X = 11, MOST_SCALES = 60 };

static uint64_t state = 1;

static double draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 4503599627370496.0 - 1;
}

/* The plain ones, and those of this machine. */
static int versions(const sherd__quantized_kernels *out[FAST_SETS + 1])
{
    fast_set sets[FAST_SETS];
    int n = 0;

    out[n++] = &sherd__quantized_plain;
    for (int i = 0, count = fast_sets(sets); i < count; i++) {
        const sherd__kernels named = {.name = sets[i].name};
        out[n++] = sherd__quantized_by(&named);
    }
    return n;
}

typedef struct matrix {
    int8_t value[ROWS * COLS];
    uint8_t pairs[ROWS * COLS / 2 + 1];
    float scale[ROWS * MOST_SCALES], x[MOST_X * COLS], y[MOST_X * ROWS + 1];
    float halves[MOST_X * COLS]; /* x as kernels of pairs want it */
} matrix;

static void fill(matrix *m)
{
    for (int i = 0; i < LEN(m->value); i++)
        m->value[i] = (int8_t)(draw() * 127.5);
    for (int i = 0; i < LEN(m->pairs); i++)
        m->pairs[i] = (uint8_t)(128 + draw() * 128);
    for (int i = 0; i < LEN(m->scale); i++)
        m->scale[i] = (float)(0.1 + draw() * draw());
    for (int i = 0; i < LEN(m->x); i++)
        m->x[i] = (float)draw();
}

/* x as a kernel of few rows takes it. */
static const float *laid(matrix *m, const sherd__quantized *q, int64_t n)
{
    for (int64_t i = 0; i < n * q->cols; i++) {
        int64_t j = i % q->cols;
        m->halves[i / q->cols * q->cols + j % 2 * (q->cols / 2) + j / 2] = m->x[i];
    }
    return q->pairs ? m->halves : m->x;
}

static const struct {
    int64_t rows, cols, group, first;
} shapes[] = {{ROWS, COLS, 0, 0},
              {ROWS, COLS, 32, 0},
              {ROWS, COLS, 32, 17},
              {5, 64, 64, 5},
              {1, 1, 0, 3},
              {8, 16, 0, 0},
              {9, 33, 3, 2},
              {3, 0, 0, 0},
              {2, 0, 5, 0},
              {16, 96, 16, 0},
              {7, 31, 1000, 990},
              /* of 4 bits: */
              {ROWS, COLS, 0, 0},
              {ROWS, COLS, 32, 0},
              {ROWS, COLS, 32, 18},
              {5, 64, 64, 6},
              {1, 2, 0, 4},
              {8, 32, 0, 0},
              {9, 34, 6, 2},
              {3, 0, 0, 0},
              {2, 0, 6, 0},
              {16, 96, 32, 0},
              {7, 30, 1000, 990}};

enum { OF_8 = 11 };

static sherd__quantized piece(const matrix *m, int s)
{
    int64_t group = shapes[s].group, first = shapes[s].first;
    sherd__quantized q = {.rows = shapes[s].rows,
                          .cols = shapes[s].cols,
                          .value = m->value,
                          .scale = m->scale,
                          .group = group,
                          .scales = 1,
                          .first = first,
                          .pairs = s >= OF_8 ? m->pairs : NULL};

    if (group)
        q.scales = (first + q.cols + group - 1) / group + 1;
    return q;
}

/* Number [i,j]. */
static int number(const sherd__quantized *q, int64_t i, int64_t j)
{
    if (!q->pairs)
        return q->value[i * q->cols + j];
    int pair = q->pairs[(i * q->cols + j) / 2];
    return (j % 2 ? pair / 16 : pair % 16) - 8;
}

/* The element that it stands for, by the definition. */
static double element(const sherd__quantized *q, int64_t i, int64_t j)
{
    int64_t g = q->group ? (q->first + j) / q->group : 0;

    return number(q, i, j) * (double)q->scale[i * q->scales + g];
}

static void few_rows_are_the_sums_of_their_products(void)
{
    static matrix m;
    const sherd__quantized_kernels *by[FAST_SETS + 1];
    int count = versions(by);

    fill(&m);
    for (int v = 0; v < count; v++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int64_t n = 0; n <= MOST_X; n++) {
                const sherd__quantized q = piece(&m, s);
                m.y[n * q.rows] = 77;
                by[v]->few(&q, n, m.y, laid(&m, &q, n));
                CHECK(m.y[n * q.rows] == 77);
                for (int64_t r = 0; r < n; r++)
                    for (int64_t i = 0; i < q.rows; i++) {
                        double sum = 0, size = 0;
                        for (int64_t j = 0; j < q.cols; j++) {
                            double term = m.x[r * q.cols + j] * element(&q, i, j);
                            sum += term;
                            size += fabs(term);
                        }
                        CHECK_NEAR(m.y[r * q.rows + i], sum, 1e-6 * size);
                    }
            }
}

/* Whatever others go with it. */
static void a_row_has_the_same_bits_in_any_company(void)
{
    static matrix m;
    const sherd__quantized_kernels *by[FAST_SETS + 1];
    int count = versions(by);

    fill(&m);
    for (int v = 0; v < count; v++)
        for (int s = 0; s < LEN(shapes); s++) {
            const sherd__quantized q = piece(&m, s);
            float alone[ROWS];
            const float *x = laid(&m, &q, MOST_X);
            by[v]->few(&q, MOST_X, m.y, x);
            for (int64_t r = 0; r < MOST_X; r++) {
                by[v]->few(&q, 1, alone, x + r * q.cols);
                CHECK_EQ(memcmp(alone, m.y + r * q.rows, sizeof(float) * (size_t)q.rows), 0);
            }
        }
}

/* Where the machine has tiles; values times the scales of groups are rounded to bf16. */
static void tiles_give_the_sums_of_their_products(void)
{
    enum { MOST_N = SHERD__QUANTIZED_TILE_ROWS, LONG = 1100 };
    static const struct {
        int64_t rows, cols, group, first;
        bool pairs;
    } these[] = {{40, LONG, 0, 0, 0},  {32, 512, 0, 0, 0},  {5, 7, 0, 3, 0},
                 {33, 1000, 16, 0, 0}, {64, 96, 48, 16, 0}, {1, 1, 0, 0, 0},
                 {40, LONG, 0, 0, 1},  {32, 512, 0, 0, 1},  {5, 6, 0, 4, 1},
                 {33, 1000, 32, 0, 1}, {64, 96, 96, 32, 1}, {1, 2, 0, 0, 1}};
    static const int64_t counts[] = {1, 5, 16, 17, 32, 33, MOST_N};
    static int8_t value[64 * LONG];
    static uint8_t pairs[64 * LONG / 2];
    static float scale[64 * (LONG / 16 + 2)], y[MOST_N * 64 + 1];
    static uint16_t x[MOST_N * LONG];
    static max_align_t room[(2 * (MOST_N * 1120 + 512 * 32) + 4 * MOST_N * 32) / 16 + 8];
    sherd__kernel_set set;

    sherd__kernels_choose(&set);
    for (int i = 0; i < LEN(value); i++)
        value[i] = (int8_t)(draw() * 127.5);
    for (int i = 0; i < LEN(pairs); i++)
        pairs[i] = (uint8_t)(128 + draw() * 128);
    for (int i = 0; i < LEN(scale); i++)
        scale[i] = (float)(0.1 + draw() * draw());
    for (int i = 0; i < LEN(x); i++)
        x[i] = sherd__to_bf16((float)draw());
    for (int s = 0; s < LEN(these); s++)
        for (int k = 0; k < LEN(counts); k++) {
            int64_t n = counts[k], group = these[s].group, first = these[s].first;
            const sherd__quantized q = {
                these[s].rows, these[s].cols,
                value,         scale,
                group,         group ? (first + these[s].cols + group - 1) / group : 1,
                first,         these[s].pairs ? pairs : NULL};
            if (!sherd__quantized_fits(&set, &q))
                continue;
            void *at = (void *)(((uintptr_t)room + 63) / 64 * 64);
            CHECK(sherd__quantized_workspace(&q, n) <= (int64_t)sizeof room - 64);
            y[n * q.rows] = 77;
            sherd__quantized_rows(&q, n, y, x, at);
            CHECK(y[n * q.rows] == 77);
            for (int64_t r = 0; r < n; r++)
                for (int64_t i = 0; i < q.rows; i++) {
                    double sum = 0, size = 0;
                    for (int64_t j = 0; j < q.cols; j++) {
                        double w = group ? element(&q, i, j) : number(&q, i, j);
                        double term = (double)sherd__from_bf16(x[r * q.cols + j]) * w;
                        sum += term;
                        size += fabs(term);
                    }
                    CHECK_NEAR(y[r * q.rows + i], sum, (group ? 4e-3 : 1e-6) * size);
                }
        }
    sherd__quantized q = {2, 8, value, scale, 8, 1, 0, NULL};
    CHECK(!sherd__quantized_fits(&set, &q)); /* 16 neighbours have two scales */
}

/* Rows of a matrix as the right operand of a product of bf16, in one pass over the terms or two. */
static void panels_give_what_some_rows_give(void)
{
    enum { N = 40, LONG = 2100, MOST = 70 };
    static const struct {
        int64_t rows, cols, group, lo;
        bool pairs;
    } these[] = {{70, 96, 0, 0, 0}, {70, 96, 16, 3, 0}, {5, LONG, 48, 2, 0}, {34, 40, 0, 33, 0},
                 {70, 96, 0, 0, 1}, {70, 96, 32, 3, 1}, {5, LONG, 96, 2, 1}, {34, 40, 0, 33, 1}};
    static int8_t value[MOST * LONG];
    static float scale[MOST * LONG / 16], y[N * MOST], c[N * MOST + 1];
    static uint16_t x[N * LONG];
    sherd__kernel_set set;

    sherd__kernels_choose(&set);
    for (int i = 0; i < LEN(value); i++)
        value[i] = (int8_t)(draw() * 127.5);
    for (int i = 0; i < LEN(scale); i++)
        scale[i] = (float)(0.1 + draw() * draw());
    for (int i = 0; i < LEN(x); i++)
        x[i] = sherd__to_bf16((float)draw());
    for (int s = 0; s < LEN(these); s++) {
        int64_t group = these[s].group, lo = these[s].lo, some = these[s].rows - lo;
        const sherd__quantized q = {.rows = these[s].rows,
                                    .cols = these[s].cols,
                                    .value = these[s].pairs ? NULL : value,
                                    .scale = scale,
                                    .group = group,
                                    .scales = group ? (these[s].cols + group - 1) / group : 1,
                                    .pairs = these[s].pairs ? (const uint8_t *)value : NULL};
        if (!sherd__quantized_fits(&set, &q))
            continue;
        int64_t bytes = sherd__quantized_panel_workspace(&q, N, some);
        if (sherd__quantized_workspace(&q, N) > bytes)
            bytes = sherd__quantized_workspace(&q, N);
        char *room = malloc((size_t)bytes + 64);
        if (!CHECK(room != NULL))
            return;
        void *at = (void *)(((uintptr_t)room + 63) / 64 * 64);
        sherd__quantized_rows(&q, N, y, x, at);
        c[N * some] = 77;
        sherd__quantized_panel(&q, lo, some, N, c, x, at);
        CHECK(c[N * some] == 77);
        for (int64_t i = 0; i < N * some; i++)
            CHECK_NEAR(c[i], y[i / some * q.rows + lo + i % some], 1e-5 * (double)(128 * q.cols));
        free(room);
    }
}

/* Few rows of bf16 by 4 bits, with groups that it takes; whatever others a row has. */
static void pairs_give_the_sums_of_their_products(void)
{
    enum { N = SHERD__PAIRS_ROWS, MOST = 21, LONG = 352 };
    static const struct {
        int64_t rows, cols, group, first;
        bool fits;
    } these[] = {{21, 352, 0, 0, 1},  {8, 64, 0, 6, 1},    {5, 2, 0, 0, 1},   {21, 176, 32, 32, 1},
                 {9, 150, 32, 0, 1},  {4, 34, 32, 64, 1},  {3, 66, 64, 0, 1}, {17, 352, 64, 64, 1},
                 {8, 300, 128, 0, 1}, {8, 96, 128, 64, 1}, {8, 96, 96, 0, 0}, {8, 96, 64, 32, 0}};
    static uint8_t pairs[MOST * LONG / 2];
    static float scale[MOST * 16], y[N * MOST + 1], alone[MOST];
    static uint16_t x[N * LONG], room[N * (LONG + 64)];
    sherd__kernel_set set;

    sherd__kernels_choose(&set);
    for (int i = 0; i < LEN(pairs); i++)
        pairs[i] = (uint8_t)(128 + draw() * 128);
    for (int i = 0; i < LEN(scale); i++)
        scale[i] = (float)(0.1 + draw() * draw());
    for (int i = 0; i < LEN(x); i++)
        x[i] = sherd__to_bf16((float)draw());
    for (int s = 0; s < LEN(these); s++)
        for (int64_t n = 1; n <= N; n++) {
            int64_t group = these[s].group, first = these[s].first, cols = these[s].cols;
            int64_t scales = group ? (first + cols + group - 1) / group : 1;
            const sherd__quantized q = {these[s].rows, cols,   NULL,  scale,
                                        group,         scales, first, pairs};
            if (!sherd__pairs_fit(&set, &q)) {
                CHECK(!these[s].fits || !sherd__quantized_fits(&set, &q));
                continue;
            }
            CHECK(these[s].fits && sherd__pairs_workspace(&q, n) <= (int64_t)sizeof room);
            y[n * q.rows] = 77;
            sherd__pairs_rows(&q, n, y, x, room);
            CHECK(y[n * q.rows] == 77);
            for (int64_t i = 0; i < n * q.rows; i++) {
                double sum = 0, size = 0;
                for (int64_t j = 0; j < cols; j++) {
                    double a = (double)sherd__from_bf16(x[i / q.rows * cols + j]);
                    sum += a * element(&q, i % q.rows, j);
                    size += fabs(a * element(&q, i % q.rows, j));
                }
                CHECK_NEAR(y[i], sum, 1e-6 * size);
            }
            sherd__pairs_rows(&q, 1, alone, x + (n - 1) * cols, room);
            CHECK_EQ(memcmp(alone, y + (n - 1) * q.rows, sizeof(float) * (size_t)q.rows), 0);
        }
}

static void expanded_rows_are_values_times_scales(void)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};
    static matrix m;
    static double to[ROWS * COLS];
    const sherd__quantized_kernels *by[FAST_SETS + 1];
    int count = versions(by);

    fill(&m);
    for (int v = 0; v < count; v++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int d = 0; d < LEN(dtypes); d++)
                for (int scaled = 0; scaled < 2; scaled++) {
                    const sherd__quantized q = piece(&m, s);
                    int64_t lo = q.rows / 2, some = q.rows - lo;
                    by[v]->expand(&q, lo, some, scaled, dtypes[d], to);
                    for (int64_t i = 0; i < some * q.cols; i++) {
                        int64_t r = lo + i / q.cols, j = i % q.cols;
                        double want = scaled ? element(&q, r, j) : number(&q, r, j), got, w;
                        char stored[8];
                        float f = (float)want;
                        sherd__cast(dtypes[d], dtypes[d] == SHERD_F64 ? SHERD_F64 : SHERD_F32, 1,
                                    stored, dtypes[d] == SHERD_F64 ? (void *)&want : (void *)&f);
                        sherd__cast(SHERD_F64, dtypes[d], 1, &w, stored);
                        sherd__cast(SHERD_F64, dtypes[d], 1, &got,
                                    (char *)to + (size_t)i * sherd_dtype_bytes(dtypes[d]));
                        CHECK(got == w);
                    }
                }
}

/* A scale that has few bits is rounded up; others to the nearest. */
static bool is_scale(float scale, double most, float by)
{
    if ((float)most / by >= 0x1p-126F)
        return scale == (float)most / by;
    return (double)scale * (double)by >= most && (double)scale * (double)by < most + 0x1p-149 * 127;
}

static void no_element_is_off_by_more_than_half_its_scale(void)
{
    const sherd__quantized_kernels *by[FAST_SETS + 1];
    int count = versions(by);
    float x[COLS], plain_scale, scale;
    int8_t plain[COLS], value[COLS];

    for (int64_t n = 0; n <= COLS; n += n < 40 ? 1 : 13)
        for (int power = -149; power < 120; power += 7) {
            for (int64_t j = 0; j < n; j++)
                x[j] = (float)ldexp(draw(), power);
            by[0]->quantize(n, plain, &plain_scale, x);
            double most = 0;
            for (int64_t j = 0; j < n; j++)
                most = fmax(most, fabs((double)x[j]));
            CHECK(is_scale(plain_scale, most, 127));
            for (int64_t j = 0; j < n; j++)
                CHECK(fabs((double)x[j] - plain[j] * (double)plain_scale) <=
                      0.500001 * (double)plain_scale);
            for (int v = 1; v < count; v++) {
                by[v]->quantize(n, value, &scale, x);
                CHECK(scale == plain_scale);
                CHECK_EQ(memcmp(value, plain, (size_t)n), 0);
            }
        }
}

static void nor_of_4_bits(void)
{
    const sherd__quantized_kernels *by[FAST_SETS + 1];
    int count = versions(by);
    float x[COLS], plain_scale, scale;
    uint8_t plain[COLS / 2], pairs[COLS / 2];

    for (int64_t n = 0; n <= COLS; n += n < 40 ? 2 : 14)
        for (int power = -149; power < 120; power += 7) {
            for (int64_t j = 0; j < n; j++)
                x[j] = (float)ldexp(draw(), power);
            by[0]->quantize_pairs(n, plain, &plain_scale, x);
            const sherd__quantized q = {1, n, NULL, &plain_scale, 0, 1, 0, plain};
            double most = 0;
            for (int64_t j = 0; j < n; j++)
                most = fmax(most, fabs((double)x[j]));
            CHECK(is_scale(plain_scale, most, 7.5F));
            for (int64_t j = 0; j < n; j++)
                CHECK(fabs((double)x[j] - element(&q, 0, j)) <= 0.500001 * (double)plain_scale);
            for (int v = 1; v < count; v++) {
                by[v]->quantize_pairs(n, pairs, &scale, x);
                CHECK(scale == plain_scale);
                CHECK_EQ(memcmp(pairs, plain, (size_t)n / 2), 0);
            }
        }
}

static void halves_go_to_even_and_no_number_is_hidden(void)
{
    static const float halves[] = {127, 0.5F, 1.5F, -0.5F, -2.5F, 126.5F, -127, 3};
    static const int8_t even[] = {127, 0, 2, 0, -2, 126, -127, 3};
    const sherd__quantized_kernels *by[FAST_SETS + 1];
    int count = versions(by);
    float scale, bad[] = {1, NAN, 3, 4}, far[] = {1, 2, -INFINITY}, zeroes[20] = {0, -0.0F};
    int8_t value[20];

    for (int v = 0; v < count; v++) {
        by[v]->quantize(LEN(halves), value, &scale, halves);
        CHECK(scale == 1);
        CHECK_EQ(memcmp(value, even, sizeof even), 0);
        by[v]->quantize(LEN(bad), value, &scale, bad);
        CHECK(isnan(scale) && value[0] == 0 && value[1] == 0);
        by[v]->quantize(LEN(far), value, &scale, far);
        CHECK(isnan(scale));
        value[19] = 1;
        by[v]->quantize(LEN(zeroes), value, &scale, zeroes);
        CHECK(scale == 0 && value[0] == 0 && value[19] == 0);
    }
}

/* 7.5 is 7, and the even column is the lower half. */
static void pairs_are_two_numbers_and_8(void)
{
    static const float x[] = {7.5F, -7.5F, 0.5F, 1.5F, -0.5F, -2.5F, 6, -8 + 0.5F};
    static const uint8_t want[] = {0x0F, 0xA8, 0x68, 0x0E};
    const sherd__quantized_kernels *by[FAST_SETS + 1];
    int count = versions(by);
    float scale, bad[] = {1, NAN}, zeroes[20] = {0, -0.0F};
    uint8_t pairs[10];

    for (int v = 0; v < count; v++) {
        by[v]->quantize_pairs(LEN(x), pairs, &scale, x);
        CHECK(scale == 1);
        CHECK_EQ(memcmp(pairs, want, sizeof want), 0);
        by[v]->quantize_pairs(LEN(bad), pairs, &scale, bad);
        CHECK(isnan(scale) && pairs[0] == 0x88);
        pairs[9] = 1;
        by[v]->quantize_pairs(LEN(zeroes), pairs, &scale, zeroes);
        CHECK(scale == 0 && pairs[0] == 0x88 && pairs[9] == 0x88);
    }
}

static const check_test tests[] = {
    {TEST(few_rows_are_the_sums_of_their_products)},
    {TEST(a_row_has_the_same_bits_in_any_company)},
    {TEST(tiles_give_the_sums_of_their_products)},
    {TEST(panels_give_what_some_rows_give)},
    {TEST(pairs_give_the_sums_of_their_products)},
    {TEST(expanded_rows_are_values_times_scales)},
    {TEST(no_element_is_off_by_more_than_half_its_scale)},
    {TEST(nor_of_4_bits)},
    {TEST(pairs_are_two_numbers_and_8)},
    {TEST(halves_go_to_even_and_no_number_is_hidden)},
};
CHECK_MAIN(tests)
