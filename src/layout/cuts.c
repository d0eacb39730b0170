/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts of one dim: intervals, comparison, merging and refining. Default cuts are torch's chunks
 * nested in shard order; they are computed for one shard at a time and written out only on request,
 * so a dim sharded over a million ranks costs nothing. The cost of explicit cuts is proportional to
 * their number.
 */
#include "layout.h"
#include "base/num.h"

void sherd__chunk(int64_t n, int64_t p, int64_t i, int64_t *lo, int64_t *hi)
{
    int64_t piece = sherd__ceil_div(n, p);

    *lo = sherd__min(piece * i, n);
    *hi = sherd__min(*lo + piece, n);
}

/* Product of the extents of a dim's first `depth` axes. */
static int64_t parts_at(const sherd_mesh *mesh, const sherd__dim *dim, int depth)
{
    int64_t parts = 1;

    for (int i = 0; i < depth; i++)
        parts *= mesh->extent[dim->axis[i]];
    return parts;
}

int64_t sherd__dim_parts(const sherd_mesh *mesh, const sherd__dim *dim)
{
    return parts_at(mesh, dim, dim->axes);
}

int64_t sherd__dim_shard(const sherd_mesh *mesh, const sherd__dim *dim, const int64_t *coordinate)
{
    int64_t shard = 0;

    for (int i = 0; i < dim->axes; i++)
        shard = shard * mesh->extent[dim->axis[i]] + coordinate[dim->axis[i]];
    return shard;
}

void sherd__dim_place(const sherd_mesh *mesh, const sherd__dim *dim, int64_t shard,
                      int64_t *coordinate)
{
    for (int i = dim->axes - 1; i >= 0; i--) {
        int64_t extent = mesh->extent[dim->axis[i]];
        coordinate[dim->axis[i]] = shard % extent;
        shard /= extent;
    }
}

int64_t sherd__dim_longest(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n)
{
    int64_t parts = sherd__dim_parts(mesh, dim), longest = 0;

    if (!dim->cuts) /* that of shard 0; nested roundings up are one */
        return sherd__ceil_div(n, parts);
    for (int64_t i = 0; i < parts; i++)
        longest = sherd__max(longest, dim->cuts[i + 1] - dim->cuts[i]);
    return longest;
}

/* Coordinates of shard `number` on axes [first, end) of a dim, indexed by place in the list. */
static void digits_of(const sherd_mesh *mesh, const sherd__dim *dim, int first, int end,
                      int64_t number, int64_t *digit)
{
    for (int i = end - 1; i >= first; i--) {
        int64_t extent = mesh->extent[dim->axis[i]];
        digit[i] = number % extent;
        number /= extent;
    }
}

/*
 * Cut [*lo, *hi) by the chunk rule along axes [first, end) of a dim, and keep the piece of these
 * digits.
 */
static void nest(const sherd_mesh *mesh, const sherd__dim *dim, int first, int end,
                 const int64_t *digit, int64_t *lo, int64_t *hi)
{
    for (int i = first; i < end; i++) {
        int64_t a, b;
        sherd__chunk(*hi - *lo, mesh->extent[dim->axis[i]], digit[i], &a, &b);
        *hi = *lo + b;
        *lo += a;
    }
}

void sherd__dim_interval(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n,
                         const int64_t *coordinate, int64_t *lo, int64_t *hi)
{
    if (dim->cuts) {
        int64_t number = sherd__dim_shard(mesh, dim, coordinate);
        *lo = dim->cuts[number];
        *hi = dim->cuts[number + 1];
        return;
    }
    int64_t digit[SHERD_MAX_AXES];
    for (int i = 0; i < dim->axes; i++)
        digit[i] = coordinate[dim->axis[i]];
    *lo = 0;
    *hi = n;
    nest(mesh, dim, 0, dim->axes, digit, lo, hi);
}

/* Interval of shard `number` when the shards below the first `depth` axes are merged. */
static void merged_interval(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n, int depth,
                            int64_t number, int64_t *lo, int64_t *hi)
{
    if (dim->cuts) {
        int64_t below = sherd__dim_parts(mesh, dim) / parts_at(mesh, dim, depth);
        *lo = dim->cuts[number * below];
        *hi = dim->cuts[(number + 1) * below];
        return;
    }
    int64_t digit[SHERD_MAX_AXES];
    digits_of(mesh, dim, 0, depth, number, digit);
    *lo = 0;
    *hi = n;
    nest(mesh, dim, 0, depth, digit, lo, hi);
}

/* Whether the merged cuts of two dims with the same first `depth` axes are equal. */
static bool merged_equal(const sherd_mesh *mesh, const sherd__dim *a, const sherd__dim *b,
                         int64_t n, int depth)
{
    int64_t parts = parts_at(mesh, a, depth);

    if (!a->cuts && !b->cuts)
        return true;
    for (int64_t i = 0; i < parts; i++) {
        int64_t lo, hi, lo2, hi2;
        merged_interval(mesh, a, n, depth, i, &lo, &hi);
        merged_interval(mesh, b, n, depth, i, &lo2, &hi2);
        if (hi != hi2)
            return false;
    }
    return true;
}

int sherd__dim_shared(const sherd__dim *a, const sherd__dim *b)
{
    int i = 0;

    while (i < a->axes && i < b->axes && a->axis[i] == b->axis[i])
        i++;
    return i;
}

bool sherd__dim_alike(const sherd__dim *a, const sherd__dim *b)
{
    return a->axes == b->axes && sherd__dim_shared(a, b) == a->axes;
}

bool sherd__dim_equal(const sherd_mesh *mesh, const sherd__dim *a, const sherd__dim *b, int64_t n)
{
    return sherd__dim_alike(a, b) && merged_equal(mesh, a, b, n, a->axes);
}

/*
 * Equal cuts at a depth are equal at every smaller depth too, so the first hit from below is the
 * answer.
 */
int sherd__dim_common(const sherd_mesh *mesh, const sherd__dim *a, const sherd__dim *b, int64_t n)
{
    int depth = sherd__dim_shared(a, b);

    while (depth > 0 && !merged_equal(mesh, a, b, n, depth))
        depth--;
    return depth;
}

void sherd__dim_refine(const sherd_mesh *mesh, const sherd__dim *from, int keep,
                       const sherd__dim *to, int64_t n, int64_t *cuts)
{
    int64_t parts = sherd__dim_parts(mesh, to);
    int64_t below = parts / parts_at(mesh, to, keep);
    int64_t digit[SHERD_MAX_AXES];

    cuts[0] = 0;
    for (int64_t i = 0; i < parts; i++) {
        int64_t lo, hi;
        merged_interval(mesh, from, n, keep, i / below, &lo, &hi);
        digits_of(mesh, to, keep, to->axes, i % below, digit);
        nest(mesh, to, keep, to->axes, digit, &lo, &hi);
        cuts[i + 1] = hi;
    }
}

int64_t sherd__dim_cut(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n, int64_t i)
{
    int64_t lo, hi = 0;

    if (i > 0)
        merged_interval(mesh, dim, n, dim->axes, i - 1, &lo, &hi);
    return hi;
}

void sherd__dim_cuts(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n, int64_t *cuts)
{
    sherd__dim_refine(mesh, dim, dim->axes, dim, n, cuts);
}

void sherd__dim_spans(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n, int64_t *spans)
{
    int64_t parts = sherd__dim_parts(mesh, dim);

    for (int64_t i = 0; i < parts; i++)
        merged_interval(mesh, dim, n, dim->axes, i, &spans[2 * i], &spans[2 * i + 1]);
}
