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

enum { SHERD_CARRIER_VERSION = 1 };

/* All functions are called by the thread that opens the world, and `self` is handed to each. */
typedef struct sherd_carrier {
    int version;      /* SHERD_CARRIER_VERSION */
    const char *name; /* static text, "Open MPI" */
    int rank, ranks;
    void *self;
    /* Each rank brings `bytes`, and has all of them afterwards in all[ranks * bytes], in the order of ranks. Collective; blocks. */
    bool (*gather)(void *self, const void *mine, size_t bytes, void *all);
    /* The world is over. `well`: all ranks close it now; else some are lost, and nobody is to be waited for. Frees `self`. */
    void (*close)(void *self, bool well);
} sherd_carrier;

/**
 * Open a world of the ranks that a carrier brings together.
 *
 * Ranks of one machine share memory, as under `sherd run`; the carrier is needed for the beginning only.
 *
 * @collective all ranks of the carrier
 * @shapes     options: NULL = all zero
 * @owns       the caller closes *out with sherd_world_close, which closes the carrier; NULL on failure, then it is closed too
 * @errors     EINVAL options out of range, a carrier of another version or without a function, ranks of other versions of sherd; ENOTSUP ranks
 *             that can not share memory; ENOMEM; ELIMIT more than SHERD_MAX_RANKS; EPEER
 */
SHERD_CALL sherd_status sherd_world_open_with(sherd_world **out, const sherd_carrier *carrier,
                                              const sherd_world_options *options);

SHERD_END

#endif
