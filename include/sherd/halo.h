/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Halos: a rank reads beyond its piece. For each dim it asks for so many elements before its piece and behind it; they may lie
 * with several neighbours, in corners, or beyond the ends of the tensor, where the border says what is there. It gets
 * exactly what it lacks, each element from one rank that holds it, in one call for all dims and all tensors, whatever the
 * cuts: uneven, empty, thinner than the halo. A rank whose piece is empty gets an empty one.
 *
 * sherd_halo makes a new tensor, and its gradient flows back to where the elements came from. Ghosts are one storage with room
 * for the halo around a piece, for codes that step a field in place: its ghost cells are filled again and again,
 * and nothing is allocated.
 */
#ifndef SHERD_HALO_H
#define SHERD_HALO_H

#include "plan.h"
#include "tensor.h"

SHERD_BEGIN

/* What lies beyond an end of a dim. */
typedef enum sherd_border {
    SHERD_BORDER_NONE = 0,  /* nothing: there is no halo beyond the end */
    SHERD_BORDER_CONSTANT,  /* a value, 0 if none is given */
    SHERD_BORDER_REPLICATE, /* the element at the end */
    SHERD_BORDER_REFLECT, /* a mirror in the element at the end, which is not repeated; narrower than the dim */
    SHERD_BORDER_PERIODIC /* the other end */
} sherd_border;

enum { SHERD_BORDERS = 5 };

/* One side of a dim. All zero = no halo there. */
typedef struct sherd_halo_side {
    int64_t width; /* elements */
    sherd_border border;
} sherd_halo_side;

/* How far a rank reads beyond its piece; a plain value, all zero = not at all. */
typedef struct sherd_halo_options {
    sherd_halo_side before[SHERD_MAX_DIMS], after[SHERD_MAX_DIMS]; /* of each dim */
    double value;                                                  /* of SHERD_BORDER_CONSTANT */
    /* return at once: what comes from others is there when the result is first read */
    bool begin;
} sherd_halo_options;

/**
 * This rank's piece of a tensor with its halo, as a plain tensor that varies over the mesh. A plain `t` is a piece that is the
 * whole tensor. The gradient of an element that several ranks have is the sum of theirs, in rank order; its layout is t's.
 *
 * @collective t's mesh, if it is distributed
 * @shapes     the piece, and in each dim the widths more, but for what a border of nothing leaves out; see sherd_halo_box
 * @owns       the result belongs to the scope; options are copied
 * @errors     EINVAL a negative width, a width of a dim that t does not have, a border that is none, a mirror as wide as
 *             the dim, a mirror, a neighbour or another end in a dim of size 0, a value that is none of the dtype; ELIMIT; ENOMEM; EDIFFER; EPEER; by the alarm.
 *             A pending reduction is settled first
 */
SHERD_API sherd_tensor *sherd_halo(sherd_tensor *t, const sherd_halo_options *options);

/**
 * The same for several tensors with the same widths and borders, on one mesh: one call for all of them.
 *
 * @collective the tensors' mesh
 * @shapes     out, t: [count]
 * @owns       as sherd_halo
 * @errors     as sherd_halo; then out[i] is the failed tensor for each i
 */
SHERD_API void sherd_halo_many(sherd_tensor **out, sherd_tensor *const *t, int count,
                               const sherd_halo_options *options);

/**
 * Which indices of the whole tensor a rank has in a halo of a tensor of this layout. Before the tensor's beginning they are
 * negative.
 *
 * @local
 * @shapes options as sherd_halo; rank: of the world; a rank outside of the mesh has an empty box
 * @errors EINVAL as sherd_halo; ENOMEM
 */
SHERD_CALL sherd_status sherd_halo_box(sherd_box *out, const sherd_layout *layout, int rank,
                                       const sherd_halo_options *options);

/**
 * What a halo costs: a plan of one step. Its bound is what it receives: each rank gets just what it lacks.
 *
 * @local
 * @owns   *out is borrowed from the cache: it is sure to live until the next call on this world; NULL on failure
 * @errors as sherd_halo_box
 */
SHERD_CALL sherd_status sherd_halo_plan(const sherd_plan **out, const sherd_layout *layout,
                                        sherd_dtype dtype, const sherd_halo_options *options);

/* ---- ghost cells ---------------------------------------------------------------------------- */

/*
 * A field with room for its halo around each rank's piece, in one contiguous row-major storage. After a failed check the ghost
 * cells are anything until they are filled again; the pieces are as they were.
 */
typedef struct sherd_ghosts sherd_ghosts;

/**
 * Make a field; all elements, ghosts too, are 0.
 *
 * @collective the layout's mesh
 * @shapes     layout: nothing pending; options as sherd_halo, `begin` is not looked at
 * @owns       *out is the caller's, to be released by sherd_ghosts_destroy; NULL on failure
 * @errors     as sherd_halo; the same on all ranks after the next check
 */
SHERD_CALL sherd_status sherd_ghosts_create(sherd_ghosts **out, const sherd_layout *layout,
                                            sherd_dtype dtype, const sherd_halo_options *options);

/** Release it; tensors that share its storage go on. @local @owns the caller's count; NULL is a no-op @errors none */
SHERD_API void sherd_ghosts_destroy(sherd_ghosts *ghosts);

/**
 * Fill the ghost cells of several fields from the pieces of this rank and others: one call for all fields of a mesh.
 *
 * @collective the fields' mesh
 * @shapes     ghosts: [count], all of one layout's mesh
 * @errors     as sherd_halo; false: the alarm is up
 */
SHERD_API bool sherd_ghosts_fill(sherd_ghosts *const *ghosts, int count);

/**
 * The same, but it returns at once. Until sherd_ghosts_data the ghost cells are anything, and the pieces may be read but not
 * written.
 *
 * @collective as sherd_ghosts_fill   @shapes as there   @errors as there
 */
SHERD_API bool sherd_ghosts_begin_fill(sherd_ghosts *const *ghosts, int count);

/**
 * The cells, ghosts too, to be read and written: row-major, of the sizes of sherd_ghosts_box. Waits until a filling that
 * was begun is done, and until no other rank reads the piece; so it is to be called after each filling, before the
 * piece is written. What is written into ghost cells is this rank's own.
 *
 * @local
 * @owns   borrowed until the next filling or sherd_ghosts_destroy
 * @errors NULL: ended by the alarm, or a rank without a cell
 */
SHERD_API void *sherd_ghosts_data(sherd_ghosts *ghosts);

/**
 * The cells to be read only, while a filling that was begun may be under way: the ghost cells are anything then. Waits for
 * nothing.
 *
 * @local   @owns as sherd_ghosts_data   @errors NULL: a rank without a cell
 */
SHERD_API const void *sherd_ghosts_peek(const sherd_ghosts *ghosts);

/** Which indices of the whole field the cells are, ghosts too. @local @errors none; an empty box for NULL */
SHERD_API sherd_box sherd_ghosts_box(const sherd_ghosts *ghosts);

/**
 * The field as a distributed tensor: a view of the pieces without ghosts. Writing one writes the other.
 *
 * @collective the field's mesh
 * @owns       belongs to the scope
 * @errors     ENOMEM
 */
SHERD_API sherd_tensor *sherd_ghosts_tensor(sherd_ghosts *ghosts);

SHERD_END

#endif
