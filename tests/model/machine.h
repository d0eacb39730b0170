/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine that the model's ranks run on: words that they share, and stores that others see
 * late.
 *
 * A rank is ordinary code, cut into steps. A step is run again from its beginning each time that
 * the rank goes on; what it has looked at before is given to it again from a log, until it comes to
 * something new: that one action is done, and then other ranks may do theirs. So a rank can be
 * stopped between any two actions, and its state is that of the beginning of its step and the log.
 * Locals need no place in the state. At the end of a step its changes are kept, and the log is
 * empty.
 *
 * Order of memory. IN_ORDER: a store is there for all at once. TSO, as x86: stores go through a
 * buffer, in order; a rank sees its own. RELEASE, for arm64: they leave the buffer in any order,
 * but for those of release order, which leave it behind all that were before. What reads, writes
 * and swaps in one (and a store of seq_cst order) waits until the buffer is empty. Loads are done
 * in order: all looks of the code at words on which others' progress hangs are seq_cst, and what
 * they guard is read after them.
 */
#ifndef MODEL_MACHINE_H
#define MODEL_MACHINE_H

#include "state.h"

#include <setjmp.h>

typedef enum model_order { IN_ORDER, TSO, RELEASE } model_order;

struct model_program;

typedef struct machine {
    const struct model_program *program;
    uint64_t without; /* bits of rules that are taken away */
    model_order order;
    state *now;
    int rank;         /* whose step it is */
    int replayed;     /* entries of its log that were given again */
    bool acted;       /* the new action was done */
    bool stored;      /* or something was put into the buffer */
    bool chosen;      /* a new choice was made: */
    int alternative;  /* which one is wanted */
    bool at_once;     /* `sight` is no action: all is seen as it is at one moment */
    model_self start; /* of the rank, at the beginning of its step */
    int steps;        /* that it has done since */
    const char *what, *fault;
    jmp_buf out;
} machine;

/* Look at a word. */
word look(machine *x, const word *at);
/* The same together with the action before or behind it: what no other rank changes meanwhile. */
word peek(machine *x, const word *at);
/* A look at a word that others only set: whether they did since the last such look. */
word listen(machine *x, word *at);
/* A look; but of what judge looks at, all of it is one action with that before or behind it. */
word sight(machine *x, const word *at);
bool judge_at_once(machine *x, bool (*judge)(machine *x));
/* Store a word; with release order; with seq_cst order. */
void put(machine *x, word *at, word value);
void put_last(machine *x, word *at, word value);
void put_now(machine *x, word *at, word value);
/* Store some bits of a word, which are as words of their own. */
void put_part(machine *x, word *at, word mask, word value);
/* Read, change and write a word in one. */
word fetch_add(machine *x, word *at, word value);
word fetch_or(machine *x, word *at, word value);
word fetch_and(machine *x, word *at, word value);
bool compare_swap(machine *x, word *at, word before, word value);
/* All that was stored before is seen by all. */
void fence(machine *x);
/* One of [0, n): all are tried. */
int choose(machine *x, int n);
/* What a run may have only once, as a failure: one less of it. */
void spend(machine *x, uint8_t *budget);
/* The step can not be done now: as if the rank had not come to it. */
_Noreturn void nothing(machine *x);
/* What must not be. */
_Noreturn void wrong(machine *x, const char *what);

static inline model_self *me(machine *x)
{
    return &x->now->self[x->rank];
}

typedef enum model_outcome { DONE, NOTHING, NO_MORE, WRONG } model_outcome;

/*
 * Let a rank go on by one action, the alternative-th of those that it can choose; next is what
 * comes of it.
 */
model_outcome machine_step(machine *x, const state *now, int rank, int alternative, state *next);
/* Let the i-th store that is on its way arrive. */
model_outcome machine_arrive(machine *x, const state *now, int rank, int i, state *next);

#endif
