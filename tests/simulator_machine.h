/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine that the simulator (simulator.h) plays plans on: the links of its axes, as a price has
 * them, and the places of its ranks. Nothing here knows how steps are priced.
 */
#ifndef SHERD_SIMULATOR_MACHINE_H
#define SHERD_SIMULATOR_MACHINE_H

#include <stdlib.h>
#include <string.h>

#include "search/planners.h"

typedef struct sim_message {
    int from, to, axis, turn;
    int64_t bytes, left;
} sim_message;

typedef struct simulator {
    const sherd_mesh *mesh;
    int ranks;
    bool overlap, straight;
    sherd_link link[SHERD_MAX_AXES];
    int axis[SHERD_MAX_AXES],
        pace[SHERD_MAX_AXES]; /* axes, slowest first; where each stands there */
    int64_t (*at)[SHERD_MAX_AXES];
    /* of a step */
    const sherd_step *step;
    int64_t element_bytes;
    sherd_box *source, *target;
    sim_message *message; /* by sender */
    int messages, room;
    int64_t *load; /* [axis][rank], asked for */
} simulator;

/* ---- the machine ----------------------------------------------------------------------------- */

static inline int64_t sim_time(const sherd_link *link, int64_t bytes, bool adds)
{
    return link->alpha_picoseconds * 1000 +
           bytes * (link->beta_femtoseconds + (adds ? link->gamma_femtoseconds : 0));
}

/* A message of so many bytes takes longer, or as long and its bytes take longer. */
static inline bool sim_slower(const sherd_link *a, const sherd_link *b, int64_t bytes)
{
    int64_t x = sim_time(a, bytes, false), y = sim_time(b, bytes, false);

    return x != y ? x > y : a->beta_femtoseconds > b->beta_femtoseconds;
}

/* Bytes of the whole tensor of a layout. */
static inline int64_t sim_bytes(const sherd_layout *layout, int64_t element_bytes)
{
    for (int d = 0; d < layout->spec.ndim; d++)
        element_bytes *= layout->spec.shape[d];
    return element_bytes;
}

/*
 * Whether another line of this line's axis is for such tensors instead: one with a lower limit that
 * is high enough, or, beyond all limits, one with a higher limit.
 */
static inline bool sim_yields(const sherd_price *price, int line, int64_t bytes)
{
    int64_t mine = price->link[line].upto_bytes;

    for (int i = 0; i < price->links; i++) {
        int64_t other = price->link[i].upto_bytes;
        if (i == line || strcmp(price->link[i].axis, price->link[line].axis) != 0)
            continue;
        if (other && bytes <= other && (!mine || other < mine))
            return true;
        if (mine && bytes > mine && (!other || other > mine))
            return true;
    }
    return false;
}

/* For tensors of so many bytes an axis has its own line, else "*", else the slowest. */
static inline sherd_link sim_link(const sherd_price *price, const char *axis, int64_t bytes)
{
    const sherd_link none = {"", 0, 0, 0, 0}, *star = NULL, *slowest = NULL;

    for (int i = 0; i < price->links; i++) {
        const sherd_link *link = &price->link[i];
        if (sim_yields(price, i, bytes))
            continue;
        if (strcmp(link->axis, axis) == 0)
            return *link;
        if (strcmp(link->axis, "*") == 0)
            star = link;
        if (!slowest || sim_slower(link, slowest, bytes))
            slowest = link;
    }
    return star ? *star : slowest ? *slowest : none;
}

/* For a tensor of so many bytes. */
static inline void sim_open(simulator *s, const sherd_mesh *mesh, const sherd_price *price,
                            int64_t bytes)
{
    memset(s, 0, sizeof *s);
    s->mesh = mesh;
    s->ranks = (int)mesh->count;
    s->overlap = price->overlap;
    s->straight = price->straight;
    for (int i = 0; i < mesh->axes; i++) {
        int k = i;
        s->link[i] = sim_link(price, mesh->name[i], bytes);
        for (; k > 0 && !sim_slower(&s->link[s->axis[k - 1]], &s->link[i], bytes); k--)
            s->axis[k] = s->axis[k - 1];
        s->axis[k] = i;
    }
    for (int k = 0; k < mesh->axes; k++)
        s->pace[s->axis[k]] = k;
    s->at = calloc((size_t)s->ranks, sizeof *s->at);
    s->source = calloc((size_t)s->ranks, sizeof *s->source);
    s->target = calloc((size_t)s->ranks, sizeof *s->target);
    s->load = calloc((size_t)s->ranks * SHERD_MAX_AXES, sizeof *s->load);
    for (int r = 0; r < s->ranks; r++)
        for (int i = mesh->axes - 1, rest = r; i >= 0; rest /= (int)mesh->extent[i--])
            s->at[r][i] = rest % mesh->extent[i];
}

static inline void sim_close(simulator *s)
{
    free(s->at);
    free(s->source);
    free(s->target);
    free(s->message);
    free(s->load);
}

static inline int sim_rank(const simulator *s, const int64_t *at)
{
    int64_t rank = 0;

    for (int i = 0; i < s->mesh->axes; i++)
        rank = rank * s->mesh->extent[i] + at[i];
    return (int)rank;
}

/* As `from`, but at the beginning of some axes. */
static inline void sim_first(int64_t *at, const int64_t *from, unsigned axes)
{
    for (int i = 0; i < SHERD_MAX_AXES; i++)
        at[i] = axes >> i & 1 ? 0 : from[i];
}

/* The next rank's coordinates over some axes; false when it is back at the first. */
static inline bool sim_next(const simulator *s, unsigned axes, int64_t *at)
{
    for (int i = s->mesh->axes - 1; i >= 0; i--) {
        if (!(axes >> i & 1))
            continue;
        if (++at[i] < s->mesh->extent[i])
            return true;
        at[i] = 0;
    }
    return false;
}

#endif
