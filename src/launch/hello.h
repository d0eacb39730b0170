/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake: what ranks that a carrier connects tell each other before they have a world. */
#ifndef SHERD__LAUNCH_HELLO_H
#define SHERD__LAUNCH_HELLO_H

#include <sched.h>

#include "base/diag.h"
#include "sherd/carrier.h"

enum { SHERD__HOST_BYTES = 65 }; /* of the longest name that Linux takes */

/* What a rank tells of itself in the handshake. */
typedef struct sherd__hello {
    uint64_t region_bytes;
    uint64_t machine, space; /* hash of what names the machine; its pid namespace */
    uint64_t since;          /* when it came, by its clock: its worlds differ in that */
    char host[SHERD__HOST_BYTES];
    int pid, fd;
    bool no_pin;
    bool messages;       /* no memory is to be shared: SHERD_TRANSPORT=mpi */
    bool traced;         /* its trace wants to know rank 0's clock */
    bool priced;         /* it brings a price: of rank 0 that is the world's */
    cpu_set_t cores;     /* that it may use */
    sherd_status status; /* second round: how it went so far */
    char text[SHERD_ERROR_BYTES];
} sherd__hello;

sherd__hello sherd__introduce(const sherd_world_options *options);
/* The text of a carrier that fails. EPEER. */
sherd_status sherd__unreached(const sherd_carrier *carrier, sherd__diag *diag);
/* Each rank brings `bytes`, and gets those of all ranks. EPEER. */
sherd_status sherd__hellos_gather(const sherd_carrier *carrier, const void *mine, size_t bytes,
                                  void *all, sherd__diag *diag);
/* As sherd__hellos_gather; if any rank brings a failed status, all fail with the first one. */
sherd_status sherd__hellos_exchange(const sherd_carrier *carrier, const sherd__hello *mine,
                                    sherd__hello *all, sherd__diag *diag);
/*
 * Done before anything else: checks that all ranks are of one build, and have `room` for what ranks
 * tell each other later. EINVAL, ENOMEM.
 */
sherd_status sherd__builds_compare(const sherd_carrier *carrier, bool room, sherd__diag *diag);
/* Whether two are on one machine. */
bool sherd__is_here(const sherd__hello *a, const sherd__hello *b);
/* Whether ranks of this world must send each other messages, because some share no memory. */
bool sherd__by_messages(const sherd_carrier *carrier, const sherd__hello *all);
/*
 * A number for the world of this rank 0 that no other world on its machines has, even if its
 * processes have several open.
 */
uint64_t sherd__job_of(const sherd__hello *first);
/* Note a failure of this rank in what it brings to the next exchange, if there is one. */
void sherd__note_failure(sherd__hello *mine, const sherd__diag *diag, int rank);

#endif
