/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of dims to reduce, their rules, and backward: a gradient spread over the reduced dims. */
#include "dims.h"
#include "sherd/ops_reductions.h"

#include <string.h>

#include "base/num.h"

enum { NO_LIST = -99 };

sherd__dims sherd__dims_given(const sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    sherd__dims d = {.count = count > 0 && !dims ? NO_LIST : count, .keepdim = keepdim};
    int most = a && a->ndim ? a->ndim : 1; /* a longer list is refused later, so it is not read */

    for (int i = 0; i < count && count <= most && dims; i++)
        d.dim[i] = dims[i];
    return d;
}

const char *sherd__dims_fault(sherd_call *call, const sherd__dims *dims, int ndim)
{
    int room = ndim ? ndim : 1; /* a scalar takes 0 and -1 */
    unsigned seen = 0;

    if (dims->count == NO_LIST)
        return "dims is NULL";
    if (dims->count < 0 || dims->count > room)
        return sherd_call_reason(call, "it has %d dims, not %d", room, dims->count);
    for (int i = 0; i < dims->count; i++) {
        int d = dims->dim[i];
        if (d < -room || d >= room)
            return sherd_call_reason(call, "there is no dim %d", d);
        d += d < 0 ? room : 0;
        if (seen >> d & 1)
            return sherd_call_reason(call, "dim %d is named twice", d);
        seen |= 1u << d;
    }
    return NULL;
}

unsigned sherd__dims_bits(const sherd__dims *dims, int ndim)
{
    unsigned bits = dims->count ? 0 : (1u << ndim) - 1;

    for (int i = 0; i < dims->count && ndim; i++)
        bits |= 1u << (dims->dim[i] + (dims->dim[i] < 0 ? ndim : 0));
    return bits;
}

const char *sherd__dims_rule(sherd_call *call, const sherd__dims *dims)
{
    int ndim = call->in[0]->ndim, n = 0;
    const char *reason = sherd__dims_fault(call, dims, ndim);

    if (reason)
        return reason;
    unsigned bits = sherd__dims_bits(dims, ndim);
    for (int d = 0; d < ndim; d++)
        call->rule[n++] = (char)((bits >> d & 1 ? 'p' : 'a') + d);
    call->rule[n++] = '-';
    call->rule[n++] = '>';
    for (int d = 0; d < ndim; d++)
        if (!(bits >> d & 1))
            call->rule[n++] = (char)('a' + d);
        else if (dims->keepdim)
            call->rule[n++] = '1';
    call->rule[n] = '\0';
    return NULL;
}

bool sherd__dims_are_neighbours(const sherd__dims *dims, int ndim)
{
    unsigned bits = sherd__dims_bits(dims, ndim);

    while (bits && !(bits & 1))
        bits >>= 1;
    return (bits & (bits + 1)) == 0;
}

/*
 * Whether all dims between two reduced ones are reduced, or have one element; then *slab, whose
 * sizes are 1 before, has the sizes.
 */
static bool are_together(const sherd_tensor *in, unsigned reduced, sherd__dims_box *slab)
{
    bool behind = false;

    for (int d = 0; d < in->ndim; d++) {
        bool folds = reduced >> d & 1;
        if (in->local[d] == 1)
            continue;
        if (folds && behind)
            return false;
        behind |= !folds && slab->mid > 1;
        *(folds ? &slab->mid : behind ? &slab->inner : &slab->outer) *= in->local[d];
    }
    return true;
}

sherd__squares sherd__squares_of(const sherd_tensor *t, const sherd__dims *dims)
{
    sherd__dims_box box = {NULL, 1, 1, 1};

    are_together(t, sherd__dims_bits(dims, t->ndim), &box);
    return (sherd__squares){box.outer, box.mid, box.inner};
}

void sherd__dims_rule_beside(sherd_call *call, const sherd__dims *dims, bool reduces)
{
    int last = call->operands - 1, ndim = call->in[last]->ndim, n = 0;
    unsigned bits = sherd__dims_bits(dims, ndim);

    for (int operand = 0; operand <= call->operands; operand++) {
        bool narrow = (operand < last), result = (operand > last) && reduces;
        for (int d = 0; d < ndim; d++)
            if (!result || !(bits >> d & 1))
                call->rule[n++] = narrow && bits >> d & 1 ? '1' : (char)('a' + d);
            else if (dims->keepdim)
                call->rule[n++] = '1';
        if (operand <= last)
            call->rule[n++] = narrow ? ',' : '-';
        if (operand == last)
            call->rule[n++] = '>';
    }
    call->rule[n] = '\0';
}

const char *sherd__describe_sums(sherd_call *call)
{
    call->dtype[0] = SHERD_F64;
    return sherd__dims_rule(call, call->attributes);
}

const char *sherd__describe_beside(sherd_call *call)
{
    sherd__dims_rule_beside(call, call->attributes, false);
    return NULL;
}

int64_t sherd__dims_count(const sherd__dims *dims, const sherd_tensor *t)
{
    unsigned bits = sherd__dims_bits(dims, t->ndim);
    int64_t size[SHERD_MAX_DIMS], n = ((int64_t)1 << SHERD__SIZE_LIMIT_LOG2) - 1;
    int count = 0;

    for (int d = 0; d < t->ndim; d++)
        if (bits >> d & 1)
            size[count++] = t->shape[d];
    /* if the product is too large, another size is 0, and nothing is reduced */
    sherd__count(size, count, &n);
    return n;
}

void sherd__dims_strides(const sherd_tensor *in, unsigned reduced, int64_t *stride)
{
    int64_t n = 1;

    for (int d = in->ndim - 1; d >= 0; d--) {
        stride[d] = reduced >> d & 1 ? 0 : n;
        n *= reduced >> d & 1 ? 1 : in->local[d];
    }
}

/* Dims of the operand, which is row-major, these first; how many elements they have. */
static int64_t put_dims(const sherd_tensor *in, unsigned dims, int *ndim, int64_t *size,
                        int64_t *stride)
{
    int64_t n = 1, whole[SHERD_MAX_DIMS];

    sherd__row_major(in->ndim, in->local, whole);
    for (int d = 0; d < in->ndim; d++)
        if (dims >> d & 1) {
            size[*ndim] = in->local[d];
            stride[(*ndim)++] = whole[d];
            n *= in->local[d];
        }
    return n;
}

bool sherd__dims_slab(sherd_call *call, unsigned reduced, sherd__dims_box *slab)
{
    const sherd_tensor *in = call->in[0];
    size_t element = sherd_dtype_bytes(in->dtype);
    int64_t size[SHERD_MAX_DIMS], from[SHERD_MAX_DIMS], to[SHERD_MAX_DIMS];
    int ndim = 0;

    *slab = (sherd__dims_box){call->from[0], 1, 1, 1};
    if (are_together(in, reduced, slab))
        return true;
    int64_t outer = put_dims(in, ~reduced, &ndim, size, from);
    int64_t mid = put_dims(in, reduced, &ndim, size, from);
    void *rows = sherd__device_scratch(call, in->count * (int64_t)element);
    *slab = (sherd__dims_box){rows, outer, mid, 1};
    if (!rows)
        return false;
    sherd__row_major(ndim, size, to);
    sherd__device_copy_box(sherd__device_in(call), element, ndim, size, rows, to, call->from[0],
                           from);
    return true;
}

sherd_tensor *sherd__sum_to_channels(sherd_tensor *t)
{
    int others[SHERD_MAX_DIMS], count = 0;

    for (int d = 0; d < t->ndim; d++)
        if (d != 1)
            others[count++] = d;
    return sherd_sum_over(t, others, count, false);
}

/* ---- backward -------------------------------------------------------------------------------- */

sherd_tensor *sherd__dims_kept(sherd_node *node, sherd_tensor *t)
{
    const sherd__dims *dims = sherd_node_attributes(node);
    const int64_t *shape;
    int64_t kept[SHERD_MAX_DIMS];
    int ndim = sherd_node_shape(node, 0, &shape);
    unsigned bits = sherd__dims_bits(dims, ndim);

    for (int d = 0; d < ndim; d++)
        kept[d] = bits >> d & 1 ? 1 : shape[d];
    return dims->keepdim ? t : sherd_view(t, kept, ndim);
}

typedef struct spread_attributes {
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
} spread_attributes;

/* "1b,ab->ab": dy with dims of size 1, the operand's layout, which may be absent. */
static const char *describe_spread(sherd_call *call)
{
    const spread_attributes *to = call->attributes;
    const sherd_tensor *dy = call->in[0];
    int n = 0;

    for (int d = 0; d < to->ndim; d++)
        call->rule[n++] = dy->shape[d] == to->shape[d] ? (char)('a' + d) : '1';
    for (int times = 0; times < 2; times++) {
        call->rule[n++] = times ? '-' : ',';
        if (times)
            call->rule[n++] = '>';
        for (int d = 0; d < to->ndim; d++)
            call->rule[n++] = (char)('a' + d);
    }
    call->rule[n] = '\0';
    memcpy(call->shape[0], to->shape, sizeof to->shape);
    return NULL;
}

static bool spread(sherd_call *call)
{
    const sherd_tensor *out = call->out[0];
    int64_t stride[SHERD_MAX_DIMS];

    sherd__broadcast_strides(call, 0, stride);
    if (out->count)
        sherd__copy_in(call, sherd_dtype_bytes(out->dtype), out->ndim, out->local, call->to[0],
                       out->stride, call->from[0], stride);
    return true;
}

static void spread_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);

    grad_in[0] = sherd__sum_to(grad_out[0], ndim, shape);
}

static const sherd_op spread_op = {
    .name = "backward of a sum",
    .operand = {{"dy", 0}, {"a", SHERD_OP_OPTIONAL}},
    .result = {{"da", 0}},
    .field = {SHERD_FIELD(spread_attributes, ndim, INT),
              SHERD_FIELDS(spread_attributes, shape, INT64, SHERD_MAX_DIMS)},
    .attributes = sizeof(spread_attributes),
    .strided = true,
    .describe = describe_spread,
    .forward = spread,
    .on_device = sherd__copies_there,
    .backward = spread_back};

sherd_tensor *sherd__dims_spread(sherd_node *node, sherd_tensor *grad)
{
    const sherd_layout *layout = sherd_node_layout(node, 0), *like[2] = {NULL, NULL};
    sherd_tensor *in[] = {sherd__dims_kept(node, grad), NULL};
    sherd_tensor *result[SHERD_MAX_RESULTS] = {sherd__failed(sherd__node_world(node))};
    const int64_t *shape;
    spread_attributes to = {.ndim = sherd_node_shape(node, 0, &shape)};

    memcpy(to.shape, shape, sherd__bytes(to.ndim) * sizeof *shape);
    if (layout && sherd__layout_settle(&like[1], layout) != SHERD_OK)
        sherd__fail_diag(sherd__node_world(node), true);
    else
        sherd__apply_like(result, &spread_op, in, 2, &to, like);
    return result[0];
}
