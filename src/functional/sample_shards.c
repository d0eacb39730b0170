/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of logits that are sharded, drawn without gathering them: each rank looks at its shard of
 * every row, so that ranks share the work, and they exchange a few numbers for each row: the
 * largest logits of each shard (those that top_k may keep, otherwise one), the sums of its weights,
 * what top_p needs (sample_nucleus.c), and the index, which one shard has found. Rows with a larger
 * top_k, or with more equal logits than these, are gathered, and drawn by all.
 */
#include "sample.h"

#include <math.h>
#include <string.h>

#include "base/num.h"

/* Shards shorter than this are gathered: that takes no longer than the exchanges. */
enum { LEAST_SHARD = 1024 };

/* Weights are kept from one exchange to the next of as many rows as fit into so many bytes. */
static const int64_t kept_bytes = INT64_C(4) << 20;

bool sherd__sample_stays(const sherd_tensor *logits, bool *apart)
{
    const int last = logits->ndim - 1;

    *apart = false;
    if (!logits->layout || !logits->layout->spec.dim[last].axes)
        return false;
    const sherd__layout_spec *spec = &logits->layout->spec;
    for (int d = 0; d < last; d++)
        *apart = *apart || spec->dim[d].axes;
    return spec->shape[last] / sherd__dim_parts(spec->mesh, &spec->dim[last]) >= LEAST_SHARD;
}

int64_t sherd__sample_shards(const sherd_call *call)
{
    const sherd_tensor *logits = call->in[LOGITS];
    const sherd_layout *layout = logits->layout;

    if (!layout || !sherd__in_mesh(call->world, layout->spec.mesh))
        return 1;
    return sherd__dim_parts(layout->spec.mesh, &layout->spec.dim[logits->ndim - 1]);
}

/* ---- exchanges ------------------------------------------------------------------------------ */

/* [rows, width] of each shard to [rows, shards, width]. False: failed. */
static bool exchange(const sherd__batch *b, sherd_dtype dtype, int64_t width, void *to,
                     const void *from)
{
    const size_t bytes = sherd_dtype_bytes(dtype), of = bytes * (size_t)width;
    int64_t stride;
    const char *all = sherd__sample_exchange(b, dtype, width, b->rows * width, from, &stride);

    for (int64_t r = 0; all && r < b->rows && !sherd__is_dry(b->call->world); r++)
        for (int64_t s = 0; s < b->shards; s++)
            memcpy((char *)to + of * (size_t)(r * b->shards + s),
                   all + bytes * (size_t)(s * stride + r * width), of);
    return all != NULL;
}

static int64_t own_shard(const sherd__batch *b)
{
    const sherd_tensor *logits = b->call->in[LOGITS];
    const sherd__layout_spec *spec = &logits->layout->spec;
    int64_t at[SHERD_MAX_AXES];

    if (!sherd_mesh_coordinate(spec->mesh, sherd_world_rank(b->call->world), at))
        return 0;
    return sherd__dim_shard(spec->mesh, &spec->dim[logits->ndim - 1], at);
}

/* ---- what is drawn --------------------------------------------------------------------------- */

/* The largest of all shards, and from them what top_k leaves out, or why the call fails. */
static bool find_first(sherd__batch *b)
{
    double *own = sherd_call_scratch(b->call, b->rows * b->width * (int64_t)sizeof *own);
    bool dry = sherd__is_dry(b->call->world);

    for (int64_t r = 0; own && r < b->rows && !dry; r++) {
        const int64_t listed = sherd__draw_listed(&b->draw[r]);
        double *list = own + r * b->width;
        if (listed > 1 && b->draw[r].temperature > 0) {
            sherd__sample_loaded(b, r);
            sherd__draw_first(&b->draw[r], listed, list);
        } else {
            list[0] = sherd__sample_most(b->call, r);
        }
        for (int64_t i = b->draw[r].temperature > 0 ? listed : 1; i < b->width; i++)
            list[i] = -INFINITY;
    }
    if (!own || !exchange(b, SHERD_F64, b->width, b->lists, own))
        return false;
    for (int64_t r = 0; r < b->rows && !dry; r++) {
        sherd__row *d = &b->draw[r];
        const double *list = b->lists + r * b->shards * b->width;
        d->most = list[0];
        for (int64_t s = 1; s < b->shards; s++)
            if (!(list[s * b->width] <= d->most) && d->most == d->most)
                d->most = list[s * b->width];
        d->least = -INFINITY;
        const char *fault = sherd__draw_fault(d);
        b->bad[r] = fault;
        if (fault && !sherd__sample_marked(b->call, r, fault))
            return false;
        b->left[r] = b->width > 1 && !fault && d->temperature > 0 &&
                     !sherd__draw_top(d, b->shards, b->width, list, b->next);
    }
    return true;
}

/* Not if all rows take their largest logit, or are gathered; of other ranks' rows that is not
 * known. */
static bool any_weighs(const sherd__batch *b)
{
    if (b->apart)
        return true;
    for (int64_t r = 0; r < b->rows && !sherd__is_dry(b->call->world); r++)
        if (sherd__sample_weighs(b, r))
            return true;
    return sherd__is_dry(b->call->world);
}

static bool find_sums(sherd__batch *b)
{
    int64_t *own = sherd_call_scratch(b->call, b->rows * (int64_t)sizeof *own);

    for (int64_t r = 0; own && r < b->rows && !sherd__is_dry(b->call->world); r++) {
        own[r] = 0;
        if (!sherd__sample_weighs(b, r))
            continue;
        const sherd__row *d = sherd__sample_weighed(b, r, &own[r]);
        if (b->bins && d->top_p < 1 && d->least == -INFINITY)
            sherd__draw_spread(d, &b->bins[r]);
    }
    return own && exchange(b, SHERD_I64, 1, b->sums, own);
}

/* ---- rows that are gathered ------------------------------------------------------------------ */

static int64_t count_left(const sherd__batch *b)
{
    int64_t count = 0;

    for (int64_t r = 0; r < b->rows && !sherd__is_dry(b->call->world); r++)
        count += b->left[r];
    return count;
}

/* Row d, whose shards begin at `all`, each `stride` behind the one before. */
static int32_t draw_left(const sherd__batch *b, sherd__row *d, const double *all, int64_t stride)
{
    const sherd_tensor *logits = b->call->in[LOGITS];
    const int last = logits->ndim - 1;
    int64_t n = 0;

    for (int64_t s = 0; s < b->shards; s++, all += stride) {
        int64_t size = sherd_layout_dim_cut(logits->layout, last, s + 1) - n;
        memcpy(d->x + n, all, sizeof *all * (size_t)size);
        n += size;
    }
    return (int32_t)sherd__draw_whole(d);
}

static bool gather_left(sherd__batch *b, int64_t lefts)
{
    const sherd_tensor *logits = b->call->in[LOGITS];
    const int64_t n = logits->shape[logits->ndim - 1];
    const int64_t longest = sherd__dim_longest(logits->layout->spec.mesh,
                                               &logits->layout->spec.dim[logits->ndim - 1], n);
    double *own = sherd_call_scratch(b->call, longest * lefts * (int64_t)sizeof *own);
    void *room = sherd_call_scratch(b->call, n * SHERD__DRAW_BYTES);
    int64_t i = 0, stride, width = sherd__sample_width(b, longest * lefts);

    if (!own || !room || width <= 0)
        return own && room && width == 0;
    for (int64_t r = 0; r < b->rows; r++)
        if (b->left[r]) {
            sherd__sample_loaded(b, r);
            memcpy(own + i++ * longest, b->draw[r].x, sizeof *own * (size_t)b->draw[r].n);
        }
    const double *all = sherd__sample_exchange(b, SHERD_F64, width, longest * lefts, own, &stride);
    if (!all)
        return false;
    for (int64_t r = i = 0; r < b->rows; r++)
        if (b->left[r]) {
            sherd__row d = b->draw[r];
            sherd__draw_room(&d, room, n);
            b->index[r] = draw_left(b, &d, all + i++ * longest, stride);
        }
    return true;
}

/* ---- indices --------------------------------------------------------------------------------- */

/* The first of the largest. */
static int32_t find_largest(sherd__batch *b, int64_t r, int64_t first)
{
    const double *list = b->lists + r * b->shards * b->width;
    const sherd__row *d = &b->draw[r];
    int64_t s = 0;

    while (list[s * b->width] != d->most)
        s++;
    return s == b->mine ? (int32_t)(first + sherd__sample_first(b->call, r, d)) : -1;
}

/* The index in the row that this shard finds for it; -1: another shard has it. */
static int32_t find_own(sherd__batch *b, int64_t r, int64_t first)
{
    const int64_t *sums = b->sums + r * b->shards;
    int64_t s = 0, place = sherd__draw_place(&b->draw[r], sherd__sample_total(b, r));

    for (; place >= sums[s]; s++)
        place -= sums[s];
    if (s != b->mine)
        return -1;
    sherd__row *d = sherd__sample_weighed(b, r, NULL);
    if (b->limit)
        sherd__draw_leave(d, b->limit[r]);
    return (int32_t)(first + sherd__draw_find(d, place));
}

static bool find_indices(sherd__batch *b)
{
    const sherd_tensor *logits = b->call->in[LOGITS];
    const int64_t first = sherd_tensor_offset(logits, logits->ndim - 1);
    int32_t *own = sherd_call_scratch(b->call, b->rows * (int64_t)sizeof *own), *all;
    int64_t stride;
    bool dry = sherd__is_dry(b->call->world);

    for (int64_t r = 0; own && r < b->rows && !dry; r++)
        own[r] = b->left[r] || b->bad[r]      ? -1
                 : b->draw[r].temperature > 0 ? find_own(b, r, first)
                                              : find_largest(b, r, first);
    const int32_t *found =
        own ? sherd__sample_exchange(b, SHERD_I32, 1, b->rows, own, &stride) : NULL;
    if (!found || dry)
        return found != NULL;
    all = b->call->to[0];
    for (int64_t r = 0; r < b->rows; r++) {
        all[r] = b->index[r];
        for (int64_t s = 0; s < b->shards; s++)
            all[r] = found[s * stride + r] >= 0 ? found[s * stride + r] : all[r];
    }
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool prepare(sherd__batch *b)
{
    const sherd_tensor *logits = b->call->in[LOGITS];
    const int64_t n = logits->local[logits->ndim - 1], rows = b->rows, word = sizeof(int64_t);
    const int64_t cells = rows * b->shards, one = sherd__max(n, 1) * SHERD__DRAW_BYTES / 8 * 8 + 8;

    b->rooms = sherd__min(rows, kept_bytes / one);
    b->lists = sherd_call_scratch(b->call, cells * b->width * word);
    b->sums = sherd_call_scratch(b->call, cells * word);
    b->next = sherd_call_scratch(b->call, b->shards * word);
    b->left = sherd_call_scratch(b->call, rows);
    b->bad = sherd_call_scratch(b->call, rows);
    b->weighed = sherd_call_scratch(b->call, rows);
    b->loaded = sherd_call_scratch(b->call, rows);
    b->index = sherd_call_scratch(b->call, rows * (int64_t)sizeof *b->index);
    b->scratch = sherd_call_scratch(b->call, 2 * b->shards * b->width * word);
    b->draw = sherd_call_scratch(b->call, rows * (int64_t)sizeof *b->draw);
    char *room = sherd_call_scratch(b->call, sherd__min(rows, b->rooms + 1) * one);
    if (b->call->in[TOP_P]) {
        b->limit = sherd_call_scratch(b->call, rows * word);
        b->bins = sherd_call_scratch(b->call, rows * (int64_t)sizeof *b->bins);
    }
    if (!b->lists || !b->sums || !b->next || !b->left || !b->bad || !b->loaded || !b->weighed ||
        !b->index || !b->scratch || !b->draw || !room ||
        (b->call->in[TOP_P] && (!b->limit || !b->bins)))
        return false;
    for (int64_t r = 0; r < rows && !sherd__is_dry(b->call->world); r++) {
        sherd__draw_room(&b->draw[r], room + sherd__min(r, b->rooms) * one, n);
        sherd__sample_row(b->call, r, &b->draw[r]);
        b->index[r] = -1;
        b->loaded[r] = b->weighed[r] = b->left[r] = false;
    }
    return true;
}

bool sherd__sample_sharded(sherd_call *call)
{
    sherd__batch b = {.call = call,
                      .rows = call->out[0]->count,
                      .shards = sherd__sample_shards(call),
                      .width = call->in[TOP_K] ? SHERD__LIKELY : 1};

    sherd__sample_stays(call->in[LOGITS], &b.apart);
    b.mine = own_shard(&b);
    if (!prepare(&b) || !find_first(&b))
        return false;
    if (any_weighs(&b) && (!find_sums(&b) || (call->in[TOP_P] && !sherd__sample_nucleus(&b))))
        return false;
    int64_t lefts = count_left(&b);
    return ((lefts == 0 && !b.apart) || gather_left(&b, lefts)) && find_indices(&b);
}
