/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a channel, for pipelines: tensors that want a gradient back, and its way back. */
#ifndef SHERD__PARALLEL_CHANNEL_H
#define SHERD__PARALLEL_CHANNEL_H

#include "layout/mesh.h"
#include "sherd/pipeline.h"
#include "tensor/tensor.h"

enum { SHERD__FORTH, SHERD__BACK, SHERD__LANES_OF_CHANNEL };

struct sherd_channel {
    sherd_world *world;
    const sherd_mesh *from, *to;
    const sherd_mesh *lane[SHERD__LANES_OF_CHANNEL]; /* all ranks of both; NULL: no such lane */
    char *placements;                                /* NULL = as on `from` */
    int number;           /* in the names of its lanes; no other channel has it while this lives */
    bool alike;           /* the meshes have the same axes */
    bool sends, receives; /* this rank does */
    int64_t heard;        /* in a dry world: bytes that were taken of what others have sent */
};

/* Which no other channel has that lives. */
static inline const char *sherd__channel_name(const sherd_channel *c)
{
    return c->lane[SHERD__FORTH]->name[0];
}

/* What is sent at once. */
typedef struct sherd__channel_parcel {
    int count;
    unsigned wants; /* bits of those whose gradient is wanted back */
    int64_t mark;   /* what it is, for the receiver to compare with what it waits for */
    sherd_tensor *t[SHERD_MAX_ARGS];
    const sherd_layout *from[SHERD_MAX_ARGS], *to[SHERD_MAX_ARGS]; /* held by the scope */
} sherd__channel_parcel;

_Static_assert(SHERD_MAX_ARGS <= 32, "bits of tensors fit `wants`, here and in a message");

/* The first rank of a root mesh that is in another one, too; -1: none. */
int sherd__shared_rank(const sherd_mesh *a, const sherd_mesh *b);

/* lanes.c: the least number that no channel has, -1 for lack of memory; and back. */
int sherd__lane_number_take(sherd_world *world);
void sherd__lane_number_give(sherd_world *world, int number);
/*
 * Make the lanes of a channel up to `last`, for a public function. If with its number something is
 * still on its way, sent by a former channel and not received, it gets another one: a receiver
 * would get that first. Collective, the world.
 */
sherd_status sherd__lanes_make(sherd_channel *c, int last, const char *function);

/* Whether two meshes have axes of the same names and extents. */
bool sherd__same_axes(const sherd_mesh *a, const sherd_mesh *b);

/* As sherd_channel_create; `back`: gradients return. */
sherd_status sherd__channel_create(sherd_channel **out, const sherd_mesh *from,
                                   const sherd_mesh *to, const char *placements, bool back,
                                   const char *function);

/*
 * What is sent of tensor i: on the mesh that it comes from, with nothing pending; recorded. The
 * failed tensor, raised, if it cannot be.
 */
sherd_tensor *sherd__channel_ready(const sherd_channel *c, sherd_tensor *t, int i,
                                   const char *function);
/* Send tensors that are ready; finds their layouts. False: failed. */
bool sherd__channel_put(sherd_channel *c, sherd__channel_parcel *p, const char *function);
/* Receive a parcel. False: failed. */
bool sherd__channel_take(sherd_channel *c, sherd__channel_parcel *p, const char *function);

/*
 * A gradient's way back, from the layout `to` to `from` of what was sent: on ranks of `to`, `t` has
 * the former; the others pass NULL and the dtype, and get it.
 */
sherd_tensor *sherd__channel_return(sherd_channel *c, sherd_tensor *t, sherd_dtype dtype,
                                    const sherd_layout *from, const sherd_layout *to);

#endif
