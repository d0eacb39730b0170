/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Links as classes of messages, and times on them. Only the files of this price and the searches
 * use it.
 */
#ifndef SHERD__PRICE_LINKS_H
#define SHERD__PRICE_LINKS_H

#include "price.h"
#include "base/num.h"

/* Some of the problem's lanes. */
void sherd__lanes_find(sherd__lanes *lanes, const sherd__problem *problem, unsigned axes);

/* Femtoseconds. Each term is cut, so that some thousands of them fit. */
typedef sherd__wide sherd__span;

enum { SHERD__FEMTO = 1000 }; /* of a picosecond */

/* The time of messages of alpha picoseconds, and bytes of beta femtoseconds each. */
static inline sherd__span sherd__span_of(int64_t alpha, int64_t beta, int64_t messages,
                                         int64_t bytes)
{
    const sherd__wide most = (sherd__wide)SHERD__MOST * SHERD__FEMTO;
    sherd__wide first = (sherd__wide)messages * alpha, rest = (sherd__wide)bytes * beta;

    return (first < SHERD__MOST ? first * SHERD__FEMTO : most) + (rest < most ? rest : most);
}

/* The time of messages and bytes on a link. */
static inline sherd__span sherd__span_sent(const sherd_link *link, int64_t messages, int64_t bytes)
{
    return sherd__span_of(link->alpha_picoseconds, link->beta_femtoseconds, messages, bytes);
}

/* The time of adding bytes. */
static inline sherd__span sherd__span_added(const sherd_link *link, int64_t bytes)
{
    return sherd__span_of(0, link->gamma_femtoseconds, 0, bytes);
}

/* Rounds of a collective by stages over so many ranks: ceil(log2 ranks). */
static inline int64_t sherd__rounds_of(int64_t ranks)
{
    int64_t rounds = 0;

    while (rounds < 62 && (int64_t)1 << rounds < ranks)
        rounds++;
    return rounds;
}

/* Picoseconds, rounded up. */
static inline int64_t sherd__span_time(sherd__span span)
{
    if (span < INT64_MAX - SHERD__FEMTO)
        return ((int64_t)span + SHERD__FEMTO - 1) / SHERD__FEMTO;
    return sherd__cut((span + SHERD__FEMTO - 1) / SHERD__FEMTO);
}

/* ---- straight.c, links.c: each from each ----------------------------------------------------- */

/*
 * A direct step, with additions. The lanes are of the axes crossed and those that cut the
 * target. Over some ranks if step->some, otherwise over all; a result above step->enough
 * (picoseconds, 0 = none) may be less than the true time.
 */
sherd__span sherd__straight_time(const sherd__priced *step, int64_t element_bytes,
                                 const sherd__lanes *lanes, const sherd_price *price);

/*
 * A sliced all-reduce of boxes of n elements, with additions. The lanes may be of more
 * axes than those reduced.
 */
sherd__span sherd__straight_time_sliced(const sherd_mesh *mesh, unsigned reduced, int64_t n,
                                        int64_t element_bytes, const sherd__lanes *lanes,
                                        bool overlap);

/* ---- stages.c: collectives, axis by axis ----------------------------------------------------- */

/* An all-gather or a reduce-scatter. */
sherd__span sherd__stages_time(const sherd__change *change, const int64_t *shape,
                               int64_t element_bytes, const sherd__lanes *lanes);
/* An all-reduce of boxes of n elements: a reduce-scatter of slices, and an all-gather of them. */
sherd__span sherd__stages_time_sliced(const sherd__change *change, int64_t n, int64_t element_bytes,
                                      const sherd__lanes *lanes);

/*
 * How many elements of a dim of n the ranks at coordinate 0, or at any coordinate of the axes
 * `crossed`, have together; with explicit cuts the most that any such ranks have.
 */
int64_t sherd__stages_part(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n,
                           unsigned crossed);

#endif
