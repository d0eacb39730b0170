/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts of queries, keys and values in neighbourhood attention, and which intervals they read:
 * pure, and equal on all ranks. Queries are not moved. Keys and values are not moved if windows of
 * them can be asked for, by the axes that shard queries, or if they are not sharded; otherwise they
 * are sharded like the queries.
 */
#include "neighbours.h"

#include "apply/sketch.h"

/* ---- intervals ------------------------------------------------------------------------------- */

/*
 * Positions with the same remainder by the dilation form one row, in which neighbours are adjacent,
 * and windows move with positions. So the first and the last position of each row determine the
 * interval: at most as many rows as the dilation.
 */
void sherd__neighbours_keys(int64_t n, int64_t kernel, int64_t dilation, int64_t lo, int64_t hi,
                            int64_t *first, int64_t *end)
{
    *first = n;
    *end = 0;
    for (int64_t i = lo; i < hi && i < lo + dilation; i++)
        *first = sherd__min(*first, sherd__first_neighbour(n, kernel, dilation, i));
    for (int64_t i = sherd__max(lo, hi - dilation); i < hi; i++)
        *end = sherd__max(*end, sherd__first_neighbour(n, kernel, dilation, i) +
                                    (kernel - 1) * dilation + 1);
}

void sherd__neighbours_queries(int64_t n, int64_t kernel, int64_t dilation, int64_t lo, int64_t hi,
                               int64_t *first, int64_t *end)
{
    *first = n;
    *end = 0;
    for (int64_t j = lo; j < hi && j < lo + dilation; j++) {
        int64_t at = j / dilation, from = at < kernel ? 0 : at - kernel / 2;
        *first = sherd__min(*first, from * dilation + j % dilation);
    }
    for (int64_t j = sherd__max(lo, hi - dilation); j < hi; j++) {
        int64_t at = j / dilation, alike = (n - j % dilation + dilation - 1) / dilation;
        int64_t last = at >= alike - kernel ? alike - 1 : at + kernel / 2;
        *end = sherd__max(*end, last * dilation + j % dilation + 1);
    }
}

/* ---- layouts --------------------------------------------------------------------------------- */

static void settle(sherd__layout_spec *spec)
{
    sherd__spec_settle(spec);
    spec->dim[spec->ndim - 1] = (sherd__dim){0}; /* width */
}

static unsigned used_in(const sherd__layout_spec *spec)
{
    unsigned bits = 0;

    for (int d = 0; d < spec->ndim; d++)
        bits |= sherd__dim_bits(&spec->dim[d]);
    return bits;
}

/*
 * Dims of q that are not sharded are sharded as in k or v, if the axes are free: that is a slice.
 */
static sherd_status lie_queries(const sherd_layout **out, const sherd_ways *ways, int q)
{
    sherd__layout_spec spec = sherd__way_given(ways, q)->spec;

    settle(&spec);
    for (int i = q + 1; i <= q + 2; i++) {
        const sherd__layout_spec *other = &sherd__way_given(ways, i)->spec;
        for (int d = 0; d + 1 < spec.ndim; d++)
            if (!spec.dim[d].axes && !(sherd__dim_bits(&other->dim[d]) & used_in(&spec)))
                spec.dim[d] = other->dim[d];
    }
    return sherd__layout_intern(out, &spec);
}

static sherd_status lie_keys(const sherd_layout **out, const sherd_layout *q,
                             const sherd_layout *given)
{
    sherd__layout_spec spec = given->spec;

    settle(&spec);
    for (int d = 0; d + 1 < spec.ndim; d++) {
        const sherd__dim *queries = &q->spec.dim[d];
        bool whole = !spec.dim[d].axes &&
                     !((used_in(&given->spec) | given->pending_axes) & sherd__dim_bits(queries));
        if (!whole && !sherd__dim_alike(&spec.dim[d], queries))
            spec.dim[d] = *queries;
    }
    return sherd__layout_intern(out, &spec);
}

sherd_status sherd__neighbours_lie(sherd__neighbours_lying *out, const sherd_ways *ways, int q)
{
    sherd_status status = lie_queries(&out->q, ways, q);

    if (!status)
        status = lie_keys(&out->k, out->q, sherd__way_given(ways, q + 1));
    if (!status)
        status = lie_keys(&out->v, out->q, sherd__way_given(ways, q + 2));
    if (status)
        return status;
    sherd__layout_spec sum = out->q->spec;
    sum.ndim--;
    return sherd__layout_intern(&out->sum, &sum);
}
