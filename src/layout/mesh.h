/* SPDX-License-Identifier: Apache-2.0 */
/* The layout room's own view of a mesh. Pure; the collective part of making one is in world/. */
#ifndef SHERD__LAYOUT_MESH_H
#define SHERD__LAYOUT_MESH_H

#include "space.h"

enum { SHERD__NAME_BYTES = 32 };

struct sherd_mesh {
    sherd__space *space;
    const sherd_mesh *root; /* itself, if it is a root */
    int axes;
    char name[SHERD_MAX_AXES][SHERD__NAME_BYTES];
    int64_t extent[SHERD_MAX_AXES];
    int root_axis[SHERD_MAX_AXES]; /* the number of each axis in the root */
    int64_t count;                 /* product of extents */
    const int *ranks;              /* [count] row-major, or NULL = 0, 1, 2, ...; only of a root */
    uint64_t hash;                 /* of content */
    char *text;
    struct sherd__ledger *ledger; /* of world/; NULL if this rank is not in the mesh */
};

/* Arguments and errors as sherd_mesh_create and sherd_mesh_parse, without the collective part. */
sherd_status sherd__mesh_make(const sherd_mesh **out, sherd__space *space, int axes,
                              const int64_t *extents, const char *const *names, const int *ranks);
sherd_status sherd__mesh_read(const sherd_mesh **out, sherd__space *space, const char *text);

/* Row-major number of a coordinate. */
int64_t sherd__mesh_place(const sherd_mesh *mesh, const int64_t *coordinate);
/* The converse. */
void sherd__mesh_coordinate_at(const sherd_mesh *mesh, int64_t place, int64_t *coordinate);
/* World rank at a coordinate of a root mesh. */
int sherd__mesh_rank_at(const sherd_mesh *mesh, const int64_t *coordinate);

/* Bits of the root's axes that a (sub-)mesh has. */
unsigned sherd__mesh_axis_bits(const sherd_mesh *mesh);

#endif
