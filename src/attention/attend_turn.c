/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's round over the keys and values that its queries see: the state that it keeps, and the
 * loop that fetches one piece while another is computed with. Shared by forward and backward
 * (attend_pieces.c).
 */
#include "attend_turn.h"

#include <string.h>

#include "base/num.h"

enum { K = SHERD__K, BATCH = SHERD__BATCH, POSITIONS = SHERD__POSITIONS };

/* ---- numbers --------------------------------------------------------------------------------- */

void *sherd__turn_room(const sherd__turn *r, int64_t n)
{
    int64_t bytes = sherd__max(n, 1) * (int64_t)sherd_dtype_bytes(r->dtype);

    return r->device ? sherd__device_scratch(r->call, bytes) : sherd_call_scratch(r->call, bytes);
}

void sherd__turn_clear(const sherd__turn *r, void *to, int64_t n)
{
    int64_t bytes = n * (int64_t)sherd_dtype_bytes(r->dtype);

    if (r->dry)
        return;
    if (r->device && bytes)
        sherd__device_set(r->device, to, 0, bytes);
    else if (bytes)
        memset(to, 0, (size_t)bytes);
}

static void widen(const sherd__turn *r, sherd_dtype from, int64_t n, void *to, const void *what)
{
    if (!r->dry)
        sherd__convert(sherd__world_kernels(r->call->world), r->dtype, from, n, to, what);
}

/* Operand i in the dtype that is computed in: on the GPU, its own. False: failed. */
bool sherd__turn_take(sherd__turn *r, const void **out, int i)
{
    const sherd_tensor *t = r->call->in[i];

    *out = t ? r->call->from[i] : NULL;
    if (!*out || t->dtype == r->dtype || r->device)
        return true;
    void *wide = sherd__turn_room(r, t->count);
    if (wide)
        widen(r, t->dtype, t->count, wide, *out);
    *out = wide;
    return wide != NULL;
}

/* Zeros for accumulating result j: the result itself, unless it has 16 bits. NULL: failed. */
void *sherd__turn_sums(sherd__turn *r, int j)
{
    const sherd_tensor *t = r->call->out[j];
    void *sums = t->dtype == r->dtype ? r->call->to[j] : NULL;

    if (!sums)
        sums = sherd__turn_room(r, t->count);
    if (sums)
        sherd__turn_clear(r, sums, t->count);
    return sums;
}

/* Write the accumulated result j, at the end. */
void sherd__turn_give(const sherd__turn *r, int j, const void *sums)
{
    const sherd_tensor *t = r->call->out[j];

    if (r->dry)
        return;
    if (t->count && sums != r->call->to[j] && r->device)
        sherd__device_convert(r->device, t->dtype, r->dtype, t->count, r->call->to[j], sums);
    else if (t->count && sums != r->call->to[j])
        sherd__convert(sherd__world_kernels(r->call->world), t->dtype, r->dtype, t->count,
                       r->call->to[j], sums);
}

/* ---- the round ------------------------------------------------------------------------------- */

const sherd_tensor *sherd__turn_keys(const sherd__turn *r)
{
    return r->call->in[r->q + K];
}

static int64_t keys_at(const sherd__turn *r, int visit, int64_t *first)
{
    int64_t end = 0;

    *first = 0;
    if (r->mine >= 0)
        sherd__round_keys(&r->plan, visit, r->mine, first, &end);
    return r->mine >= 0 ? end - *first : 0;
}

/* For the operands from q on. False: failed. */
bool sherd__turn_prepare(sherd__turn *r, sherd_call *call, int q)
{
    const sherd__attend_attributes *a = call->attributes;
    const sherd_tensor *queries = call->in[q], *keys = call->in[q + K];
    const sherd__layout_spec *spec = &queries->layout->spec;
    int64_t coordinate[SHERD_MAX_AXES], first, rows = keys->local[BATCH] * keys->local[2];

    *r = (sherd__turn){
        .call = call, .q = q, .device = sherd__device_in(call), .own = queries->dtype, .mine = -1};
    r->dry = sherd__is_dry(call->world);
    r->dtype = queries->dtype == SHERD_F64 ? SHERD_F64 : SHERD_F32;
    r->kernels = sherd__kernels_of(sherd__world_kernels(call->world), r->dtype);
    r->plan = sherd__round_of(queries->layout, keys->layout, a);
    r->s = sherd__attend_problem(call, q).s;
    r->split = a->zigzag > 1;
    if (sherd__coordinate(queries, coordinate))
        r->mine = sherd__dim_shard(spec->mesh, &spec->dim[POSITIONS], coordinate);
    r->most = a->ring ? keys->local[POSITIONS] : 0;
    for (int v = 0; v < r->plan.visits; v++)
        r->most = sherd__max(r->most, keys_at(r, v, &first));
    sherd__open_in(call);
    for (int i = 0; i < 2 && keys->dtype != r->dtype && !r->device; i++)
        if (!(r->wide[i] = sherd__turn_room(r, rows * r->most * r->s.width)))
            return false;
    r->s.keys = r->most;
    if (!r->device && !(r->workspace = sherd__attend_workspace(call, r->dtype, &r->s)))
        return false;
    r->more = sherd__turn_room(r, queries->count);
    return r->more && sherd__turn_take(r, &r->queries, q);
}

/* Begin a visit. False: failed. */
static bool begin(const sherd__turn *r, int visit, sherd__turn_parcel *to)
{
    sherd_status status;

    *to = (sherd__turn_parcel){.window = sherd__round_window(&status, &r->plan, visit)};
    if (status)
        sherd__fail_diag(r->call->world, true);
    for (int i = 0; i < 2; i++)
        to->list[i] = (sherd__windowed){.window = to->window, .whole = r->call->in[r->q + K + i]};
    return !status && (!to->window || sherd__gather_windows(to->list, 2, true, r->call->op->name));
}

void sherd__parcel_drop(sherd__turn_parcel *p)
{
    for (int i = 0; i < 2 && p->window; i++)
        if (p->list[i].piece)
            sherd_tensor_release(p->list[i].piece);
    sherd__window_release(p->window);
    *p = (sherd__turn_parcel){.window = NULL};
}

/* The piece that a visit has fetched; k is NULL if it is empty. False: failed. */
static bool open_piece(const sherd__turn *r, const sherd__turn_parcel *from, int visit,
                       sherd__piece *out)
{
    const void *data[2] = {NULL, NULL};

    *out = (sherd__piece){.visit = visit};
    out->keys = keys_at(r, visit, &out->first);
    for (int i = 0; i < 2 && from->window; i++) {
        sherd_tensor *t = from->list[i].piece;
        if (t->count && !(data[i] = r->device ? sherd__device_data(t) : sherd__data(t)))
            return false;
        if (t->count && r->wide[i]) {
            widen(r, t->dtype, t->count, r->wide[i], data[i]);
            data[i] = r->wide[i];
        }
    }
    out->k = data[0];
    out->v = data[1];
    return true;
}

/* This rank's own piece, in a ring. */
static void open_own(const sherd__turn *r, sherd__piece *out)
{
    const sherd_tensor *k = sherd__turn_keys(r);
    const void *data[2];

    *out = (sherd__piece){.visit = -1, .keys = k->local[POSITIONS]};
    out->first = sherd_tensor_box(k).offset[POSITIONS];
    for (int i = 0; i < 2; i++) {
        data[i] = r->call->from[r->q + K + i];
        if (data[i] && r->wide[i]) {
            widen(r, k->dtype, k->count, r->wide[i], data[i]);
            data[i] = r->wide[i];
        }
    }
    out->k = data[0];
    out->v = data[1];
}

/* ---- strips ---------------------------------------------------------------------------------- */

void *sherd__turn_at(const void *p, int64_t n, sherd_dtype dtype)
{
    return p ? (char *)p + n * (int64_t)sherd_dtype_bytes(dtype) : NULL;
}

/* The strip at x->item, of x->q and x->k. */
static void set_strip(const sherd__turn *r, const sherd__piece *p, sherd__strip *x)
{
    const sherd__attending *all = &r->s;
    int64_t heads = all->groups * all->repeat, query = x->q.row - all->first_query;

    x->s = *all;
    x->s.queries = x->q.rows;
    x->s.first_query = x->q.position;
    x->s.keys = x->k.rows;
    x->s.first_key = x->k.position;
    x->at_query = (x->item * all->queries + query) * heads * all->width;
    x->at_key = (x->item * p->keys + x->k.row - p->first) * all->groups * all->width;
    x->at_row = heads * (x->item * all->queries + query);
    x->at_mask = x->item * all->mask_stride[0] + query * all->mask_stride[3] +
                 (x->k.row - x->k.position) * all->mask_stride[4];
    if (all->mask)
        x->s.mask = sherd__turn_at(all->mask, x->at_mask, all->mask_dtype);
    if (all->span)
        x->s.span = all->span + x->item * all->span_batch + 2 * query;
    if (!r->split)
        return;
    x->s.batch = 1;
    x->s.span_batch = 0;
    x->s.first[0] += x->item;
}

static bool sees(const sherd__attending *s)
{
    return !(s->causal && s->first_key >= s->first_query + s->queries) &&
           !(s->window && s->first_key + s->keys <= s->first_query + 1 - s->window);
}

bool sherd__turn_strip(const sherd__turn *r, const sherd__piece *p, sherd__strip *x)
{
    const sherd__attending *s = &r->s;
    int64_t z = r->split ? r->plan.zigzag : 0, hi = s->first_query + s->queries;

    if (s->batch * s->groups * s->repeat * s->queries == 0)
        return false;
    if (x->item < 0) {
        *x = (sherd__strip){.q = {.row = hi}, .k = {.row = p->first}};
        x->item = s->batch; /* behind the last one */
    }
    do {
        if (++x->item >= (r->split ? s->batch : 1)) {
            x->item = 0;
            if (!sherd__row_run_next(&x->q, s->all_queries, z, hi)) {
                if (!sherd__row_run_next(&x->k, s->all_keys, z, p->first + p->keys))
                    return false;
                x->q = (sherd__row_run){.row = s->first_query};
                sherd__row_run_next(&x->q, s->all_queries, z, hi);
            }
        }
        set_strip(r, p, x);
    } while (!sees(&x->s));
    return true;
}

void sherd__turn_by_strips(const sherd__turn *r, void *to, const void *from, bool back)
{
    const sherd__attending *s = &r->s;
    int64_t heads = s->groups * s->repeat, hi = s->first_query + s->queries;

    for (int64_t b = 0; b < s->batch && !r->dry; b++)
        for (sherd__row_run q = {.row = s->first_query};
             sherd__row_run_next(&q, s->all_queries, r->plan.zigzag, hi);) {
            int64_t item = b * heads * s->queries, first = q.row - s->first_query;
            const int64_t size[] = {heads, q.rows}, at[] = {item + first, item + heads * first};
            const int64_t stride[2][2] = {{s->queries, 1}, {q.rows, 1}};
            sherd__copy_in(r->call, sherd_dtype_bytes(r->dtype), 2, size,
                           sherd__turn_at(to, at[!back], r->dtype), stride[!back],
                           sherd__turn_at(from, at[back], r->dtype), stride[back]);
        }
}

const void *sherd__turn_take_rows(const sherd__turn *r, const void *from)
{
    const sherd__attending *s = &r->s;
    void *to = from && r->split ? sherd__turn_room(r, s->batch * s->groups * s->repeat * s->queries)
                                : NULL;

    if (to)
        sherd__turn_by_strips(r, to, from, false);
    return r->split ? to : from;
}

/* Whether this rank's queries see anything of a piece. */
bool sherd__turn_meets(const sherd__turn *r, const sherd__piece *p)
{
    return sherd__turn_strip(r, p, &(sherd__strip){.item = -1});
}

/* Meet all pieces; while one is computed with, the next is on its way. False: failed. */
bool sherd__turn_go(sherd__turn *r, bool (*meet)(sherd__turn *r, const sherd__piece *p))
{
    sherd__turn_parcel now = {.window = NULL}, next;
    sherd__piece p;
    bool good = begin(r, 0, &next);

    if (good && r->plan.ring) {
        open_own(r, &p);
        good = meet(r, &p);
    }
    for (int v = 0; v < r->plan.visits && good; v++) {
        now = next;
        next = (sherd__turn_parcel){.window = NULL};
        good = (v + 1 == r->plan.visits || begin(r, v + 1, &next)) && open_piece(r, &now, v, &p) &&
               (!now.window || meet(r, &p));
        sherd__parcel_drop(&now);
    }
    sherd__parcel_drop(&next);
    return good;
}
