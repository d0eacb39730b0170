/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a module, for nn/ and parallel/. */
#ifndef SHERD__MODULE_H
#define SHERD__MODULE_H

#include "autograd/tape.h"
#include "sherd/module.h"

typedef struct sherd__named_child {
    char *name;
    sherd_module *module;
} sherd__named_child;

typedef struct sherd__named_tensor {
    char *name;
    sherd_tensor *tensor; /* counted */
} sherd__named_tensor;

typedef struct sherd__hook_entry {
    int id;
    sherd_pre_hook before; /* one of the two */
    sherd_hook after;
    void *payload;
    void (*destroy)(void *payload);
} sherd__hook_entry;

struct sherd_module {
    sherd_world *world;
    sherd_module *parent;
    sherd_forward forward;
    sherd_module_options options;
    char *path;
    bool eval; /* not training */
    sherd_generator generator;
    sherd__named_child *child;
    int children;
    sherd__named_tensor *parameter;
    int parameters;
    sherd__hook_entry *before, *after; /* in order of running */
    int befores, afters;
    int next_hook;
    unsigned placed; /* bit i: parameter i was placed by a style */
};

#endif
