/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a module, for nn/ and parallel/. */
#ifndef SHERD__NN_MODULE_H
#define SHERD__NN_MODULE_H

#include "autograd/replay.h"
#include "autograd/tape.h"
#include "base/map.h"
#include "sherd/checkpoint.h"
#include "tensor/stands.h"

typedef struct sherd__named_child {
    char *name;
    sherd_module *module;
} sherd__named_child;

typedef struct sherd__named_tensor {
    char *name;
    sherd_tensor *tensor; /* counted */
    unsigned placed;      /* by styles: bits of the axes of the mesh's root */
    /* by sherd_fully_shard, as bits of axes: it is gathered, so it has a layout */
    unsigned sharded;
} sherd__named_tensor;

/* A list, so that hooks may be added and removed while it is walked. */
typedef struct sherd__hook_entry {
    struct sherd__hook_entry *next;
    int id;                /* 0 = removed while the module runs; freed when it has run */
    int64_t turn;          /* how many had been registered before it */
    sherd_pre_hook before; /* one of the two */
    sherd_hook after;
    void *payload;
    void (*destroy)(void *payload);
} sherd__hook_entry;

/* A call of a module whose forward is run again in backward (checkpoint.c). */
typedef struct sherd__checkpoint sherd__checkpoint;

/* What a name of a module may name; each names one thing only. */
typedef enum sherd__name_kind {
    SHERD__CHILD,
    SHERD__PARAMETER,
    SHERD__BUFFER,
    SHERD__NAME_KINDS
} sherd__name_kind;

struct sherd_module {
    sherd_world *world;
    sherd_module *parent;
    sherd_forward forward; /* NULL = a container */
    sherd_module_options options;
    char *path;
    int place; /* 1 + the number of the path for the comm log; 0 = not asked for yet */
    bool eval; /* not training */
    sherd_generator generator; /* to be used by sherd_module_generator */
    sherd__standing stand;     /* its */
    sherd__named_child *child;
    int children;
    sherd__named_tensor *parameter;
    int parameters;
    sherd__named_tensor *buffer;
    int buffers;
    sherd__map names; /* of children, parameters and buffers: see sherd__find_name */
    char *styles;     /* names of those that were applied, for tables; NULL = none */
    bool distributed; /* by sherd_distribute_module */
    unsigned sharded; /* sherd_fully_shard was called with it: bits of axes */
    bool in_unit;     /* its parameters are gathered with those of a module above it */
    bool spread; /* something of it or below it was put on a mesh; set on ranks outside that too */
    sherd__hook_entry *before, *after; /* in order of running */
    int64_t hooked;                    /* hooks that were ever registered */
    int running;        /* calls of this module under way; also while it or a hook is destroyed */
    int64_t buffered;   /* parameters of it, or below it, that became buffers */
    bool ending;        /* it is being destroyed, and gets nothing any more */
    const char *called; /* the function that calls it, for messages; NULL: none has */
    bool of_backward;   /* made by what a backward calls */
    bool is_layer;      /* its forward is the library's, and reads the payload */
    bool checkpointed;
    const sherd_op **keeps; /* [keep_count] operators whose results are kept if it is */
    int keep_count;
    sherd__checkpoint *checkpoint; /* calls that may be recomputed */
};

/* The module's path for messages; "(root)" for a root. */
const char *sherd__module_name(const sherd_module *module);
/* For messages of a forward: the function that has called the module. */
const char *sherd__module_called(const sherd_module *module);

/* Whether a module or one below it is being called, or destroyed. */
bool sherd__is_running(const sherd_module *module);
/* Whether backward may still call the module, or one below it, again: by its old path. */
bool sherd__runs_again(const sherd_module *module);
/* Whether a backward is under way that has not made the module, and may still need it. */
bool sherd__is_in_backward(const sherd_module *module);

/*
 * Note in each parameter below `module` the first module that has it (tensor->holder). Returns the
 * number that they have as `walk` now; others have it not.
 */
uint64_t sherd__mark_holders(const sherd_module *module);
/* As sherd_module_find, of the first `length` letters of a path. */
sherd_module *sherd__module_at(sherd_module *module, const char *path, size_t length);
/* The path of m relative to the module of a walk, which may have a path of its own. */
const char *sherd__path_below(const sherd_module *root, const sherd_module *m);

/* Whether all ranks load together: known, if many tensors of one module are loaded. */
typedef enum sherd__load_kind {
    SHERD__LOAD_ASKS, /* the module, which takes a walk */
    SHERD__LOAD_ALONE,
    SHERD__LOAD_TOGETHER
} sherd__load_kind;

/* A load of a tensor, described alike on all ranks. */
typedef struct sherd__loading {
    const char *function;
    sherd_world *world;
    sherd_module *module; /* whatever is distributed in it makes loading collective */
    const char *name;
    /* NULL is right where what is loaded is distributed, and another rank the root */
    sherd_tensor *t;
    int root;
    sherd__load_kind kind;
    bool missing; /* t stands for what only the root has */
    bool anew;    /* an exact copy is made from its parameter, not from t */
} sherd__loading;

/* Write it into `to`, in the layout of `to`; `status`: an earlier failure. As sherd_module_load. */
sherd_status sherd__load(const sherd__loading *what, sherd_tensor *to, sherd_status status);

/* SHERD__LOAD_TOGETHER or SHERD__LOAD_ALONE: what it would be for tensors of this module. */
sherd__load_kind sherd__load_kind_of(const sherd_module *module);

/* The number of a parameter, of a buffer; -1 if there is none. */
int sherd__find_parameter(const sherd_module *module, const char *name);
int sherd__find_buffer(const sherd_module *module, const char *name);

/* Number in the list of its kind; -1 if there is none of this name. */
int sherd__find_name(const sherd_module *m, const char *name, size_t length,
                     sherd__name_kind *kind);
/* The same of one kind; m or name may be NULL. */
int sherd__find_named(const sherd_module *m, const char *name, sherd__name_kind kind);
/* The number of a child; -1 if there is none of this name. */
int sherd__find_child(const sherd_module *m, const char *name, size_t length);
/* Take a child, but not the module or its name, off the list; false for lack of memory. */
bool sherd__drop_child(sherd_module *m, int child);
/* Note the name of what has this number in its list; false for lack of memory. */
bool sherd__add_name(sherd_module *m, sherd__name_kind kind, int index, const char *name);

/*
 * Why a tensor cannot be a parameter or buffer; why a child or tensor cannot have this name. NULL =
 * it can.
 */
const char *sherd__named_fault(const sherd_module *m, const sherd_tensor *t);
const char *sherd__name_fault(const sherd_module *m, const char *name);
/* EINVAL: the module is NULL. */
sherd_status sherd__no_module(const char *function, const sherd_tensor *t);

/* Append a tensor to a list of the module's, which retains it. */
sherd_status sherd__add_named(sherd_module *module, const char *function,
                              sherd__named_tensor **list, int *count, const char *name,
                              sherd_tensor *t);

/* Refuse a tensor: "FUNCTION: KIND "NAME" of "MODULE": fault". */
sherd_status sherd__refuse_named(const sherd_module *m, const char *function, const char *kind,
                                 const char *name, const char *fault);

/* Replace a named tensor by one of the same shape and dtype; otherwise EINVAL. */
sherd_status sherd__set_named(sherd_module *m, const char *function, const char *kind,
                              sherd__named_tensor *named, sherd_tensor *t);

sherd_module *sherd__module_root(sherd_module *m);
/* Whether nothing but one name, and perhaps a scope, holds a tensor: no other module has it. */
bool sherd__is_named_once(const sherd_tensor *t);
/*
 * Put a tensor of another layout or dtype in the place of a parameter or buffer of m, and of what
 * is tied to it in m's tree. Who else holds the old one finds the new one in its placed_as; `once`:
 * the old one is named once.
 */
void sherd__put_in_place(sherd_module *m, sherd__named_tensor *named, sherd_tensor *fresh,
                         bool once);
/*
 * If a parameter or buffer of m is tied to one of another tree, which was placed before, give m and
 * what is tied to it the tensor that stands there now.
 */
void sherd__follow_tie(sherd_module *m, sherd__named_tensor *named);

/* Append a style, "Colwise(tp)", to the module's list of styles. */
sherd_status sherd__note_style(sherd_module *module, const char *style, const char *axis);

/* Free hooks that were removed while the module ran (all = the others too). */
void sherd__hooks_sweep(sherd_module *module, bool all);

/*
 * Around a call of a module. NULL if it is not checkpointed, and then the other functions do
 * nothing. `again` runs hooks and forward in the caller's scope.
 */
sherd__replay *sherd__checkpoint_begin(sherd_module *module, const sherd_args *in,
                                       void (*again)(sherd_module *module, sherd_args *in,
                                                     sherd_args *out));
/* Keep the arguments as they were passed. */
void sherd__checkpoint_keep(sherd__replay *replay, const sherd_args *in);
/* The module is destroyed: its calls can no longer be recomputed. */
void sherd__checkpoint_forget(sherd_module *module);

/* Write EINVAL (or another status) and a text to the world's diag. */
#define sherd__module_fail(module, ...) sherd__fail(sherd__world_diag((module)->world), __VA_ARGS__)

#endif
