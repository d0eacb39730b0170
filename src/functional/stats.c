/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few numbers per position instead of logits: each rank that holds classes computes them for its
 * positions, and one call gives those of all classes to all ranks that hold these positions. A
 * tensor [parts,numbers,positions...], one part per rank, whose first dim is gathered.
 */
#include "stats.h"

#include <string.h>

/* One part on each rank that holds classes, or all parts on all. */
static sherd_status stats_layout(const sherd_layout **out, const sherd_layout *logits,
                                 int64_t numbers, bool all)
{
    int positions = logits->spec.ndim - 1;
    const sherd__dim *classes = &logits->spec.dim[positions];
    sherd__layout_spec spec = {.mesh = logits->spec.mesh, .ndim = positions + 2};

    memcpy(spec.pending, logits->spec.pending, sizeof spec.pending);
    spec.shape[0] = sherd__dim_parts(spec.mesh, classes);
    spec.shape[1] = numbers;
    for (int d = 0; d < positions; d++) {
        spec.shape[d + 2] = logits->spec.shape[d];
        spec.dim[d + 2] = logits->spec.dim[d];
    }
    if (!all) {
        spec.dim[0] = *classes;
        spec.dim[0].cuts = NULL; /* as many shards as parts: one each */
    }
    return sherd__layout_intern(out, &spec);
}

sherd_tensor *sherd__new_stats(sherd_call *call, int numbers, int64_t rows, bool there)
{
    const sherd_tensor *logits = call->in[0];
    sherd_dtype dtype = sherd__statistics_dtype(logits->dtype);
    const sherd_layout *layout;
    int64_t shape[] = {numbers, rows};

    sherd__open_in(call);
    if (!logits->layout)
        return sherd__new_plain_there(call->world, dtype, 2, shape, logits->varies, there);
    if (stats_layout(&layout, logits->layout, numbers, false) != SHERD_OK)
        return sherd__fail_diag(call->world, true);
    return sherd__new_on_there(layout, dtype, there);
}

sherd_tensor *sherd__gather_stats(sherd_tensor *stats, const sherd_layout *logits)
{
    const sherd_layout *layout;

    if (!logits)
        return stats;
    if (stats_layout(&layout, logits, stats->shape[1], true) != SHERD_OK)
        return sherd__fail_diag(stats->world, true);
    return sherd__move_to(stats, layout, false);
}

int64_t sherd__stats_parts(const sherd_tensor *all, const sherd_layout *logits)
{
    return logits ? all->local[0] : 1;
}
