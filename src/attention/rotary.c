/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary embedding: pairs of elements of each head are rotated by an angle that grows with the
 * position. A rank knows the positions that it holds, so a sharded sequence needs no communication.
 * Linear; the gradient is rotated back. Cosines and sines are computed once per call, for all
 * heads.
 */
#include "ops/shared.h"

#include <stdio.h>

#include "base/num.h"
#include "kernels/layers.h"
#include "sherd/ops_layers.h"
#include "sherd/values.h"

enum { X, POSITIONS, FREQUENCIES, OPERANDS };

typedef struct rotary_attributes {
    double base;
    int64_t offset, rotated;
    bool interleaved, inverse;
} rotary_attributes;

static const char *describe(sherd_call *call)
{
    const rotary_attributes *attributes = call->attributes;
    const sherd_tensor *x = call->in[X], *positions = call->in[POSITIONS],
                       *frequencies = call->in[FREQUENCIES];

    if (x->ndim != 4)
        return "x must have four dims [batch,positions,heads,width]";
    if (attributes->rotated < 0 || attributes->rotated % 2 || attributes->rotated > x->shape[3])
        return sherd_call_reason(call,
                                 "%lld numbers of a head can not turn: an even number, at most "
                                 "the width",
                                 (long long)attributes->rotated);
    if (!(attributes->base > 0))
        return sherd_call_reason(call, "the base is %g, not positive", attributes->base);
    if (positions && attributes->offset)
        return sherd_call_reason(call, "offset is %lld beside positions, which say where all are",
                                 (long long)attributes->offset);
    if (!positions && attributes->offset > INT64_MAX - sherd__max(x->shape[1] - 1, 0))
        return sherd_call_reason(call, "offset is %lld, and the last position beyond 2^63 - 1",
                                 (long long)attributes->offset);
    if (frequencies && (frequencies->dtype != SHERD_F64 || frequencies->ndim != 1 ||
                        frequencies->shape[0] != attributes->rotated / 2))
        return sherd_call_reason(call, "frequencies must be f64[%lld], one for each pair",
                                 (long long)(attributes->rotated / 2));
    snprintf(call->rule, sizeof call->rule, "bshw,%s,f->bshw",
             positions && positions->ndim == 2 ? "bs" : "s");
    return NULL;
}

/* On the GPU cosines and sines are computed where they are needed. */
static bool rotate_there(sherd_call *call, const sherd__rotation *r, bool each)
{
    const rotary_attributes *attributes = call->attributes;
    const sherd_tensor *x = call->in[X];
    const sherd__turning t = {.position = call->from[POSITIONS],
                              .frequency = call->from[FREQUENCIES],
                              .each = each,
                              .inverse = attributes->inverse,
                              .first = attributes->offset + sherd_tensor_box(x).offset[1],
                              .base = attributes->base};

    sherd__device_rotate(sherd__device_in(call), x->dtype, r, &t, call->to[0], call->from[X]);
    return true;
}

static bool rotate(sherd_call *call)
{
    const rotary_attributes *attributes = call->attributes;
    const sherd_tensor *x = call->in[X], *positions = call->in[POSITIONS];
    bool each = positions && positions->ndim == 2;

    if (x->count == 0) /* there may be any number of positions */
        return true;
    int64_t n = each ? positions->count : x->local[1];
    int64_t bytes = n * attributes->rotated * (int64_t)sizeof(double);
    sherd__rotation r = {.batch = x->local[0],
                         .positions = x->local[1],
                         .heads = x->local[2],
                         .width = x->local[3],
                         .rotated = attributes->rotated,
                         .interleaved = attributes->interleaved,
                         .turn_step = each ? x->local[1] * attributes->rotated : 0};

    if (sherd__device_in(call))
        return rotate_there(call, &r, each);
    double *turn = sherd_call_scratch(call, sherd__max(bytes, 1));
    if (!turn || sherd__is_dry(call->world))
        return turn != NULL;
    sherd__turns(turn, n, attributes->rotated, call->from[POSITIONS],
                 attributes->offset + sherd_tensor_box(x).offset[1], attributes->base,
                 call->from[FREQUENCIES], attributes->inverse);
    r.turn = turn;
    sherd__layer_kernels_of(x->dtype)->rotate(&r, call->to[0], call->from[X]);
    return true;
}

static void rotary_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    rotary_attributes attributes = *(const rotary_attributes *)sherd_node_attributes(node);

    attributes.inverse = !attributes.inverse;
    grad_in[X] = sherd_apply(&sherd__rotary_op,
                             (sherd_tensor *[]){grad_out[0], sherd_node_operand(node, POSITIONS),
                                                sherd_node_operand(node, FREQUENCIES)},
                             OPERANDS, &attributes);
}

const sherd_op sherd__rotary_op = {
    .name = "sherd_rotary",
    .summary = "rotary position embedding",
    .operand = {{"x", 0},
                {"positions", SHERD_OP_INDEX | SHERD_OP_OPTIONAL},
                {"frequencies", SHERD_OP_ANY | SHERD_OP_OPTIONAL}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELD(rotary_attributes, base, DOUBLE),
              SHERD_FIELD(rotary_attributes, offset, INT64),
              SHERD_FIELD(rotary_attributes, rotated, INT64),
              SHERD_FIELD(rotary_attributes, interleaved, BOOL),
              SHERD_FIELD(rotary_attributes, inverse, BOOL)},
    .attributes = sizeof(rotary_attributes),
    .whole = "wf",
    .linearity = SHERD_LINEAR,
    .describe = describe,
    .forward = rotate,
    .dry = rotate,
    .on_device = sherd__fractions_there,
    .backward = rotary_back,
    .takes_pending = true,
    .needs = {[X] = SHERD_NEEDS_OPERAND(POSITIONS) | SHERD_NEEDS_OPERAND(FREQUENCIES)}};

/* [positions], in zigzag order, if all of them are i32. */
static sherd_tensor *positions_of(sherd_tensor *x, int64_t offset, int64_t zigzag)
{
    double first = (double)offset;

    if (offset < INT32_MIN || offset > INT32_MAX - sherd__max(x->shape[1] - 1, 0))
        return sherd__fail_tensor(x->world, x->layout != NULL, SHERD_EINVAL,
                                  "sherd_rotary: offset is %lld: in zigzag order positions are "
                                  "i32: x is %s",
                                  (long long)offset, sherd_tensor_text(x));
    sherd_tensor *positions =
        sherd_arange(x->world, SHERD_I32, first, first + (double)x->shape[1], 1);
    return sherd__known_beside(x, sherd_zigzag(positions, 0, zigzag), "sherd_rotary");
}

sherd_tensor *sherd_rotary(sherd_tensor *x, sherd_tensor *positions,
                           const sherd_rotary_options *options)
{
    const sherd_rotary_options o = options ? *options : (sherd_rotary_options){0};
    int64_t width = x && x->ndim == 4 ? x->shape[3] : 0;
    rotary_attributes attributes = {.base = o.base != 0 ? o.base : 10000,
                                    .offset = o.offset,
                                    .rotated = o.rotated ? o.rotated : width,
                                    .interleaved = o.interleaved};

    if (x && x->ndim == 4 && o.zigzag < 0)
        return sherd__fail_tensor(x->world, x->layout != NULL, SHERD_EINVAL,
                                  "sherd_rotary: zigzag is negative: x is %s",
                                  sherd_tensor_text(x));
    if (x && x->ndim == 4 && o.frequencies && o.base != 0)
        return sherd__fail_tensor(x->world, x->layout != NULL, SHERD_EINVAL,
                                  "sherd_rotary: a base beside frequencies: x is %s",
                                  sherd_tensor_text(x));
    if (x && x->ndim == 4 && !positions && o.zigzag > 1) {
        positions = positions_of(x, o.offset, o.zigzag);
        attributes.offset = 0;
    }
    /* Whole: the op is linear in x, but not in these, which must not stay pending. */
    sherd_tensor *frequencies =
        o.frequencies && o.frequencies->layout ? sherd_full(o.frequencies) : o.frequencies;
    return sherd_apply(&sherd__rotary_op, (sherd_tensor *[]){x, positions, frequencies}, OPERANDS,
                       &attributes);
}
