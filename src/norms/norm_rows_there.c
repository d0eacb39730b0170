/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms of rows that lie on several ranks, on the GPU: as in norm_rows.c, in the dtype of
 * statistics. Ranks exchange three numbers of each row (how many elements, mean, squared
 * differences; one if rows are not centred), and in backward two.
 */
#include "norm_rows.h"

#include "base/num.h"
#include "device/over_rows.h"
#include "device/shared_rows.h"

/* Dims that make a row, as bits. */
static unsigned row_bits(const sherd_call *call, const sherd__normed_rows *p)
{
    int ndim = call->in[0]->ndim;

    return ((1u << ndim) - 1) & ~((1u << (ndim - p->dims)) - 1);
}

/* Room for n statistics. NULL: failed. */
static void *room(sherd_call *call, sherd_dtype dtype, int64_t n)
{
    return sherd__device_scratch(call, sherd__max(n, 1) * (int64_t)sherd_dtype_bytes(dtype));
}

bool sherd__row_norm_apart_there(sherd_call *call, const sherd__row_norm *of)
{
    const sherd__row_norm_attributes *a = call->attributes;
    sherd__device *device = sherd__device_in(call);
    const sherd__normed_rows p = sherd__rows_of(call, call->in[0], call->out[of->scale]);
    sherd_dtype dtype = call->in[0]->dtype, stat = sherd__statistics_dtype(dtype);
    unsigned bits = row_bits(call, &p);
    bool centred = of->mean >= 0;
    int64_t width = centred ? 3 : 1, parts;
    sherd_tensor *mine = sherd__new_parts(call, bits, stat, width);
    void *mean = !centred             ? NULL
                 : call->to[of->mean] ? call->to[of->mean]
                                      : room(call, stat, p.rows);

    if (!mine || (centred && !mean))
        return false;
    if (mine->count)
        sherd__device_row_moments(device, dtype, p.rows, p.inner, centred,
                                  sherd__device_fresh(mine), call->from[0]);
    const void *all = sherd__all_parts(call, bits, mine, width, &parts);
    if (!all || p.rows == 0)
        return all != NULL;
    sherd__device_row_moments_join(device, stat, parts, p.rows, p.length, a->eps, mean,
                                   call->to[of->scale], all);
    sherd__device_row_norm(device, dtype, p.rows, p.inner, call->to[0], call->from[0], mean,
                           call->to[of->scale], call->from[of->weight],
                           of->bias < 0 ? NULL : call->from[of->bias]);
    return true;
}

bool sherd__row_norm_apart_grad_there(sherd_call *call, const sherd__row_norm *of)
{
    enum { DY, X };
    enum { DX, DWEIGHT, DBIAS };
    sherd__device *device = sherd__device_in(call);
    const sherd__normed_rows p = sherd__rows_of(call, call->in[X], call->in[of->scale]);
    sherd_dtype dtype = call->in[X]->dtype, stat = sherd__statistics_dtype(dtype);
    unsigned bits = row_bits(call, &p);
    bool centred = of->mean >= 0;
    const void *mean = centred ? call->from[of->mean] : NULL, *rstd = call->from[of->scale];
    int64_t width = centred ? 2 : 1, parts;
    sherd_tensor *mine = sherd__new_parts(call, bits, stat, width);
    void *sums = room(call, stat, width * p.rows);

    if (!mine || !sums)
        return false;
    if (mine->count)
        sherd__device_row_sums(device, dtype, p.rows, p.inner, sherd__device_fresh(mine),
                               call->from[DY], call->from[X], mean, call->from[of->weight]);
    const void *all = sherd__all_parts(call, bits, mine, width, &parts);
    if (!all)
        return false;
    if (p.rows) {
        sherd__device_sum(device, stat, sums, all, 1, parts, width * p.rows, false);
        sherd__device_row_norm_grad(device, dtype, p.rows, p.inner, p.length, call->to[DX],
                                    call->from[DY], call->from[X], mean, rstd,
                                    call->from[of->weight], sums);
    }
    sherd__device_norm_columns(device, dtype, p.rows, p.inner, call->to[DWEIGHT],
                               centred ? call->to[DBIAS] : NULL, call->from[DY], call->from[X],
                               mean, rstd);
    return true;
}
