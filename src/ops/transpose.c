/* SPDX-License-Identifier: Apache-2.0 */
/* Two dims exchanged: a strided view of the same storage. The shards of a dim go with it. */
#include "operator.h"

#include <string.h>

typedef struct transpose_attributes {
    int p, q;
} transpose_attributes;

/* Which dim of the operand becomes dim d. */
static int source_of(const sherd_call *call, int d)
{
    const transpose_attributes *attributes = call->attributes;
    int ndim = call->in[0]->ndim;
    int p = attributes->p < 0 ? attributes->p + ndim : attributes->p;
    int q = attributes->q < 0 ? attributes->q + ndim : attributes->q;

    return d == p ? q : d == q ? p : d;
}

static const char *describe(sherd_call *call)
{
    const transpose_attributes *attributes = call->attributes;
    int ndim = call->in[0]->ndim, n = 0;

    if (attributes->p < -ndim || attributes->p >= ndim || attributes->q < -ndim ||
        attributes->q >= ndim)
        return sherd_call_reason(call, "no dims %d and %d", attributes->p, attributes->q);
    for (int d = 0; d < ndim; d++)
        call->rule[n++] = (char)('a' + d);
    call->rule[n++] = '-';
    call->rule[n++] = '>';
    for (int d = 0; d < ndim; d++)
        call->rule[n++] = (char)('a' + source_of(call, d));
    call->rule[n] = '\0';
    return NULL;
}

static bool transpose(sherd_call *call)
{
    int64_t stride[SHERD_MAX_DIMS];

    for (int d = 0; d < call->in[0]->ndim; d++)
        stride[d] = call->in[0]->stride[source_of(call, d)];
    sherd_call_view(call, 0, stride, 0);
    return true;
}

static void transpose_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const transpose_attributes *attributes = sherd_node_attributes(node);

    grad_in[0] = sherd_transpose(grad_out[0], attributes->p, attributes->q);
}

const sherd_op sherd__transpose_op = {
    .name = "sherd_transpose",
    .summary = "two dims exchanged; a view",
    .layouts = "shards go with their dim",
    .operand = {{"a", 0}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELD(transpose_attributes, p, INT), SHERD_FIELD(transpose_attributes, q, INT)},
    .attributes = sizeof(transpose_attributes),
    .linearity = SHERD_UNCHANGED,
    .numbers = SHERD_EVERYTHING,
    .strided = true,
    .views = true,
    .describe = describe,
    .forward = transpose,
    .backward = transpose_back,
    .takes_pending = true};

sherd_tensor *sherd_transpose(sherd_tensor *a, int p, int q)
{
    return sherd_apply(&sherd__transpose_op, &a, 1, &(transpose_attributes){p, q});
}
