/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the tensor room keeps per world: the failed tensor, the scopes, and the list of all tensors.
 * It is allocated with the world (in its reserve), so using it cannot fail.
 */
#ifndef SHERD__TENSOR_STATE_H
#define SHERD__TENSOR_STATE_H

#include "said.h"
#include "tensor.h"

/* Where a scope starts: in the list of tensors, and in the list of held layouts. */
typedef struct sherd__scope {
    int tensors, layouts;
} sherd__scope;

/*
 * All scopes share one list: scope i holds list[start[i].tensors] up to where the next one starts.
 * The outermost scope has no start. A tensor that was released early leaves a NULL, until the list
 * is full.
 */
typedef struct sherd__tensors {
    sherd_tensor failed;
    sherd_world *world;
    sherd_tensor *all;
    sherd__stock structs, storages; /* of tensors that are gone */
    sherd_tensor **list;
    int listed, list_room;
    sherd__scope *start;
    int scopes, start_room;
    int unopened;                   /* scopes that no memory was there for: their ends do nothing */
    sherd__draws *draws;            /* the innermost list of keys */
    struct sherd__standing *stands; /* generators of modules (stands.h) */
    uint64_t walks;                 /* how many walks over modules there were */
    uint64_t storages_made;
    bool families;      /* see sherd__write_families */
    uint64_t run, runs; /* the run that notes origins, 0 = none, odd = a second one; how many */
    bool make_there;    /* new tensors lie in the GPU's memory */
    int floor;          /* scopes that user code must not end: see sherd__scope_enter */
    int called_back;    /* how many of the user's functions are running, nested */
    sherd__last_deeds said;
} sherd__tensors;

enum { SHERD__TENSORS_BYTES = SHERD__RESERVE_BYTES - SHERD__SPARE_BYTES };
_Static_assert(sizeof(sherd__tensors) <= SHERD__TENSORS_BYTES, "the reserve is too small");

/* Made here, if sherd__tensors_of finds none yet. */
sherd__tensors *sherd__tensors_open(sherd_world *world);

static inline sherd__tensors *sherd__tensors_of(sherd_world *world)
{
    sherd__tensors *s = sherd__world_state(world, SHERD__ROOM_TENSOR);

    return s ? s : sherd__tensors_open(world);
}

/* Whether a function of the user's is running. */
bool sherd__calls_back(sherd_world *world);
/*
 * Whether so many of them are running, each called by the one before, that a thread's stack may
 * have no room for more: most likely one calls itself.
 */
enum { SHERD__DEEPEST = 1000 };
bool sherd__is_deep(sherd_world *world);
/* Pass a payload to the program's function (NULL: none), which cannot end scopes around it. */
void sherd__give_back(sherd_world *world, void *payload, void (*taker)(void *payload));
/* Axes along which a tensor should be equal (note.c). */
unsigned sherd__equal_axes(const sherd_layout *layout);
/* Say of a deed what it was, as sherd__watcher has it (said.c). */
void sherd__tell_deed(sherd_world *world, const sherd_mesh *mesh, uint64_t deed, char *text,
                      size_t room);
/* As sherd__note_one of what was made of values, whose hash this is (said.c). */
void sherd__note_values(const char *name, uint64_t hash, const sherd__values *values,
                        sherd_tensor *out);
/* What this room does at checks, and to its state when the world ends (checks.c). */
typedef struct sherd__tensors_hooks {
    sherd__watcher watcher;
    void (*end)(sherd_world *world, void *state);
} sherd__tensors_hooks;
extern const sherd__tensors_hooks sherd__tensors_own_hooks;

/*
 * Put a tensor, with its one reference, into the innermost scope. False if memory runs out; then
 * the tensor is released.
 */
bool sherd__scope_add(sherd_tensor *t);
/* Where the innermost scope starts in the list. */
int sherd__scope_start(const sherd__tensors *s);
/* Remove a tensor that is freed from the list. */
void sherd__scope_forget(sherd_tensor *t);

/*
 * A new tensor with undefined contents, in no scope. NULL if memory runs out: reported, for a
 * distributed tensor by the alarm.
 */
sherd_tensor *sherd__loose_plain(sherd_world *world, sherd_dtype dtype, int ndim,
                                 const int64_t *shape, unsigned varies);
sherd_tensor *sherd__loose_on(const sherd_layout *layout, sherd_dtype dtype);

/* As sherd__new_plain and sherd__new_on; `function`, a public one, is named if memory runs out. */
sherd_tensor *sherd__made_plain(const char *function, sherd_world *world, sherd_dtype dtype,
                                int ndim, const int64_t *shape, unsigned varies);
sherd_tensor *sherd__made_on(const char *function, const sherd_layout *layout, sherd_dtype dtype);

/*
 * Whether a user's arguments describe a plain tensor; otherwise the expression has failed (EINVAL,
 * ELIMIT).
 */
bool sherd__is_plain_shape(sherd_world *world, const char *function, sherd_dtype dtype,
                           const int64_t *shape, int ndim);

/* Whether a tensor covers its whole storage, in order (about.c). */
bool sherd__covers_storage(const sherd_tensor *t);

/* Somebody is about to write to its storage: what was derived from the contents is no longer so. */
void sherd__mark_written(sherd_tensor *t);

/* An empty struct with one reference, in the list of all tensors. NULL: no memory. */
sherd_tensor *sherd__tensor_create(sherd__tensors *s);
void sherd__storage_release(sherd__tensors *s, sherd__storage *storage);

/* A block of the arena for a storage, that may be written. False: the alarm is raised. */
bool sherd__furnish_here(sherd__storage *storage);
/* Its contents to the GPU. False: the alarm is raised. */
bool sherd__bring_there(sherd__storage *storage);
/* Take memory of the GPU for a storage, if it has none. False: the alarm is raised. */
bool sherd__device_furnish(sherd__storage *storage);
/* The elements of `t`, one after the other, into `to`, which was made there. False: failed. */
bool sherd__device_compact(sherd_tensor *t, sherd_tensor *to);
/*
 * The contents now belong to the next deed: if not all ranks do that deed, the tensor is lost, and
 * so are all that share its storage (lost.c). What an optimizer changes is lost together.
 */
void sherd__mark_deed(const sherd_tensor *t);
/* The same of what is noted as changed by that deed: see sherd__mutable. */
void sherd__await_deed(sherd_tensor *t);

/* Release everything that a tensor holds; its struct stays. */
void sherd__tensor_strip(sherd__tensors *s, sherd_tensor *t);

/* A tensor was written as a whole or in part: note what it depends on (origin.c). */
void sherd__origin_written(sherd_tensor *t);

#endif
