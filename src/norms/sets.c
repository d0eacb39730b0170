/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of elements of x[batch,channels,dims...] that are normalised together: a channel of the
 * whole batch, or a group's channels of one item. Sets are numbered by item and group, so a group
 * that is cut belongs to the sets of two ranks. Ranks that share sets exchange a few numbers for
 * each (parts.c).
 */
#include "sets.h"

#include <string.h>

#include "base/num.h"

sherd__sets sherd__sets_of(const sherd_tensor *x, int64_t groups)
{
    int64_t first = sherd_tensor_box(x).offset[1];
    bool any = x->local[0] > 0 && x->local[1] > 0; /* else other sizes may multiply to 2^62 */
    sherd__sets p = {.n = {.batch = x->local[0],
                           .channels = x->local[1],
                           .inner = any ? sherd__local_count(x, 2, x->ndim) : 0,
                           .whole = groups == 0},
                     .first = first,
                     .group = groups ? sherd__max(x->shape[1] / groups, 1) : 1};
    int64_t end = first + p.n.channels;

    p.lacks = first % p.group;
    p.items = p.n.whole ? 1 : p.n.batch;
    p.slots = p.n.channels ? (end - 1) / p.group - first / p.group + 1 : 0;
    p.rows = p.items * p.n.channels;
    p.sets = p.items * p.slots;
    return p;
}

int64_t sherd__slot_end(const sherd__sets *p, int64_t s, int64_t *lo)
{
    int64_t begin = s * p->group - p->lacks;

    *lo = sherd__max(begin, 0);
    return sherd__min(begin + p->group, p->n.channels);
}

/* ---- what ranks exchange --------------------------------------------------------------------- */

/*
 * Dims of x (bits) whose shards have parts of one set. Channels only if a group is cut, or parts
 * are exchanged anyway.
 */
static unsigned shared_dims(const sherd_tensor *x, const sherd__sets *p)
{
    if (!x->layout)
        return 0;

    const sherd__layout_spec *spec = &x->layout->spec;
    const sherd__dim *channels = &spec->dim[1];
    unsigned all = (1u << x->ndim) - 1, dims = all & (p->n.whole ? ~2u : ~3u), split = 0;

    for (int d = 0; d < x->ndim; d++)
        if (dims >> d & 1)
            split |= (unsigned)(sherd__dim_parts(spec->mesh, &spec->dim[d]) > 1) << d;
    for (int64_t i = 0; i < sherd__dim_parts(spec->mesh, channels) && !p->n.whole; i++)
        split |= (unsigned)(sherd__dim_cut(spec->mesh, channels, spec->shape[1], i) % p->group != 0)
                 << 1;
    return split ? dims | (p->n.whole ? 0 : 2) : 0;
}

unsigned sherd__sets_shared(const sherd_tensor *x, const sherd__sets *p, bool *cut)
{
    unsigned dims = shared_dims(x, p);

    *cut = false;
    for (int64_t i = 0;
         dims & 2 && i < sherd__dim_parts(x->layout->spec.mesh, &x->layout->spec.dim[1]); i++)
        *cut = *cut || sherd__dim_cut(x->layout->spec.mesh, &x->layout->spec.dim[1],
                                      x->layout->spec.shape[1], i) %
                           p->group;
    return dims & ~2u;
}

/* The groups that the i-th shard of channels has: the first one, and how many. */
static int64_t groups_at(const sherd_tensor *x, const sherd__sets *p, int64_t i, int64_t *first)
{
    const sherd__layout_spec *spec = &x->layout->spec;
    int64_t lo = sherd__dim_cut(spec->mesh, &spec->dim[1], spec->shape[1], i);
    int64_t end = sherd__dim_cut(spec->mesh, &spec->dim[1], spec->shape[1], i + 1);

    *first = lo / p->group;
    return end > lo ? (end - 1) / p->group - *first + 1 : 0;
}

/*
 * What one part of an exchange is: [most,width,positions], where positions are channels of the
 * batch, or items.
 */
typedef struct parts {
    const double *data;
    int64_t count, most, positions;
    int64_t others; /* of each shard of channels so many parts: shards of other dims */
    int width;
} parts;

static void fill_part(const sherd__sets *p, const parts *a, double *to, const double *numbers)
{
    for (int64_t i = 0; i < p->sets; i++, numbers += a->width) {
        int64_t slot = p->n.whole ? 0 : i % p->slots, at = p->n.whole ? i : i / p->slots;
        for (int k = 0; k < a->width; k++)
            to[(slot * a->width + k) * a->positions + at] = numbers[k];
    }
}

/* Combine the numbers of set i from all parts that have some of it, in order. */
static void join_set(const sherd_tensor *x, const sherd__sets *p, const parts *a, int64_t i,
                     double *numbers, sherd__join put)
{
    int64_t at = p->n.whole ? i : i / p->slots, group = p->first / p->group + i % p->slots;
    double from[SHERD__SET_NUMBERS];

    memset(numbers, 0, (size_t)a->width * sizeof *numbers);
    for (int64_t part = 0; part < a->count; part++) {
        int64_t first = 0, slot = 0, there = 1;
        if (!p->n.whole) {
            there = groups_at(x, p, part / a->others, &first);
            slot = group - first;
        }
        if (slot < 0 || slot >= there)
            continue;
        for (int k = 0; k < a->width; k++)
            from[k] = a->data[((part * a->most + slot) * a->width + k) * a->positions + at];
        put(numbers, from);
    }
}

bool sherd__sets_exchange(sherd_call *call, const sherd__sets *p, double *numbers, int width,
                          sherd__join put)
{
    const sherd_tensor *x = call->in[0];
    unsigned dims = shared_dims(x, p);
    int64_t shards, first;
    parts a = {.most = 1, .width = width};

    if (!dims)
        return true;
    shards = sherd__dim_parts(x->layout->spec.mesh, &x->layout->spec.dim[1]);
    for (int64_t i = 0; i < shards && !p->n.whole; i++)
        a.most = sherd__max(a.most, groups_at(x, p, i, &first));
    a.positions = p->n.whole ? p->n.channels : p->n.batch;
    sherd_tensor *mine = sherd__new_parts(call, dims, SHERD_F64, a.most * width);
    if (!mine)
        return false;
    double *to = sherd__fresh(mine);
    bool dry = sherd__is_dry(call->world);
    if (mine->count && !dry) {
        memset(to, 0, (size_t)mine->count * sizeof *to);
        fill_part(p, &a, to, numbers);
    }
    a.data = sherd__all_parts(call, dims, mine, a.most * width, &a.count);
    a.others = p->n.whole ? 1 : a.count / shards;
    for (int64_t i = 0; a.data && i < p->sets && !dry; i++)
        join_set(x, p, &a, i, numbers + i * width, put);
    return a.data != NULL;
}
