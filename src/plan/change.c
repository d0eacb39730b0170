/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What differs between two layouts: which axes take part in a move, and how. Costs a few hundred
 * nanoseconds.
 */
#include "inside.h"

#include <string.h>

static unsigned axes_from(const sherd__dim *dim, int first)
{
    unsigned bits = 0;

    for (int i = first; i < dim->axes; i++)
        bits |= 1u << dim->axis[i];
    return bits;
}

int64_t sherd__extent_of(const sherd_mesh *mesh, unsigned axes)
{
    int64_t count = 1;

    for (int i = 0; i < mesh->axes; i++)
        if (axes >> i & 1)
            count *= mesh->extent[i];
    return count;
}

bool sherd__next(const sherd_mesh *mesh, unsigned axes, int64_t *coordinate)
{
    for (int i = mesh->axes - 1; i >= 0; i--) {
        if (!(axes >> i & 1))
            continue;
        if (++coordinate[i] < mesh->extent[i])
            return true;
        coordinate[i] = 0;
    }
    return false;
}

/* Sum and avg may mix: then all is added, and divided by the extents of the avg axes. */
static void find_reduction(sherd__change *change, const sherd_layout *from, const sherd_layout *to)
{
    unsigned average = 0;

    for (int i = 0; i < change->mesh->axes; i++) {
        int op = from->spec.pending[i];
        if (change->mesh->extent[i] == 1)
            continue;
        if (op < 0) {
            if (to->spec.pending[i] >= 0) {
                change->parted |= 1u << i;
                change->op = (sherd_reduce_op)to->spec.pending[i];
            }
            continue;
        }
        if (to->spec.pending[i] >= 0) {
            change->pending |= 1u << i;
            continue;
        }
        change->reduced |= 1u << i;
        if (op == SHERD_AVG)
            average |= 1u << i;
        else
            change->op = (sherd_reduce_op)op;
    }
    if (average)
        change->op = SHERD_AVG;
    change->addends = sherd__extent_of(change->mesh, change->reduced);
    change->divisor = (double)sherd__extent_of(change->mesh, average);
}

void sherd__change_find(sherd__change *change, const sherd_layout *from, const sherd_layout *to)
{
    const sherd_mesh *mesh = from->spec.mesh;

    memset(change, 0, sizeof *change);
    change->mesh = mesh;
    change->ndim = from->spec.ndim;
    for (int d = 0; d < change->ndim; d++) {
        change->source[d] = from->spec.dim[d];
        change->target[d] = to->spec.dim[d];
        sherd__dim_strip(mesh, &change->source[d]);
        sherd__dim_strip(mesh, &change->target[d]);
        int depth =
            sherd__dim_common(mesh, &change->source[d], &change->target[d], from->spec.shape[d]);
        change->common[d] = depth;
        change->gathered |= axes_from(&change->source[d], depth);
        change->cut |= axes_from(&change->target[d], depth);
    }
    find_reduction(change, from, to);
}

bool sherd__boxes_stay(const sherd__change *change)
{
    return change->gathered == 0 && change->cut == 0;
}

unsigned sherd__neutral_axes(const sherd__change *change, const sherd_layout *to)
{
    unsigned axes = 0;

    for (int i = 0; change->parted >> i; i++) {
        int op = to->spec.pending[i];
        if (op == SHERD_SUM || op == SHERD_PRODUCT)
            axes |= change->parted & 1u << i;
    }
    return axes;
}
