/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Halos. A rank reads beyond its piece of a tensor: for each dim it asks for a number of elements
 * before the piece and after it. They may belong to several neighbours, include corners, or lie
 * beyond the ends of the tensor, where the *border* defines them. The rank receives exactly what it
 * lacks, each element from one rank that holds it, in one call for all dims and all tensors,
 * whatever the cuts: uneven, empty, or thinner than the halo. A rank with an empty piece gets an
 * empty result.
 *
 * sherd_halo makes a new tensor and is differentiable: the gradient flows back to the ranks that
 * the elements came from. *Ghosts* are one storage with room for the halo around a piece, for codes
 * that step a field in place: the ghost cells are filled again and again, and nothing is allocated.
 */
#ifndef SHERD_HALO_H
#define SHERD_HALO_H

#include "plan.h"
#include "tensor.h"

SHERD_BEGIN

/* What lies beyond an end of a dim. */
typedef enum sherd_border {
    SHERD_BORDER_NONE = 0,  /* nothing: the halo stops at the end */
    SHERD_BORDER_CONSTANT,  /* a value, 0 by default */
    SHERD_BORDER_REPLICATE, /* the element at the end, repeated */
    SHERD_BORDER_REFLECT,   /* mirrored at the last element, which is not repeated */
    SHERD_BORDER_PERIODIC   /* the elements at the other end */
} sherd_border;

enum { SHERD_BORDERS = 5 };

/* One side of a dim. All zero = no halo there. */
typedef struct sherd_halo_side {
    int64_t width; /* elements */
    sherd_border border;
} sherd_halo_side;

/* How far a rank reads beyond its piece. A plain value; all zero = not at all. */
typedef struct sherd_halo_options {
    sherd_halo_side before[SHERD_MAX_DIMS], after[SHERD_MAX_DIMS]; /* of each dim */
    double value;                                                  /* of SHERD_BORDER_CONSTANT */
    /* return at once; the halo is complete when the result is first read */
    bool begin;
} sherd_halo_options;

/**
 * This rank's piece of a tensor with its halo, as a plain tensor that varies over the mesh. The
 * piece of a plain `t` is the whole tensor. An element that several ranks have read gets the sum of
 * their gradients, added in the order of shards; the gradient has the layout of `t`.
 *
 * @collective the mesh of `t`, if it is distributed
 * @shapes     the piece, enlarged in each dim by the widths, except beyond an end with the border
 *             NONE; see sherd_halo_box
 * @owns       the result belongs to the scope; options are copied
 * @errors     EINVAL a negative width, a width for a dim that `t` does not have, an unknown border,
 *             REFLECT as wide as the dim, REPLICATE, REFLECT or PERIODIC in a dim of size 0, a
 *             value that the dtype cannot hold; ELIMIT borders that repeat elements (REPLICATE,
 *             REFLECT) or the dim (PERIODIC) more than 2^22 times; ENOMEM; EDIFFER; EPEER; by the
 *             alarm. A pending reduction is settled first
 */
SHERD_API sherd_tensor *sherd_halo(sherd_tensor *t, const sherd_halo_options *options);

/**
 * As sherd_halo, for several tensors on one mesh with the same widths and borders: one call for all
 * of them.
 *
 * @collective the tensors' mesh
 * @shapes     out, t: [count]
 * @owns       as sherd_halo
 * @errors     as sherd_halo; then every out[i] is the failed tensor
 */
SHERD_API void sherd_halo_many(sherd_tensor **out, sherd_tensor *const *t, int count,
                               const sherd_halo_options *options);

/**
 * Which global indices a rank has in a halo of a tensor with this layout. Indices before the
 * beginning of the tensor are negative.
 *
 * @local
 * @shapes options: as in sherd_halo; rank: a rank of the world; outside the mesh it has an empty
 *         box
 * @errors EINVAL as sherd_halo; ENOMEM
 */
SHERD_CALL sherd_status sherd_halo_box(sherd_box *out, const sherd_layout *layout, int rank,
                                       const sherd_halo_options *options);

/**
 * What a halo costs, as a plan of one step. It receives exactly its lower bound.
 *
 * @local
 * @owns   *out is borrowed from the cache, and valid until the next call on this world; NULL on
 *         failure
 * @errors as sherd_halo_box
 */
SHERD_CALL sherd_status sherd_halo_plan(const sherd_plan **out, const sherd_layout *layout,
                                        sherd_dtype dtype, const sherd_halo_options *options);

/* ---- ghost cells ---------------------------------------------------------------------------- */

/*
 * A field with room for its halo around each rank's piece, in one contiguous row-major storage.
 * After a failed check the ghost cells are undefined until they are filled again; the pieces do not
 * change.
 */
typedef struct sherd_ghosts sherd_ghosts;

/**
 * Make a field; all elements, ghost cells included, are 0.
 *
 * @collective the layout's mesh
 * @shapes     layout: without pending reductions; options: as in sherd_halo, `begin` is ignored
 * @owns       the caller destroys *out with sherd_ghosts_destroy; NULL on failure
 * @errors     as sherd_halo; the same on all ranks after the next check
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
 * Fill the ghost cells of several fields from the pieces of this rank and others: one call for all
 * fields of a mesh.
 *
 * @collective the fields' mesh
 * @shapes     ghosts: [count], all with layouts on one mesh
 * @errors     as sherd_halo; false: the alarm is raised
 */
SHERD_API bool sherd_ghosts_fill(sherd_ghosts *const *ghosts, int count);

/**
 * As sherd_ghosts_fill, but it returns at once. Until sherd_ghosts_data the ghost cells are
 * undefined, and the pieces may be read but not written.
 *
 * @collective as sherd_ghosts_fill   @shapes as there   @errors as there
 */
SHERD_API bool sherd_ghosts_begin_fill(sherd_ghosts *const *ghosts, int count);

/**
 * The cells, ghosts included, for reading and writing: row-major, with the sizes of
 * sherd_ghosts_box. Waits until a fill that was begun is complete and no other rank is reading the
 * piece; so call it after each fill, before writing the piece. What is written into ghost cells is
 * seen by this rank only.
 *
 * @local
 * @owns   borrowed until the next fill or sherd_ghosts_destroy
 * @errors NULL after the alarm, or on a rank without a cell
 */
SHERD_API void *sherd_ghosts_data(sherd_ghosts *ghosts);

/**
 * The cells for reading only, while a fill may be under way: the ghost cells are undefined then.
 * Does not wait.
 *
 * @local   @owns as sherd_ghosts_data   @errors NULL on a rank without a cell
 */
SHERD_API const void *sherd_ghosts_peek(const sherd_ghosts *ghosts);

/**
 * Which global indices the cells have, ghosts included.
 *
 * @local   @errors none; an empty box for NULL
 */
SHERD_API sherd_box sherd_ghosts_box(const sherd_ghosts *ghosts);

/**
 * The field as a distributed tensor: a view of the pieces without ghosts. Writing one writes the
 * other.
 *
 * @collective the field's mesh   @owns belongs to the scope   @errors ENOMEM
 */
SHERD_API sherd_tensor *sherd_ghosts_tensor(sherd_ghosts *ghosts);

SHERD_END

#endif
