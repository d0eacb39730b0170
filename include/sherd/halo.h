/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Halos: elements around a rank's piece of a tensor, a given number before and after it in each
 * dim. They may belong to several other ranks and include corners; beyond the ends of the tensor a
 * *border* defines them. A rank receives exactly the elements that it lacks, each from one rank
 * that holds it, in one call for all dims and all tensors. Shards may be cut in any way: uneven,
 * empty, or thinner than the halo. A rank with an empty piece gets an empty result.
 *
 * sherd_halo makes a new tensor and is differentiable: the gradient flows back to the ranks that
 * the elements came from, and sherd_halo_add sends anything there. *Ghosts* are for codes that step
 * a field in place: one storage has room for the piece and the halo around it, and these ghost
 * cells are filled again and again without allocation. They are several times as fast as a halo of
 * a tensor made anew in each step by sherd_from_local.
 *
 *     sherd_halo_options one = {.before[0] = {1, SHERD_BORDER_PERIODIC},
 *                               .after[0] = {1, SHERD_BORDER_PERIODIC}};
 *     sherd_tensor *piece = sherd_halo(field, &one); // plain: one row more at either end
 */
#ifndef SHERD_HALO_H
#define SHERD_HALO_H

#include "plan.h"
#include "tensor.h"

SHERD_BEGIN

/* Which elements a halo has beyond an end of a dim. */
typedef enum sherd_border {
    SHERD_BORDER_NONE = 0,  /* none: the halo stops at the end */
    SHERD_BORDER_CONSTANT,  /* a value, 0 by default */
    SHERD_BORDER_REPLICATE, /* the element at the end, repeated */
    SHERD_BORDER_REFLECT,   /* the mirror image at the last element, which is not repeated */
    SHERD_BORDER_PERIODIC,  /* the elements at the other end */
    /* the mirror image at the end itself, so the last element comes twice: walls between cells */
    SHERD_BORDER_SYMMETRIC
} sherd_border;

enum { SHERD_BORDERS = 6 };

/* The halo on one side of a dim. All zero = none. */
typedef struct sherd_halo_side {
    int64_t width; /* elements, below 2^60 */
    sherd_border border;
} sherd_halo_side;

/* How far a rank reads beyond its piece. A plain value; all zero = not at all. */
typedef struct sherd_halo_options {
    sherd_halo_side before[SHERD_MAX_DIMS], after[SHERD_MAX_DIMS]; /* of each dim */
    double value;                                                  /* of SHERD_BORDER_CONSTANT */
    /* return at once; the halo is complete when the result is first read */
    bool begin;
    /*
     * sherd_ghosts_create: cells beyond an end with the border CONSTANT are the program's own. A
     * fill leaves them as they are, so `value` is not used; it need not pass over them. Corners
     * between such an end and another rank's cells are among them.
     */
    bool own_border;
} sherd_halo_options;

/**
 * This rank's piece of a tensor with its halo, as a plain tensor that varies over the mesh. If `t`
 * is plain, its piece is the whole tensor. A pending reduction is settled first. Gradient: in the
 * layout of `t`; an element that several ranks have got receives the sum of their gradients, added
 * in the order of shards.
 *
 * @collective the mesh of `t`, if it is distributed
 * @shapes     options: NULL = all zero; the result: the piece, enlarged in each dim by the widths,
 *             except beyond an end with the border NONE (see sherd_halo_box)
 * @owns       the result belongs to the scope; options are copied
 * @errors     EINVAL a negative width, one of 2^60 or more, a width for a dim that `t` does not
 *             have, an unknown border, a width of REFLECT that is not less than the dim's size, one
 *             of SYMMETRIC that is more, REPLICATE or PERIODIC in a dim of size 0, a value that the
 *             dtype cannot hold; ELIMIT borders that repeat elements (REPLICATE, REFLECT,
 *             SYMMETRIC) or the dim (PERIODIC) more than 2^22 times; ENOMEM; EDIFFER; EPEER; by the
 *             alarm
 */
SHERD_API sherd_tensor *sherd_halo(sherd_tensor *t, const sherd_halo_options *options);

/**
 * As sherd_halo, for several tensors on one mesh with the same widths and borders: one call for all
 * of them.
 *
 * @collective the tensors' mesh
 * @shapes     out, t: [count]; options: NULL = all zero
 * @owns       as sherd_halo
 * @errors     as sherd_halo; then every out[i] is the failed tensor
 */
SHERD_API void sherd_halo_many(sherd_tensor **out, sherd_tensor *const *t, int count,
                               const sherd_halo_options *options);

/**
 * The reverse of sherd_halo: what all ranks have of an element, in their pieces and in their halos,
 * is added up at its owner, in the order of shards. So contributions to cells of other ranks come
 * home: of particles that are deposited, of elements that are assembled. What lies beyond an end
 * with the border NONE or CONSTANT belongs to nobody. Along axes that do not shard `layout`, ranks
 * must have the same. Gradient: the halo of the result's.
 *
 * @collective the layout's mesh
 * @shapes     t: plain, of the sizes of sherd_halo_box; layout: without pending reductions;
 *             options: NULL = all zero; the result: distributed, with `layout`
 * @owns       the result belongs to the scope; options are copied
 * @errors     as sherd_halo; EINVAL `t` is distributed, of another size, or of a dtype without sums
 */
SHERD_API sherd_tensor *sherd_halo_add(sherd_tensor *t, const sherd_layout *layout,
                                       const sherd_halo_options *options);

/**
 * The global indices of a rank's piece with its halo, for a tensor with this layout. Indices before
 * the beginning of the tensor are negative.
 *
 * @local
 * @shapes options: as in sherd_halo; rank: a rank of the world; *out is empty if it is outside the
 *         mesh
 * @errors EINVAL as sherd_halo; ENOMEM
 */
SHERD_CALL sherd_status sherd_halo_box(sherd_box *out, const sherd_layout *layout, int rank,
                                       const sherd_halo_options *options);

/**
 * What a halo costs, as a plan of one step. The bytes that it receives are its lower bound.
 *
 * @local
 * @shapes options: as in sherd_halo
 * @owns   *out is borrowed from the cache, and valid until the next call on this world; NULL on
 *         failure
 * @errors as sherd_halo_box
 */
SHERD_CALL sherd_status sherd_halo_plan(const sherd_plan **out, const sherd_layout *layout,
                                        sherd_dtype dtype, const sherd_halo_options *options);

/* ---- ghost cells ---------------------------------------------------------------------------- */

/*
 * A field: on each rank one contiguous, row-major storage for the rank's piece and the ghost cells
 * around it. After a failed check the ghost cells are undefined until they are filled again; the
 * pieces do not change, unless some ranks were writing them through sherd_ghosts_tensor. Then the
 * field is lost with that tensor, until it is written or revived (see sherd_tensor_revive).
 *
 *     sherd_ghosts *u;
 *     const sherd_halo_options one = {.before[0] = {1, SHERD_BORDER_PERIODIC}};
 *     sherd_status mine = sherd_ghosts_create(&u, layout, SHERD_F64, &one);
 *     sherd_status all = sherd_world_check(world); // equal on all ranks, as `mine` need not be
 *     if (all)
 *         return all;
 *     sherd_ghosts_fill(&u, 1);            // in each step
 *     double *cell = sherd_ghosts_data(u); // of the sizes of sherd_ghosts_box(u)
 */
typedef struct sherd_ghosts sherd_ghosts;

/**
 * Make a field. All its cells, ghost cells included, are 0.
 *
 * @collective the layout's mesh
 * @shapes     layout: without pending reductions; options: as in sherd_halo, `begin` is ignored
 * @owns       the caller destroys *out with sherd_ghosts_destroy; NULL on failure
 * @errors     as sherd_halo. Nothing is sent, so a rank may succeed where another fails; the alarm
 *             is raised then, and the next sherd_world_check returns the same status on all ranks
 */
SHERD_CALL sherd_status sherd_ghosts_create(sherd_ghosts **out, const sherd_layout *layout,
                                            sherd_dtype dtype, const sherd_halo_options *options);

/**
 * Destroy a field; tensors that share its storage stay valid.
 *
 * @local   @owns the caller's reference; NULL is a no-op   @errors none
 */
SHERD_API void sherd_ghosts_destroy(sherd_ghosts *ghosts);

/**
 * Fill the ghost cells of several fields from the pieces of all ranks, in one call. Returns false
 * if it has failed.
 *
 * @collective the fields' mesh
 * @shapes     ghosts: [count], all with layouts on one mesh; count 0 or less: nothing to do
 * @errors     as sherd_halo, by the alarm; EINVAL a lost field; EDIFFER other fields, or another
 *             order, than on other ranks
 */
SHERD_API bool sherd_ghosts_fill(sherd_ghosts *const *ghosts, int count);

/**
 * As sherd_ghosts_fill, but it returns at once, so that the interior can be computed meanwhile
 * (sherd_ghosts_peek). Until sherd_ghosts_data returns, the ghost cells are undefined, and the
 * pieces may be read but not written.
 *
 * @collective as sherd_ghosts_fill   @shapes as there   @errors as there
 */
SHERD_API bool sherd_ghosts_begin_fill(sherd_ghosts *const *ghosts, int count);

/**
 * This rank's cells, ghost cells included, for reading and writing: row-major, with the sizes of
 * sherd_ghosts_box. Waits until a fill that was begun is complete, and until no other rank is
 * reading the piece; so call it after each fill, before writing to the piece. Values written to
 * ghost cells are seen by this rank only.
 *
 * @local
 * @owns   borrowed until the next fill or sherd_ghosts_destroy
 * @errors NULL after the alarm, or on a rank without a cell
 */
SHERD_API void *sherd_ghosts_data(sherd_ghosts *ghosts);

/**
 * The same cells for reading only, without waiting. While a fill is under way, the ghost cells are
 * undefined.
 *
 * @local   @owns as sherd_ghosts_data   @errors NULL on a rank without a cell
 */
SHERD_API const void *sherd_ghosts_peek(const sherd_ghosts *ghosts);

/**
 * The global indices of this rank's cells, ghost cells included.
 *
 * @local   @errors none; an empty box for NULL
 */
SHERD_API sherd_box sherd_ghosts_box(const sherd_ghosts *ghosts);

/**
 * The field as a distributed tensor: a view of the pieces, without ghost cells. It shares the
 * field's storage, so a write to one changes the other.
 *
 * @local   @owns the result belongs to the scope   @errors ENOMEM
 */
SHERD_API sherd_tensor *sherd_ghosts_tensor(sherd_ghosts *ghosts);

SHERD_END

#endif
