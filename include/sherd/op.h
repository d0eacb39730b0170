/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators as values. An operator defines what is its own: operands and results, a rule (how local
 * pieces of the operands give local pieces of the results), the computation on local pieces, and a
 * backward made of operators. sherd_apply does what is the same for all operators, the library's
 * own (ops.h) and a user's alike:
 *
 * - it checks for failed operands, the alarm, dtypes and shapes;
 * - it takes plain operands that do not vary for replicated ones;
 * - it finds the cheapest way to make the operands fit the rule, and records and logs the moves;
 * - it creates the results, runs forward, and records the call for backward;
 * - it notes the call, so that ranks that made different calls are found;
 * - it runs handlers that replace the operator (sherd_op_override).
 *
 * An operator is a constant: it must live as long as every world that applies it. Tensors that its
 * functions make belong to a scope of the call. They end no scope around it, and do not close the
 * world. See examples/custom_op.c.
 *
 * Rules. One index string names the dims of all operands and results by letters, for example
 * "...k,nk,n->...n". Dims with the same letter have the same size, and must be sharded alike. "..."
 * stands for any number of dims, the same in all operands (or, if the operator `broadcasts`,
 * broadcast as in NumPy, aligned at the last dim). A letter that is missing in a result is summed
 * over (or reduced as sherd_call.reduces says): if it is sharded, the result is a pending sum. '1'
 * is a dim of size 1, and '*' a dim of any size that is not related to any other; neither is ever
 * sharded. A capital letter stands for a single dim of those that "..." covers.
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
    SHERD_OP_REPEATED = 1 << 1,  /* the last operand: one or more tensors, once in the rule */
    SHERD_OP_INDEX = 1 << 2,     /* i32 */
    SHERD_OP_BOOL = 1 << 3,      /* bool */
    SHERD_OP_ANY = 1 << 4,       /* operand: any dtype, independent of the others */
    SHERD_OP_TERM = 1 << 5,      /* operand: added, not multiplied (see sherd_linearity) */
    SHERD_OP_STATISTIC = 1 << 6, /* result: f32 if the operands have 16 bits */
    SHERD_OP_HIDDEN = 1 << 7,    /* result: for backward only; after those that are not hidden */
    SHERD_OP_AROUND = 1 << 8     /* operand, not REPEATED: read around its piece, see `reads` */
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
     * A pending sum passes through: at most one factor may be pending on an axis. Terms may be
     * pending on the axes on which the product is; a term that is not pending there is added once,
     * at coordinate 0 (see sherd_call.once).
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
 * The type of a member of an operator's attributes, for comparing them between ranks and for
 * messages.
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
    size_t offset; /* bytes in the struct; all of the member is within it */
    int count;     /* of an array; 0 = 1 */
} sherd_op_field;

/* The entry of a member that is not an array: {"eps", ...}. */
#define SHERD_FIELD(type, member, kind)                        \
    {                                                          \
#member, SHERD_FIELD_##kind, offsetof(type, member), 1 \
    }
/* The entry of a member that is an array of `n`. */
#define SHERD_FIELDS(type, member, kind, n)                    \
    {                                                          \
#member, SHERD_FIELD_##kind, offsetof(type, member), n \
    }

/* One call of an operator, as seen by its functions and by handlers. */
typedef struct sherd_call {
    const sherd_op *op;
    const void *attributes; /* NULL if the operator has none */
    sherd_world *world;
    int operands, results; /* with absent operands and hidden results */
    /*
     * The operands. In describe, compose and handlers above the tape: as they were passed. In
     * forward: after moving, row-major and contiguous unless the operator is `strided`. An AROUND
     * operand may be a plain piece there: sherd_call_box says which indices it has; the global size
     * is that of a result, or an attribute.
     */
    sherd_tensor *in[SHERD_MAX_OPERANDS];
    sherd_tensor *out[SHERD_MAX_RESULTS];
    /* Forward: local data; NULL if absent. Local sizes: sherd_tensor_box. */
    const void *from[SHERD_MAX_OPERANDS];
    void *to[SHERD_MAX_RESULTS];
    /*
     * Forward: bits of the terms that another rank adds to the pending sum, so that this one must
     * not. Bit SHERD_ONCE_ADDED: the same for what the attributes add (see sherd_op.adds).
     */
    unsigned once;
    /*
     * Set by describe if they depend on the operands or attributes: linearity and rule of this
     * call; how the letters that a result lacks are reduced (default: summed), and so what kind of
     * reduction is pending; dtypes of results; sizes of dims whose letter no operand has.
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
    const char *layouts; /* for tables: its layouts, if `rule` does not say them; may be NULL */
    sherd_op_slot operand[SHERD_OP_SLOTS];
    sherd_op_slot result[SHERD_MAX_RESULTS];
    sherd_op_field field[SHERD_OP_FIELDS];
    /* bytes of the attributes' struct; 0 = none. Only the members in `field` are compared */
    size_t attributes;

    const char *rule;  /* NULL: describe writes it, or there are `ways`, and describe sets shapes */
    const char *whole; /* letters of the rule that may not be sharded */
    /* letters that forward itself reduces over all ranks: results without them are not pending */
    const char *joined;
    /* bits of results that are pending over `joined` letters: forward leaves this rank's addend */
    unsigned addends;
    sherd_linearity linearity;
    sherd_op_numbers numbers;
    sherd_op_autocast autocast;
    bool broadcasts; /* the dims of "..." broadcast; otherwise they must be equal */
    bool strided;    /* forward accepts operands that are not contiguous */
    bool views;      /* results share the storage of operand 0 (see sherd_call_view) */
    bool adds;       /* linear, and the attributes add something to each element */

    /*
     * Check the operands and attributes: return NULL, or the reason why they do not fit (static, or
     * from sherd_call_reason). May set rule, dtype and shape of the call. Local, with the same
     * result on all ranks: it may use shapes, dtypes and layouts, but no data.
     */
    const char *(*describe)(sherd_call *call);
    /*
     * Instead of a rule: list the possible combinations of layouts of distributed operands and
     * results (sherd_way_add). The one with the cheapest moves is used, the first of equal ones. If
     * there is a rule as well, it is used when no way is added.
     */
    sherd_status (*ways)(const sherd_call *call, sherd_ways *ways);
    /*
     * For AROUND operands: which indices [*first, *end) of dim d of operand i does forward need for
     * the indices [lo, hi) of the same dim of result 0 (or, if `beside` is set, of operand `beside`
     * - 1)? On entry *first and *end are the operand's own piece; they may be left so. The answer
     * is clipped to the ends of the dim. Called for each shard of a dim that both have sharded by
     * the same axes, and once for a dim that neither has sharded. Forward then gets these indices:
     * see sherd_call_box. Pure, with the same result on all ranks.
     */
    void (*reads)(const sherd_call *call, int i, int d, int64_t lo, int64_t hi, int64_t *first,
                  int64_t *end);
    int beside;
    /*
     * Compute the results on this rank's pieces, empty ones too, into `to`; `out` stays as it is.
     * False: failed (sherd_call_fail) */
    bool (*forward)(sherd_call *call);
    /*
     * Whether this call can be computed on a GPU (docs/gpu.md): then `from` and `to` point into its
     * memory, and forward queues its work in sherd_call_stream. Local. NULL: no. */
    bool (*on_device)(const sherd_call *call);
    /* Instead of forward in a dry world: its calls, without touching elements. NULL: it has none */
    bool (*dry)(sherd_call *call);
    /* for dry worlds: floating-point operations of forward here. NULL: one for each element */
    double (*operations)(const sherd_call *call);
    /*
     * Instead of forward: compute the results by other operators, which are recorded themselves.
     * Sets call->out, to results of any shape, dtype and layout. False or a failed tensor: failed.
     */
    bool (*compose)(sherd_call *call);
    /*
     * Set grad_in[i], the gradient of operand i, for each i that sherd_node_wants; it is NULL on
     * all ranks or on none. grad_out[j] is NULL if result j got no gradient. Made of operators;
     * runs without recording (but for create_graph, see sherd_gradients), in a scope of its own.
     * NULL: the operator has no gradient.
     */
    void (*backward)(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);
    /* backward takes gradients in any layout, pending or not; else in that of their results */
    bool takes_pending;
    /*
     * The gradients of the operands share no work: backward may be called twice for one node, first
     * for operands that other gradients wait for, and later for leaves, while a move is under way
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
 * @errors     EINVAL a faulty operator (with the reason, as from sherd_op_register), operands or
 *             attributes that do not fit, a plain operand that varies beside distributed ones, a
 *             function of the operator that fails without a reason; ENOMEM; EDIFFER; EPEER; by the
 *             alarm. NULL if no operand belongs to a world
 */
SHERD_API sherd_tensor *sherd_apply(const sherd_op *op, sherd_tensor *const *operands, int count,
                                    const void *attributes);

/**
 * As sherd_apply, with all results except hidden ones. After a failure every results[j] is the
 * failed tensor.
 *
 * @collective as sherd_apply
 * @shapes     results: as many as the operator has, without hidden ones
 * @owns       as sherd_apply
 * @errors     as sherd_apply; then false
 */
SHERD_API bool sherd_apply_all(sherd_tensor **results, const sherd_op *op,
                               sherd_tensor *const *operands, int count, const void *attributes);

/** In a forward on the GPU: the rank's cudaStream_t, or NULL. @local @owns borrowed @errors none */
SHERD_API void *sherd_call_stream(const sherd_call *call);

/* ---- registering ----------------------------------------------------------------------------- */

/**
 * Check an operator and make it known by its name on this world. Applying it does not require this.
 *
 * @local
 * @owns   `op` is kept, not copied
 * @errors EINVAL what is wrong with it, or another operator has its name; ENOMEM
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
     * replaces the call: gets the operands as they were passed; the operators it uses are recorded;
     * its results may have any shape, dtype and layout
     */
    SHERD_ABOVE_TAPE,
    /* replaces forward: gets local pieces that fit the rule; the call is recorded as usual */
    SHERD_BELOW_TAPE
} sherd_op_level;

typedef struct sherd_op_handler {
    /* sets call->out (above) or writes to call->to (below). False: failed, the alarm is raised */
    bool (*run)(sherd_call *call, void *context);
    void *context;
    /* above: gets plain operands beside distributed ones as replicated; varying ones are refused */
    bool promoted;
} sherd_op_handler;

/**
 * Replace an operator by a handler in all its calls on this world, or remove the handler. While a
 * handler runs, the operator is not replaced: the handler may apply it. Below the tape all ranks of
 * a mesh have one, or none: otherwise the next check finds EDIFFER. Above it a rank may have one
 * alone if that applies the same operators.
 *
 * @local
 * @shapes handler: NULL = remove
 * @owns   `handler` is copied; its context and the operator must live until it is removed
 * @errors EINVAL no such operator, a handler without `run`, an unknown level, BELOW_TAPE for an
 *         operator without forward; ENOMEM
 */
SHERD_CALL sherd_status sherd_op_override(sherd_world *world, const char *name,
                                          sherd_op_level level, const sherd_op_handler *handler);

/**
 * In a handler: run the operator itself with the operands that are in `call` now. Below the tape
 * these are in call->from; whoever replaces call->in there gets EINVAL.
 *
 * @collective as the operator   @errors those of the operator; then false
 */
SHERD_API bool sherd_call_original(sherd_call *call);

/* ---- plain operands beside distributed ones -------------------------------------------------- */

/*
 * What happens to a plain operand that does not vary, beside distributed ones. One that varies is
 * always refused.
 */
typedef enum sherd_promotion {
    SHERD_PROMOTE_SILENTLY = 0, /* taken for replicated; gets the whole gradient */
    SHERD_PROMOTE_WARNING,      /* the same, and rank 0 warns on stderr, once for each operator */
    SHERD_PROMOTE_NEVER         /* refused (EINVAL) */
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
 * In describe: a reason to return, with values; at most 191 bytes.
 *
 * @local   @owns borrowed from the call   @errors none
 */
SHERD_API const char *sherd_call_reason(sherd_call *call, const char *format, ...)
    SHERD_FORMAT(2, 3);

/**
 * In describe: set the global shape of result j. An operator with `ways` that sets the shapes of
 * all results needs no rule.
 *
 * @local   @shapes shape: [ndim], NULL if it is in call->shape already   @errors none
 */
SHERD_API void sherd_call_shape(sherd_call *call, int j, int ndim, const int64_t *shape);

/**
 * In forward, compose or a handler: fail with the message "NAME: reason: x is f32[8(x),4] ..".
 * Returns false.
 *
 * @local   @errors the given status, by the alarm (distributed operands), or kept on this rank
 */
SHERD_API bool sherd_call_fail(sherd_call *call, sherd_status status, const char *format, ...)
    SHERD_FORMAT(3, 4);

/**
 * Memory for the duration of this call, 64-byte aligned and uninitialised.
 *
 * @local   @owns the call's   @errors NULL: EINVAL bytes < 0; ELIMIT 2^62 or more; ENOMEM; raised
 */
SHERD_API void *sherd_call_scratch(sherd_call *call, int64_t bytes);

/**
 * In forward: which indices of the global operand `i` are in call->from[i]: this rank's piece, or,
 * for an AROUND operand, what `reads` asked for. For a plain operand, all of them.
 *
 * @local   @errors none; an empty box for an operand that is absent
 */
SHERD_API sherd_box sherd_call_box(const sherd_call *call, int i);

/**
 * In forward of an operator that `views`: strides and offset, in elements, of result `j` in the
 * storage of operand 0; by default row-major, from where operand 0 begins.
 *
 * @local
 * @shapes stride: [ndim of the result]
 * @errors EINVAL, and the call has failed, if then not all of this rank's piece is in that storage
 */
SHERD_API void sherd_call_view(sherd_call *call, int j, const int64_t *stride, int64_t offset);

/**
 * Add a way: a layout for each operand, and the layouts that the results then have.
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
 * In backward: operand i; NULL if it is absent, or saved for gradients that are not wanted only.
 *
 * @collective only if it must be moved again
 * @owns       borrowed until backward returns
 * @errors     EINVAL `needs` names it nowhere, or it was written since; those of a move
 */
SHERD_API sherd_tensor *sherd_node_operand(sherd_node *node, int i);

/**
 * In backward: result j, as sherd_node_operand. If that is recorded (create_graph), a gradient of a
 * gradient that reaches a hidden result is an error.
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
 * In backward: the layout in which the rule took operand i; NULL: plain.
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
    int64_t nanoseconds; /* in forward: kernels, without moves */
} sherd_op_time;

/**
 * Start measuring the time of each operator's forward on this rank, from zero, or stop.
 *
 * @local   @errors none
 */
SHERD_API void sherd_op_times(sherd_world *world, bool on);

/**
 * The i-th operator applied since then, in the order of first calls; all zero after the last.
 *
 * @local   @owns borrowed   @errors none
 */
SHERD_API sherd_op_time sherd_op_time_at(const sherd_world *world, int i);

SHERD_END

#endif
