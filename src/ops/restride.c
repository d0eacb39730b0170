/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views by other strides: the same storage with dims exchanged, added, removed or stretched. Each
 * is defined by its rule: a dim of the result has the letter, and so stride and shards, of a dim of
 * the operand; '1' and '*' are new, with stride 0. A dim of size 1 that is removed or stretched
 * must not be sharded. Nothing else is moved, and nothing is copied.
 */
#include "shared.h"
#include "apply/sketch.h"

#include <string.h>

/* A rule under construction: the operand's letters, then the result's. */
typedef struct rule {
    sherd_call *call;
    char from[SHERD_MAX_DIMS + 1], to[SHERD_MAX_DIMS + 1];
    int ndim; /* of the result so far */
    int last; /* the operand's dim that was kept last; -1 = none */
    bool out_of_order;
} rule;

static rule begin(sherd_call *call)
{
    rule r = {.call = call, .last = -1};

    for (int d = 0; d < call->in[0]->ndim; d++)
        r.from[d] = (char)('a' + d);
    return r;
}

/* The next dim of the result is dim d of the operand. */
static void keep(rule *r, int d)
{
    r->to[r->ndim++] = r->from[d];
    if (!sherd__is_single(r->call, d)) {
        r->out_of_order |= d < r->last;
        r->last = d;
    }
}

/* The next dim of the result is new, or dim d of the operand (-1: none) stretched to n. */
static void stretch(rule *r, int d, int64_t n)
{
    if (d >= 0)
        r->from[d] = '1';
    r->out_of_order |= n != 1;
    r->call->shape[0][r->ndim] = n;
    r->to[r->ndim++] = '*';
}

static const char *end(const rule *r)
{
    char *to = r->call->rule;

    strcpy(to, r->from);
    strcat(to, "->");
    strcat(to, r->to);
    if (!r->out_of_order)
        sherd__call_in_order(r->call);
    return NULL;
}

static bool restride(sherd_call *call)
{
    const char *from = sherd__label_in(call, 0), *to = sherd__result_label_in(call, 0);
    int64_t stride[SHERD_MAX_DIMS] = {0};
    unsigned stretched = 0;

    for (int d = 0; to[d]; d++) {
        const char *same = to[d] >= 'a' ? strchr(from, to[d]) : NULL;
        if (same)
            stride[d] = call->in[0]->stride[same - from];
        stretched |= (same ? call->in[0]->stretched >> (same - from) & 1 : 1) << d;
    }
    sherd_call_view(call, 0, stride, 0);
    call->out[0]->stretched = stretched;
    return true;
}

/* What all of them share. */
#define VIEW(label, text, describes, back)                                                     \
    .name = label, .summary = text, .operand = {{"a", 0}}, .result = {{"y", 0}},               \
    .linearity = SHERD_UNCHANGED, .numbers = SHERD_EVERYTHING, .strided = true, .views = true, \
    .describe = describes, .forward = restride, .backward = back, .takes_pending = true

/* ---- dims in another order ------------------------------------------------------------------- */

typedef struct order {
    int ndim;
    int dim[SHERD_MAX_DIMS]; /* dim d of the result is this one of the operand */
} order;

static const char *describe_permute(sherd_call *call)
{
    const order *want = call->attributes;
    int ndim = call->in[0]->ndim;
    rule r = begin(call);
    unsigned seen;

    if (want->ndim != ndim)
        return sherd_call_reason(call, "an order of %d dims, not %d", want->ndim, ndim);
    if (!sherd__dims_of(&seen, want->dim, ndim, ndim))
        return "the order does not name each dim once";
    for (int d = 0; d < ndim; d++)
        keep(&r, sherd__dim_of(want->dim[d], ndim));
    return end(&r);
}

static void permute_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const order *was = sherd_node_attributes(node);
    int back[SHERD_MAX_DIMS] = {0};

    for (int d = 0; d < was->ndim; d++)
        back[sherd__dim_of(was->dim[d], was->ndim)] = d;
    grad_in[0] = sherd_permute(grad_out[0], back, was->ndim);
}

const sherd_op sherd__permute_op = {
    VIEW("sherd_permute", "reorder dims; a view", describe_permute, permute_back),
    .field = {SHERD_FIELD(order, ndim, INT), SHERD_FIELDS(order, dim, INT, SHERD_MAX_DIMS)},
    .attributes = sizeof(order)};

sherd_tensor *sherd_permute(sherd_tensor *a, const int *dims, int count)
{
    order want = {.ndim = count && !dims ? -1 : count};

    for (int d = 0; want.ndim <= SHERD_MAX_DIMS && d < want.ndim; d++)
        want.dim[d] = dims[d];
    return sherd_apply(&sherd__permute_op, &a, 1, &want);
}

typedef struct pair {
    int p, q;
} pair;

static const char *describe_transpose(sherd_call *call)
{
    const pair *dims = call->attributes;
    int ndim = call->in[0]->ndim;
    int p = sherd__dim_of(dims->p, ndim), q = sherd__dim_of(dims->q, ndim);
    rule r = begin(call);

    if (p < 0 || q < 0)
        return sherd_call_reason(call, "no dims %d and %d", dims->p, dims->q);
    for (int d = 0; d < ndim; d++)
        keep(&r, d == p ? q : d == q ? p : d);
    return end(&r);
}

static void transpose_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const pair *dims = sherd_node_attributes(node);

    grad_in[0] = sherd_transpose(grad_out[0], dims->p, dims->q);
}

const sherd_op sherd__transpose_op = {
    VIEW("sherd_transpose", "exchange two dims; a view", describe_transpose, transpose_back),
    .field = {SHERD_FIELD(pair, p, INT), SHERD_FIELD(pair, q, INT)}, .attributes = sizeof(pair)};

sherd_tensor *sherd_transpose(sherd_tensor *a, int p, int q)
{
    return sherd_apply(&sherd__transpose_op, &a, 1, &(pair){p, q});
}

/* ---- dims of size 1 -------------------------------------------------------------------------- */

enum { EVERY_DIM = INT32_MAX };

typedef struct one_dim {
    int dim;
} one_dim;

static const char *describe_squeeze(sherd_call *call)
{
    const one_dim *wanted = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(wanted->dim, a->ndim);
    rule r = begin(call);

    /* Of a scalar -1 and 0 are no dims, but there is nothing to leave out either. */
    if (dim < 0 && wanted->dim != EVERY_DIM && (a->ndim || wanted->dim < -1 || wanted->dim > 0))
        return sherd_call_reason(call, "no dim %d", wanted->dim);
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] == 1 && (d == dim || wanted->dim == EVERY_DIM))
            r.from[d] = '1';
        else
            keep(&r, d);
    return end(&r);
}

static void squeeze_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const one_dim *was = sherd_node_attributes(node);
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape), dim = sherd__dim_of(was->dim, ndim);

    grad_in[0] = grad_out[0];
    for (int d = 0; d < ndim; d++)
        if (shape[d] == 1 && (d == dim || was->dim == EVERY_DIM))
            grad_in[0] = sherd_unsqueeze(grad_in[0], d);
}

const sherd_op sherd__squeeze_op = {
    VIEW("sherd_squeeze", "remove dims of size 1; a view", describe_squeeze, squeeze_back),
    .field = {SHERD_FIELD(one_dim, dim, INT)}, .attributes = sizeof(one_dim)};

sherd_tensor *sherd_squeeze(sherd_tensor *a, int dim)
{
    return sherd_apply(&sherd__squeeze_op, &a, 1, &(one_dim){dim == EVERY_DIM ? dim - 1 : dim});
}

sherd_tensor *sherd_squeeze_all(sherd_tensor *a)
{
    return sherd_apply(&sherd__squeeze_op, &a, 1, &(one_dim){EVERY_DIM});
}

static const char *describe_unsqueeze(sherd_call *call)
{
    const one_dim *wanted = call->attributes;
    int ndim = call->in[0]->ndim, dim = sherd__dim_of(wanted->dim, ndim + 1);
    rule r = begin(call);

    if (dim < 0)
        return sherd_call_reason(call, "no place %d for a dim", wanted->dim);
    if (ndim == SHERD_MAX_DIMS)
        return sherd_call_reason(call, "the result would have more than %d dims", SHERD_MAX_DIMS);
    for (int d = 0; d <= ndim; d++)
        if (d == dim)
            stretch(&r, -1, 1);
        else
            keep(&r, d < dim ? d : d - 1);
    return end(&r);
}

static void unsqueeze_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const one_dim *was = sherd_node_attributes(node);

    grad_in[0] = sherd_squeeze(grad_out[0], was->dim);
}

const sherd_op sherd__unsqueeze_op = {
    VIEW("sherd_unsqueeze", "insert a dim of size 1; a view", describe_unsqueeze, unsqueeze_back),
    .field = {SHERD_FIELD(one_dim, dim, INT)}, .attributes = sizeof(one_dim)};

sherd_tensor *sherd_unsqueeze(sherd_tensor *a, int dim)
{
    return sherd_apply(&sherd__unsqueeze_op, &a, 1, &(one_dim){dim});
}

/* ---- dims stretched -------------------------------------------------------------------------- */

typedef struct sizes {
    int ndim;
    int64_t shape[SHERD_MAX_DIMS]; /* -1: as it is */
} sizes;

static const char *describe_expand(sherd_call *call)
{
    const sizes *want = call->attributes;
    const sherd_tensor *a = call->in[0];
    int added = want->ndim - a->ndim;
    rule r = begin(call);

    if (want->ndim > SHERD_MAX_DIMS || added < 0)
        return sherd_call_reason(call, "a shape of %d dims", want->ndim);
    for (int d = 0; d < want->ndim; d++) {
        int at = d - added;
        int64_t n = want->shape[d], has = at >= 0 ? a->shape[at] : 1;
        bool stays = at >= 0 && (n == -1 || n == has);
        if (!stays && (n < 0 || has != 1))
            return sherd_call_reason(call, "dim %d has size %lld, it can not become %lld", at,
                                     (long long)has, (long long)n);
        if (stays)
            keep(&r, at);
        else
            stretch(&r, at, n);
    }
    return end(&r);
}

static void expand_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = sherd__sum_to_operand(node, 0, grad_out[0]);
}

const sherd_op sherd__expand_op = {
    VIEW("sherd_expand", "stretch dims of size 1; a view", describe_expand, expand_back),
    .field = {SHERD_FIELD(sizes, ndim, INT), SHERD_FIELDS(sizes, shape, INT64, SHERD_MAX_DIMS)},
    .attributes = sizeof(sizes)};

sherd_tensor *sherd_expand(sherd_tensor *a, const int64_t *shape, int ndim)
{
    sizes want = {.ndim = ndim && !shape ? -1 : ndim};

    for (int d = 0; want.ndim <= SHERD_MAX_DIMS && d < want.ndim; d++)
        want.shape[d] = shape[d];
    return sherd_apply(&sherd__expand_op, &a, 1, &want);
}

/* ---- as it is -------------------------------------------------------------------------------- */

static const char *describe_same(sherd_call *call)
{
    rule r = begin(call);

    for (int d = 0; d < call->in[0]->ndim; d++)
        keep(&r, d);
    return end(&r);
}

static void same_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    (void)node;
    grad_in[0] = grad_out[0];
}

const sherd_op sherd__detach_op = {
    VIEW("sherd_detach", "the same storage, without a gradient", describe_same, NULL)};

sherd_tensor *sherd_detach(sherd_tensor *a)
{
    return sherd_apply(&sherd__detach_op, &a, 1, NULL);
}

/*
 * Nothing to do: strided pieces are made contiguous before this runs. It is an operator because
 * only some ranks may need that, and all must call.
 */
static bool leave(sherd_call *call)
{
    (void)call;
    return true;
}

const sherd_op sherd__contiguous_op = {.name = "sherd_contiguous",
                                       .summary =
                                           "row-major in memory; a view, or a copy if strided",
                                       .operand = {{"a", 0}},
                                       .result = {{"y", 0}},
                                       .rule = "...->...",
                                       .linearity = SHERD_UNCHANGED,
                                       .numbers = SHERD_EVERYTHING,
                                       .views = true,
                                       .forward = leave,
                                       .backward = same_back,
                                       .takes_pending = true};

sherd_tensor *sherd_contiguous(sherd_tensor *a)
{
    return sherd_apply(&sherd__contiguous_op, &a, 1, NULL);
}

static bool copy(sherd_call *call)
{
    const sherd_tensor *a = call->in[0], *y = call->out[0];

    if (y->count)
        sherd__copy_in(call, sherd_dtype_bytes(a->dtype), a->ndim, a->local, call->to[0], y->stride,
                       call->from[0], a->stride);
    return true;
}

const sherd_op sherd__clone_op = {.name = "sherd_clone",
                                  .summary = "a copy",
                                  .operand = {{"a", 0}},
                                  .result = {{"y", 0}},
                                  .rule = "...->...",
                                  .linearity = SHERD_UNCHANGED,
                                  .numbers = SHERD_EVERYTHING,
                                  .strided = true,
                                  .forward = copy,
                                  .on_device = sherd__copies_there,
                                  .backward = same_back,
                                  .takes_pending = true};

sherd_tensor *sherd_clone(sherd_tensor *a)
{
    return sherd_apply(&sherd__clone_op, &a, 1, NULL);
}
