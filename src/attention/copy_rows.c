/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying rows of a tensor onto others of its rows, in place: blocks of a paged cache that
 * sequences no longer share, slots of a cache that go to other beams. All rows are taken before any
 * is written (sherd_index_select), so rows may change places; that takes memory for them.
 *
 * If rows are sharded, pairs are put in the order of the shards that they are written in, and each
 * shard takes the rows that it lacks from their owners. What is on the GPU stays there.
 */
#include "ops/shared.h"
#include "functional/rows.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "device/decode.h"
#include "world/doing.h"

static const char name[] = "sherd_copy_rows";

typedef struct copying {
    sherd_tensor *a, *from, *to; /* to NULL: 0, 1, .. */
    int64_t n;
    int32_t *pairs;         /* [2, n]: sources and targets, of one shard after the other */
    int64_t *count;         /* [shards]: pairs of each; and room for as many numbers */
    sherd_tensor *index[2]; /* this shard's sources and targets */
} copying;

static sherd_tensor *refuse(const copying *c, sherd_status status, const char *reason)
{
    char to[128];

    snprintf(to, sizeof to, "%.120s", c->to ? sherd_tensor_text(c->to) : "(NULL)");
    bool distributed = c->a->layout || c->from->layout || (c->to && c->to->layout);
    return sherd__fail_tensor(c->a->world, distributed, status,
                              "%s: %s: a is %.120s, from is %.120s, to is %s", name, reason,
                              sherd_tensor_text(c->a), sherd_tensor_text(c->from), to);
}

static const char *fault_of_numbers(const copying *c, const sherd_tensor *t)
{
    if (t->ndim != 1 || t->dtype != SHERD_I32 || t->shape[0] != c->from->shape[0])
        return "from and to must be i32 and have one dim, of the same size";
    if (t->layout && !c->a->layout)
        return "a is plain, and the others are not";
    if (t->layout && t->layout->spec.mesh != c->a->layout->spec.mesh)
        return "they lie on two meshes";
    return NULL;
}

static const char *fault(const copying *c)
{
    sherd_tensor *all[] = {c->a, c->from, c->to};
    const char *reason = fault_of_numbers(c, c->from);

    if (!reason && c->to)
        reason = fault_of_numbers(c, c->to);
    if (reason)
        return reason;
    if (c->a->ndim < 1)
        return "a has no dims";
    if (!c->to && c->n > c->a->shape[0])
        return "there are more numbers than rows of a";
    if (sherd__is_expanded(c->a))
        return "a is an expanded view: write into a copy of it (sherd_clone)";
    return sherd__is_recorded(c->a->world, all, 3)
               ? "a gradient would be lost: stop recording (sherd_set_recording)"
               : NULL;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static int64_t shards_of(const copying *c)
{
    return sherd__row_shards(c->a);
}

/* Numbers on all ranks of the mesh. False: failed. */
static bool bring(const copying *c, sherd_tensor **t)
{
    const sherd_layout *whole;

    if (!*t)
        return true;
    if (c->a->layout && !(*t)->layout)
        *t = sherd__promote(*t, c->a->layout->spec.mesh, name);
    if (!sherd_tensor_failed(*t) && (*t)->layout) {
        if (sherd__replicated(&whole, (*t)->layout->spec.mesh, 1, (*t)->shape) != SHERD_OK)
            *t = sherd__fail_diag(c->a->world, true);
        else if (whole != (*t)->layout)
            *t = sherd__move_to(*t, whole, false);
    }
    if (!sherd_tensor_failed(*t))
        *t = sherd__contiguous(*t);
    return !sherd_tensor_failed(*t);
}

/* Whether all rows are there; the first that is not is told. */
static bool are_rows(const copying *c, const int32_t *from, const int32_t *to)
{
    char reason[96];

    for (int64_t i = 0; i < c->n; i++) {
        int32_t target = to ? to[i] : (int32_t)i, worst = from[i] > target ? from[i] : target;
        if (from[i] < 0 || target < 0 || worst < c->a->shape[0])
            continue;
        snprintf(reason, sizeof reason, "number %lld is %d, outside of the %lld rows of a",
                 (long long)i, (int)worst, (long long)c->a->shape[0]);
        refuse(c, SHERD_EINVAL, reason);
        return false;
    }
    return true;
}

static int64_t shard_of(const copying *c, int32_t row)
{
    const sherd__layout_spec *spec = &c->a->layout->spec;
    int64_t lo = 0, hi = shards_of(c) - 1;

    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (sherd__dim_cut(spec->mesh, &spec->dim[0], spec->shape[0], mid + 1) > row)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* In which shard pair i is; those that copy nothing, for a negative number, are in the first. */
static int64_t shard_of_pair(const copying *c, int32_t from, int32_t to)
{
    return shards_of(c) == 1 || from < 0 || to < 0 ? 0 : shard_of(c, to);
}

/*
 * Put the pairs in the order of shards, each shard's as they came. Those that copy nothing stay:
 * ranks outside the mesh know only how many there are in all.
 */
static void sort(copying *c, const int32_t *from, const int32_t *to)
{
    int64_t shards = shards_of(c), *next = c->count + shards, at = 0;

    for (int64_t i = 0; i < c->n; i++)
        c->count[shard_of_pair(c, from[i], to ? to[i] : (int32_t)i)]++;
    for (int64_t s = 0; s < shards; at += c->count[s++])
        next[s] = at;
    for (int64_t i = 0; i < c->n; i++) {
        int32_t target = to ? to[i] : (int32_t)i;
        bool none = from[i] < 0 || target < 0;
        at = next[shard_of_pair(c, from[i], target)]++;
        c->pairs[at] = none ? 0 : from[i];
        c->pairs[c->n + at] = none ? -1 : target;
    }
}

/* The layout of the pairs, sharded as the rows that they write; NULL: plain, or *good is false. */
static const sherd_layout *lay_pairs(const copying *c, bool known, bool *good)
{
    const sherd_layout *out = NULL;

    if (!c->a->layout)
        return NULL;
    sherd__layout_spec spec = {.mesh = c->a->layout->spec.mesh, .ndim = 1, .shape = {c->n}};
    sherd__spec_settle(&spec);
    spec.dim[0] = c->a->layout->spec.dim[0];
    spec.dim[0].cuts = NULL;
    sherd_status status = sherd__layout_intern(&out, &spec);
    if (!status)
        status = sherd__lay_counts(&out, out, c->n, known ? c->count : NULL, 1, name);
    *good = !status;
    if (status)
        sherd__fail_diag(c->a->world, true);
    return out;
}

/* This shard's sources (0) or targets (1) as a tensor. False: failed. */
static bool make_index(copying *c, int which, const sherd_layout *layout)
{
    sherd_world *world = c->a->world;
    sherd_tensor *t = layout ? sherd__new_on(layout, SHERD_I32)
                             : sherd__new_plain(world, SHERD_I32, 1, &c->n, c->from->varies);

    c->index[which] = t;
    if (sherd_tensor_failed(t))
        return false;
    int32_t *data = t->count ? sherd__fresh(t) : NULL;
    if (data && !sherd__is_dry(world))
        memcpy(data, c->pairs + which * c->n + sherd_tensor_offset(t, 0),
               sherd__bytes(t->count) * sizeof *data);
    return data || t->count == 0;
}

/* From the numbers to c->index. False: failed. */
static bool pair_up(copying *c)
{
    const int32_t *from = c->from->count ? sherd__data(c->from) : NULL;
    const int32_t *to = c->to && c->to->count ? sherd__data(c->to) : NULL;
    bool known = !sherd__is_dry(c->a->world) && c->from->count == c->n, good = true;

    if ((c->from->count && !from) || (c->to && c->to->count && !to))
        return false;
    if (known && !are_rows(c, from, to))
        return false;
    if (known)
        sort(c, from, to);
    const sherd_layout *layout = lay_pairs(c, known, &good);
    return good && make_index(c, 0, layout) && make_index(c, 1, layout);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The sources, each in the shard that writes it, laid as the rows of `a`. NULL: failed. */
static sherd_tensor *take(const copying *c)
{
    sherd_tensor *taken = sherd_index_select(c->a, 0, c->index[0]);
    const sherd_layout *to;

    if (c->a->layout && !sherd_tensor_failed(taken)) {
        if (sherd__lay_rows(&to, c->a->layout, c->index[0]->layout) != SHERD_OK)
            taken = sherd__fail_diag(c->a->world, true);
        else if (to != taken->layout)
            taken = sherd__move_to(taken, to, false);
    }
    if (!sherd_tensor_failed(taken))
        taken = sherd__contiguous(taken);
    return sherd_tensor_failed(taken) ? NULL : taken;
}

static bool write_there(const copying *c, sherd_tensor *rows)
{
    sherd_tensor *a = c->a;
    int64_t bytes = sherd__local_count(a, 1, a->ndim) * (int64_t)sherd_dtype_bytes(a->dtype);
    const void *from = sherd__device_data(rows), *index = sherd__device_data(c->index[1]);
    void *to = from && index ? sherd__device_mutable(a) : NULL;

    if (to)
        sherd__device_write_rows(
            sherd__world_device(a->world),
            &(sherd__row_writes){.batch = 1,
                                 .n = rows->local[0],
                                 .bytes = bytes,
                                 .first = sherd_tensor_offset(a, 0),
                                 .entries = a->local[0],
                                 .dst_row = a->stride[0] * (int64_t)sherd_dtype_bytes(a->dtype),
                                 .src_row = bytes},
            to, from, index);
    return to && sherd__device_sound(a->world);
}

static bool write(const copying *c, sherd_tensor *rows)
{
    sherd_tensor *a = c->a;
    size_t bytes = sherd_dtype_bytes(a->dtype);
    bool any = a->count && rows->count;

    if (sherd__left_out(a->world, name, a->dtype, 0, 2 * sherd__local_bytes(rows)))
        return sherd__mutable_view(a) != NULL;
    if (any && sherd__world_device(a->world) && sherd__is_there(a) && sherd__rows_are_dense(a, 1))
        return write_there(c, rows);
    const int32_t *target = any ? sherd__data(c->index[1]) : NULL;
    const char *from = any ? sherd__data(rows) : NULL;
    char *to = (target && from) || !any ? sherd__mutable_view(a) : NULL;
    int64_t row = sherd__local_count(a, 1, a->ndim);
    for (int64_t i = 0; any && to && i < rows->local[0]; i++)
        if (target[i] >= 0)
            sherd__copy_box(bytes, a->ndim - 1, a->local + 1,
                            to + (size_t)((target[i] - sherd_tensor_offset(a, 0)) * a->stride[0]) *
                                     bytes,
                            a->stride + 1, from + (size_t)(i * row) * bytes, rows->stride + 1);
    return to != NULL;
}

/* In a scope, not recorded. */
static bool copy(copying *c)
{
    sherd__heap *heap = sherd__world_heap(c->a->world);

    if (!bring(c, &c->from) || !bring(c, &c->to))
        return false;
    c->pairs = sherd__alloc(heap, 2 * sherd__bytes(c->n) + 1, sizeof *c->pairs);
    c->count = sherd__alloc(heap, 2 * sherd__bytes(shards_of(c)), sizeof *c->count);
    bool good = c->pairs && c->count;
    if (!good)
        sherd__fail_tensor(c->a->world, c->a->layout != NULL, SHERD_ENOMEM, "%s: out of memory",
                           name);
    good = good && pair_up(c);
    sherd__free(heap, c->pairs);
    sherd__free(heap, c->count);
    if (!good || c->a->shape[0] == 0)
        return good;
    sherd_tensor *rows = take(c);
    return rows && write(c, rows);
}

static sherd_tensor *run(copying *c)
{
    sherd_tensor *a = c->a, *noted[3];
    sherd_world *world = a->world;

    if (c->n == 0)
        return a;
    bool begun = sherd__doing_begin(world, name);
    sherd_scope_begin(world);
    bool recording = sherd_set_recording(world, false), good = copy(c);
    sherd_set_recording(world, recording);
    if (good) {
        noted[0] = a;
        noted[1] = c->from;
        noted[2] = c->to;
        sherd__set_varies(a, a->varies | c->from->varies | (c->to ? c->to->varies : 0));
        if (a->layout)
            sherd__note(name, noted, c->to ? 3 : 2, 0, &a, 1);
    }
    sherd_scope_end(world);
    sherd__doing_end(world, begun);
    return good ? a : sherd__failed(world);
}

sherd_tensor *sherd_copy_rows(sherd_tensor *a, sherd_tensor *from, sherd_tensor *to)
{
    copying c = {.a = a, .from = from, .to = to};
    sherd_tensor *given[] = {a, from, to};
    sherd_world *world = a ? a->world : from ? from->world : to ? to->world : NULL;

    if (!world)
        return NULL;
    if (sherd__stop(world, name, given, to ? 3 : 2))
        return sherd__failed(world);
    if (!a || !from)
        return sherd__fail_tensor(world, false, SHERD_EINVAL, "%s: %s is NULL", name,
                                  a ? "from" : "a");
    if (from->world != world || (to && to->world != world))
        return refuse(&c, SHERD_EINVAL, "they are of two worlds");
    c.n = from->ndim == 1 ? from->shape[0] : 0;
    const char *reason = fault(&c);
    if (reason)
        return refuse(&c, SHERD_EINVAL, reason);
    if (a->layout && a->layout->pending_axes)
        return refuse(&c, SHERD_ENOTSUP, "a is a pending sum: settle it");
    return run(&c);
}
