/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that share no memory: the same protocol by messages. Each process has an arena of its own
 * in which the posts and lanes of the others are *mirrors*, written by it alone, from the messages
 * that it receives whenever it waits. So all that reads records, counters, arrivals and verdicts
 * stays as it is, and finds in the mirrors what it would have found in shared memory; messages of
 * one rank come in their order, so a mirror is never ahead of itself.
 *
 * Where some ranks share a machine, they also share an arena: for their lanes and for tensors,
 * which they read in place. Posts, the alarm and verdicts are mirrors there, too: one rank alone
 * writes each word.
 */
#ifndef SHERD__WORLD_REMOTE_H
#define SHERD__WORLD_REMOTE_H

#include "inside.h"
#include "sherd/carrier.h"

#include <stddef.h>

enum { SHERD__SHEET_CLASSES = 48 };

/* Memory of one message, on its way out or in. */
typedef struct sherd__sheet {
    struct sherd__sheet *next;
    struct sherd__sheet *more; /* first of a pile: the others of it */
    int count, awaited;        /* sheets of the pile; of slices: how many there must be, 0 = not
                                  asked yet */
    size_t room;               /* of data */
    int to;                    /* of claims that have come: whose they are */
    /* Out: */
    sherd_message message;
    sherd_sending sending;
    sherd__block *held; /* what is sent from where it lies; NULL: nothing */
    /* In: */
    int kind; /* SHERD__SENT_CALL, SLICE, PART */
    int lane, task;
    uint64_t number;
    /* slice: where it goes in the result; part: in what its rank sends; the data's length */
    size_t at, bytes;
    size_t lacks; /* call, in parts: bytes that are not in the result yet */
    bool parts;   /* call: its data follows in parts */
    const unsigned char *data;
    _Alignas(64) unsigned char memory[];
} sherd__sheet;

/* What goes to one rank, the first sent first: by thousands, where a call is of many tensors. */
typedef struct sherd__queue {
    sherd__sheet *first, *last;
} sherd__queue;

typedef struct sherd__remote {
    sherd_carrier carrier;
    sherd__heap heap;
    int here;            /* ranks of this machine */
    sherd__ranks near;   /* those that share the arena with this one, itself included */
    sherd__heap *counts; /* the world's, while it is open: told of each sheet that is made */
    sherd__arena arena;
    sherd__queue *flight; /* [ranks]: being sent */
    sherd__ranks busy;    /* those to whom something is */
    uint64_t gone;        /* sheets that have been in flight */
    sherd__sheet *ready;  /* packed for the call that is about to be published */
    sherd__sheet *parts;  /* behind them, in their order; not packed yet */
    size_t part_bytes;    /* what is longer goes in parts of this length */
    /* [ranks]: of calls that this rank has not finished; what is of one kind and call is a pile. */
    sherd__sheet **inbox;
    sherd__sheet *claims; /* rank 0's: what far ranks claim at this meeting */
    sherd__sheet *idle[SHERD__SHEET_CLASSES];
    size_t idle_bytes;
    uint64_t lowered; /* how often a meeting has lowered the alarm */
    /* An alarm of a rank that has left a meeting already, in which this one still is. */
    struct {
        uint64_t lowered;
        int rank;
        sherd_status status;
        char text[SHERD_ERROR_BYTES];
    } early;
    /* A failure that could not be raised when it was found, at a meeting. */
    sherd_status kept_status;
    char kept_text[SHERD_ERROR_BYTES];
    uint64_t told_version; /* of this rank's post; 0 = the others believe that it does not wait */
    sherd__ranks byes;     /* those that send nothing more */
    int bodies;            /* long parts on their way to this rank, which has room for them */
    int64_t nap_ns;
} sherd__remote;

/* The first bytes of each message's head. */
typedef struct sherd__head {
    uint64_t carriers;
    uint32_t kind, lane;
    uint64_t number;
} sherd__head;

/* What kinds there are; each is handled by the file in its line. */
typedef enum sherd__message_kind {
    SHERD__SENT_CALL = 1, /* remote_call.c: a record, and what the receiver pulls */
    SHERD__SENT_RECORD,   /* remote_news.c: a record alone */
    SHERD__SENT_LEFT,
    SHERD__SENT_SLICE, /* remote_slices.c: reduced, for the receiver's result */
    SHERD__SENT_PART,  /* remote_parts.c: of the data of a call */
    SHERD__SENT_ALARM, /* remote_news.c */
    SHERD__SENT_END,
    SHERD__SENT_ARRIVAL, /* remote_meet.c */
    SHERD__SENT_LANE,    /* remote_news.c */
    SHERD__SENT_WORK,    /* remote_meet.c */
    SHERD__SENT_OPENED,
    SHERD__SENT_REMAINS,
    SHERD__SENT_VERDICT,
    SHERD__SENT_TAKEN,
    SHERD__SENT_CLAIMS, /* remote_claims.c */
    SHERD__SENT_POST,   /* remote_posts.c */
    SHERD__SENT_BYE
} sherd__message_kind;

/* A record on its way. */
typedef struct sherd__sent_record {
    sherd__head head;
    uint64_t fingerprint, history;
    uint64_t left;        /* of the lane */
    int32_t status, task; /* slice: whose it is; call: 1 = its data follows in parts */
    uint64_t bytes;       /* of data, behind this head or in the body */
    uint64_t label[SHERD__LABEL_WORDS];
} sherd__sent_record;

/* Where data begins behind it. */
enum { SHERD__ALIGNED = 64 };
enum {
    SHERD__RECORD_BYTES =
        (sizeof(sherd__sent_record) + SHERD__ALIGNED - 1) / SHERD__ALIGNED * SHERD__ALIGNED
};

/* ---- remote.c: messages and their memory ----------------------------------------------------- */

/* Makes *out of a carrier, which it closes from now on, with a private arena. ENOMEM, ENOTSUP. */
sherd_status sherd__remote_open(sherd__remote **out, const sherd_carrier *carrier,
                                size_t region_bytes, sherd__diag *diag);
/* Say goodbye, and wait for the others' if `well`. The arena stays; false: it must stay mapped, as
 * the carrier may still read there what a lost rank has not received. */
bool sherd__remote_close(sherd__remote *remote, bool well);

/* NULL: no memory. */
sherd__sheet *sherd__sheet_take(sherd__remote *remote, size_t bytes);
void sherd__sheet_give(sherd__remote *remote, sherd__sheet *sheet);
/* All of a list, with what is piled up in it. */
void sherd__sheets_give(sherd__remote *remote, sherd__sheet **list);
/* Have so many of the smallest sheets idle: then short messages need no memory. False: there is
 * none. */
bool sherd__sheets_reserve(sherd__remote *remote, int count);
/* The one whose memory a body was received into. */
static inline sherd__sheet *sherd__sheet_of(void *body)
{
    return (sherd__sheet *)(void *)((unsigned char *)body - offsetof(sherd__sheet, memory));
}
/* Send what sheet->message says to sheet->to. */
void sherd__sheet_send(sherd__remote *remote, sherd__sheet *sheet);
/* Send a short message; never fails for lack of memory. */
void sherd__tell(sherd__remote *remote, int to, const void *head, size_t bytes);
void sherd__tell_all(sherd__remote *remote, const void *head, size_t bytes);
/* A message has no room, or is not what a call reads: the alarm, now or when this rank may raise
 * it. */
void sherd__remote_fail(sherd_world *world, sherd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The lowest of a group's far ranks behind `rank`; -1: there is none. */
static inline int sherd__next_far(const sherd_world *world, const sherd__group *group, int rank)
{
    do {
        rank = sherd__ranks_next(&group->members, rank + 1);
    } while (rank >= 0 && sherd__ranks_has(&world->near, rank));
    return rank;
}

/* The carrier may have failed: then the world ends. */
void sherd__carrier_check(sherd__remote *remote);

/* ---- remote_heard.c -------------------------------------------------------------------------- */

typedef struct sherd__remote_hooks {
    /* What a message does to the mirrors; false: it makes no sense, the world ends. */
    bool (*take)(sherd_world *world, int from, const sherd_message *m);
    /* alarm.c has this rank's alarm told to all, and the end of the world. */
    void (*alarm)(sherd_world *world, sherd_status status, const char *text);
    void (*end)(sherd__arena *arena, uint64_t word);
} sherd__remote_hooks;
extern const sherd__remote_hooks sherd__remote_own_hooks;

/* ---- handlers, by the kind of a message, as sherd__remote_hooks.take ------------------------- */

bool sherd__take_call(sherd_world *world, int from, const sherd_message *m);
bool sherd__take_slice(sherd_world *world, int from, const sherd_message *m);
bool sherd__take_part(sherd_world *world, int from, const sherd_message *m);
bool sherd__take_news(sherd_world *world, int from, const sherd_message *m);
bool sherd__take_meeting(sherd_world *world, int from, const sherd_message *m);
bool sherd__take_claims(sherd_world *world, int from, const sherd_message *m);
bool sherd__take_post(sherd_world *world, int from, const sherd_message *m);

/* ---- remote_data.c --------------------------------------------------------------------------- */

/* Bytes of the table of where each tensor's data begins; of a call for one rank, the table
 * included; where they lie as one large piece, or NULL. */
size_t sherd__table_bytes(int count);
size_t sherd__bytes_for(const sherd__call_state *call, int to);
const void *sherd__direct(const sherd__call_state *call, int to, size_t bytes);
sherd__source sherd__own_source(const sherd__task *task);
/* As if the packed box of a pull, which begins `at` elements behind `data`, lay where it does in
 * the source of its rank. */
sherd__source sherd__packed_source(const sherd__task *task, const sherd__region *region,
                                   const sherd__pull *pull, const void *data, int64_t at);
/* A sheet for a rank, of a record and `bytes` behind it. */
void sherd__sheet_fill(sherd__sheet *sheet, int to, size_t bytes);
/* The record at the head of a message, and its data in the inbox; *sheet NULL: it is of an epoch
 * that is over, or there is no room, and that has been said. False: it makes no sense. */
bool sherd__take_in(sherd__sheet **sheet, sherd__sent_record *sent, sherd_world *world, int from,
                    const sherd_message *m);

/* Where in the inbox of a rank the pile of this kind for a call hangs; *it NULL: nothing has
 * come. */
sherd__sheet **sherd__pile_of(const sherd_world *world, const sherd__call_state *call, int rank,
                              int kind);
/* Take the slices of a call, or all else, out of the inbox of a rank; whether there was
 * anything. */
bool sherd__inbox_let_go(sherd_world *world, const sherd__call_state *call, int rank, bool slices);

/* ---- remote_parts.c, remote_slices.c: calls -------------------------------------------------- */

/* A message for each slice that this rank will have reduced, and each rank that gets it. False: no
 * memory. Then send them. */
bool sherd__slices_prepare(sherd__remote *remote, sherd__call_state *call);
void sherd__slices_send(sherd_world *world, sherd__call_state *call);

/* Whether the data of a call may go in parts. */
bool sherd__can_part(const sherd__call_state *call);
/* Make room for the parts for some ranks, who are taken out of the set; false: no memory. Then pack
 * and send them. */
bool sherd__parts_prepare(sherd__remote *remote, const sherd__call_state *call,
                          sherd__ranks *readers);
void sherd__parts_send(sherd__remote *remote, const sherd__call_state *call);
/* Bring parts that have come into the result; whether they were the last. `whole`: the call's own
 * sheet in the inbox. */
bool sherd__parts_unpack(sherd_world *world, const sherd__call_state *call, int rank,
                         sherd__sheet *whole);

/* ---- remote_claims.c, remote_meet.c, remote_posts.c, remote_news.c --------------------------- */

/* Rank 0 has compared what was claimed. */
void sherd__claims_drop(sherd_world *world);
/* Tell a rank what this one has made in a group. */
void sherd__tell_lane(sherd_world *world, int to, const sherd__group *group);
/* An epoch is over: what was waited for in it is not. */
void sherd__forget_posts(sherd_world *world);
/* Write a record into its mirror. */
void sherd__mirror_record(sherd_world *world, int from, const sherd__sent_record *sent);
/* Tell a rank all records of a lane that it has not been told, up to `number`. */
void sherd__tell_records(sherd_world *world, int to, int lane, uint64_t number);
/* The alarm has been lowered: now it may be up for the next thing. */
void sherd__remote_lowered(sherd_world *world);

#endif
