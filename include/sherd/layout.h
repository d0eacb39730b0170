/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layout says which elements of a tensor each rank holds: mesh + global shape + one placement per
 * mesh axis + shard order + cuts. It has no dtype.
 *
 * For each dim, an ordered list of axes shards it (outermost first), and its *cuts* 0 = c[0] <= ...
 * <= c[p] = n are the boundaries between its p shards (p = the product of those axes' extents). A
 * rank's shard number is the mixed-radix number of its coordinates in that order; its interval is
 * [c[i], c[i+1]). This one rule covers even, uneven, nested, reordered and empty shards. Default
 * cuts are torch's chunks, nested in shard order: each interval is split into pieces of ceil(n/p),
 * of which the last may be short or empty. Explicit cuts that equal the default ones *are* the
 * default.
 *
 * An axis that shards no dim either replicates the tensor or holds a *pending reduction* (PyTorch:
 * Partial): each rank of the axis has an addend, and the tensor is their sum (or average, minimum,
 * maximum, product). Carrying out a pending reduction is called *settling* it.
 *
 * Layouts are immutable and interned: equal layouts are the same pointer. A new layout belongs to
 * the current scope (tensor.h) and is released when the scope ends; the outermost scope ends with
 * the world. It stays alive as long as it is retained or in use: a tensor keeps its layout, a plan
 * keeps those of its steps.
 *
 * Text: `[4096(x,y),4096] on (x=2,y=4)`; cuts as sizes `[10(x:4,6)]`; a pending sum `[8(x),8]
 * P(sum:y) on (x=2,y=2)`. Placements alone, one per axis: `S(0)P(sum)R`; with a shard order, as
 * PyTorch writes it, `S(0)[1]S(0)[0]R`.
 */
#ifndef SHERD_LAYOUT_H
#define SHERD_LAYOUT_H

#include "mesh.h"

SHERD_BEGIN

typedef enum sherd_placement_kind {
    SHERD_UNSET = 0, /* the default of the function that reads it */
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
    int dim;            /* of SHERD_SHARD; negative counts from the end */
    sherd_reduce_op op; /* of SHERD_PARTIAL */
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
    /* int[axes]: position of the axis in its dim's shard order, 0 outermost; NULL = mesh order */
    const int *order;
    /* [ndim]: sizes of the dim's shards in shard order, adding up to the dim; NULL = default */
    const int64_t *const *sizes;
} sherd_layout_options;

/**
 * Sizes of `shards` shards of n positions with equal work each, for sherd_layout_options. Position
 * i, from 0, costs linear + quadratic (i + 1), as in causal attention, where position i sees i + 1
 * positions. Only the ratio of the two weights matters: 0 and 1 for causal attention alone, 2 w and
 * 1 with the four products of width w around it, 6 w and 1 for a block with a hidden layer of 4 w
 * as well. Both 0 means linear.
 *
 * With W(x) = linear x + quadratic x (x + 1) / 2, the i-th cut is the x whose W(x) is nearest to
 * W(n) i / shards. So no shard differs from the mean by more than the work of the last position.
 *
 * @local
 * @shapes sizes: int64_t[shards], which add up to n; some are 0 if there are fewer positions than
 *         shards
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
 * @shapes     dtype: where the text's dtype is stored (SHERD_F32 if it names none), or NULL
 * @owns       *out belongs to the current scope; NULL on failure
 * @errors     EINVAL with the text, the column and what was expected; otherwise as
 *             sherd_mesh_create, sherd_layout_create
 */
SHERD_CALL sherd_status sherd_layout_parse(const sherd_layout **out, sherd_world *world,
                                           const char *text, int *dtype);

/**
 * The same layout with another placement on one axis. All other axes stay as they are, and so do
 * the cuts of every dim whose list of axes does not change. A dim that gains the axis is cut by the
 * chunk rule within its present shards.
 *
 * @local
 * @shapes mesh, axis: the axis, of `layout`'s mesh or of a sub-mesh of it
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

/** The (root) mesh. @local @owns borrowed from the world @errors none */
SHERD_API const sherd_mesh *sherd_layout_mesh(const sherd_layout *layout);

/** How many dims. @local @errors none */
SHERD_API int sherd_layout_ndim(const sherd_layout *layout);

/** Global shape, int64_t[ndim]. @local @owns borrowed from the layout @errors none */
SHERD_API const int64_t *sherd_layout_shape(const sherd_layout *layout);

/**
 * The placement on an axis of the layout's mesh; replicate if there is no such axis.
 *
 * @local   @errors none
 */
SHERD_API sherd_placement sherd_layout_placement(const sherd_layout *layout, int axis);

/** How many axes shard a dim; 0 if none does or there is no such dim. @local @errors none */
SHERD_API int sherd_layout_dim_axes(const sherd_layout *layout, int dim);

/**
 * The i-th axis of the layout's mesh that shards a dim, 0 = the outermost; -1 if there is none.
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
 * The i-th boundary between the shards of a dim, from 0 (where i is 0) to the dim's size (where i
 * is the number of shards): shard i holds [cut i, cut i+1). Default cuts are computed, not stored.
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
 * How many boxes a rank holds: 1 today, 0 for a rank that is not in the mesh.
 *
 * @local   @errors none
 */
SHERD_API int sherd_layout_boxes(const sherd_layout *layout, int rank);

/**
 * The i-th box that a rank of the world holds. The offset of an empty shard is its cut.
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
