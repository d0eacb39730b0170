/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A carrier: what brings ranks together that were started by somebody else, MPI for one. It knows nothing of tensors.
 * sherd/mpi.h makes one of a communicator; a program that runs under mpirun or srun needs neither header, because
 * sherd_world_open() finds the carrier by itself. This one is for whoever brings another carrier.
 */
#ifndef SHERD_CARRIER_H
#define SHERD_CARRIER_H

#include "world.h"

SHERD_BEGIN

enum {
    SHERD_CARRIER_VERSION = 2,
    SHERD_HEAD_BYTES = 8192 /* the most that the head of a message may have */
};

/* A message: a short head, whose first 8 bytes belong to the carrier, and what is too long for it. */
typedef struct sherd_message {
    void *head;
    size_t head_bytes; /* 8 .. SHERD_HEAD_BYTES */
    void *body;
    size_t body_bytes; /* 0 = there is none */
} sherd_message;

/* What a carrier notes of a message on its way; the sender keeps it where it is. It changes when a part has gone. */
typedef struct sherd_sending {
    uint64_t note[8];
} sherd_sending;

/* Where a body goes that is about to come; `give` may be refused: NULL. */
typedef struct sherd_room {
    void *(*give)(void *owner, int from, size_t bytes);
    void *owner;
} sherd_room;

/* All functions are called by the thread that opens the world, and `self` is handed to each. */
typedef struct sherd_carrier {
    int version;      /* SHERD_CARRIER_VERSION */
    const char *name; /* static text, "Open MPI" */
    int rank, ranks;
    void *self;
    /* Each rank brings `bytes`, and has all of them afterwards in all[ranks * bytes], in the order of ranks. Collective; blocks. */
    bool (*gather)(void *self, const void *mine, size_t bytes, void *all);
    /*
     * Begin to send; both parts stay as they are until `sent` says true, once. Messages from one rank to another come in their
     * order. Local; never block, and bring on what is on its way. NULL, as is `receive`: only ranks of one machine can meet.
     */
    bool (*send)(void *self, int to, const sherd_message *message, sherd_sending *sending);
    bool (*sent)(void *self, sherd_sending *sending);
    /*
     * The next whole message, from whomever; false if there is none. Its head is valid until the next call; its body is where
     * `room` said, or NULL where that was refused: then it is lost. Local; never blocks.
     */
    bool (*receive)(void *self, int *from, sherd_message *out, const sherd_room *room);
    /*
     * Told before anything is sent, if there are messages: whether each of the ranks is on this one's machine, as it is itself. Each
     * two ranks are told the same of each other. Local. NULL: it makes no difference.
     */
    void (*near)(void *self, const bool *here);
    /* The world is over. `well`: all ranks close it now; else some are lost, and nobody is to be waited for. Frees `self`. */
    void (*close)(void *self, bool well);
} sherd_carrier;

/**
 * Open a world of the ranks that a carrier brings together.
 *
 * Ranks of one machine share memory, as under `sherd run`; if all do, the carrier is needed for the beginning only. Others send
 * each other messages over it. SHERD_TRANSPORT=mpi in the environment lets all send messages.
 *
 * @collective all ranks of the carrier
 * @shapes     options: NULL = all zero
 * @owns       the caller closes *out with sherd_world_close, which closes the carrier; NULL on failure, then it is closed too
 * @errors     EINVAL options out of range, a price file that can not be read or is none, a carrier of another version or without a
 *             function, ranks of other versions of sherd; ENOTSUP ranks of several machines where the carrier sends no messages; ENOMEM; ELIMIT more than SHERD_MAX_RANKS; EPEER
 */
SHERD_CALL sherd_status sherd_world_open_with(sherd_world **out, const sherd_carrier *carrier,
                                              const sherd_world_options *options);

SHERD_END

#endif
