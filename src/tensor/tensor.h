/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a tensor: storage, views, scopes, and moves that are not recorded. */
#ifndef SHERD__TENSOR_H
#define SHERD__TENSOR_H

#include "sherd/random.h"
#include "world/world.h"

/* The keys that a piece of a program has drawn, for when it is run again. */
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
    SHERD__BETWEEN,  /* the i-th of `count` from start to end, both there */
    SHERD__DIAGONAL  /* of rows of `count`: 1 where row and column are one, else 0 */
} sherd__values_kind;

/* What elements hold, each a function of its row-major number i in the whole tensor: so any box can be made alone. */
typedef struct sherd__values {
    sherd_dtype dtype;
    sherd__values_kind kind;
    double start, step, end;
    int64_t count;
    sherd_distribution distribution;
    sherd__key key;
} sherd__values;

/* Counted memory. Each in-place write raises the version, which saved tensors check. */
typedef struct sherd__storage {
    int refs;
    sherd_world *world;
    sherd__block *block;  /* NULL for no elements, and as long as there is `later` */
    sherd__values *later; /* memory is not taken yet: what it will hold */
    int64_t bytes;
    int64_t version;
    /* The same numbers in a 16-bit dtype, as long as they are not written; counted; NULL = nobody has made them. */
    struct sherd__storage *image;
    sherd_dtype image_dtype;
    int saved; /* how often the tape holds it; records of a leaf's storage do not count */
    /* of a tensor that was said to want a gradient: it lives anyway, so saving it costs nothing */
    bool leaf;
} sherd__storage;

/* What autograd hangs on a tensor; this room only counts it. */
typedef struct sherd__record {
    int refs;
    void (*destroy)(struct sherd__record *record); /* called when refs gets 0 */
} sherd__record;

enum { SHERD__VARIES = ~0 }; /* all axes: origin unknown */

struct sherd_tensor {
    int refs;
    int scope; /* its place in the list of its scope, -1 = in none */
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
    bool strided;                   /* its pieces need not be row-major, on some rank */
    unsigned varies;                /* plain: bits of the mesh axes over which it varies */
    /* distributed: number and hash of the deed that made it (see sherd__ledger); 0 = none */
    uint64_t made, identity;
    bool
        lost; /* a failed check has found that not all ranks have it: as good as the failed tensor */
    const sherd_layout *was; /* plain: the layout it had before to_local, or NULL */
    /* For autograd: */
    bool requires_grad;
    /* On all ranks its storage is that of a leaf (see sherd__storage): on some it may be, where a move left a rank's box as
     * it was. What all ranks must decide alike is decided by this. */
    bool of_leaf;
    int output;               /* which output of the node this is */
    sherd__record *node;      /* the operator that made it; counted; NULL of a leaf */
    sherd__record *saved;     /* how the tape saved it; not counted, cleared by the record */
    sherd_tensor *grad;       /* of a leaf; counted */
    sherd__record *watch;     /* of a leaf: who asks for its gradient; counted */
    sherd_tensor *moved_from; /* result of a move: what it was before; counted, or NULL */
    /* of the source's storage when it moved: set by every move, also where moved_from is not */
    int64_t moved_version;
    int64_t moved_as; /* the version of its own storage then: written since, it is another tensor */
    void (*forget)(sherd_tensor *t); /* set with `saved`: told when the tensor goes */
    char *text;                      /* of sherd_tensor_text; NULL until asked */
    sherd_tensor *compact;         /* a strided view that was read: its contiguous copy; counted */
    sherd_tensor *previous, *next; /* all tensors that live, so that closing the world frees them */
};

/* The world's failed tensor. */
sherd_tensor *sherd__failed(sherd_world *world);
/* Whether a tensor is the failed one, or lost. */
static inline bool sherd__is_failed(const sherd_tensor *t)
{
    return !t->storage || t->lost;
}
/* `function` uses a failed tensor: raise what is behind it, or, where a check has said that already, that it is used. */
void sherd__raise_failed(sherd_world *world, const char *function);

/* ---- notes in the ledger of a mesh ---------------------------------------------------------- */

/*
 * Note that `name` (static) made out[outs], all on one root mesh, of in[ins]; NULLs are left out. `attributes`: a hash of
 * all else that ranks must agree on; layout and dtype of the first result are in it by themselves. Said once it has gone
 * well; nothing for plain results.
 */
void sherd__note(const char *name, sherd_tensor *const *in, int ins, uint64_t attributes,
                 sherd_tensor *const *out, int outs);
/* The same for what makes one tensor. */
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
 * For what is said to be equal everywhere: a hash of what it will hold, if that is left for later; with SHERD_VERIFY one of
 * the local elements; else 0.
 */
uint64_t sherd__content(sherd_tensor *t);

/* An expression fails: raises the alarm (distributed) or keeps it local (plain), and returns the failed tensor. */
sherd_tensor *sherd__fail_tensor(sherd_world *world, bool distributed, sherd_status status,
                                 const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The same where a lower room has written status and text into the diag. */
sherd_tensor *sherd__fail_diag(sherd_world *world, bool distributed);
/* Say which is not; false. */
bool sherd__not_given(sherd_world *world, const char *function, const sherd__argument *list,
                      sherd_tensor **result);
/*
 * Whether all arguments of a distributed expression are there. Else it has failed in `world` (EINVAL, the alarm is up) and
 * *result is the failed tensor; or NULL where no argument has led to a world and `world` is NULL.
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
 * The entry of every expression: false if it may go on. True if an operand failed, or (any is distributed)
 * the alarm is up: then return the failed tensor. A failed plain operand beside a distributed one raises.
 */
bool sherd__stop(sherd_world *world, const char *function, sherd_tensor *const *operands,
                 int count);

/*
 * A scope around code of the user's (a forward, a hook), which may forget ends or end too often. Between the two
 * sherd_scope_end does not end this scope or one around it. Leaving gives it what is in scopes that were not ended, and
 * lets sherd_scope_end end it. `before` is what entering returned.
 */
int sherd__scope_enter(sherd_world *world);
void sherd__scope_leave(sherd_world *world, int before);

/* New tensors, contents undefined, in the current scope; the failed tensor for lack of memory. */
sherd_tensor *sherd__new_plain(sherd_world *world, sherd_dtype dtype, int ndim,
                               const int64_t *shape, unsigned varies);
sherd_tensor *sherd__new_on(const sherd_layout *layout, sherd_dtype dtype);
/* A plain tensor that does not vary and takes its memory when its data is first needed. */
sherd_tensor *sherd__new_later(sherd_world *world, int ndim, const int64_t *shape,
                               const sherd__values *values);
/* Set every local element of a tensor just made here. The value must fit the dtype. */
void sherd__fill(sherd_tensor *t, double value);
/* The key of the next call of a generator; or, in what is run again, the one that it had the first time. */
sherd__key sherd__next_key(sherd_world *world, sherd_generator *generator);
/* From here to leaving, keys are listed, or taken again. Leaving: false if not all were taken, or too many. */
void sherd__draws_enter(sherd__draws *draws, bool replays);
bool sherd__draws_leave(sherd__draws *draws);
void sherd__draws_clear(sherd__draws *draws);

/* Fill a tensor just made here, any box of the whole. */
void sherd__draw(sherd_tensor *t, const sherd__values *values);
/* What ranks that draw the same must agree on. */
uint64_t sherd__values_hash(const sherd__values *values);
/* Take the memory and draw the values, if that is still to be done. False: there is none, the alarm is up. */
bool sherd__make_now(sherd_tensor *t);
/* A tensor that shares t's storage, in the current scope; the caller then sets shape, local, stride, offset, layout. No record. */
sherd_tensor *sherd__new_view(sherd_tensor *t);

/*
 * A tensor like t (its own layout, shape and place in the ledger are still to be noted) out of the image of t's storage; NULL: there is
 * none of this dtype. In the current scope; the failed tensor for lack of memory.
 */
sherd_tensor *sherd__image_of(sherd_tensor *t, sherd_dtype dtype);
/* Keep the storage of `copy`, all of whose elements are those of t in another dtype, as the image of t's, if t is all of it. */
void sherd__keep_image(sherd_tensor *t, sherd_tensor *copy);
/* A storage is written: its image is none. NULL is a no-op. */
void sherd__drop_image(sherd__storage *storage);

/* The same in no scope: the caller holds its one count. NULL for lack of memory (nothing is reported). */
sherd_tensor *sherd__detached(sherd_tensor *t);

/* Local data of any (strided) tensor: waits for a result in flight. NULL: ended by the alarm. First element of the view. */
const void *sherd__data(sherd_tensor *t);
/* Local data of a tensor just made here, to be filled. */
void *sherd__fresh(sherd_tensor *t);
/*
 * As sherd_tensor_write, for what the library itself writes: a plain tensor varies as it did before, so what is written
 * must be a function of values that vary no more.
 */
void *sherd__mutable(sherd_tensor *t);
/* The same of a view of any strides: its first element. */
void *sherd__mutable_view(sherd_tensor *t);
bool sherd__is_contiguous(const sherd_tensor *t);
/* t itself if contiguous, else a compact copy in the current scope. Not recorded. */
sherd_tensor *sherd__contiguous(sherd_tensor *t);

/* A move that is not recorded, by a plan that `options` choose. It may also make a replicated axis pending. */
sherd_tensor *sherd__move_planned(sherd_tensor *t, const sherd_layout *to,
                                  const sherd_plan_options *options, bool begin);
/*
 * Whether `to` has another shape, or is pending where `t` is not, which only callers in the library may ask for; then it has
 * failed (EINVAL).
 */
bool sherd__cannot_move(sherd_tensor *t, const sherd_layout *to);
/* Moves that are not recorded. As sherd_redistribute and sherd_redistribute_many. */
sherd_tensor *sherd__move_to(sherd_tensor *t, const sherd_layout *to, bool begin);
void sherd__move_many(sherd_tensor **out, sherd_tensor *const *t, const sherd_layout *const *to,
                      int count);
/* As sherd__move_many; with `begin` it returns at once, and a result is complete when it is first read. */
void sherd__move_list(sherd_tensor **out, sherd_tensor *const *t, const sherd_layout *const *to,
                      int count, bool begin);
/* A plain view of the local piece; a distributed view of a local piece (which must fit). Not recorded. */
sherd_tensor *sherd__local_view(sherd_tensor *t);
sherd_tensor *sherd__global_view(sherd_tensor *local, const sherd_layout *layout);

/* sherd_from_local without the record: fits, infers or remembers the layout; all ranks of the mesh compare what they have. */
sherd_tensor *sherd__from_local(sherd_tensor *local, const sherd_mesh *mesh,
                                const sherd_placement *placements,
                                const sherd_from_local_options *options);

/* A plain tensor that does not vary becomes replicated on `mesh`; a distributed one is returned. Refused (failed tensor) if it varies. */
sherd_tensor *sherd__promote(sherd_tensor *t, const sherd_mesh *mesh, const char *function);

/* ---- windows ---------------------------------------------------------------------------------- */

/* One tensor in a call of windows: `whole` is as the window's layout says, `piece` what a rank has in its window. */
typedef struct sherd__windowed {
    struct sherd__window *window;
    sherd_tensor *whole, *piece;
} sherd__windowed;

/*
 * Bring this rank its windows of `count` tensors on one mesh, as plain tensors in the current scope, by one call; or, the
 * adjoint, add what ranks have in their windows. Sets `piece`, or `whole`. Not recorded; `name` is static. False: failed, raised.
 */
bool sherd__gather_windows(sherd__windowed *list, int count, bool begin, const char *name);
bool sherd__fold_windows(sherd__windowed *list, int count, bool begin, const char *name);

/* The layout of a plain tensor as the piece of a mesh that is this rank alone. */
sherd_status sherd__layout_alone(const sherd_layout **out, sherd_world *world, int ndim,
                                 const int64_t *shape);

/* Axes of the mesh over which the local pieces of a layout differ. */
unsigned sherd__varying_axes(const sherd_layout *layout);

/*
 * A walk over a local piece in runs of elements that are neighbours in the whole tensor:
 * for (sherd__walk_begin(&w, t); sherd__walk_next(&w);) ...
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

/* The layout in which the rank at `coordinate` of a root mesh holds all of a shape, of one dim at least, and the others nothing. */
sherd_status sherd__all_at(const sherd_layout **out, const sherd_mesh *mesh, int ndim,
                           const int64_t *shape, const int64_t *coordinate);
/* A settled copy, or the tensor itself, that is whole on one world rank of its mesh; `rank` -1: on all. In the current scope; not recorded. */
sherd_tensor *sherd__whole_at(sherd_tensor *t, int rank);

/* ---- for autograd/ -------------------------------------------------------------------------- */

/* Give up one count of a record; NULL is a no-op. */
void sherd__record_release(sherd__record *record);
/* SHERD__SPARE_BYTES of zeroes, 64-byte aligned, that exist as long as the world: the state of the tape, so that it always exists. */
enum { SHERD__SPARE_BYTES = 256 };
void *sherd__spare(sherd_world *world);
/* End all scopes and empty all tensors that are left: the world closes. Tensors stay valid and empty until this room closes. */
void sherd__tensors_empty(sherd_world *world);

/* This rank's coordinate; false if it is not in the mesh. */
bool sherd__coordinate(const sherd_tensor *t, int64_t *coordinate);

#endif
