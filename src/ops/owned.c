/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether elements of a sharded dim come from their owners, and the layouts then: the indexed
 * operand keeps its layout; the index and what is taken keep their own shards of the indexed dim.
 * Otherwise the dim is gathered, or every rank handles all indices that it can, for a pending sum.
 * What the busiest rank receives decides, with a price for each further call.
 */
#include "owners.h"

#include "apply/sketch.h"

enum { CODE = 1 /* an index, in elements of SHERD__PRICED_BYTES */ };

static unsigned axes_beside(const sherd__layout_spec *a, int dim)
{
    unsigned bits = 0;

    for (int d = 0; d < a->ndim; d++)
        bits |= d == dim ? 0 : sherd__dim_bits(&a->dim[d]);
    return bits;
}

/* How many elements the busiest rank receives if owners are not asked. */
static int64_t received_else(const sherd__owned_question *q, const sherd__dim *rows, int64_t n,
                             int64_t beside)
{
    const sherd__layout_spec *a = &q->a->spec;
    const sherd__dim *dim = &a->dim[q->dim];
    int64_t parts = sherd__dim_parts(a->mesh, dim), size = a->shape[q->dim];

    if (q->gives)
        return sherd__dim_bits(rows) & sherd__dim_bits(dim) ? n * (beside + CODE) : 0;
    /*
     * Settling a pending sum of the result moves about twice its size; gathering the dim moves what
     * one shard lacks of it.
     */
    return 2 * n > size ? (size - size / parts) * beside : 2 * n * beside;
}

/*
 * Slices are asked for once, so at most all that a shard lacks, and a number for each, arrive; most
 * often far less, where indices are near what they point to, as in the meshes and graphs that are
 * sharded by space. So owners are asked even if an eighth more than by gathering would arrive
 * at worst, which also takes memory for the whole dim.
 */
static bool risks_little(const sherd__owned_question *q, int64_t whole, int64_t beside)
{
    return q->flat && !q->gives && !q->on_device &&
           whole / beside * CODE + 2 * SHERD__CALL_ELEMENTS <= whole / 8;
}

static bool pays(const sherd__owned_question *q, const sherd__dim *rows, int64_t n)
{
    const sherd__layout_spec *a = &q->a->spec;
    int64_t beside = sherd__elements_beside(a, q->dim), mine = sherd__dim_longest(a->mesh, rows, n);
    int64_t codes = q->flat ? CODE : beside * CODE, otherwise = received_else(q, rows, n, beside);

    if (sherd__layout_largest(q->a) >= INT32_MAX || mine * beside >= INT32_MAX)
        return false;
    return mine * (beside + codes) + SHERD__CALL_ELEMENTS * (q->gives ? 1 : 2) < otherwise ||
           (beside > 0 && 2 * n > a->shape[q->dim] && risks_little(q, otherwise, beside));
}

/* The layout of `a` with another dim, or of the index alone. */
static sherd_status lay(const sherd_layout **out, const sherd__owned_question *q,
                        const sherd__dim *rows, int64_t n, bool flat)
{
    sherd__layout_spec spec = q->a->spec;

    if (flat)
        spec.ndim = 1;
    spec.dim[flat ? 0 : q->dim] = *rows;
    spec.shape[flat ? 0 : q->dim] = n;
    return sherd__layout_intern(out, &spec);
}

sherd_status sherd__owned_lie(sherd__owned *out, const sherd__owned_question *q)
{
    const sherd__layout_spec *a = &q->a->spec, *index = &q->index->spec;
    int at = q->flat ? 0 : q->dim;
    sherd__dim rows = sherd__dim_without(&index->dim[at], axes_beside(a, q->dim));
    unsigned owners = sherd__dim_bits(&a->dim[q->dim]), givers = sherd__dim_bits(&rows) & ~owners;

    *out = (sherd__owned){.index = NULL};
    if (sherd__dim_parts(a->mesh, &a->dim[q->dim]) < 2 || q->a->pending_axes ||
        q->index->pending_axes || a->mesh != index->mesh || !pays(q, &rows, index->shape[at]))
        return SHERD_OK;
    sherd__layout_spec given = *a;
    for (int axis = 0; axis < a->mesh->axes; axis++)
        if (givers >> axis & 1)
            given.pending[axis] = (int)q->reduces;
    sherd_status status = lay(&out->taken, q, &rows, index->shape[at], false);
    if (!status)
        status = sherd__layout_intern(&out->given, &given);
    return status ? status : lay(&out->index, q, &rows, index->shape[at], q->flat);
}
