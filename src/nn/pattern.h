/* SPDX-License-Identifier: Apache-2.0 */
/* Paths with wildcards: which modules of a tree, or which of their tensors, they lead to. */
#ifndef SHERD__NN_PATTERN_H
#define SHERD__NN_PATTERN_H

#include "nn/module.h"

/* The walk along a path. */
typedef struct sherd__descent {
    /* Called where it ends; `rest`: names of the path that were left over. */
    sherd_status (*visit)(void *data, sherd_module *m, const char *rest);
    void *data;
    bool any_depth; /* "**" is any number of levels; then a module may be visited more than once */
    /* How far it has led; deepest: where it came to no child. Start with deepest = -1. */
    int depth, deepest;
    sherd_module *stop; /* where that was, */
    const char *missed; /* and the name that it looked for there */
} sherd__descent;

/*
 * A copy of a path with a zero in place of each dot: *levels names behind each other. NULL: no
 * memory.
 */
char *sherd__path_names(sherd__heap *heap, const char *path, int *levels);

/* What is done with each tensor that a pattern matches. */
typedef struct sherd__matching {
    void (*meet)(void *data, const sherd__named_tensor *named);
    void *data;
    bool buffers; /* with buffers, not only parameters */
} sherd__matching;

/*
 * Meet the tensors below m that a pattern matches, as sherd_optimizer_group says it; one that
 * several ways lead to is met as often. False: no memory.
 */
bool sherd__match_pattern(sherd_module *m, const char *pattern, const sherd__matching *how);

/* Visit what the next `left` of these names, one for each level, lead to from m. */
sherd_status sherd__descend(sherd__descent *d, sherd_module *m, const char *names, int left);

#endif
