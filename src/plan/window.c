/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows as values: made from the intervals that shards ask for, compared, and iterated over.
 * Making one costs the number of shards of each dim; iterating over a span costs a step for each
 * run of neighbours.
 */
#include "window_schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"

/* ---- stretches ------------------------------------------------------------------------------- */

/* A stretch beyond an end of a dim of n > 0, from index i on; it goes to `end` at most. */
static void beyond(const sherd__reach *reach, int64_t i, int64_t end, sherd__stretch *s)
{
    int64_t n = reach->n;

    s->count = 1;
    switch (i < 0 ? reach->before : reach->after) {
    case SHERD_BORDER_REPLICATE:
        s->from = i < 0 ? 0 : n - 1;
        return;
    case SHERD_BORDER_REFLECT:
        s->from = i < 0 ? -i : 2 * (n - 1) - i;
        return;
    case SHERD_BORDER_PERIODIC:
        s->from = (i % n + n) % n;
        s->count = sherd__min(n - s->from, end - i);
        return;
    case SHERD_BORDER_SYMMETRIC:
        s->from = i < 0 ? -1 - i : 2 * n - 1 - i;
        return;
    default:
        s->from = -1;
        s->count = end - i;
    }
}

bool sherd__stretch_next(const sherd__reach *reach, int64_t shard, sherd__stretch *s)
{
    int64_t first = reach->span[2 * shard], end = reach->span[2 * shard + 1];

    s->at += s->count;
    int64_t i = first + s->at;
    if (i >= end)
        return false;
    if (i < 0 || i >= reach->n) {
        beyond(reach, i, i < 0 ? sherd__min(end, 0) : end, s);
        return true;
    }
    s->from = i;
    s->count = sherd__min(end, reach->n) - i;
    return true;
}

/* ---- making one ------------------------------------------------------------------------------ */

static void ask(sherd__reach *reach, const sherd_layout *layout, int d, const sherd__asking *asking)
{
    const sherd__layout_spec *spec = &layout->spec;

    sherd__dim_spans(spec->mesh, &spec->dim[d], spec->shape[d], reach->span);
    for (int64_t i = 0; i < reach->shards; i++) {
        int64_t *first = &reach->span[2 * i], *end = first + 1;
        asking->span(asking->what, d, i, *first, *end, first, end);
        if (*end > *first && reach->before == SHERD_BORDER_NONE)
            *first = sherd__max(*first, 0);
        if (*end > *first && reach->after == SHERD_BORDER_NONE)
            *end = sherd__min(*end, reach->n);
        if (*end <= *first)
            *first = *end = 0;
    }
}

static uint64_t hash_of(const sherd__window *window)
{
    uint64_t hash = sherd__hash_bytes(window->layout->hash, &window->value, sizeof window->value);

    hash = sherd__hash_word(hash, window->leaves);
    for (int d = 0; d < window->layout->spec.ndim; d++) {
        const sherd__reach *reach = &window->reach[d];
        hash = sherd__hash_word(hash, (uint64_t)(reach->before * SHERD_BORDERS + reach->after));
        hash = sherd__hash_bytes(hash, reach->span, sherd__bytes(2 * reach->shards) * 8);
    }
    return hash ? hash : 1;
}

static void fill(sherd__window *window, const sherd__asking *asking)
{
    const sherd__layout_spec *spec = &window->layout->spec;
    const sherd_halo_options *borders = asking->borders;
    int64_t *spans = window->spans;

    window->value = borders ? borders->value + 0.0 : 0; /* one zero */
    if (isnan(window->value))
        window->value = (double)NAN; /* and one NaN */
    window->leaves = borders && borders->own_border;
    for (int d = 0; d < spec->ndim; d++) {
        sherd__reach *reach = &window->reach[d];
        reach->n = spec->shape[d];
        reach->shards = sherd__dim_parts(spec->mesh, &spec->dim[d]);
        reach->span = spans;
        reach->before = borders ? borders->before[d].border : SHERD_BORDER_NONE;
        reach->after = borders ? borders->after[d].border : SHERD_BORDER_NONE;
        spans += 2 * reach->shards;
        ask(reach, window->layout, d, asking);
    }
    window->hash = hash_of(window);
}

sherd_status sherd__window_create(sherd__window **out, const sherd_layout *layout,
                                  const sherd__asking *asking)
{
    const sherd__layout_spec *spec = &layout->spec;
    sherd__space *space = layout->space;
    int64_t shards = 0, coordinate[SHERD_MAX_AXES];

    *out = NULL;
    for (int d = 0; d < spec->ndim; d++)
        shards += sherd__dim_parts(spec->mesh, &spec->dim[d]);
    sherd__window *window = sherd__alloc(space->heap, 1, sizeof *window);
    int64_t *spans = sherd__alloc(space->heap, sherd__bytes(2 * shards + 1), sizeof *spans);
    if (!window || !spans) {
        sherd__free(space->heap, window);
        sherd__free(space->heap, spans);
        return sherd__no_memory(space->diag, "a window");
    }
    window->refs = 1;
    window->layout = sherd_layout_retain(layout);
    window->spans = spans;
    fill(window, asking);
    window->inside = sherd_mesh_coordinate(spec->mesh, space->rank, coordinate);
    if (window->inside)
        sherd__window_box(window, coordinate, &window->box);
    *out = window;
    return SHERD_OK;
}

sherd__window *sherd__window_retain(sherd__window *window)
{
    window->refs++;
    return window;
}

void sherd__window_release(sherd__window *window)
{
    if (!window || --window->refs > 0)
        return;
    sherd__heap *heap = window->layout->space->heap;
    sherd_layout_release(window->layout);
    sherd__free(heap, window->spans);
    sherd__free(heap, window);
}

size_t sherd__window_bytes(const sherd__window *window)
{
    size_t spans = 0;

    for (int d = 0; window && d < window->layout->spec.ndim; d++)
        spans += 2 * (size_t)window->reach[d].shards;
    return window ? sizeof *window + spans * sizeof *window->spans : 0;
}

/* Whether the values beyond two borders are the same; NaN is the same as NaN. */
static bool same_value(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

bool sherd__window_equal(const sherd__window *a, const sherd__window *b)
{
    if (a == b)
        return true;
    bool same = a->hash == b->hash && a->layout == b->layout && same_value(a->value, b->value) &&
                a->leaves == b->leaves;
    for (int d = 0; same && d < a->layout->spec.ndim; d++) {
        const sherd__reach *x = &a->reach[d], *y = &b->reach[d];
        same = x->before == y->before && x->after == y->after &&
               memcmp(x->span, y->span, sherd__bytes(2 * x->shards) * sizeof *x->span) == 0;
    }
    return same;
}

void sherd__window_box(const sherd__window *window, const int64_t *coordinate, sherd_box *box)
{
    const sherd__layout_spec *spec = &window->layout->spec;

    memset(box, 0, sizeof *box);
    box->ndim = spec->ndim;
    for (int d = 0; d < spec->ndim; d++) {
        int64_t shard = sherd__dim_shard(spec->mesh, &spec->dim[d], coordinate);
        const int64_t *span = &window->reach[d].span[2 * shard];
        box->offset[d] = span[0];
        box->size[d] = span[1] - span[0];
    }
}

int64_t sherd__shard_of(const int64_t *box, int64_t shards, int64_t at)
{
    int64_t lo = 0, hi = shards;

    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (box[2 * mid + 1] > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* ---- what a halo asks for -------------------------------------------------------------------- */

static void halo_span(const void *what, int d, int64_t shard, int64_t lo, int64_t hi,
                      int64_t *first, int64_t *end)
{
    const sherd_halo_options *options = what;

    (void)shard;
    *first = lo;
    *end = hi;
    if (hi > lo) {
        *first -= options->before[d].width;
        *end += options->after[d].width;
    }
}

/* Why a side of a dim of size n cannot be so; NULL = it can. */
static const char *side_fault(const sherd_halo_side *side, bool exists, int64_t n)
{
    if ((unsigned)side->border >= SHERD_BORDERS)
        return "there is no such border";
    if (side->width < 0)
        return "a width is at least 0";
    if (side->width >> (SHERD__SIZE_LIMIT_LOG2 - 2))
        return "a width is below 2^60";
    if (side->width > 0 && !exists)
        return "there is no such dim";
    if (side->border == SHERD_BORDER_REFLECT && side->width > 0 && side->width >= n)
        return "a mirror is narrower than the dim";
    if (side->border == SHERD_BORDER_SYMMETRIC && side->width > n)
        return "a mirror is not wider than the dim";
    return side->width > 0 && n == 0 && side->border > SHERD_BORDER_CONSTANT
               ? "a dim of size 0 has nothing to repeat"
               : NULL;
}

const char *sherd__border_text(int border, char text[16])
{
    static const char *const names[SHERD_BORDERS] = {"NONE",    "CONSTANT", "REPLICATE",
                                                     "REFLECT", "PERIODIC", "SYMMETRIC"};

    if (border >= 0 && border < SHERD_BORDERS)
        return names[border];
    snprintf(text, 16, "%d", border);
    return text;
}

bool sherd__has_constant_border(const sherd_halo_options *options, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (options->before[d].border == SHERD_BORDER_CONSTANT ||
            options->after[d].border == SHERD_BORDER_CONSTANT)
            return true;
    return false;
}

enum { MOST_REGIONS = 1 << 22 }; /* of a halo, beyond the ends of the dims */

/* How many stretches of neighbours lie beyond the end of a dim: a region each. */
static int64_t stretches_of(const sherd_halo_side *side, int64_t n)
{
    if (side->border == SHERD_BORDER_PERIODIC)
        return n ? side->width / n : 0;
    return side->border > SHERD_BORDER_CONSTANT ? side->width : 0;
}

sherd_status sherd__check_borders(const sherd_layout *layout, const sherd_halo_options *options,
                                  const char *function, const char *text)
{
    int64_t regions = 1;

    for (int d = 0; d < layout->spec.ndim; d++) {
        int64_t n = layout->spec.shape[d];
        regions = sherd__mul_cut(regions, 1 + stretches_of(&options->before[d], n) +
                                              stretches_of(&options->after[d], n));
    }
    if (regions > MOST_REGIONS)
        return sherd__fail(layout->space->diag, SHERD_ELIMIT,
                           "%s: %s: its borders repeat elements %lld times, at most %d", function,
                           text, (long long)regions, MOST_REGIONS);
    return SHERD_OK;
}

static sherd_status check_halo(const sherd_layout *layout, const sherd_halo_options *options,
                               const char *function, const char *text)
{
    static const char *const side_names[] = {"before", "after"};
    char number[16];

    if (layout->pending_axes)
        return sherd__fail(layout->space->diag, SHERD_EINVAL,
                           "%s: %s: a pending reduction has no elements to read", function, text);
    for (int d = 0; d < SHERD_MAX_DIMS; d++) {
        const sherd_halo_side *sides[] = {&options->before[d], &options->after[d]};
        bool exists = d < layout->spec.ndim;
        for (int i = 0; i < 2; i++) {
            const char *fault = side_fault(sides[i], exists, exists ? layout->spec.shape[d] : 0);
            if (fault)
                return sherd__fail(layout->space->diag, SHERD_EINVAL,
                                   "%s: %s[%d] of width %lld and border %s on %s: %s", function,
                                   side_names[i], d, (long long)sides[i]->width,
                                   sherd__border_text((int)sides[i]->border, number), text, fault);
        }
    }
    return sherd__check_borders(layout, options, function, text);
}

/* ---- halos that were asked for --------------------------------------------------------------- */

enum { HALOS_KEPT = 8 };

typedef struct halo {
    sherd__window *window; /* counted; NULL = none yet */
    sherd_halo_options options;
} halo;

struct sherd__halos {
    halo last[HALOS_KEPT];
    int next; /* where the next one goes */
};

static bool same_side(const sherd_halo_side *a, const sherd_halo_side *b)
{
    return a->width == b->width && a->border == b->border;
}

/* Also in dims that a layout does not have: there only a width of 0 is right. */
static bool same_halo(const sherd_halo_options *a, const sherd_halo_options *b)
{
    bool same = same_value(a->value, b->value) && a->own_border == b->own_border;

    for (int d = 0; same && d < SHERD_MAX_DIMS; d++)
        same = same_side(&a->before[d], &b->before[d]) && same_side(&a->after[d], &b->after[d]);
    return same;
}

sherd__window *sherd__halo_kept(const sherd_layout *layout, const sherd_halo_options *options)
{
    struct sherd__halos *halos = layout->space->halos;

    for (int i = 0; halos && i < HALOS_KEPT; i++) {
        const halo *one = &halos->last[i];
        if (!one->window || one->window->layout != layout || !same_halo(&one->options, options))
            continue;
        return sherd__window_retain(one->window);
    }
    return NULL;
}

/* Keep a window in the place of the one that was made first. */
static sherd_status keep_halo(sherd__space *space, sherd__window *window,
                              const sherd_halo_options *options)
{
    if (!space->halos && !(space->halos = sherd__alloc(space->heap, 1, sizeof *space->halos)))
        return sherd__no_memory(space->diag, "a window");
    halo *place = &space->halos->last[space->halos->next];
    space->halos->next = (space->halos->next + 1) % HALOS_KEPT;
    sherd__window_release(place->window);
    *place = (halo){sherd__window_retain(window), *options};
    return SHERD_OK;
}

sherd_status sherd__window_of_halo(sherd__window **out, const sherd_layout *layout,
                                   const sherd_halo_options *options, const char *function,
                                   const char *text)
{
    sherd__space *space = layout->space;

    *out = sherd__halo_kept(layout, options);
    if (*out)
        return SHERD_OK;
    sherd_status status = check_halo(layout, options, function, text);
    if (!status)
        status = sherd__window_create(out, layout, &(sherd__asking){halo_span, options, options});
    if (!status)
        status = keep_halo(space, *out, options);
    if (status) {
        sherd__window_release(*out);
        *out = NULL;
    }
    return status;
}

void sherd__halos_clear(sherd__space *space)
{
    for (int i = 0; space->halos && i < HALOS_KEPT; i++)
        sherd__window_release(space->halos->last[i].window);
    sherd__free(space->heap, space->halos);
    space->halos = NULL;
}
