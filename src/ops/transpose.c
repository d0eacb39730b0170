/* SPDX-License-Identifier: Apache-2.0 */
/* Two dims exchanged: a strided view of the same storage. The shards of a dim go with it. */
#include "operator.h"

typedef struct transpose_attrs {
    int p, q;
} transpose_attrs;

static void transpose_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const transpose_attrs *attrs = sherd__attrs(node);

    grad_in[0] = sherd_transpose(grad_out[0], attrs->p, attrs->q);
}

static const sherd__backward transpose_table = {"sherd_transpose", true, transpose_back};

static void swap(int64_t *sizes, int p, int q)
{
    int64_t size = sizes[p];

    sizes[p] = sizes[q];
    sizes[q] = size;
}

static sherd_status swap_layout(const sherd_layout **out, const sherd_layout *layout, int p, int q)
{
    sherd__layout_spec spec = layout->spec;

    swap(spec.shape, p, q);
    spec.dim[p] = layout->spec.dim[q];
    spec.dim[q] = layout->spec.dim[p];
    return sherd__layout_intern(out, &spec);
}

sherd_tensor *sherd_transpose(sherd_tensor *a, int p, int q)
{
    static const char *const names[] = {"a"};
    const sherd_layout *layout = NULL;
    sherd_tensor *failed;
    sherd__operands o = {"sherd_transpose", names, &a, 1, 0};

    if (!sherd__enter(&o, &failed))
        return failed;
    if (p < -a->ndim || p >= a->ndim || q < -a->ndim || q >= a->ndim)
        return sherd__refuse(&o, SHERD_EINVAL, "no dims %d and %d", p, q);
    transpose_attrs attrs = {p < 0 ? p + a->ndim : p, q < 0 ? q + a->ndim : q};
    if (a->layout && swap_layout(&layout, a->layout, attrs.p, attrs.q) != SHERD_OK)
        return sherd__fail_diag(a->world, true);

    sherd_tensor *y = sherd__new_view(a);
    if (sherd_tensor_failed(y))
        return y;
    sherd__layout_set(&y->layout, layout);
    sherd__layout_set(&y->was, NULL);
    swap(y->shape, attrs.p, attrs.q);
    swap(y->local, attrs.p, attrs.q);
    swap(y->stride, attrs.p, attrs.q);
    sherd__note_one(transpose_table.name, a, sherd__attribute((uint64_t)attrs.p, (uint64_t)attrs.q),
                    y);
    sherd__record_node(a->world, &transpose_table, &a, 1, &y, 1, &attrs, sizeof attrs);
    return y;
}
