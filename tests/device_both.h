/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests that run something twice in a world with a GPU: by the GPU's kernels, and by the CPU's,
 * which a handler below the tape brings back.
 */
#ifndef SHERD_TESTS_DEVICE_BOTH_H
#define SHERD_TESTS_DEVICE_BOTH_H

#include <sherd.h>

#include "modules.h"
#include "tensor/tensor.h"

/* Whether only the GPU has the contents. */
static inline bool only_there(const sherd_tensor *t)
{
    return t->count == 0 || (t->storage->there && !t->storage->here);
}

static inline void check_there(sherd_tensor *t, bool wanted, const char *name)
{
    if (wanted && t && !CHECK(only_there(t)))
        fprintf(stderr, "%s: %s\n", name, sherd_tensor_text(t));
}

static inline bool run_on_the_cpu(sherd_call *call, void *context)
{
    int *calls = context;

    ++*calls;
    return sherd_call_original(call);
}

/* From now on operators compute on the CPU, and *calls counts them; NULL: as before. */
static inline void compute_on_the_cpu(sherd_world *world, int *calls)
{
    const sherd_op_handler handler = {.run = run_on_the_cpu, .context = calls};

    for (int i = 0; sherd_op_at(i); i++)
        if (sherd_op_at(i)->on_device)
            CHECK_OK(sherd_op_override(world, sherd_op_at(i)->name, SHERD_BELOW_TAPE,
                                       calls ? &handler : NULL));
}

/* Relative to 1 and more. NaN is NaN, infinite is infinite. */
static inline void check_close(const double *a, const double *b, int64_t n, double tolerance,
                               const char *name, const char *placements, int which)
{
    double worst = 0;

    for (int64_t k = 0; k < n; k++)
        if (!(a[k] == b[k] || (isnan(a[k]) && isnan(b[k])))) {
            double apart = fabs(a[k] - b[k]) / (1 + fabs(b[k]));
            worst = apart > worst || isnan(apart) ? apart : worst;
        }
    if (!CHECK(worst <= tolerance))
        fprintf(stderr, "%s %s, %d: %g\n", name, placements, which, worst);
}

#endif
