/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts that give shards equal work when later positions cost more. Uses integer and basic
 * floating-point arithmetic only, no functions of the system's math library, so all ranks compute
 * the same cuts.
 */
#include "sherd/layout.h"

typedef struct work {
    double linear, quadratic;
} work;

/* The work of the first x positions. */
static double work_of(const work *w, int64_t x)
{
    return (w->linear + w->quadratic * 0.5 * ((double)x + 1)) * (double)x;
}

/* The position in [lo, hi] for which the work before it is nearest to `wanted`. */
static int64_t cut_at(const work *w, double wanted, int64_t lo, int64_t hi)
{
    while (hi - lo > 1) {
        int64_t middle = lo + (hi - lo) / 2;
        if (work_of(w, middle) <= wanted)
            lo = middle;
        else
            hi = middle;
    }
    return wanted - work_of(w, lo) <= work_of(w, hi) - wanted ? lo : hi;
}

static bool is_weight(double x)
{
    return x >= 0 && x - x == 0;
}

sherd_status sherd_balanced_cuts(int64_t *sizes, int64_t n, int64_t shards, double linear,
                                 double quadratic)
{
    work w = {linear, quadratic};
    int64_t before = 0;

    if (!sizes || n < 0 || shards < 1 || !is_weight(linear) || !is_weight(quadratic))
        return SHERD_EINVAL;
    if (linear == 0 && quadratic == 0)
        w.linear = 1;
    double larger = w.linear > w.quadratic ? w.linear : w.quadratic;
    w = (work){w.linear / larger, w.quadratic / larger};
    for (int64_t i = 0; i < shards; i++) {
        double wanted = work_of(&w, n) * ((double)(i + 1) / (double)shards);
        int64_t cut = i + 1 == shards ? n : cut_at(&w, wanted, before, n);
        sizes[i] = cut - before;
        before = cut;
    }
    return SHERD_OK;
}
