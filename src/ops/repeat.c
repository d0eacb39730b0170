/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements moved or repeated: flip, and, composed of views and cat: roll, repeat, tile. A sharded
 * dim that is flipped is gathered first, because no layout numbers ranks in reverse; one that is
 * rolled continues on the next rank, so only what crosses a cut is sent.
 */
#include "shared.h"
#include "apply/sketch.h"
#include "autograd/node.h"

#include <string.h>

#include "base/num.h"
#include "world/doing.h"

/* ---- flip ------------------------------------------------------------------------------------ */

typedef struct some_dims {
    int count;
    int dim[SHERD_MAX_DIMS];
} some_dims;

static some_dims dims_from(const int *dims, int count)
{
    some_dims s = {.count = !dims && count > 0 ? SHERD_MAX_DIMS + 1 : count};

    for (int i = 0; dims && s.count <= SHERD_MAX_DIMS && i < s.count; i++)
        s.dim[i] = dims[i];
    return s;
}

static const char *describe_flip(sherd_call *call)
{
    const some_dims *wanted = call->attributes;
    const sherd_tensor *a = call->in[0];
    unsigned flipped;

    if (wanted->count > a->ndim || !sherd__dims_of(&flipped, wanted->dim, wanted->count, a->ndim))
        return "the dims are not different ones of a";
    sherd_call_shape(call, 0, a->ndim, a->shape);
    return NULL;
}

static sherd_status lie_flipped(const sherd_call *call, sherd_ways *ways)
{
    const some_dims *wanted = call->attributes;
    unsigned flipped;

    sherd__dims_of(&flipped, wanted->dim, wanted->count, call->in[0]->ndim);
    return sherd__whole_ways(call, ways, flipped, SHERD__PASS_ALL);
}

/* Read from the last index backwards. */
static bool flip(sherd_call *call)
{
    const some_dims *wanted = call->attributes;
    const sherd_tensor *a = call->in[0];
    int64_t stride[SHERD_MAX_DIMS], last = 0;
    size_t element = sherd_dtype_bytes(a->dtype);
    unsigned flipped;

    if (a->count == 0)
        return true;
    sherd__dims_of(&flipped, wanted->dim, wanted->count, a->ndim);
    for (int d = 0; d < a->ndim; d++) {
        bool turns = flipped >> d & 1;
        stride[d] = turns ? -a->stride[d] : a->stride[d];
        last += turns ? (a->local[d] - 1) * a->stride[d] : 0;
    }
    sherd__copy_in(call, element, a->ndim, a->local, call->to[0], call->out[0]->stride,
                   (const char *)call->from[0] + sherd__bytes(last) * element, stride);
    return true;
}

static void flip_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = sherd_apply(&sherd__flip_op, grad_out, 1, sherd_node_attributes(node));
}

const sherd_op sherd__flip_op = {.name = "sherd_flip",
                                 .summary = "reverse dims",
                                 .operand = {{"a", 0}},
                                 .result = {{"y", 0}},
                                 .field = {SHERD_FIELD(some_dims, count, INT),
                                           SHERD_FIELDS(some_dims, dim, INT, SHERD_MAX_DIMS)},
                                 .attributes = sizeof(some_dims),
                                 .linearity = SHERD_UNCHANGED,
                                 .numbers = SHERD_EVERYTHING,
                                 .strided = true,
                                 .describe = describe_flip,
                                 .ways = lie_flipped,
                                 .forward = flip,
                                 .on_device = sherd__copies_there,
                                 .backward = flip_back,
                                 .takes_pending = true};

sherd_tensor *sherd_flip(sherd_tensor *a, const int *dims, int count)
{
    some_dims wanted = dims_from(dims, count);

    return sherd_apply(&sherd__flip_op, &a, 1, &wanted);
}

/* ---- roll ------------------------------------------------------------------------------------ */

typedef struct shift {
    int64_t by;
    int dim, unused;
} shift;

static const char *describe_roll(sherd_call *call)
{
    const shift *s = call->attributes;

    return sherd__dim_of(s->dim, call->in[0]->ndim) >= 0
               ? NULL
               : sherd_call_reason(call, "no dim %d", s->dim);
}

static void roll_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const shift *s = sherd_node_attributes(node);

    grad_in[0] = sherd_roll(grad_out[0], -s->by, s->dim);
}

/* On the tape one step, rolled back, where the pieces would each be embedded in zeroes. */
static const sherd_op rolled = {.name = "sherd_roll", .backward = roll_back, .takes_pending = true};

static bool roll(sherd_call *call)
{
    sherd_tensor *a = call->in[0], *part[2];
    shift s = *(const shift *)call->attributes;
    int dim = sherd__dim_of(s.dim, a->ndim);
    int64_t n = a->shape[dim];

    s.by = n ? (s.by % n + n) % n : 0;
    if (s.by == 0) {
        call->out[0] = sherd_clone(a);
        return true;
    }
    bool recording = sherd_set_recording(call->world, false);
    part[0] = sherd_narrow(a, dim, n - s.by, s.by);
    part[1] = sherd_narrow(a, dim, 0, n - s.by);
    call->out[0] = sherd_cat(part, 2, dim);
    sherd_set_recording(call->world, recording);
    if (!sherd_tensor_failed(call->out[0]))
        sherd__record_node(call->world, &rolled, &a, 1, call->out, 1, &s, sizeof s);
    return true;
}

const sherd_op sherd__roll_op = {
    .name = "sherd_roll",
    .summary = "shift a dim cyclically",
    .operand = {{"a", 0}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELD(shift, by, INT64), SHERD_FIELD(shift, dim, INT)},
    .attributes = sizeof(shift),
    .numbers = SHERD_EVERYTHING,
    .describe = describe_roll,
    .compose = roll};

sherd_tensor *sherd_roll(sherd_tensor *a, int64_t by, int dim)
{
    return sherd_apply(&sherd__roll_op, &a, 1, &(shift){by, dim, 0});
}

/* ---- repeat and tile ------------------------------------------------------------------------- */

typedef struct repeats {
    int64_t time[SHERD_MAX_DIMS]; /* of each dim */
    int count, unused;
} repeats;

static const char *describe_repeat(sherd_call *call)
{
    const repeats *t = call->attributes;
    const sherd_tensor *a = call->in[0];
    int64_t n = sherd_tensor_count(a);

    if (t->count != a->ndim)
        return sherd_call_reason(call, "%d numbers for %d dims", t->count, a->ndim);
    for (int d = 0; d < a->ndim; d++)
        if (t->time[d] < 0 || !sherd__mul(n, t->time[d], &n) ||
            !sherd__mul(a->shape[d], t->time[d], &call->shape[0][d]))
            return sherd_call_reason(call, "dim %d %lld times", d, (long long)t->time[d]);
    sherd_call_shape(call, 0, a->ndim, NULL);
    return NULL;
}

static sherd_status lie_repeated(const sherd_call *call, sherd_ways *ways)
{
    const repeats *t = call->attributes;
    unsigned repeated = 0;

    for (int d = 0; d < call->in[0]->ndim; d++)
        if (t->time[d] != 1)
            repeated |= 1u << d;
    return sherd__whole_ways(call, ways, repeated, SHERD__PASS_ALL);
}

/*
 * Repeat by copying one box, in which each repeated dim is two: the number of the copy, with stride
 * 0 in the operand, and the index in it. False: those are too many dims.
 */
static bool repeat_at_once(sherd_call *call)
{
    const repeats *t = call->attributes;
    const sherd_tensor *a = call->in[0], *y = call->out[0];
    int64_t size[SHERD_MAX_DIMS], to[SHERD_MAX_DIMS], from[SHERD_MAX_DIMS];
    int n = 0, more = 0;

    for (int d = 0; d < a->ndim; d++)
        more += t->time[d] != 1;
    if (a->ndim + more > SHERD_MAX_DIMS)
        return false;
    for (int d = 0; d < a->ndim; d++) {
        if (t->time[d] != 1) {
            size[n] = t->time[d];
            to[n] = a->local[d] * y->stride[d];
            from[n++] = 0;
        }
        size[n] = a->local[d];
        to[n] = y->stride[d];
        from[n++] = a->stride[d];
    }
    sherd__copy_in(call, sherd_dtype_bytes(a->dtype), n, size, call->to[0], to, call->from[0],
                   from);
    return true;
}

/* Copy the operand's piece to each position. */
static bool repeat(sherd_call *call)
{
    const repeats *t = call->attributes;
    const sherd_tensor *a = call->in[0], *y = call->out[0];
    size_t element = sherd_dtype_bytes(a->dtype);
    int64_t copies = a->count ? y->count / a->count : 0, place[SHERD_MAX_DIMS] = {0};

    if (copies == 0 || repeat_at_once(call))
        return true;
    for (int64_t i = 0; i < copies; i++) {
        int64_t at = 0;
        for (int d = 0; d < a->ndim; d++)
            at += place[d] * a->local[d] * y->stride[d];
        sherd__copy_in(call, element, a->ndim, a->local,
                       (char *)call->to[0] + sherd__bytes(at) * element, y->stride, call->from[0],
                       a->stride);
        for (int d = a->ndim - 1; d >= 0 && ++place[d] == t->time[d]; d--)
            place[d] = 0;
    }
    return true;
}

/* The sum over the copies along dim d: [.., t n, ..] as [.., t, n, ..], without t. */
static sherd_tensor *sum_copies(sherd_tensor *g, int d, int64_t time, int64_t n)
{
    int64_t shape[SHERD_MAX_DIMS];

    if (sherd_tensor_failed(g))
        return g;
    if (g->ndim < SHERD_MAX_DIMS) {
        g = sherd_unflatten(g, d, (int64_t[]){time, n}, 2);
        memcpy(shape, g->shape, sizeof shape);
        shape[d] = 1;
        return sherd_squeeze(sherd__sum_to(g, g->ndim, shape), d);
    }
    sherd_tensor *sum = sherd_narrow(g, d, 0, n);
    for (int64_t i = 1; i < time; i++)
        sum = sherd_add(sum, sherd_narrow(g, d, i * n, n));
    return sum;
}

/* Zeros along dim d, which was repeated 0 times. */
static sherd_tensor *zeros_along(sherd_tensor *g, int d, int64_t n)
{
    int64_t before[SHERD_MAX_DIMS] = {0}, after[SHERD_MAX_DIMS] = {0};

    after[d] = n;
    return sherd_pad(g, before, after, 0);
}

static void repeat_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const repeats *t = sherd_node_attributes(node);
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);
    bool never = false;

    for (int d = 0; d < ndim; d++)
        never |= t->time[d] == 0;
    grad_in[0] = grad_out[0];
    for (int d = 0; d < ndim; d++) {
        sherd_tensor **g = &grad_in[0];
        if (t->time[d] == 0)
            *g = zeros_along(*g, d, shape[d]);
        else if (t->time[d] != 1)
            *g = never ? sherd_narrow(*g, d, 0, shape[d]) : sum_copies(*g, d, t->time[d], shape[d]);
    }
}

const sherd_op sherd__repeat_op = {
    .name = "sherd_repeat",
    .summary = "repeat along each dim",
    .operand = {{"a", 0}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELDS(repeats, time, INT64, SHERD_MAX_DIMS), SHERD_FIELD(repeats, count, INT)},
    .attributes = sizeof(repeats),
    .linearity = SHERD_UNCHANGED,
    .numbers = SHERD_EVERYTHING,
    .strided = true,
    .describe = describe_repeat,
    .ways = lie_repeated,
    .forward = repeat,
    .on_device = sherd__copies_there,
    .backward = repeat_back,
    .takes_pending = true};

sherd_tensor *sherd_repeat(sherd_tensor *a, const int64_t *times, int count)
{
    repeats t = {.count = count && !times ? -1 : count};
    int missing = sherd_tensor_failed(a) || count < 0 ? 0 : count - a->ndim;
    sherd_tensor *y = a;

    for (int d = 0; t.count <= SHERD_MAX_DIMS && d < t.count; d++)
        t.time[d] = times[d];
    for (int d = 0; d < missing && t.count <= SHERD_MAX_DIMS && t.count > 0; d++)
        y = sherd_unsqueeze(y, 0);
    return sherd_apply(&sherd__repeat_op, &y, 1, &t);
}

static sherd_tensor *tile(sherd_tensor *a, const int64_t *times, int count)
{
    int64_t all[SHERD_MAX_DIMS];

    if (sherd_tensor_failed(a) || count < 0 || count >= a->ndim || (count && !times))
        return sherd_repeat(a, times, count);
    int missing = a->ndim - count;
    for (int d = 0; d < a->ndim; d++)
        all[d] = d < missing ? 1 : times[d - missing];
    return sherd_repeat(a, all, a->ndim);
}

sherd_tensor *sherd_tile(sherd_tensor *a, const int64_t *times, int count)
{
    sherd_world *world = sherd_tensor_world(a);
    bool begun = sherd__doing_begin(world, "sherd_tile");
    sherd_tensor *y = tile(a, times, count);

    sherd__doing_end(world, begun);
    return y;
}
