/* SPDX-License-Identifier: Apache-2.0 */
/* Learning-rate schedules: factors that depend only on the step. */
#include <math.h>

#include "sherd/optimizer.h"

static const double pi = 3.14159265358979323846;

/* The fraction of the steps that are done, in [0, 1]. */
static double done(int64_t step, int64_t steps)
{
    if (step >= steps)
        return 1;
    return step > 0 ? (double)step / (double)steps : 0;
}

double sherd_schedule_constant(int64_t step, int64_t steps, double factor)
{
    return step < steps ? factor : 1;
}

double sherd_schedule_warmup(int64_t step, int64_t steps)
{
    return done(step < INT64_MAX ? step + 1 : step, steps);
}

double sherd_schedule_linear(int64_t step, int64_t steps, double first, double last)
{
    return first + (last - first) * done(step, steps);
}

double sherd_schedule_cosine(int64_t step, int64_t steps, double last)
{
    return last + (1 - last) * 0.5 * (1 + cos(pi * done(step, steps)));
}

double sherd_schedule_step(int64_t step, int64_t every, double factor)
{
    return every > 0 && step > 0 ? pow(factor, (double)(step / every)) : 1;
}

double sherd_schedule_exponential(int64_t step, double factor)
{
    return step > 0 ? pow(factor, (double)step) : 1;
}
