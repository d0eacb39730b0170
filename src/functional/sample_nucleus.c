/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top_p of rows that are sharded: the least weight that each row keeps, and what each shard keeps.
 * If top_k has left few elements, they are in the lists that all ranks have. Otherwise shards add
 * up their weights in bins, 4 KiB for each row, and exchange these; then the weights of the bin in
 * which the threshold is, a few of a hundred.
 */
#include "sample.h"

#include <math.h>
#include <string.h>

#include "base/num.h"

/* What each shard's weights from b->limit on are, where top_k had left few: one more exchange. */
static bool find_kept(sherd__batch *b)
{
    int64_t *own = sherd_call_scratch(b->call, b->rows * (int64_t)sizeof *own), stride;
    bool dry = sherd__is_dry(b->call->world);

    for (int64_t r = 0; own && r < b->rows && !dry; r++) {
        own[r] = -1;
        if (sherd__sample_weighs(b, r) && b->limit[r] > 0)
            own[r] = sherd__draw_leave(sherd__sample_weighed(b, r, NULL), b->limit[r]);
    }
    const int64_t *all =
        own ? sherd__sample_exchange(b, SHERD_I64, 1, b->rows, own, &stride) : NULL;
    for (int64_t r = 0; all && r < b->rows && !dry; r++)
        for (int64_t s = 0; s < b->shards && own[r] >= 0; s++)
            b->sums[r * b->shards + s] = all[s * stride + r];
    return all != NULL;
}

/* ---- by bins --------------------------------------------------------------------------------- */

static const int64_t words = sizeof(sherd__bins) / sizeof(int64_t);

/* Rows whose threshold is found by bins. */
typedef struct open_rows {
    int64_t count, *row, *target;
    int *bin;
    int64_t most; /* that one shard has of one row's bin */
} open_rows;

/* The bin of each row; b->sums becomes what lies above it. */
static bool find_bins(sherd__batch *b, open_rows *o, int64_t width)
{
    sherd__bins *own = sherd_call_scratch(b->call, o->count * (int64_t)sizeof *own);
    int64_t stride;

    for (int64_t i = 0; own && i < o->count; i++)
        own[i] = b->bins[o->row[i]];
    const int64_t *all =
        own ? sherd__sample_exchange(b, SHERD_I64, width, o->count * words, own, &stride) : NULL;
    for (int64_t i = 0; all && i < o->count; i++) {
        int64_t r = o->row[i];
        sherd__bins sum = {{0}, {0}};
        for (int64_t s = 0; s < b->shards; s++)
            for (int j = 0; j < SHERD__BINS; j++)
                sum.mass[j] += all[s * stride + i * words + j];
        o->bin[i] = sherd__draw_bin(&b->draw[r], sherd__sample_total(b, r), &sum, &o->target[i]);
        for (int64_t s = 0; s < b->shards; s++) {
            const int64_t *mass = all + s * stride + i * words;
            o->most = sherd__max(o->most, mass[SHERD__BINS + o->bin[i]]);
            b->sums[r * b->shards + s] = 0;
            for (int j = o->bin[i] + 1; j < SHERD__BINS; j++)
                b->sums[r * b->shards + s] += mass[j];
        }
    }
    return all != NULL;
}

/* The least weight of row r, of the weights of its bin in all shards, which are 0 where fewer. */
static void find_limit(sherd__batch *b, const open_rows *o, int64_t i, const int64_t *all,
                       int64_t stride, int64_t *room)
{
    int64_t r = o->row[i], n = 0;

    for (int64_t s = 0; s < b->shards; s++)
        for (int64_t j = 0; j < o->most && all[s * stride + j]; j++)
            room[n++] = all[s * stride + j];
    b->limit[r] = sherd__draw_threshold(room, n, o->target[i]);
    for (int64_t s = 0; s < b->shards; s++)
        for (int64_t j = 0; j < o->most && all[s * stride + j]; j++)
            if (all[s * stride + j] >= b->limit[r])
                b->sums[r * b->shards + s] += all[s * stride + j];
}

static bool find_limits(sherd__batch *b, const open_rows *o)
{
    const int64_t word = sizeof(int64_t);
    int64_t *own = sherd_call_scratch(b->call, o->count * o->most * word), stride;
    int64_t *room = sherd_call_scratch(b->call, b->shards * o->most * word);
    int64_t width = sherd__sample_width(b, o->count * o->most);

    if (!own || !room || width < 0)
        return false;
    for (int64_t i = 0; i < o->count; i++) {
        int64_t *to = own + i * o->most;
        int64_t n = sherd__draw_take(sherd__sample_weighed(b, o->row[i], NULL), o->bin[i], to);
        memset(to + n, 0, sizeof *to * (size_t)(o->most - n));
    }
    const int64_t *all = sherd__sample_exchange(b, SHERD_I64, sherd__max(width, 1),
                                                o->count * o->most, own, &stride);
    for (int64_t i = 0; all && i < o->count; i++)
        find_limit(b, o, i, all + i * o->most, stride, room);
    return all != NULL;
}

/* ---- both ------------------------------------------------------------------------------------ */

bool sherd__sample_nucleus(sherd__batch *b)
{
    const int64_t word = sizeof(int64_t);
    open_rows o = {.row = sherd_call_scratch(b->call, b->rows * word),
                   .target = sherd_call_scratch(b->call, b->rows * word),
                   .bin = sherd_call_scratch(b->call, b->rows * (int64_t)sizeof *o.bin)};

    if (!o.row || !o.target || !o.bin)
        return false;
    for (int64_t r = 0; r < b->rows && !sherd__is_dry(b->call->world); r++) {
        const sherd__row *d = &b->draw[r];
        b->limit[r] = 0;
        if (!sherd__sample_weighs(b, r) || d->top_p == 1)
            continue;
        if (d->least == -INFINITY) {
            o.row[o.count++] = r;
            continue;
        }
        b->limit[r] = sherd__draw_likely(d, sherd__sample_total(b, r), b->shards, b->width,
                                         b->lists + r * b->shards * b->width, b->next, b->scratch);
        b->left[r] = b->limit[r] == 0;
    }
    if (b->call->in[TOP_K] && !find_kept(b))
        return false;
    int64_t width = sherd__sample_width(b, o.count * words);
    return width == 0 || (width > 0 && find_bins(b, &o, width) && find_limits(b, &o));
}
