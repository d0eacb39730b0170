/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of requests: what a row draws depends on its logits, key and options only, wherever it is in
 * a batch and however that is distributed; as often as softmax says; from what top_k, top_p and
 * min_p leave, found here by sorting.
 */
#include <math.h>

#include "groups.h"
#include "sherd/ops_serving.h"
#include "tensors.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

enum { ROWS = 13, N = 37 };

/* A batch: rows of any logits, keys, and options. */
typedef struct batch {
    int64_t rows;
    float logits[ROWS * N], temperature[ROWS], top_p[ROWS], min_p[ROWS];
    int32_t top_k[ROWS];
    int64_t key[ROWS * 2];
} batch;

static batch make_batch(void)
{
    batch b = {.rows = ROWS};

    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < N; j++)
            b.logits[i * N + j] = j % 9 == i % 9 ? -INFINITY : 3 * sinf((float)(i * N + j) * 1.7F);
        b.temperature[i] = i % 4 == 3 ? 0 : 0.5F + 0.25F * (float)i;
        b.top_k[i] = i % 3 ? 3 * i : 0;
        b.top_p[i] = i % 5 ? 1 - 0.07F * (float)i : 1;
        b.min_p[i] = i % 6 == 1 ? 0.7F : 0;
        b.key[2 * i] = (INT64_C(1) << 40) * i + 7;
        b.key[2 * i + 1] = 100 - i;
    }
    return b;
}

static sherd_tensor *data(sherd_world *world, sherd_dtype dtype, const int64_t *shape, int ndim,
                          const void *from)
{
    return sherd_mark_equal(sherd_from_data(world, dtype, shape, ndim, from));
}

static sherd_sample_options options_of(sherd_world *world, const batch *b)
{
    const int64_t n = b->rows;

    return (sherd_sample_options){.temperature = data(world, SHERD_F32, &n, 1, b->temperature),
                                  .top_k = data(world, SHERD_I32, &n, 1, b->top_k),
                                  .top_p = data(world, SHERD_F32, &n, 1, b->top_p),
                                  .min_p = data(world, SHERD_F32, &n, 1, b->min_p)};
}

static sherd_tensor *keys_of(sherd_world *world, const batch *b)
{
    return data(world, SHERD_I64, SIZES(b->rows, 2), 2, b->key);
}

static sherd_tensor *logits_of(sherd_world *world, const batch *b)
{
    return data(world, SHERD_F32, SIZES(b->rows, N), 2, b->logits);
}

static const int32_t *draw(sherd_world *world, const batch *b)
{
    const sherd_sample_options how = options_of(world, b);

    return sherd_tensor_read(sherd_sample_rows(logits_of(world, b), keys_of(world, b), &how));
}

/* Row `from` of another batch. */
static void copy_row(batch *to, int row, const batch *b, int from)
{
    memcpy(to->logits + row * N, b->logits + from * N, sizeof(float) * N);
    memcpy(to->key + 2 * row, b->key + 2 * from, sizeof(int64_t) * 2);
    to->temperature[row] = b->temperature[from];
    to->top_k[row] = b->top_k[from];
    to->top_p[row] = b->top_p[from];
    to->min_p[row] = b->min_p[from];
}

static void a_row_does_not_see_its_batch(sherd_world *world)
{
    const batch all = make_batch();
    const int32_t *together = draw(world, &all);
    batch turned = all;

    for (int i = 0; i < ROWS; i++) {
        batch one = {.rows = 1};
        copy_row(&one, 0, &all, i);
        copy_row(&turned, i, &all, ROWS - 1 - i);
        CHECK_EQ(*draw(world, &one), together[i]);
    }
    const int32_t *back = draw(world, &turned);
    for (int i = 0; i < ROWS; i++)
        CHECK_EQ(back[i], together[ROWS - 1 - i]);
    CHECK_OK(sherd_world_check(world));
}

static void layouts_do_not_matter(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(1)"};
    const batch b = make_batch();
    const sherd_sample_options how = options_of(world, &b);
    sherd_tensor *logits = logits_of(world, &b), *key = keys_of(world, &b);
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int of = 0; of < 3; of++) {
        sherd_tensor *x = sherd_cast(logits, of == 0   ? SHERD_F32
                                             : of == 1 ? SHERD_F64
                                                       : SHERD_BF16);
        const int32_t *here = sherd_tensor_read(sherd_sample_rows(x, key, &how));
        for (int i = 0; i < (int)LEN(placements); i++) {
            const sherd_layout *l = layout_of(mesh, 2, x->shape, placements[i], NULL);
            sherd_tensor *y = sherd_sample_rows(sherd_distribute(x, l, -1), key, &how);
            CHECK_EQ(memcmp(sherd_tensor_read(sherd_full(y)), here, sizeof *here * ROWS), 0);
        }
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- what is drawn --------------------------------------------------------------------------- */

static int falling(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

/* The logit of the last one that row i of a batch keeps, by sorting. */
static double last_kept(const batch *b, int i)
{
    double x[N], sum = 0, part = 0, t = b->temperature[i];
    int n = N, kept;

    for (int j = 0; j < N; j++)
        x[j] = (double)b->logits[i * N + j];
    qsort(x, N, sizeof *x, falling);
    while (n > 1 && x[n - 1] == -INFINITY)
        n--;
    while (n > 1 && exp((x[n - 1] - x[0]) / t) < (double)b->min_p[i])
        n--;
    n = b->top_k[i] > 0 && b->top_k[i] < n ? b->top_k[i] : n;
    for (int j = 0; j < n; j++)
        sum += exp((x[j] - x[0]) / t);
    for (kept = 0; kept < n && part < (double)b->top_p[i] * sum * (1 - 1e-12); kept++)
        part += exp((x[kept] - x[0]) / t);
    return x[kept - 1];
}

/* Hot, so that the least of what is kept comes up in some hundred draws; what is less does not. */
static void what_is_improbable_is_left_out(sherd_world *world)
{
    batch all = make_batch();

    for (int i = 0; i < ROWS; i++) {
        enum { TURNS = 400 };
        static _Thread_local float logits[TURNS * N], option[3][TURNS];
        static _Thread_local int32_t key[TURNS * 2], most[TURNS];
        all.temperature[i] = 8;
        for (int t = 0; t < TURNS; t++) {
            memcpy(logits + t * N, all.logits + i * N, sizeof(float) * N);
            key[2 * t] = 17;
            key[2 * t + 1] = t;
            option[0][t] = all.temperature[i];
            option[1][t] = all.top_p[i];
            option[2][t] = all.min_p[i];
            most[t] = all.top_k[i] > 0 ? all.top_k[i] : -i;
        }
        const sherd_sample_options how = {
            .temperature = data(world, SHERD_F32, SIZES(TURNS), 1, option[0]),
            .top_k = data(world, SHERD_I32, SIZES(TURNS), 1, most),
            .top_p = data(world, SHERD_F32, SIZES(TURNS), 1, option[1]),
            .min_p = data(world, SHERD_F32, SIZES(TURNS), 1, option[2])};
        const int32_t *y = sherd_tensor_read(
            sherd_sample_rows(data(world, SHERD_F32, SIZES(TURNS, N), 2, logits),
                              data(world, SHERD_I32, SIZES(TURNS, 2), 2, key), &how));
        double seen = INFINITY;
        for (int t = 0; t < TURNS; t++)
            seen = fmin(seen, (double)all.logits[i * N + y[t]]);
        CHECK_EQ(seen, last_kept(&all, i));
    }
    CHECK_OK(sherd_world_check(world));
}

/* chi^2 of 4 degrees of freedom: over 30 once in 80,000. */
static void indices_come_as_often_as_softmax_says(sherd_world *world)
{
    enum { TURNS = 20000, OF = 7 };
    static const double weight[OF] = {1, 0, 4, 2, 0.5, 0, 2.5}; /* 10 in all */
    double seen[OF] = {0}, sum = 0;
    float *logits = malloc(sizeof *logits * TURNS * OF);
    int32_t *key = malloc(sizeof *key * TURNS);

    for (int i = 0; i < TURNS; i++) {
        key[i] = i;
        for (int j = 0; j < OF; j++)
            logits[i * OF + j] = (float)log(weight[j]) + (float)(i % 50);
    }
    const int32_t *y =
        sherd_tensor_read(sherd_sample_rows(data(world, SHERD_F32, SIZES(TURNS, OF), 2, logits),
                                            data(world, SHERD_I32, SIZES(TURNS, 1), 2, key), NULL));
    for (int i = 0; i < TURNS; i++)
        seen[y[i]]++;
    for (int j = 0; j < OF; j++) {
        double want = TURNS * weight[j] / 10;
        if (CHECK(want > 0 || seen[j] == 0) && want > 0)
            sum += (seen[j] - want) * (seen[j] - want) / want;
    }
    CHECK(sum < 30);
    free(logits);
    free(key);
    CHECK_OK(sherd_world_check(world));
}

/* One row of three logits, one option of it. */
static int32_t draw_three(sherd_world *world, const float *x, float t, int32_t top_k, float top_p)
{
    const sherd_sample_options how = {.temperature = data(world, SHERD_F32, SIZES(1), 1, &t),
                                      .top_k = data(world, SHERD_I32, SIZES(1), 1, &top_k),
                                      .top_p = data(world, SHERD_F32, SIZES(1), 1, &top_p)};
    sherd_tensor *key = data(world, SHERD_I32, SIZES(1, 1), 2, (int32_t[]){5});
    const int32_t *y =
        sherd_tensor_read(sherd_sample_rows(data(world, SHERD_F32, SIZES(1, 3), 2, x), key, &how));

    return y ? *y : -1;
}

static void the_ends_of_options_are_greedy_or_all(sherd_world *world)
{
    static const float rising[] = {1, 2, 2}, low[] = {-INFINITY, -3e38F, -INFINITY};

    CHECK_EQ(draw_three(world, rising, 0, 0, 1), 1);
    CHECK_EQ(draw_three(world, (float[]){3, 2, 1}, 1e30F, 1, 1), 0);
    CHECK_EQ(draw_three(world, (float[]){1, 2, 3}, 1, 0, 1e-30F), 2);
    CHECK_EQ(draw_three(world, (float[]){1, 2, 3}, 1e-38F, 0, 1), 2);
    CHECK_EQ(draw_three(world, low, 1, 2, 0.5F), 1);
    CHECK_EQ(draw_three(world, low, INFINITY, 0, 1), 1);
    CHECK_EQ(draw_three(world, low, 1e-3F, -1, 1), 1);
    CHECK_OK(sherd_world_check(world));
}

static void faulty_rows_are_refused_on_all_ranks(sherd_world *world)
{
    static const struct {
        float x, t, p;
        const char *says;
    } bad[] = {{NAN, 1, 1, "sherd_sample_rows: row 0: a logit is NaN"},
               {INFINITY, 1, 1, "a logit is infinite"},
               {-INFINITY, 1, 1, "all logits of a row are -infinity"},
               {0, -1, 1, "a temperature is negative or NaN"},
               {0, NAN, 1, "a temperature is negative or NaN"},
               {0, 1, 0, "a top_p is not in (0, 1]"},
               {0, 0, NAN, "a top_p is not in (0, 1]"}};

    for (int i = 0; i < LEN(bad); i++) {
        draw_three(world, (float[]){bad[i].x, -INFINITY, -INFINITY}, bad[i].t, 0, bad[i].p);
        refused(world, bad[i].says);
    }
    /* On one rank only. */
    char says[40];
    batch b = make_batch();
    b.logits[N * ROWS - 1] = NAN;
    const sherd_layout *l = layout_of(line_of_ranks(world), 2, SIZES(ROWS, N), "S(0)", NULL);
    sherd_sample_rows(sherd_distribute(logits_of(world, &b), l, -1), keys_of(world, &b), NULL);
    snprintf(says, sizeof says, "row %d: a logit is NaN", ROWS - 1);
    refused(world, says);
}

/* Each kind of fault in a row of its own; the others are drawn as without them. */
static void faulty_rows_may_be_marked(sherd_world *world)
{
    batch b = make_batch();
    const int32_t *good = draw(world, &b);
    const sherd_layout *l = layout_of(line_of_ranks(world), 2, SIZES(ROWS, N), "S(0)", NULL);

    b.logits[N + 3] = NAN;
    b.logits[4 * N - 1] = INFINITY;
    for (int j = 0; j < N; j++)
        b.logits[5 * N + j] = -INFINITY;
    b.temperature[7] = -1;
    b.top_p[9] = 0;
    b.min_p[11] = 2;
    sherd_sample_options how = options_of(world, &b);
    how.marks = true;
    sherd_tensor *x = sherd_distribute(logits_of(world, &b), l, -1);
    const int32_t *y =
        sherd_tensor_read(sherd_full(sherd_sample_rows(x, keys_of(world, &b), &how)));
    for (int i = 0; y && i < ROWS; i++)
        CHECK_EQ(y[i], i % 2 && i < 12 ? -1 : good[i]);
    CHECK_OK(sherd_world_check(world));
}

/* Rows in two dims, and no rows; a key of other words is another one. */
static void rows_may_lie_in_dims(sherd_world *world)
{
    const batch b = make_batch();
    sherd_tensor *x = sherd_narrow(logits_of(world, &b), 0, 0, 12);
    sherd_tensor *key = sherd_narrow(keys_of(world, &b), 0, 0, 12);
    const int32_t *flat = sherd_tensor_read(sherd_sample_rows(x, key, NULL));
    sherd_tensor *y = sherd_sample_rows(sherd_view(x, SIZES(3, 4, N), 3),
                                        sherd_view(key, SIZES(3, 4, 2), 3), NULL);
    const int32_t *one = sherd_tensor_read(sherd_sample_rows(x, sherd_narrow(key, 1, 0, 1), NULL));
    int other = 0;

    CHECK(CHECK_EQ(sherd_tensor_ndim(y), 2) && CHECK_EQ(sherd_tensor_shape(y)[1], 4));
    CHECK_EQ(memcmp(sherd_tensor_read(y), flat, sizeof *flat * 12), 0);
    for (int i = 0; i < 12; i++)
        other += one[i] != flat[i];
    CHECK(other > 3);
    y = sherd_sample_rows(sherd_narrow(x, 0, 5, 0), sherd_narrow(key, 0, 5, 0), NULL);
    CHECK(!sherd_tensor_failed(y) && CHECK_EQ(sherd_tensor_count(y), 0));
    CHECK_OK(sherd_world_check(world));
}

static _Thread_local sherd_tensor *drawn[2];

static void draw_again(sherd_world *world)
{
    sherd_scope_begin(world);
    sherd_sample_rows(drawn[0], drawn[1], NULL);
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    const batch b = make_batch();
    const sherd_layout *l = layout_of(line_of_ranks(world), 2, SIZES(ROWS, N), "S(1)", NULL);

    drawn[0] = sherd_distribute(logits_of(world, &b), l, -1);
    drawn[1] = keys_of(world, &b);
    CHECK_OK(sherd_world_check(world));
    fail_every_allocation(world, sherd_world_ranks(world) - 1, draw_again);
}

static const check_test tests[] = {
    {TEST(a_row_does_not_see_its_batch), {1}},
    {TEST(layouts_do_not_matter), {1, 2, 3, 4, 8}},
    {TEST(what_is_improbable_is_left_out), {1}},
    {TEST(indices_come_as_often_as_softmax_says), {1}},
    {TEST(the_ends_of_options_are_greedy_or_all), {1}},
    {TEST(faulty_rows_are_refused_on_all_ranks), {1, 2, 3, 4}},
    {TEST(faulty_rows_may_be_marked), {1, 2, 3}},
    {TEST(rows_may_lie_in_dims), {1}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
