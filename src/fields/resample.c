/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Averages over windows, and interpolation: one spatial dim after the other, each a pass of
 * weighted sums (kernels/taps.h). Ranks that hold parts of the space fetch the neighbours; backward
 * reads around the pieces of the gradient. Besides the results, forward needs memory for what is
 * between two passes, and for 16-bit types for all of it in f32.
 */
#include "taps.h"

#include "device/fields.h"
#include "sherd/ops_stencil.h"

static int64_t count_of(int ndim, const int64_t *size)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= size[d];
    return n;
}

/* The rows of a dim on this rank, relative to its piece of the input; NULL: no memory. */
static sherd__tap *rows_of(sherd_call *call, const sherd__taps *t, const sherd_box *big,
                           const sherd_box *small, int d)
{
    sherd__tap *tap = sherd_call_scratch(call, small->size[d] * (int64_t)sizeof *tap);

    for (int64_t o = 0; tap && o < small->size[d] && !sherd__is_dry(call->world); o++) {
        tap[o] = sherd__taps_row(t, small->offset[d] + o);
        tap[o].first -= big->offset[d];
    }
    return tap;
}

/* One pass: from elements of a dtype to those of another, which only differ on the GPU. */
typedef struct step {
    sherd__taps_pass p;
    sherd_dtype from, to;
    bool back;
    bool copies; /* each element is one of those that are read */
} step;

static bool is_copied(const sherd_call *call, bool back)
{
    int mode = ((const sherd__taps_attributes *)call->attributes)->mode;

    return !back && (mode == SHERD__TAPS_NEAREST || mode == SHERD__TAPS_EXACT);
}

static void run(sherd_call *call, const step *s, void *to, const void *from)
{
    const sherd__taps_kernels *kernels = sherd__taps_kernels_of(s->to);
    sherd__device *device = sherd__device_in(call);

    if (device && s->back)
        sherd__device_taps_grad(device, s->to, s->from, &s->p, to, from);
    else if (device)
        sherd__device_taps(device, s->to, s->from, &s->p, to, from);
    else if (s->copies && !sherd__is_dry(call->world))
        sherd__taps_copy(sherd_dtype_bytes(s->to), &s->p, to, from);
    else if (!sherd__is_dry(call->world))
        (s->back ? kernels->backward : kernels->forward)(&s->p, to, from);
}

/* Whether all of this dim is averaged to one element, whichever rank has it. */
static bool is_averaged(const sherd__taps *t)
{
    bool averages = t->mode == SHERD__TAPS_ADAPTIVE || t->mode == SHERD__TAPS_AVERAGE;

    return averages && t->m == 1 && sherd__taps_row(t, 0).count == t->n;
}

/*
 * The pass of several last dims that are averaged to one element: one dim, as long as all of them
 * here. Returns the first of them; `ndim`: there are not several, or the GPU computes.
 */
static int find_averaged(sherd_call *call, const sherd_box *big, const int64_t *n, const int64_t *m,
                         sherd__taps_pass *p)
{
    int d = big->ndim;
    double divisor = 1;

    for (; d > SHERD__SPACE && !sherd__device_in(call); d--) {
        sherd__taps t = sherd__taps_of(call->attributes, d - 1 - SHERD__SPACE, n[d - 1], m[d - 1],
                                       call->out[0]->dtype);
        if (!is_averaged(&t))
            break;
        divisor *= sherd__taps_row(&t, 0).divisor;
    }
    if (big->ndim - d < 2)
        return big->ndim;
    *p = (sherd__taps_pass){.in = count_of(big->ndim - d, big->size + d), .rows = 1, .inner = 1};
    sherd__tap *tap = sherd_call_scratch(call, (int64_t)sizeof *tap);
    if (tap && !sherd__is_dry(call->world))
        *tap = (sherd__tap){.count = p->in, .even = true, .divisor = divisor};
    p->tap = tap;
    return d;
}

/* What is between two passes. NULL: no memory. */
static void *between(sherd_call *call, int64_t count)
{
    int64_t bytes = count * (int64_t)sizeof(double);

    return sherd__device_in(call) ? sherd__device_scratch(call, bytes)
                                  : sherd_call_scratch(call, bytes);
}

/*
 * All passes, from elements of `dtype` to such, through temporary memory: of f32 or f64, which
 * `dtype` is too on the CPU, unless elements are copied. Forward from big to small. Copies begin
 * with the last dim, where they go one by one: mostly there are the more of them the later they
 * come.
 */
static bool pass(sherd_call *call, sherd_dtype dtype, const sherd_box *big, const sherd_box *small,
                 bool back, void *to, const void *from)
{
    const sherd__taps_attributes *a = call->attributes;
    const sherd_box *first = back ? small : big, *last = back ? big : small;
    const sherd__run *of = (const sherd__run *)(const void *)call;
    const int64_t *n = back ? call->out[0]->shape : of->arg[0]->shape;
    const int64_t *m = back ? of->arg[0]->shape : call->out[0]->shape;
    step s = {.from = dtype, .back = back, .copies = is_copied(call, back)};
    int64_t size[SHERD_MAX_DIMS];
    sherd__taps_pass averaged = {0};
    int ndim = big->ndim, one_pass = find_averaged(call, big, n, m, &averaged);

    for (int d = 0; d < ndim; d++)
        size[d] = first->size[d];
    for (int k = SHERD__SPACE; k < ndim; k++, s.from = s.to) {
        int d = s.copies ? ndim - 1 - (k - SHERD__SPACE) : k;
        if (d == one_pass) {
            averaged.outer = count_of(d, size);
            s.p = averaged;
            s.to = dtype;
            if (!s.p.tap)
                return false;
            run(call, &s, to, from);
            return true;
        }
        sherd__taps t = sherd__taps_of(a, d - SHERD__SPACE, n[d], m[d], call->out[0]->dtype);
        s.p = (sherd__taps_pass){.outer = count_of(d, size),
                                 .in = big->size[d],
                                 .rows = small->size[d],
                                 .inner = count_of(ndim - d - 1, size + d + 1),
                                 .tap = rows_of(call, &t, big, small, d)};
        s.to = k == ndim - 1 || s.copies || dtype == SHERD_F64 ? dtype : SHERD_F32;
        size[d] = last->size[d];
        void *next = k == ndim - 1 ? to : between(call, count_of(ndim, size));
        if (!s.p.tap || !next)
            return false;
        run(call, &s, next, from);
        from = next;
    }
    return true;
}

/* The same for any dtype; 16 bits are computed in f32 and rounded once. */
static bool compute(sherd_call *call, const sherd_box *big, const sherd_box *small, bool back)
{
    const sherd_box *first = back ? small : big, *last = back ? big : small;
    int64_t reads = count_of(big->ndim, first->size), makes = count_of(big->ndim, last->size);
    const sherd__kernels *kernels = sherd__kernels_in(call);
    sherd_dtype dtype = call->out[0]->dtype;

    if (makes == 0)
        return true;
    if (reads == 0 && sherd__device_in(call)) {
        sherd__device_fill(sherd__device_in(call), dtype, call->to[0], makes, 0);
        return true;
    }
    bool dry = sherd__is_dry(call->world);
    if (reads == 0 && !dry)
        kernels->fill(call->to[0], makes, 0);
    if (reads == 0)
        return true;
    if (!sherd__is_half(dtype) || is_copied(call, back) || sherd__device_in(call))
        return pass(call, dtype, big, small, back, call->to[0], call->from[0]);
    float *from = sherd_call_scratch(call, reads * (int64_t)sizeof *from);
    float *to = sherd_call_scratch(call, makes * (int64_t)sizeof *to);
    if (!from || !to)
        return false;
    if (!dry)
        kernels->widen(reads, from, call->from[0]);
    if (!pass(call, SHERD_F32, big, small, back, to, from))
        return false;
    if (!dry)
        kernels->narrow(makes, call->to[0], to);
    return true;
}

static bool resample(sherd_call *call)
{
    sherd_box big = sherd_call_box(call, 0), small = sherd_tensor_box(call->out[0]);

    return compute(call, &big, &small, false);
}

static bool resample_back(sherd_call *call)
{
    sherd_box small = sherd_call_box(call, 0), big = sherd_tensor_box(call->out[0]);

    return compute(call, &big, &small, true);
}

/* ---- the operators --------------------------------------------------------------------------- */

/* The last operand is its layout alone: that of what was read. */
static const sherd_op back_op = {.name = "sherd_interpolate backward",
                                 .operand = {{"dy", SHERD_OP_AROUND}, {"x", SHERD_OP_OPTIONAL}},
                                 .result = {{"dx", 0}},
                                 .field = SHERD__TAPS_FIELDS,
                                 .attributes = sizeof(sherd__taps_attributes),
                                 .linearity = SHERD_LINEAR,
                                 .describe = sherd__taps_describe_back,
                                 .ways = sherd__taps_ways_back,
                                 .reads = sherd__taps_reads_back,
                                 .forward = resample_back,
                                 .dry = resample_back,
                                 .on_device = sherd__fractions_there};

static void differentiate(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd__taps_attributes a = sherd__taps_back(node);

    grad_in[0] = sherd__adjoint_like(node, &back_op, &a, sherd_node_attributes(node), grad_out[0]);
}

static const char *describe_average(sherd_call *call)
{
    const sherd__taps_attributes *a = call->attributes;

    for (int d = 0; d < SHERD__SPACE_DIMS; d++)
        if (a->dilation[d] != 0 && a->dilation[d] != 1)
            return "dilation is an option of sherd_max_pool";
    return a->mode == SHERD__TAPS_AVERAGE ? sherd__taps_describe(call) : "there is no such mode";
}

static const char *describe_adaptive(sherd_call *call)
{
    const sherd__taps_attributes *a = call->attributes;

    return a->mode == SHERD__TAPS_ADAPTIVE ? sherd__taps_describe(call) : "there is no such mode";
}

static const char *describe_interpolation(sherd_call *call)
{
    const sherd__taps_attributes *a = call->attributes;

    if (a->mode < SHERD__TAPS_NEAREST || a->mode > SHERD__TAPS_ADAPTIVE)
        return "there is no such kind";
    if (a->aligned && a->mode != SHERD__TAPS_LINEAR && a->mode != SHERD__TAPS_CUBIC)
        return "corners are aligned only in linear and cubic interpolation";
    return sherd__taps_describe(call);
}

#define RESAMPLES                                                                               \
    .operand = {{"x", SHERD_OP_AROUND}}, .result = {{"y", 0}}, .field = SHERD__TAPS_FIELDS,     \
    .attributes = sizeof(sherd__taps_attributes), .linearity = SHERD_LINEAR,                    \
    .ways = sherd__taps_ways, .reads = sherd__taps_reads, .forward = resample, .dry = resample, \
    .on_device = sherd__fractions_there, .backward = differentiate, .takes_pending = true,      \
    .layouts =                                                                                  \
        "batch, channels and space may be sharded; for sharded space, neighbours are fetched"

const sherd_op sherd__avg_pool_op = {.name = "sherd_avg_pool",
                                     .summary = "averages of windows in 1 to 3 dims",
                                     .describe = describe_average,
                                     RESAMPLES};
const sherd_op sherd__adaptive_avg_pool_op = {.name = "sherd_adaptive_avg_pool",
                                              .summary = "averages over a given number of parts",
                                              .describe = describe_adaptive,
                                              RESAMPLES};
const sherd_op sherd__interpolate_op = {.name = "sherd_interpolate",
                                        .summary = "resample to another size",
                                        .describe = describe_interpolation,
                                        RESAMPLES};

/* ---- what a user says ------------------------------------------------------------------------ */

static const sherd_pool_options no_pool;
static const sherd_interpolate_options no_size;

sherd_tensor *sherd_avg_pool(sherd_tensor *x, const sherd_pool_options *options)
{
    const sherd_pool_options *o = options ? options : &no_pool;
    sherd__taps_attributes a = {.mode = SHERD__TAPS_AVERAGE,
                                .ceil = o->ceil,
                                .without_padding = o->without_padding,
                                .divisor = o->divisor};

    for (int d = 0; d < SHERD__SPACE_DIMS; d++) {
        a.kernel[d] = o->kernel[d];
        a.stride[d] = o->stride[d];
        a.padding[d] = o->padding[d];
        a.dilation[d] = o->dilation[d];
    }
    return sherd_apply(&sherd__avg_pool_op, &x, 1, &a);
}

sherd_tensor *sherd_adaptive_avg_pool(sherd_tensor *x, const int64_t *size)
{
    sherd__taps_attributes a = {.mode = SHERD__TAPS_ADAPTIVE};

    for (int d = SHERD__SPACE; size && x && d < x->ndim && d < SHERD__SPACE + SHERD__SPACE_DIMS;
         d++)
        a.size[d - SHERD__SPACE] = size[d - SHERD__SPACE];
    return sherd_apply(&sherd__adaptive_avg_pool_op, &x, 1, &a);
}

sherd_tensor *sherd_interpolate(sherd_tensor *x, const sherd_interpolate_options *options)
{
    static const sherd__taps_mode mode[] = {[SHERD_INTERPOLATE_NEAREST] = SHERD__TAPS_NEAREST,
                                            [SHERD_INTERPOLATE_NEAREST_EXACT] = SHERD__TAPS_EXACT,
                                            [SHERD_INTERPOLATE_LINEAR] = SHERD__TAPS_LINEAR,
                                            [SHERD_INTERPOLATE_CUBIC] = SHERD__TAPS_CUBIC,
                                            [SHERD_INTERPOLATE_AREA] = SHERD__TAPS_ADAPTIVE};
    const sherd_interpolate_options *o = options ? options : &no_size;
    unsigned kind = (unsigned)o->kind;
    sherd__taps_attributes a = {.mode = kind < SHERD_INTERPOLATIONS ? (int)mode[kind] : -1,
                                .aligned = o->align_corners};

    for (int d = 0; d < SHERD__SPACE_DIMS; d++) {
        a.size[d] = o->size[d];
        a.factor[d] = o->factor[d];
    }
    return sherd_apply(&sherd__interpolate_op, &x, 1, &a);
}
