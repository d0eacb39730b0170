/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the model share: programs, and what a rank does. As in src/world/, but without
 * texts and memory.
 */
#ifndef MODEL_RANKS_H
#define MODEL_RANKS_H

#include "rules.h"

/* ---- programs ------------------------------------------------------------------------------ */

typedef enum verb {
    STOP,
    CALL,  /* an exchange: pull a part from each of `from`; `to` pull from me */
    ALL,   /* each member adds up its part of all sources and writes it into all results */
    END,   /* use the result of a call that was begun */
    WRITE, /* into a block, in place or as new memory */
    READ,  /* a block, and see that it holds what it should */
    FAIL,  /* raise the alarm */
    CHECK,
    AGREE
} verb;

enum { NONE = BLOCKS };

typedef struct model_op {
    verb verb;
    int group, source, result; /* of a call; END, WRITE and READ: the block is `source` */
    int from, to;              /* bits of ranks */
    bool begun, carried;
    int what; /* calls that differ in it are different calls; AGREE: its arguments */
} model_op;

enum { OPS = 10 };

typedef struct model_program {
    const char *name;
    int ranks;
    int member[GROUPS]; /* bits of ranks */
    bool wrong;         /* the ranks do different things: that must be told */
    bool sleeps;        /* ranks sleep as in slow_round; else they see at once what they wait for */
    int failures, deaths;
    model_op op[RANKS][OPS];
} model_program;

/* ---- statuses, numbers --------------------------------------------------------------------- */

enum { OK = 0, FAILED = 1, DIFFER = 2, DIED = 3 };

static inline const model_op *op_of(const machine *x, const model_self *s, int rank)
{
    return &x->program->op[rank][s->op];
}

static inline const model_op *my_op(machine *x)
{
    return op_of(x, me(x), x->rank);
}

static inline model_lane *lane_of(machine *x, int rank, int group)
{
    return &x->now->shared.lane[rank][group];
}

static inline model_slot *slot_of(machine *x, int rank, int group, int number)
{
    return &lane_of(x, rank, group)->ring[number % DEPTH];
}

static inline model_post *post_of(machine *x, int rank)
{
    return &x->now->shared.post[rank];
}

static inline int number_of(word made)
{
    return made & 0xFF;
}

static inline uint8_t bit(int rank)
{
    return (uint8_t)(1 << rank);
}

/* The part of a block that belongs to a rank. */
static inline word part(int rank)
{
    return (word)(0xF << 4 * rank);
}

/* ---- waits --------------------------------------------------------------------------------- */

/* What a rank waits for, as its op and phase say. */
typedef enum wait_for {
    FOR_NOTHING,
    FOR_FILLED,
    FOR_SETTLED,
    FOR_SLOT,
    FOR_END,
    FOR_VERDICT,
    FOR_TAKEN
} wait_for;

typedef struct model_wait {
    wait_for kind;
    int block;         /* FILLED, SETTLED */
    int group, number; /* SLOT: of the call that is to be made; END: of the call */
} model_wait;

model_wait wait_of(const machine *x, const model_self *s, int rank);
/*
 * One step of a wait. When it is over the phase goes on, or (the alarm ended it) the op is given
 * up.
 */
void wait_step(machine *x, const model_wait *wait);

/* ---- calls --------------------------------------------------------------------------------- */

void call_step(machine *x);
/* The call of a group with this number that a rank has open; NULL: none. */
model_call *open_call(model_self *s, const machine *x, int rank, int group, int number);
bool is_filling(const machine *x, const model_self *s, int rank, int block);
bool is_reading(const machine *x, const model_self *s, int rank, int block);
/* Take a step of an open call: what = a rank. False: that has not come yet. */
bool copy_own(machine *x, model_call *c);
bool take_record(machine *x, model_call *c, int rank);
bool take_left(machine *x, model_call *c, int rank);
/* What follows once all records are taken; and once all have left. */
void finish_if_all(machine *x, model_call *c);
bool end_if_left(machine *x, model_call *c);
void drop_calls(machine *x);
bool has_left(machine *x, int rank, int group, int number);

/* ---- sleeping, and what posts say ---------------------------------------------------------- */

typedef enum model_lack { LACKS_RECORD, LACKS_LEFT, LACKS_FIT } model_lack;

typedef struct model_need {
    int group, number;
    model_lack lack;
    int ranks;
} model_need;

typedef struct model_needs {
    int waits, count; /* [0, waits) of its wait, [waits, count) of its open calls */
    model_need need[NEEDS];
    word version;
} model_needs;

/* What a rank lacks, seen from inside. */
void gather(machine *x, int rank, const model_wait *wait, model_needs *out);
void announce(machine *x, const model_wait *wait);
void be_silent(machine *x);
/* What a rank says that it lacks, seen from outside. */
void hear(machine *x, int rank, model_needs *out);
bool still_says(machine *x, int rank, const model_needs *heard);
/* Whether what this rank waits for can never come. */
bool is_impossible(machine *x);

/* Wake those of some ranks that sleep, behind all that this one has stored. */
void wake(machine *x, int ranks, model_rule why);

/* ---- meetings and the alarm ---------------------------------------------------------------- */

void meet_step(machine *x);
void raise_alarm(machine *x, int status);
bool has_arrived(machine *x, int rank);

/* ---- all together -------------------------------------------------------------------------- */

/* The next step of the rank whose turn it is. */
void rank_step(machine *x);
/* Go on with the op's next phase; with the next op. */
void next_phase(machine *x);
void next_op(machine *x);

#endif
