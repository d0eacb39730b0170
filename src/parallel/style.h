/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the built-in styles share: placing parameters, and the hooks that move inputs and outputs.
 */
#ifndef SHERD__PARALLEL_STYLE_H
#define SHERD__PARALLEL_STYLE_H

#include "nn/module.h"
#include "sherd/parallel.h"

/* The defaults of a style, for what the user's `sherd_style` leaves unset. */
typedef struct sherd__recipe {
    const char *name;        /* static; for messages */
    sherd_placement taken;   /* the placement of a plain input */
    sherd_placement desired; /* what the forward gets; unset = not moved */
    sherd_placement output;  /* what outputs are moved to; unset = not moved */
    int follow;              /* the input's last dim gets the cuts of this dim of "weight" or -1 */
    bool slots;              /* any number of tensors, each with a slot of the style */
    bool only_out;           /* inputs are left alone */
    bool only_first;         /* so are all outputs but the first */
} sherd__recipe;

/* What is wrong with the values of a style; NULL = nothing. */
const char *sherd__style_fault(const sherd_style *style);

/* Register the hooks that recipe and style define. */
sherd_status sherd__style_hook(const sherd_style *style, const sherd__recipe *recipe,
                               sherd_module *module, const sherd_mesh *mesh, int axis);

/*
 * Put a parameter on the root of `mesh`, with `placement` on the axis and replicated on all others.
 * Neighbours of a granule stay together. If there is no parameter of this name, nothing is done.
 * One that is tied to others is replaced everywhere in its tree. Nothing is sent.
 */
sherd_status sherd__place(sherd_module *module, const char *name, const sherd_mesh *mesh, int axis,
                          sherd_placement placement, int64_t granule);

/*
 * Give a parameter or buffer of m another layout: a plain one is cut, a distributed one is moved.
 * Everything in the tree that is tied to it gets the new tensor.
 */
sherd_status sherd__spread(sherd_module *m, sherd__named_tensor *named, const sherd_layout *layout);

/*
 * Replicate all plain parameters and buffers of the tree on the root of `mesh`. A rank outside it
 * notes that they lie elsewhere.
 */
sherd_status sherd__replicate_rest(sherd_module *module, const sherd_mesh *mesh);

/*
 * What a user's function returned, as a status with a text: it may be any number, and the function
 * need not have written a text. `what` the function was: "style Colwise". The diag's status was
 * SHERD_OK before the call.
 */
sherd_status sherd__told(sherd_module *module, const char *function, const char *what,
                         sherd_status returned);

/* A hash of names, dtypes and shapes of all parameters and buffers of the tree. */
uint64_t sherd__hash_tree(uint64_t hash, const sherd_module *m);

/* Refuse a module that is not a Linear or Embedding with a weight of two dims. */
sherd_status sherd__style_fits(const sherd_style *style, const sherd_module *module);

/*
 * The number of the axis with this name, of a mesh of the module's world; and that world. If the
 * module is NULL it is the mesh's, for failing together with the other ranks; NULL if there is
 * none.
 */
sherd_status sherd__style_axis(int *out, sherd_world **world, const sherd_module *module,
                               const sherd_mesh *mesh, const char *axis, const char *function);

#endif
