/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many elements a direct move receives, sends and holds, on the worst rank and in all; exact,
 * from walks over points that stand for many ranks (pieces.h). Replicas, common axes, and axes that
 * affect lengths only cost next to nothing; exchanging partitions of a dim into p and q shards
 * costs p + q points. So some microseconds on small meshes, tens of them for 1,024 x 1,024 ranks
 * that swap two dims. Explicit cuts cost their lists' length. Allocates nothing and cannot fail.
 */
#include "front.h"
#include "base/num.h"

#include <string.h>

/* ---- totals --------------------------------------------------------------------------------- */

static void add_kept(sherd__sweep *w, int64_t times)
{
    sherd__wide *sum = w->what;
    int64_t kept = 1;

    for (int d = 0; d < w->grid->ndim; d++)
        if (w->component->dims >> d & 1)
            kept *= sherd__min(w->mine[d].hi, w->inner[d].hi) -
                    sherd__max(w->mine[d].lo, w->inner[d].lo);
    *sum += (sherd__wide)kept * times;
}

/* Sum over ranks, replicas counted once, of what a rank holds of its target already. */
static sherd__wide find_kept(const sherd__grid *grid)
{
    sherd__wide kept = 1;

    for (int d = 0; d < grid->ndim; d++)
        if (grid->dim[d].axes == 0)
            kept *= grid->dim[d].n;
    for (int i = 0; i < grid->components; i++) {
        sherd__wide sum = 0;
        sherd__sweep w = {.grid = grid,
                          .component = &grid->component[i],
                          .near = SHERD__TARGET,
                          .leaf = add_kept,
                          .what = &sum};
        sherd__sweep_run(&w);
        kept *= sum;
    }
    return kept;
}

static unsigned listed_axes(const sherd__dim *dim, int ndim)
{
    unsigned bits = 0;

    for (int d = 0; d < ndim; d++)
        for (int i = 0; i < dim[d].axes; i++)
            bits |= 1u << dim[d].axis[i];
    return bits;
}

/*
 * With k addends of an element and T ranks that want the sum, any way to move them sends at least
 * one last message to each of the T, and k - 1 more to bring the addends together, one less where
 * a target rank holds an addend. Axes that stay pending repeat the problem.
 */
static void find_totals(const sherd__grid *grid, const sherd__change *change, sherd__amounts *out)
{
    unsigned all = (1u << change->mesh->axes) - 1;
    unsigned targets = listed_axes(change->target, change->ndim);
    unsigned sources = listed_axes(change->source, change->ndim);
    sherd__wide n = 1, kept = find_kept(grid);

    for (int d = 0; d < change->ndim; d++)
        n *= grid->dim[d].n;
    sherd__wide kept_total = kept * sherd__extent_of(change->mesh, all & ~(targets | sources));
    sherd__wide target_total = n * sherd__extent_of(change->mesh, all & ~targets);
    out->target_total = sherd__cut(target_total);
    out->receive_total = sherd__cut(target_total * change->addends - kept_total);
    out->bound_total = out->receive_total;
    if (change->reduced == 0)
        return;
    int64_t wanted = sherd__extent_of(change->mesh, all & ~targets & ~change->pending);
    out->bound_total = sherd__cut((n * (change->addends - 1 + wanted) - kept) *
                                  sherd__extent_of(change->mesh, change->pending));
}

int64_t sherd__received_total(const sherd__change *change, const int64_t *shape)
{
    sherd__grid grid;
    sherd__amounts totals;

    sherd__grid_make(&grid, change, shape);
    find_totals(&grid, change, &totals);
    return totals.receive_total;
}

/* ---- maxima --------------------------------------------------------------------------------- */

static int64_t largest_box(const sherd__grid *grid, int side)
{
    int64_t n = 1;

    for (int d = 0; d < grid->ndim; d++)
        n *= grid->dim[d].side[side].longest;
    return n;
}

/* With default cuts the first rank has the longest shard of every dim, before and after. */
static int64_t both_boxes(const sherd__grid *grid, const sherd__amounts *amounts)
{
    bool listed = false;

    for (int d = 0; d < grid->ndim; d++)
        listed = listed || grid->dim[d].cuts;
    if (!listed)
        return sherd__add_cut(amounts->source_max, amounts->target_max);
    const sherd__question both = {grid, SHERD__BOTH_BOXES, SHERD__TARGET, 0, 0};
    return sherd__most(&both, 1);
}

/* Nothing travels across axes of the target only; a group asks once for each of its other ranks. */
static void find_maxima(const sherd__grid *grid, const sherd__change *change, sherd__amounts *out)
{
    unsigned crossed = change->gathered | change->reduced;
    const sherd__question receives = {grid, SHERD__ELEMENTS, SHERD__TARGET, crossed, 0};
    const sherd__question sends = {grid, SHERD__ELEMENTS, SHERD__SOURCE, crossed, 0};

    out->source_max = largest_box(grid, SHERD__SOURCE);
    out->target_max = largest_box(grid, SHERD__TARGET);
    out->both_max = both_boxes(grid, out);
    if (crossed == 0)
        return;
    out->receive_max = sherd__most(&receives, change->addends);
    out->send_max = sherd__most(&sends, sherd__extent_of(change->mesh, crossed & ~change->cut));
}

void sherd__amounts_find(sherd__amounts *out, const sherd__change *change, const int64_t *shape)
{
    sherd__grid grid;

    memset(out, 0, sizeof *out);
    sherd__grid_make(&grid, change, shape);
    find_totals(&grid, change, out);
    find_maxima(&grid, change, out);
}
