/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: the entry of operators, their messages, and operators that only backwards use. */
#ifndef SHERD__OPERATOR_H
#define SHERD__OPERATOR_H

#include "rule.h"
#include "sherd/ops.h"

/* The operands of one call, for checks and messages. */
typedef struct sherd__operands {
    const char *function;
    const char *const *names;
    sherd_tensor *const *in;
    int count;
    unsigned optional; /* bits of operands that may be NULL */
} sherd__operands;

/*
 * The entry of a public operator: true if it may look at its operands. False: a failed operand, the alarm, or a NULL
 * where there must be a tensor; then return *result. (Not even a world to fail in: *result is NULL.)
 */
bool sherd__enter(const sherd__operands *o, sherd_tensor **result);

/* "FUNCTION: reason: a is f32[8(x),4] on (x=2), b is f32[5,6]"; the failed tensor. */
sherd_tensor *sherd__refuse(const sherd__operands *o, sherd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether every element of this rank's piece of an i32 operand is in [0, limit); else refuses and gives the failed tensor. */
bool sherd__check_indices(const sherd__operands *o, int which, int64_t limit,
                          sherd_tensor **result);

bool sherd__any_distributed(sherd_tensor *const *in, int count);

/* As sherd__prepare; like[i] (or NULL) stands for the layout of an operand i that is not there. The first one is there. */
bool sherd__prepare_like(sherd__prepared *p, const sherd__rule *rule, sherd_tensor *const *in,
                         const sherd_layout *const *like, sherd_dtype result_dtype,
                         const int64_t (*result_shape)[SHERD_MAX_DIMS]);

/* A rule's error text is "NAME: reason: operands are ..."; the failed tensor. */
sherd_tensor *sherd__misfit(sherd_world *world, const char *name, sherd_tensor *const *in,
                            int count, const char *reason);

/* sherd__promote, recorded: a plain tensor that wants a gradient gets a plain one. */
sherd_tensor *sherd__promote_recorded(sherd_tensor *t, const sherd_mesh *mesh,
                                      const char *function);

/* `t` moved (recorded) so that nothing in it is pending; itself if nothing is, or if it is plain. */
sherd_tensor *sherd__without_pending(sherd_tensor *t);

/* sherd_cast without the record; also what is pending is cast piece by piece. `t` itself if it has this dtype. */
sherd_tensor *sherd__cast_unrecorded(sherd_tensor *t, sherd_dtype dtype);

/* A new tensor of this shape, plain or on `layout` with pending axes replicated; contents undefined. Varies as `like`. */
sherd_tensor *sherd__new_settled(const sherd_layout *layout, const sherd_tensor *like, int ndim,
                                 const int64_t *shape);

/* A new tensor with layout, shape, dtype and `varies` of t; contents undefined. */
sherd_tensor *sherd__new_like(const sherd_tensor *t);

/* The sum over dims that broadcasting `shape` to the shape of t has added or stretched: the gradient of an operand. */
sherd_tensor *sherd__sum_to(sherd_tensor *t, int ndim, const int64_t *shape);

/* The value of a local scalar; 0 on a rank that holds none. False: the alarm ended the wait for it. */
bool sherd__scalar_value(sherd_tensor *t, double *value);

/* Elements of this rank's piece in dims [first, end). */
int64_t sherd__local_count(const sherd_tensor *t, int first, int end);

#endif
