/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How norms of rows lie: x is not moved, even if its rows are on several ranks; what has one number
 * per row, or one row, is laid out to fit.
 */
#include "norm_rows.h"

#include <string.h>

#include "apply/sketch.h"

static int dims_of(const sherd_call *call)
{
    const sherd__row_norm_attributes *a = call->attributes;

    return (int)a->more + 1;
}

const char *sherd__row_norm_describe(sherd_call *call)
{
    const sherd__row_norm_attributes *a = call->attributes;
    size_t at = 0;

    if (a->more < 0 || a->more >= SHERD_MAX_DIMS)
        return sherd_call_reason(call, "%lld dims to normalise: at least 1, and at most %d",
                                 (long long)a->more + 1, SHERD_MAX_DIMS);
    if (a->more == 0)
        return NULL;
    for (const char *c = call->op->rule; *c; c++) {
        size_t n = *c == 'd' ? (size_t)dims_of(call) : 1;
        memcpy(call->rule + at, *c == 'd' ? SHERD__ROW_LETTERS : c, n);
        at += n;
    }
    call->rule[at] = '\0';
    return NULL;
}

/* In how many parts the rows of x are divided. */
static int64_t parts_of(const sherd_layout *x, int dims)
{
    int64_t parts = 1;

    for (int d = x->spec.ndim - dims; d < x->spec.ndim; d++)
        parts *= sherd__dim_parts(x->spec.mesh, &x->spec.dim[d]);
    return parts;
}

/* The layout of the dims [first, first + ndim) of x. */
static sherd_status lay(const sherd_layout **out, const sherd__layout_spec *x, int first, int ndim,
                        unsigned pending)
{
    sherd__layout_spec spec = {.mesh = x->mesh, .ndim = ndim};

    for (int d = 0; d < ndim; d++) {
        spec.shape[d] = x->shape[first + d];
        spec.dim[d] = x->dim[first + d];
    }
    sherd__spec_sums(&spec, pending);
    return sherd__layout_intern(out, &spec);
}

sherd_status sherd__row_norm_ways(const sherd_call *call, sherd_ways *ways, int x, const char *lie)
{
    const sherd__layout_spec *spec = &sherd__way_given(ways, x)->spec;
    const sherd_layout *lying[SHERD_MAX_OPERANDS + SHERD_MAX_RESULTS] = {NULL};
    const char *results = strchr(lie, '>') + 1;
    int dims = dims_of(call), first = spec->ndim - dims, operands = call->operands;
    unsigned apart = 0;
    sherd_status status = SHERD_OK;

    if (parts_of(sherd__way_given(ways, x), dims) == 1)
        return SHERD_OK;
    for (int d = 0; d < first; d++)
        apart |= sherd__dim_bits(&spec->dim[d]);
    for (int i = 0; i < operands + call->results && !status; i++) {
        char how = i < operands ? lie[i] : results[i - operands];
        if (i < operands && !sherd__way_given(ways, i))
            continue;
        if (how == 'w')
            status = lay(&lying[i], spec, first, dims, i < operands ? 0 : apart);
        else
            status = lay(&lying[i], spec, 0, how == 'x' ? spec->ndim : first, 0);
    }
    return status ? status : sherd_way_add(ways, lying, lying + operands);
}

sherd__normed_rows sherd__rows_of(const sherd_call *call, const sherd_tensor *x,
                                  const sherd_tensor *per_row)
{
    int dims = dims_of(call), first = x->ndim - dims;
    sherd__normed_rows p = {.rows = per_row->count,
                            .inner = sherd__local_count(x, first, x->ndim),
                            .length = 1,
                            .dims = dims,
                            .apart = x->layout && parts_of(x->layout, dims) > 1};

    for (int d = first; d < x->ndim; d++)
        p.length *= (double)x->shape[d];
    return p;
}
