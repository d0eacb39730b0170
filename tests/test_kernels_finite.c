/* SPDX-License-Identifier: Apache-2.0 */
/* NaN and infinite numbers are replaced wherever they are, and only they. */
#define CHECK_PURE
#include "check.h"
#include "kernels/cast.h"
#include "kernels/finite.h"

#include <math.h>

enum { N = 1200 };

static void what_is_odd_is_replaced_wherever_it_is(void)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};
    static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 65504, -1e-7};
    const double to[3] = {0.5, 2, -3};
    static double x[N], y[N], given[N], got[N];

    for (int t = 0; t < LEN(dtypes); t++)
        for (int at = 0; at < N; at += at < 8 ? 1 : 37)
            for (int k = 0; k < LEN(odd); k++) {
                for (int i = 0; i < N; i++)
                    given[i] = i == at ? odd[k] : i - N / 2;
                sherd__cast(dtypes[t], SHERD_F64, N, x, given);
                sherd__cast(SHERD_F64, dtypes[t], N, given, x);
                sherd__replace_odd(dtypes[t], N, y, x, to);
                sherd__replace_odd(dtypes[t], N, x, x, to); /* in place */
                CHECK(memcmp(x, y, N * sherd_dtype_bytes(dtypes[t])) == 0);
                sherd__cast(SHERD_F64, dtypes[t], N, got, y);
                for (int i = 0; i < N; i++) {
                    double v = given[i];
                    CHECK(got[i] == (isnan(v) ? to[0] : isfinite(v) ? v : v > 0 ? to[1] : to[2]));
                }
            }
}

static const check_test tests[] = {
    {TEST(what_is_odd_is_replaced_wherever_it_is)},
};
CHECK_MAIN(tests)
