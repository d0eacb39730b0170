/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over sequences that stay sharded. Each rank keeps its queries and meets the keys and
 * values that they see, as a ring of pieces or in one window (attend_lie.c chooses); results over
 * pieces are combined by the logarithms of their sums. Backward makes the same round: the gradients
 * of the keys that a rank met are sent back to their owners and added there, visit by visit. Only a
 * rank's own pieces are saved.
 *
 * In a ring a visit is begun before the previous one is computed with. Sums for 16-bit dtypes are
 * f32 until the end, also while they are sent.
 */
#include "attend_turn.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "device/attention.h"
#include "device/shared_rows.h"
#include "apply/solve.h"

enum { Q = SHERD__Q, K, V, MASK, OPERANDS };
enum { OUT, LOG_SUM };
enum { BATCH, POSITIONS, GROUPS, REPEAT, WIDTH };
enum { G_DOUT = SHERD__G_DOUT, G_DLOG_SUM, G_Q, G_K, G_V, G_MASK, G_OUT, G_LOG_SUM };

/* ---- forward --------------------------------------------------------------------------------- */

/* Results of a strip, joined to what there is. On the GPU: in the dtype of the operands. */
static void attend_strip(sherd__turn *r, const sherd__piece *p, const sherd__strip *x)
{
    void *out = sherd__turn_at(r->out, x->at_query, r->dtype);
    void *log_sum = sherd__turn_at(r->log_sum, x->at_row, r->dtype);
    void *to[2] = {r->started ? r->more : out, r->started ? r->more_log_sum : log_sum};
    sherd_dtype dtype = r->device ? r->own : r->dtype;
    const void *in[3] = {sherd__turn_at(r->queries, x->at_query, dtype),
                         sherd__turn_at(p->k, x->at_key, dtype),
                         sherd__turn_at(p->v, x->at_key, dtype)};

    if (r->device) {
        sherd__device_attention(r->device, r->own, &x->s, r->more, r->more_log_sum, in[Q], in[K],
                                in[V]);
        sherd__device_attention_add(r->device, r->own, &x->s, out, log_sum, r->more,
                                    r->more_log_sum);
        return;
    }
    const sherd__attend_parts whole = sherd__attend_whole(&x->s);
    sherd__attend_kernel(r->kernels, r->dtype, &whole, to, in, r->workspace);
    if (r->started)
        r->kernels->attention_join(&x->s, out, log_sum, to[0], to[1]);
    r->started = true;
}

static bool attend_piece(sherd__turn *r, const sherd__piece *p)
{
    sherd__strip x = {.item = -1};

    while (!r->dry && sherd__turn_strip(r, p, &x))
        attend_strip(r, p, &x);
    return true;
}

/* Logarithms of nothing, for all queries. */
static void hide_all(const sherd__turn *r, int64_t n)
{
    if (n && r->device)
        sherd__device_fill(r->device, r->dtype, r->log_sum, n, -INFINITY);
    else if (n && !r->dry)
        r->kernels->fill(r->log_sum, n, -INFINITY);
}

static bool attend(sherd_call *call)
{
    const sherd_tensor *sums = call->out[LOG_SUM];
    sherd__turn r;

    if (!sherd__attend_check_spans(call) || !sherd__turn_prepare(&r, call, Q))
        return false;
    r.out = sherd__turn_sums(&r, OUT);
    r.log_sum = r.split ? sherd__turn_room(&r, sums->count) : call->to[LOG_SUM];
    r.more_log_sum = sherd__turn_room(&r, sums->count);
    if (!r.out || (r.split && !r.log_sum) || !r.more_log_sum)
        return false;
    r.started = r.split;
    if (r.device || r.split)
        hide_all(&r, sums->count);
    if (!sherd__turn_go(&r, attend_piece))
        return false;
    if (!r.device && !r.started)
        hide_all(&r, sums->count);
    if (r.split && sums->count)
        sherd__turn_by_strips(&r, call->to[LOG_SUM], r.log_sum, true);
    sherd__turn_give(&r, OUT, r.out);
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* On the GPU `from` is of `dtype`, and `to` its statistics. */
static void add(const sherd__turn *r, sherd_dtype dtype, int64_t n, void *to, const void *from)
{
    const int64_t one = 1;

    if (r->dry)
        return;
    if (n && r->device)
        sherd__device_add_up(r->device, dtype, n, to, from);
    else if (n)
        r->kernels->fold(SHERD_SUM, 1, &n, to, &one, from);
}

/*
 * Allocate the gradients of a piece; for this rank's own piece, where they are summed. False:
 * failed.
 */
static bool pack(sherd__turn *r, const sherd__piece *p, sherd__turn_parcel *out, void *data[2])
{
    const sherd_tensor *k = sherd__turn_keys(r);
    const int64_t shape[] = {k->local[0], r->mine >= 0 ? p->keys : 0, k->local[2], k->local[3]};
    sherd_status status;

    *out = (sherd__turn_parcel){.window = NULL};
    data[0] = r->dk;
    data[1] = r->dv;
    if (p->visit < 0)
        return true;
    out->window = sherd__round_window(&status, &r->plan, p->visit);
    if (!out->window) {
        sherd__fail_diag(r->call->world, true);
        return false;
    }
    for (int i = 0; i < 2; i++) {
        sherd_tensor *t =
            sherd__new_plain_there(r->call->world, r->dtype, 4, shape,
                                   sherd__varying_axes(out->window->layout), r->device != NULL);
        if (sherd_tensor_failed(t)) /* it is plain, but others wait for it */
            return sherd__stop(r->call->world, r->call->op->name,
                               (sherd_tensor *[]){t, r->call->in[r->q]}, 2) &&
                   false;
        out->list[i] = (sherd__windowed){.window = out->window, .piece = t};
        data[i] = !t->count ? NULL : r->device ? sherd__device_fresh(t) : sherd__fresh(t);
        if (t->count && (r->device || r->split || !sherd__turn_meets(r, p)))
            sherd__turn_clear(r, data[i], t->count);
    }
    return true;
}

/* Add up the gradients that other ranks have sent back. False: failed. */
static bool unpack(sherd__turn *r)
{
    void *const to[] = {r->dk, r->dv};
    bool good = true;

    for (int i = 0; i < 2 && r->back.window; i++) {
        sherd_tensor *t = r->back.list[i].whole;
        const void *data = !good || !t->count ? NULL
                           : r->device        ? sherd__device_data(t)
                                              : sherd__data(t);
        good = good && (data || !t->count);
        if (data)
            add(r, r->dtype, t->count, to[i], data);
        sherd_tensor_release(t);
    }
    sherd__parcel_drop(&r->back);
    return good;
}

/* By the GPU, in the dtype of the operands. */
static void grad_there(const sherd__turn *r, const sherd__strip *x, const sherd__attend_arrays *a)
{
    sherd__device_attention_back(r->device, r->own, &x->s,
                                 &(sherd__attending_back){.dq = a->out[0],
                                                          .dk = a->out[1],
                                                          .dv = a->out[2],
                                                          .dmask = a->dmask,
                                                          .dout = a->dout,
                                                          .dlog_sum = a->dlog_sum,
                                                          .q = a->q[Q],
                                                          .k = a->q[K],
                                                          .v = a->q[V],
                                                          .out = a->result,
                                                          .log_sum = a->log_sum});
}

/* Gradients of a strip, added to those of its queries and keys, or written where they are alone. */
static void grad_strip(sherd__turn *r, const sherd__piece *p, const sherd__strip *x,
                       void *const data[2])
{
    const sherd__attending *s = &x->s;
    bool apart = r->device || r->split, more = apart || r->started;
    sherd_dtype dtype = r->device ? r->own : r->dtype;
    int64_t keys = s->batch * s->keys * s->groups * s->width;
    int64_t queries = s->batch * s->queries * s->groups * s->repeat * s->width;
    void *dq = sherd__turn_at(r->dq, x->at_query, r->dtype);
    void *const out[] = {more ? r->more : dq, apart ? r->more_dk : data[0],
                         apart ? r->more_dv : data[1]};
    const sherd__attend_arrays a = {
        .out = out,
        .dmask = r->dmask ? r->dmask + x->at_mask : NULL,
        .q = (const void *[]){sherd__turn_at(r->queries, x->at_query, dtype),
                              sherd__turn_at(p->k, x->at_key, dtype),
                              sherd__turn_at(p->v, x->at_key, dtype)},
        .dout = sherd__turn_at(r->dout, x->at_query, dtype),
        .dlog_sum = sherd__turn_at(r->dlog_sum, x->at_row, r->dtype),
        .result = sherd__turn_at(r->result, x->at_query, dtype),
        .log_sum = sherd__turn_at(r->log_sums, x->at_row, r->dtype)};

    const sherd__attend_parts whole = sherd__attend_whole(s);
    if (r->device)
        grad_there(r, x, &a);
    else
        sherd__attend_grad_kernel(r->kernels, r->dtype, &whole, &a, r->workspace);
    if (more)
        add(r, dtype, queries, dq, out[0]);
    for (int i = 0; i < 2 && apart; i++)
        add(r, dtype, keys, sherd__turn_at(data[i], x->at_key, r->dtype), out[1 + i]);
    r->started = true;
}

static void grad_piece(sherd__turn *r, const sherd__piece *p, void *const data[2])
{
    sherd__strip x = {.item = -1};

    while (sherd__turn_strip(r, p, &x))
        grad_strip(r, p, &x, data);
}

/* Gradients are sent back while the next piece is computed with. */
static bool meet_back(sherd__turn *r, const sherd__piece *p)
{
    sherd__turn_parcel next;
    void *data[2];
    bool good = pack(r, p, &next, data);

    if (good && !r->dry)
        grad_piece(r, p, data);
    good = unpack(r) && good;
    good = good && (!next.window ||
                    sherd__fold_windows(next.list, 2, true, sherd__attention_pieces_op.name));
    if (good)
        r->back = next;
    else
        sherd__parcel_drop(&next);
    return good;
}

/* Room for the gradients of a piece's keys and values, where they are added. False: failed. */
static bool open_keys(sherd__turn *r)
{
    const sherd__attending *s = &r->s;
    int64_t keys = s->batch * r->most * s->groups * s->width;

    if (!r->device && !r->split)
        return true;
    r->more_dk = sherd__turn_room(r, keys);
    r->more_dv = sherd__turn_room(r, keys);
    return r->more_dk && r->more_dv;
}

/* Zeroes, to which gradients of the mask are added. NULL: failed. */
static double *open_mask(const sherd__turn *r)
{
    const sherd_tensor *dmask = r->call->out[MASK];
    int64_t bytes = sherd__max(dmask->count, 1) * (int64_t)sizeof(double);
    double *sum =
        r->device ? sherd__device_scratch(r->call, bytes) : sherd_call_scratch(r->call, bytes);

    if (sum && r->device)
        sherd__device_set(r->device, sum, 0, bytes);
    else if (sum && !r->dry)
        memset(sum, 0, (size_t)bytes);
    return sum;
}

static void give_mask(const sherd__turn *r, const double *sum)
{
    const sherd_tensor *dmask = r->call->out[MASK];

    if (r->device)
        sherd__device_convert(r->device, dmask->dtype, SHERD_F64, dmask->count, r->call->to[MASK],
                              sum);
    else
        sherd__attend_give_mask(r->call, sum);
}

static bool attend_back(sherd_call *call)
{
    const sherd__attend_attributes *a = call->attributes;
    sherd__turn r;

    if (!sherd__turn_prepare(&r, call, G_Q) || !open_keys(&r))
        return false;
    double *dmask = open_mask(&r);
    r.dq = sherd__turn_sums(&r, Q);
    r.dk = sherd__turn_sums(&r, K);
    r.dv = sherd__turn_sums(&r, V);
    if (!dmask || !r.dq || !r.dk || !r.dv || !sherd__turn_take(&r, &r.dout, G_DOUT) ||
        !sherd__turn_take(&r, &r.result, G_OUT))
        return false;
    r.log_sums = sherd__turn_take_rows(&r, call->from[G_LOG_SUM]);
    r.dlog_sum = sherd__turn_take_rows(&r, call->from[G_DLOG_SUM]);
    if ((call->from[G_LOG_SUM] && !r.log_sums) || (call->from[G_DLOG_SUM] && !r.dlog_sum))
        return false;
    r.dmask = a->wants_mask ? dmask : NULL;
    bool good = sherd__turn_go(&r, meet_back);
    good = unpack(&r) && good;
    if (!good)
        return false;
    sherd__turn_give(&r, Q, r.dq);
    sherd__turn_give(&r, K, r.dk);
    sherd__turn_give(&r, V, r.dv);
    give_mask(&r, dmask);
    return true;
}

/* ---- where it is computed -------------------------------------------------------------------- */

/* Whether the GPU has kernels for pieces: operands from q on. The same on all ranks whose GPUs are
 * alike. */
static bool has_kernel(const sherd_call *call, int q, sherd__attending_pass pass)
{
    const sherd__device *device = sherd__world_device(call->world);
    const sherd__attend_attributes *attributes = call->attributes;
    const sherd_tensor *queries = call->in[q], *mask = call->in[q + MASK];
    bool spans = sherd__attend_are_spans(mask); /* all kernels take them */
    const sherd__attending s = {.width = queries->shape[WIDTH],
                                .window = 1, /* strips may have any option */
                                .softcap = attributes->softcap,
                                .mask = spans ? NULL : mask, /* whether there is one */
                                .mask_dtype = mask ? mask->dtype : SHERD_DTYPE_NONE};

    return device && sherd__fractions_there(call) &&
           sherd__device_attends(device, queries->dtype, &s, pass);
}

static bool goes_there(const sherd_call *call)
{
    return has_kernel(call, Q, SHERD__ATTENDING_FORWARD);
}

static bool goes_back_there(const sherd_call *call)
{
    const sherd__attend_attributes *a = call->attributes;

    return has_kernel(call, G_Q, a->wants_mask ? SHERD__ATTENDING_TO_MASK : SHERD__ATTENDING_BACK);
}

/* ---- how they lie ---------------------------------------------------------------------------- */

static sherd_status lie(sherd__lying *out, const sherd_ways *ways, int q)
{
    const sherd_layout *operands[OPERANDS];

    for (int i = Q; i < OPERANDS; i++)
        operands[i] = sherd__way_given(ways, q + i);
    return sherd__attend_lie(out, operands);
}

static sherd_status ways_forward(const sherd_call *call, sherd_ways *ways)
{
    sherd__lying l;
    sherd_status status = lie(&l, ways, Q);

    (void)call;
    return status ? status
                  : sherd_way_add(ways, (const sherd_layout *[]){l.q, l.k, l.k, l.mask},
                                  (const sherd_layout *[]){l.q, l.sum});
}

/* A gradient that is pending on these axes. */
static sherd_status pending_on(const sherd_layout **out, const sherd_layout *layout, unsigned axes)
{
    sherd__layout_spec spec = layout->spec;

    for (int a = 0; a < spec.mesh->axes; a++)
        if (axes >> a & 1)
            spec.pending[a] = SHERD_SUM;
    return sherd__layout_intern(out, &spec);
}

/* If the mask's gradient is not needed, it has one element. */
static sherd_status lie_mask_grad(const sherd_layout **out, const sherd__lying *l, bool wanted)
{
    const int64_t one = 1;
    unsigned bits = 0;

    if (!wanted)
        return sherd__replicated(out, l->q->spec.mesh, 1, &one);
    for (int d = 0; d < SHERD__MASK_DIMS; d++)
        bits |= sherd__dim_bits(&l->q->spec.dim[d]) & ~sherd__dim_bits(&l->mask->spec.dim[d]);
    return pending_on(out, l->mask, bits & ~l->mask->shard_axes);
}

static sherd_status ways_backward(const sherd_call *call, sherd_ways *ways)
{
    const sherd__attend_attributes *a = call->attributes;
    const sherd_layout *dk = NULL, *dmask = NULL;
    sherd__lying l;
    sherd_status status = lie(&l, ways, G_Q);

    if (!status)
        status = pending_on(&dk, l.k, sherd__dim_bits(&l.q->spec.dim[REPEAT]));
    if (!status)
        status = lie_mask_grad(&dmask, &l, a->wants_mask);
    if (status)
        return status;
    return sherd_way_add(ways,
                         (const sherd_layout *[]){call->in[G_DOUT] ? l.q : NULL,
                                                  call->in[G_DLOG_SUM] ? l.sum : NULL, l.q, l.k,
                                                  l.k, l.mask, l.q, l.sum},
                         (const sherd_layout *[]){l.q, dk, dk, dmask});
}

/* ---- the operators --------------------------------------------------------------------------- */

static const sherd_op pieces_grad_op = {.name = "sherd_attention_pieces backward",
                                        SHERD__ATTEND_BACKWARD,
                                        .ways = ways_backward,
                                        .forward = attend_back,
                                        .dry = attend_back,
                                        .on_device = goes_back_there};

static void pieces_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd__attend_gradients(node, &pieces_grad_op, grad_out, grad_in);
}

const sherd_op sherd__attention_pieces_op = {
    .name = "sherd_attention_pieces",
    .summary = "sherd_attention_general over sequences that stay sharded",
    .layouts = "as q; k and v on the same axes",
    SHERD__ATTEND_FORWARD,
    .ways = ways_forward,
    .forward = attend,
    .dry = attend,
    .on_device = goes_there,
    .backward = pieces_back};
