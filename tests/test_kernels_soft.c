/* SPDX-License-Identifier: Apache-2.0 */
/* The fast softmax of f32, and its functions with an e^x, against the plain ones. */
#define CHECK_PURE
#include <float.h>
#include <math.h>

#include "check.h"
#include "kernel_versions.h"

typedef float real;
#define PLAIN    sherd__ref_f32
#define VERSIONS versions
#define LARGEST  FLT_MAX
static const double scale = 1; /* of tolerances */

#include "kernels_soft.inc"

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
    {TEST(rows_by_the_few_are_as_all_at_once)},
    {TEST(functions_are_accurate)},
};
CHECK_MAIN(tests)
