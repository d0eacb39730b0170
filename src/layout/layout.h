/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The layout room's own interface, and the arithmetic on layouts. Pure: nothing here communicates.
 */
#ifndef SHERD__LAYOUT_LAYOUT_H
#define SHERD__LAYOUT_LAYOUT_H

#include "base/text.h"
#include "mesh.h"
#include "sherd/dtype.h"

/* How one dim is sharded: by these axes, outermost first. */
typedef struct sherd__dim {
    int axes;
    int axis[SHERD_MAX_AXES];
    const int64_t *cuts; /* [parts + 1], or NULL = default (nested chunks) */
} sherd__dim;

/* What a layout is made of; a value to build new ones from. */
typedef struct sherd__layout_spec {
    const sherd_mesh *mesh; /* a root */
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
    sherd__dim dim[SHERD_MAX_DIMS];
    int pending[SHERD_MAX_AXES]; /* -1 = none, else a sherd_reduce_op */
} sherd__layout_spec;

/* What the rank of the space holds of a layout; nothing if it is not in the mesh. */
typedef struct sherd__holding {
    bool known;  /* the other members are set */
    bool inside; /* the rank is in the mesh */
    sherd_box box;
    int64_t count;
    int64_t stride[SHERD_MAX_DIMS]; /* row-major, elements; unset if count is 0 */
} sherd__holding;

/* It lives while it is counted or held by a scope, and for some time after that (space.h). */
struct sherd_layout {
    sherd__layout_spec spec; /* cuts that equal the default are NULL here */
    sherd__space *space;
    uint64_t hash;         /* of content */
    unsigned pending_axes; /* bits of axes with a pending reduction */
    unsigned shard_axes;   /* bits of axes that shard a dim */
    int64_t shards;        /* product of the extents of the axes that shard a dim */
    int64_t refs;
    bool held, idle;
    char *text;
    char *placements;
    /*
     * with pending axes replicated, counted; itself, not counted, if none is; NULL = not made yet
     */
    const sherd_layout *settled;
    sherd__holding holding;            /* see sherd__layout_holding */
    struct sherd__plan_entry *left_by; /* of search/: the last plan used from here, or NULL */
    sherd_layout *older, *newer;       /* while it is idle */
};

/* A layout is no longer counted or held (rest); it is again (wake). */
void sherd__layout_rest(sherd_layout *layout);
void sherd__layout_wake(sherd_layout *layout);

/* Set a counted pointer; both old and new value may be NULL. */
static inline void sherd__layout_set(const sherd_layout **at, const sherd_layout *to)
{
    sherd_layout *before = (sherd_layout *)(uintptr_t)*at, *after = (sherd_layout *)(uintptr_t)to;

    if (after && after->refs++ == 0 && after->idle)
        sherd__layout_wake(after);
    *at = to;
    if (before && --before->refs == 0 && !before->held)
        sherd__layout_rest(before);
}

/*
 * Intern the layout of a spec (cuts are copied); the current scope holds it. The spec must be well
 * formed, with each axis in one dim at most; otherwise EINVAL.
 */
sherd_status sherd__layout_intern(const sherd_layout **out, const sherd__layout_spec *spec);

/*
 * Arguments and errors as sherd_layout_parse, without the collective part: makes the mesh if need
 * be.
 */
sherd_status sherd__layout_read(const sherd_layout **out, sherd__space *space, const char *text,
                                int *dtype);

/* For reading a layout as text: the tensor that it is for. */
typedef struct sherd__target {
    const char *function;   /* for errors */
    const sherd_mesh *mesh; /* a sub-mesh: placements are those of its axes */
    sherd_dtype dtype;      /* the only one that the text may name */
    int ndim;
    const int64_t *shape;
    const sherd_layout *from; /* on that mesh; NULL = none */
} sherd__target;

/*
 * Read the target of a move: placements, "S(0)[1]S(0)[0]", with which a dim keeps the cuts of
 * `from` if the same axes shard it; placements and cuts, "S(0)R 0:4,6"; or dims, "[10(x:4,6),8]
 * P(sum:y)", where dtype and mesh may be given as in the full text of a layout. Local. Errors as
 * sherd_layout_parse_placements and sherd_layout_parse.
 */
sherd_status sherd__target_read(const sherd_layout **out, const sherd__target *target,
                                const char *text);

/*
 * The same layout with the cuts of `from`, on the same mesh, for all dims that the same axes shard.
 */
sherd_status sherd__layout_keep_cuts(const sherd_layout **out, const sherd_layout *layout,
                                     const sherd_layout *from);

/*
 * Read a shape, "8x16" or "scalar", into shape[SHERD_MAX_DIMS] and *ndim; read a dtype, "bf16".
 * Errors name `function` and the column: EINVAL; ELIMIT 2^62 elements or more.
 */
sherd_status sherd__shape_read(int64_t *shape, int *ndim, sherd__diag *diag, const char *function,
                               const char *text);
sherd_status sherd__dtype_read(sherd_dtype *out, sherd__diag *diag, const char *function,
                               const char *text);

/* The interned layout with every pending axis replicated. The current scope holds it. */
sherd_status sherd__layout_settle(const sherd_layout **out, const sherd_layout *layout);

/* "sum"; NULL for an unknown number. */
const char *sherd__reduce_op_name(sherd_reduce_op op);
/* Whether reductions by `a` and by `b` may be pending on different axes of one layout. */
bool sherd__reduce_ops_mix(sherd_reduce_op a, sherd_reduce_op b);
/* Whether two placements, neither unset, with dims counted from 0, are equal. */
bool sherd__placement_equal(sherd_placement a, sherd_placement b);

/* Nothing is pending on any axis. */
void sherd__spec_settle(sherd__layout_spec *spec);

/* How many outermost axes two lists share, whatever the cuts. */
int sherd__dim_shared(const sherd__dim *a, const sherd__dim *b);
/* Whether the same axes shard both dims, or none, whatever the cuts. */
bool sherd__dim_alike(const sherd__dim *a, const sherd__dim *b);
/* The longest shard of a dim of size n. */
int64_t sherd__dim_longest(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n);
/* Number of shards of a dim: product of its axes' extents. */
int64_t sherd__dim_parts(const sherd_mesh *mesh, const sherd__dim *dim);

/*
 * The number of the shard at a coordinate of the mesh; and the converse: set the dim's axes in a
 * coordinate.
 */
int64_t sherd__dim_shard(const sherd_mesh *mesh, const sherd__dim *dim, const int64_t *coordinate);
void sherd__dim_place(const sherd_mesh *mesh, const sherd__dim *dim, int64_t shard,
                      int64_t *coordinate);
/* Interval [*lo, *hi) of a dim of size n at a coordinate of the mesh. */
void sherd__dim_interval(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n,
                         const int64_t *coordinate, int64_t *lo, int64_t *hi);

/*
 * Whether two dims of size n are sharded in the same way: same axes in the same order, same cuts.
 */
bool sherd__dim_equal(const sherd_mesh *mesh, const sherd__dim *a, const sherd__dim *b, int64_t n);
/* How many outermost axes a and b share so that the merged cuts at that depth are equal too. */
int sherd__dim_common(const sherd_mesh *mesh, const sherd__dim *a, const sherd__dim *b, int64_t n);
/* The i-th of the parts+1 cuts of a dim. */
int64_t sherd__dim_cut(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n, int64_t i);
/* Cuts [parts+1] of a dim, its own or the default, written out. */
void sherd__dim_cuts(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n, int64_t *cuts);
/* Intervals of all shards of a dim: spans[2 * parts], first and end of each. */
void sherd__dim_spans(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n, int64_t *spans);

/*
 * The cuts [parts of `to` + 1] of `to`, whose first `keep` axes are also the first of `from`: the
 * intervals of `from`, merged below these axes, each cut by the chunk rule along the further axes
 * of `to`. If `from` has default cuts, so has the result.
 */
void sherd__dim_refine(const sherd_mesh *mesh, const sherd__dim *from, int keep,
                       const sherd__dim *to, int64_t n, int64_t *cuts);

/*
 * The i-th of p chunks of n, as torch.chunk: pieces of ceil(n/p), of which the last ones may be
 * empty (and then begin at n).
 */
void sherd__chunk(int64_t n, int64_t p, int64_t i, int64_t *lo, int64_t *hi);

/* What the rank of the space holds: computed when it is first asked for. */
void sherd__holding_find(sherd__holding *holding, const sherd_layout *layout);
static inline const sherd__holding *sherd__layout_holding(const sherd_layout *layout)
{
    sherd_layout *noted = (sherd_layout *)(uintptr_t)layout; /* a note is no content */

    if (!noted->holding.known)
        sherd__holding_find(&noted->holding, layout);
    return &noted->holding;
}

/* The box at a coordinate of the layout's mesh. */
void sherd__layout_box(const sherd_layout *layout, const int64_t *coordinate, sherd_box *box);

/* The intersection; false if it is empty. */
bool sherd__box_meet(const sherd_box *a, const sherd_box *b, sherd_box *out);
int64_t sherd__box_count(const sherd_box *box);

/*
 * Elements of a layout's largest box: the product of the longest shards, since each dim has its own
 * axes.
 */
int64_t sherd__layout_largest(const sherd_layout *layout);

/* Writes an object as text; sherd__written calls it twice, first to measure. */
typedef void (*sherd__write_text)(sherd__writer *w, const void *object);
/* The text of an object in memory of its own; NULL for lack of it. */
char *sherd__written(sherd__heap *heap, sherd__write_text write, const void *object);

/* "f32[8(x),8] P(sum:y) on (x=2,y=2)" into out[room]. */
void sherd__layout_describe(const sherd_layout *layout, sherd_dtype dtype, char *out, size_t room);
/* "f32[8,8]", of what has no layout. */
void sherd__shape_describe(int ndim, const int64_t *shape, sherd_dtype dtype, char *out,
                           size_t room);

#endif
