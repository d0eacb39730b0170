/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of this room in a world: cached answers of the solver, registered operators, handlers,
 * times. (The "door" is sherd_apply_all: the one function by which every operator call comes in.)
 */
#ifndef SHERD__APPLY_DOOR_H
#define SHERD__APPLY_DOOR_H

#include "operator.h"
#include "sherd/comm.h"

#include "autograd/node.h"

typedef struct sherd__answers sherd__answers;

typedef struct sherd__override {
    const sherd_op *op;
    sherd_op_level level;
    sherd_op_handler handler; /* `run` is NULL: it was removed while it ran */
    bool running;             /* until it returns, calls of the operator are not replaced */
} sherd__override;

typedef struct sherd__timed {
    const sherd_op *op;
    int64_t calls, nanoseconds;
} sherd__timed;

/* An operator of which it was told that it promotes, or moves, an operand. */
typedef struct sherd__warned {
    const sherd_op *op;
    bool moves;
} sherd__warned;

enum { SHERD__SOUND = 16, SHERD__FIRST_WARNINGS = 8 };

enum { SHERD__RULED = 16, SHERD__RULED_OPERANDS = 3, SHERD__RULED_RESULTS = 2 };

/* What an index string became for operands of these shapes (rule.c). */
typedef struct sherd__ruled {
    const sherd_op *op; /* NULL: none */
    int operands, results;
    char text[SHERD_RULE_BYTES];
    int ndim[SHERD__RULED_OPERANDS]; /* -1: absent */
    int64_t shape[SHERD__RULED_OPERANDS][SHERD_MAX_DIMS];
    char operand[SHERD__RULED_OPERANDS][SHERD_MAX_DIMS + 1];
    char result[SHERD__RULED_RESULTS][SHERD_MAX_DIMS + 1];
    int64_t made[SHERD__RULED_RESULTS][SHERD_MAX_DIMS]; /* shapes of results */
} sherd__ruled;

typedef struct sherd__ops {
    sherd__answers *answers;
    sherd__engine *engine;
    const sherd_op **registered;
    int registers, register_room;
    sherd__override *override;
    int overrides, override_room;
    bool timing;
    sherd__timed *timed;
    int times, time_room;
    sherd_promotion promotion;
    sherd_moving moving;
    sherd__warned *warned;
    int warnings, warn_room;
    const sherd_call *composed; /* the outermost call whose compose is running; NULL: none */
    const sherd_op *sound[SHERD__SOUND]; /* operators that passed the check, by address */
    sherd__ruled ruled[SHERD__RULED];    /* the last rules, by the operator's address */
} sherd__ops;

/* Made here, if sherd__ops_of finds none yet. NULL as there. */
sherd__ops *sherd__ops_create(sherd_world *world);

/* Created on first use; NULL if memory runs out (reported in the diag). */
static inline sherd__ops *sherd__ops_of(sherd_world *world)
{
    sherd__ops *ops = sherd__world_state(world, SHERD__ROOM_OPS);

    return ops ? ops : sherd__ops_create(world);
}

/* The handler that replaces an operator; NULL: there is none. Borrowed until the next override. */
sherd__override *sherd__override_of(sherd__ops *ops, const sherd_op *op, sherd_op_level level);

/* It is there no more. */
void sherd__override_remove(sherd__ops *ops, sherd__override *o);
/* A handler has run. */
void sherd__end_handler(sherd__ops *ops, const sherd_op *op, sherd_op_level level);

/* Whether a handler replaces the operator now. It may replace itself, so it is copied. */
bool sherd__begin_handler(sherd_op_handler *out, sherd__ops *ops, const sherd_op *op,
                          sherd_op_level level);
/* Returns false. A function that failed without a report would fail on this rank alone. */
bool sherd__say_failed(const sherd__run *run);
/* Run forward, or what replaces it; compose; and a handler above the tape. False: failed. */
bool sherd__compute(sherd__run *run, sherd__ops *ops);
bool sherd__compose(sherd__run *run, sherd__ops *ops);
bool sherd__handle(sherd__run *run, const sherd_op_handler *handler);

/* Add to the time of an operator. If memory runs out it is not counted. */
void sherd__add_time(sherd_world *world, sherd__ops *ops, const sherd_op *op, int64_t nanoseconds);

/*
 * Whether a plain operand beside distributed ones is allowed (sherd_op_promote); false: refused,
 * raised.
 */
bool sherd__may_promote(const sherd__run *run, sherd_tensor *t);
/* The same of an operand that its rule wants to be moved (sherd_op_move). */
bool sherd__may_move(const sherd__run *run, sherd_tensor *t, const sherd_layout *to);

/* What is wrong with an operator, static or in `room`; NULL: nothing. */
const char *sherd__op_fault(const sherd_op *op, char room[SHERD__REASON_BYTES]);

/*
 * What is wrong with the values that its describe has set, except for sizes by letters; NULL:
 * nothing.
 */
const char *sherd__described_fault(sherd_call *call);

/*
 * Around a function of the user's (guard.c): the scopes around the call are not its to end, nor is
 * the world to be closed. What it made belongs to the call's scope.
 */
typedef struct sherd__guard {
    int floor;
    /* the call as it was before */
    const sherd_op *op;
    const void *attributes;
    int operands, results;
    sherd_tensor *in[SHERD_MAX_OPERANDS], *out[SHERD_MAX_RESULTS];
} sherd__guard;
void sherd__guard_begin(sherd__guard *guard, sherd__run *run);
void sherd__guard_end(const sherd__guard *guard, sherd__run *run);
/* After one that computes results, `good` if it says so: whether they are sound; else refused. */
bool sherd__guard_results(const sherd__guard *guard, sherd__run *run, bool good);

/* Instead of forward, in a dry world (dry.c). */
bool sherd__rehearse(sherd__run *run);
/* The call has computed its results: note it in the ledger, and record it (record.c). */
void sherd__record(sherd__run *run);
/*
 * The note alone, of a call that has its results: `what` is the hash of all that ranks must agree
 * on besides operands.
 */
void sherd__note_call(const sherd_call *call, sherd_tensor *const *in, int ins, uint64_t what);

sherd__answers *sherd__answers_create(sherd__heap *heap);
void sherd__answers_destroy(sherd__answers *all);

/*
 * message.c: why operand i, whose dtype is not `before`, that of those before it, is refused.
 * Nothing is cast unasked.
 */
const char *sherd__say_cast(sherd_call *call, int i, sherd_dtype before);

#endif
