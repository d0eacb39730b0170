/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mesh: ranks arranged as a grid. Its axes have names (default a0, a1, ...) and extents; the last
 * axis varies fastest. Meshes are interned on their world: equal meshes are the same pointer, and
 * live as long as the world. A sub-mesh is some axes of a root mesh; a layout made on it lies on
 * the root and is replicated over the root's other axes.
 */
#ifndef SHERD_MESH_H
#define SHERD_MESH_H

#include "world.h"

SHERD_BEGIN

typedef struct sherd_mesh sherd_mesh;

/**
 * Make a mesh of the world's ranks.
 *
 * A world has 1,023 groups of ranks for its meshes. A mesh with n axes of extents above 1 takes
 * 2^n - 1 of them, and keeps them as long as the world lives; an equal mesh is the same one and
 * takes none. So make the meshes of a program once, not a new order of ranks in each step.
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
 * The sub-mesh of the named axes, in the given order.
 *
 * @local
 * @shapes names: const char *[axes]
 * @owns   *out belongs to the world; NULL on failure
 * @errors EINVAL no such axis, or twice; ENOMEM
 */
SHERD_CALL sherd_status sherd_mesh_slice(const sherd_mesh **out, const sherd_mesh *mesh, int axes,
                                         const char *const *names);

/**
 * The mesh of the ranks that have one coordinate on an axis: of "pp=2,dp=4,tp=2" those with pp = 1,
 * as "dp=4,tp=2@8,9,...". The axis is left out, unless it is the only one: then its extent is 1.
 *
 * @collective the world, with the same axis and index on all ranks; local for a paper world
 * @owns       *out belongs to the world; NULL on failure
 * @errors     EINVAL a sub-mesh, no such axis, no such index; otherwise as sherd_mesh_create
 */
SHERD_CALL sherd_status sherd_mesh_select(const sherd_mesh **out, const sherd_mesh *mesh,
                                          const char *axis, int64_t index);

/**
 * The mesh that a sub-mesh is part of; the mesh itself if it is a root.
 *
 * @local   @owns borrowed from the world   @errors none
 */
SHERD_API const sherd_mesh *sherd_mesh_root(const sherd_mesh *mesh);

/** How many axes. @local @errors none */
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

/** Product of the extents. @local @errors none */
SHERD_API int64_t sherd_mesh_ranks(const sherd_mesh *mesh);

/**
 * Coordinates of a rank of the world.
 *
 * @local
 * @shapes coordinate: int64_t[axes], written if the rank is in the mesh; NULL = not asked for
 * @errors none; false if the rank is not in the mesh
 */
SHERD_API bool sherd_mesh_coordinate(const sherd_mesh *mesh, int rank, int64_t *coordinate);

/**
 * "dp=2,tp=2"; with "@..." if the ranks are not 0, 1, 2, ...
 *
 * @local   @owns borrowed from the mesh   @errors none
 */
SHERD_API const char *sherd_mesh_text(const sherd_mesh *mesh);

SHERD_END

#endif
