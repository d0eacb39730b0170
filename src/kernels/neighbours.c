/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of neighbours.h. Of each position the places of its neighbours are listed once for all
 * heads; then a head is a few rows of `width` numbers, which are multiplied in lanes and added four
 * at a time. Workspace does not grow with the field.
 */
#include "neighbours.h"

#include <math.h>
#include <string.h>

enum { DIMS = SHERD__NEIGHBOUR_DIMS, BATCH = 0, SPACE = 1, HEADS = 4, LANES = 8 };

/* The neighbours of one query: where the first head of each begins. */
typedef struct listed {
    int64_t count;
    int64_t *k, *v, *mine; /* [count]; mine: -1 = not there */
    void *numbers, *more;  /* [count] */
} listed;

static listed list_in(const sherd__neighbours *n, void *workspace)
{
    int64_t most = n->kernel[0] * n->kernel[1] * n->kernel[2], *room = workspace;

    return (listed){.k = room,
                    .v = room + most,
                    .mine = room + 2 * most,
                    .numbers = room + 3 * most,
                    .more = room + 4 * most};
}

/* The number of a position in a piece; at[batch, space ...] in the whole. */
static int64_t place_in(const sherd__patch *p, const int64_t *at)
{
    int64_t i = 0;

    for (int d = BATCH; d < HEADS; d++)
        i = i * p->size[d] + at[d] - p->first[d];
    return i;
}

static bool is_in(const sherd__patch *p, const int64_t *at)
{
    for (int d = SPACE; d < HEADS; d++)
        if (at[d] < p->first[d] || at[d] >= p->first[d] + p->size[d])
            return false;
    return true;
}

static bool is_empty(const sherd__patch *p)
{
    for (int d = BATCH; d <= HEADS; d++)
        if (p->size[d] == 0)
            return true;
    return false;
}

/* The next position of a piece, row-major; false behind the last. */
static bool next_in(const sherd__patch *p, int64_t *at)
{
    for (int d = HEADS - 1; d >= BATCH; d--) {
        if (++at[d] < p->first[d] + p->size[d])
            return true;
        at[d] = p->first[d];
    }
    return false;
}

/* Where a head of a position begins. */
static int64_t head_at(const sherd__neighbours *n, const sherd__patch *p, int64_t place,
                       int64_t head)
{
    return (place * p->size[HEADS] + head - p->first[HEADS]) * n->width;
}

static void list_one(const sherd__neighbours *n, const int64_t *at, bool own, listed *list)
{
    int64_t head = n->q.first[HEADS], i = list->count;
    bool mine = is_in(&n->mine, at);

    if (!own && !mine)
        return;
    list->k[i] = head_at(n, &n->k, place_in(&n->k, at), head);
    list->v[i] = head_at(n, &n->v, place_in(&n->v, at), head);
    list->mine[i] = mine ? head_at(n, &n->mine, place_in(&n->mine, at), head) : -1;
    list->count++;
}

/* Of a query at `at`: all neighbours if it is this rank's own, else those in `mine`. */
static void list_neighbours(const sherd__neighbours *n, const int64_t *at, bool own, listed *list)
{
    int64_t first[DIMS], to[SPACE + DIMS] = {at[BATCH]};

    for (int d = 0; d < DIMS; d++)
        first[d] = sherd__first_neighbour(n->whole[d], n->kernel[d], n->dilation[d], at[SPACE + d]);
    list->count = 0;
    for (int64_t x = 0; x < n->kernel[0]; x++)
        for (int64_t y = 0; y < n->kernel[1]; y++)
            for (int64_t z = 0; z < n->kernel[2]; z++) {
                to[SPACE] = first[0] + x * n->dilation[0];
                to[SPACE + 1] = first[1] + y * n->dilation[1];
                to[SPACE + 2] = first[2] + z * n->dilation[2];
                list_one(n, to, own, list);
            }
}

#define REAL    float
#define EXP     expf
#define LOG     logf
#define NAME(x) f32_##x
#include "neighbours_body.inc"

#define REAL    double
#define EXP     exp
#define LOG     log
#define NAME(x) f64_##x
#include "neighbours_body.inc"

const sherd__neighbours_kernels *sherd__neighbours_kernels_of(sherd_dtype dtype)
{
    return dtype == SHERD_F64 ? &f64_kernels : &f32_kernels;
}
