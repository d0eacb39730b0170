/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which keys each shard of queries meets when, and how many a visit brings at most: without
 * windows, of which each costs the number of shards, as their prices are wanted of all visits. All
 * pure, and equal on all ranks.
 *
 * In a ring, shard i meets its own keys, then those of the shards before it, nearest first and
 * cyclically, each in two halves: while one half is computed with, the other is on its way, and
 * both take no more room than a piece. Keys that no query may see are not fetched. In zigzag order
 * (sherd_zigzag) the halves of a piece are the two stretches of positions that it has.
 */
#include "attend.h"

#include <stdlib.h>

#include "base/num.h"
#include "ops/zigzag.h"
#include "plan/window.h"

enum { POSITIONS = SHERD__POSITIONS };

bool sherd__row_run_next(sherd__row_run *s, int64_t n, int64_t zigzag, int64_t end)
{
    s->row += s->rows;
    if (s->row >= end)
        return false;
    s->position = sherd__zigzag_position(n, zigzag, s->row, &s->rows);
    s->rows = sherd__min(s->rows, end - s->row);
    return true;
}

double sherd__attend_pairs_of(int64_t lo, int64_t hi, int64_t n, int64_t keys,
                              const sherd__attend_attributes *a)
{
    double pairs = 0;

    for (sherd__row_run s = {.row = lo}; sherd__row_run_next(&s, n, a->zigzag, hi);)
        pairs += sherd__attend_pairs(s.position, s.position + s.rows, keys, a->causal, a->window);
    return pairs;
}

int64_t sherd__round_cut(const sherd_layout *layout, int64_t i)
{
    const sherd__layout_spec *spec = &layout->spec;

    return sherd__dim_cut(spec->mesh, &spec->dim[POSITIONS], spec->shape[POSITIONS], i);
}

sherd__round sherd__round_of(const sherd_layout *q, const sherd_layout *k,
                             const sherd__attend_attributes *attributes)
{
    sherd__round round = {.q = q,
                          .k = k,
                          .causal = attributes->causal,
                          .ring = attributes->ring,
                          .window = attributes->window,
                          .zigzag = attributes->zigzag};

    round.shards = sherd__dim_parts(q->spec.mesh, &q->spec.dim[POSITIONS]);
    round.visits = round.ring ? 2 * (int)(round.shards - 1) : 1;
    return round;
}

/* ---- the keys of a visit --------------------------------------------------------------------- */

/* Of the rows [*first, *end) of keys those from the first to the last that queries [lo, hi) see. */
static void leave_hidden(const sherd__round *round, int64_t lo, int64_t hi, int64_t *first,
                         int64_t *end)
{
    int64_t n = round->k->spec.shape[POSITIONS], z = round->zigzag, from = *end, to = *first;

    for (sherd__row_run k = {.row = *first}; sherd__row_run_next(&k, n, z, *end);)
        for (sherd__row_run q = {.row = lo}; sherd__row_run_next(&q, n, z, hi);) {
            int64_t a = k.position, b = sherd__min(a + k.rows, q.position + q.rows);
            if (round->window)
                a = sherd__max(a, q.position + 1 - round->window);
            if (a < b) {
                from = sherd__min(from, k.row + a - k.position);
                to = sherd__max(to, k.row + b - k.position);
            }
        }
    *first = from;
    *end = sherd__max(from, to);
}

/* The same of all rows: what a run of queries sees are positions that follow one another. */
static void find_seen(const sherd__round *round, int64_t lo, int64_t hi, int64_t *first,
                      int64_t *end)
{
    int64_t n = round->k->spec.shape[POSITIONS], z = round->zigzag, from = n, to = 0;

    for (sherd__row_run q = {.row = lo}; sherd__row_run_next(&q, n, z, hi);) {
        int64_t a = round->window ? sherd__max(q.position + 1 - round->window, 0) : 0, begin, stop;
        sherd__zigzag_rows(n, z, a, q.position + q.rows, &begin, &stop);
        from = sherd__min(from, begin);
        to = sherd__max(to, stop);
    }
    *first = from;
    *end = sherd__max(from, to);
}

void sherd__round_keys(const sherd__round *round, int visit, int64_t i, int64_t *first,
                       int64_t *end)
{
    int64_t lo = sherd__round_cut(round->q, i), hi = sherd__round_cut(round->q, i + 1);

    *first = 0;
    *end = round->k->spec.shape[POSITIONS];
    if (round->ring) {
        int64_t from = (i + round->shards - 1 - visit / 2) % round->shards;
        int64_t begin = sherd__round_cut(round->k, from);
        int64_t stop = sherd__round_cut(round->k, from + 1);
        int64_t middle = begin + sherd__ceil_div(stop - begin, 2);
        *first = visit % 2 ? middle : begin;
        *end = visit % 2 ? stop : middle;
    }
    if (round->causal && round->ring)
        leave_hidden(round, lo, hi, first, end);
    else if (round->causal)
        find_seen(round, lo, hi, first, end);
    if (lo == hi)
        *end = *first;
}

typedef struct question {
    const sherd__round *round;
    int visit;
} question;

static void ask(const void *what, int d, int64_t shard, int64_t lo, int64_t hi, int64_t *first,
                int64_t *end)
{
    const question *a = what;

    *first = lo;
    *end = hi;
    if (d == POSITIONS)
        sherd__round_keys(a->round, a->visit, shard, first, end);
}

sherd__window *sherd__round_window(sherd_status *status, const sherd__round *round, int visit)
{
    const question a = {round, visit};
    sherd__window *window = NULL;
    int64_t most = 0;

    *status = SHERD_OK;
    for (int64_t i = 0; i < round->shards && most == 0; i++) {
        int64_t first, end;
        sherd__round_keys(round, visit, i, &first, &end);
        most = end - first;
    }
    if (most > 0)
        *status = sherd__window_create(&window, round->k, &(sherd__asking){ask, &a, NULL});
    return window;
}

/* ---- the most keys of each visit of a ring --------------------------------------------------- */

/* A shard's half of its keys: so many rows; no position below lo, none from hi on. */
typedef struct half {
    int64_t shard, rows, lo, hi;
} half;

/* Positions of queries: stretches of them, no more than two with a row; or from the first to the
 * last. */
typedef struct asker {
    int64_t lo[2], hi[2];
} asker;

struct sherd__visits {
    const sherd__round *round;
    half *half[2]; /* [shards]: the longest first, of those the one that the most queries see */
    asker *asker;  /* [shards] */
};

static int by_rows(const void *a, const void *b)
{
    const half *x = a, *y = b;

    if (x->rows != y->rows)
        return x->rows > y->rows ? -1 : 1;
    return x->lo != y->lo ? (x->lo > y->lo) - (x->lo < y->lo)
                          : (x->shard > y->shard) - (x->shard < y->shard);
}

static half half_of(const sherd__round *round, int which, int64_t shard)
{
    int64_t n = round->k->spec.shape[POSITIONS];
    int64_t begin = sherd__round_cut(round->k, shard), stop = sherd__round_cut(round->k, shard + 1);
    int64_t middle = begin + sherd__ceil_div(stop - begin, 2);
    half x = {.shard = shard, .lo = n};

    begin = which ? middle : begin;
    stop = which ? stop : middle;
    x.rows = stop - begin;
    for (sherd__row_run k = {.row = begin}; sherd__row_run_next(&k, n, round->zigzag, stop);) {
        x.lo = sherd__min(x.lo, k.position);
        x.hi = sherd__max(x.hi, k.position + k.rows);
    }
    return x;
}

static asker asker_of(const sherd__round *round, int64_t i)
{
    int64_t n = round->q->spec.shape[POSITIONS], hi = sherd__round_cut(round->q, i + 1);
    asker x = {{0, 0}, {0, 0}};
    int runs = 0;

    for (sherd__row_run q = {.row = sherd__round_cut(round->q, i)};
         sherd__row_run_next(&q, n, round->zigzag, hi); runs++) {
        int at = runs < 2 ? runs : 0;
        x.lo[at] = runs < 2 ? q.position : sherd__min(x.lo[at], q.position);
        x.hi[at] = sherd__max(x.hi[at], q.position + q.rows);
    }
    if (runs > 2) {
        x.lo[0] = sherd__min(x.lo[0], x.lo[1]);
        x.hi[0] = sherd__max(x.hi[0], x.hi[1]);
    }
    return x;
}

/* False: none of the queries sees any of the keys. */
static bool may_see(const sherd__round *round, const asker *q, const half *k)
{
    for (int i = 0; i < 2; i++)
        if (q->lo[i] < q->hi[i] &&
            (!round->causal ||
             (k->lo < q->hi[i] && (!round->window || k->hi > q->lo[i] + 1 - round->window))))
            return true;
    return false;
}

sherd_status sherd__visits_create(sherd__visits **out, const sherd__round *round)
{
    sherd__heap *heap = round->k->space->heap;
    size_t n = (size_t)round->shards;
    sherd__visits *ring = sherd__alloc(heap, 1, sizeof *ring);

    *out = NULL;
    if (ring) {
        ring->round = round;
        ring->asker = sherd__alloc(heap, n, sizeof *ring->asker);
        ring->half[0] = sherd__alloc(heap, 2 * n, sizeof *ring->half[0]);
    }
    if (!ring || !ring->asker || !ring->half[0]) {
        sherd__visits_destroy(ring, heap);
        return sherd__no_memory(round->k->space->diag, "sherd_attention");
    }
    ring->half[1] = ring->half[0] + n;
    for (int64_t i = 0; i < round->shards; i++) {
        ring->asker[i] = asker_of(round, i);
        for (int h = 0; h < 2; h++)
            ring->half[h][i] = half_of(round, h, i);
    }
    for (int h = 0; h < 2; h++)
        qsort(ring->half[h], n, sizeof *ring->half[h], by_rows);
    *out = ring;
    return SHERD_OK;
}

void sherd__visits_destroy(sherd__visits *ring, sherd__heap *heap)
{
    if (!ring)
        return;
    sherd__free(heap, ring->asker);
    sherd__free(heap, ring->half[0]);
    sherd__free(heap, ring);
}

int64_t sherd__visits_most(const sherd__visits *ring, int visit)
{
    const sherd__round *round = ring->round;
    const half *list = ring->half[visit % 2];
    int64_t most = 0, first, end;

    for (int64_t j = 0; j < round->shards && list[j].rows > most; j++) {
        int64_t i = (list[j].shard + 1 + visit / 2) % round->shards;
        if (!may_see(round, &ring->asker[i], &list[j]))
            continue;
        sherd__round_keys(round, visit, i, &first, &end);
        most = sherd__max(most, end - first);
    }
    return most;
}
