/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange with owners: see owners.h. What travels are lists (lists.h). */
#include "lists.h"
#include "once.h"
#include "owners.h"

#include <string.h>

#include "base/saturate.h"
#include "kernels/pick.h"
#include "apply/sketch.h"
#include "vector/choose.h"

typedef struct exchange {
    const sherd__wants *w;
    const sherd_layout *layout; /* of what owners have */
    sherd__line line;
    int64_t outer, inner;  /* elements of an entry that is asked for: [outer, inner] */
    int64_t entries, n;    /* what there is here to ask for; what there is to fill */
    const int64_t *cut;    /* [shards + 1] of the dim */
    int32_t *order, *code; /* [n] of each request: its place in what is taken, and at its owner */
    int64_t *first;        /* [shards + 1]: requests to the owner r behind begin there */
    /* Slices travel once: then `code` and `first` are those of distinct slices, and of requests
     * these are where they begin, and which of the slices they are for. */
    int64_t *begin; /* otherwise `first` */
    int32_t *which; /* [n] */
    bool once;
    const int64_t *count; /* [ranks, shards + 1]: requests of each to each, and outer * inner */
    unsigned alike;       /* axes along which ranks have the same to give */
    bool dry;
} exchange;

static void *scratch(const exchange *x, int64_t count, size_t bytes)
{
    return sherd_call_scratch(x->w->call, sherd__max(count, 1) * (int64_t)bytes);
}

/*
 * Whether the rank with the shard `mine` exchanges with this owner. If ranks along some axes have
 * the same elements to give, these are given once: each rank gives to the owners that have its
 * coordinates on those axes.
 */
static bool deals(const exchange *x, int64_t mine, int64_t owner)
{
    const sherd__dim *dim = &x->layout->spec.dim[x->w->dim];
    bool may = true;

    for (int i = dim->axes - 1; i >= 0; i--) {
        int64_t extent = x->layout->spec.mesh->extent[dim->axis[i]];
        if (x->alike >> dim->axis[i] & 1)
            may = may && owner % extent == mine % extent;
        owner /= extent;
        mine /= extent;
    }
    return may;
}

/* ---- in a dry world -------------------------------------------------------------------------- */

/*
 * Nobody knows the indices there. They are taken to be spread evenly over the dim: of n requests,
 * the j-th is for index j size / n, rounded down.
 */
static int64_t evenly(const exchange *x, int64_t n, int64_t mine, int64_t owner)
{
    int64_t size = x->layout->spec.shape[x->w->dim];

    if (size == 0 || !deals(x, mine, owner))
        return 0;
    return sherd__part_of(n, x->cut[owner + 1], size) - sherd__part_of(n, x->cut[owner], size);
}

/* Of n requests, how many are sent at most. */
static int64_t sent_of(const exchange *x, int64_t n)
{
    return x->once ? sherd__min(n, x->layout->spec.shape[x->w->dim]) : n;
}

/* How many requests a rank sends, and the elements of each. */
static int64_t requests_of(const exchange *x, int64_t rank, int64_t *width)
{
    const sherd__layout_spec *spec = &x->w->taken->layout->spec;
    int64_t coordinate[SHERD_MAX_AXES] = {0}, lo, hi, n = 1;

    sherd__dim_place(spec->mesh, &x->line.spec.dim[0], rank, coordinate);
    *width = 1;
    for (int d = 0; d < spec->ndim; d++) {
        sherd__dim_interval(spec->mesh, &spec->dim[d], spec->shape[d], coordinate, &lo, &hi);
        if (x->w->flat && d != x->w->dim)
            *width *= hi - lo;
        else
            n *= hi - lo;
    }
    return sent_of(x, n);
}

static void suppose_requests(exchange *x)
{
    int64_t n = sent_of(x, x->n);

    x->first[0] = 0;
    for (int64_t r = 0; r < x->line.shards; r++)
        x->first[r + 1] = x->first[r] + evenly(x, n, x->line.mine,
                                               sherd__shard_behind(&x->line, x->line.mine, r));
}

/* ---- requests -------------------------------------------------------------------------------- */

/* How many requests a rank has for a shard; for shard = shards: the elements of each request. */
static int64_t counted(const exchange *x, int64_t rank, int64_t shard)
{
    int64_t shards = x->line.shards, width;

    if (!x->dry)
        return x->count[rank * (shards + 1) + shard];
    int64_t n = requests_of(x, rank, &width);
    return shard == shards ? width : evenly(x, n, rank % shards, shard);
}

static void measure(exchange *x)
{
    const sherd_tensor *a = x->w->a, *taken = x->w->taken;
    bool flat = x->w->flat;

    x->outer = flat ? sherd__local_count(taken, 0, x->w->dim) : 1;
    x->inner = flat ? sherd__local_count(taken, x->w->dim + 1, taken->ndim) : 1;
    x->entries = flat ? a->local[x->w->dim] : a->count;
    x->n = flat ? taken->local[x->w->dim] : taken->count;
}

static int64_t owner_of(const exchange *x, int64_t index)
{
    return sherd__owner_of(x->cut, x->line.shards, index);
}

/* The position of request j in its owner's piece. */
static int32_t code_of(const exchange *x, int64_t j, int64_t owner)
{
    const sherd_tensor *taken = x->w->taken;
    int64_t at = x->w->index[j] - x->cut[owner];

    if (x->w->flat)
        return (int32_t)at;
    int64_t inner = sherd__local_count(taken, x->w->dim + 1, taken->ndim);
    int64_t outer = j / inner / taken->local[x->w->dim], length = x->cut[owner + 1] - x->cut[owner];
    return (int32_t)((outer * length + at) * inner + j % inner);
}

/* Leave one of several requests for an entry of another rank. False: no memory. */
static bool drop_repeats(exchange *x)
{
    int64_t shards = x->line.shards, longest = 0;

    for (int64_t s = 0; s < shards; s++)
        longest = sherd__max(longest, x->cut[s + 1] - x->cut[s]);
    x->begin = scratch(x, shards + 2, sizeof *x->begin);
    x->which = scratch(x, x->n, sizeof *x->which);
    int32_t *place = scratch(x, longest, sizeof *place);
    if (!x->begin || !x->which || !place)
        return false;
    memcpy(x->begin, x->first, (size_t)(shards + 1) * sizeof *x->begin);
    for (int64_t r = 1; r < shards && !x->dry; r++) {
        int64_t from = x->begin[r], n = x->begin[r + 1] - from;
        int64_t owner = sherd__shard_behind(&x->line, x->line.mine, r);
        int64_t left = sherd__ask_once(x->code + from, n, x->which + from, place,
                                       x->cut[owner + 1] - x->cut[owner]);
        memmove(x->code + x->first[r], x->code + from, (size_t)left * sizeof *x->code);
        x->first[r + 1] = x->first[r] + left;
    }
    return true;
}

/*
 * Sort requests by their owners, beginning with this rank itself. Owners that it does not deal with
 * get the same requests from another rank.
 */
static bool sort_requests(exchange *x)
{
    bool *may = scratch(x, x->line.shards, sizeof *may);
    int64_t *cut = scratch(x, x->line.shards + 1, sizeof *cut);
    int64_t *next = scratch(x, x->line.shards + 1, sizeof *next);

    x->first = scratch(x, x->line.shards + 2, sizeof *x->first);
    x->order = scratch(x, x->n, sizeof *x->order);
    x->code = scratch(x, x->n, sizeof *x->code);
    if (!may || !cut || !next || !x->first || !x->order || !x->code)
        return false;
    const sherd__layout_spec *spec = &x->layout->spec;
    sherd__dim_cuts(spec->mesh, &spec->dim[x->w->dim], spec->shape[x->w->dim], cut);
    x->cut = cut;
    x->begin = x->first;
    if (x->dry) {
        suppose_requests(x);
        return !x->once || drop_repeats(x);
    }
    for (int64_t s = 0; s < x->line.shards; s++)
        may[s] = deals(x, x->line.mine, s);
    memset(x->first, 0, (size_t)(x->line.shards + 2) * sizeof *x->first);
    for (int64_t j = 0; j < x->n; j++) {
        int64_t owner = owner_of(x, x->w->index[j]);
        x->first[sherd__shard_behind(&x->line, owner, -x->line.mine) + 1] += may[owner];
    }
    for (int64_t r = 0; r < x->line.shards; r++)
        x->first[r + 1] += x->first[r];
    memcpy(next, x->first, (size_t)(x->line.shards + 1) * sizeof *next);
    for (int64_t j = 0; j < x->n; j++) {
        int64_t owner = owner_of(x, x->w->index[j]);
        if (!may[owner])
            continue;
        int64_t at = next[sherd__shard_behind(&x->line, owner, -x->line.mine)]++;
        x->order[at] = (int32_t)j;
        x->code[at] = code_of(x, j, owner);
    }
    return !x->once || drop_repeats(x);
}

/* Gather the counts of all ranks' requests. */
static bool tell_counts(exchange *x)
{
    sherd__layout_spec spec = x->line.spec;
    const sherd_layout *each, *all;

    spec.ndim = 2;
    spec.shape[0] = x->line.ranks;
    spec.shape[1] = x->line.shards + 1;
    if (sherd__layout_intern(&each, &spec) ||
        sherd__replicated(&all, spec.mesh, spec.ndim, spec.shape)) {
        sherd__fail_diag(x->w->call->world, true);
        return false;
    }
    sherd_tensor *mine = sherd__new_on(each, SHERD_I64);
    if (sherd_tensor_failed(mine))
        return false;
    int64_t *count = sherd__fresh(mine);
    for (int64_t r = 0; r < x->line.shards; r++)
        count[sherd__shard_behind(&x->line, x->line.mine, r)] = x->first[r + 1] - x->first[r];
    count[x->line.shards] = x->outer * x->inner;
    sherd_tensor *told = sherd__move_to(mine, all, false);
    x->count = sherd_tensor_failed(told) ? NULL : sherd__data(told);
    return x->count != NULL;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* What a rank asks the owner r behind it for. */
static int64_t asked_at(const void *what, int64_t rank, int64_t r)
{
    const exchange *x = what;

    return counted(x, rank, sherd__shard_behind(&x->line, rank % x->line.shards, r));
}

/* Elements of an entry that a rank asks for. */
static int64_t width_at(const exchange *x, int64_t rank)
{
    return counted(x, rank, x->line.shards);
}

/* What a rank gives to the owner r behind it. */
static int64_t given_at(const void *what, int64_t rank, int64_t r)
{
    return asked_at(what, rank, r) * width_at(what, rank);
}

/* What an owner lends to the rank r before it. */
static int64_t lent_at(const void *what, int64_t rank, int64_t r)
{
    const exchange *x = what;
    int64_t shard = rank % x->line.shards;
    int64_t asking = rank - shard + sherd__shard_behind(&x->line, shard, -r);

    return counted(x, asking, shard) * width_at(x, asking);
}

static void fill_codes(const exchange *x, const sherd__windowed *lists)
{
    for (int64_t r = 1; r < x->line.shards && !x->dry; r++) {
        int64_t count = x->first[r + 1] - x->first[r];
        if (count)
            memcpy(sherd__fresh(lists[r].whole), x->code + x->first[r],
                   (size_t)count * sizeof *x->code);
    }
}

/* Elements of a list, [outer, count, inner], and their positions in [outer, entries, inner]. */
static sherd__pick pick_of(const exchange *x, int64_t count, int64_t entries, const int32_t *places)
{
    return (sherd__pick){x->outer, count, x->inner, entries, 0, places, true};
}

/* ---- both directions ------------------------------------------------------------------------- */

/* False: failed; *there is false on a rank outside the mesh. */
static bool begin(exchange *x, const sherd__wants *w, const sherd_layout *layout, bool gives,
                  bool *there)
{
    const sherd__dim *dim = &layout->spec.dim[w->dim];
    const sherd__dim *rows = &w->taken->layout->spec.dim[w->dim];

    *x = (exchange){.w = w, .layout = layout, .dry = sherd__is_dry(w->call->world)};
    sherd__open_in(w->call);
    *there = sherd__line_up(&x->line, w->call, layout->spec.mesh, dim);
    if (!*there)
        return true;
    measure(x);
    /* Where there are few requests for a long dim, hardly any are repeats. Equal on all ranks. */
    x->once = w->flat && layout->spec.shape[w->dim] / 8 <= w->taken->shape[w->dim];
    x->alike = gives ? sherd__dim_bits(dim) & ~sherd__dim_bits(rows) : 0;
    return sort_requests(x) && tell_counts(x);
}

/* The elements of these requests, from [outer, entries, inner] by their places there. */
static void fill_in(const exchange *x, int64_t r, void *taken, const void *a, int64_t entries,
                    const int32_t *places)
{
    int64_t first = x->begin[r], count = x->begin[r + 1] - first;
    int64_t outer_inner[2] = {x->outer, x->inner};

    if (!x->dry)
        sherd__copy_entries(sherd_dtype_bytes(x->w->taken->dtype), outer_inner, count,
                            (sherd__entries){x->n, x->order + first}, taken,
                            (sherd__entries){entries, places}, a);
}

/* Send what has been requested in `asked`. */
static bool answer(const exchange *x, const sherd__windowed *asked, const sherd__windowed *lists,
                   const void *a, size_t bytes)
{
    bool good = true;

    for (int64_t r = 1; r < x->line.shards && good; r++) {
        const int32_t *code = sherd__list_came(&asked[r], &good);
        sherd__pick from = pick_of(x, asked[r].piece->count, x->entries, code);
        if (good && lists[r].whole->count && !x->dry)
            sherd__gather(bytes, &from, sherd__fresh(lists[r].whole), a);
    }
    return good;
}

static bool take_all(const exchange *x, sherd__windowed *lists, void *taken, const void *a)
{
    sherd__windowed *asked = lists, *lent = lists + x->line.shards;
    int others = (int)x->line.shards - 1;
    sherd_dtype dtype = x->w->taken->dtype;
    size_t bytes = sherd_dtype_bytes(dtype);
    const char *name = x->w->call->op->name;
    bool good =
        sherd__lists_make(asked, &(sherd__lists){&x->line, false, asked_at, x, SHERD_I32, false});

    if (good)
        fill_codes(x, asked);
    good = good && sherd__gather_windows_here(asked + 1, others, name) &&
           sherd__lists_make(lent, &(sherd__lists){&x->line, true, lent_at, x, dtype, false}) &&
           answer(x, asked, lent, a, bytes) && sherd__gather_windows_here(lent + 1, others, name);

    for (int64_t r = 1; r < x->line.shards && good; r++) {
        const void *data = sherd__list_came(&lent[r], &good);
        int64_t count = x->first[r + 1] - x->first[r];
        sherd__pick to = pick_of(x, count, x->n, x->order + x->first[r]);
        if (good && data && x->once)
            fill_in(x, r, taken, data, count, x->which + x->begin[r]);
        else if (good && data && !x->dry)
            sherd__scatter(bytes, &to, taken, data, NULL);
    }
    return good;
}

bool sherd__take_from_owners(const sherd__wants *w, void *taken, const void *a)
{
    exchange x;
    bool there;

    if (!begin(&x, w, w->a->layout, false, &there))
        return false;
    if (!there)
        return true;
    sherd__windowed *lists = sherd__lists_room(&x.line, 2 * x.line.shards);
    if (lists)
        fill_in(&x, 0, taken, a, x.entries, x.code);
    bool good = lists && take_all(&x, lists, taken, a);
    sherd__lists_release(lists, 2 * x.line.shards);
    return good;
}

/* ---- giving ---------------------------------------------------------------------------------- */

/*
 * to += entries [outer, count, inner] at the positions of `p`, or another reduction. `dtype`: that
 * of the entries; `to` is wide.
 */
static bool add(const exchange *x, sherd__pick p, void *to, sherd_dtype dtype, const void *entries)
{
    sherd_dtype wide = sherd__statistics_dtype(dtype);
    int64_t all = p.n * x->outer * x->inner;
    int64_t bytes = sherd__scatter_scratch(wide, x->w->reduces, &p);

    if (all == 0)
        return true;
    void *room = bytes ? scratch(x, bytes, 1) : NULL;
    float *f32 = wide == dtype ? NULL : scratch(x, all, sizeof *f32);
    if ((bytes && !room) || (wide != dtype && !f32))
        return false;
    if (x->dry)
        return true;
    if (f32)
        sherd__convert(sherd__world_kernels(x->w->call->world), SHERD_F32, dtype, all, f32,
                       entries);
    sherd__scatter_reduce(wide, x->w->reduces, &p, to, f32 ? f32 : entries, room);
    return true;
}

/* The elements that this rank has for the owner r places after it, one after the other. */
static void collect(const exchange *x, int64_t r, void *to, const void *taken)
{
    int64_t count = x->begin[r + 1] - x->begin[r];
    sherd__pick from = pick_of(x, count, x->n, x->order + x->begin[r]);

    if (count * x->outer * x->inner > 0 && !x->dry)
        sherd__gather(sherd_dtype_bytes(x->w->taken->dtype), &from, to, taken);
}

/* Its list for that owner: all of them, or what they become together at each slice. */
static bool collect_list(const exchange *x, int64_t r, sherd_tensor *list, const void *taken)
{
    sherd_dtype dtype = x->w->taken->dtype;
    int64_t count = x->begin[r + 1] - x->begin[r], sent = x->first[r + 1] - x->first[r];

    void *to = list->count == 0 ? NULL : sherd__fresh(list);
    if (to && !x->once)
        collect(x, r, to, taken);
    if (!to || !x->once)
        return true;
    void *each = scratch(x, count * x->outer * x->inner, sherd_dtype_bytes(dtype));
    if (!each)
        return false;
    collect(x, r, each, taken);
    if (!x->dry)
        sherd__fill_neutral(list->dtype, x->w->reduces, list->count, to);
    return add(x, pick_of(x, count, sent, x->which + x->begin[r]), to, dtype, each);
}

static bool give_all(const exchange *x, sherd__windowed *lists, void *a, const void *taken)
{
    sherd__windowed *codes = lists,
                    *entries = lists + x->line.shards - 1; /* side by side: one call */
    sherd_dtype dtype = x->w->taken->dtype, sent = x->once ? sherd__statistics_dtype(dtype) : dtype;
    void *own = scratch(x, x->first[1] * x->outer * x->inner, sherd_dtype_bytes(dtype));
    bool good =
        own &&
        sherd__lists_make(codes, &(sherd__lists){&x->line, false, asked_at, x, SHERD_I32, false}) &&
        sherd__lists_make(entries, &(sherd__lists){&x->line, false, given_at, x, sent, false});

    if (good)
        fill_codes(x, codes);
    for (int64_t r = 1; r < x->line.shards && good; r++)
        good = collect_list(x, r, entries[r].whole, taken);
    good = good && sherd__gather_windows_here(codes + 1, 2 * ((int)x->line.shards - 1),
                                              x->w->call->op->name);
    for (int64_t shard = 0; shard < x->line.shards && good; shard++) {
        int64_t r = sherd__shard_behind(&x->line, x->line.mine, -shard);
        if (r == 0) {
            collect(x, 0, own, taken);
            good = add(x, pick_of(x, x->first[1], x->entries, x->code), a, dtype, own);
        } else {
            const int32_t *code = sherd__list_came(&codes[r], &good);
            const void *data = sherd__list_came(&entries[r], &good);
            sherd__pick to = pick_of(x, codes[r].piece->count, x->entries, code);
            good = good && add(x, to, a, sent, data);
        }
    }
    return good;
}

bool sherd__give_to_owners(const sherd__wants *w, void *a, const void *taken)
{
    const sherd__kernel_set *set = sherd__world_kernels(w->call->world);
    sherd_dtype dtype = w->taken->dtype;
    bool there, half = sherd__is_half(dtype);
    void *total = a;
    exchange x;

    if (!begin(&x, w, w->a->layout, true, &there))
        return false;
    if (!there)
        return true;
    sherd__windowed *lists = sherd__lists_room(&x.line, 2 * x.line.shards);
    if (half)
        total = scratch(&x, w->a->count, sizeof(float));
    if (half && total && !x.dry)
        sherd__convert(set, SHERD_F32, dtype, w->a->count, total, a);
    bool good = lists && (total || !half) && give_all(&x, lists, total, taken);
    sherd__lists_release(lists, 2 * x.line.shards);
    if (good && half && !x.dry)
        sherd__convert(set, dtype, SHERD_F32, w->a->count, a, total);
    return good;
}
