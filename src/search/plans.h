/* SPDX-License-Identifier: Apache-2.0 */
/* Plans by what is asked for, from the cache of a space, for the rooms that run them. */
#ifndef SHERD__SEARCH_PLANS_H
#define SHERD__SEARCH_PLANS_H

#include "plan/window.h"

/* ---- cache.c -------------------------------------------------------------------------------- */

/* As sherd_plan_create, from the cache if possible. */
sherd_status sherd__plan_find(const sherd_plan **out, const sherd_layout *from,
                              const sherd_layout *to, size_t element_bytes,
                              const sherd_plan_options *options);

/*
 * The plan of a window in a direction; cached. It counts `window`. Steps, bytes and bound are those
 * of any plan; `from` and `to` are both the window's layout.
 */
sherd_status sherd__window_plan(const sherd_plan **out, sherd__window *window,
                                sherd__direction direction, size_t element_bytes);

/* Keep a plan while it runs, even if the cache drops it. */
void sherd__plan_retain(const sherd_plan *plan);
void sherd__plan_release(const sherd_plan *plan);

/*
 * How much memory a plan takes, by which the cache is bounded: with the layouts and the window that
 * it counts, and what is sent for it, once that is made.
 */
size_t sherd__plan_bytes(const sherd_plan *plan);
/* Drop all cached plans of a space. */
void sherd__plans_clear(sherd__space *space);

/* ---- window_plan.c -------------------------------------------------------------------------- */

/*
 * The time of a window in GATHER, in picoseconds, that no shard of dim d asks for more than `most`
 * rows of, all of them other shards', and no row of it twice; the other dims stay. As its plan has
 * it, without one.
 */
int64_t sherd__window_time(const sherd_layout *layout, int d, int64_t most, size_t element_bytes);

/* ---- request.c ------------------------------------------------------------------------------ */

/*
 * Set the price of plans whose options have none. `price` must live as long as the space; call it
 * before the first plan.
 */
void sherd__plans_price(sherd__space *space, const sherd_price *price);

#endif
