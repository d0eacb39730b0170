/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Combining partial results over sharded dims without gathering them: each rank reduces its shard
 * to a few elements per position, these are exchanged, and every rank combines them in shard order,
 * so that all get the same bits. Costs parts * width elements per position.
 */
#include "shared.h"

/* Layout of parts: along dim 0 as the reduced dims are sharded, or all on all ranks. */
static sherd_status parts_layout(const sherd_layout **out, const sherd_layout *in, unsigned reduced,
                                 int64_t width, bool all)
{
    sherd__layout_spec spec = {.mesh = in->spec.mesh, .ndim = 1};
    int64_t parts = 1;

    sherd__spec_settle(&spec);
    for (int d = 0; d < in->spec.ndim; d++) {
        const sherd__dim *dim = &in->spec.dim[d];
        if (!(reduced >> d & 1)) {
            spec.shape[spec.ndim] = in->spec.shape[d];
            spec.dim[spec.ndim++] = *dim;
            continue;
        }
        parts *= sherd__dim_parts(spec.mesh, dim);
        for (int i = 0; i < dim->axes && !all; i++)
            spec.dim[0].axis[spec.dim[0].axes++] = dim->axis[i];
    }
    spec.shape[0] = parts * width; /* as many equal shards as parts */
    return sherd__layout_intern(out, &spec);
}

sherd_tensor *sherd__new_parts(sherd_call *call, unsigned reduced, sherd_dtype dtype, int64_t width)
{
    const sherd_tensor *in = call->in[0];
    const sherd_layout *layout;
    int64_t shape[SHERD_MAX_DIMS + 1] = {width};
    int ndim = 1;

    sherd__open_in(call);
    if (in->layout && parts_layout(&layout, in->layout, reduced, width, false) != SHERD_OK) {
        sherd__fail_diag(call->world, true);
        return NULL;
    }
    for (int d = 0; d < in->ndim; d++)
        if (!(reduced >> d & 1))
            shape[ndim++] = in->shape[d];
    bool there = sherd__device_in(call) != NULL;
    sherd_tensor *t =
        in->layout ? sherd__new_on_there(layout, dtype, there)
                   : sherd__new_plain_there(call->world, dtype, ndim, shape, in->varies, there);
    return sherd_tensor_failed(t) ? NULL : t;
}

int64_t sherd__parts_count(const sherd_call *call, const sherd_tensor *mine, int64_t width)
{
    return call->in[0]->layout ? mine->layout->spec.shape[0] / width : 1;
}

const void *sherd__all_parts(sherd_call *call, unsigned reduced, sherd_tensor *mine, int64_t width,
                             int64_t *parts)
{
    const sherd_layout *in = call->in[0]->layout, *layout;

    *parts = sherd__parts_count(call, mine, width);
    if (*parts == 1)
        return sherd__device_in(call) ? sherd__device_data(mine) : sherd__data(mine);
    if (parts_layout(&layout, in, reduced, width, true) != SHERD_OK) {
        sherd__fail_diag(call->world, true);
        return NULL;
    }
    sherd_tensor *all = sherd__move_to(mine, layout, false);
    if (sherd_tensor_failed(all))
        return NULL;
    return sherd__device_in(call) ? sherd__device_data(all) : sherd__data(all);
}
