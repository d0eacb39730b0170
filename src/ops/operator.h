/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the one door (apply.c): a call under way, the steps that it takes, and what operators of this room share. */
#ifndef SHERD__OPERATOR_H
#define SHERD__OPERATOR_H

#include "autograd/tape.h"
#include "operators.h"
#include "sherd/ops.h"

/*
 * The dims of one call's operands and results as letters, one each, zero-terminated. A letter that a result lacks is summed
 * over: where it is sharded that result is pending. '1' and '*' are never sharded.
 */
typedef struct sherd__rule {
    int operands, results;
    char operand[SHERD_MAX_OPERANDS][SHERD_MAX_DIMS + 1];
    char result[SHERD_MAX_RESULTS][SHERD_MAX_DIMS + 1];
} sherd__rule;

/* The solver's answer. Layouts of one mesh; sure to live until the next question. */
typedef struct sherd__placing {
    /* what each operand must be moved to; its own layout if it stays */
    const sherd_layout *operand[SHERD_MAX_OPERANDS];
    const sherd_layout *result[SHERD_MAX_RESULTS];
    unsigned once; /* as in sherd_call */
} sherd__placing;

enum { SHERD__REASON_BYTES = 192, SHERD__AROUND = SHERD_OP_SLOTS };

/* Where result 0 may go. */
typedef struct sherd__into {
    sherd_tensor *tensor; /* NULL = to one of its own */
    enum {
        SHERD__ADDED_TO,    /* of an operator whose forward can add: sherd__adds_in */
        SHERD__WRITTEN_OVER /* an operand of which forward reads no element after it has written it */
    } how;
} sherd__into;

typedef struct sherd__run {
    sherd_call call; /* first: functions of operators get a pointer to it */
    /* operands as they lie after moving: what is recorded and saved. call.in is the same, compacted (not recorded) */
    sherd_tensor *arg[SHERD_MAX_OPERANDS];
    /* stands for the layout of an operand that is not there; NULL = none do */
    const sherd_layout *const *like;
    sherd__into into;
    bool adds;                     /* into.tensor is result 0, and forward adds to it */
    sherd_dtype dtype;             /* that operands share */
    const sherd__kernels *kernels; /* of it; of integers and bool see sherd__kernels_of_any */
    int visible;                   /* results that are not hidden */
    bool scoped;                   /* a scope was opened for what is made on the way */
    bool below;                    /* forward is a handler's */
    bool compiled;                 /* `rule` is written */
    bool hashed;                   /* `hash` is that of the attributes */
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

/* What is said of operand i: that of its slot, or of the last one, which is repeated. */
const sherd_op_slot *sherd__slot(const sherd_op *op, int i);

/* Write the rule of a call and the shapes of its results; NULL, or the reason why the operands do not fit. */
const char *sherd__compile(sherd__run *run);

/* The hash of the attributes, for the solver and for the ledger. */
uint64_t sherd__attributes_hash(sherd__run *run);

/* Bring operands to what suits the operator, where products are of this dtype. False: failed, raised. */
bool sherd__autocast(sherd__run *run, sherd_dtype low);

/* The mesh of the first distributed operand, or of the layout that stands for one; NULL: all are plain. */
const sherd_mesh *sherd__mesh_of(const sherd__run *run, sherd_tensor *const *operands);

/* Take plain operands for replicated on a mesh; false if one varies. */
bool sherd__promote_all(sherd__run *run, sherd_tensor **operands, const sherd_mesh *mesh);

/* Move distributed operands to where the rule wants them, make results, open local data. False: failed, raised. */
bool sherd__lay_out(sherd__run *run);

/* Bring this rank what forward reads around its pieces, in the place of call->in. False: failed, raised. */
bool sherd__read_around(sherd__run *run);

/* For operands of these layouts (NULL = absent). NULL: failed, the reason is in the diag. */
const sherd__placing *sherd__solve(sherd__run *run, const sherd_layout *const *operands);

/* Close the call's scope, if there is one; passes its visible results out if it has gone well. */
void sherd__close(sherd__run *run, bool good);
/* Open it, once. */
void sherd__open(sherd__run *run);

/* As sherd_apply_all; like[i] (or NULL) stands for the layout of an operand i that is not there. */
bool sherd__apply_like(sherd_tensor **results, const sherd_op *op, sherd_tensor *const *operands,
                       int count, const void *attributes, const sherd_layout *const *like);

/*
 * The same, with result 0 in a tensor that is there already, `into`, where that has the layout and dtype of the result: results[0] is
 * that tensor then, else one of its own. What is added to is not of 16 bits.
 */
bool sherd__apply_into(sherd_tensor **results, const sherd_op *op, sherd_tensor *const *operands,
                       int count, const void *attributes, sherd__into into);

/* "NAME: reason: x is f32[8(x),4] on (x=2), weight is f32[5,6]", by the alarm or kept local. */
void sherd__refuse(const sherd_call *call, sherd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same into the diag only. */
void sherd__refuse_diag(const sherd_call *call, const char *reason);

/* All operators of the library; NULL ends it. */
extern const sherd_op *const sherd__operators[];

/* ---- for forward ---------------------------------------------------------------------------- */

static inline const sherd__kernels *sherd__kernels_in(const sherd_call *call)
{
    return ((const sherd__run *)(const void *)call)->kernels;
}

/* Whether forward must add to what stands in result 0. */
static inline bool sherd__adds_in(const sherd_call *call)
{
    return ((const sherd__run *)(const void *)call)->adds;
}

/* The label of operand i as the rule was written for this call; only of an operator that describes. */
static inline const char *sherd__label_in(const sherd_call *call, int i)
{
    return ((const sherd__run *)(const void *)call)->rule.operand[i];
}

/* The same of result j. */
static inline const char *sherd__result_label_in(const sherd_call *call, int j)
{
    return ((const sherd__run *)(const void *)call)->rule.result[j];
}

/* Tensors that forward makes go into the call's own scope. */
static inline void sherd__open_in(sherd_call *call)
{
    sherd__open((sherd__run *)(void *)call);
}

/*
 * `times` products, one behind the other in all of a, b and c, in the fastest way there is; bias (or NULL) is for each. What
 * is to be computed is in `p`, but p->bias. False: failed.
 */
bool sherd__multiply(sherd_call *call, sherd__product p, int64_t times, void *c, const void *a,
                     const void *b, const void *bias);

/* Primitives of oneDNN that this rank keeps; NULL: none are to be used. */
sherd__engine *sherd__engine_in(const sherd_call *call);

/* Whether every element of this rank's piece of the i32 operand i is in [0, limit); else the call has failed. */
bool sherd__check_indices(sherd_call *call, int i, int64_t limit);
/* The same; *also is good too. */
bool sherd__check_indices_or(sherd_call *call, int i, int64_t limit, const int32_t *also);

/* Elements of this rank's piece in dims [first, end). */
int64_t sherd__local_count(const sherd_tensor *t, int first, int end);

/* The value of a scalar's piece; 0 on a rank that holds none. False: the alarm ended the wait for it. */
bool sherd__scalar_value(sherd_tensor *t, double *value);

/* The sum of operand 0 over dims (bits) into result 0. False: failed. */
bool sherd__sum_dims(sherd_call *call, unsigned dims);

/*
 * For what ranks join by exchanging a few elements per position. New parts [parts * width, kept dims of operand 0]: of each
 * shard of its dims in `reduced` (bits) `width` of them, this rank's own; undefined. NULL: failed.
 */
sherd_tensor *sherd__new_parts(sherd_call *call, unsigned reduced, sherd_dtype dtype,
                               int64_t width);
/* Those of all shards, [*parts, width, positions], on all ranks; NULL: failed. Collective only if there are several. */
const void *sherd__all_parts(sherd_call *call, unsigned reduced, sherd_tensor *mine, int64_t width,
                             int64_t *parts);

/* Strides of operand i against the dims of result 0, aligned at the last one: 0 where it is stretched. */
void sherd__broadcast_strides(const sherd_call *call, int i, int64_t *stride);

/* ---- for backward --------------------------------------------------------------------------- */

/* sherd__promote, recorded: a plain tensor that wants a gradient gets a plain one. */
sherd_tensor *sherd__promote_recorded(sherd_tensor *t, const sherd_mesh *mesh,
                                      const char *function);

/* `t` moved (recorded) so that nothing in it is pending; itself if nothing is, or if it is plain. */
sherd_tensor *sherd__without_pending(sherd_tensor *t);

/* sherd_cast without the record; also what is pending is cast piece by piece. `t` itself if it has this dtype. */
sherd_tensor *sherd__cast_unrecorded(sherd_tensor *t, sherd_dtype dtype);

/* What sherd_dropout has done with a call's key, done with `t`. */
sherd_tensor *sherd__dropped(sherd_tensor *t, double p, sherd__key key);

/* PyTorch's eps of an RMS norm: the distance from 1 to the next f32, of f64 to the next f64. */
double sherd__rms_epsilon(sherd_dtype dtype);

/* A function of one operand, also one that is hidden (kernels/functions.inc). */
sherd_tensor *sherd__unary(sherd__unary_kind kind, sherd_tensor *a, double parameter);

/* The sum over dims that broadcasting `shape` to the shape of t has added or stretched: the gradient of an operand. */
sherd_tensor *sherd__sum_to(sherd_tensor *t, int ndim, const int64_t *shape);
/* The same for operand i of a node. */
sherd_tensor *sherd__sum_to_operand(sherd_node *node, int i, sherd_tensor *t);

#endif
