/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of a world: opening them, and who reaches whom (device_open.c); the work of a step
 * (device_work.c); its calls (device_call.c), and those in which a sender does not wait
 * (device_send.c).
 */
#ifndef SHERD__WORLD_DEVICES_H
#define SHERD__WORLD_DEVICES_H

#include "inside.h"

/* Open this rank's GPU, if the options or SHERD_DEVICE name one. EINVAL, ENOTSUP, ENOMEM. */
sherd_status sherd__world_device_open(sherd_world *world, const sherd_world_options *options);
/* Learn whether ranks that share the arena reach each other's GPUs; where one does not, moves go by
 * way of the CPU. Collective. ENOMEM, ENOTSUP, of this rank. */
sherd_status sherd__world_device_meet(sherd_world *world);

/* What all members of a call must agree on. */
uint64_t sherd__moves_fingerprint(sherd_world *world, const char *name, const sherd__move *moves,
                                  int count);

/* ---- words that ranks tell each other -------------------------------------------------------- */

enum {
    SHERD__TOLD_FINGERPRINT, /* of the call: words of all ranks must agree on it */
    SHERD__TOLD_MARK,
    SHERD__TOLD_PLACES = SHERD__TOLD_MARK + SHERD__MARK_WORDS,
    /* of each tensor's place: */
    SHERD__PLACE_SOURCE = 0,
    SHERD__PLACE_RESULT = SHERD__DEVICE_WORDS,
    SHERD__PLACE_STRIDE = 2 * SHERD__DEVICE_WORDS,
    SHERD__PLACE_WORDS = SHERD__PLACE_STRIDE + SHERD_MAX_DIMS
};

/* What the marks in this rank's stream say. */
enum {
    SHERD__MARK_MADE, /* what others read is complete */
    SHERD__MARK_DONE, /* what others have is read */
    SHERD__MARK_READ, /* the same, of what they have sent */
    SHERD__MARK_SENT  /* and those that follow it: what is sent is complete */
};

/* Room for the words of all members of a group, and this rank's behind them; until the next call.
 * NULL: the alarm is raised. */
int64_t *sherd__device_room(sherd_world *world, const sherd__group *group, int words,
                            const char *name);

/* ---- the work of a step ---------------------------------------------------------------------- */

/* One tensor of a call, as this rank runs it. */
typedef struct sherd__device_work {

    sherd__device *device;
    const sherd__move *move;
    const sherd__schedule *schedule;
    const sherd__kernels *kernels;
    size_t element_bytes;
    const void *source; /* this rank's */
    void *result;
    int64_t stride[SHERD_MAX_DIMS];
    /* what all ranks told, and where a rank's words are in it; NULL of a local step */
    const int64_t *all;
    const int16_t *place;
    int words, index;
} sherd__device_work;

/* Without what others told. */
sherd__device_work sherd__device_work_of(const sherd_world *world, const sherd__move *move);
/* Queue it. */
void sherd__device_work_run(const sherd__device_work *work, int rank);

/* ---- calls ----------------------------------------------------------------------------------- */

/* sherd__call and sherd__slice of moves in GPUs' memory. False: the alarm is raised. */
bool sherd__device_call(sherd_world *world, sherd__group *group, const char *name,
                        const sherd__move *moves, int count);
bool sherd__device_slice(sherd_world *world, const sherd__move *move);

/* The same from one mesh to another: only who receives waits, and for senders alone. */
bool sherd__device_send(sherd_world *world, sherd__group *group, const char *name,
                        const sherd__move *moves, int count);
/* Give back the memory of what was sent and is read. Never blocks. */
void sherd__device_sent(sherd_world *world);
/* Give back all of it: nobody reads any more. */
void sherd__device_sent_all(sherd_world *world);

#endif
