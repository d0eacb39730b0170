/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A carrier connects ranks that something else has started, MPI for example. It knows nothing of
 * tensors. sherd/mpi.h makes one from a communicator; a program that runs under mpirun or srun
 * needs neither header, because sherd_world_open() finds the carrier by itself. This header is for
 * writing another carrier.
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
 * A message: a short head, whose first 8 bytes are reserved for the carrier, and a body for what is
 * too long for the head.
 */
typedef struct sherd_message {
    void *head;
    size_t head_bytes; /* 8 .. SHERD_HEAD_BYTES */
    void *body;
    size_t body_bytes; /* 0 = there is none */
} sherd_message;

/*
 * The carrier's notes on a message under way. The sender keeps it at one address; it changes when a
 * part has gone.
 */
typedef struct sherd_sending {
    uint64_t note[8];
} sherd_sending;

/*
 * Where the body of an arriving message goes: `give` returns memory for it, or NULL to refuse it.
 */
typedef struct sherd_room {
    void *(*give)(void *owner, int from, size_t bytes);
    void *owner;
} sherd_room;

/* The functions of a carrier. All are called by the thread that opened the world, with `self`. */
typedef struct sherd_carrier {
    int version;      /* SHERD_CARRIER_VERSION */
    const char *name; /* static text, "Open MPI" */
    int rank, ranks;
    void *self;
    /*
     * All-gather: each rank contributes `bytes` and gets all of them in all[ranks * bytes], in rank
     * order. Collective; blocks. False: failed.
     */
    bool (*gather)(void *self, const void *mine, size_t bytes, void *all);
    /*
     * Begin to send. Head and body must not change until `sent` has returned true; `sent` is not
     * called again after that. Messages from one rank to another arrive in order. Both functions
     * are local, never block, and make progress on all messages under way. `send` and `receive` may
     * both be NULL: then all ranks must be on one machine.
     */
    bool (*send)(void *self, int to, const sherd_message *message, sherd_sending *sending);
    bool (*sent)(void *self, sherd_sending *sending);
    /*
     * The next complete message, from any rank; false if there is none. Its head is valid until the
     * next call. Its body is where `room` has put it, or NULL if `room` refused it: then the body
     * is lost. Local; never blocks.
     */
    bool (*receive)(void *self, int *from, sherd_message *out, const sherd_room *room);
    /*
     * Called once before the first message, if there are any: here[ranks] says which ranks are on
     * the same machine as this one (itself included). Any two ranks are told the same of each
     * other. Local. May be NULL.
     */
    void (*near)(void *self, const bool *here);
    /*
     * Whether the carrier has failed for good, so that what is waited for may never come; then
     * text[room] gets a line that says why. Asked by ranks that wait, or could not send or gather.
     * From then on `receive` returns false. Local; never blocks. May be NULL: it never fails.
     */
    bool (*has_failed)(void *self, char *text, size_t room);
    /*
     * The world is over. `well`: all ranks close it now; otherwise some are lost, and close must
     * not wait for any rank. Frees `self`.
     */
    void (*close)(void *self, bool well);
} sherd_carrier;

/**
 * Open a world of the ranks that a carrier connects.
 *
 * Ranks of one machine share memory, as under `sherd run`; if all ranks do, the carrier is only
 * used to start. Ranks of different machines send each other messages over it. With
 * SHERD_TRANSPORT=mpi in the environment all ranks send messages.
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
