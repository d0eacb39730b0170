/* SPDX-License-Identifier: Apache-2.0 */
/* Running programs on a rank. */
#ifndef STRESS_RUN_H
#define STRESS_RUN_H

#include "board.h"

/* One program as all ranks run it, and what is done to it. */
typedef struct turn {
    const program *p;
    fault fault[FAULTS];
    int faults;
    int starved; /* a rank; -1 = none */
    int64_t allocation;
    bool may_fail; /* for lack of memory */
    bool little;   /* of memory, at any time */
    bool verified;
} turn;

/* What a rank has of memory, of all kinds. */
typedef struct memory_use {
    int64_t allocations, sheets, bytes;
} memory_use;

typedef struct runner {
    sherd_world *world;
    int rank;
    const scene *s;
    board *board;
    rank_board *me;
    dice noise;
    enum { STEADY, SLOW, HASTY } pace;
    const sherd_mesh *mesh[MESHES];
    /* of this program */
    const turn *t;
    const program *p;
    const sherd_layout *layout[LAYOUTS];
    sherd_tensor *slot[SLOTS];
    bool own[SLOTS];
    int born[SLOTS];
    int at, good_at; /* this operation; the last check that was good */
    int scopes;
    bool blind;     /* from the first fault on: values say nothing */
    bool must_fail; /* something failed here: the next check can not be good */
    bool left;
    bool again;           /* programs run again and again, and memory is watched */
    memory_use before;    /* in the middle of a world whose programs run again and again */
    int64_t allocations;  /* at the last look */
    int grown;            /* how often there were more than that, since `before` */
    sherd_status verdict; /* of the meeting that ended the program */
} runner;

void runner_open(runner *u, sherd_world *world, const scene *s, board *b, uint64_t seed);
/* Returns the verdict: OK, or what the meeting said at which it was given up. */
sherd_status run_turn(runner *u, const turn *t);
/* A meeting's status, for the log. True if it was good. */
bool met(runner *u, sherd_status status);
/* Whether a world with this verdict stays closed. */
bool is_closed(sherd_status status);
void log_word(runner *u, int word);

/* act.c: do one operation. */
void act(runner *u, const op *o);
sherd_tensor *whole_of(runner *u, sherd_tensor *t, const sherd_mesh *mesh);
const sherd_mesh *mesh_for(runner *u, int mesh);

/* compare.c */
void store_element(sherd_dtype dtype, void *data, int64_t i, double x);
double load_element(sherd_dtype dtype, const void *data, int64_t i);
/* Compare what this rank holds of a tensor with a value. */
void compare(runner *u, sherd_tensor *t, int value);
void say_wrong(runner *u, const char *format, ...);

/* noise.c: what this rank does on its own, and nobody else needs to know. */
void make_noise(runner *u);

/* inside.c: a program is over: nothing of its messages is left. */
void look_inside(runner *u);
/* All programs have been run for the `time`-th time of `times`, from 0: memory grows no more. */
void watch_memory(runner *u, int time, int times);

/* survey.c: what a failed check has left is the same on all ranks, and can be used. */
void survey(runner *u);
/* The meeting that failed may have left the alarm up (only a check lowers it): one more check, and
 * a second is good. */
bool settle(runner *u);

#endif
