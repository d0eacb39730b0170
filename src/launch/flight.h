/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight record: what each rank did last, what it waits for and since when, and who is missing.
 * Read by whoever watches out of what the ranks show each other anyway (posts, and the rings of
 * records), while they run, wait, or are dead; ranks do nothing for it but count their calls and
 * note when a long wait began.
 */
#ifndef SHERD__LAUNCH_FLIGHT_H
#define SHERD__LAUNCH_FLIGHT_H

#include "watch.h"

enum { SHERD__FLIGHT_CALLS = 4, SHERD__FLIGHT_LINES = 23, SHERD__FLIGHT_COLUMNS = 100 };

typedef enum sherd__doing {
    SHERD__IS_ABSENT, /* it has not opened its world */
    SHERD__RUNS,
    SHERD__WAITS,
    SHERD__WAITED, /* until the world failed or ended; it goes on since */
    SHERD__IS_STOPPED,
    SHERD__HAS_CLOSED,
    SHERD__HAS_ENDED
} sherd__doing;

/* A call of one rank. */
typedef struct sherd__flight_call {
    uint64_t number; /* in its group, from 1 */
    sherd__ranks group;
    bool done;       /* this rank has finished it */
    char label[160]; /* "" if the ring no longer has it */
} sherd__flight_call;

typedef struct sherd__flight_rank {
    sherd__doing doing;
    int process; /* 0 = not known */
    int code;    /* HAS_ENDED: exit status, or 128 + signal; -1 = not known */
    int signal;  /* HAS_ENDED: that has killed it; 0 = none */
    /* WAITS, WAITED: */
    int64_t waited_ns;
    sherd__ranks awaited;
    bool to_finish;          /* they have made the call, but not finished it */
    char meeting[96];        /* "" if it is in a call: */
    sherd__flight_call call; /* number 0: none */

    uint64_t calls; /* made in all */
    int count;
    sherd__flight_call last[SHERD__FLIGHT_CALLS]; /* newest first */
} sherd__flight_rank;

typedef struct sherd__flight {
    char why[SHERD_ERROR_BYTES];
    int ranks;
    sherd__ranks missing; /* those that others wait for, and that wait for nobody */
    sherd__flight_rank rank[SHERD_MAX_RANKS];
} sherd__flight;

/* Fill a record. `failed`: the world has, so that waits which it cut short count too. */
void sherd__flight_take(sherd__flight *out, const sherd__rank_watch *w, const char *why,
                        bool failed);
/* The same for people, in at most FLIGHT_LINES lines: ranks that say the same are told together. */
enum { SHERD__FLIGHT_ROOM = SHERD__FLIGHT_LINES * (SHERD__FLIGHT_COLUMNS + 1) + 1 };
void sherd__flight_text(const sherd__flight *flight, char out[SHERD__FLIGHT_ROOM]);

#endif
