/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of rows, see rows.h. */
#include "rows.h"

int64_t sherd__row_shards(const sherd_tensor *t)
{
    return t->layout ? sherd__dim_parts(t->layout->spec.mesh, &t->layout->spec.dim[0]) : 1;
}

int64_t sherd__rows_of_shard(const sherd_tensor *t, int64_t shard)
{
    if (!t->layout)
        return t->shape[0];
    const sherd__layout_spec *spec = &t->layout->spec;
    return sherd__dim_cut(spec->mesh, &spec->dim[0], spec->shape[0], shard + 1) -
           sherd__dim_cut(spec->mesh, &spec->dim[0], spec->shape[0], shard);
}

bool sherd__rows_are_dense(const sherd_tensor *t, int dims)
{
    int64_t stride = 1;

    for (int d = t->ndim - 1; d >= dims; stride *= t->local[d--])
        if (t->local[d] != 1 && t->stride[d] != stride)
            return false;
    return true;
}

bool sherd__stay_dry(sherd_call *call)
{
    (void)call;
    return true;
}

sherd_status sherd__counts_ways(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *operand, *result;
    sherd_status status = sherd__layout_settle(&operand, sherd__way_given(ways, 0));

    if (!status)
        status = sherd__replicated(&result, operand->spec.mesh, call->ndim[0], call->shape[0]);
    return status ? status : sherd_way_add(ways, &operand, &result);
}

const int64_t *sherd__counts_of(sherd_tensor *count)
{
    int64_t all = 1;

    for (int d = 0; d < count->ndim; d++)
        all *= count->shape[d];
    return count->count == all ? sherd__data(count) : NULL;
}

bool sherd__counts_add_up(const int64_t *count, int64_t n, int64_t total)
{
    int64_t left = total;

    for (int64_t i = 0; i < n; i++) {
        if (count[i] < 0 || count[i] > left)
            return false;
        left -= count[i];
    }
    return left == 0;
}

void sherd__free_axes(sherd__layout_spec *spec, unsigned axes)
{
    for (int d = 1; d < spec->ndim; d++)
        spec->dim[d] = sherd__dim_without(&spec->dim[d], axes);
    for (int i = 0; i < SHERD_MAX_AXES; i++)
        if (axes >> i & 1)
            spec->pending[i] = -1;
}

sherd_status sherd__lay_rows(const sherd_layout **out, const sherd_layout *x,
                             const sherd_layout *rows)
{
    sherd__layout_spec spec = x->spec;

    sherd__free_axes(&spec, sherd__dim_bits(&rows->spec.dim[0]));
    spec.dim[0] = rows->spec.dim[0];
    spec.shape[0] = rows->spec.shape[0];
    return sherd__layout_intern(out, &spec);
}

sherd_status sherd__lay_counts(const sherd_layout **out, const sherd_layout *before, int64_t n,
                               const int64_t *count, int64_t lists, const char *name)
{
    int64_t shards = sherd__dim_parts(before->spec.mesh, &before->spec.dim[0]);
    sherd__sketch s;

    sherd__sketch_begin(&s, before);
    int64_t *cut = shards > 1 ? sherd__sketch_cuts(&s, 0) : NULL;
    if (cut) {
        cut[0] = 0;
        for (int64_t i = 0; i < shards; i++) {
            cut[i + 1] = cut[i];
            for (int64_t list = 0; count && list < lists; list++)
                cut[i + 1] += count[list * shards + i];
        }
        cut[shards] = n; /* also on a rank that knows no counts */
        s.spec.dim[0].cuts = cut;
    }
    s.spec.shape[0] = n;
    return sherd__sketch_end(out, &s, name);
}
