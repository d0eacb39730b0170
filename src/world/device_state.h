/* SPDX-License-Identifier: Apache-2.0 */
/* What a world keeps for the moves between its GPUs. */
#ifndef SHERD__WORLD_DEVICE_STATE_H
#define SHERD__WORLD_DEVICE_STATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sherd__sent sherd__sent; /* device_send.c */

typedef struct sherd__device_state {
    bool apart;           /* near ranks do not reach each other's GPUs */
    int64_t *word, words; /* [words]: what ranks tell each other in a call */
    int64_t *reads;       /* [ranks][SHERD__MARK_WORDS]: SHERD__MARK_READ of each */
    sherd__sent *sent;    /* the newest first */
    uint64_t sends;
} sherd__device_state;

#endif
