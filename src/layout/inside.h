/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share and no other room needs. */
#ifndef SHERD__LAYOUT_INSIDE_H
#define SHERD__LAYOUT_INSIDE_H

#include "layout.h"
#include "base/text.h"

void sherd__mesh_free(sherd__space *space, sherd_mesh *mesh);
void sherd__layout_free(sherd__space *space, sherd_layout *layout);
/* The current scope holds a layout from now on; false for lack of memory. */
bool sherd__layout_hold(const sherd_layout *layout);
/* Room for one more that is held; false for lack of memory. */
bool sherd__layouts_reserve(sherd__space *space);

void sherd__mesh_write(sherd__writer *w, const void *mesh);
void sherd__layout_write(sherd__writer *w, const void *layout);
void sherd__placements_write(sherd__writer *w, const void *layout);

/* Read the mesh that stands at `s`; what follows it is left. */
sherd_status sherd__mesh_scan(const sherd_mesh **out, sherd__space *space, const char *function,
                              sherd__scanner *s);

/*
 * *at = place of the first rank that stands in the list a second time; count if there is none.
 * ENOMEM.
 */
sherd_status sherd__ranks_repeat(int64_t *at, sherd__space *space, const char *function,
                                 const int *ranks, int64_t count);

/*
 * Read the size of the next dim into shape[*ndim] and count it. EINVAL; ELIMIT too many dims, or
 * elements.
 */
sherd_status sherd__size_scan(int64_t *shape, int *ndim, sherd__diag *diag, const char *function,
                              sherd__scanner *s);
/* Read the dtype that stands at `s`. EINVAL. */
sherd_status sherd__dtype_scan(sherd_dtype *out, sherd__diag *diag, const char *function,
                               sherd__scanner *s);
/*
 * Read sizes "4,6" of the `parts` shards of a dim of size n into memory of its own, that the
 * caller frees (NULL on failure).
 */
sherd_status sherd__sizes_scan(int64_t **out, sherd__space *space, const char *function,
                               sherd__scanner *s, int64_t parts, int64_t n);
/* As sherd__target_read, of a text that shows dims. */
sherd_status sherd__dims_read(const sherd_layout **out, const sherd__target *target,
                              const char *text);
/* The reduce op with this name; false if there is none. */
bool sherd__reduce_op_find(const char *name, sherd_reduce_op *out);
/* The reduce ops, for messages. */
#define SHERD__REDUCE_OPS "sum, avg, min, max or product"

/* As sherd_layout_create, sherd__mesh_make and sherd__layout_intern; errors name `function`. */
sherd_status sherd__layout_build(const sherd_layout **out, const char *function,
                                 const sherd_mesh *mesh, int ndim, const int64_t *shape,
                                 const sherd_placement *placements,
                                 const sherd_layout_options *options);
sherd_status sherd__mesh_build(const sherd_mesh **out, sherd__space *space, const char *function,
                               const sherd_mesh *key);
sherd_status sherd__layout_intern_as(const sherd_layout **out, const char *function,
                                     const sherd__layout_spec *spec);

#endif
