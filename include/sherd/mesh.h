/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mesh: ranks arranged as a grid. Its axes have names (by default a0, a1, ...) and extents; ranks
 * are numbered in row-major order, so the last axis varies fastest. Meshes are interned in their
 * world: equal meshes are the same pointer, and live until the world closes.
 *
 *     const sherd_mesh *mesh, *tp;
 *     const char *axis = "tp";
 *     if (sherd_mesh_parse(&mesh, world, "dp=2,tp=4") || // ranks 0 .. 7 as a grid of 2 x 4
 *         sherd_mesh_slice(&tp, mesh, 1, &axis))         // a sub-mesh: the axis tp alone
 *         return 1;
 *
 * A sub-mesh is a selection of the axes of a mesh, its *root*. It has all ranks of the root: a
 * layout that is made on a sub-mesh is a layout on the root, replicated over the axes that were
 * left out.
 */
#ifndef SHERD_MESH_H
#define SHERD_MESH_H

#include "world.h"

SHERD_BEGIN

typedef struct sherd_mesh sherd_mesh;

/**
 * Make a mesh of the world's ranks.
 *
 * A world has room for 1,023 *groups*. A mesh with n axes of extent above 1 takes 2^n - 1 of them,
 * one for each set of axes along which its ranks may communicate, until the world closes; making an
 * equal mesh again takes none. So make meshes once, at the start of the program, not in each step.
 *
 * @collective the world; local for a paper world
 * @shapes     extents: int64_t[axes], each >= 1; names: const char *[axes], NULL = a0, a1, ...;
 *             ranks: int[product of extents], row-major, distinct, NULL = 0, 1, 2, ...
 * @owns       *out belongs to the world; NULL on failure
 * @errors     EINVAL an extent < 1, a name that is empty, repeated or not [A-Za-z_][A-Za-z0-9_]*,
 *             more ranks than the world has, or a rank twice; ELIMIT more than SHERD_MAX_AXES axes,
 *             a name of 32 letters or more, or too many groups; EDIFFER; ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_mesh_create(const sherd_mesh **out, sherd_world *world, int axes,
                                          const int64_t *extents, const char *const *names,
                                          const int *ranks);

/**
 * Make a mesh from text: "2x4", "dp=2,tp=2", "x=2@2,3".
 *
 * @collective the world; local for a paper world
 * @owns       *out belongs to the world; NULL on failure
 * @errors     EINVAL with the column and what was expected; otherwise as sherd_mesh_create
 */
SHERD_CALL sherd_status sherd_mesh_parse(const sherd_mesh **out, sherd_world *world,
                                         const char *text);

/**
 * The sub-mesh of the named axes of a mesh, in the given order.
 *
 * @local
 * @shapes names: const char *[axes]
 * @owns   *out belongs to the world; NULL on failure
 * @errors EINVAL no such axis, or twice; ENOMEM
 */
SHERD_CALL sherd_status sherd_mesh_slice(const sherd_mesh **out, const sherd_mesh *mesh, int axes,
                                         const char *const *names);

/**
 * A mesh of only those ranks that have the coordinate `index` on an axis. For example, of
 * "pp=2,dp=4,tp=2" with pp = 1 it is the mesh "dp=4,tp=2@8,9,...". The new mesh does not have the
 * axis, unless it is the only one: then its extent becomes 1.
 *
 * @collective the world, with the same axis and index on all ranks; local for a paper world
 * @owns       *out belongs to the world; NULL on failure
 * @errors     EINVAL a sub-mesh, no such axis, no such index; otherwise as sherd_mesh_create
 */
SHERD_CALL sherd_status sherd_mesh_select(const sherd_mesh **out, const sherd_mesh *mesh,
                                          const char *axis, int64_t index);

/**
 * The mesh of which a sub-mesh selects axes; of any other mesh the mesh itself.
 *
 * @local   @owns borrowed from the world   @errors none
 */
SHERD_API const sherd_mesh *sherd_mesh_root(const sherd_mesh *mesh);

/** How many axes a mesh has. @local @errors none */
SHERD_API int sherd_mesh_axes(const sherd_mesh *mesh);

/** Extent of an axis; 0 if there is no such axis. @local @errors none */
SHERD_API int64_t sherd_mesh_extent(const sherd_mesh *mesh, int axis);

/**
 * Name of an axis; "" if there is no such axis.
 *
 * @local   @owns borrowed from the mesh   @errors none
 */
SHERD_API const char *sherd_mesh_axis_name(const sherd_mesh *mesh, int axis);

/** Number of the axis with this name; -1 if there is none. @local @errors none */
SHERD_API int sherd_mesh_find_axis(const sherd_mesh *mesh, const char *name);

/**
 * The product of the extents: how many ranks a mesh has, or, of a sub-mesh, each group along its
 * axes.
 *
 * @local   @errors none
 */
SHERD_API int64_t sherd_mesh_ranks(const sherd_mesh *mesh);

/**
 * Whether a rank of the world is in the mesh (of a sub-mesh: in its root), and at which
 * coordinates.
 *
 * @local
 * @shapes coordinate: gets int64_t[axes] if the result is true; NULL = not wanted
 * @errors none
 */
SHERD_API bool sherd_mesh_coordinate(const sherd_mesh *mesh, int rank, int64_t *coordinate);

/**
 * The mesh as text, in the form that sherd_mesh_parse reads: "dp=2,tp=2", or "x=2@2,3" if the ranks
 * are not 0, 1, 2, ...
 *
 * @local   @owns borrowed from the mesh   @errors none
 */
SHERD_API const char *sherd_mesh_text(const sherd_mesh *mesh);

SHERD_END

#endif
