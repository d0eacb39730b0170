/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maximum of each window, and its position: a second result, counted in the whole space, from
 * which backward knows where a gradient belongs. Backward reads the gradients and positions of the
 * windows that overlap its piece.
 */
#include "taps.h"

#include <string.h>

#include "base/saturate.h"
#include "device/fields.h"
#include "kernels/pool.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_stencil.h"
#include "ops/pick.h"

enum { AT = 1 };

/* Of the elements of a piece: other sizes may be any beside one of 0. */
static int64_t count(int64_t outer, const int64_t *size)
{
    return sherd__times_all(outer, SHERD__POOL_DIMS, size);
}

/* The pieces of what is read and made; spatial dims are the last ones. */
static sherd__pool geometry(const sherd_call *call, const sherd_box *big, const sherd_box *small,
                            const int64_t *shape)
{
    int dims = big->ndim - SHERD__SPACE, skip = SHERD__POOL_DIMS - dims;
    sherd__pool p = {.outer = sherd__times(big->size[0], big->size[1])};

    for (int i = 0; i < SHERD__POOL_DIMS; i++) {
        p.in[i] = p.out[i] = p.kernel[i] = p.stride[i] = p.dilation[i] = p.whole[i] = 1;
        if (i < skip)
            continue;
        int d = SHERD__SPACE + i - skip;
        sherd__taps t = sherd__taps_of(call->attributes, i - skip, shape[d], 0, SHERD_F64);
        p.in[i] = big->size[d];
        p.out[i] = small->size[d];
        p.kernel[i] = t.kernel;
        p.stride[i] = t.stride;
        p.dilation[i] = t.dilation;
        p.before[i] = t.padding + big->offset[d] - small->offset[d] * t.stride;
        p.offset[i] = big->offset[d];
        p.whole[i] = shape[d];
    }
    return p;
}

/* Set the parts of a forward whose windows are equal parts of the whole space. */
static void set_parts(sherd__pool *p, const sherd_tensor *y, const sherd_box *small)
{
    int skip = SHERD__POOL_DIMS - (y->ndim - SHERD__SPACE);

    for (int i = 0; i < SHERD__POOL_DIMS; i++) {
        p->parts[i] = i < skip ? 1 : y->shape[SHERD__SPACE + i - skip];
        p->first_part[i] = i < skip ? 0 : small->offset[SHERD__SPACE + i - skip];
    }
}

static int mode_of(const sherd_call *call)
{
    return ((const sherd__taps_attributes *)call->attributes)->mode;
}

/* Programs of the GPU know windows of one size only. */
static bool windows_there(const sherd_call *call)
{
    return mode_of(call) == SHERD__TAPS_MAXIMUM && sherd__fractions_there(call);
}

/* Elements as f32 or f64: themselves, or converted; NULL: no memory. */
static const void *widened(sherd_call *call, const void *from, int64_t count)
{
    if (!sherd__is_half(call->out[0]->dtype))
        return from;
    float *wide = sherd_call_scratch(call, count * (int64_t)sizeof *wide);
    if (wide && !sherd__is_dry(call->world))
        sherd__kernels_in(call)->widen(count, wide, from);
    return wide;
}

static void *room(sherd_call *call, int64_t count)
{
    return sherd__is_half(call->out[0]->dtype)
               ? sherd_call_scratch(call, count * (int64_t)sizeof(float))
               : call->to[0];
}

static void settle(sherd_call *call, const void *made, int64_t count)
{
    if (sherd__is_half(call->out[0]->dtype))
        sherd__kernels_in(call)->narrow(count, call->to[0], made);
}

static bool take_largest(sherd_call *call)
{
    const sherd__run *run = (const sherd__run *)(const void *)call;
    sherd_box big = sherd_call_box(call, 0), small = sherd_tensor_box(call->out[0]);
    sherd__pool p = geometry(call, &big, &small, run->arg[0]->shape);
    int64_t reads = count(p.outer, p.in), makes = count(p.outer, p.out);

    if (makes == 0)
        return true;
    if (mode_of(call) == SHERD__TAPS_LARGEST)
        set_parts(&p, call->out[0], &small);
    if (sherd__device_in(call)) {
        sherd__device_max_pool(sherd__device_in(call), call->out[0]->dtype, &p, call->to[0],
                               call->to[AT], call->from[0]);
        return true;
    }
    const void *x = widened(call, call->from[0], reads);
    void *y = room(call, makes);
    if ((!x && reads > 0) || !y) /* a dilated window may lie around an element and read none */
        return false;
    if (sherd__is_dry(call->world))
        return true;
    sherd__pool_kernels_of(call->out[0]->dtype)->forward(&p, y, call->to[AT], x);
    settle(call, y, makes);
    return true;
}

static bool give_back(sherd_call *call)
{
    sherd_box small = sherd_call_box(call, 0), big = sherd_tensor_box(call->out[0]);
    sherd__pool p = geometry(call, &big, &small, call->out[0]->shape);
    int64_t reads = count(p.outer, p.out), makes = count(p.outer, p.in);

    if (makes == 0)
        return true;
    if (sherd__device_in(call)) {
        sherd__device_max_pool_grad(sherd__device_in(call), call->out[0]->dtype, &p, call->to[0],
                                    call->from[0], call->from[AT]);
        return true;
    }
    bool dry = sherd__is_dry(call->world);
    if (reads == 0 && !dry)
        sherd__kernels_in(call)->fill(call->to[0], makes, 0);
    if (reads == 0)
        return true;
    const void *dy = widened(call, call->from[0], reads);
    void *dx = room(call, makes);
    if (!dy || !dx || dry)
        return dy && dx;
    sherd__pool_kernels_of(call->out[0]->dtype)->backward(&p, dx, dy, call->from[AT]);
    settle(call, dx, makes);
    return true;
}

/* ---- the operators --------------------------------------------------------------------------- */

/*
 * Each window takes the element at its index of the channel's space; one that lies wholly in the
 * padding has none (-1), and takes 0.
 */
static void take_again(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *at = sherd_cast(sherd_node_operand(node, 1), SHERD_I32);
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);

    at = sherd_flatten(at, SHERD__SPACE, -1);
    sherd_tensor *flat = sherd_flatten(grad_out[0], SHERD__SPACE, -1);
    sherd_tensor *is_padding = sherd_lt_scalar(at, 0);
    sherd_tensor *taken = sherd_gather(flat, -1, sherd_masked_fill(at, is_padding, 0));
    grad_in[0] = sherd_view(sherd_masked_fill(taken, is_padding, 0), shape, ndim);
}

static const sherd_op back_op = {.name = "sherd_max_pool backward",
                                 .operand = {{"dy", SHERD_OP_AROUND},
                                             {"indices", SHERD_OP_AROUND | SHERD_OP_ANY},
                                             {"x", SHERD_OP_OPTIONAL}},
                                 .result = {{"dx", 0}},
                                 .field = SHERD__TAPS_FIELDS,
                                 .attributes = sizeof(sherd__taps_attributes),
                                 .linearity = SHERD_LINEAR,
                                 .describe = sherd__taps_describe_back,
                                 .ways = sherd__taps_ways_back,
                                 .reads = sherd__taps_reads_back,
                                 .forward = give_back,
                                 .dry = give_back,
                                 .on_device = windows_there,
                                 .backward = take_again,
                                 .needs = {SHERD_NEEDS_OPERAND(1)}};

static void differentiate(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd__taps_attributes a = sherd__taps_back(node);
    const sherd_layout *like[] = {NULL, NULL, sherd_node_layout(node, 0)};
    sherd_tensor *in[] = {grad_out[0], sherd_node_result(node, AT), NULL};

    sherd__apply_like(&grad_in[0], &back_op, in, 3, &a, like[2] ? like : NULL);
}

static const char *describe(sherd_call *call)
{
    const sherd__taps_attributes *a = call->attributes;

    call->dtype[AT] = SHERD_I64;
    if (a->divisor || a->without_padding)
        return "divisor and without_padding are options of sherd_avg_pool";
    return a->mode == SHERD__TAPS_MAXIMUM ? sherd__taps_describe(call) : "there is no such mode";
}

static const char *describe_parts(sherd_call *call)
{
    call->dtype[AT] = SHERD_I64;
    return mode_of(call) == SHERD__TAPS_LARGEST ? sherd__taps_describe(call)
                                                : "there is no such mode";
}

#define TAKES_LARGEST                                                              \
    .operand = {{"x", SHERD_OP_AROUND}}, .result = {{"y", 0}, {"indices", 0}},     \
    .field = SHERD__TAPS_FIELDS, .attributes = sizeof(sherd__taps_attributes),     \
    .ways = sherd__taps_ways, .reads = sherd__taps_reads, .forward = take_largest, \
    .dry = take_largest, .on_device = windows_there, .backward = differentiate,    \
    .takes_pending = true, .needs = {[0] = SHERD_NEEDS_RESULT(AT)},                \
    .layouts =                                                                     \
        "batch, channels and space may be sharded; for sharded space, neighbours are fetched"

const sherd_op sherd__max_pool_op = {.name = "sherd_max_pool",
                                     .summary = "maxima of windows in 1 to 3 dims",
                                     .describe = describe,
                                     TAKES_LARGEST};
const sherd_op sherd__adaptive_max_pool_op = {.name = "sherd_adaptive_max_pool",
                                              .summary = "maxima of a given number of parts",
                                              .describe = describe_parts,
                                              TAKES_LARGEST};

sherd_tensor *sherd_max_pool(sherd_tensor *x, const sherd_pool_options *options,
                             sherd_tensor **indices)
{
    static const sherd_pool_options none;
    const sherd_pool_options *o = options ? options : &none;
    sherd__taps_attributes a = {.mode = SHERD__TAPS_MAXIMUM,
                                .ceil = o->ceil,
                                .without_padding = o->without_padding,
                                .divisor = o->divisor};

    for (int d = 0; d < SHERD__SPACE_DIMS; d++) {
        a.kernel[d] = o->kernel[d];
        a.stride[d] = o->stride[d];
        a.padding[d] = o->padding[d];
        a.dilation[d] = o->dilation[d];
    }
    return sherd__apply_indexed(&sherd__max_pool_op, &x, 1, &a, indices);
}

sherd_tensor *sherd_adaptive_max_pool(sherd_tensor *x, const int64_t *size, sherd_tensor **indices)
{
    sherd__taps_attributes a = {.mode = SHERD__TAPS_LARGEST};

    for (int d = SHERD__SPACE; size && x && d < x->ndim && d < SHERD__SPACE + SHERD__SPACE_DIMS;
         d++)
        a.size[d - SHERD__SPACE] = size[d - SHERD__SPACE];
    return sherd__apply_indexed(&sherd__adaptive_max_pool_op, &x, 1, &a, indices);
}
