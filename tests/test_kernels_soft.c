/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast softmax, its gradients, and the functions with an e^x, against the plain ones, f32: rows
 * and columns of any length, between guards that nobody may touch; and rows with NaN, infinities,
 * nothing but -inf, and large numbers.
 */
#define CHECK_PURE
#include <float.h>
#include <math.h>

#include "check.h"
#include "kernel_versions.h"

enum { ROOM = 3 * 40 * 300, GUARD = 16 };

typedef struct numbers {
    float x[ROOM], dy[ROOM];
    float plain[5][ROOM + 2 * GUARD],
        fast[5][ROOM + 2 * GUARD]; /* most, total, y, total of gradients, dx */
} numbers;

static bool is_near(float x, float y, double tolerance)
{
    double room = tolerance * fmax(1, fabs((double)x));

    return x == y || (isnan(x) && isnan(y)) || fabs((double)x - (double)y) <= room;
}

static void compare(const char *what, const float *plain, const float *fast, double tolerance)
{
    for (int i = 0; i < ROOM + 2 * GUARD; i++)
        if (!CHECK(is_near(plain[i], fast[i], tolerance))) {
            fprintf(stderr, "  %s %d: %.9g is %.9g\n", what, i - GUARD, (double)plain[i],
                    (double)fast[i]);
            return;
        }
}

/* All kernels of the softmax, one behind the other, into five results. */
static void run(const sherd__kernels *k, sherd__soft_kind kind, const int64_t size[3],
                const numbers *in, float out[5][ROOM + 2 * GUARD])
{
    int64_t outer = size[0], mid = size[1], inner = size[2];

    for (int i = 0; i < 5; i++)
        for (int j = 0; j < ROOM + 2 * GUARD; j++)
            out[i][j] = 12345;
    k->soft_stats(outer, mid, inner, out[0] + GUARD, out[1] + GUARD, in->x);
    k->soft(kind, outer, mid, inner, out[2] + GUARD, in->x, out[0] + GUARD, out[1] + GUARD);
    k->soft_grad_sum(kind, outer, mid, inner, out[3] + GUARD, in->dy, out[2] + GUARD);
    k->soft_grad(kind, outer, mid, inner, out[4] + GUARD, in->dy, out[2] + GUARD, out[3] + GUARD);
}

static void try_size(const sherd__kernels *k, numbers *in, const int64_t size[3])
{
    static const char *const names[] = {"most", "total", "y", "sum of dy", "dx"};
    static const double tolerance[] = {0, 2e-6, 2e-6, 4e-5, 4e-5};

    for (int kind = SHERD__SOFTMAX; kind <= SHERD__LOG_SOFTMAX; kind++) {
        run(&sherd__ref_f32, (sherd__soft_kind)kind, size, in, in->plain);
        run(k, (sherd__soft_kind)kind, size, in, in->fast);
        for (int i = 0; i < 5; i++)
            compare(names[i], in->plain[i], in->fast[i], tolerance[i]);
    }
    /* The gradient of the logarithm of the sum, of which y is one for each row. */
    int64_t n = size[0] * size[1] * size[2];
    memset(in->plain[2], 0, sizeof in->plain[2]);
    memset(in->fast[2], 0, sizeof in->fast[2]);
    sherd__ref_f32.soft_spread(size[0], size[1], size[2], in->plain[2] + GUARD, in->x,
                               in->plain[0] + GUARD, in->dy);
    k->soft_spread(size[0], size[1], size[2], in->fast[2] + GUARD, in->x, in->plain[0] + GUARD,
                   in->dy);
    compare("spread", in->plain[2], in->fast[2], 2e-6);
    CHECK(n <= ROOM);
}

static void draw(numbers *in, float range)
{
    for (uint64_t i = 0; i < 2; i++)
        sherd__ref_f32.uniform(ROOM, i ? in->dy : in->x, i ? -1 : -range, i ? 1 : range,
                               sherd__philox_key(7, i, 0), 0);
}

static void every_size_is_as_plain(void)
{
    static const int64_t sizes[][3] = {{1, 1, 1},   {3, 5, 1},    {2, 16, 1},  {2, 17, 1},
                                       {3, 300, 1}, {2, 7, 3},    {3, 40, 15}, {3, 40, 16},
                                       {2, 5, 33},  {3, 40, 300}, {1, 1, 40},  {0, 5, 3},
                                       {2, 5, 0},   {2, 0, 3},    {2, 0, 1}};
    numbers *in = malloc(sizeof *in);
    sherd__kernels list[FAST_SETS];
    int count = versions(list);

    for (int v = 0; v < count; v++)
        for (int s = 0; s < LEN(sizes); s++) {
            draw(in, 5);
            try_size(&list[v], in, sizes[s]);
        }
    free(in);
}

static void what_is_no_number_is_where_it_was(void)
{
    static const float odd[][2] = {{NAN, 0},         {INFINITY, 0},        {-INFINITY, 0},
                                   {NAN, INFINITY},  {INFINITY, INFINITY}, {INFINITY, -INFINITY},
                                   {NAN, -INFINITY}, {FLT_MAX, -FLT_MAX},  {-INFINITY, 100}};
    static const int64_t sizes[][3] = {{4, 37, 1}, {2, 37, 19}};
    numbers *in = malloc(sizeof *in);
    sherd__kernels list[FAST_SETS];
    int count = versions(list);

    for (int v = 0; v < count; v++)
        for (int o = 0; o < LEN(odd); o++)
            for (int s = 0; s < LEN(sizes); s++)
                for (int place = 0; place < 40; place += 3) {
                    draw(in, 5);
                    in->x[place] = odd[o][0];
                    in->x[place + 5] = odd[o][1];
                    for (int i = 37; i < 74; i++) /* and of two rows all */
                        in->x[i] = odd[o][0];
                    try_size(&list[v], in, sizes[s]);
                }
    free(in);
}

/* Relative to each value, however small. */
static void functions_are_accurate(void)
{
    static const sherd__unary_kind kinds[] = {SHERD__EXP, SHERD__SIGMOID, SHERD__TANH};
    static const float range[] = {80, 80, 12};
    sherd__kernels list[FAST_SETS];
    int count = versions(list);

    for (int v = 0; v < count; v++)
        for (int k = 0; k < LEN(kinds); k++)
            for (int i = 0; i < 4000; i++) {
                float x[2] = {range[k] * ((float)i / 2000 - 1),
                              (i % 2 ? 1e-3f : -1e-30f) * (float)i};
                float plain[2], fast[2];
                sherd__ref_f32.unary(kinds[k], 2, plain, x, NULL);
                list[v].unary(kinds[k], 2, fast, x, NULL);
                for (int j = 0; j < 2; j++)
                    if (!CHECK(fabs((double)plain[j] - (double)fast[j]) <=
                               6e-7 * fabs((double)plain[j])))
                        fprintf(stderr, "  %d of %.9g: %.9g is %.9g\n", (int)kinds[k], (double)x[j],
                                (double)plain[j], (double)fast[j]);
            }
}

static const check_test tests[] = {
    {TEST(every_size_is_as_plain)},
    {TEST(what_is_no_number_is_where_it_was)},
    {TEST(functions_are_accurate)},
};
CHECK_MAIN(tests)
