/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators as values. An operator says what is its own: operands and results, a rule (how the pieces that ranks hold of
 * operands make pieces of results), what it computes on local pieces, and a backward made of operators. sherd_apply
 * does what is the same for all, the library's own (ops.h) and a user's alike:
 *
 *   failed operands and the alarm, dtypes, shapes; plain operands taken for replicated; the cheapest way to make
 *   the operands fit the rule, its moves recorded and logged; new results; forward; the record for backward; the
 *   note by which ranks that differ are found; handlers that take an operator's place (sherd_op_override).
 *
 * An operator is a constant: it must live as long as every world that applies it. See examples/custom_op.c.
 *
 * Rules. One index string names the dims of all operands and results by letters: "...k,nk,n->...n". Letters
 * that operands share have one size, and must be sharded alike; "..." stands for any number of dims, the same in all
 * operands (or, of an operator that `broadcasts`, as in NumPy, from the last one on). A letter that a result lacks is summed over (or reduced otherwise: sherd_call.reduces): where it is sharded, the result
 * is a pending sum. '1' is a dim of size 1 and '*' a dim of any size that belongs to no other; neither is ever sharded. A capital letter
 * is what "..." stands for.
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
    SHERD_OP_SLOTS = 8,          /* operands that have a name of their own */
    SHERD_OP_FIELDS = 12,        /* of attributes */
    SHERD_ATTRIBUTE_BYTES = 512, /* and what they take at most */
    SHERD_RULE_BYTES = 400
};

/* What is said of an operand or result; bits. */
enum {
    SHERD_OP_OPTIONAL = 1 << 0,  /* operand: may be NULL */
    SHERD_OP_REPEATED = 1 << 1,  /* the last operand: one or more of them; in the rule once */
    SHERD_OP_INDEX = 1 << 2,     /* i32 */
    SHERD_OP_BOOL = 1 << 3,      /* bool */
    SHERD_OP_ANY = 1 << 4,       /* operand: any dtype, whatever that of the others */
    SHERD_OP_TERM = 1 << 5,      /* operand: added, not multiplied (see sherd_linearity) */
    SHERD_OP_STATISTIC = 1 << 6, /* result: f32 where operands have 16 bits */
    SHERD_OP_HIDDEN = 1 << 7,    /* result: only for backward; behind those that are not */
    SHERD_OP_AROUND =
        1 << 8 /* operand, not REPEATED: forward reads around its pieces (see sherd_op.reads) */
};

typedef struct sherd_op_slot {
    const char *name; /* for messages; NULL ends the list */
    unsigned flags;
} sherd_op_slot;

/* How pending reductions go through. */
typedef enum sherd_linearity {
    SHERD_NONLINEAR = 0, /* every operand is settled first */
    /* A sum passes: at most one factor is pending on an axis. Terms may be pending where the product is; a term that is
     * not counts once, at coordinate 0 of those axes (see sherd_call.once). */
    SHERD_LINEAR,
    SHERD_UNCHANGED /* elements go through as they are, and whatever is pending with them */
} sherd_linearity;

/* What the elements of operands may be. All operands that are no INDEX, BOOL or ANY have one dtype. */
typedef enum sherd_op_numbers {
    SHERD_FRACTIONS = 0, /* f32, f64, bf16, f16 */
    SHERD_NUMBERS,       /* integers too */
    SHERD_EVERYTHING     /* bool too */
} sherd_op_numbers;

/* What becomes of operands of f32, bf16 and f16 while a 16-bit dtype is set: see autocast.h. */
typedef enum sherd_op_autocast {
    SHERD_AUTOCAST_WIDEST = 0, /* where they differ, f32 */
    SHERD_AUTOCAST_LOW,        /* that dtype */
    SHERD_AUTOCAST_FULL        /* f32 */
} sherd_op_autocast;

/* A member of an operator's attributes: by it they are compared between ranks, and written in messages. */
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
    size_t offset; /* bytes in the struct */
    int count;     /* of an array; 0 = 1 */
} sherd_op_field;

/* {"eps", ...} of a member that is no array. */
#define SHERD_FIELD(type, member, kind)                        \
    {                                                          \
#member, SHERD_FIELD_##kind, offsetof(type, member), 1 \
    }
/* Of an array of `n`. */
#define SHERD_FIELDS(type, member, kind, n)                    \
    {                                                          \
#member, SHERD_FIELD_##kind, offsetof(type, member), n \
    }

/* One call of an operator, as its functions and handlers see it. */
typedef struct sherd_call {
    const sherd_op *op;
    const void *attributes; /* NULL of an operator without */
    sherd_world *world;
    int operands, results; /* NULLs and hidden ones count */
    /*
     * Operands: as they were given, in describe, compose and handlers above the tape; in forward as they lie after
     * moving, row-major and contiguous unless the operator is `strided`. One that is read AROUND may be a plain piece then: where it
     * lies says sherd_call_box, and how large the whole is a result, or an attribute.
     */
    sherd_tensor *in[SHERD_MAX_OPERANDS];
    sherd_tensor *out[SHERD_MAX_RESULTS];
    /* Forward: local data; NULL where there is none. Local sizes: sherd_tensor_box. */
    const void *from[SHERD_MAX_OPERANDS];
    void *to[SHERD_MAX_RESULTS];
    /* Forward: bits of the terms that another rank adds to the pending sum, and this one must not; bit 31: so with what
     * attributes add (see sherd_op.adds). */
    unsigned once;
    /*
     * Describe may set these: linearity and rule of this call; with what letters are reduced that a result lacks (else they
     * are summed over), which is what it is pending with; dtypes of results; sizes of dims whose letter no operand has.
     */
    sherd_linearity linearity;
    sherd_reduce_op reduces;
    char rule[SHERD_RULE_BYTES];
    sherd_dtype dtype[SHERD_MAX_RESULTS];
    int64_t shape[SHERD_MAX_RESULTS][SHERD_MAX_DIMS];
    int ndim[SHERD_MAX_RESULTS]; /* of a result whose whole shape describe says; -1 = by the rule */
} sherd_call;

enum { SHERD_ONCE_ADDED = 31 };

struct sherd_op {
    const char *name;    /* "sherd_linear"; for a user's own any other prefix */
    const char *summary; /* what it computes, for tables; may be NULL */
    const char *layouts; /* for tables: how it lies, where `rule` does not say it; may be NULL */
    sherd_op_slot operand[SHERD_OP_SLOTS];
    sherd_op_slot result[SHERD_MAX_RESULTS];
    sherd_op_field field[SHERD_OP_FIELDS];
    size_t
        attributes; /* bytes of the struct; 0 = none. Members that are no fields are not compared */

    const char *rule;  /* NULL: describe writes it, or there are ways, and describe says shapes */
    const char *whole; /* letters that may not be sharded */
    /* Letters that forward itself reduces over all ranks: results that lack them are not pending for them. */
    const char *joined;
    /* Bits of results that are pending for joined letters too: forward leaves this rank's addend there. */
    unsigned addends;
    sherd_linearity linearity;
    sherd_op_numbers numbers;
    sherd_op_autocast autocast;
    bool broadcasts; /* what "..." stands for broadcasts; else it must be equal */
    bool strided;    /* forward takes operands with strides */
    bool views; /* results share the storage of operand 0: forward says how (sherd_call_view) */
    bool adds;  /* linear, and the attributes add something to each element */

    /*
     * Look at the operands and attributes: NULL, or the reason why they do not fit (static, or from sherd_call_reason). May
     * set rule, dtype and shape of the call. Local, the same on all ranks: it sees shapes, dtypes, layouts, no data.
     */
    const char *(*describe)(sherd_call *call);
    /*
     * In the place of a rule: add ways in which distributed operands and results may lie (sherd_way_add); the one
     * with the cheapest moves is taken, the first on a tie. Beside a rule: where none is added, the rule is followed.
     */
    sherd_status (*ways)(const sherd_call *call, sherd_ways *ways);
    /*
     * For operands that are read AROUND: which indices of dim d of operand i forward needs for the indices [lo, hi) of the same
     * dim of result 0, or of operand `beside` - 1 where `beside` is set. *first and *end are the operand's own piece when
     * it is called, and stay so if it does nothing; what it says is cut off at the ends of the dim. Asked for each shard
     * of a dim that both have sharded by the same axes, and once of one that neither has sharded. Forward then has that
     * much of the operand: see sherd_call_box.
     * Pure: the same on all ranks.
     */
    void (*reads)(const sherd_call *call, int i, int d, int64_t lo, int64_t hi, int64_t *first,
                  int64_t *end);
    int beside;
    /* Compute results on this rank's pieces; also where some or all are empty. False: failed (sherd_call_fail). */
    bool (*forward)(sherd_call *call);
    /*
     * In the place of forward: made of other operators, which record themselves. Sets call->out; false or a failed
     * tensor: failed.
     */
    bool (*compose)(sherd_call *call);
    /*
     * grad_in[i] = gradient of operand i, for each i that sherd_node_wants; grad_out[j] is NULL if nothing flowed into
     * result j. Made of operators; runs without recording, in a scope of its own. NULL: there is no gradient.
     */
    void (*backward)(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);
    /* Gradients are welcome as they come, in any layout and pending. Else each is settled to its result's layout first. */
    bool takes_pending;
    /* For the gradient of operand i: bits of operands (SHERD_NEEDS_OPERAND) and results (SHERD_NEEDS_RESULT) to be saved.
     * Of a REPEATED one the last entry counts. */
    uint64_t needs[SHERD_OP_SLOTS];
};

#define SHERD_NEEDS_OPERAND(i) (UINT64_C(1) << (i))
#define SHERD_NEEDS_RESULT(j)  (UINT64_C(1) << (SHERD_MAX_OPERANDS + (j)))

/* ---- applying ------------------------------------------------------------------------------- */

/**
 * Apply an operator, and return its first result.
 *
 * @collective the operands' mesh, if any is distributed
 * @shapes     operands: [count], NULL where an optional one is absent; attributes: the operator's struct, NULL = all zero
 * @owns       the result belongs to the scope; operands and attributes are only read (attributes are copied)
 * @errors     EINVAL what is wrong with the operator (as sherd_op_register says it), operands or attributes that do not fit, or a
 *             plain operand that varies beside distributed ones, a function of the operator that fails and does not say why;
 *             ENOMEM; EDIFFER; EPEER; by the alarm. NULL where no operand leads to a world
 */
SHERD_API sherd_tensor *sherd_apply(const sherd_op *op, sherd_tensor *const *operands, int count,
                                    const void *attributes);

/**
 * The same with all results (but hidden ones): results[j] is the failed tensor for each j after a failure.
 *
 * @collective as sherd_apply   @shapes results: [as many as the operator has]
 * @owns       as sherd_apply   @errors as sherd_apply; then false
 */
SHERD_API bool sherd_apply_all(sherd_tensor **results, const sherd_op *op,
                               sherd_tensor *const *operands, int count, const void *attributes);

/* ---- registering ---------------------------------------------------------------------------- */

/**
 * Check an operator, and let it be found by its name on this world. To be applied it need not be registered.
 *
 * @local
 * @owns   `op` is kept, not copied
 * @errors EINVAL what is wrong with it, or another one has its name; ENOMEM
 */
SHERD_CALL sherd_status sherd_op_register(sherd_world *world, const sherd_op *op);

/** An operator by name: one registered on `world`, or the library's (also for world NULL); NULL: none. @local @owns borrowed @errors none */
SHERD_API const sherd_op *sherd_op_find(const sherd_world *world, const char *name);

/** The i-th operator of the library, from 0; NULL behind the last. @local @owns static @errors none */
SHERD_API const sherd_op *sherd_op_at(int i);

/* ---- replacing ------------------------------------------------------------------------------ */

typedef enum sherd_op_level {
    /* sees the operands as they were given; what it makes them into, by operators, is recorded as usual */
    SHERD_ABOVE_TAPE,
    /* takes the place of forward: sees local pieces where the rule wants them; the record is the operator's */
    SHERD_BELOW_TAPE
} sherd_op_level;

typedef struct sherd_op_handler {
    /* sets call->out (above) or fills what call->to points to (below). False: failed, the alarm is up */
    bool (*run)(sherd_call *call, void *context);
    void *context;
    bool
        promoted; /* above: plain operands beside distributed ones come as replicated; what varies is refused first */
} sherd_op_handler;

/**
 * Put a handler in the place of an operator, for all calls of it on this world, or take it away again. While it runs
 * the operator is itself: a handler may apply it.
 *
 * @local
 * @shapes handler: NULL = remove
 * @owns   `handler` is copied; context and the operator must live until it is removed
 * @errors EINVAL no such operator, a handler without run, a level that is none, below the tape of one without forward; ENOMEM
 */
SHERD_CALL sherd_status sherd_op_override(sherd_world *world, const char *name,
                                          sherd_op_level level, const sherd_op_handler *handler);

/** In a handler: what the operator itself does, with the operands that are in `call` now. @collective as the operator @errors those of the operator; then false */
SHERD_API bool sherd_call_original(sherd_call *call);

/* ---- plain operands beside distributed ones --------------------------------------------------- */

/* What becomes of a plain operand that does not vary. One that varies is always refused. */
typedef enum sherd_promotion {
    SHERD_PROMOTE_SILENTLY = 0, /* it is taken for replicated, and gets the whole gradient */
    SHERD_PROMOTE_WARNING, /* so it is, and rank 0 says so on standard error, once for each operator */
    SHERD_PROMOTE_NEVER    /* it is refused (EINVAL) */
} sherd_promotion;

/**
 * Say what becomes of plain operands beside distributed ones, on this world, from now on. All ranks must say the same.
 *
 * @local   @errors EINVAL no such promotion; ENOMEM
 */
SHERD_CALL sherd_status sherd_op_promote(sherd_world *world, sherd_promotion how);

/* ---- for the functions of an operator ------------------------------------------------------- */

/** A reason to return from describe, with values; at most 191 bytes. @local @owns borrowed from the call @errors none */
SHERD_API const char *sherd_call_reason(sherd_call *call, const char *format, ...)
    SHERD_FORMAT(2, 3);

/**
 * In describe: the whole shape of result j. An operator with ways that says the shapes of all results needs no rule.
 *
 * @local   @shapes shape: [ndim], NULL where it is in call->shape already   @errors none
 */
SHERD_API void sherd_call_shape(sherd_call *call, int j, int ndim, const int64_t *shape);

/**
 * Fail in forward, compose or a handler: "NAME: reason: x is f32[8(x),4] ..". Returns false.
 *
 * @local   @errors the status that is given, by the alarm (distributed) or kept local
 */
SHERD_API bool sherd_call_fail(sherd_call *call, sherd_status status, const char *format, ...)
    SHERD_FORMAT(3, 4);

/**
 * Memory for the time of this call, 64-byte aligned, contents undefined.
 *
 * @local   @owns the call's   @errors NULL for lack of memory (ENOMEM, raised)
 */
SHERD_API void *sherd_call_scratch(sherd_call *call, int64_t bytes);

/**
 * In forward: which indices of the whole operand `i` are in call->from[i]: its piece, or, of an operand that is read AROUND,
 * what was asked for. All of a plain one.
 *
 * @local   @errors none; an empty box of an operand that is not there
 */
SHERD_API sherd_box sherd_call_box(const sherd_call *call, int i);

/** Say how result `j` of an operator that `views` lies in the storage of operand 0: elements. @local @shapes stride: [ndim of the result] @errors none */
SHERD_API void sherd_call_view(sherd_call *call, int j, const int64_t *stride, int64_t offset);

/**
 * Add a way: where each operand must lie, and where the results do then.
 *
 * @local   @shapes operands: [operands of the call], NULL for those that are absent; results: [results]   @owns the layouts are counted
 * @errors  EINVAL a NULL, a layout of another shape or mesh; ELIMIT more than 64 ways; ENOMEM
 */
SHERD_CALL sherd_status sherd_way_add(sherd_ways *ways, const sherd_layout *const *operands,
                                      const sherd_layout *const *results);

/** In backward: whether the gradient of operand i is wanted. @local @errors none */
SHERD_API bool sherd_node_wants(const sherd_node *node, int i);
/** In backward: operand i, which `needs` has named; the failed tensor if it was written since. @collective where it must be moved again @owns borrowed until backward returns @errors EINVAL written since; those of a move */
SHERD_API sherd_tensor *sherd_node_operand(sherd_node *node, int i);
/** In backward: result j, as sherd_node_operand. @collective as there @owns borrowed until backward returns @errors as there */
SHERD_API sherd_tensor *sherd_node_result(sherd_node *node, int j);
/** In backward: the attributes of the call. @local @owns borrowed until backward returns @errors none */
SHERD_API const void *sherd_node_attributes(const sherd_node *node);
/** In backward: ndim of operand i, and its global shape. @local @shapes shape: [ndim] @owns borrowed @errors none */
SHERD_API int sherd_node_shape(const sherd_node *node, int i, const int64_t **shape);
/** In backward: layout of operand i as the rule took it; NULL = plain. @local @owns borrowed @errors none */
SHERD_API const sherd_layout *sherd_node_layout(const sherd_node *node, int i);
/** In backward: how many operands the call had. @local @errors none */
SHERD_API int sherd_node_operands(const sherd_node *node);

/* ---- times ---------------------------------------------------------------------------------- */

typedef struct sherd_op_time {
    const char *name; /* of the operator */
    int64_t calls;
    int64_t nanoseconds; /* in forward: kernels, no moves */
} sherd_op_time;

/** Begin (from zero) or stop to take the time of each operator's forward on this rank. @local @errors none */
SHERD_API void sherd_op_times(sherd_world *world, bool on);
/** The i-th of those that were applied since, in the order of their first call; all zero behind the last. @local @owns borrowed @errors none */
SHERD_API sherd_op_time sherd_op_time_at(const sherd_world *world, int i);

SHERD_END

#endif
