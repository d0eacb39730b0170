/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of a world: device_call.c. */
#ifndef SHERD__DEVICES_H
#define SHERD__DEVICES_H

#include "inside.h"

/* Open this rank's GPU, if the options or SHERD_DEVICE name one. EINVAL, ENOTSUP, ENOMEM. */
sherd_status sherd__world_device_open(sherd_world *world, const sherd_world_options *options);

/* What all members of a call must agree on. */
uint64_t sherd__moves_fingerprint(sherd_world *world, const char *name, const sherd__move *moves,
                                  int count);

/* sherd__call and sherd__slice of moves in GPUs' memory. False: the alarm is raised. */
bool sherd__device_call(sherd_world *world, sherd__group *group, const char *name,
                        const sherd__move *moves, int count);
bool sherd__device_slice(sherd_world *world, const sherd__move *move);

#endif
