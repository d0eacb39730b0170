/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier transforms: an operator for one dim, which must be whole, and chains of it. Shards of
 * that dim move to another dim (an all-to-all), or are gathered. They move to dims that are already
 * transformed if they can, since the cheapest move of a single step might choose a dim whose shards
 * would have to move again. And products of complex numbers.
 */
#include "ops/dims.h"
#include "sherd/ops_fft.h"
#include "apply/sketch.h"

#include <math.h>

#include "device/fields.h"
#include "device/fourier.h"

/* Size of the last dim of a complex tensor. */
enum { PAIR = 2 };

static bool is_complex(const sherd_tensor *a)
{
    return a->ndim > 0 && a->shape[a->ndim - 1] == PAIR;
}

static const char *dtype_fault(const sherd_tensor *a)
{
    return sherd__is_half(a->dtype) ? "it computes f32 and f64 only: cast first (sherd_cast)"
                                    : NULL;
}

/* ---- one dim --------------------------------------------------------------------------------- */

typedef struct dim_attributes {
    int64_t n; /* of the dim where it is real, or complex */
    double scale;
    int dim, kind, inverse, folded; /* as in sherd__fft */
    int before, after;              /* dims (bits) that the chain has transformed, and will */
} dim_attributes;

static bool takes_real(const dim_attributes *at)
{
    return at->kind == SHERD__FFT_TO_HALF;
}

static const char *describe_dim(sherd_call *call)
{
    const dim_attributes *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    int ndim = a->ndim - (takes_real(at) ? 0 : 1);

    call->ndim[0] = ndim + (at->kind == SHERD__FFT_FROM_HALF ? 0 : 1);
    for (int d = 0; d < ndim; d++)
        call->shape[0][d] = a->shape[d];
    call->shape[0][at->dim] = takes_real(at) ? at->n / 2 + 1 : at->n;
    if (call->ndim[0] > ndim)
        call->shape[0][ndim] = PAIR;
    return NULL;
}

/* Whether dim d has enough elements for its own shards times those of the dim `from`. */
static bool has_room(const sherd_layout *layout, int d, int from)
{
    const sherd__dim *dim = layout->spec.dim;

    return sherd__dim_parts(layout->spec.mesh, &dim[d]) <=
           layout->spec.shape[d] / sherd__dim_parts(layout->spec.mesh, &dim[from]);
}

/*
 * Where shards of the dim may go: to dims that will not be transformed any more, whole ones first;
 * to the others only if those have no room.
 */
static int list_homes(int *home, const dim_attributes *at, const sherd_layout *from, int ndim)
{
    int homes = 0;

    for (int sharded = 0; sharded < 2; sharded++)
        for (int d = 0; d < ndim; d++)
            if (d != at->dim && !(at->after >> d & 1) && has_room(from, d, at->dim) &&
                (from->spec.dim[d].axes > 0) == (sharded > 0))
                home[homes++] = d;
    for (int d = 0; d < ndim && homes == 0; d++)
        if (d != at->dim && from->spec.shape[d] > 1)
            home[homes++] = d;
    return homes;
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const dim_attributes *at = call->attributes;
    const sherd_layout *from = call->in[0]->layout;
    int home[SHERD_MAX_DIMS], ndim = from->spec.ndim - (takes_real(at) ? 0 : 1);
    unsigned whole = 1u << at->dim | (takes_real(at) ? 0 : 1u << ndim);
    int homes = list_homes(home, at, from, ndim);

    return sherd__homes_ways(call, ways, whole, home, homes, SHERD__PASS_SUMS);
}

static bool transform(sherd_call *call)
{
    const dim_attributes *at = call->attributes;
    const sherd__kernels *k = sherd__kernels_in(call);
    const sherd_tensor *a = call->in[0];
    sherd__fft t = {.kind = (sherd__fft_kind)at->kind,
                    .inverse = at->inverse,
                    .folded = at->folded,
                    .outer = sherd__local_count(a, 0, at->dim),
                    .n = at->n,
                    .inner = sherd__local_count(a, at->dim + 1, a->ndim - (takes_real(at) ? 0 : 1)),
                    .scale = at->scale};

    if (call->out[0]->count == 0)
        return true;
    if (sherd__device_in(call) && sherd__device_transforms(sherd__device_in(call), a->dtype, &t)) {
        sherd__device_fft(sherd__device_in(call), a->dtype, &t, call->to[0], call->from[0]);
        return true;
    }
    if (!sherd__leave_device(call))
        return false;
    void *workspace = sherd_call_scratch(call, k->fft_workspace(&t));
    if (workspace && !sherd__is_dry(call->world))
        k->fft(&t, call->to[0], call->from[0], workspace);
    return workspace != NULL;
}

static const sherd_op dim_ops[SHERD__FFT_FROM_HALF + 1];

/*
 * The adjoint: the opposite sign. Between real numbers and halves it goes the other way, `folded`,
 * since an element of a half that stands for a conjugate pair counts twice on one side. The chain
 * runs backwards.
 */
static void transform_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    dim_attributes at = *(const dim_attributes *)sherd_node_attributes(node);
    int before = at.before;

    at.before = at.after;
    at.after = before;
    at.inverse = !at.inverse;
    at.folded = !at.folded;
    at.kind = at.kind == SHERD__FFT_TO_HALF     ? SHERD__FFT_FROM_HALF
              : at.kind == SHERD__FFT_FROM_HALF ? SHERD__FFT_TO_HALF
                                                : SHERD__FFT_COMPLEX;
    grad_in[0] = sherd_apply(&dim_ops[at.kind], grad_out, 1, &at);
}

/* The usual count of a fast one: 5 n log2 n, half of that of real numbers. */
static double butterflies(const sherd_call *call)
{
    const dim_attributes *at = call->attributes;
    double numbers = (double)(takes_real(at) ? call->in[0]->count : call->in[0]->count / 2);

    return at->n > 1 ? 5 * numbers * log2((double)at->n) / (at->kind ? 2 : 1) : numbers;
}

#define DIM(label)                                                                                 \
    {                                                                                              \
        .name = label, .operand = {{"a", 0}}, .result = {{"y", 0}},                                \
        .field = {SHERD_FIELD(dim_attributes, n, INT64),                                           \
                  SHERD_FIELD(dim_attributes, scale, DOUBLE),                                      \
                  SHERD_FIELD(dim_attributes, dim, INT),                                           \
                  SHERD_FIELD(dim_attributes, kind, INT),                                          \
                  SHERD_FIELD(dim_attributes, inverse, INT),                                       \
                  SHERD_FIELD(dim_attributes, folded, INT),                                        \
                  SHERD_FIELD(dim_attributes, before, INT),                                        \
                  SHERD_FIELD(dim_attributes, after, INT)},                                        \
        .attributes = sizeof(dim_attributes), .linearity = SHERD_LINEAR, .describe = describe_dim, \
        .ways = lie, .forward = transform, .operations = butterflies, .dry = transform,            \
        .on_device = sherd__fractions_there, .backward = transform_back, .takes_pending = true     \
    }

/* By what they take and give (sherd__fft_kind). */
static const sherd_op dim_ops[SHERD__FFT_FROM_HALF + 1] = {
    [SHERD__FFT_COMPLEX] = DIM("sherd_fft of a dim"),
    [SHERD__FFT_TO_HALF] = DIM("sherd_rfft of a dim"),
    [SHERD__FFT_FROM_HALF] = DIM("sherd_irfft of a dim")};

/* ---- chains ---------------------------------------------------------------------------------- */

typedef struct chain_attributes {
    sherd__dims dims;
    int norm;
    int64_t last;
} chain_attributes;

static bool is_inverse(const sherd_call *call)
{
    return call->op == &sherd__ifft_op || call->op == &sherd__irfft_op;
}

/* Dims without the pair. */
static int dims_of(const sherd_call *call)
{
    return call->in[0]->ndim - (call->op == &sherd__rfft_op ? 0 : 1);
}

/* The dim that is halved, or was. */
static int last_of(const sherd_call *call)
{
    const chain_attributes *at = call->attributes;
    int ndim = dims_of(call), count = at->dims.count;

    return count ? sherd__dim_of(at->dims.dim[count - 1], ndim) : ndim - 1;
}

/* The size of a dim as far as the transform is concerned. */
static int64_t size_of(const sherd_call *call, int d)
{
    const chain_attributes *at = call->attributes;
    int64_t n = call->in[0]->shape[d];

    if (call->op != &sherd__irfft_op || d != last_of(call))
        return n;
    return at->last ? at->last : 2 * (n - 1);
}

static const char *describe_chain(sherd_call *call)
{
    const chain_attributes *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    const char *fault = dtype_fault(a);
    int ndim = dims_of(call);

    if (fault)
        return fault;
    if (call->op != &sherd__rfft_op && !is_complex(a))
        return "the last dim of a complex tensor has 2 elements, the real and the imaginary part";
    if (ndim == 0)
        return "it has no dim to transform";
    if (call->op == &sherd__rfft_op && ndim == SHERD_MAX_DIMS)
        return sherd_call_reason(call, "the result would have %d dims", ndim + 1);
    if (at->norm < SHERD_FFT_BACKWARD || at->norm > SHERD_FFT_FORWARD)
        return sherd_call_reason(call, "there is no norm %d", at->norm);
    if (at->last < 0)
        return sherd_call_reason(call, "a size of %lld", (long long)at->last);
    fault = sherd__dims_fault(call, &at->dims, ndim);
    for (int d = 0; d < ndim && !fault; d++)
        if (sherd__dims_bits(&at->dims, ndim) >> d & 1 &&
            (a->shape[d] == 0 || size_of(call, d) < 1))
            fault = sherd_call_reason(call, "dim %d has no elements to transform", d);
    return fault;
}

/* What the result is multiplied by. */
static double scale_of(const sherd_call *call, unsigned dims)
{
    const chain_attributes *at = call->attributes;
    double n = 1;

    for (int d = 0; d < dims_of(call); d++)
        n *= dims >> d & 1 ? (double)size_of(call, d) : 1;
    if (at->norm == SHERD_FFT_ORTHO)
        return 1 / sqrt(n);
    return (at->norm == SHERD_FFT_FORWARD) == is_inverse(call) ? 1 : 1 / n;
}

/* Of some dims (bits) the last one that is whole, if there is one. */
static int next_dim(const sherd_tensor *t, unsigned dims)
{
    int last = -1;

    for (int d = SHERD_MAX_DIMS - 1; d >= 0; d--) {
        if (!(dims >> d & 1))
            continue;
        if (!t->layout || sherd__dim_parts(t->layout->spec.mesh, &t->layout->spec.dim[d]) == 1)
            return d;
        last = last < 0 ? d : last;
    }
    return last;
}

/* As many halves as make a dim of size n: the rest is left out, or 0. */
static sherd_tensor *with_halves(sherd_tensor *a, int dim, int64_t n)
{
    int64_t none[SHERD_MAX_DIMS] = {0}, more[SHERD_MAX_DIMS] = {0}, half = n / 2 + 1;

    if (a->shape[dim] > half)
        return sherd_narrow(a, dim, 0, half);
    more[dim] = half - a->shape[dim];
    return more[dim] ? sherd_pad(a, none, more, 0) : a;
}

/* A real dim becomes a half first, and a half a real one last. */
static bool transform_all(sherd_call *call)
{
    const chain_attributes *at = call->attributes;
    bool real = call->op == &sherd__rfft_op, to_real = call->op == &sherd__irfft_op;
    sherd_tensor *t = call->in[0];
    unsigned all = sherd__dims_bits(&at->dims, dims_of(call)), left = all;
    int halved = last_of(call);

    if (to_real)
        t = with_halves(t, halved, size_of(call, halved));
    while (left && !sherd_tensor_failed(t)) {
        unsigned rest = to_real ? left & ~(1u << halved) : left;
        int d = real && left == all ? halved : rest ? next_dim(t, rest) : halved;
        left &= ~(1u << d);
        dim_attributes one = {.n = size_of(call, d),
                              .scale = left ? 1 : scale_of(call, all),
                              .dim = d,
                              .inverse = is_inverse(call),
                              .kind = d != halved ? SHERD__FFT_COMPLEX
                                      : real      ? SHERD__FFT_TO_HALF
                                      : to_real   ? SHERD__FFT_FROM_HALF
                                                  : SHERD__FFT_COMPLEX,
                              .before = (int)(all & ~left & ~(1u << d)),
                              .after = (int)left};
        t = sherd_apply(&dim_ops[one.kind], &t, 1, &one);
    }
    call->out[0] = t;
    return true;
}

#define CHAIN(label, text)                                                         \
    {                                                                              \
        .name = label, .summary = text, .layouts = LAYOUTS, .operand = {{"a", 0}}, \
        .result = {{"y", 0}},                                                      \
        .field = {SHERD_FIELD(chain_attributes, dims.count, INT),                  \
                  SHERD_FIELDS(chain_attributes, dims.dim, INT, SHERD_MAX_DIMS),   \
                  SHERD__CHOICE(chain_attributes, norm, "backward|ortho|forward"), \
                  SHERD_FIELD(chain_attributes, last, INT64)},                     \
        .attributes = sizeof(chain_attributes), .autocast = SHERD_AUTOCAST_FULL,   \
        .describe = describe_chain, .compose = transform_all                       \
    }

#define LAYOUTS "a sharded dim that is transformed moves to another one, or is gathered"

const sherd_op sherd__fft_op = CHAIN("sherd_fft", "Fourier transform over dims");
const sherd_op sherd__ifft_op = CHAIN("sherd_ifft", "its inverse");
const sherd_op sherd__rfft_op = CHAIN("sherd_rfft", "Fourier transform of real numbers over dims");
const sherd_op sherd__irfft_op = CHAIN("sherd_irfft", "its inverse");

static sherd_tensor *chain(const sherd_op *op, sherd_tensor *a, const int *dims, int count,
                           int64_t last, sherd_fft_norm norm)
{
    const chain_attributes at = {sherd__dims_given(a, dims, count, false), (int)norm, last};

    return sherd_apply(op, &a, 1, &at);
}

sherd_tensor *sherd_fft(sherd_tensor *a, const int *dims, int count, sherd_fft_norm norm)
{
    return chain(&sherd__fft_op, a, dims, count, 0, norm);
}

sherd_tensor *sherd_ifft(sherd_tensor *a, const int *dims, int count, sherd_fft_norm norm)
{
    return chain(&sherd__ifft_op, a, dims, count, 0, norm);
}

sherd_tensor *sherd_rfft(sherd_tensor *a, const int *dims, int count, sherd_fft_norm norm)
{
    return chain(&sherd__rfft_op, a, dims, count, 0, norm);
}

sherd_tensor *sherd_irfft(sherd_tensor *a, const int *dims, int count, int64_t last,
                          sherd_fft_norm norm)
{
    return chain(&sherd__irfft_op, a, dims, count, last, norm);
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct product_attributes {
    int conj; /* of b */
} product_attributes;

static const char *describe_product(sherd_call *call)
{
    for (int i = 0; i < 2; i++) {
        if (dtype_fault(call->in[i]))
            return dtype_fault(call->in[i]);
        if (!is_complex(call->in[i]))
            return sherd_call_reason(call,
                                     "the last dim of %s must have 2 elements, the real and "
                                     "the imaginary part",
                                     i ? "b" : "a");
    }
    return NULL;
}

static bool multiply(sherd_call *call)
{
    const product_attributes *at = call->attributes;
    const sherd_tensor *out = call->out[0];
    int64_t a[SHERD_MAX_DIMS], b[SHERD_MAX_DIMS];

    sherd__broadcast_strides(call, 0, a);
    sherd__broadcast_strides(call, 1, b);
    if (out->count && sherd__device_in(call))
        sherd__device_complex_mul(sherd__device_in(call), out->dtype, at->conj, out->ndim - 1,
                                  out->local, call->to[0], call->from[0], a, call->from[1], b);
    else if (out->count)
        sherd__kernels_in(call)->complex_mul(at->conj, out->ndim - 1, out->local, call->to[0],
                                             call->from[0], a, call->from[1], b);
    return true;
}

static sherd_tensor *product(sherd_tensor *a, sherd_tensor *b, int conj)
{
    return sherd_apply(&sherd__complex_mul_op, (sherd_tensor *[]){a, b}, 2,
                       &(product_attributes){conj});
}

/*
 * The gradients of a b are dy b' and dy a', where ' is the conjugate; those of a b' are dy b and a
 * dy'.
 */
static void multiply_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const product_attributes *at = sherd_node_attributes(node);
    sherd_tensor *dy = grad_out[0];

    if (sherd_node_wants(node, 0))
        grad_in[0] =
            sherd__sum_to_operand(node, 0, product(dy, sherd_node_operand(node, 1), !at->conj));
    if (!sherd_node_wants(node, 1))
        return;
    sherd_tensor *a = sherd_node_operand(node, 0);
    grad_in[1] = sherd__sum_to_operand(node, 1, at->conj ? product(a, dy, 1) : product(dy, a, 1));
}

const sherd_op sherd__complex_mul_op = {.name = "sherd_complex_mul",
                                        .summary = "product of complex tensors",
                                        .operand = {{"a", 0}, {"b", 0}},
                                        .result = {{"y", 0}},
                                        .field = {SHERD_FIELD(product_attributes, conj, INT)},
                                        .attributes = sizeof(product_attributes),
                                        .rule = "...z,...z->...z",
                                        .whole = "z",
                                        .linearity = SHERD_LINEAR,
                                        .autocast = SHERD_AUTOCAST_FULL,
                                        .broadcasts = true,
                                        .describe = describe_product,
                                        .forward = multiply,
                                        .on_device = sherd__fractions_there,
                                        .backward = multiply_back,
                                        .takes_pending = true,
                                        .needs = {SHERD_NEEDS_OPERAND(1), SHERD_NEEDS_OPERAND(0)}};

sherd_tensor *sherd_complex_mul(sherd_tensor *a, sherd_tensor *b)
{
    return product(a, b, 0);
}
