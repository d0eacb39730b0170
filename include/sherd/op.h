/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators as values; this header is for defining your own. An operator says only what is special
 * about it: its operands and results, a rule (which local pieces of the operands give which local
 * pieces of the results), the computation on local pieces, and a backward made of operators.
 * sherd_apply does what is the same for all operators, the library's (ops.h) and yours:
 *
 * - it checks for failed operands, the alarm, dtypes and shapes;
 * - it takes plain operands that do not vary for replicated ones;
 * - it finds the cheapest way to make the operands fit the rule, and records and logs the moves;
 * - it creates the results, runs forward, and records the call for backward;
 * - it notes the call, so that ranks that made different calls are found;
 * - it runs handlers that replace the operator (sherd_op_override).
 *
 * An operator is a constant: it must live as long as every world that applies it. Tensors that its
 * functions make belong to a scope of the call; they must not end scopes that they have not begun,
 * nor close the world. See examples/custom_op.c.
 *
 * Rules. One index string names the dims of all operands and results by letters, for example
 * "...k,nk,n->...n". Dims with the same letter have the same size, and must be sharded alike. "..."
 * stands for any number of dims, the same in all operands (or, if the operator `broadcasts`,
 * broadcast as in NumPy, aligned at the last dim). A letter that is missing in a result is summed
 * over (or reduced as sherd_call.reduces says): if it is sharded, the result is a pending sum. '1'
 * is a dim of size 1, and '*' one of any size that is related to no other; neither is ever sharded.
 */
#ifndef SHERD_OP_H
#define SHERD_OP_H

#include "autograd.h"

SHERD_BEGIN

typedef struct sherd_op sherd_op;
typedef struct sherd_node sherd_node;
typedef struct sherd_ways sherd_ways;

enum {
    SHERD_MAX_OPERANDS = 32,
    SHERD_MAX_RESULTS = 4,
    SHERD_OP_SLOTS = 8,          /* named operands; the last one may be REPEATED */
    SHERD_OP_FIELDS = 12,        /* members of attributes */
    SHERD_ATTRIBUTE_BYTES = 512, /* size of attributes */
    SHERD_RULE_BYTES = 400       /* length of a rule, with its terminating zero */
};

/* Flags of an operand or result. */
enum {
    SHERD_OP_OPTIONAL = 1 << 0,  /* operand: may be NULL */
    SHERD_OP_REPEATED = 1 << 1,  /* the last operand: one or more tensors, one entry in the rule */
    SHERD_OP_INDEX = 1 << 2,     /* has dtype i32 */
    SHERD_OP_BOOL = 1 << 3,      /* has dtype bool */
    SHERD_OP_ANY = 1 << 4,       /* operand: any dtype, independent of the others */
    SHERD_OP_TERM = 1 << 5,      /* operand: added, not multiplied (see sherd_linearity) */
    SHERD_OP_STATISTIC = 1 << 6, /* result: f32 if the operands have 16 bits */
    SHERD_OP_HIDDEN = 1 << 7,    /* result: for backward only; after those that are not hidden */
    SHERD_OP_AROUND = 1 << 8     /* operand, not REPEATED: also read around its piece: `reads` */
};

typedef struct sherd_op_slot {
    const char *name; /* for messages; NULL ends the list */
    unsigned flags;
} sherd_op_slot;

/* How an operator treats pending reductions of its operands. */
typedef enum sherd_linearity {
    /* every operand is settled first */
    SHERD_NONLINEAR = 0,
    /*
     * A pending sum passes through. On each axis at most one factor may be pending. Terms may be
     * pending on the axes on which the product is; a term that is not pending there is added by the
     * ranks at coordinate 0 only (see sherd_call.once).
     */
    SHERD_LINEAR,
    /* elements are only moved or copied, so any pending reduction passes through */
    SHERD_UNCHANGED
} sherd_linearity;

/*
 * Which dtypes the operands may have. All operands that are not INDEX, BOOL or ANY have one dtype.
 */
typedef enum sherd_op_numbers {
    SHERD_FRACTIONS = 0, /* f32, f64, bf16, f16 */
    SHERD_NUMBERS,       /* integers too */
    SHERD_EVERYTHING     /* integers and bool too */
} sherd_op_numbers;

/* What operands of f32, bf16 and f16 are cast to while autocast is on: see autocast.h. */
typedef enum sherd_op_autocast {
    SHERD_AUTOCAST_WIDEST = 0, /* f32 if they differ, otherwise not cast */
    SHERD_AUTOCAST_LOW,        /* the 16-bit dtype that is set */
    SHERD_AUTOCAST_FULL        /* f32 */
} sherd_op_autocast;

/*
 * The type of a member of an operator's attributes. Ranks compare the members, and messages show
 * them.
 */
typedef enum sherd_field_kind {
    SHERD_FIELD_INT,
    SHERD_FIELD_INT64,
    SHERD_FIELD_DOUBLE,
    SHERD_FIELD_BOOL,
    SHERD_FIELD_UINT32,
    SHERD_FIELD_BYTE /* also char */
} sherd_field_kind;

typedef struct sherd_op_field {
    const char *name; /* NULL ends the list */
    sherd_field_kind kind;
    size_t offset; /* of the member, in bytes; all of it lies within the struct */
    int count;     /* elements, if the member is an array; 0 = 1 */
} sherd_op_field;

/* The field for a member that is not an array: SHERD_FIELD(attributes, eps, DOUBLE). */
#define SHERD_FIELD(type, member, kind)                        \
    {                                                          \
#member, SHERD_FIELD_##kind, offsetof(type, member), 1 \
    }
/* The field for a member that is an array of n elements. */
#define SHERD_FIELDS(type, member, kind, n)                    \
    {                                                          \
#member, SHERD_FIELD_##kind, offsetof(type, member), n \
    }

/* One call of an operator, as seen by its functions and by handlers. */
typedef struct sherd_call {
    const sherd_op *op;
    const void *attributes; /* NULL if the operator has none */
    sherd_world *world;
    int operands, results; /* how many, absent operands and hidden results included */
    /*
     * The operands. In describe, compose and handlers above the tape: as they were passed. In
     * forward: after they were moved to fit the rule, row-major and contiguous unless the operator
     * is `strided`. There an AROUND operand may be a plain tensor with the piece: sherd_call_box
     * says which indices it has; its global size can be taken from a result or an attribute.
     */
    sherd_tensor *in[SHERD_MAX_OPERANDS];
    sherd_tensor *out[SHERD_MAX_RESULTS];
    /* Forward: local data; NULL if absent. Local sizes: sherd_tensor_box. */
    const void *from[SHERD_MAX_OPERANDS];
    void *to[SHERD_MAX_RESULTS];
    /*
     * Forward: bit i: this rank must leave out term i, because another rank adds it to the pending
     * sum. Bit SHERD_ONCE_ADDED: the same for what the attributes add (see sherd_op.adds).
     */
    unsigned once;
    /*
     * May be set by describe, if they depend on the operands or attributes: the linearity and rule
     * of this call; how letters that a result lacks are reduced (default: summed), which is also
     * the reduction that is pending then; dtypes of results; sizes of dims whose letter no operand
     * has.
     */
    sherd_linearity linearity;
    sherd_reduce_op reduces;
    char rule[SHERD_RULE_BYTES];
    sherd_dtype dtype[SHERD_MAX_RESULTS];
    int64_t shape[SHERD_MAX_RESULTS][SHERD_MAX_DIMS];
    int ndim[SHERD_MAX_RESULTS]; /* set by sherd_call_shape; -1 = the shape follows from the rule */
} sherd_call;

enum { SHERD_ONCE_ADDED = 31 };

struct sherd_op {
    const char *name;    /* "sherd_linear"; a user's own operator has another prefix */
    const char *summary; /* what it computes, for tables; may be NULL */
    const char *layouts; /* for tables: which layouts it takes, if there is no `rule`; or NULL */
    sherd_op_slot operand[SHERD_OP_SLOTS];
    sherd_op_slot result[SHERD_MAX_RESULTS];
    sherd_op_field field[SHERD_OP_FIELDS];
    /* bytes of the attributes' struct; 0 = none. Only the members in `field` are compared */
    size_t attributes;

    const char *rule; /* NULL: describe writes it, or there are `ways`, and describe sets shapes */
    /* letters of the rule that may not be sharded; 'A', 'B', ..: single dims that "..." covers */
    const char *whole;
    /* letters over which forward itself reduces all ranks: results without them are settled */
    const char *joined;
    /* bits of results that are pending over `joined` letters all the same: forward gives addends */
    unsigned addends;
    sherd_linearity linearity;
    sherd_op_numbers numbers;
    sherd_op_autocast autocast;
    bool broadcasts; /* the dims of "..." broadcast; otherwise they must be equal */
    bool strided;    /* forward accepts operands that are not contiguous */
    bool views;      /* results share the storage of operand 0 (see sherd_call_view) */
    bool adds;       /* linear, and an attribute is added to each element (sherd_add_scalar) */

    /*
     * Check the operands and attributes: return NULL, or the reason why they do not fit (a static
     * text, or from sherd_call_reason). May set members of the call (see there). Local, equal on
     * all ranks: may use shapes, dtypes and layouts, but no data.
     */
    const char *(*describe)(sherd_call *call);
    /*
     * Instead of a rule: list the combinations of layouts of operands and results that forward can
     * compute (sherd_way_add), if operands are distributed. The one with the cheapest moves is
     * used, of equal ones the first. A rule, if there is one as well, is used if no way is added.
     */
    sherd_status (*ways)(const sherd_call *call, sherd_ways *ways);
    /*
     * For AROUND operands: set [*first, *end) to the indices of dim d of operand i that forward
     * needs for the indices [lo, hi) of dim d of result 0 (or, if `beside` is not 0, of operand
     * beside-1). On entry they are the operand's own piece, and may be left so; afterwards they are
     * clipped to the ends of the dim. Called for each shard of a dim that the same axes shard in
     * both, and once for a dim that is sharded in neither. Forward then gets these indices (see
     * sherd_call_box). Pure, equal on all ranks. Operand beside-1 may not be OPTIONAL.
     */
    void (*reads)(const sherd_call *call, int i, int d, int64_t lo, int64_t hi, int64_t *first,
                  int64_t *end);
    int beside;
    /*
     * Compute the results on this rank's pieces, which may be empty, into call->to; call->out does
     * not change. False: failed (sherd_call_fail) */
    bool (*forward)(sherd_call *call);
    /*
     * Whether forward can compute this call on a GPU (docs/gpu.md): then `from` and `to` point into
     * its memory, and forward queues its work in sherd_call_stream. Local. NULL: it cannot */
    bool (*on_device)(const sherd_call *call);
    /* In a dry world, instead of forward: only its calls and scratch. NULL: it has none */
    bool (*dry)(sherd_call *call);
    /* for dry worlds: how many floating-point operations forward does. NULL: one per element */
    double (*operations)(const sherd_call *call);
    /*
     * Instead of forward: compute call->out, of any shape, dtype and layout, by other operators,
     * which are recorded. False or a failed tensor: failed. ELIMIT where 1000 functions of the
     * program are running, each called by the one before: operators made of each other end there */
    bool (*compose)(sherd_call *call);
    /*
     * Set grad_in[i], the gradient of operand i, for each i for which sherd_node_wants is true; all
     * ranks or none may leave it NULL (no gradient). grad_out[j] is the gradient of result j, NULL
     * if it got none. Computes with operators; runs in a scope of its own, unrecorded except for
     * create_graph (sherd_gradients). NULL: the operator has no gradient.
     */
    void (*backward)(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);
    /* backward gets grad_out in any layout, maybe pending; otherwise in the results' layouts */
    bool takes_pending;
    /*
     * The gradients of the operands share no work: backward may be called twice for one call, first
     * for operands that other gradients depend on, later for leaves, while data is moving
     */
    bool in_parts;
    /*
     * For the gradient of operand i: bits of the operands (SHERD_NEEDS_OPERAND) and results
     * (SHERD_NEEDS_RESULT) to save. The last entry holds for all tensors of a REPEATED operand.
     */
    uint64_t needs[SHERD_OP_SLOTS];
};

#define SHERD_NEEDS_OPERAND(i) (UINT64_C(1) << (i))
#define SHERD_NEEDS_RESULT(j)  (UINT64_C(1) << (SHERD_MAX_OPERANDS + (j)))

/* ---- applying -------------------------------------------------------------------------------- */

/**
 * Apply an operator and return its first result.
 *
 * @collective the operands' mesh, if any is distributed
 * @shapes     operands: [count], NULL for an optional operand that is absent; attributes: the
 *             operator's struct, NULL = all zero
 * @owns       the result belongs to the scope; operands and attributes are only read (attributes
 *             are copied)
 * @errors     EINVAL a faulty operator (as sherd_op_register), operands or attributes that do not
 *             fit, a plain operand that varies beside distributed ones, a function of the operator
 *             that fails without a status; ENOMEM; EDIFFER; EPEER; by the alarm. NULL if no operand
 *             belongs to a world
 */
SHERD_API sherd_tensor *sherd_apply(const sherd_op *op, sherd_tensor *const *operands, int count,
                                    const void *attributes);

/**
 * As sherd_apply, with all results except hidden ones. After a failure every results[j] is the
 * failed tensor; if `op` is NULL, results[0].
 *
 * @collective as sherd_apply
 * @shapes     results: gets as many as the operator has, without hidden ones
 * @owns       as sherd_apply
 * @errors     as sherd_apply; false is returned then
 */
SHERD_API bool sherd_apply_all(sherd_tensor **results, const sherd_op *op,
                               sherd_tensor *const *operands, int count, const void *attributes);

/** In a forward on a GPU: the rank's cudaStream_t; else NULL. @local @owns borrowed @errors none */
SHERD_API void *sherd_call_stream(const sherd_call *call);

/* ---- registering ----------------------------------------------------------------------------- */

/**
 * Check an operator and make it known by its name on this world. Applying it does not require this.
 *
 * @local
 * @owns   `op` is kept, not copied
 * @errors EINVAL a faulty operator (the text says why), or another one has its name; ENOMEM
 */
SHERD_CALL sherd_status sherd_op_register(sherd_world *world, const sherd_op *op);

/**
 * An operator by name: one registered on `world`, or one of the library's (also if `world` is
 * NULL). NULL if there is none.
 *
 * @local   @owns borrowed   @errors none
 */
SHERD_API const sherd_op *sherd_op_find(const sherd_world *world, const char *name);

/** The i-th operator of the library; NULL after the last. @local @owns static @errors none */
SHERD_API const sherd_op *sherd_op_at(int i);

/* ---- replacing ------------------------------------------------------------------------------- */

typedef enum sherd_op_level {
    /*
     * the handler replaces the whole call: it gets the operands as they were passed, the operators
     * that it uses are recorded, and its results may have any shape, dtype and layout
     */
    SHERD_ABOVE_TAPE,
    /* it replaces forward: it gets local pieces that fit the rule; the call is recorded as usual */
    SHERD_BELOW_TAPE
} sherd_op_level;

typedef struct sherd_op_handler {
    /* sets call->out (above) or writes to call->to (below). False: failed, the alarm is raised */
    bool (*run)(sherd_call *call, void *context);
    void *context;
    /* above: plain operands beside distributed ones arrive as replicated (varying: EINVAL) */
    bool promoted;
} sherd_op_handler;

/**
 * Replace an operator by a handler in all its calls on this world, or remove the handler. While a
 * handler runs, the operator is not replaced, so the handler may apply it. Below the tape, either
 * all ranks of a mesh have a handler or none; otherwise the next check returns EDIFFER. Above the
 * tape ranks may differ, if their handlers apply the same operators.
 *
 * @local
 * @shapes handler: NULL = remove it
 * @owns   `handler` is copied; its context and the operator must live until it is removed
 * @errors EINVAL no such operator, a handler without `run`, an unknown level, BELOW_TAPE for an
 *         operator without forward; ENOMEM
 */
SHERD_CALL sherd_status sherd_op_override(sherd_world *world, const char *name,
                                          sherd_op_level level, const sherd_op_handler *handler);

/**
 * In a handler: run the operator itself, with the operands that are in `call` now: above the tape
 * in call->in, which may have been replaced; below it in call->from (replacing call->in there is
 * EINVAL).
 *
 * @collective as the operator   @errors those of the operator; then false
 */
SHERD_API bool sherd_call_original(sherd_call *call);

/* ---- plain operands beside distributed ones -------------------------------------------------- */

/*
 * What happens to plain operands that do not vary, beside distributed ones. Those that vary are
 * always refused.
 */
typedef enum sherd_promotion {
    SHERD_PROMOTE_SILENTLY = 0, /* they count as replicated, and get the whole gradient */
    SHERD_PROMOTE_WARNING,      /* the same, and rank 0 warns on stderr, once for each operator */
    SHERD_PROMOTE_NEVER         /* they are refused (EINVAL) */
} sherd_promotion;

/**
 * Set what happens to plain operands beside distributed ones, on this world, from now on. All ranks
 * must set the same.
 *
 * @local   @errors EINVAL an unknown value; ENOMEM
 */
SHERD_CALL sherd_status sherd_op_promote(sherd_world *world, sherd_promotion how);

/* ---- for the functions of an operator -------------------------------------------------------- */

/**
 * In describe: format a reason to return, of at most 191 bytes.
 *
 * @local   @owns borrowed from the call   @errors none
 */
SHERD_API const char *sherd_call_reason(sherd_call *call, const char *format, ...)
    SHERD_FORMAT(2, 3);

/**
 * In describe: set the global shape of result j. With the shapes of all, `ways` needs no rule.
 *
 * @local   @shapes shape: [ndim], NULL if it is in call->shape already   @errors none
 */
SHERD_API void sherd_call_shape(sherd_call *call, int j, int ndim, const int64_t *shape);

/**
 * In forward, compose or a handler: fail with the message "NAME: reason: x is f32[8(x),4] ..".
 * Returns false.
 *
 * @local   @errors `status`: by the alarm, or if no operand is distributed on this rank only
 */
SHERD_API bool sherd_call_fail(sherd_call *call, sherd_status status, const char *format, ...)
    SHERD_FORMAT(3, 4);

/**
 * Scratch memory for the duration of this call, aligned to 64 bytes and uninitialised.
 *
 * @local   @owns the call's   @errors NULL, raised: EINVAL bytes < 0; ELIMIT 2^62 or more; ENOMEM
 */
SHERD_API void *sherd_call_scratch(sherd_call *call, int64_t bytes);

/**
 * In forward: which global indices of operand `i` call->from[i] has: this rank's piece; for an
 * AROUND operand what `reads` asked for; for a plain operand all.
 *
 * @local   @errors none; an empty box for an operand that is absent
 */
SHERD_API sherd_box sherd_call_box(const sherd_call *call, int i);

/**
 * In forward of an operator that `views`: set strides and offset, in elements, of result `j` in the
 * storage of operand 0. The default is row-major, from where operand 0 begins.
 *
 * @local
 * @shapes stride: [ndim of the result]
 * @errors EINVAL this rank's piece would reach beyond that storage; the call has failed then
 */
SHERD_API void sherd_call_view(sherd_call *call, int j, const int64_t *stride, int64_t offset);

/**
 * In `ways`: add one, a layout for each operand and the layouts that the results then have.
 *
 * @local
 * @shapes operands: [operands of the call], NULL for absent ones; results: [results]
 * @owns   the layouts are retained
 * @errors EINVAL a NULL, a layout of another shape or mesh, for results than describe or the rule
 *         says; ELIMIT more than 64 ways; ENOMEM
 */
SHERD_CALL sherd_status sherd_way_add(sherd_ways *ways, const sherd_layout *const *operands,
                                      const sherd_layout *const *results);

/** In backward: whether the gradient of operand i is wanted. @local @errors none */
SHERD_API bool sherd_node_wants(const sherd_node *node, int i);

/**
 * In backward: operand i; NULL if it is absent, or if `needs` saves it only for gradients that are
 * not wanted.
 *
 * @collective only if it must be moved again
 * @owns       borrowed until backward returns
 * @errors     EINVAL no entry of `needs` has it, or it was written in place since; those of a move
 */
SHERD_API sherd_tensor *sherd_node_operand(sherd_node *node, int i);

/**
 * In backward: result j; otherwise as sherd_node_operand. A hidden result cannot be differentiated
 * again: a second backward (create_graph) that reaches it is an error.
 *
 * @collective as there   @owns borrowed until backward returns   @errors as there
 */
SHERD_API sherd_tensor *sherd_node_result(sherd_node *node, int j);

/** In backward: the call's attributes, or NULL. @local @owns borrowed @errors none */
SHERD_API const void *sherd_node_attributes(const sherd_node *node);

/**
 * In backward: ndim of operand i, and its global shape.
 *
 * @local   @shapes shape: [ndim], or NULL = not wanted   @owns borrowed   @errors none
 */
SHERD_API int sherd_node_shape(const sherd_node *node, int i, const int64_t **shape);

/**
 * In backward: the layout that operand i had in forward, after moves; NULL: it was plain.
 *
 * @local @owns borrowed @errors none
 */
SHERD_API const sherd_layout *sherd_node_layout(const sherd_node *node, int i);

/** In backward: how many operands the call had. @local @errors none */
SHERD_API int sherd_node_operands(const sherd_node *node);

/* ---- times ----------------------------------------------------------------------------------- */

typedef struct sherd_op_time {
    const char *name; /* of the operator */
    int64_t calls;
    int64_t nanoseconds; /* in forward, without moving operands */
} sherd_op_time;

/**
 * Start measuring, from zero, the time of each operator's forward on this rank; or stop.
 *
 * @local   @errors none
 */
SHERD_API void sherd_op_times(sherd_world *world, bool on);

/**
 * The i-th operator that was applied while sherd_op_times was on, in the order of first calls; all
 * zero after the last.
 *
 * @local   @owns borrowed   @errors none
 */
SHERD_API sherd_op_time sherd_op_time_at(const sherd_world *world, int i);

SHERD_END

#endif
