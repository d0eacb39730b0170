/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of tensor memory and the store of a rank's region that they are cut from: store.c,
 * ticket.c. */
#ifndef SHERD__WORLD_BLOCKS_H
#define SHERD__WORLD_BLOCKS_H

#include "ranks.h"
#include "world.h"

enum { SHERD__TICKETS = 6 };

/* A block may be written again when the ticket's readers have left the call with this number. */
typedef struct sherd__ticket {
    int lane;
    uint64_t number;
} sherd__ticket;

/* Where a block is in its life. */
typedef enum sherd__use {
    SHERD__LENT,  /* somebody has it */
    SHERD__WARM,  /* given back as it is, to be taken again in one piece; calls may be open on it */
    SHERD__JOINED /* settled, and one with all that lay free beside it: to be cut */
} sherd__use;

/* What lies before the data of a block; its peers in the region lie before this, and behind the
 * data. */
struct sherd__block {
    sherd__block *prev, *next; /* in its list */
    sherd__block *before;      /* in the region; NULL of the first */
    unsigned char *data;
    size_t room;   /* bytes behind data */
    int64_t bytes; /* asked for */
    int class;     /* the largest that has a place in it */
    sherd__use use;
    sherd_memory_use serves; /* of one that is lent */
    int reading;             /* own open calls that read it */
    int filling;             /* own open calls that write it: a result in flight */
    uint64_t made; /* the deed whose result came or comes here, on this mesh; NULL = of no call */
    const sherd_mesh *made_on;
    bool spoiled; /* the call that filled it was dropped: what it holds is nothing */
    int tickets;
    sherd__ticket ticket[SHERD__TICKETS];
    uint64_t reader[]; /* bits of ranks: for each ticket as many words as the world's ranks take */
};

enum { SHERD__BLOCK_CLASSES = 320, SHERD__CLASS_WORDS = SHERD__BLOCK_CLASSES / 64 };

/* Blocks that nobody has, by class; the last one put in is the head. */
typedef struct sherd__shelf {
    sherd__block *head[SHERD__BLOCK_CLASSES], *tail[SHERD__BLOCK_CLASSES];
    uint64_t some[SHERD__CLASS_WORDS]; /* bits of the classes that are not empty */
} sherd__shelf;

/* The memory of this rank's region. */
typedef struct sherd__store {
    unsigned char *base;
    size_t header;      /* bytes before the data of a block */
    size_t used, room;  /* blocks lie one behind the other in [0, used) */
    sherd__block *last; /* the one that ends at `used` */
    sherd__shelf warm, joined;
    int64_t given, kept; /* blocks that became warm since the last joining; those that it left */
    size_t lent; /* bytes of blocks that somebody has, what lies before their data included */
    size_t crest, former_crest; /* the most that was lent in this spell and in the one before */
    size_t taken, spell; /* bytes taken in this spell; it ends when they are more than this */
    size_t turns;        /* a spell is so many times what is held */
    size_t held;         /* bytes of the chunks whose pages the kernel has given, perhaps */
    size_t left_held;    /* after chunks were last given back */
    int regret;          /* more spells in which that may still turn out to have been wrong */
    uint64_t *chunk;     /* bits of those chunks */
    bool scarce;         /* a check has said that memory is out, and none was passed since */
    bool refused; /* memory that the last taking asked for would have gone beyond the limit */
    sherd_memory memory;
} sherd__store;

#endif
