/* SPDX-License-Identifier: Apache-2.0 */
/* See runs.h. Costs a look at each run, on each rank. */
#include "runs.h"

#include "base/hash.h"
#include "base/num.h"

/*
 * The first run with an invalid end or group; `count` if the last run ends before the rows do; -1:
 * all are valid.
 */
static int64_t first_wrong(const sherd__row_runs *runs)
{
    int64_t before = 0;

    for (int64_t r = 0; r < runs->count; r++) {
        int64_t group = sherd__run_group(runs, r);
        if (sherd__run_end(runs, r) < before || sherd__run_end(runs, r) > runs->rows || group < 0 ||
            group >= runs->groups)
            return r;
        before = sherd__run_end(runs, r);
    }
    return before == runs->rows || runs->outside ? -1 : runs->count;
}

bool sherd__runs_of(sherd__row_runs *out, sherd_tensor *ends, sherd_tensor *group, int64_t rows,
                    int64_t groups)
{
    *out = (sherd__row_runs){.count = ends->shape[0], .rows = rows, .groups = groups};
    if (ends->count < ends->shape[0]) {
        *out = (sherd__row_runs){.outside = true, .rows = rows, .groups = groups};
        return true;
    }
    out->end = out->count ? sherd__data(ends) : NULL;
    out->group = group && out->count ? sherd__data(group) : NULL;
    if (out->count && (!out->end || (group && !out->group)))
        return false;
    out->even = sherd__is_dry(ends->world) && first_wrong(out) >= 0;
    return true;
}

const char *sherd__runs_fault(sherd_call *call, const sherd__row_runs *runs)
{
    int64_t r = first_wrong(runs), before = r > 0 ? sherd__run_begin(runs, r) : 0;

    if (r < 0)
        return NULL;
    if (r == runs->count)
        return sherd_call_reason(call, "the last run ends at %lld of %lld rows", (long long)before,
                                 (long long)runs->rows);
    if (sherd__run_end(runs, r) < before || sherd__run_end(runs, r) > runs->rows)
        return sherd_call_reason(call, "ends[%lld] is %lld: must be in [%lld, %lld]", (long long)r,
                                 (long long)sherd__run_end(runs, r), (long long)before,
                                 (long long)runs->rows);
    return sherd_call_reason(call, "group[%lld] is %lld: must be in [0, %lld)", (long long)r,
                             (long long)sherd__run_group(runs, r), (long long)runs->groups);
}

const char *sherd__runs_misfit(sherd_call *call, int ends, int group, int64_t groups)
{
    const sherd_tensor *end = call->in[ends], *g = call->in[group];
    int64_t of = g && g->ndim == 1 ? g->shape[0] : groups;

    if (end->ndim == 1 && end->shape[0] != of)
        return sherd_call_reason(call, "%lld ends of %lld %s", (long long)end->shape[0],
                                 (long long)of, g ? "runs" : "groups");
    if (call->in[0]->ndim >= 2 && call->in[0]->shape[0] > INT32_MAX)
        return "more rows than an i32 holds";
    return NULL;
}

bool sherd__runs_begin(sherd_call *call, const sherd__row_runs *runs)
{
    const char *fault = sherd__runs_fault(call, runs);

    return !fault || sherd_call_fail(call, SHERD_EINVAL, "%s", fault);
}

int64_t sherd__run_here(const sherd_call *call, const sherd__row_runs *runs, int64_t r,
                        int64_t *first)
{
    const sherd_tensor *x = call->in[0];
    int64_t at = sherd_call_box(call, 0).offset[0];
    int64_t lo = sherd__max(sherd__run_begin(runs, r), at);
    int64_t hi = sherd__min(sherd__run_end(runs, r), at + x->local[0]);

    *first = lo - at;
    return sherd__max(hi - lo, 0);
}

/* ---- operands that are equal everywhere ------------------------------------------------------ */

/* A tensor that is no index is returned as it is: the operator refuses it. */
sherd_tensor *sherd__known(sherd_tensor *t)
{
    bool is_index = t && !sherd_tensor_failed(t) && t->dtype == SHERD_I32;

    return is_index ? sherd__contiguous(sherd__whole_at(t, -1)) : t;
}

int64_t sherd__known_digest(sherd_tensor *const *t, int count)
{
    uint64_t hash = 0;

    for (int i = 0; i < count; i++) {
        if (!t[i] || sherd_tensor_failed(t[i]) || t[i]->count == 0)
            continue;
        const void *data = sherd__data(t[i]);
        if (data)
            hash = sherd__hash_bytes(hash + (uint64_t)i + 1, data,
                                     sherd__bytes(t[i]->count) * sherd_dtype_bytes(t[i]->dtype));
    }
    return (int64_t)hash;
}

/* ---- layouts --------------------------------------------------------------------------------- */

sherd_status sherd__lay_choices(const sherd_layout **out, const sherd_layout *tokens, int64_t k)
{
    const sherd__dim *dim = &tokens->spec.dim[0];
    int64_t parts = sherd__dim_parts(tokens->spec.mesh, dim);
    sherd__sketch s;

    sherd__sketch_begin(&s, tokens);
    s.spec.ndim = 1;
    s.spec.shape[0] *= k;
    sherd__spec_settle(&s.spec);
    int64_t *cut = sherd__sketch_cuts(&s, 0);
    for (int64_t i = 0; cut && i <= parts; i++)
        cut[i] = sherd__dim_cut(tokens->spec.mesh, dim, tokens->spec.shape[0], i) * k;
    if (dim->axes)
        s.spec.dim[0].cuts = cut;
    return sherd__sketch_end(out, &s, "sherd_dispatch");
}

/*
 * Where the rows of each shard of the groups begin, into cut[0], cut[step], ...: false if runs are
 * in another order.
 */
static bool find_bounds(int64_t *cut, int64_t step, const sherd__row_runs *runs,
                        const sherd__layout_spec *weight)
{
    const sherd__dim *e = &weight->dim[0];
    int64_t parts = sherd__dim_parts(weight->mesh, e), part = 0;

    cut[0] = 0;
    for (int64_t r = 0; r < runs->count; r++) {
        int64_t begin = sherd__run_begin(runs, r), group = sherd__run_group(runs, r);
        if (begin == sherd__run_end(runs, r))
            continue;
        if (group < sherd__dim_cut(weight->mesh, e, weight->shape[0], part))
            return false;
        while (group >= sherd__dim_cut(weight->mesh, e, weight->shape[0], part + 1))
            cut[++part * step] = begin;
    }
    while (part < parts)
        cut[++part * step] = runs->rows;
    return true;
}

/* Whether `own` is sharded by these axes, and by those of the groups as they are. */
static bool is_so(const sherd_mesh *mesh, const sherd__dim *own, const sherd__dim *dim,
                  const int64_t *cut, int64_t parts, int64_t rows)
{
    int64_t step = sherd__dim_parts(mesh, dim) / parts;
    bool so = sherd__dim_alike(own, dim);

    for (int64_t p = 0; so && p <= parts; p++)
        so = sherd__dim_cut(mesh, own, rows, p * step) == cut[p * step];
    return so;
}

bool sherd__lay_runs(sherd__sketch *s, const sherd__row_runs *runs,
                     const sherd__layout_spec *weight, const sherd__dim *own)
{
    const sherd_mesh *mesh = weight->mesh;
    int64_t parts = sherd__dim_parts(mesh, &weight->dim[0]);
    sherd__dim *rows = &s->spec.dim[0];
    unsigned taken = 0;

    if (weight->dim[0].axes == 0 || first_wrong(runs) >= 0)
        return false;
    for (int d = 0; d < weight->ndim; d++)
        taken |= sherd__dim_bits(&weight->dim[d]);
    *rows = weight->dim[0];
    rows->cuts = NULL;
    for (int i = 0; i < own->axes; i++)
        if (!(taken >> own->axis[i] & 1))
            rows->axis[rows->axes++] = own->axis[i];
    int64_t step = sherd__dim_parts(mesh, rows) / parts, *cut = sherd__sketch_cuts(s, 0);
    if (!cut)
        return true; /* the sketch reports it */
    if (!find_bounds(cut, step, runs, weight))
        return false;
    if (is_so(mesh, own, rows, cut, parts, runs->rows)) {
        *rows = *own;
        return true;
    }
    for (int64_t p = 0; p < parts; p++)
        for (int64_t i = 1; i < step; i++) {
            int64_t lo, hi, end = cut[(p + 1) * step];
            sherd__chunk(end - cut[p * step], step, i, &lo, &hi);
            cut[p * step + i] = cut[p * step] + lo;
        }
    rows->cuts = cut;
    return true;
}

sherd_status sherd__lay_run_rows(const sherd_layout **out, bool *known, const sherd_layout *weight,
                                 const sherd__row_runs *runs, const sherd__dim *own, int width,
                                 unsigned pending)
{
    sherd__sketch s;

    sherd__sketch_begin(&s, weight);
    s.spec.ndim = 2;
    s.spec.shape[0] = runs->rows;
    s.spec.shape[1] = weight->spec.shape[width];
    s.spec.dim[1] = weight->spec.dim[width];
    sherd__spec_sums(&s.spec, pending);
    *known = sherd__lay_runs(&s, runs, &weight->spec, own);
    return sherd__sketch_end(out, &s, "sherd_grouped_linear");
}
