/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts by work: shards have the same, and what is no work is refused. */
#define CHECK_PURE
#include "paper.h"

#include <math.h>

/* The mean is met to within the work of one position; shards of a sequence without more work at its
 * end differ by one. */
static void balanced_cuts_have_the_same_work(void)
{
    static const double weights[][2] = {{0, 1},    {1, 0},         {0, 0},
                                        {1000, 1}, {1e300, 1e300}, {3, 0.01}};
    static const int64_t lengths[] = {0, 1, 2, 5, 16, 97, 1000, 8192};
    int64_t size[64];

    for (int w = 0; w < LEN(weights); w++)
        for (int l = 0; l < LEN(lengths); l++)
            for (int64_t shards = 1; shards <= 64; shards += 1 + shards / 8) {
                int64_t n = lengths[l], at = 0;
                double linear = weights[w][0], more = weights[w][1], all = 0;
                if (linear == 0 && more == 0)
                    linear = 1;
                CHECK_OK(sherd_balanced_cuts(size, n, shards, weights[w][0], weights[w][1]));
                for (int64_t i = 0; i < n; i++)
                    all += linear / (double)n + more / (double)n * (double)(i + 1);
                for (int64_t s = 0; s < shards; s++) {
                    double mine = 0;
                    for (int64_t i = at; i < at + size[s]; i++)
                        mine += linear / (double)n + more / (double)n * (double)(i + 1);
                    double off = mine - all / (double)shards;
                    double one = linear / (double)n + more;
                    CHECK(size[s] >= 0);
                    CHECK(n == 0 || (off <= one * 1.000001 && off >= -one * 1.000001));
                    if (more == 0)
                        CHECK(size[s] == n / shards || size[s] == n / shards + 1);
                    at += size[s];
                }
                CHECK_EQ(at, n);
            }
}

/* Of 1, 2, 3, 4, 5 the first three are nearest to a half; of 2, 3, 4, 5, 6 too. */
static void a_cut_is_where_it_is_nearest(void)
{
    int64_t size[2];

    for (int linear = 0; linear < 2; linear++) {
        CHECK_OK(sherd_balanced_cuts(size, 5, 2, linear, 1));
        CHECK_EQ(size[0], 3);
        CHECK_EQ(size[1], 2);
    }
}

static void balanced_cuts_of_what_is_none_are_refused(void)
{
    int64_t size[2] = {7, 7};

    CHECK_EQ(sherd_balanced_cuts(NULL, 4, 2, 1, 1), SHERD_EINVAL);
    CHECK_EQ(sherd_balanced_cuts(size, -1, 2, 1, 1), SHERD_EINVAL);
    CHECK_EQ(sherd_balanced_cuts(size, 4, 0, 1, 1), SHERD_EINVAL);
    CHECK_EQ(sherd_balanced_cuts(size, 4, 2, -1, 1), SHERD_EINVAL);
    CHECK_EQ(sherd_balanced_cuts(size, 4, 2, 1, NAN), SHERD_EINVAL);
    CHECK_EQ(sherd_balanced_cuts(size, 4, 2, INFINITY, 1), SHERD_EINVAL);
    CHECK_EQ(size[0], 7);
    CHECK_OK(sherd_balanced_cuts(size, INT64_MAX / 4, 2, 0, 1));
    CHECK_EQ(size[0] + size[1], INT64_MAX / 4);
}

static const check_test tests[] = {
    {TEST(balanced_cuts_have_the_same_work)},
    {TEST(a_cut_is_where_it_is_nearest)},
    {TEST(balanced_cuts_of_what_is_none_are_refused)},
};
CHECK_MAIN(tests)
