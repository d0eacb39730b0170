/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learning-rate schedules: factors for the learning rate, which depend only on the number of the
 * step, from 0; so a resumed run goes on as it would have. They can be multiplied: rate = 3e-4 *
 * sherd_schedule_warmup(step, 100) * sherd_schedule_cosine(step, 10000, 0.1).
 */
#ifndef SHERD_SCHEDULE_H
#define SHERD_SCHEDULE_H

#include "status.h"

SHERD_BEGIN

/** `factor` in the first `steps` steps, then 1. @local @errors none */
SHERD_API double sherd_schedule_constant(int64_t step, int64_t steps, double factor);
/** (step + 1) / steps, at most 1. @local @errors none */
SHERD_API double sherd_schedule_warmup(int64_t step, int64_t steps);

/**
 * A line from `first` at step 0 to `last` at `steps`, constant from there on.
 *
 * @local   @errors none
 */
SHERD_API double sherd_schedule_linear(int64_t step, int64_t steps, double first, double last);

/**
 * Half a cosine from 1 at step 0 to `last` at `steps`, constant from there on.
 *
 * @local   @errors none
 */
SHERD_API double sherd_schedule_cosine(int64_t step, int64_t steps, double last);

/** `factor` to the power of floor(step / every). @local @errors none; 1 if `every` < 1 */
SHERD_API double sherd_schedule_step(int64_t step, int64_t every, double factor);
/** `factor` to the power of the step. @local @errors none */
SHERD_API double sherd_schedule_exponential(int64_t step, double factor);

SHERD_END

#endif
