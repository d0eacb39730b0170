/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the public options of attention to the operator that does it: what fits is put into groups
 * of heads, masks into as many dims, and what does not is refused in the caller's words. With
 * sharded sequences the dims of the batch are merged, because operators of pieces have one; then
 * shards of any but the first may move.
 */
#include "attend.h"

#include <string.h>

#include "base/saturate.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_shape.h"
#include "world/doing.h"

enum { Q = SHERD__Q, K, V, MASK, OPERANDS };
enum { OUT, LOG_SUM };
enum { LAST_DIMS = 3 }; /* positions, heads, width */

typedef sherd__attend_attributes attend_attributes;

/* ---- from the public options ----------------------------------------------------------------- */

/* Heads, behind dims of batch and positions. */
static int64_t heads_of(const sherd_tensor *t)
{
    return t->shape[t->ndim - 2];
}

/* Whether q, k and v have dims that attention takes. */
static bool have_dims(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v)
{
    return q && k && v && q->ndim >= LAST_DIMS && q->ndim <= SHERD__ATTEND_BATCHES + LAST_DIMS &&
           k->ndim == q->ndim && v->ndim == q->ndim;
}

static bool are_grouped(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v)
{
    return have_dims(q, k, v) && heads_of(k) == heads_of(v) && heads_of(k) > 0 &&
           heads_of(k) < heads_of(q) && heads_of(q) % heads_of(k) == 0;
}

static bool is_general(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v,
                       const sherd_attention_options *options)
{
    return (options && (options->mask || options->dropout != 0 || options->window != 0 ||
                        options->softcap != 0 || options->spans ||
                        (unsigned)options->way > SHERD_ATTENTION_HEADS)) ||
           are_grouped(q, k, v);
}

/* A mask, which fits, as [...,groups,repeat,queries,keys], with as many dims of batch as q. */
static sherd_tensor *spread_mask(sherd_tensor *mask, int batches, int64_t groups, int64_t repeat)
{
    int64_t shape[SHERD_MAX_DIMS];

    if (!mask || sherd_tensor_failed(mask))
        return mask;
    for (int d = 0; d < batches + 4; d++)
        shape[d] = 1;
    for (int d = 0; d < mask->ndim; d++) {
        int at = d + batches + 3 - mask->ndim; /* of [...,heads,queries,keys] */
        if (at < batches) {
            shape[at] = mask->shape[d];
        } else if (at > batches) {
            shape[at + 1] = mask->shape[d];
        } else if (mask->shape[d] != 1) {
            shape[at] = groups;
            shape[at + 1] = repeat;
        }
    }
    return sherd_view(mask, shape, batches + 4);
}

/* Results as the caller has q: heads are one dim. `as`: sherd_view, or sherd_reshape. */
static void shape_results(sherd_tensor *out[2], const sherd_tensor *q, bool summed,
                          sherd_tensor *(*as)(sherd_tensor *, const int64_t *, int))
{
    int batches = q->ndim - LAST_DIMS;
    int64_t shape[SHERD_MAX_DIMS];

    out[OUT] = as(out[OUT], q->shape, q->ndim);
    if (!summed)
        return;
    memcpy(shape, q->shape, sizeof shape);
    shape[batches] = heads_of(q);
    shape[batches + 1] = q->shape[batches];
    out[LOG_SUM] = as(out[LOG_SUM], shape, batches + 2);
}

/* ---- what does not fit ----------------------------------------------------------------------- */

/* Size d of [...,heads,queries,keys]. */
static int64_t scores_size(const sherd_tensor *q, const sherd_tensor *k, int d)
{
    int batches = q->ndim - LAST_DIMS;

    return d < batches        ? q->shape[d]
           : d == batches     ? heads_of(q)
           : d == batches + 1 ? q->shape[batches]
                              : k->shape[batches];
}

static bool broadcasts(const sherd_tensor *mask, const sherd_tensor *q, const sherd_tensor *k)
{
    for (int d = 0; d < mask->ndim; d++)
        if (mask->shape[d] != 1 && mask->shape[d] != scores_size(q, k, d + q->ndim - mask->ndim))
            return false;
    return true;
}

/* Of shapes, for the operator by groups, which would say it of other dims than the caller's. */
static const char *fault_of_shapes(const sherd_tensor *q, const sherd_tensor *k,
                                   const sherd_tensor *v)
{
    int heads = q->ndim - 2;

    for (int d = 0; d < q->ndim; d++) {
        if (k->shape[d] != v->shape[d])
            return "k and v must have one shape";
        if (d != heads && d != heads - 1 && q->shape[d] != k->shape[d])
            return "batch and width of q and k must be equal";
    }
    return heads_of(q) != heads_of(k) && !are_grouped(q, k, v)
               ? "the heads of q must be a multiple of those of k"
               : NULL;
}

static const char *fault_of_mask(const sherd_tensor *mask, const sherd_tensor *q,
                                 const sherd_tensor *k)
{
    if (mask->dtype == SHERD_I32) /* in its place it would be taken for spans */
        return "the mask must be bool or of the dtype of q";
    return mask->ndim > q->ndim || !broadcasts(mask, q, k)
               ? "the mask must broadcast to [...,heads,queries,keys]"
               : NULL;
}

/* Before dims of batch are merged: others may have as many items. */
static const char *fault_of_spans(const sherd_tensor *spans, const sherd_tensor *q)
{
    int batches = q->ndim - LAST_DIMS;
    bool fits = spans->ndim == batches + 2 && spans->shape[batches] == q->shape[batches] &&
                spans->shape[batches + 1] == 2;

    if (spans->dtype != SHERD_I32)
        return "spans must be i32";
    for (int d = 0; d < batches && fits; d++)
        fits = spans->shape[d] == 1 || spans->shape[d] == q->shape[d];
    return fits ? NULL : "spans must be [...,queries,2], with dims of batch of 1 or as of q";
}

static const char *fault_of(const sherd_attention_options *o, const sherd_tensor *q,
                            const sherd_tensor *k)
{
    int positions = q->ndim - LAST_DIMS;

    if (o->zigzag < 0)
        return "zigzag is negative";
    if (o->zigzag > 1 && q->shape[positions] != k->shape[positions])
        return "zigzag needs as many queries as keys";
    if (o->dropout != 0 && !o->generator)
        return "dropout without a generator";
    if (o->mask && o->spans)
        return "spans together with a mask";
    const char *fault = NULL;
    if (o->spans && !sherd_tensor_failed(o->spans))
        fault = fault_of_spans(o->spans, q);
    else if (o->mask && !sherd_tensor_failed(o->mask))
        fault = fault_of_mask(o->mask, q, k);
    if (fault)
        return fault;
    return o->way < SHERD_ATTENTION_CHEAPEST || o->way > SHERD_ATTENTION_HEADS
               ? "there is no such way"
               : NULL;
}

/* Before any operator: only it knows what the caller has passed. */
static sherd_tensor *refuse(sherd_tensor *const *in, const char *fault, bool spans)
{
    const sherd_tensor *q = in[Q];
    bool distributed = q->layout != NULL;

    for (int i = K; i < OPERANDS; i++)
        distributed = distributed || (in[i] && in[i]->layout);
    return sherd__fail_tensor(
        q->world, distributed, SHERD_EINVAL, "sherd_attention: %s: q is %s, k is %s, v is %s%s%s",
        fault, sherd_tensor_text(in[Q]), sherd_tensor_text(in[K]), sherd_tensor_text(in[V]),
        !in[MASK] ? ""
        : spans   ? ", spans is "
                  : ", mask is ",
        in[MASK] ? sherd_tensor_text(in[MASK]) : "");
}

/* Sequences are not sharded, or will be gathered. */
static bool apply(sherd_tensor *out[2], sherd_tensor *const *in,
                  const attend_attributes *attributes, bool general, bool summed)
{
    attend_attributes plain = *attributes;
    sherd_tensor *ordered[OPERANDS];

    plain.zigzag = 0;
    if (attributes->zigzag > 1)
        sherd__attend_in_order(ordered, in, attributes->zigzag);
    sherd_tensor *const *x = attributes->zigzag > 1 ? ordered : in;
    bool good = general ? sherd_apply_all(out, &sherd__attention_general_op, x, OPERANDS, &plain)
                        : sherd__attend_fast(out, x, attributes->scale, attributes->causal);
    if (good && attributes->zigzag > 1) {
        out[OUT] = sherd_zigzag(out[OUT], sherd__attend_batches(in[Q]), attributes->zigzag);
        if (summed)
            out[LOG_SUM] = sherd_zigzag(out[LOG_SUM], -1, attributes->zigzag);
    }
    return good;
}

/* Move the shards from the sequence to heads, and the results back. */
static bool apply_in_heads(sherd_tensor *out[2], sherd_tensor *const *in,
                           const attend_attributes *attributes, const sherd__choice *choice,
                           bool general)
{
    const sherd_redistribute_options begin = {.begin = true};
    sherd_tensor *there[OPERANDS] = {in[Q], in[K], in[V], in[MASK]};

    for (int i = Q; i <= V; i++)
        if (there[i]->layout)
            there[i] = sherd_redistribute(there[i], choice->to[i], &begin);
    if (!apply(out, there, attributes, general, choice->back_sum != NULL))
        return false;
    out[OUT] = sherd_redistribute(out[OUT], choice->back, NULL);
    if (choice->back_sum)
        out[LOG_SUM] = sherd_redistribute(out[LOG_SUM], choice->back_sum, NULL);
    return true;
}

static bool apply_sharded(sherd_tensor *out[2], sherd_tensor *const *in,
                          const attend_attributes *attributes, sherd_attention_way asked,
                          bool general, bool summed)
{
    attend_attributes mine = *attributes;
    sherd__choice choice;

    if (sherd_tensor_failed(in[Q]))
        return apply(out, in, attributes, general, summed);
    if (sherd__attend_choose(&choice, in, &mine, asked)) {
        out[OUT] = out[LOG_SUM] = sherd__fail_diag(in[Q]->world, true);
        return false;
    }
    if (choice.way == SHERD_ATTENTION_CHEAPEST)
        return apply(out, in, attributes, general, summed);
    if (!summed)
        choice.back_sum = NULL;
    if (choice.way == SHERD_ATTENTION_HEADS)
        return apply_in_heads(out, in, attributes, &choice, general);
    mine.ring = choice.way == SHERD_ATTENTION_RING;
    return sherd_apply_all(out, &sherd__attention_pieces_op, in, OPERANDS, &mine);
}

/* ---- several dims of batch, of which sequences are sharded ----------------------------------- */

/* t with its dims of batch as one, of `items`, or of 1 if they all are. */
static sherd_tensor *merge_batch(sherd_tensor *t, int batches, int64_t items)
{
    int64_t shape[SHERD_MAX_DIMS];

    shape[0] = sherd__times_all(1, batches, t->shape) == 1 ? 1 : items;
    memcpy(shape + 1, t->shape + batches, (size_t)(t->ndim - batches) * sizeof *shape);
    return sherd_reshape(t, shape, t->ndim - batches + 1);
}

/*
 * The same of a mask, or of spans: repeated, if it is stretched in some dims of batch only; with
 * one of 1 if there is none.
 */
static sherd_tensor *merge_mask(sherd_tensor *t, const sherd_tensor *q, int last, int64_t items)
{
    int batches = q->ndim - LAST_DIMS, own = t ? t->ndim - last : 0;
    int64_t shape[SHERD_MAX_DIMS];

    if (!t || sherd_tensor_failed(t) || own < 0)
        return t;
    int64_t product = sherd__times_all(1, own, t->shape);
    if (product != 1 && product != items) {
        memcpy(shape, q->shape, (size_t)batches * sizeof *shape);
        memcpy(shape + batches, t->shape + own, (size_t)last * sizeof *shape);
        t = sherd_expand(t, shape, batches + last);
        own = batches;
    }
    return merge_batch(t, own, items);
}

static bool attend_with(sherd_tensor *out[2], sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                        const sherd_attention_options *options, bool summed);

static bool attend_merged(sherd_tensor *out[2], sherd_tensor *const *in,
                          const sherd_attention_options *o, bool summed)
{
    const sherd_tensor *q = in[Q];
    int batches = q->ndim - LAST_DIMS;
    int64_t items = sherd__times_all(1, batches, q->shape);
    sherd_attention_options own = *o;
    sherd_tensor *t[MASK];

    for (int i = Q; i <= V; i++)
        t[i] = merge_batch(in[i], batches, items);
    own.mask = merge_mask(o->mask, q, 3, items);
    own.spans = merge_mask(o->spans, q, 2, items);
    if (!attend_with(out, t[Q], t[K], t[V], &own, summed))
        return false;
    shape_results(out, q, summed, sherd_reshape);
    return !sherd_tensor_failed(out[OUT]) && (!summed || !sherd_tensor_failed(out[LOG_SUM]));
}

/* ---- the way of every call that is not simple ------------------------------------------------ */

/* Heads by groups, and the mask with them. */
static void group(sherd_tensor **in, sherd_tensor *spans, sherd_tensor *mask)
{
    sherd_tensor *q = in[Q];
    int batches = q->ndim - LAST_DIMS;
    int64_t groups = are_grouped(q, in[K], in[V]) ? heads_of(in[K]) : heads_of(q);
    int64_t repeat = groups ? heads_of(q) / groups : 1, shape[SHERD_MAX_DIMS];

    memcpy(shape, q->shape, (size_t)(batches + 1) * sizeof *shape);
    shape[batches + 1] = groups;
    shape[batches + 2] = repeat;
    shape[batches + 3] = q->shape[q->ndim - 1];
    in[Q] = sherd_view(q, shape, batches + 4);
    in[MASK] = spans ? spans : spread_mask(mask, batches, groups, repeat);
}

/* Of operands that are there. */
static const char *fault_of_operands(sherd_tensor *const *in, const sherd_attention_options *o,
                                     bool general)
{
    const char *fault = have_dims(in[Q], in[K], in[V]) ? NULL : SHERD__ATTEND_DIMS;

    if (!fault)
        fault = fault_of(o, in[Q], in[K]);
    return fault || !general ? fault : fault_of_shapes(in[Q], in[K], in[V]);
}

static bool attend(sherd_tensor *out[2], sherd_tensor **in, attend_attributes *attributes,
                   const sherd_attention_options *o, bool summed)
{
    sherd_tensor *q = in[Q];
    bool general = is_general(q, in[K], in[V], o), good = true;
    bool sharded = sherd__attend_is_sharded(q, in[K], in[V]);

    for (int i = Q; i <= V; i++)
        good = good && in[i] && !sherd_tensor_failed(in[i]);
    const char *fault = good ? fault_of_operands(in, o, general) : NULL;
    if (fault) {
        out[OUT] = out[LOG_SUM] = refuse(in, fault, o->spans != NULL);
        return false;
    }
    if (good && sharded && q->ndim != 4)
        return attend_merged(out, in, o, summed);
    if (o->dropout != 0 && o->generator && in[Q])
        attributes->key = sherd__next_key(sherd_tensor_world(in[Q]), o->generator);
    if (good)
        group(in, o->spans, o->mask);
    if (!(sharded ? apply_sharded(out, in, attributes, o->way, general, summed)
                  : apply(out, in, attributes, general, summed)))
        return false;
    shape_results(out, q, summed, sherd_view);
    return !sherd_tensor_failed(out[OUT]) && !sherd_tensor_failed(out[LOG_SUM]);
}

static bool attend_with(sherd_tensor *out[2], sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                        const sherd_attention_options *options, bool summed)
{
    const sherd_attention_options o = options ? *options : (sherd_attention_options){0};
    attend_attributes attributes = {.scale = sherd__attend_scale(q, options),
                                    .causal = o.causal,
                                    .p = o.dropout,
                                    .window = o.window,
                                    .zigzag = o.zigzag,
                                    .softcap = o.softcap};
    sherd_tensor *in[OPERANDS] = {q, k, v, o.spans ? o.spans : o.mask};
    sherd_world *world = NULL;

    for (int i = 0; i < OPERANDS && !world; i++)
        world = sherd_tensor_world(in[i]);
    bool begun = sherd__doing_begin(world, "sherd_attention");
    bool good = attend(out, in, &attributes, &o, summed);
    sherd__doing_end(world, begun);
    return good;
}

/* Without more options, on sequences that are whole. */
static bool is_simple(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v,
                      const sherd_attention_options *options)
{
    return !is_general(q, k, v, options) && !sherd__attend_is_sharded(q, k, v) &&
           !(options && options->zigzag != 0);
}

/* By the operator that is called so, which always sums, or by the general ones. */
static bool call(sherd_tensor *out[2], sherd_tensor *const *in,
                 const sherd_attention_options *options, bool with, bool summed)
{
    sherd_tensor *q = in[Q], *k = in[K], *v = in[V];

    return is_simple(q, k, v, options)
               ? sherd__attend_heads(out, in, sherd__attend_scale(q, options),
                                     options && options->causal, with)
               : attend_with(out, q, k, v, options, summed);
}

sherd_tensor *sherd_attention(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                              const sherd_attention_options *options)
{
    sherd_tensor *out[2];

    (void)call(out, (sherd_tensor *[]){q, k, v}, options, false, false);
    return out[OUT];
}

bool sherd_attention_with(sherd_tensor **out, sherd_tensor **log_sum, sherd_tensor *q,
                          sherd_tensor *k, sherd_tensor *v, const sherd_attention_options *options)
{
    sherd_tensor *result[2] = {NULL, NULL};
    bool good = call(result, (sherd_tensor *[]){q, k, v}, options, true, log_sum != NULL);

    if (out)
        *out = result[OUT];
    if (log_sum)
        *log_sum = result[LOG_SUM];
    return good;
}
