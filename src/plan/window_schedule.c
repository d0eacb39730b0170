/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank does to receive its window, or to add up the parts of all windows that belong to
 * its own box. Pure.
 *
 * Dims are independent: in each dim this rank's target is split into cells, and each cell has
 * addends, positions in what shards of the dim hold. A gathered cell has one addend, or none if it
 * is a constant; a folded one has as many as windows contain it. A region of the schedule is a
 * product of cells, and its pulls are the product of their addends, in the order of shards, the
 * last dim's first: replicas, which pull from other ranks, add in the same order. Costs the number
 * of the shards of each dim, of the regions, and of the pulls.
 */
#include "window_schedule.h"

#include <limits.h>
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

/* What a shard's span has of this rank's box: indices [first, end), from `at` on in the span. */
typedef struct part {
    int64_t shard, at, first, end;
} part;

typedef struct parts {
    part *part;
    int count, room;
} parts;

/* What all spans have of [lo, hi): shard by shard, in the order of its span. False: no memory. */
static bool find_parts(sherd__heap *heap, parts *p, const sherd__reach *reach, int64_t lo,
                       int64_t hi)
{
    for (int64_t i = 0; i < reach->shards; i++) {
        sherd__stretch s = {0, 0, 0};
        while (sherd__stretch_next(reach, i, &s)) {
            int64_t first = sherd__max(lo, s.from), end = sherd__min(hi, s.from + s.count);
            if (s.from < 0 || first >= end)
                continue;
            part *list = sherd__reserve(heap, p->part, p->count, &p->room, 8, sizeof *list);
            if (!list)
                return false;
            p->part = list;
            list[p->count++] = (part){i, s.at + first - s.from, first, end};
        }
    }
    return true;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Where parts begin and end, and the ends of [lo, hi): ascending, each once. NULL: no memory. */
static int64_t *find_bounds(sherd__heap *heap, const parts *p, int64_t lo, int64_t hi, int *count)
{
    int64_t *bound = sherd__alloc(heap, 2 * ((size_t)p->count + 1), sizeof *bound);
    size_t all = 0;

    *count = 0;
    if (!bound)
        return NULL;
    bound[all++] = lo;
    bound[all++] = hi;
    for (int i = 0; i < p->count; i++) {
        bound[all++] = p->part[i].first;
        bound[all++] = p->part[i].end;
    }
    qsort(bound, all, sizeof *bound, ascending);
    for (size_t i = 0; i < all; i++)
        if (*count == 0 || bound[i] != bound[*count - 1])
            bound[(*count)++] = bound[i];
    return bound;
}

/* Which bound it is. */
static int find_bound(const int64_t *bound, int count, int64_t at)
{
    int lo = 0, hi = count - 1;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (bound[mid] < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/*
 * The addends of the cells between bounds: each part is one of every cell that it covers. Counted
 * first, so that those of a cell lie together.
 */
static void add_parts(cells *c, const parts *p, const int64_t *bound, int bounds)
{
    int64_t total = 0;

    for (int k = 0; k < p->count; k++)
        for (int i = find_bound(bound, bounds, p->part[k].first); bound[i] < p->part[k].end; i++)
            c->cell[i].count++;
    for (int i = 0; i + 1 < bounds && total < INT_MAX; i++) {
        c->cell[i].first = (int)total;
        total += c->cell[i].count;
        c->cell[i].count = 0;
    }
    c->addend = total < INT_MAX ? sherd__alloc(c->heap, (size_t)total, sizeof *c->addend) : NULL;
    c->failed = !c->addend;
    if (c->failed)
        return;
    c->addends = c->addend_room = (int)total;
    for (int k = 0; k < p->count; k++) {
        const part *one = &p->part[k];
        for (int i = find_bound(bound, bounds, one->first); bound[i] < one->end; i++) {
            cell *home = &c->cell[i];
            c->addend[home->first + home->count++] =
                (addend){one->shard, one->at + bound[i] - one->first};
        }
    }
}

/* The cells of a shard's box: within each the same windows reach it. */
static void fold_cells(cells *c, const sherd__reach *reach, const int64_t *box, int64_t shard)
{
    int64_t lo = box[2 * shard], hi = box[2 * shard + 1], *bound = NULL;
    parts p = {NULL, 0, 0};
    int bounds = 0;

    if (lo == hi)
        return;
    if (find_parts(c->heap, &p, reach, lo, hi))
        bound = find_bounds(c->heap, &p, lo, hi, &bounds);
    c->failed = !bound;
    for (int i = 0; i + 1 < bounds; i++)
        add_cell(c, bound[i] - lo, bound[i + 1] - bound[i]);
    if (!c->failed)
        add_parts(c, &p, bound, bounds);
    sherd__free(c->heap, p.part);
    sherd__free(c->heap, bound);
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

/* Whether filling leaves a region alone: the piece, and what only a border would define. */
static bool is_left(const maker *m, const int *at)
{
    if (m->direction != SHERD__FILL)
        return false;
    for (int d = 0; d < m->ndim; d++)
        if (m->window->leaves && m->target[d].cell[at[d]].count == 0)
            return true;
    return is_piece(m, at);
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
        if (is_left(m, at))
            continue;
        for (int d = 0; d < m->ndim; d++) {
            offset[d] = m->target[d].cell[at[d]].at;
            size[d] = m->target[d].cell[at[d]].size;
        }
        sherd__schedule_region(s, offset, size);
        add_pulls(m, s, at);
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
