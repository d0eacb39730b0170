/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms over sets on the GPU. Ranks that share sets exchange their numbers for each row from one
 * GPU's memory to another's, and combine them there, in shard order: no rank waits for its GPU.
 */
#include "norms_there.h"

#include "base/dtype.h"
#include "base/num.h"
#include "device/sets.h"

enum { X, WEIGHT, BIAS, GIVEN_MEAN, GIVEN_VAR };
enum { Y, MEAN, VAR };
enum { G_DY, G_X, G_MEAN, G_VAR, G_WEIGHT };
enum { G_DX, G_DWEIGHT, G_DBIAS };

bool sherd__norm_fits_there(const sherd_call *call, const sherd__sets *p, const sherd_tensor *mean,
                            const sherd_tensor *var, bool given)
{
    sherd_dtype statistics = sherd__statistics_dtype(call->in[0]->dtype);
    bool cut;

    if (!sherd__device_in(call))
        return false;
    sherd__sets_shared(call->in[0], p, &cut);
    if (given)
        return sherd__device_computes(mean->dtype) && sherd__device_computes(var->dtype);
    return !cut && mean->dtype == statistics && var->dtype == statistics;
}

static sherd__device_sets there(const sherd__sets *p)
{
    return (sherd__device_sets){.n = p->n,
                                .first = p->first,
                                .group = p->group,
                                .slots = p->slots,
                                .rows = p->rows,
                                .sets = p->sets};
}

static const sherd__norm_attributes *attributes_of(const sherd_call *call)
{
    return call->attributes;
}

/* ---- what ranks exchange --------------------------------------------------------------------- */

/* Numbers of rows: where this rank writes its own, and after `exchange` those of all parts. */
typedef struct shared {
    unsigned dims;
    int width;
    sherd_tensor *mine; /* NULL: no other rank has a part */
    double *own;
    const double *all; /* [parts,width,rows] */
    int64_t parts;
} shared;

/* False: failed. */
static bool prepare(sherd_call *call, const sherd__sets *p, int width, shared *s)
{
    bool cut;

    *s = (shared){.dims = sherd__sets_shared(call->in[0], p, &cut), .width = width, .parts = 1};
    if (s->dims) {
        s->mine = sherd__new_parts(call, s->dims, SHERD_F64, width);
        s->own = s->mine && s->mine->count ? sherd__device_fresh(s->mine) : NULL;
        return s->mine && (s->own || !s->mine->count);
    }
    s->all = s->own =
        sherd__device_scratch(call, sherd__max(width * p->rows, 1) * (int64_t)sizeof(double));
    return s->own != NULL;
}

/* False: failed. */
static bool exchange(sherd_call *call, shared *s)
{
    if (s->mine)
        s->all = sherd__all_parts(call, s->dims, s->mine, s->width, &s->parts);
    return s->all || (s->mine && s->mine->count == 0);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Numbers of rows that make the given mean and variance: of one element each. */
static void write_given(sherd_call *call, const sherd__sets *p, double *numbers)
{
    sherd__device *device = sherd__device_in(call);

    sherd__device_fill(device, SHERD_F64, numbers, p->rows, 1);
    sherd__device_convert(device, SHERD_F64, call->in[GIVEN_MEAN]->dtype, p->rows,
                          numbers + p->rows, call->from[GIVEN_MEAN]);
    sherd__device_convert(device, SHERD_F64, call->in[GIVEN_VAR]->dtype, p->rows,
                          numbers + 2 * p->rows, call->from[GIVEN_VAR]);
}

static const void *parameter(const sherd_call *call, int operand)
{
    return operand < call->operands && call->in[operand] ? call->from[operand] : NULL;
}

bool sherd__norm_there(sherd_call *call, const sherd__sets *p, bool given)
{
    sherd__device *device = sherd__device_in(call);
    const sherd__device_sets s = there(p);
    sherd_dtype dtype = call->in[X]->dtype;
    shared numbers = {.parts = 1};

    if (given) {
        double *own = sherd__device_scratch(call, sherd__max(SHERD__SET_MOMENTS * p->rows, 1) *
                                                      (int64_t)sizeof(double));
        if (!own)
            return false;
        write_given(call, p, own);
        numbers.all = own;
    } else {
        if (!prepare(call, p, SHERD__SET_MOMENTS, &numbers))
            return false;
        sherd__device_set_moments(device, dtype, &s, numbers.own, call->from[X]);
        if (!exchange(call, &numbers))
            return false;
    }
    const sherd__device_set_scales by = {.numbers = numbers.all,
                                         .parts = numbers.parts,
                                         .weight = parameter(call, WEIGHT),
                                         .bias = parameter(call, BIAS),
                                         .mean = call->to[MEAN],
                                         .var = call->to[VAR],
                                         .eps = attributes_of(call)->eps};
    sherd__device_set_spread(device, dtype, &s, &by, call->to[Y], call->from[X]);
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

bool sherd__norm_grad_there(sherd_call *call, const sherd__sets *p, bool given)
{
    sherd__device *device = sherd__device_in(call);
    const sherd__device_sets s = there(p);
    sherd_dtype dtype = call->in[G_X]->dtype;
    const sherd__device_set_back of = {
        .dy = call->from[G_DY],
        .x = call->from[G_X],
        .mean = call->from[G_MEAN],
        .var = call->from[G_VAR],
        .weight = parameter(call, G_WEIGHT),
        .eps = attributes_of(call)->eps,
        .together = sherd__norm_together(call->in[G_X], attributes_of(call)->groups)};
    shared numbers = {.parts = 1};

    if (!given && !prepare(call, p, SHERD__SET_SUMS, &numbers))
        return false;
    sherd__device_set_products(device, dtype, &s, &of, numbers.own, call->to[G_DWEIGHT],
                               call->to[G_DBIAS]);
    if (!given && !exchange(call, &numbers))
        return false;
    sherd__device_set_gradient(device, dtype, &s, &of, numbers.all, numbers.parts, call->to[G_DX]);
    return true;
}
