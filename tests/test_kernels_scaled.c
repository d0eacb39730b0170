/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums with a multiple (kernels/scaled.h) against the formula, element by element, in all dtypes,
 * of operands that lie in all ways, also written over one of them: the same bits whatever the
 * instructions.
 */
#define CHECK_PURE
#include "check.h"
#include "fast_sets.h"
#include "kernels/cast.h"
#include "kernels/ref.h"
#include "kernels/scaled.h"
#include "vector/bodies.h"

enum { ROOM = 4000 };

/* Which lies how: strides of the last and the first dim. */
typedef struct lying {
    int64_t first, last;
} lying;

static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};

static double plain(sherd_dtype dtype, double factor, double a, double b)
{
    double product = factor * b;
    float less = (float)factor * (float)b;

    return dtype == SHERD_F64 ? a + product : (double)((float)a + less);
}

/* Of [rows, n]; `over` 1, 2: written over a, or b. */
static int64_t wrong(sherd__adds_scaled *add, sherd_dtype dtype, const int64_t *size, lying a,
                     lying b, int over)
{
    static double drawn[2][ROOM], exact[2][ROOM], got[ROOM], want;
    static double stored[3][ROOM];
    const int64_t a_stride[] = {a.first, a.last}, b_stride[] = {b.first, b.last};
    int64_t faults = 0;

    for (int i = 0; i < ROOM; i++) {
        drawn[0][i] = 1.3 * (i * 7919 % 1009) - 500;
        drawn[1][i] = 0.7 * (i * 104729 % 1013) - 300;
    }
    for (int i = 0; i < 2; i++) {
        sherd__cast(dtype, SHERD_F64, ROOM, stored[i], drawn[i]);
        sherd__cast(SHERD_F64, dtype, ROOM, exact[i], stored[i]);
    }
    void *d = over ? stored[over - 1] : stored[2];
    add(dtype, -0.3, 2, size, d, stored[0], a_stride, stored[1], b_stride);
    sherd__cast(SHERD_F64, dtype, size[0] * size[1], got, d);
    for (int64_t i = 0; i < size[0]; i++)
        for (int64_t j = 0; j < size[1]; j++) {
            double sum = plain(dtype, -0.3, exact[0][i * a.first + j * a.last],
                               exact[1][i * b.first + j * b.last]);
            uint64_t rounded = 0;
            sherd__cast(dtype, SHERD_F64, 1, &rounded, &sum);
            sherd__cast(SHERD_F64, dtype, 1, &want, &rounded);
            faults += got[i * size[1] + j] != want;
        }
    return faults;
}

static void sums_are_those_of_the_formula(void)
{
    static const int64_t sizes[][2] = {{1, 1}, {1, 0}, {3, 17}, {2, 600}, {40, 3}, {33, 34}};
    fast_set sets[FAST_SETS];
    int count = fast_sets(sets);

    for (int i = -1; i < count; i++)
        for (int d = 0; d < LEN(dtypes); d++)
            for (int s = 0; s < LEN(sizes); s++) {
                sherd__kernels table = sherd__ref_f32;
                const int64_t *size = sizes[s], n = size[1];
                const lying ways[] = {{n, 1}, {0, 1}, {1, 0}, {0, 0}, {1, size[0]}, {n + 3, 1}};
                int64_t faults = 0;
                if (i >= 0)
                    sets[i].f32(&table);
                sherd__adds_scaled *add = i < 0 ? sherd__add_scaled : sherd__adds_scaled_by(&table);
                for (int a = 0; a < LEN(ways); a++)
                    for (int b = 0; b < LEN(ways); b++) {
                        faults += wrong(add, dtypes[d], size, ways[a], ways[b], 0);
                        faults += a == 0 ? wrong(add, dtypes[d], size, ways[a], ways[b], 1) : 0;
                        faults += b == 0 ? wrong(add, dtypes[d], size, ways[a], ways[b], 2) : 0;
                    }
                if (!CHECK_EQ(faults, 0))
                    printf("%s, dtype %d, %d x %d\n", i < 0 ? "plain" : sets[i].name, dtypes[d],
                           (int)size[0], (int)n);
            }
}

static const check_test tests[] = {{TEST(sums_are_those_of_the_formula)}};

CHECK_MAIN(tests)
