/* SPDX-License-Identifier: Apache-2.0 */
/* How far two tensors are apart, of which all ranks read the whole. */
#ifndef SHERD_TESTS_DIFFER_H
#define SHERD_TESTS_DIFFER_H

#include "tensors.h"

#include <math.h>
#include <stdlib.h>

/* The largest difference; inf: one cannot be read, or only one of two elements is NaN. */
static inline double differ(sherd_tensor *a, sherd_tensor *b)
{
    size_t bytes = (size_t)sherd_tensor_count(a) * sizeof(double);
    double *x = malloc(bytes + 1), *y = malloc(bytes + 1), most = 0;
    bool good = CHECK(x && y) && CHECK(sherd_full_read(x, bytes, a, SHERD_F64, -1)) &&
                CHECK(sherd_full_read(y, bytes, b, SHERD_F64, -1));

    for (int64_t i = 0; good && i < sherd_tensor_count(a); i++)
        most = x[i] == y[i] ? most : fmax(most, isnan(x[i] - y[i]) ? INFINITY : fabs(x[i] - y[i]));
    free(x);
    free(y);
    return good ? most : INFINITY;
}

#endif
