/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A carrier sends messages between ranks that something other than sherd has started, such as MPI.
 * It knows nothing of tensors. This header is for writing a carrier of your own. Programs that run
 * under mpirun or srun do not need it: sherd_world_open() finds the carrier for MPI by itself, and
 * sherd/mpi.h makes one from a communicator.
 */
#ifndef SHERD_CARRIER_H
#define SHERD_CARRIER_H

#include "world.h"

SHERD_BEGIN

enum {
    SHERD_CARRIER_VERSION = 3,
    SHERD_HEAD_BYTES = 8192 /* maximum size of the head of a message */
};

/*
 * A message: a short head, whose first 8 bytes the carrier may use for itself, and a body for data
 * that does not fit into the head.
 */
typedef struct sherd_message {
    void *head;
    size_t head_bytes; /* 8 .. SHERD_HEAD_BYTES */
    void *body;
    size_t body_bytes; /* 0 = there is none */
} sherd_message;

/*
 * The carrier's own notes on a message under way, from `send` until `sent` returns true. sherd
 * keeps them at one address and does not look at them.
 */
typedef struct sherd_sending {
    uint64_t note[8];
} sherd_sending;

/*
 * Where the body of an arriving message goes. The carrier calls give(owner, ..) with the sender's
 * rank and the size; it returns memory of that size, or NULL to refuse the body. What it has given
 * comes back as the message's body: a carrier that cannot take a body does not ask for room.
 */
typedef struct sherd_room {
    void *(*give)(void *owner, int from, size_t bytes);
    void *owner;
} sherd_room;

/*
 * A carrier: its functions, all of which get `self` and are called by the thread that opened the
 * world.
 */
typedef struct sherd_carrier {
    int version;      /* SHERD_CARRIER_VERSION */
    const char *name; /* static text, "Open MPI" */
    int rank, ranks;
    void *self;
    /*
     * All-gather: each rank contributes `bytes` bytes, and gets those of all ranks, in rank order,
     * in all[ranks * bytes]. Collective; blocks. Returns false on failure.
     */
    bool (*gather)(void *self, const void *mine, size_t bytes, void *all);
    /*
     * `send` begins to send a message; it returns false on failure. `sent` returns whether it has
     * gone: until then sherd does not change head and body, after that it does not ask again.
     * Messages from one rank to another arrive in the order in which they were sent. Both functions
     * are local, never block, and make progress on all messages under way. `send` and `receive` may
     * both be NULL: then all ranks must be on one machine.
     */
    bool (*send)(void *self, int to, const sherd_message *message, sherd_sending *sending);
    bool (*sent)(void *self, sherd_sending *sending);
    /*
     * Get the next complete message, from any rank, in *out and its sender in *from; false if there
     * is none now. The head is valid until the next call of `receive`. The body is in the memory
     * that `room` gave; if `room` refused it, out->body is NULL and the body is lost. Local; never
     * blocks.
     */
    bool (*receive)(void *self, int *from, sherd_message *out, const sherd_room *room);
    /*
     * Called once before the first message, if messages will be sent at all: here[ranks] says which
     * ranks are on the same machine as this one, itself included. Any two ranks are told the same
     * of each other. Local. May be NULL.
     */
    void (*near)(void *self, const bool *here);
    /*
     * Whether the carrier has failed for good, so that a message that sherd waits for may never
     * come; if so, it writes a line that says why into text[room], and `receive` returns false from
     * then on. sherd asks while it waits, and after a failed `send` or `gather`. Local; never
     * blocks. NULL = it never fails.
     */
    bool (*has_failed)(void *self, char *text, size_t room);
    /*
     * Called once, at the end of the world; frees `self`. `well`: all ranks close the world now;
     * otherwise some are lost, and it must not wait for any rank.
     */
    void (*close)(void *self, bool well);
} sherd_carrier;

/**
 * Open a world of the ranks that a carrier connects.
 *
 * Ranks of one machine share memory, as under `sherd run`; if all ranks are on one machine, the
 * carrier is used only while the world opens and closes. Ranks of different machines send each
 * other messages over it. With SHERD_TRANSPORT=mpi in the environment all ranks send messages.
 *
 * @collective all ranks of the carrier
 * @shapes     options: NULL = all zero
 * @owns       the caller closes *out with sherd_world_close, which closes the carrier; NULL on
 *             failure, and then the carrier is closed too
 * @errors     EINVAL options out of range, a price file that cannot be read or parsed, a carrier of
 *             another version or without a required function, ranks of other versions of sherd;
 *             ENOTSUP ranks of several machines and a carrier that sends no messages; EDIFFER ranks
 *             differ in their options; ENOMEM; ELIMIT more than SHERD_MAX_RANKS; EPEER
 */
SHERD_CALL sherd_status sherd_world_open_with(sherd_world **out, const sherd_carrier *carrier,
                                              const sherd_world_options *options);

SHERD_END

#endif
