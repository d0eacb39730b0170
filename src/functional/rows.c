/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of rows, see rows.h. */
#include "rows.h"

void sherd__free_axes(sherd__layout_spec *spec, unsigned axes)
{
    for (int d = 1; d < spec->ndim; d++)
        spec->dim[d] = sherd__dim_without(&spec->dim[d], axes);
    for (int i = 0; i < SHERD_MAX_AXES; i++)
        if (axes >> i & 1)
            spec->pending[i] = -1;
}

sherd_status sherd__lay_settled(const sherd_layout **out, const sherd_layout *given)
{
    sherd__layout_spec spec = given->spec;

    for (int a = 0; a < SHERD_MAX_AXES; a++)
        spec.pending[a] = -1;
    return sherd__layout_intern(out, &spec);
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
                               const int64_t *count, const char *name)
{
    int64_t shards = sherd__dim_parts(before->spec.mesh, &before->spec.dim[0]);
    sherd__sketch s;

    sherd__sketch_begin(&s, before);
    int64_t *cut = shards > 1 ? sherd__sketch_cuts(&s, 0) : NULL;
    if (cut) {
        cut[0] = 0;
        for (int64_t i = 0; i < shards; i++)
            cut[i + 1] = cut[i] + (count ? count[i] : 0);
        cut[shards] = n; /* also on a rank that knows no counts */
        s.spec.dim[0].cuts = cut;
    }
    s.spec.shape[0] = n;
    return sherd__sketch_end(out, &s, name);
}
