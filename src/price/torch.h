/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's model of time: a step is one collective of one axis, from one placement to another. */
#ifndef SHERD__PRICE_TORCH_H
#define SHERD__PRICE_TORCH_H

#include "price.h"

/* What one axis does when its placement changes. CHUNK and PART send nothing; NEVER is no step. */
typedef enum sherd__collective {
    SHERD__ALL_REDUCE,
    SHERD__ALL_TO_ALL,
    SHERD__ALL_GATHER,
    SHERD__REDUCE_SCATTER,
    SHERD__CHUNK, /* a replica is cut */
    SHERD__PART,  /* a replica becomes pending */
    SHERD__NEVER
} sherd__collective;

sherd__collective sherd__collective_of(sherd_placement from, sherd_placement to);

/* A ring of `ranks`: GiB a second, and microseconds a hop. */
typedef struct sherd__ring {
    double ranks, bandwidth, latency;
} sherd__ring;

/* The ring of each axis: those that stay within `per_host` ranks (last axes first) are fast. */
void sherd__rings_find(sherd__ring *rings, const sherd_mesh *mesh, int64_t per_host);

/*
 * Microseconds of a collective that starts with `gib` on each rank; *gib becomes what the model
 * takes each rank to hold afterwards. Infinity for NEVER.
 */
double sherd__ring_time(const sherd__ring *ring, sherd__collective what, double *gib);

/* Of the whole tensor. */
double sherd__tensor_bytes(const sherd_layout *layout, size_t element_bytes);

/* What each rank holds of `bytes` in so many shards, in GiB. */
double sherd__ring_gib(double bytes, double shards);

#endif
