/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers that norms compute, in f64 whatever the dtype of elements: memory for them, and
 * combining moments.
 */
#include "norms.h"

#include <string.h>

#include "base/saturate.h"
#include "kernels/cast.h"

double *sherd__norm_room(sherd_call *call, int64_t n)
{
    int64_t bytes = sherd__times(sherd__max(n, 1), sizeof(double));
    double *numbers = sherd_call_scratch(call, bytes);

    if (numbers && !sherd__is_dry(call->world))
        memset(numbers, 0, (size_t)bytes);
    return numbers;
}

double *sherd__norm_read(sherd_call *call, int operand, int64_t n, double value)
{
    const sherd_tensor *t = call->in[operand];
    double *numbers = sherd__norm_room(call, n);

    if (sherd__is_dry(call->world))
        return numbers;
    if (numbers && t)
        sherd__cast(SHERD_F64, t->dtype, n, numbers, call->from[operand]);
    for (int64_t i = 0; numbers && !t && i < n; i++)
        numbers[i] = value;
    return numbers;
}

void sherd__norm_write(sherd_call *call, int result, int64_t n, const double *numbers)
{
    if (call->to[result])
        sherd__cast(call->out[result]->dtype, SHERD_F64, n, call->to[result], numbers);
}

enum { COUNT, CENTRE, SQUARES };

void sherd__join_moments(double *to, const double *from)
{
    double n = to[COUNT] + from[COUNT], apart = from[CENTRE] - to[CENTRE];

    if (from[COUNT] == 0)
        return;
    to[CENTRE] += to[COUNT] == 0 ? from[CENTRE] : apart * (from[COUNT] / n);
    to[SQUARES] += from[SQUARES];
    if (to[COUNT] != 0)
        to[SQUARES] += apart * apart * (to[COUNT] * (from[COUNT] / n));
    to[COUNT] = n;
}

double sherd__norm_together(const sherd_tensor *x, int64_t groups)
{
    double n = groups ? (double)(x->shape[1] / groups) : (double)x->shape[0];

    for (int d = 2; d < x->ndim; d++)
        n *= (double)x->shape[d];
    return n;
}
