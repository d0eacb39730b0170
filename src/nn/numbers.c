/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers that ranks exchange: partial sums of norms and of inner products. All ranks get all of
 * them in one exchange of words, and each adds them up in the order of the ranks. A sum of powers
 * and a largest number are joined alike.
 */
#include "nn/numbers.h"
#include "world/words.h"

#include <math.h>
#include <string.h>

bool sherd__numbers_share(sherd_world *world, const sherd_mesh *mesh, const char *function,
                          const double *numbers, int count, double *all)
{
    int64_t mine[SHERD__NUMBERS], *words = (int64_t *)(void *)all;

    if (!mesh) {
        memcpy(all, numbers, (size_t)count * sizeof *all);
        return true;
    }
    memcpy(mine, numbers, (size_t)count * sizeof *mine);
    if (!sherd__share(world, mesh, function, mine, count, words))
        return false;
    for (int64_t i = 0; i < sherd_mesh_ranks(mesh) * count; i++) {
        double number = sherd__number_of(words[i]);
        memcpy(&all[i], &number, sizeof number);
    }
    return true;
}

bool sherd__norm_exists(sherd_world *world, const char *function, double p)
{
    if (p > 0)
        return true;
    sherd__raise(world, SHERD_EINVAL, "%s: p is %g: it must be positive (INFINITY: the largest)",
                 function, p);
    return false;
}

double sherd__norm_join(double p, double a, double b)
{
    return isinf(p) ? sherd__larger_number(a, b) : a + b;
}

double sherd__norm_of(double p, double joined)
{
    return p == 2 ? sqrt(joined) : p == 1 || isinf(p) ? joined : pow(joined, 1 / p);
}

double sherd__numbers_join(double p, const double *all, int64_t ranks, int count, int i)
{
    double joined = 0;

    for (int64_t r = 0; r < ranks; r++)
        joined = sherd__norm_join(p, joined, all[r * count + i]);
    return joined;
}
