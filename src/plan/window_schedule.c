/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank does to receive its window, or to add up the parts of all windows that belong to
 * its own box. Pure.
 *
 * Dims are independent: in each dim this rank's target is split into cells, and each cell has
 * addends, positions in what shards of the dim hold. A gathered cell has one addend, or none if it
 * is a constant; a folded one has as many as windows contain it. A region of the schedule is a
 * product of cells, and its pulls are the product of their addends, in rank order. Costs the number
 * of the shards of each dim, and of the regions.
 */
#include "window_schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

/* ---- cells ----------------------------------------------------------------------------------- */

typedef struct addend {
    int64_t shard, offset; /* which shard of the dim; where in what it holds */
} addend;

typedef struct cell {
    int64_t at, size; /* in this rank's target */
    int first, count; /* addends */
} cell;

typedef struct cells {
    sherd__heap *heap;
    cell *cell;
    addend *addend;
    int count, room, addends, addend_room;
    bool failed; /* for lack of memory */
} cells;

static void add_cell(cells *c, int64_t at, int64_t size)
{
    cell *list =
        c->failed ? NULL : sherd__reserve(c->heap, c->cell, c->count, &c->room, 8, sizeof *list);

    c->failed = !list;
    if (!list)
        return;
    c->cell = list;
    list[c->count++] = (cell){at, size, c->addends, 0};
}

/* One more addend of the last cell. */
static void add_addend(cells *c, int64_t shard, int64_t offset)
{
    addend *list = c->failed ? NULL
                             : sherd__reserve(c->heap, c->addend, c->addends, &c->addend_room, 8,
                                              sizeof *list);

    c->failed = !list;
    if (!list)
        return;
    c->addend = list;
    list[c->addends++] = (addend){shard, offset};
    c->cell[c->count - 1].count++;
}

static void clear_cells(cells *c)
{
    sherd__free(c->heap, c->cell);
    sherd__free(c->heap, c->addend);
}

/* The cells of a shard's span: each lies in one shard, or in none. */
static void gather_cells(cells *c, const sherd__reach *reach, const int64_t *box, int64_t shard)
{
    sherd__stretch s = {0, 0, 0};

    while (sherd__stretch_next(reach, shard, &s)) {
        int64_t at = s.at, from = s.from, end = s.from + s.count;
        if (from < 0) {
            add_cell(c, at, s.count);
            continue;
        }
        for (int64_t i = sherd__shard_of(box, reach->shards, from); from < end; i++) {
            int64_t size = sherd__min(end, box[2 * i + 1]) - from;
            if (size <= 0)
                continue;
            add_cell(c, at, size);
            add_addend(c, i, from - box[2 * i]);
            at += size;
            from += size;
        }
    }
}

/* What a span has of [lo, hi), one stretch after the other. False: nothing more. */
static bool next_meeting(const sherd__reach *reach, int64_t shard, int64_t lo, int64_t hi,
                         sherd__stretch *s, sherd__stretch *part)
{
    while (sherd__stretch_next(reach, shard, s)) {
        int64_t first = sherd__max(lo, s->from), end = sherd__min(hi, s->from + s->count);
        if (s->from < 0 || first >= end)
            continue;
        *part = (sherd__stretch){s->at + first - s->from, first, end - first};
        return true;
    }
    return false;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Indices at which something begins or ends. */
typedef struct bounds {
    int64_t *at;
    int count, room;
} bounds;

static bool add_bound(sherd__heap *heap, bounds *b, int64_t at)
{
    int64_t *list = sherd__reserve(heap, b->at, b->count, &b->room, 16, sizeof *list);

    if (!list)
        return false;
    b->at = list;
    list[b->count++] = at;
    return true;
}

/* Where windows begin and end in [lo, hi), and its ends; ascending, each once. False: no memory. */
static bool find_bounds(sherd__heap *heap, bounds *b, const sherd__reach *reach, int64_t lo,
                        int64_t hi)
{
    bool good = add_bound(heap, b, lo) && add_bound(heap, b, hi);
    int kept = 0;

    for (int64_t i = 0; i < reach->shards && good; i++) {
        sherd__stretch s = {0, 0, 0}, part;
        while (good && next_meeting(reach, i, lo, hi, &s, &part))
            good = add_bound(heap, b, part.from) && add_bound(heap, b, part.from + part.count);
    }
    if (!good)
        return false;
    qsort(b->at, (size_t)b->count, sizeof *b->at, ascending);
    for (int i = 0; i < b->count; i++)
        if (kept == 0 || b->at[i] != b->at[kept - 1])
            b->at[kept++] = b->at[i];
    b->count = kept;
    return true;
}

/* The cells of a shard's box: within each the same windows reach it. */
static void fold_cells(cells *c, const sherd__reach *reach, const int64_t *box, int64_t shard)
{
    int64_t lo = box[2 * shard], hi = box[2 * shard + 1];
    bounds b = {NULL, 0, 0};

    if (lo == hi)
        return;
    c->failed = !find_bounds(c->heap, &b, reach, lo, hi);
    for (int i = 0; !c->failed && i + 1 < b.count; i++) {
        add_cell(c, b.at[i] - lo, b.at[i + 1] - b.at[i]);
        for (int64_t q = 0; q < reach->shards; q++) {
            sherd__stretch s = {0, 0, 0}, part;
            while (next_meeting(reach, q, b.at[i], b.at[i + 1], &s, &part))
                add_addend(c, q, part.at);
        }
    }
    sherd__free(c->heap, b.at);
}

/* ---- products of cells ----------------------------------------------------------------------- */

typedef struct maker {
    const sherd__window *window;
    sherd__direction direction;
    int rank, ndim;
    int64_t mine[SHERD_MAX_AXES];
    int64_t own[SHERD_MAX_DIMS];   /* this rank's shards */
    int64_t start[SHERD_MAX_DIMS]; /* where its piece begins in its window */
    int64_t source_size[SHERD_MAX_DIMS], target_size[SHERD_MAX_DIMS];
    cells target[SHERD_MAX_DIMS]; /* what this rank gets */
    cells source[SHERD_MAX_DIMS]; /* the other direction's: who gets what it has */
} maker;

/*
 * Count like a clock with `limit[d]` positions of each of ndim dims, the last one fastest. False:
 * it is back at zero.
 */
static bool tick(int ndim, const int *limit, int *at)
{
    for (int d = ndim - 1; d >= 0; d--) {
        if (++at[d] < limit[d])
            return true;
        at[d] = 0;
    }
    return false;
}

static int rank_of(const maker *m, const int64_t *shard)
{
    const sherd__layout_spec *spec = &m->window->layout->spec;
    int64_t coordinate[SHERD_MAX_AXES];

    memcpy(coordinate, m->mine, sizeof coordinate);
    for (int d = 0; d < m->ndim; d++)
        sherd__dim_place(spec->mesh, &spec->dim[d], shard[d], coordinate);
    return sherd__mesh_rank_at(spec->mesh, coordinate);
}

/* The product of the addends of one cell of each dim. */
static void add_pulls(const maker *m, sherd__schedule *s, const int *at)
{
    int limit[SHERD_MAX_DIMS] = {0}, choice[SHERD_MAX_DIMS] = {0};

    for (int d = 0; d < m->ndim; d++) {
        limit[d] = m->target[d].cell[at[d]].count;
        if (limit[d] == 0)
            return;
    }
    do {
        int64_t shard[SHERD_MAX_DIMS], offset[SHERD_MAX_DIMS] = {0};
        for (int d = 0; d < m->ndim; d++) {
            const cells *c = &m->target[d];
            const addend *a = &c->addend[c->cell[at[d]].first + choice[d]];
            shard[d] = a->shard;
            offset[d] = a->offset;
        }
        sherd__schedule_pull(s, m->rank, rank_of(m, shard), offset);
    } while (tick(m->ndim, limit, choice));
}

/* In rank order; of one rank in the order of its window, which sorting must keep. */
static void sort_pulls(sherd__pull *pull, int count)
{
    for (int i = 1; i < count; i++) {
        sherd__pull moved = pull[i];
        int at = i;
        for (; at > 0 && pull[at - 1].rank > moved.rank; at--)
            pull[at] = pull[at - 1];
        pull[at] = moved;
    }
}

/* Whether a region of a window is where this rank's piece lies in it. */
static bool is_piece(const maker *m, const int *at)
{
    for (int d = 0; d < m->ndim; d++) {
        const cell *c = &m->target[d].cell[at[d]];
        const addend *a = &m->target[d].addend[c->first];
        if (!c->count || a->shard != m->own[d] || c->at - a->offset != m->start[d])
            return false;
    }
    return true;
}

static void find_regions(const maker *m, sherd__schedule *s)
{
    int limit[SHERD_MAX_DIMS] = {0}, at[SHERD_MAX_DIMS] = {0};

    for (int d = 0; d < m->ndim; d++) {
        limit[d] = m->target[d].count;
        if (limit[d] == 0)
            return;
    }
    do {
        int64_t offset[SHERD_MAX_DIMS] = {0}, size[SHERD_MAX_DIMS] = {0};
        if (m->direction == SHERD__FILL && is_piece(m, at))
            continue;
        for (int d = 0; d < m->ndim; d++) {
            offset[d] = m->target[d].cell[at[d]].at;
            size[d] = m->target[d].cell[at[d]].size;
        }
        sherd__schedule_region(s, offset, size);
        add_pulls(m, s, at);
        if (s->region && m->direction == SHERD__FOLD) {
            const sherd__region *region = &s->region[s->regions - 1];
            sort_pulls(&s->pull[region->first], region->count);
        }
    } while (tick(m->ndim, limit, at));
}

/* Which shards of a dim reach into what this rank has, each once, ascending; *count of them. */
static void find_reaching(const cells *c, int64_t *shard, int *count)
{
    *count = 0;
    for (int i = 0; i < c->addends; i++) {
        int at = *count;
        while (at > 0 && shard[at - 1] >= c->addend[i].shard)
            at--;
        if (at < *count && shard[at] == c->addend[i].shard)
            continue;
        memmove(&shard[at + 1], &shard[at], (size_t)(*count - at) * sizeof *shard);
        shard[at] = c->addend[i].shard;
        ++*count;
    }
}

typedef struct reaching {
    int count[SHERD_MAX_DIMS];
    int64_t *shard[SHERD_MAX_DIMS];
} reaching;

static void find_readers(const maker *m, sherd__schedule *s, const reaching *r)
{
    int at[SHERD_MAX_DIMS] = {0};

    for (int d = 0; d < m->ndim; d++)
        if (r->count[d] == 0)
            return;
    do {
        int64_t shard[SHERD_MAX_DIMS];
        for (int d = 0; d < m->ndim; d++)
            shard[d] = r->shard[d][at[d]];
        int rank = rank_of(m, shard);
        if (rank != m->rank)
            sherd__schedule_reader(s, rank);
    } while (tick(m->ndim, r->count, at));
}

typedef struct found {
    const maker *maker;
    reaching readers;
} found;

static void find(sherd__schedule *s, const void *what)
{
    const found *f = what;
    const maker *m = f->maker;

    s->ndim = m->ndim;
    memcpy(s->source_size, m->source_size, sizeof s->source_size);
    memcpy(s->target_size, m->target_size, sizeof s->target_size);
    s->op = SHERD_SUM;
    s->divisor = 1;
    s->fill = m->direction == SHERD__FOLD ? 0 : m->window->value;
    find_regions(m, s);
    find_readers(m, s, &f->readers);
}

/* ---- making one ------------------------------------------------------------------------------ */

/* Both directions of a dim. False: no memory. */
static bool find_cells(maker *m, int d)
{
    const sherd__layout_spec *spec = &m->window->layout->spec;
    const sherd__reach *reach = &m->window->reach[d];
    sherd__heap *heap = m->window->layout->space->heap;
    int64_t shard = sherd__dim_shard(spec->mesh, &spec->dim[d], m->mine);
    bool gathers = m->direction != SHERD__FOLD;
    cells *window = gathers ? &m->target[d] : &m->source[d];
    cells *own = gathers ? &m->source[d] : &m->target[d];
    int64_t *box = sherd__alloc(heap, sherd__bytes(2 * reach->shards), sizeof *box);

    window->heap = own->heap = heap;
    if (!box)
        return false;
    sherd__dim_spans(spec->mesh, &spec->dim[d], reach->n, box);
    gather_cells(window, reach, box, shard);
    fold_cells(own, reach, box, shard);
    int64_t held = box[2 * shard + 1] - box[2 * shard];
    int64_t asked = reach->span[2 * shard + 1] - reach->span[2 * shard];
    m->own[d] = shard;
    m->start[d] = box[2 * shard] - reach->span[2 * shard];
    m->source_size[d] = gathers ? held : asked;
    m->target_size[d] = gathers ? asked : held;
    sherd__free(heap, box);
    return !window->failed && !own->failed;
}

static bool prepare(maker *m, found *f)
{
    sherd__heap *heap = m->window->layout->space->heap;
    bool good = true;

    for (int d = 0; d < m->ndim && good; d++) {
        good = find_cells(m, d);
        f->readers.shard[d] =
            sherd__alloc(heap, sherd__bytes(m->source[d].addends), sizeof(int64_t));
        good = good && f->readers.shard[d];
        if (good)
            find_reaching(&m->source[d], f->readers.shard[d], &f->readers.count[d]);
    }
    return good;
}

sherd_status sherd__window_schedule(sherd__schedule **out, const sherd__window *window,
                                    sherd__direction direction, size_t element_bytes, int rank)
{
    sherd__space *space = window->layout->space;
    maker m = {
        .window = window, .direction = direction, .rank = rank, .ndim = window->layout->spec.ndim};
    found f = {.maker = &m};

    *out = NULL;
    if (!sherd_mesh_coordinate(window->layout->spec.mesh, rank, m.mine))
        return SHERD_OK;
    sherd_status status = prepare(&m, &f)
                              ? sherd__schedule_make(out, space, find, &f, rank, element_bytes)
                              : sherd__no_memory(space->diag, "sherd_halo");
    for (int d = 0; d < m.ndim; d++) {
        if (m.target[d].heap) {
            clear_cells(&m.target[d]);
            clear_cells(&m.source[d]);
        }
        sherd__free(space->heap, f.readers.shard[d]);
    }
    return status;
}
