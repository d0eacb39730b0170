/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensor room's own interface: storage, views, scopes, moves that are not recorded for
 * backward.
 */
#ifndef SHERD__TENSOR_TENSOR_H
#define SHERD__TENSOR_TENSOR_H

#include "lost.h"
#include "origin.h"
#include "sherd/random.h"
#include "world/world.h"

/* The keys that a part of a program has drawn, so that recomputing it draws the same numbers. */
typedef struct sherd__draws {
    sherd_world *world;
    struct sherd__draws *outer;
    sherd__key *key;
    int count, room, at;
    bool replays; /* keys are taken from here; else listed here */
} sherd__draws;

typedef enum sherd__values_kind {
    SHERD__CONSTANT, /* start */
    SHERD__DRAWN,    /* from the distribution, by the key */
    SHERD__STEPS,    /* start + i step */
    SHERD__BETWEEN,  /* the i-th of `count` even steps from start to end, both included */
    SHERD__DIAGONAL  /* of a matrix with rows of `count`: 1 on the diagonal, else 0 */
} sherd__values_kind;

/*
 * Elements that are functions of their global row-major index i, so any box of them can be made on
 * its own.
 */
typedef struct sherd__values {
    sherd_dtype dtype;
    sherd__values_kind kind;
    double start, step, end;
    int64_t count;
    sherd_distribution distribution;
    sherd__key key;
} sherd__values;

/* Reference-counted memory. Each in-place write increments the version, which saved tensors
 * check. */
typedef struct sherd__storage {
    int refs;
    sherd_world *world;
    sherd__block *block;  /* NULL if there are no elements, or while it is deferred */
    sherd__values *later; /* deferred: what it will hold; otherwise NULL */
    uint64_t made_of;     /* hash of the description that version 0 was made of; 0 = of none */
    /* in a world with GPUs: a second place, and which of the two hold the contents (furnish.c) */
    sherd__device_block *device;
    bool here, there;
    int64_t bytes;
    int64_t version;
    /* identity of its first tensor; and of all that one optimizer changes together, or 0 */
    uint64_t born, family;
    /* a copy in a 16-bit dtype (autocast), until this storage is written; counted; may be NULL */
    struct sherd__storage *image;
    sherd_dtype image_dtype;
    int saved; /* how often the tape holds it; not counted of the storage of a leaf */
    sherd_memory_use serves;
    bool leaf;       /* of a leaf that requires a gradient: it lives anyway, so saving it is free */
    uint64_t number; /* no other storage of the world has had it */
    uint64_t run;    /* the run in which it was made, or `origin` was noted; 0 = none */
    sherd__origin origin; /* of what it holds */
} sherd__storage;

/* The head of a reference-counted object of autograd's; this room only counts references to it. */
typedef struct sherd__refcounted {
    int refs;
    void (*destroy)(struct sherd__refcounted *object); /* called when refs gets 0 */
} sherd__refcounted;

enum { SHERD__VARIES = ~0 }; /* all axes: origin unknown */

/* What the ledger of a mesh (world/) knows of a distributed tensor; 0 = of none. */
typedef struct sherd__in_ledger {
    uint64_t made, identity; /* number and hash of the entry of the operator that made it */
    /* The same of the one that first made it, before in-place writes. */
    uint64_t born_at, born;
} sherd__in_ledger;

/* What the tape (autograd/) knows of a tensor. */
typedef struct sherd__in_tape {
    bool requires_grad;
    /*
     * Its storage is a leaf's (sherd__storage.leaf) on all ranks: decisions that all ranks must
     * make alike use this.
     */
    bool of_leaf;
    bool grad_seen; /* sherd_grad has returned it, so nothing but views of it shares it */
    int output;     /* which output of the node this is */
    int ties;       /* in which it is the second copy: norms of several optimizers leave it out */
    sherd__refcounted *node;  /* the operator that made it; counted; NULL of a leaf */
    sherd__refcounted *saved; /* how the tape saved it; not counted, NULL once that is gone */
    sherd__refcounted *watch; /* of a leaf: hooks on its gradient; counted */
    sherd_tensor *grad;       /* of a leaf; counted */
    sherd_tensor *moved_from; /* result of a move: its source; counted, or NULL */
    /* versions at the time of the move, also if moved_from is not set: of the source's storage, */
    int64_t moved_version;
    int64_t moved_as;                /* and of its own, to see whether it was written since */
    void (*forget)(sherd_tensor *t); /* set with `saved`: called when the tensor is freed */
} sherd__in_tape;

/* The last walk over modules (nn/) that met a tensor: its number, and the module. */
typedef struct sherd__visit {
    uint64_t walk;
    const struct sherd_module *holder;
} sherd__visit;

struct sherd_tensor {
    int refs;
    int scope; /* its index in the list of its scope, -1 = in none */
    sherd_world *world;
    sherd__storage *storage;    /* NULL of the failed tensor */
    const sherd_layout *layout; /* NULL = plain; counted, as is `was`: see sherd__layout_set */
    sherd_dtype dtype;
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];  /* global */
    int64_t local[SHERD_MAX_DIMS];  /* of this rank's box */
    int64_t stride[SHERD_MAX_DIMS]; /* local, elements */
    int64_t offset;                 /* elements, in the storage */
    int64_t count;                  /* local elements */
    bool strided;                   /* on some rank its piece may not be row-major */
    unsigned varies;                /* plain: bits of the mesh axes over which it varies */
    unsigned stretched; /* bits of dims whose elements are one in memory on all ranks, if known */
    /* plain: of a module that lies on a mesh without this rank; its values are others' business */
    bool elsewhere;
    const sherd_layout *was; /* plain: the layout it had before to_local, or NULL */
    /* found by a failed check, the same on all ranks; then it counts as the failed tensor */
    sherd__lost lost;
    sherd__in_ledger ledger;
    sherd__in_tape autograd;
    sherd__visit visit;
    /* of a parameter that others than its module hold: what parallel/ put in its place; counted */
    sherd_tensor *placed_as;
    char *text;                    /* of sherd_tensor_text; NULL until asked */
    sherd_tensor *compact;         /* a strided view that was read: its contiguous copy; counted */
    sherd_tensor *previous, *next; /* all tensors that live, so that closing the world frees them */
};

/* The world of the first of some tensors that is not NULL; NULL: there is none. */
sherd_world *sherd__world_among(sherd_tensor *const *t, int count);
/* The world's failed tensor. */
sherd_tensor *sherd__failed(sherd_world *world);
/* The number of a new walk, which no tensor has. */
uint64_t sherd__walk_number(sherd_world *world);
/* Whether a tensor is the failed tensor, or was lost in a failed check. */
static inline bool sherd__is_failed(const sherd_tensor *t)
{
    return !t->storage || t->lost;
}

/*
 * `function` was given a failed tensor: raise the failure behind it, or, if a check has reported
 * that already, that it is used.
 */
void sherd__raise_failed(sherd_world *world, const char *function);

/* ---- notes in the ledger of a mesh ---------------------------------------------------------- */

/*
 * Note in the ledger that `name` (static) made out[outs], all on one root mesh, from in[ins]; NULLs
 * are skipped. `attributes`: a hash of everything else that ranks must agree on; layout and dtype
 * of the first result are included anyway. Called after success; no effect for plain results.
 */
void sherd__note(const char *name, sherd_tensor *const *in, int ins, uint64_t attributes,
                 sherd_tensor *const *out, int outs);
/* As sherd__note, for a single operand and result. */
static inline void sherd__note_one(const char *name, sherd_tensor *in, uint64_t attributes,
                                   sherd_tensor *out)
{
    sherd__note(name, &in, 1, attributes, &out, 1);
}
/* Mix one more attribute into a hash of them. */
static inline uint64_t sherd__attribute(uint64_t hash, uint64_t word)
{
    hash = (hash + word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}
uint64_t sherd__attribute_double(uint64_t hash, double value);

/*
 * For a tensor that should be equal everywhere: the hash of its values' description if it is
 * deferred, or was and is unchanged; with SHERD_VERIFY, of its local elements; otherwise 0.
 */
uint64_t sherd__content(sherd_tensor *t);

/*
 * Fail an expression: raise the alarm (distributed) or keep the failure local (plain), and return
 * the failed tensor.
 */
sherd_tensor *sherd__fail_tensor(sherd_world *world, bool distributed, sherd_status status,
                                 const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The same, with the status and text that a lower room has written into the diag. */
sherd_tensor *sherd__fail_diag(sherd_world *world, bool distributed);
/* Fail with the name of the first argument that is NULL; returns false. */
bool sherd__not_given(sherd_world *world, const char *function, const sherd__argument *list,
                      sherd_tensor **result);

/*
 * Whether all arguments of a distributed expression are non-NULL. If not, it has failed in `world`
 * (EINVAL, the alarm is raised) and *result is the failed tensor; if `world` is NULL too, *result
 * is NULL.
 */
static inline bool sherd__given(sherd_world *world, const char *function,
                                const sherd__argument *list, sherd_tensor **result)
{
    *result = NULL;
    for (const sherd__argument *a = list; a->name; a++)
        if (!a->value)
            return sherd__not_given(world, function, list, result);
    return true;
}

/*
 * The entry check of every expression: false if it may go on. True if an operand has failed, or if
 * an operand is distributed and the alarm is raised: then return the failed tensor. A failed plain
 * operand beside a distributed one raises the alarm.
 */
bool sherd__stop(sherd_world *world, const char *function, sherd_tensor *const *operands,
                 int count);

/*
 * A scope around user code (a forward, a hook), which may forget to end scopes or end too many.
 * Between enter and leave, sherd_scope_end ends neither this scope nor any around it. Leave merges
 * scopes that were not ended into this one, and lets sherd_scope_end end it again. `before` is what
 * enter returned. In between sherd_world_close is refused.
 */
int sherd__scope_enter(sherd_world *world);
/* As enter, without a scope of its own: what is made belongs to the innermost one that is open. */
int sherd__scope_fence(sherd_world *world);
void sherd__scope_leave(sherd_world *world, int before);

/*
 * New tensors with undefined contents, in the current scope; the failed tensor if memory runs out.
 */
sherd_tensor *sherd__new_plain(sherd_world *world, sherd_dtype dtype, int ndim,
                               const int64_t *shape, unsigned varies);
sherd_tensor *sherd__new_on(const sherd_layout *layout, sherd_dtype dtype);
/* On t's layout; or plain, and varying as t does. */
sherd_tensor *sherd__new_like(const sherd_tensor *t, sherd_dtype dtype);
/* A deferred plain tensor that does not vary: it allocates memory when its data is first needed. */
sherd_tensor *sherd__new_later(sherd_world *world, int ndim, const int64_t *shape,
                               const sherd__values *values);
/* Set every local element of a tensor that was just made. The value must fit the dtype. */
void sherd__fill(sherd_tensor *t, double value);
/* The key of the next call of a generator; when recomputing, the key that it had the first time. */
sherd__key sherd__next_key(sherd_world *world, sherd_generator *generator);

/*
 * Between enter and leave, keys are recorded, or (replays) taken from the record. Leave returns
 * false if not exactly the recorded keys were taken.
 */
void sherd__draws_enter(sherd__draws *draws, bool replays);
bool sherd__draws_leave(sherd__draws *draws);
void sherd__draws_clear(sherd__draws *draws);

/* Fill a tensor that was just made; its piece may be any box of the whole. */
void sherd__draw(sherd_tensor *t, const sherd__values *values);
/* A hash of the values' description, for the ledger. */
uint64_t sherd__values_hash(const sherd__values *values);

/* Whether a tensor is of ranks without this one, and has taken no memory here. */
static inline bool sherd__is_elsewhere(const sherd_tensor *t)
{
    return t->elsewhere && t->storage && t->storage->later;
}

/*
 * Allocate and fill a deferred tensor, if it still is one. False: no memory, the alarm is raised.
 */
bool sherd__make_now(sherd_tensor *t);

/*
 * A tensor that shares t's storage, in the current scope; the caller then sets shape, local,
 * stride, offset and layout. Not recorded.
 */
sherd_tensor *sherd__new_view(sherd_tensor *t);

/*
 * A tensor like t in another dtype, backed by the image of t's storage; NULL if there is no image
 * of this dtype. In the current scope; the failed tensor if memory runs out. The caller notes it in
 * the ledger.
 */
sherd_tensor *sherd__image_of(sherd_tensor *t, sherd_dtype dtype);

/*
 * Keep the storage of `copy`, which has t's elements in another dtype, as the image of t's storage;
 * only if t covers its storage.
 */
void sherd__keep_image(sherd_tensor *t, sherd_tensor *copy);
/* A storage is written, so its image is no longer valid. NULL is a no-op. */
void sherd__drop_image(sherd__storage *storage);
/* Note a use of a storage, for the memory figures; the greatest one counts. */
void sherd__serve(sherd__storage *storage, sherd_memory_use use);
/* It no longer has this use, if it had. */
void sherd__serve_no_more(sherd__storage *storage, sherd_memory_use use);

/*
 * As sherd__new_view, but in no scope: the caller owns its one reference. NULL if memory runs out
 * (not reported).
 */
sherd_tensor *sherd__detached(sherd_tensor *t);

/* The first local element of any (strided) tensor; waits for a result in flight. NULL: alarm. */
const void *sherd__data(sherd_tensor *t);
/* Local data of a tensor that was just made, for filling. */
void *sherd__fresh(sherd_tensor *t);
/* Bytes of its elements here. */
static inline int64_t sherd__local_bytes(const sherd_tensor *t)
{
    return t->count * (int64_t)sherd_dtype_bytes(t->dtype);
}

bool sherd__is_contiguous(const sherd_tensor *t);

/* ---- in worlds with GPUs: furnish.c, mirror.c ------------------------------------------------ */

/*
 * As sherd__data, sherd__fresh and sherd__mutable, in the memory of this rank's GPU. Fresh is only
 * for tensors made while sherd__make_there is on, which have no other memory.
 */
const void *sherd__device_data(sherd_tensor *t);
void *sherd__device_fresh(sherd_tensor *t);
void *sherd__device_mutable(sherd_tensor *t);
/* As fresh, for a tensor with contents, which are dropped. NULL: the alarm is raised. */
void *sherd__over(sherd_tensor *t);
void *sherd__device_over(sherd_tensor *t);
/* Whether new tensors go to the GPU's memory, if there is one. Returns what held before. */
bool sherd__make_there(sherd_world *world, bool there);
/* As those without _there, in the GPU's memory if `there`. */
sherd_tensor *sherd__new_plain_there(sherd_world *world, sherd_dtype dtype, int ndim,
                                     const int64_t *shape, unsigned varies, bool there);
sherd_tensor *sherd__new_on_there(const sherd_layout *layout, sherd_dtype dtype, bool there);
sherd_tensor *sherd__new_like_there(const sherd_tensor *t, sherd_dtype dtype, bool there);
/* Whether the GPU has the contents. */
bool sherd__is_there(const sherd_tensor *t);
/* Whether only the GPU has them. */
bool sherd__is_only_there(const sherd_tensor *t);
/* Copy the contents to the arena, if it lacks them. False: the alarm is raised. */
bool sherd__bring_here(sherd__storage *storage);
/* The same, for a write: then the GPU's copy is stale. */
bool sherd__hold_here(sherd__storage *storage);

/* ---- writing, and compact copies: data.c ----------------------------------------------------- */

/*
 * As sherd_tensor_write, for writes by the library itself: the set of axes over which a plain
 * tensor varies does not change, so the new values must not vary more.
 */
void *sherd__mutable(sherd_tensor *t);
/* The same for a view with any strides; returns its first element. */
void *sherd__mutable_view(sherd_tensor *t);
/*
 * Set the axes over which a plain tensor varies, after a write. So do its views that share elements
 * with it; if there are views, that costs a look at all tensors.
 */
void sherd__set_varies(sherd_tensor *t, unsigned axes);
/* t itself if contiguous, otherwise a compact copy in the current scope. Not recorded. */
sherd_tensor *sherd__contiguous(sherd_tensor *t);
/* A compact copy, in the current scope; for the ledger it is the same tensor. Not recorded. */
sherd_tensor *sherd__copied(sherd_tensor *t);

/* ---- moves that are not recorded: move.c ----------------------------------------------------- */

/*
 * Move by the plan that `options` choose; between two meshes as a call of the ranks of `among`
 * (NULL: the world). Not recorded. It may also make a replicated axis pending.
 */
sherd_tensor *sherd__move_planned(sherd_tensor *t, const sherd_layout *to,
                                  const sherd_plan_options *options, const sherd_mesh *among,
                                  bool begin);
/* The same by the CPU, with GPUs too: for a few bytes that the CPU has and reads. */
sherd_tensor *sherd__move_here(sherd_tensor *t, const sherd_layout *to, const sherd_mesh *among,
                               bool begin);

/*
 * Whether `to` has another shape, or is pending where `t` is not (only callers in the library may
 * ask for that). If so, the move has failed (EINVAL).
 */
bool sherd__cannot_move(sherd_tensor *t, const sherd_layout *to);
/* As sherd_redistribute, not recorded. */
sherd_tensor *sherd__move_to(sherd_tensor *t, const sherd_layout *to, bool begin);
/*
 * As sherd_redistribute_many. With `begin` it returns at once, and each result is complete when it
 * is first read.
 */
void sherd__move_list(sherd_tensor **out, sherd_tensor *const *t, const sherd_layout *const *to,
                      int count, bool begin);

/* ---- pieces: view.c, local.c ----------------------------------------------------------------- */

/*
 * A plain view of the local piece; a distributed view of a local piece (which must fit), noted
 * under the name of a function. Not recorded.
 */
sherd_tensor *sherd__local_view(sherd_tensor *t);
sherd_tensor *sherd__global_view(sherd_tensor *local, const sherd_layout *layout,
                                 const char *function);

/*
 * sherd_from_local without the record: checks or infers the layout, or uses the one that the piece
 * remembers; the ranks of the mesh compare their pieces.
 */
sherd_tensor *sherd__from_local(sherd_tensor *local, const sherd_mesh *mesh,
                                const sherd_placement *placements,
                                const sherd_from_local_options *options);

/*
 * A plain tensor that does not vary, as replicated on `mesh`, noted under the name of a function
 * (static); a distributed tensor is returned as it is. One that varies is refused (failed tensor).
 */
sherd_tensor *sherd__promote(sherd_tensor *t, const sherd_mesh *mesh, const char *function);

/* ---- windows --------------------------------------------------------------------------------- */

/*
 * One tensor in a call of windows: `whole` has the window's layout, `piece` is what this rank has
 * in its window.
 */
typedef struct sherd__windowed {
    struct sherd__window *window;
    sherd_tensor *whole, *piece;
} sherd__windowed;

/*
 * Fetch this rank's windows of `count` tensors on one mesh, as plain tensors in the current scope,
 * in one call (sets `piece`). Fold is the adjoint: it adds up what ranks have in their windows
 * (sets `whole`). Not recorded; `name` is static. False: failed, raised.
 */
bool sherd__gather_windows(sherd__windowed *list, int count, bool begin, const char *name);
/* By the CPU, with GPUs too: for what the CPU has made, and is about to read. */
bool sherd__gather_windows_here(sherd__windowed *list, int count, const char *name);
bool sherd__fold_windows(sherd__windowed *list, int count, bool begin, const char *name);

/* The layout of a plain tensor on a mesh of this rank alone. */
sherd_status sherd__layout_alone(const sherd_layout **out, sherd_world *world, int ndim,
                                 const int64_t *shape);

/* Axes of the mesh over which the local pieces of a layout differ. */
unsigned sherd__varying_axes(const sherd_layout *layout);

/*
 * A walk over a local piece in runs of elements that are neighbours in the whole tensor:
 *
 *     for (sherd__walk_begin(&w, t); sherd__walk_next(&w);) ...
 */
typedef struct sherd__walk {
    const sherd_tensor *t;
    sherd_box box;
    int64_t index[SHERD_MAX_DIMS]; /* of the run, in dims [0, outer) of the box */
    int outer;
    int64_t length; /* elements of each run */
    int64_t local;  /* where the run begins in the local piece, */
    int64_t global; /* and its row-major number in the whole tensor */
} sherd__walk;

void sherd__walk_begin(sherd__walk *w, const sherd_tensor *t);
bool sherd__walk_next(sherd__walk *w);

/* The layout that is replicated on all axes of a mesh. */
sherd_status sherd__replicated(const sherd_layout **out, const sherd_mesh *mesh, int ndim,
                               const int64_t *shape);

/*
 * The layout in which the rank at `coordinate` of a root mesh holds a whole tensor of at least one
 * dim, and the others nothing.
 */
sherd_status sherd__all_at(const sherd_layout **out, const sherd_mesh *mesh, int ndim,
                           const int64_t *shape, const int64_t *coordinate);

/*
 * The tensor settled and whole on one world rank of its mesh, or with `rank` -1 on all: itself or a
 * copy in the current scope. Not recorded.
 */
sherd_tensor *sherd__whole_at(sherd_tensor *t, int rank);

/* ---- for autograd/ -------------------------------------------------------------------------- */

/* Release one reference; NULL is a no-op. */
void sherd__refcounted_release(sherd__refcounted *object);
/* SHERD__SPARE_BYTES of zeros, 64-byte aligned, allocated with the world: for the tape's state. */
enum { SHERD__SPARE_BYTES = 256 };
void *sherd__spare(sherd_world *world);

/*
 * For closing the world: end all scopes and strip all remaining tensors. They stay valid, and
 * empty, until this room closes.
 */
void sherd__tensors_empty(sherd_world *world);

/* This rank's coordinate; false if it is not in the mesh. */
bool sherd__coordinate(const sherd_tensor *t, int64_t *coordinate);

#endif
