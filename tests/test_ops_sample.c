/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices drawn by weights: as often as the weights say, the same ones under every layout, and
 * without replacement no index twice.
 */
#include "groups.h"

#include <math.h>

#include "sherd/comm.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include "sherd/random.h"

enum { N = 7 };
static const float weight[N] = {1, 0, 4, 2, 0.5F, 0, 2.5F}; /* 10 in all */

/* The weights in `rows` rows. */
static sherd_tensor *weights(sherd_world *world, int64_t rows)
{
    const int64_t shape[] = {rows, N};
    sherd_tensor *one = sherd_mark_equal(sherd_from_data(world, SHERD_F32, shape + 1, 1, weight));

    return sherd_contiguous(sherd_expand(one, shape, 2));
}

/* chi^2 of counts against the weights: over 30 once in 80,000 with 4 degrees of freedom. */
static double deviation(const int32_t *index, int64_t n)
{
    double seen[N] = {0}, sum = 0;

    for (int64_t i = 0; i < n; i++)
        seen[index[i]]++;
    for (int i = 0; i < N; i++) {
        double want = (double)n * (double)weight[i] / 10;
        if (!CHECK(weight[i] > 0 || seen[i] == 0) || weight[i] == 0)
            continue;
        sum += (seen[i] - want) * (seen[i] - want) / want;
    }
    return sum;
}

static void indices_come_as_often_as_weights_say(sherd_world *world)
{
    const int64_t rows = 20000;
    sherd_generator dice = sherd_generator_named("often");
    sherd_tensor *one = sherd_multinomial(weights(world, rows), 1, false, &dice);

    CHECK(CHECK_EQ(one->shape[0], rows) && CHECK_EQ(one->shape[1], 1) &&
          CHECK_EQ(one->dtype, SHERD_I32));
    CHECK(deviation(sherd_tensor_read(one), rows) < 30);
    sherd_tensor *many = sherd_multinomial(weights(world, 4), rows, true, &dice);
    CHECK(CHECK_EQ(many->shape[0], 4) && CHECK_EQ(many->shape[1], rows));
    for (int64_t row = 0; row < 4; row++)
        CHECK(deviation((const int32_t *)sherd_tensor_read(many) + row * rows, rows) < 30);
    CHECK_OK(sherd_world_check(world));
}

/* The first of two without replacement is one draw; the second goes by the weights that are left. */
static void none_is_drawn_twice(sherd_world *world)
{
    const int64_t rows = 20000;
    sherd_generator dice = sherd_generator_named("once");
    sherd_tensor *y = sherd_multinomial(weights(world, rows), 2, false, &dice);
    const int32_t *index = sherd_tensor_read(y);
    double after[N] = {0}, left = 0;
    int32_t *first = malloc(sizeof *first * (size_t)rows);

    for (int64_t i = 0; i < rows; i++) {
        first[i] = index[2 * i];
        CHECK(index[2 * i] != index[2 * i + 1]);
        after[index[2 * i + 1]] += first[i] == 2;
        left += first[i] == 2;
    }
    CHECK(deviation(first, rows) < 30);
    for (int i = 0; i < N; i++) {
        double p = i == 2 ? 0 : (double)weight[i] / 6;
        CHECK_NEAR(after[i] / left, p, 5 * sqrt(p * (1 - p) / left));
    }
    free(first);
    CHECK_OK(sherd_world_check(world));
}

static const struct {
    const char *mesh, *placements;
} layouts[] = {{"x=%d", "R"}, {"x=%d", "S(0)"}, {"x=%d", "S(1)"}, {"x=1,y=%d", "S(0)S(1)"}};

/* Every layout draws what one rank alone draws. */
static void layouts_do_not_matter(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16};

    for (int i = 0; i < 4 * 3 * (int)LEN(layouts); i++) {
        int way = i % 4, of = i / 4 % 3, at = i / 12;
        int64_t count = way ? 3 : 1;
        char text[32];
        sherd_scope_begin(world);
        sherd_generator dice = sherd_generator_named("where"), again = dice;
        sherd_tensor *w = sherd_cast(weights(world, 6), dtypes[of]);
        snprintf(text, sizeof text, layouts[at].mesh, sherd_world_ranks(world));
        const sherd_layout *l =
            layout_of(mesh_of(world, text), 2, w->shape, layouts[at].placements, NULL);
        sherd_tensor *there = sherd_multinomial(sherd_distribute(w, l, -1), count, way > 1, &dice);
        sherd_tensor *here = sherd_multinomial(w, count, way > 1, &again);
        CHECK_EQ(memcmp(sherd_tensor_read(sherd_full(there)), sherd_tensor_read(here),
                        sizeof(int32_t) * 6 * (size_t)count),
                 0);
        CHECK_EQ(dice.calls, again.calls);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* One index of a sharded vocabulary: a candidate of each shard travels, not the weights. */
static void vocabularies_stay_sharded(sherd_world *world)
{
    const int64_t shape[] = {2, 10000};
    sherd_generator dice = sherd_generator_named("words");
    const sherd_layout *l = layout_of(line_of_ranks(world), 2, shape, "S(1)", NULL);
    sherd_tensor *w = sherd_constant_on(l, SHERD_F32, 1);

    sherd_comm_reset(world);
    CHECK(!sherd_tensor_failed(sherd_multinomial(w, 1, false, &dice)));
    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < sherd_comm_count(world); i++)
        CHECK(sherd_comm_get(world, i).bytes_received < 100);
}

/* Memory for the weights and for the indices, none for each pair of them. */
static void many_of_many_take_little_memory(sherd_world *world)
{
    const int64_t n = 5000, count = 3000;
    sherd_generator dice = sherd_generator_named("many");
    sherd_tensor *w = sherd_random(world, SHERD_F64, &n, 1, sherd_uniform(0, 1), &dice);
    int64_t before = sherd_world_memory(world).live_bytes;

    sherd_world_memory_reset(world);
    const int32_t *index = sherd_tensor_read(sherd_multinomial(w, count, true, &dice));
    for (int64_t i = 0; i < count && index; i++)
        CHECK(index[i] >= 0 && index[i] < n);
    CHECK(sherd_world_memory(world).peak_bytes - before < 8 * n + 4 * count + 65536);
    CHECK_OK(sherd_world_check(world));
}

/* How often each of four is among 500, drawn with replacement. */
static void draw_four(sherd_world *world, const double *of, int *seen)
{
    const int64_t n = 4, count = 500;
    sherd_generator dice = sherd_generator_named("four");
    sherd_tensor *w = sherd_from_data(world, SHERD_F64, &n, 1, of);
    const int32_t *index = sherd_tensor_read(sherd_multinomial(w, count, true, &dice));

    memset(seen, 0, 4 * sizeof *seen);
    for (int64_t i = 0; i < count && index; i++)
        seen[index[i]]++;
    CHECK_OK(sherd_world_check(world));
}

static void what_weighs_nothing_is_not_drawn(sherd_world *world)
{
    static const struct {
        double weight[4];
        bool drawn[4];
    } rows[] = {
        {{0, 1, 0, 0}, {false, true, false, false}},
        {{3, -1, 0, 1}, {true, false, false, true}},
        {{0, 0, 5e-324, 0}, {false, false, true, false}}, /* u * total is rounded to the total */
        {{0, 1e308, 1e308, 1.5e308}, {false, true, true, true}}, /* the sum is too large */
        {{1, INFINITY, 1e308, INFINITY}, {false, true, false, false}},
    };
    int seen[4];

    for (int r = 0; r < LEN(rows); r++) {
        draw_four(world, rows[r].weight, seen);
        for (int i = 0; i < 4; i++)
            CHECK_EQ(seen[i] > 0, rows[r].drawn[i]);
    }
}

/* Of two weights near an end of f64, the second is drawn as often as it should be: by itself, and
 * with replacement. */
static void the_ends_of_f64_are_weights(sherd_world *world)
{
    enum { ROWS = 4000 };
    static const double pairs[][2] = {{8e307, 8e307},   {1.7e308, 1e308}, {5e-324, 5e-324},
                                      {5e-324, 2e-323}, {1e-310, 3e-310}, {3e-302, 1e-302}};
    static const int64_t shape[] = {ROWS, 2};
    sherd_generator dice = sherd_generator_named("ends");

    for (int i = 0; i < LEN(pairs); i++)
        for (int count = 1; count <= ROWS; count += ROWS - 1) {
            sherd_tensor *w =
                sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape + 1, 1, pairs[i]));
            if (count == 1)
                w = sherd_expand(w, shape, 2);
            const int32_t *index = sherd_tensor_read(sherd_multinomial(w, count, true, &dice));
            double seconds = 0, by = pairs[i][0] > 1 ? 0.5 : 1;
            for (int r = 0; r < ROWS && index; r++)
                seconds += index[r];
            CHECK_NEAR(seconds / ROWS, by * pairs[i][1] / (by * pairs[i][0] + by * pairs[i][1]),
                       0.035);
        }
    CHECK_OK(sherd_world_check(world));
}

/* Three of four weights are 0 or less; the generator goes on in any case. */
static void too_few_weights_are_refused(sherd_world *world)
{
    const int64_t shape[] = {1, 4};
    sherd_generator dice = sherd_generator_named("few");
    const sherd_layout *l = layout_of(line_of_ranks(world), 2, shape, "R", NULL);
    sherd_tensor *w = sherd_distribute(
        sherd_mark_equal(sherd_from_data(world, SHERD_F32, shape, 2, (float[]){0, 3, -1, 0})), l,
        -1);

    sherd_tensor *y = sherd_full(sherd_multinomial(w, 1, false, &dice));
    CHECK(!sherd_tensor_failed(y) && *(const int32_t *)sherd_tensor_read(y) == 1);
    CHECK_OK(sherd_world_check(world));
    sherd_multinomial(w, 2, false, &dice);
    refused(world, ": sherd_multinomial: a row has too few positive weights: weights is f32[1,4]");
    sherd_multinomial(sherd_scale(w, 0), 5, true, &dice);
    refused(world, ": sherd_multinomial: a row has too few positive weights: weights is f32[1,4]");
    sherd_multinomial(sherd_scale(w, NAN), 1, false, &dice);
    refused(world, "a weight is NaN");
    sherd_multinomial(sherd_scale(w, NAN), 2, true, &dice);
    refused(world, "a weight is NaN");
    sherd_multinomial(w, 5, false, &dice);
    refused(world,
            ": sherd_multinomial: fewer weights than indices to draw, 5: weights is f32[1,4]");
    sherd_multinomial(w, 0, true, &dice);
    refused(world, "count is 0, it must be 1 or more");
    sherd_multinomial(sherd_cast(w, SHERD_I32), 1, true, &dice);
    refused(world, "sherd_multinomial: it computes f32, f64, bf16 and f16 only");
    CHECK_EQ(dice.calls, 8);
}

/*
 * Beside a weight of 1, 65,535 of 1e-9: one of them wins in 15,000 rows. Of numbers of 24 random
 * bits, the least of which always wins, one does in 300.
 */
static void rare_indices_are_rare(sherd_world *world)
{
    enum { COLS = 1 << 16, ROWS = 16 };
    const int64_t shape[] = {ROWS, COLS};
    float *w = malloc(sizeof *w * COLS);
    sherd_generator dice = sherd_generator_named("rare");
    int won = 0;

    for (int i = 0; i < COLS; i++)
        w[i] = i ? 1e-9F : 1;
    sherd_tensor *one = sherd_mark_equal(sherd_from_data(world, SHERD_F32, shape + 1, 1, w));
    sherd_tensor *all = sherd_contiguous(sherd_expand(one, shape, 2));
    for (int round = 0; round < (check_stride(2) == 1 ? 150 : 1); round++) {
        sherd_scope_begin(world);
        const int32_t *index = sherd_tensor_read(sherd_multinomial(all, 1, false, &dice));
        for (int r = 0; r < ROWS && index; r++)
            won += index[r] > 0;
        sherd_scope_end(world);
    }
    CHECK(won <= 2);
    free(w);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(indices_come_as_often_as_weights_say), {1}},
    {TEST(none_is_drawn_twice), {1}},
    {TEST(layouts_do_not_matter), {1, 2, 3, 4}},
    {TEST(vocabularies_stay_sharded), {2, 4}},
    {TEST(too_few_weights_are_refused), {1, 2}},
    {TEST(rare_indices_are_rare), {1}},
    {TEST(many_of_many_take_little_memory), {1}},
    {TEST(what_weighs_nothing_is_not_drawn), {1}},
    {TEST(the_ends_of_f64_are_weights), {1}},
};
CHECK_MAIN(tests)
