/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that count and tensors that are drawn: each box of each layout holds, bit for bit, what
 * the plain tensor holds there, in every dtype, and nothing travels; the numbers are those that
 * they are said to be.
 */
#include "tensors.h"

#include <math.h>

#include "base/hash.h"
#include "kernels/draw.h"
#include "sherd/comm.h"
#include "sherd/values.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

enum { DRAWN_FROM = 3, KINDS = 9 };

static const sherd_mesh *mesh_for(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    return mesh_of(world, sherd_world_ranks(world) == 4 ? "x=2,y=2" : text);
}

static sherd_distribution distribution(int kind)
{
    static const int64_t shape[] = {7, 5};

    switch (kind) {
    case DRAWN_FROM:
        return sherd_integers(-3, 12);
    case DRAWN_FROM + 1:
        return sherd_bernoulli(0.3);
    case DRAWN_FROM + 2:
        return sherd_truncated_normal(1, 2, 0, 2);
    case DRAWN_FROM + 3:
        return sherd_truncated_normal(0, 1, 3, 9);
    case DRAWN_FROM + 4:
        return sherd_kaiming_uniform(shape, 2, 1);
    default:
        return sherd_xavier_normal(shape, 2, 1);
    }
}

static bool is_possible(int kind, sherd_dtype dtype)
{
    bool fractions = dtype <= SHERD_F16, integers = dtype == SHERD_I32 || dtype == SHERD_I64;

    return fractions || kind == 2 || kind == DRAWN_FROM + 1 ||
           (integers && (kind == 0 || kind == DRAWN_FROM));
}

/* Counting has one dim, but eye. */
static sherd_tensor *plain(sherd_world *world, int kind, sherd_dtype dtype)
{
    sherd_generator g = sherd_generator_named("values");

    if (kind == 0)
        return sherd_arange(world, dtype, -3, 14, 2);
    if (kind == 1)
        return sherd_linspace(world, dtype, -1, 2, 9);
    if (kind == 2)
        return sherd_eye(world, dtype, 7, 5);
    return sherd_random(world, dtype, SIZES(7, 5), 2, distribution(kind), &g);
}

static sherd_tensor *spread(const sherd_layout *layout, int kind, sherd_dtype dtype)
{
    sherd_generator g = sherd_generator_named("values");

    if (kind == 0)
        return sherd_arange_on(layout, dtype, -3, 2);
    if (kind == 1)
        return sherd_linspace_on(layout, dtype, -1, 2);
    if (kind == 2)
        return sherd_eye_on(layout, dtype);
    return sherd_random_on(layout, dtype, distribution(kind), &g);
}

/* How many bytes of a box are not those of the whole. */
static int64_t differing(sherd_tensor *t, sherd_tensor *whole)
{
    size_t element = sherd_dtype_bytes(whole->dtype);
    const char *x = sherd_tensor_read(t), *y = sherd_tensor_read(whole);
    sherd_box box = sherd_tensor_box(t);
    int64_t wrong = x && y ? 0 : 1;

    for (int64_t i = 0; x && y && i < t->count; i++)
        wrong += memcmp(x + (size_t)i * element,
                        y + (size_t)global_of(&box, whole->shape, i) * element, element) != 0;
    return wrong;
}

static void each_box_holds_what_the_whole_does(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world);

    for (int kind = 0; kind < KINDS; kind++)
        for (int d = SHERD_F32; d <= SHERD_BOOL; d++) {
            if (!is_possible(kind, (sherd_dtype)d))
                continue;
            sherd_scope_begin(world);
            sherd_tensor *whole = plain(world, kind, (sherd_dtype)d);
            CHECK(!sherd_tensor_failed(whole));
            CHECK_OK(sherd_world_check(world));
            sherd_comm_reset(world);
            for (int i = 0; i < lists_of(mesh, whole->ndim); i++) {
                const sherd_layout *layout = numbered(mesh, whole->ndim, whole->shape, i);
                if (layout->pending_axes)
                    continue;
                if (!CHECK_EQ(differing(spread(layout, kind, (sherd_dtype)d), whole), 0))
                    fprintf(stderr, "  kind %d, %s\n", kind, sherd_layout_text(layout));
            }
            CHECK_EQ(sherd_comm_count(world), 0);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* The runs of a box that lies within several dims. */
static void boxes_of_three_dims_do_too(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world);
    sherd_generator g = sherd_generator_named("three");
    const sherd_distribution d = sherd_uniform(0, 1);
    sherd_tensor *whole = sherd_random(world, SHERD_F64, SIZES(3, 4, 5), 3, d, &g);

    for (int i = 0; i < lists_of(mesh, 3); i++) {
        const sherd_layout *layout = numbered(mesh, 3, whole->shape, i);
        g = sherd_generator_named("three");
        if (layout->pending_axes)
            continue;
        if (!CHECK_EQ(differing(sherd_random_on(layout, SHERD_F64, d, &g), whole), 0))
            fprintf(stderr, "  %s\n", sherd_layout_text(layout));
    }
    CHECK_OK(sherd_world_check(world));
}

/* Left for later, the same. */
static void what_is_left_for_later_is_the_same(sherd_world *world)
{
    for (int kind = DRAWN_FROM; kind < KINDS; kind++) {
        sherd_generator g = sherd_generator_named("values");
        sherd_tensor *later =
            sherd_random_later(world, SHERD_F64, SIZES(7, 5), 2, distribution(kind), &g);
        CHECK_EQ(differing(later, plain(world, kind, SHERD_F64)), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static void without_a_deviation_all_are_the_mean(sherd_world *world)
{
    sherd_generator g = sherd_generator_named("g");
    sherd_tensor *t = sherd_random(world, SHERD_F64, SIZES(9), 1, sherd_normal(2, 0), &g);
    const double *x = sherd_tensor_read(t);

    for (int i = 0; x && i < 9; i++)
        CHECK(x[i] == 2);
    CHECK_OK(sherd_world_check(world));
}

/* The same on every number of ranks: stored once. */
static void integers_are_those_that_were_stored(sherd_world *world)
{
    static const int32_t want[] = {48, 54, 17, -91, 36, 50, 87, -91};
    sherd_generator g = sherd_generator_named("stored");
    sherd_tensor *t = sherd_random(world, SHERD_I32, SIZES(8), 1, sherd_integers(-100, 100), &g);
    const int32_t *x = sherd_tensor_read(t);

    for (int i = 0; x && i < 8; i++)
        CHECK_EQ(x[i], want[i]);
}

/* ---- which numbers --------------------------------------------------------------------------- */

static void check_numbers(sherd_tensor *t, int64_t count, const double *want)
{
    const double *x = sherd_tensor_read(t);

    CHECK_EQ(sherd_tensor_count(t), count);
    for (int64_t i = 0; x && i < count; i++)
        CHECK(x[i] == want[i]);
}

static void counting_is_that_of_pytorch(sherd_world *world)
{
    const sherd_dtype d = SHERD_F64;

    check_numbers(sherd_arange(world, d, 1, 2.5, 0.5), 3, (const double[]){1, 1.5, 2});
    check_numbers(sherd_arange(world, d, 3, 0, -2), 2, (const double[]){3, 1});
    check_numbers(sherd_arange(world, d, 3, 3, 1), 0, NULL);
    check_numbers(sherd_linspace(world, d, 0, 1, 5), 5, (const double[]){0, 0.25, 0.5, 0.75, 1});
    check_numbers(sherd_linspace(world, d, 2, 9, 1), 1, (const double[]){2});
    check_numbers(sherd_linspace(world, d, 2, 9, 0), 0, NULL);
    check_numbers(sherd_eye(world, d, 2, 3), 6, (const double[]){1, 0, 0, 0, 1, 0});
    check_numbers(sherd_eye(world, d, 3, 0), 0, NULL);
    sherd_tensor *far = sherd_arange(world, SHERD_I64, 0x1p53, 0x1p53 + 8, 2);
    CHECK_EQ(((const int64_t *)sherd_tensor_read(far))[1], ((int64_t)1 << 53) + 2);
    /* All that the dtype holds: seven steps are more than that, their sum with the start is not. */
    sherd_tensor *wide = sherd_arange(world, SHERD_I64, -0x1p63, 0x1p63, 0x1p61);
    CHECK_EQ(sherd_tensor_count(wide), 8);
    CHECK_EQ(((const int64_t *)sherd_tensor_read(wide))[7], (int64_t)3 << 61);
    CHECK_OK(sherd_world_check(world));
}

/* Mean and deviation of a million of them. */
static void check_moments(sherd_world *world, sherd_distribution d, const double want[4])
{
    enum { N = 1 << 18 };
    sherd_generator g = sherd_generator_named("moments");
    sherd_tensor *t = sherd_random(world, SHERD_F64, SIZES(N), 1, d, &g);
    const double *x = sherd_tensor_read(t);
    double sum = 0, squares = 0, least = x[0], most = x[0];

    for (int i = 0; i < N; i++) {
        sum += x[i];
        squares += x[i] * x[i];
        least = fmin(least, x[i]);
        most = fmax(most, x[i]);
    }
    double mean = sum / N, deviation = sqrt(squares / N - mean * mean);
    CHECK(fabs(mean - want[0]) < 0.01 * want[1] && fabs(deviation - want[1]) < 0.01 * want[1]);
    CHECK(least >= want[2] && most <= want[3]);
}

static void drawn_numbers_are_distributed_as_said(sherd_world *world)
{
    const int64_t shape[] = {30, 20, 5};

    check_moments(world, sherd_integers(-5, 5), (const double[]){-0.5, 2.8723, -5, 4});
    check_moments(world, sherd_bernoulli(0.25), (const double[]){0.25, 0.4330, 0, 1});
    check_moments(world, sherd_truncated_normal(0, 1, -2, 2), (const double[]){0, 0.87963, -2, 2});
    check_moments(world, sherd_truncated_normal(1, 0.5, 1, 10),
                  (const double[]){1.39894, 0.30141, 1, 10});
    /* fan in 100, fan out 150 */
    check_moments(world, sherd_xavier_uniform(shape, 3, 2),
                  (const double[]){0, 0.178885, -0.309839, 0.309839});
    check_moments(world, sherd_xavier_normal(shape, 3, 2), (const double[]){0, 0.178885, -9, 9});
    check_moments(world, sherd_kaiming_uniform(shape, 3, sqrt(2)),
                  (const double[]){0, 0.141421, -0.244949, 0.244949});
    check_moments(world, sherd_kaiming_normal(shape, 3, sqrt(2)),
                  (const double[]){0, 0.141421, -9, 9});
    CHECK_OK(sherd_world_check(world));
}

static void the_quantile_undoes_the_distribution(sherd_world *world)
{
    (void)world;
    CHECK(sherd__normal_quantile(0.5) == 0);
    CHECK(fabs(sherd__normal_quantile(0.975) - 1.959963984540054) < 1e-15);
    for (double x = -30; x <= 5; x += 0.37) {
        double p = 0.5 * erfc(-x / sqrt(2.0));
        CHECK(fabs(sherd__normal_quantile(p) - x) < 1e-9 * fmax(1, fabs(x)));
    }
}

/* ---- what can not be ------------------------------------------------------------------------- */

static void a_refusal_says_what_is_wrong(sherd_world *world)
{
    sherd_generator g = sherd_generator_named("g");
    const sherd_layout *row = layout_of(mesh_for(world), 1, SIZES(4), "P(sum)", NULL);
    const sherd_layout *whole = layout_of(mesh_for(world), 1, SIZES(4), "R", NULL);

#define SAYS(text, call)                                         \
    do {                                                         \
        CHECK(sherd_tensor_failed(call));                        \
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);        \
        CHECK(strstr(sherd_world_error(world), (text)) != NULL); \
    } while (0)
    SAYS("sherd_arange: the step leads away from end", sherd_arange(world, SHERD_F32, 0, 1, -1));
    SAYS("sherd_arange: the step leads away from end", sherd_arange(world, SHERD_F32, 0, -0.5, 1));
    SAYS("sherd_arange: the dtype does not hold", sherd_arange(world, SHERD_I32, 0.5, 3, 1));
    SAYS("sherd_arange: the dtype does not hold", sherd_arange(world, SHERD_I32, 0, 2.5, 0.5));
    SAYS("sherd_arange: the dtype does not hold", sherd_arange(world, SHERD_U8, 0, 257, 1));
    SAYS("sherd_arange: the dtype does not hold",
         sherd_arange(world, SHERD_I64, 0x1p63 - 2048, 0x1p63 + 2048, 1024));
    SAYS("sherd_arange: the dtype does not hold",
         sherd_arange(world, SHERD_I64, 0x1p63, 0x1p63 - 3072, -1024));
    SAYS("sherd_arange_on: there is no such dtype", sherd_arange_on(whole, (sherd_dtype)99, 0, 1));
    SAYS("sherd_random_on: there is no such dtype",
         sherd_random_on(whole, (sherd_dtype)99, sherd_normal(0, 1), &g));
    SAYS("has a pending reduction", sherd_random_on(row, SHERD_F32, sherd_normal(0, 1), &g));
    SAYS("sherd_arange_on: the layout has a pending", sherd_arange_on(row, SHERD_F32, 0, 1));
    SAYS("sherd_eye_on: the layout must have two dims", sherd_eye_on(row, SHERD_F32));
    SAYS("sherd_random: integers need low < high",
         sherd_random(world, SHERD_I32, SIZES(2), 1, sherd_integers(2, 2), &g));
    SAYS("at most 2^32 apart",
         sherd_random(world, SHERD_I64, SIZES(2), 1, sherd_integers(-1, 1LL << 32), &g));
    SAYS("sherd_random: integers need low < high",
         sherd_random(world, SHERD_I64, SIZES(2), 1,
                      ((sherd_distribution){SHERD_DRAW_INTEGERS, 0.5, 2, 0, 0}), &g));
    SAYS("sherd_random: integers need low < high",
         sherd_random(world, SHERD_I64, SIZES(2), 1,
                      ((sherd_distribution){SHERD_DRAW_INTEGERS, 0, 2.5, 0, 0}), &g));
    SAYS("within -2^53 to 2^53", sherd_random(world, SHERD_I64, SIZES(2), 1,
                                              sherd_integers(1LL << 53, (1LL << 53) + 2), &g));
    SAYS("within -2^53 to 2^53",
         sherd_random(world, SHERD_I64, SIZES(2), 1,
                      sherd_integers(-(1LL << 53) - 2, -(1LL << 53) + 2), &g));
    SAYS("sherd_random: the dtype does not hold all of these integers",
         sherd_random(world, SHERD_U8, SIZES(2), 1, sherd_integers(0, 257), &g));
    SAYS("sherd_random: a probability must be in [0,1]",
         sherd_random(world, SHERD_BOOL, SIZES(2), 1, sherd_bernoulli(1.5), &g));
    SAYS("sherd_random: truncated normal numbers need low < high",
         sherd_random(world, SHERD_F32, SIZES(2), 1, sherd_truncated_normal(0, 1, 1, 1), &g));
    SAYS("sherd_random: a number of the distribution is not finite",
         sherd_random(world, SHERD_F32, SIZES(2), 1, sherd_kaiming_normal(SIZES(2), 1, 1), &g));
    SAYS("sherd_random: a number of the distribution is not finite",
         sherd_random(world, SHERD_F32, SIZES(2), 1, sherd_uniform(0, (double)INFINITY), &g));
    SAYS("sherd_random: the deviation of normal numbers is negative",
         sherd_random(world, SHERD_F32, SIZES(2), 1, sherd_normal(0, -1), &g));
    SAYS("sherd_random: the dtype must have fractions",
         sherd_random(world, SHERD_I32, SIZES(2), 1, sherd_normal(0, 1), &g));
#undef SAYS
    const int64_t far = (int64_t)1 << 53, apart = (int64_t)1 << 32;
    const sherd_distribution widest[] = {
        sherd_integers(far - 2, far), sherd_integers(-far, 2 - far), sherd_integers(-1, apart - 1)};
    for (int i = 0; i < LEN(widest); i++)
        CHECK(!sherd_tensor_failed(sherd_random(world, SHERD_I64, SIZES(2), 1, widest[i], &g)));
    CHECK_OK(sherd_world_check(world));
}

/* Nothing is sent, and yet the next check finds it. */
static void other_numbers_of_one_rank_are_found(sherd_world *world)
{
    enum { GENERATOR, WIDTH, KIND, LOW, START, STEP, VALUE, CASES };
    const sherd_layout *layout = layout_of(mesh_for(world), 1, SIZES(4), "R", NULL);

    for (int i = 0; i < CASES; i++) {
        int other = sherd_world_rank(world) == 1 ? i : CASES;
        sherd_generator g = sherd_generator_named(other == GENERATOR ? "h" : "g");
        sherd_distribution d =
            sherd_truncated_normal(0, other == WIDTH ? 2 : 1, other == LOW ? -1 : -2, 2);
        if (i == KIND)
            d = other == KIND ? sherd_uniform(0, 1) : sherd_normal(0, 1);
        if (i <= LOW)
            sherd_random_on(layout, SHERD_F32, d, &g);
        else if (i < VALUE)
            sherd_arange_on(layout, SHERD_F32, other == START, other == STEP ? 2 : 1);
        else
            sherd_constant_on(layout, SHERD_F32, other == VALUE);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    }
    sherd_constant_on(layout_of(mesh_for(world), 1, SIZES(4), "P(max)", NULL), SHERD_F32, 1);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK(strstr(sherd_world_error(world), "only a pending sum can be filled") != NULL);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(each_box_holds_what_the_whole_does), {1, 2, 3, 4}},
    {TEST(boxes_of_three_dims_do_too), {2, 3, 8}},
    {TEST(what_is_left_for_later_is_the_same), {1}},
    {TEST(without_a_deviation_all_are_the_mean), {1}},
    {TEST(integers_are_those_that_were_stored), {1, 2, 3, 4}},
    {TEST(counting_is_that_of_pytorch), {1}},
    {TEST(drawn_numbers_are_distributed_as_said), {1}},
    {TEST(the_quantile_undoes_the_distribution), {1}},
    {TEST(a_refusal_says_what_is_wrong), {1}},
    {TEST(other_numbers_of_one_rank_are_found), {2, 3}},
};
CHECK_MAIN(tests)
