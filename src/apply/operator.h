/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Operator calls (apply.c) from inside: a call under way, its steps, and what it offers to forward
 * and backward. What operators share besides: ops/shared.h.
 */
#ifndef SHERD__APPLY_OPERATOR_H
#define SHERD__APPLY_OPERATOR_H

#include "operators.h"
#include "autograd/tape.h"
#include "sherd/ops.h"

/*
 * The dims of one call's operands and results as letters, one for each dim, zero-terminated. A
 * letter that a result lacks is summed over: if it is sharded, that result is pending. '1' and '*'
 * are never sharded.
 */
typedef struct sherd__rule {
    int operands, results;
    char operand[SHERD_MAX_OPERANDS][SHERD_MAX_DIMS + 1];
    char result[SHERD_MAX_RESULTS][SHERD_MAX_DIMS + 1];
} sherd__rule;

/* The solver's answer. Layouts of one mesh; valid until the solver is asked again. */
typedef struct sherd__placing {
    /* what each operand must be moved to; its own layout if it stays */
    const sherd_layout *operand[SHERD_MAX_OPERANDS];
    const sherd_layout *result[SHERD_MAX_RESULTS];
    unsigned once; /* as in sherd_call */
} sherd__placing;

enum { SHERD__REASON_BYTES = 192, SHERD__AROUND = SHERD_OP_SLOTS };

/* The existing tensor that result 0 may go into. */
typedef struct sherd__into {
    sherd_tensor *tensor; /* NULL = none */
    enum {
        SHERD__ADDED_TO,    /* for operators whose forward can add (sherd__adds_in) */
        SHERD__WRITTEN_OVER /* an operand; forward reads each element before it writes it */
    } how;
} sherd__into;

typedef struct sherd__run {
    sherd_call call;            /* first: functions of operators get a pointer to it */
    sherd_tensor *const *given; /* operands as they were passed, for messages */
    int given_count;
    /* operands after moving, as recorded and saved; call.in has them contiguous (not recorded) */
    sherd_tensor *arg[SHERD_MAX_OPERANDS];
    /* layouts that stand for absent operands; NULL = there are none */
    const sherd_layout *const *like;
    sherd__into into;
    bool adds;                     /* into.tensor is result 0, and forward adds to it */
    sherd_dtype dtype;             /* of the operands */
    const sherd__kernels *kernels; /* of it; of integers and bool see sherd__kernels_of_any */
    int visible;                   /* results that are not hidden */
    bool scoped;                   /* the call's scope is open, for intermediate tensors */
    bool own;                      /* the operator is the library's, whose functions are trusted */
    bool kept;                     /* results are those of the first run: nothing is computed */
    bool replaced;                 /* a handler has run in place of forward */
    bool in_order;                 /* of a view: sherd__call_in_order */
    sherd_tensor *copied;          /* of a row-major view: operand 0, which was strided; or NULL */
    sherd_tensor *const *below;    /* call.in as it was, while a handler runs below; else NULL */
    sherd__device *device;         /* forward computes there; NULL: on the CPU */
    bool compiled;                 /* `rule` is set */
    bool hashed;                   /* `hash` is set */
    uint64_t hash;
    int around; /* operands that were fetched with what is around them: */
    struct {
        int operand;
        sherd_box box;
    } window[SHERD__AROUND];
    sherd__rule rule;
    char reason[SHERD__REASON_BYTES];
} sherd__run;

/* ---- the steps ------------------------------------------------------------------------------ */

/* The slot of operand i: its own, or the last one, if that is REPEATED. */
const sherd_op_slot *sherd__slot(const sherd_op *op, int i);

/*
 * Write the rule of a call and the shapes of its results; NULL, or the reason why the operands do
 * not fit.
 */
const char *sherd__compile(sherd__run *run);

/* The hash of the attributes, for the solver and the ledger. */
uint64_t sherd__attributes_hash(sherd__run *run);

/*
 * Cast operands as the operator's autocast class says, where `low` is the 16-bit dtype. False:
 * failed, raised.
 */
bool sherd__autocast(sherd__run *run, sherd_dtype low);

/*
 * The mesh of the first distributed operand, or of a layout that stands for one; NULL: all are
 * plain.
 */
const sherd_mesh *sherd__mesh_of(const sherd__run *run, sherd_tensor *const *operands);

/* Take plain operands for replicated on a mesh; false if one varies. */
bool sherd__promote_all(sherd__run *run, sherd_tensor **operands, const sherd_mesh *mesh);

/*
 * Move distributed operands to layouts that fit the rule, create results, and open local data.
 * False: failed, raised.
 */
bool sherd__lay_out(sherd__run *run);

/* Fetch what forward reads around this rank's pieces, into call->in. False: failed, raised. */
bool sherd__read_around(sherd__run *run);

/*
 * Where operands with these layouts (NULL = absent) must be. NULL: failed, the reason is in the
 * diag.
 */
const sherd__placing *sherd__solve(sherd__run *run, const sherd_layout *const *operands);

/* Close the call's scope, if it is open; on success its visible results are passed out. */
void sherd__close(sherd__run *run, bool good);
/* Open the call's scope, once. */
void sherd__open(sherd__run *run);

/* As sherd_apply_all; like[i] (or NULL) is the layout of an operand i that is absent. */
bool sherd__apply_like(sherd_tensor **results, const sherd_op *op, sherd_tensor *const *operands,
                       int count, const void *attributes, const sherd_layout *const *like);

/*
 * The same, but result 0 may go into an existing tensor: if into.tensor has the layout and dtype of
 * the result, results[0] is that tensor; otherwise, or if it is NULL, a tensor of its own. A result
 * of 16 bits is never added to one.
 */
bool sherd__apply_into(sherd_tensor **results, const sherd_op *op, sherd_tensor *const *operands,
                       int count, const void *attributes, sherd__into into);

/*
 * Fail with "NAME: reason: x is f32[8(x),4] on (x=2), weight is f32[5,6]", by the alarm or kept on
 * this rank.
 */
void sherd__refuse(const sherd_call *call, sherd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same into the diag only. */
void sherd__refuse_diag(const sherd_call *call, const char *reason);

/* All operators of the library; NULL ends it. */
extern const sherd_op *const sherd__operators[];

/* ---- for describe ---------------------------------------------------------------------------- */

/*
 * Of a view by strides, called by its describe: on every rank the result's piece is row-major if
 * the operand's is. Without it the result counts as strided on all ranks, also on those where a
 * piece happens to be row-major (a single row): what makes it row-major is a copy on all.
 */
static inline void sherd__call_in_order(sherd_call *call)
{
    ((sherd__run *)(void *)call)->in_order = true;
}

/* Whether dim d of operand 0 counts one element on all ranks, so that its stride means nothing. A
 * plain tensor's sizes are its rank's own. */
static inline bool sherd__is_single(const sherd_call *call, int d)
{
    return call->in[0]->layout && call->in[0]->shape[d] == 1;
}

/* ---- for forward ---------------------------------------------------------------------------- */

static inline const sherd__kernels *sherd__kernels_in(const sherd_call *call)
{
    return ((const sherd__run *)(const void *)call)->kernels;
}

/* This rank's GPU, if forward computes there: then `from` and `to` are its memory. Else NULL. */
static inline sherd__device *sherd__device_in(const sherd_call *call)
{
    return ((const sherd__run *)(const void *)call)->device;
}
/* For sherd_op.on_device: whether the operands' dtype is f32, f64, bf16 or f16. */
bool sherd__fractions_there(const sherd_call *call);
/*
 * The same for operators that only copy elements; other dtypes too, if only the GPU has the
 * contents. So what the CPU has stays there, where it will be read: mostly indices.
 */
bool sherd__copies_there(const sherd_call *call);
/*
 * The same for operators that compute with any numbers, or with masks: integers and bool too, if
 * only the GPU has the contents of an operand, or no operand has elements on this rank.
 */
bool sherd__numbers_there(const sherd_call *call);
/*
 * In a forward that has written nothing yet: if it runs on the GPU, go on on the CPU, as if it had
 * begun there. False: the alarm is raised.
 */
bool sherd__leave_device(sherd_call *call);
/* As sherd_call_scratch, in the GPU's memory. */
void *sherd__device_scratch(sherd_call *call, int64_t bytes);

/* Whether forward must add to the contents of result 0. */
static inline bool sherd__adds_in(const sherd_call *call)
{
    return ((const sherd__run *)(const void *)call)->adds;
}

/* The letters of operand i in this call's rule; only for an operator with `describe`. */
static inline const char *sherd__label_in(const sherd_call *call, int i)
{
    return ((const sherd__run *)(const void *)call)->rule.operand[i];
}

/* The same for result j. */
static inline const char *sherd__result_label_in(const sherd_call *call, int j)
{
    return ((const sherd__run *)(const void *)call)->rule.result[j];
}

/* Open the call's scope, for tensors that forward makes. */
static inline void sherd__open_in(sherd_call *call)
{
    sherd__open((sherd__run *)(void *)call);
}

/* This rank's cached oneDNN primitives; NULL: do not use any. */
sherd__engine *sherd__engine_in(const sherd_call *call);

/*
 * Whether every element of this rank's piece of the i32 operand i is in [0, limit); otherwise the
 * call has failed.
 */
bool sherd__check_indices(sherd_call *call, int i, int64_t limit);
/* The same, but *also is allowed too. */
bool sherd__check_indices_or(sherd_call *call, int i, int64_t limit, const int32_t *also);

/* Elements of this rank's piece in dims [first, end). */
int64_t sherd__local_count(const sherd_tensor *t, int first, int end);

/*
 * The value of a scalar's piece; 0 on a rank that holds none. False: the alarm ended the wait for
 * it.
 */
bool sherd__scalar_value(sherd_tensor *t, double *value);

/* ---- for backward --------------------------------------------------------------------------- */

/* sherd__promote, recorded: a plain tensor that requires a gradient gets a plain one. */
sherd_tensor *sherd__promote_recorded(sherd_tensor *t, const sherd_mesh *mesh,
                                      const char *function);

/*
 * `t` with everything settled (a recorded move); itself if nothing is pending, or if it is plain.
 */
sherd_tensor *sherd__without_pending(sherd_tensor *t);

/*
 * sherd_cast without the record; addends of a pending reduction are cast one by one. `t` itself if
 * it has this dtype.
 */
sherd_tensor *sherd__cast_unrecorded(sherd_tensor *t, sherd_dtype dtype);

#endif
