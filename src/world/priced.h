/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a world, see price.c: how it comes to all ranks while the world opens. */
#ifndef SHERD__WORLD_PRICED_H
#define SHERD__WORLD_PRICED_H

#include "world.h"

/*
 * Rank 0's part: what its options or SHERD_PRICE name is read; *out all zero if that is nothing.
 * EINVAL, ENOMEM. The others get it through the arena, or from the carrier.
 */
sherd_status sherd__price_find(sherd_price *out, sherd__heap *heap,
                               const sherd_world_options *options, sherd__diag *diag);
/* Before the meeting of the opening: put it where the others find it. After that: plan by it. */
sherd_status sherd__price_bring(sherd_world *world, const sherd_world_options *options);
void sherd__price_take(sherd_world *world);

#endif
