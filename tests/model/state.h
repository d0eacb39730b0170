/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the model: what ranks share, what each knows for itself, and where each is in what
 * it does. All of it is plain numbers, so that two states are equal if their bytes are. What is
 * shared has the names that it has in src/world/arena.h; a word there is a word here, but that a
 * block of memory is one word of four parts.
 */
#ifndef MODEL_STATE_H
#define MODEL_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RANKS = 3,
    GROUPS = 3,
    DEPTH = 2,  /* of a ring of records */
    BLOCKS = 4, /* of a rank */
    OPEN = 3,   /* calls that a rank may have open */
    NEEDS = 6,  /* that a post has room for */
    MEETINGS = 3,
    GHOSTS = 4,
    BUFFER = 12, /* stores of a rank that the others do not see yet */
    LOG = 96
};

typedef uint16_t word;

/* ---- what ranks share ---------------------------------------------------------------------- */

typedef struct model_slot {
    word number; /* stored last */
    word said;   /* status << 8 | history */
    word body;   /* the blocks of source and result; or the data that the record carries */
} model_slot;

typedef struct model_lane {
    word left, made; /* made: history << 8 | number */
    model_slot ring[DEPTH];
} model_lane;

typedef struct model_post {
    word bell; /* it was rung since the owner has looked at it */
    word arrived, taken;
    word brings;  /* to a meeting: kind << 8 | status */
    word version; /* odd: it sleeps, and its needs are valid: */
    word counts;  /* of its wait << 8 | of all */
    word need[NEEDS];
} model_post;

typedef struct shared {
    model_lane lane[RANKS][GROUPS];
    model_post post[RANKS];
    word block[RANKS][BLOCKS];
    word alarm, death; /* a status; 0 = none */
    word sleepers, arrivals;
    word verdict[2], base[2]; /* round << 8 | flags << 4 | status */
} shared;

/* ---- what a rank knows for itself ---------------------------------------------------------- */

/* A call that is made and has not ended; number 0 = none. */
typedef struct model_call {
    uint8_t number, op, history;
    bool own, finished, waited;
    uint8_t awaited, sharers;
    word result; /* what the result will hold */
} model_call;

typedef struct model_entry {
    uint8_t number, readers;
} model_entry;

typedef struct model_self {
    uint8_t op, phase; /* of the program */
    bool done, dead, quiet, arrived, stays;
    uint8_t round, base;
    uint8_t statuses, status[MEETINGS]; /* that meetings gave */
    uint8_t sequence[GROUPS], epoch[GROUPS], history[GROUPS];
    model_entry entry[GROUPS][DEPTH];
    model_entry ticket[BLOCKS][GROUPS];
    uint8_t spoiled;       /* bits of blocks */
    word holds[BLOCKS];    /* what a block should hold */
    model_call open[OPEN]; /* in the order in which they were made */
} model_self;

/* ---- all together -------------------------------------------------------------------------- */

typedef struct model_store {
    uint8_t at; /* which word of what is shared */
    bool last;  /* with release order: not before any store before it */
    word mask, value;
} model_store;

typedef struct model_buffer {
    uint8_t count;
    model_store store[BUFFER];
} model_buffer;

/* What a rank has looked at since the beginning of its step. */
typedef struct model_log {
    word count;
    word value[LOG];
} model_log;

/* What a call means, for the test only: what its source held when it was made. */
typedef struct model_ghost {
    word number;
    word source;
} model_ghost;

typedef struct state {
    shared shared;
    model_self self[RANKS];
    model_buffer buffer[RANKS];
    model_ghost ghost[RANKS][GROUPS][GHOSTS];
    uint8_t failures, deaths; /* that may still happen */
    uint8_t failed;           /* bits of rounds in which something did */
    model_log log[RANKS];     /* the last: what is not in use is not looked at */
} state;

#endif
