/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the built-in styles share: placing parameters, and the hooks that move inputs and outputs.
 */
#ifndef SHERD__STYLE_H
#define SHERD__STYLE_H

#include "nn/module.h"
#include "sherd/parallel.h"

/* What a style makes of a module where the user's `sherd_style` says nothing else. */
typedef struct sherd__recipe {
    const char *name;        /* static; for messages */
    sherd_placement taken;   /* what a plain input is taken for */
    sherd_placement desired; /* what the forward gets; unset = as it arrives */
    sherd_placement output;  /* what leaves; unset = as it comes */
    int follow;              /* the input's last dim is cut as this dim of "weight"; -1 = chunks */
    bool slots;              /* any number of tensors, each with a slot of the style */
    bool only_out;           /* inputs arrive as they are */
} sherd__recipe;

/* What is wrong with the numbers of a style; NULL = nothing. */
const char *sherd__style_fault(const sherd_style *style);

/* Register the hooks that do what recipe and style say. */
sherd_status sherd__style_hook(const sherd_style *style, const sherd__recipe *recipe,
                               sherd_module *module, const sherd_mesh *mesh, int axis);

/*
 * Put a parameter on the root of `mesh`: `placement` on the axis, replicated on all others.
 * Neighbours of a granule stay together. No parameter of this name: nothing to do. One that is tied
 * to others is replaced everywhere in its tree. Nothing travels.
 */
sherd_status sherd__place(sherd_module *module, const char *name, const sherd_mesh *mesh, int axis,
                          sherd_placement placement, int64_t granule);

/*
 * A parameter or buffer of m in another layout: a plain one is cut, a distributed one is moved. All of the tree that is tied
 * to it gets the new tensor.
 */
sherd_status sherd__spread(sherd_module *m, const sherd__named_tensor *named,
                           const sherd_layout *layout);

/* All parameters and buffers of the tree that are plain, replicated on the root of `mesh`. */
sherd_status sherd__replicate_rest(sherd_module *module, const sherd_mesh *mesh);

/*
 * What a function of the user's returned, as a status with a text: any number is possible, and it need not have said why.
 * `what` it was: "style Colwise". The diag's status was SHERD_OK when it was called.
 */
sherd_status sherd__told(sherd_module *module, const char *function, const char *what,
                         sherd_status returned);

/* A hash of names, dtypes and shapes of all parameters and buffers of the tree. */
uint64_t sherd__hash_tree(uint64_t hash, const sherd_module *m);

/* Refuse a module that is no Linear or Embedding with a weight of two dims. */
sherd_status sherd__style_fits(const sherd_style *style, const sherd_module *module);

/*
 * The number of the axis with this name, of a mesh of the module's world; and that world. Where the module is NULL it is
 * that of the mesh, in which to fail with the others; NULL where there is none.
 */
sherd_status sherd__style_axis(int *out, sherd_world **world, const sherd_module *module,
                               const sherd_mesh *mesh, const char *axis, const char *function);

#endif
