/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a round is, and the board on which its ranks write what they see: memory that all processes
 * of the round share, and that outlives them. Nothing of it is needed by the ranks to go on.
 */
#ifndef STRESS_BOARD_H
#define STRESS_BOARD_H

#include "program.h"

#include <stdatomic.h>

enum { LOG = 256, OUTCOMES = 8, MARK = 100, LOOSE = 101, INJECTIONS = FAULT_KINDS + 6 };

typedef enum round_kind {
    ROUND_LEGAL,
    ROUND_WRONG,    /* faults in programs */
    ROUND_STARVED,  /* allocations fail */
    ROUND_SMALL,    /* small regions */
    ROUND_KILLED,   /* a rank is killed */
    ROUND_STOPPED,  /* a rank is stopped */
    ROUND_PAUSED,   /* the whole job is stopped for a while */
    ROUND_ORPHANED, /* whoever started the ranks is killed */
    ROUND_KINDS
} round_kind;

/* What is done to programs and ranks, as the counts have it: faults first. */
enum {
    INJECT_ALLOCATION = FAULT_KINDS,
    INJECT_SMALL,
    INJECT_KILL,
    INJECT_STOP,
    INJECT_PAUSE,
    INJECT_ORPHAN
};

/* How ranks under mpirun meet. */
typedef enum meeting_by { BY_ARENA, BY_MESSAGES, BY_BOTH } meeting_by;

/* All of it follows from the seed (and from what the command line rules out). */
typedef struct round_plan {
    uint64_t seed;
    round_kind kind;
    bool threads, verified;
    int ranks, worlds;
    size_t region_bytes; /* of each rank; 0 = what there is */
    bool by_environment; /* that and a piece for each rank is said in SHERD_ARENA_BYTES */
    int victim, signal;
    int64_t delay_us, pause_us;
    char mpi[16]; /* "": ranks are ours to start */
    meeting_by by;
    char host[RANKS + 1]; /* BY_BOTH: which host a rank believes to be on, a letter */
    int part_bytes;       /* SHERD_PART; 0 = as it is */
    int times;            /* that the programs of a world are run */
} round_plan;

typedef struct tally {
    int64_t worlds, programs, ops, elements;
    int64_t injected[INJECTIONS][OUTCOMES];
} tally;

typedef struct rank_board {
    atomic_int pid;
    atomic_uint steps; /* goes on while the rank does */
    atomic_int at;     /* the operation that it is in */
    int turn;          /* of the loop */
    int logged;
    int8_t log[LOG]; /* statuses; MARK where a program begins; LOOSE before one that may be any */
    char error[SHERD_ERROR_BYTES];
    char wrong[512]; /* the first thing that this rank found wrong */
    int64_t ops, elements;
    atomic_int_fast64_t closed_at; /* when it was told that a rank had died; nanoseconds */
    int born[SLOTS];               /* what was left by a check that failed */
    int8_t state[SLOTS];
    int closed; /* under mpirun: what sherd_world_close said */
} rank_board;

typedef struct board {
    rank_board rank[RANKS];
    atomic_int stop; /* the loop of programs in which ranks are killed is to end */
    atomic_int last; /* its last turn, once rank 0 has seen that; 0 = not yet */
    atomic_int_fast64_t struck_at;
    char wrong[1024]; /* what the round found wrong; "" = nothing */
    tally tally;
    /* for ranks under mpirun: the file that this is, the round, and what this world is drawn
     * from */
    int fd;
    round_plan plan;
    uint64_t seed;
} board;

/* What a command line leaves to chance. */
typedef struct round_options {
    bool threads;    /* ranks are threads only */
    int kind;        /* -1 = any */
    int ranks;       /* 0 = any */
    int hosts;       /* that ranks under mpirun believe to be on; 0 = any */
    int times;       /* that each world runs its programs */
    const char *mpi; /* ranks are started by mpirun.<this>; NULL = by us */
} round_options;

/* NULL for lack of memory. */
board *board_create(void);

void round_draw(round_plan *r, uint64_t seed, const round_options *o);
const char *round_name(round_kind kind);
const char *injection_name(int injection);
/* Run a round in this process and the ranks that it starts, and judge it: what is wrong stands on
 * the board. */
void round_run(const round_plan *r, board *b, bool print);
/* Whether ranks run programs until something happens to them. */
bool round_loops(const round_plan *r);

#endif
