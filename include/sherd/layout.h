/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layout says which elements of a tensor each rank holds: mesh + global shape + one placement per
 * mesh axis + shard order + cuts. It has no dtype.
 *
 * Each dim is sharded by an ordered list of mesh axes, outermost first; the list may be empty. The
 * *cuts* of a dim, 0 = c[0] <= ... <= c[p] = n, are the boundaries between its p shards, where p is
 * the product of the extents of these axes. The coordinates of a rank on these axes, read as digits
 * of a mixed-radix number in that order, are the number i of its shard, and it holds the indices
 * [c[i], c[i+1]). This one rule covers even, uneven, nested, reordered and empty shards.
 *
 * Default cuts are those of torch.chunk, axis by axis in shard order: an interval of n indices is
 * split into pieces of ceil(n/p), of which the last ones may be short or empty. Explicit cuts that
 * equal the default ones give the same layout.
 *
 * An axis that shards no dim either replicates the tensor or holds a *pending reduction* (PyTorch:
 * Partial): each rank of the axis has an addend, and the tensor is their sum (or average, minimum,
 * maximum, product). Carrying out a pending reduction is called *settling* it.
 *
 * Layouts are immutable and interned: equal layouts are the same pointer. A layout belongs to the
 * scope in which it is created (tensor.h; the outermost scope ends with the world), and is released
 * when that scope ends. It stays valid as long as it is retained or in use: a tensor keeps its
 * layout, a plan those of its steps.
 *
 * As text, a layout is written `[4096(x,y),4096] on (x=2,y=4)`; with explicit cuts, as sizes of the
 * shards, `[10(x:4,6)] on (x=2)`; with a pending sum `[8(x),8] P(sum:y) on (x=2,y=2)`. Placements
 * alone, one for each axis of the mesh, are written `S(0)P(sum)R`; with a shard order, as PyTorch
 * writes it, `S(0)[1]S(0)[0]R`.
 *
 *     const int64_t shape[] = {4096, 1024};
 *     const sherd_placement how[] = {sherd_shard(0), sherd_replicate()}; // of axes dp and tp
 *     const sherd_layout *layout;
 *     if (sherd_layout_create(&layout, mesh, 2, shape, how, NULL)) // mesh: dp=2,tp=4
 *         return 1;
 *     puts(sherd_layout_text(layout)); // [4096(dp),1024] on (dp=2,tp=4)
 *
 * The same from text: of a shape on a mesh that there is, or with all that it has.
 *
 *     const int64_t shape[] = {4096, 1024};
 *     const sherd_layout *layout;
 *     if (sherd_layout_parse_placements(&layout, mesh, 2, shape, "S(0)R", NULL) ||
 *         sherd_layout_parse(&layout, world, "[4096(dp),1024] on (dp=2,tp=4)", NULL))
 *         return 1;
 */
#ifndef SHERD_LAYOUT_H
#define SHERD_LAYOUT_H

#include "dtype.h"
#include "mesh.h"

SHERD_BEGIN

typedef enum sherd_placement_kind {
    SHERD_UNSET = 0, /* the function that gets it chooses */
    SHERD_REPLICATE = 1,
    SHERD_SHARD = 2,
    SHERD_PARTIAL = 3
} sherd_placement_kind;

typedef enum sherd_reduce_op {
    SHERD_SUM = 0,
    SHERD_AVG = 1,
    SHERD_MIN = 2,
    SHERD_MAX = 3,
    SHERD_PRODUCT = 4
} sherd_reduce_op;

/* What one mesh axis does to a tensor. A plain value; all zero = unset. */
typedef struct sherd_placement {
    sherd_placement_kind kind;
    int dim;            /* SHERD_SHARD: the dim; a negative one counts from the end */
    sherd_reduce_op op; /* SHERD_PARTIAL: the reduction that is pending */
} sherd_placement;

/** The placement `R`: every rank of the axis holds the same. @local @errors none */
static inline sherd_placement sherd_replicate(void)
{
    sherd_placement p = {SHERD_REPLICATE, 0, SHERD_SUM};
    return p;
}

/** The placement `S(dim)`: every rank of the axis holds its part of the dim. @local @errors none */
static inline sherd_placement sherd_shard(int dim)
{
    sherd_placement p = {SHERD_SHARD, dim, SHERD_SUM};
    return p;
}

/** The placement `P(op)`: every rank of the axis holds an addend. @local @errors none */
static inline sherd_placement sherd_partial(sherd_reduce_op op)
{
    sherd_placement p = {SHERD_PARTIAL, 0, op};
    return p;
}

typedef struct sherd_layout sherd_layout;

typedef struct sherd_layout_options {
    /*
     * int[axes]: for each axis its position among the axes that shard the same dim, 0 = outermost;
     * NULL = in the order of the mesh.
     */
    const int *order;
    /*
     * [ndim]: for each dim the sizes of its shards, int64_t[shards], in shard order, which add up
     * to the dim; an entry, or the list, may be NULL = default cuts.
     */
    const int64_t *const *sizes;
} sherd_layout_options;

/**
 * Divide n positions into shards of equal work, for `sizes` in sherd_layout_options. The work of
 * position i, from 0, is linear + quadratic (i + 1), as in causal attention, where position i sees
 * i + 1 positions. Only the ratio of `linear` to `quadratic` matters: pass 0 and 1 for causal
 * attention alone; 2 w and 1 if the four products of width w around it count too; 6 w and 1 for a
 * whole transformer block of width w with a hidden layer of 4 w. If both are 0, all positions have
 * equal work.
 *
 * With W(x) = linear x + quadratic x (x + 1) / 2, the work of the first x positions, the i-th cut
 * is the x for which W(x) is nearest to W(n) i / shards. So the work of no shard differs from the
 * mean by more than that of the last position.
 *
 * @local
 * @shapes sizes: gets int64_t[shards], which add up to n; some are 0 if there are fewer positions
 *         than shards
 * @errors EINVAL a NULL, n < 0, shards < 1, a weight that is negative, infinite or NaN; then
 *         nothing is written
 */
SHERD_CALL sherd_status sherd_balanced_cuts(int64_t *sizes, int64_t n, int64_t shards,
                                            double linear, double quadratic);

/* A half-open rectangle of global indices. Only the first ndim entries are used. */
typedef struct sherd_box {
    int ndim;
    int64_t offset[SHERD_MAX_DIMS];
    int64_t size[SHERD_MAX_DIMS];
} sherd_box;

/**
 * Make a layout.
 *
 * @local
 * @shapes shape: int64_t[ndim], each >= 0; placements: sherd_placement[axes of mesh], unset =
 *         replicate; options: NULL = default order and cuts
 * @owns   *out belongs to the current scope; NULL on failure
 * @errors EINVAL a negative ndim or size, a dim out of range, an order that is not a permutation,
 *         sizes that do not add up, mixed reductions (only sum and avg may mix); ELIMIT too many
 *         dims, or a size of 2^62 or more; ENOMEM
 */
SHERD_CALL sherd_status sherd_layout_create(const sherd_layout **out, const sherd_mesh *mesh,
                                            int ndim, const int64_t *shape,
                                            const sherd_placement *placements,
                                            const sherd_layout_options *options);

/**
 * Make a layout from placements as text, for example "S(0)[1]S(0)[0]R", and cuts, for example
 * "0:4,6".
 *
 * @local
 * @shapes shape: int64_t[ndim]; cuts: NULL or "" = default
 * @owns   *out belongs to the current scope; NULL on failure
 * @errors EINVAL with the text, the column and what was expected; ENOTSUP a _S(dim,factor) that is
 *         not a shard order; otherwise as sherd_layout_create
 */
SHERD_CALL sherd_status sherd_layout_parse_placements(const sherd_layout **out,
                                                      const sherd_mesh *mesh, int ndim,
                                                      const int64_t *shape, const char *placements,
                                                      const char *cuts);

/**
 * Make a layout, and its mesh, from the full text, for example "f32[8(x),8] P(sum:y) on (x=2,y=2)".
 *
 * @collective the world, since it may make a mesh; local for a paper world
 * @shapes     dtype: NULL, or gets the dtype that the text begins with, SHERD_F32 if with none; the
 *             layout itself has none
 * @owns       *out belongs to the current scope; NULL on failure
 * @errors     EINVAL with the text, the column and what was expected; otherwise as
 *             sherd_mesh_create, sherd_layout_create
 */
SHERD_CALL sherd_status sherd_layout_parse(const sherd_layout **out, sherd_world *world,
                                           const char *text, sherd_dtype *dtype);

/**
 * The same layout with another placement on one axis. The other axes keep their placements, and
 * dims whose list of axes does not change keep their cuts. In a dim that gains the axis, the axis
 * becomes the innermost one: each present shard is split by the rule of default cuts.
 *
 * @local
 * @shapes mesh: the mesh of `layout` or a sub-mesh of it; axis: the number of one of its axes
 * @owns   *out belongs to the current scope; NULL on failure
 * @errors EINVAL no such axis, a dim out of range, mixed reductions; ENOMEM
 */
SHERD_CALL sherd_status sherd_layout_with(const sherd_layout **out, const sherd_layout *layout,
                                          const sherd_mesh *mesh, int axis,
                                          sherd_placement placement);

/**
 * Keep a layout beyond its scope; returns it.
 *
 * @local   @owns one more reference; each retain needs a release; NULL is a no-op   @errors none
 */
SHERD_API const sherd_layout *sherd_layout_retain(const sherd_layout *layout);

/**
 * Release a retained layout; it is freed when nothing uses it any more.
 *
 * @local   @owns one reference less; NULL is a no-op   @errors none
 */
SHERD_API void sherd_layout_release(const sherd_layout *layout);

/** The mesh; never a sub-mesh. @local @owns borrowed from the world @errors none */
SHERD_API const sherd_mesh *sherd_layout_mesh(const sherd_layout *layout);

/** How many dims the tensor has. @local @errors none */
SHERD_API int sherd_layout_ndim(const sherd_layout *layout);

/** Global shape, int64_t[ndim]. @local @owns borrowed from the layout @errors none */
SHERD_API const int64_t *sherd_layout_shape(const sherd_layout *layout);

/**
 * The placement on an axis of the layout's mesh; SHERD_REPLICATE if there is no such axis.
 *
 * @local   @errors none
 */
SHERD_API sherd_placement sherd_layout_placement(const sherd_layout *layout, int axis);

/** How many axes shard a dim; 0 if none does or there is no such dim. @local @errors none */
SHERD_API int sherd_layout_dim_axes(const sherd_layout *layout, int dim);

/**
 * The number of the i-th axis that shards a dim, i = 0 for the outermost; -1 if there is none.
 *
 * @local   @errors none
 */
SHERD_API int sherd_layout_dim_axis(const sherd_layout *layout, int dim, int i);

/**
 * The place of an axis in the shard order of its dim, as in sherd_layout_options: 0 = outermost.
 *
 * @local   @errors none; -1 if it shards no dim, or there is no such axis
 */
SHERD_API int sherd_layout_order(const sherd_layout *layout, int axis);

/**
 * How many shards a dim has, 1 if no axis shards it; 0 if there is no such dim.
 *
 * @local   @errors none
 */
SHERD_API int64_t sherd_layout_dim_shards(const sherd_layout *layout, int dim);

/**
 * The i-th cut of a dim: shard i holds the indices from cut i up to, not including, cut i + 1. Cut
 * 0 is 0, and cut sherd_layout_dim_shards() is the size of the dim.
 *
 * @local   @errors none; -1 if there is no such dim or boundary
 */
SHERD_API int64_t sherd_layout_dim_cut(const sherd_layout *layout, int dim, int64_t i);

/**
 * Whether a dim has other cuts than the default; they are then part of the layout's text. False if
 * there is no such dim.
 *
 * @local   @errors none
 */
SHERD_API bool sherd_layout_dim_has_cuts(const sherd_layout *layout, int dim);

/**
 * How many boxes a rank of the world holds: 1, or 0 if it is not in the mesh.
 *
 * @local   @errors none
 */
SHERD_API int sherd_layout_boxes(const sherd_layout *layout, int rank);

/**
 * The i-th box that a rank of the world holds. In a dim with an empty shard, offset is the cut
 * where the shard would begin.
 *
 * @local   @errors none; an empty box at 0 if there is no such box
 */
SHERD_API sherd_box sherd_layout_box(const sherd_layout *layout, int rank, int i);

/**
 * The full text without dtype, as in sherd_layout_parse.
 *
 * @local   @owns borrowed from the layout   @errors none
 */
SHERD_API const char *sherd_layout_text(const sherd_layout *layout);

/**
 * The placements alone, as in sherd_layout_parse_placements.
 *
 * @local   @owns borrowed from the layout   @errors none
 */
SHERD_API const char *sherd_layout_placements(const sherd_layout *layout);

SHERD_END

#endif
