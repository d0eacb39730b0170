/* SPDX-License-Identifier: Apache-2.0 */
/* A part that may be run again, as replay.c runs it and kept.c looks at it. */
#ifndef SHERD__AUTOGRAD_REPLAYING_H
#define SHERD__AUTOGRAD_REPLAYING_H

#include "autograd/node.h"

typedef enum sherd__replay_state {
    SHERD__REPLAY_RECORDS,
    SHERD__REPLAY_WAITS,
    SHERD__REPLAY_AGAIN
} sherd__replay_state;

struct sherd__replay {
    sherd__refcounted head; /* counts its nodes, and its run */
    sherd_world *world;
    sherd__replayed what;
    sherd__replay_state state;
    sherd__replay *outer; /* while it runs */
    sherd_node *keeper;   /* counted */
    uint64_t wanting;     /* bits of the kept tensors that want a gradient */
    sherd_dtype low;      /* as sherd__low was */
    sherd_node **node;    /* not counted; NULL once it is gone */
    int nodes, room;
    int undone; /* nodes that are there, and whose backward has not run for good */
    int at;     /* how many have come again */
    sherd__draws draws;
    uint64_t origins; /* the run around it, while it runs */
    /* how tensors lay, for who asks when it is run again; the layouts are counted */
    sherd__as_found *found;
    int founds, found_room, found_at;
};

const char *sherd__replay_name(const sherd__replay *r);
/*
 * Refuse that the part did something else than `before`: false. What failed on this rank, as for
 * lack of memory, may be why: then that is the error.
 */
bool sherd__replay_differs(sherd__replay *r, const char *what, const char *before);
/* Release the arguments when no node needs them any more; likewise those of parts around. */
void sherd__replay_let_go(sherd__replay *r);
/* Compare the i-th argument of a part inside of another one, when that is run again. */
void sherd__replay_compare(const sherd_node *keeper, int i);

#endif
