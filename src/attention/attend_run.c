/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one rank by the fastest kernels available: for bf16 the CPU's own products of it,
 * where they are fast; otherwise the kernels of the dtype. Scratch memory is the call's.
 */
#include "attend.h"

#include <math.h>

#include "base/dtype.h"
#include "base/num.h"
#include "device/attention.h"

enum { Q, K, V };

const char *sherd__attend_fault(sherd_call *call, bool causal, int64_t window, double softcap)
{
    if (window < 0)
        return sherd_call_reason(call, "window is %lld: it must not be negative",
                                 (long long)window);
    if (window && !causal)
        return "a window needs causal attention";
    if (!(softcap >= 0 && isfinite(softcap)))
        return sherd_call_reason(call, "softcap is %g: it must be finite, and not negative",
                                 softcap);
    return NULL;
}

double sherd__attend_scale(const sherd_tensor *q, const sherd_attention_options *options)
{
    int64_t width = q && q->ndim > 0 ? sherd__max(q->shape[q->ndim - 1], 1) : 1;

    return options && options->scale != 0 ? options->scale : 1 / sqrt((double)width);
}

/* Of all queries before position `end`. */
static double pairs_before(int64_t end, int64_t window)
{
    double whole = (double)(window ? sherd__min(end, window) : end);

    return whole * (whole + 1) / 2 + ((double)end - whole) * (double)window;
}

double sherd__attend_pairs(int64_t lo, int64_t hi, int64_t keys, bool causal, int64_t window)
{
    return causal ? pairs_before(hi, window) - pairs_before(lo, window)
                  : (double)(hi - lo) * (double)keys;
}

double sherd__attend_operations(const sherd__attending *s)
{
    int64_t lo = s->first_query, hi = lo + s->queries;
    double heads = (double)(s->batch * s->groups * s->repeat);

    return 4 * heads * (double)s->width *
           sherd__attend_pairs(lo, hi, s->all_keys, s->causal, s->window);
}

/* ---- queries with positions of their own ----------------------------------------------------- */

sherd_tensor *sherd__apply_cached(const sherd_op *op, sherd_tensor **in, int operands,
                                  int64_t groups, const sherd_cached_options *options)
{
    sherd_tensor *q = in[0];
    const sherd_cached_options o = options ? *options : (sherd_cached_options){0};
    const sherd_attention_options scaled = {.scale = o.scale};
    const sherd__cached_attributes attributes = {.scale = sherd__attend_scale(q, &scaled),
                                                 .softcap = o.softcap,
                                                 .window = o.window,
                                                 .grouped = groups > 0};

    if (groups > 0) {
        const int64_t *end = q->shape + q->ndim, batch = q->ndim > 3 ? end[-4] : 1;
        in[0] = sherd_view(q, (int64_t[]){batch, end[-3], groups, end[-2] / groups, end[-1]}, 5);
    }
    sherd_tensor *out = sherd_apply(op, in, operands, &attributes);
    return groups > 0 && !sherd_tensor_failed(out) ? sherd_view(out, q->shape, q->ndim) : out;
}

const char *sherd__cached_fault(sherd_call *call)
{
    const sherd__cached_attributes *a = call->attributes;

    if (!isfinite(a->scale))
        return sherd_call_reason(call, "scale is %g: it must be finite", a->scale);
    return sherd__attend_fault(call, true, a->window, a->softcap);
}

int64_t sherd__cached_before(int64_t window, int64_t position)
{
    return window ? sherd__max(0, position + 1 - window) : 0;
}

sherd__attending sherd__attend_item(const sherd_call *call, int64_t keys)
{
    const sherd__cached_attributes *a = call->attributes;
    const int64_t *size = call->in[Q]->local;

    return (sherd__attending){.batch = 1,
                              .groups = size[SHERD__GROUPS],
                              .repeat = size[SHERD__REPEAT],
                              .queries = size[SHERD__POSITIONS],
                              .width = size[SHERD__WIDTH],
                              .scale = a->scale,
                              .causal = true,
                              .window = a->window < keys ? a->window : 0,
                              .softcap = a->softcap,
                              .all_heads = size[SHERD__GROUPS] * size[SHERD__REPEAT],
                              .all_repeat = size[SHERD__REPEAT]};
}

int64_t sherd__attend_run_of(const int32_t *where, int64_t n)
{
    int64_t i = 1;

    while (i < n && where[i] == where[0] + i)
        i++;
    return where[0] < 0 ? 1 : i;
}

double sherd__cached_operations(const sherd__attending *s, int64_t rows, int64_t keys)
{
    int64_t most = s->window ? sherd__min(keys, s->window) : keys;

    return 4 * (double)rows * (double)most * (double)s->width;
}

int64_t sherd__attend_skip(sherd__attending *s)
{
    int64_t first = sherd__cached_before(s->window, s->first_query) - s->first_key;

    first = sherd__max(0, sherd__min(first, s->keys));
    s->first_key += first;
    s->keys -= first;
    return first;
}

void *sherd__attend_workspace(sherd_call *call, sherd_dtype dtype, const sherd__attending *problem)
{
    const sherd__kernels *kernels = sherd__kernels_of(sherd__world_kernels(call->world), dtype);
    int64_t elements = kernels->attention_workspace(problem);

    return sherd_call_scratch(call, sherd__max(elements, 1) * (int64_t)sherd_dtype_bytes(dtype));
}

/* Then there is nothing to compute, and the other sizes may be any. */
static bool has_no_heads(const sherd__attending *problem)
{
    return problem->batch == 0 || problem->groups == 0;
}

/* No queries, and so many results, the first ones, without elements: of any number of heads. */
static bool gives_nothing(const sherd_call *call, const sherd__attending *problem, int results)
{
    bool nothing = problem->queries == 0;

    for (int j = 0; j < results; j++)
        nothing = nothing && call->out[j]->count == 0;
    return nothing;
}

/* The workspace of tiles. NULL: they are not available, or, *done, no memory for it. */
static void *tiles_workspace(sherd_call *call, const sherd__attending *problem, sherd__done *done)
{
    const sherd__attention_tiles *tiles = sherd__world_kernels(call->world)->tiles;
    bool any = tiles && call->out[0]->dtype == SHERD_BF16;
    void *workspace = any ? sherd_call_scratch(call, tiles->bytes(problem)) : NULL;

    *done = any && !workspace ? SHERD__NO_MEMORY : SHERD__CANNOT;
    return workspace;
}

/* False: failed; otherwise *left says whether the kernels of the dtype must do it. */
static bool settle(sherd_call *call, sherd__done done, bool *left)
{
    *left = done == SHERD__CANNOT;
    return done != SHERD__NO_MEMORY ||
           sherd_call_fail(call, SHERD_ENOMEM, "out of memory for a product");
}

/* ---- items with spans of their own ----------------------------------------------------------- */

/* Kernels take one item of a part at a time, if they differ in spans. There is no mask then. */
static int64_t alike(const sherd__attend_parts *p)
{
    return p->s.span && p->s.span_batch ? p->s.batch : 1;
}

static int64_t items_of(const sherd__attend_parts *p)
{
    return p->parts * alike(p);
}

/*
 * What kernels take in step i, and where it begins in what has queries, keys, a number of each row,
 * and in the mask.
 */
typedef struct item {
    sherd__attending s;
    int64_t queries, keys, rows, mask;
} item;

static item item_of(const sherd__attend_parts *p, int64_t i)
{
    const sherd__attend_part part = sherd__attend_part_of(p, i / alike(p));
    int64_t b = i % alike(p), first = part.item + b;
    item x = {.s = part.s, .mask = part.mask};

    x.rows = first * x.s.groups * x.s.repeat * x.s.queries;
    x.queries = x.rows * x.s.width;
    x.keys = first * x.s.groups * x.s.keys * x.s.width;
    if (alike(p) == 1)
        return x;
    x.s.batch = 1;
    x.s.first[0] += b;
    x.s.span += b * x.s.span_batch;
    return x;
}

/* n elements behind p, which may be NULL. */
static const void *behind(const void *p, int64_t n, sherd_dtype dtype)
{
    return p ? (const char *)p + n * (int64_t)sherd_dtype_bytes(dtype) : NULL;
}

static void *room_behind(void *p, int64_t n, sherd_dtype dtype)
{
    return p ? (char *)p + n * (int64_t)sherd_dtype_bytes(dtype) : NULL;
}

/* What forward and backward have of an item. */
typedef struct item_arrays {
    void *out[3];
    double *dmask;
    const void *q[3];
    const void *dout, *dlog_sum, *result, *log_sum;
} item_arrays;

static item_arrays arrays_of(const sherd__attend_arrays *a, const item *x, sherd_dtype dtype)
{
    const int64_t at[3] = {x->queries, x->keys, x->keys};
    sherd_dtype sums = sherd__statistics_dtype(dtype);
    item_arrays y = {.dmask = a->dmask ? a->dmask + x->mask : NULL,
                     .dout = behind(a->dout, x->queries, dtype),
                     .dlog_sum = behind(a->dlog_sum, x->rows, sums),
                     .result = behind(a->result, x->queries, dtype),
                     .log_sum = behind(a->log_sum, x->rows, sums)};

    for (int i = Q; i <= V; i++) {
        y.out[i] = room_behind(a->out[i], at[i], dtype);
        y.q[i] = behind(a->q[i], at[i], dtype);
    }
    return y;
}

/* Results of an item in out[0] and out[1]. */
static item_arrays results_of(void *const *out, const void *const *q, const item *x,
                              sherd_dtype dtype)
{
    const int64_t at[3] = {x->queries, x->keys, x->keys};
    item_arrays y = {.out = {room_behind(out[0], x->queries, dtype),
                             room_behind(out[1], x->rows, sherd__statistics_dtype(dtype))}};

    for (int i = Q; i <= V; i++)
        y.q[i] = behind(q[i], at[i], dtype);
    return y;
}

void sherd__attend_kernel(const sherd__kernels *kernels, sherd_dtype dtype,
                          const sherd__attend_parts *problem, void *const *out,
                          const void *const *q, void *workspace)
{
    for (int64_t b = 0; b < items_of(problem); b++) {
        const item x = item_of(problem, b);
        const item_arrays y = results_of(out, q, &x, dtype);
        kernels->attention(&x.s, y.out[0], y.out[1], y.q[Q], y.q[K], y.q[V], workspace);
    }
}

void sherd__attend_grad_kernel(const sherd__kernels *kernels, sherd_dtype dtype,
                               const sherd__attend_parts *problem,
                               const sherd__attend_arrays *arrays, void *workspace)
{
    for (int64_t b = 0; b < items_of(problem); b++) {
        const item x = item_of(problem, b);
        const item_arrays y = arrays_of(arrays, &x, dtype);
        kernels->attention_grad(&x.s, y.out[Q], y.out[K], y.out[V], y.dmask, y.dout, y.dlog_sum,
                                y.q[Q], y.q[K], y.q[V], y.result, y.log_sum, workspace);
    }
}

/* By tiles; the first item says whether they can. */
static sherd__done tile_items(const sherd__attention_tiles *tiles,
                              const sherd__attend_parts *problem, void *const *out,
                              const void *const *q, void *workspace)
{
    sherd__done done = SHERD__DONE;

    for (int64_t b = 0; b < items_of(problem) && done == SHERD__DONE; b++) {
        const item x = item_of(problem, b);
        const item_arrays y = results_of(out, q, &x, SHERD_BF16);
        done = tiles->attention(&x.s, y.out[0], y.out[1], y.q[Q], y.q[K], y.q[V], workspace);
    }
    return done;
}

static sherd__done tile_items_back(const sherd__attention_tiles *tiles,
                                   const sherd__attend_parts *problem,
                                   const sherd__attend_arrays *arrays, void *workspace)
{
    sherd__done done = SHERD__DONE;

    for (int64_t b = 0; b < items_of(problem) && done == SHERD__DONE; b++) {
        const item x = item_of(problem, b);
        const item_arrays y = arrays_of(arrays, &x, SHERD_BF16);
        done = tiles->attention_grad(&x.s, y.out[Q], y.out[K], y.out[V], y.dout, y.q[Q], y.q[K],
                                     y.q[V], y.result, y.log_sum, workspace);
    }
    return done;
}

/* ---- on the CPU ------------------------------------------------------------------------------ */

bool sherd__attend_run(sherd_call *call, const sherd__attend_parts *problem, void *const *out,
                       const void *const *q)
{
    const sherd__attention_tiles *tiles = sherd__world_kernels(call->world)->tiles;
    sherd_dtype dtype = call->out[0]->dtype;
    bool left, dry = sherd__is_dry(call->world);
    sherd__done done;

    if (has_no_heads(&problem->s) || gives_nothing(call, &problem->s, call->results))
        return true;
    void *workspace = tiles_workspace(call, &problem->s, &done);
    if (workspace && dry)
        done = tiles->fits(&problem->s) ? SHERD__DONE : SHERD__CANNOT;
    else if (workspace)
        done = tile_items(tiles, problem, out, q, workspace);
    if (!settle(call, done, &left) || !left)
        return !left && done == SHERD__DONE;
    workspace = sherd__attend_workspace(call, dtype, &problem->s);
    if (workspace && !dry)
        sherd__attend_kernel(sherd__kernels_in(call), dtype, problem, out, q, workspace);
    return workspace != NULL;
}

bool sherd__attend_run_back(sherd_call *call, const sherd__attend_parts *problem,
                            const sherd__attend_arrays *a)
{
    const sherd__attention_tiles *tiles = sherd__world_kernels(call->world)->tiles;
    sherd_dtype dtype = call->out[0]->dtype;
    bool plain = a->dmask || a->dlog_sum || !a->dout, left, dry = sherd__is_dry(call->world);
    sherd__done done = SHERD__CANNOT;

    if (has_no_heads(&problem->s) || gives_nothing(call, &problem->s, V + 1))
        return true;
    void *workspace = plain ? NULL : tiles_workspace(call, &problem->s, &done);
    if (workspace && dry)
        done = tiles->fits(&problem->s) ? SHERD__DONE : SHERD__CANNOT;
    else if (workspace)
        done = tile_items_back(tiles, problem, a, workspace);
    if (!settle(call, done, &left) || !left)
        return !left && done == SHERD__DONE;
    workspace = sherd__attend_workspace(call, dtype, &problem->s);
    if (workspace && !dry)
        sherd__attend_grad_kernel(sherd__kernels_in(call), dtype, problem, a, workspace);
    return workspace != NULL;
}

/* ---- on the GPU ------------------------------------------------------------------------------ */

/* Part i; the GPU knows items with spans of their own. */
static item part_of(const sherd__attend_parts *p, int64_t i)
{
    const sherd__attend_part part = sherd__attend_part_of(p, i);
    item x = {.s = part.s, .mask = part.mask};

    x.rows = part.item * x.s.groups * x.s.repeat * x.s.queries;
    x.queries = x.rows * x.s.width;
    x.keys = part.item * x.s.groups * x.s.keys * x.s.width;
    return x;
}

/* The first part says whether there is a kernel: they differ in where they are only. */
bool sherd__attend_there_run(sherd_call *call, const sherd__attend_parts *problem)
{
    sherd__device *device = sherd__device_in(call);
    sherd_dtype dtype = call->out[0]->dtype;
    bool done = device != NULL;

    for (int64_t i = 0; i < problem->parts && done; i++) {
        const item x = part_of(problem, i);
        const item_arrays y = results_of(call->to, call->from, &x, dtype);
        done = sherd__device_attention(device, dtype, &x.s, y.out[0], y.out[1], y.q[Q], y.q[K],
                                       y.q[V]);
    }
    return done;
}

bool sherd__attend_grad_there(sherd_call *call, const sherd__attend_parts *problem,
                              const sherd__attend_there *at, double *dmask)
{
    sherd__device *device = sherd__device_in(call);
    sherd_dtype dtype = call->out[0]->dtype;
    const sherd__attend_arrays a = {.out = call->to,
                                    .dmask = dmask,
                                    .q = call->from + at->q,
                                    .dout = call->from[at->dout],
                                    .dlog_sum = at->dlog_sum < 0 ? NULL : call->from[at->dlog_sum],
                                    .result = call->from[at->result],
                                    .log_sum = call->from[at->log_sum]};
    bool done = device != NULL;

    for (int64_t i = 0; i < problem->parts && done; i++) {
        const item x = part_of(problem, i);
        const item_arrays y = arrays_of(&a, &x, dtype);
        done = sherd__device_attention_back(device, dtype, &x.s,
                                            &(sherd__attending_back){.dq = y.out[Q],
                                                                     .dk = y.out[K],
                                                                     .dv = y.out[V],
                                                                     .dmask = y.dmask,
                                                                     .dout = y.dout,
                                                                     .dlog_sum = y.dlog_sum,
                                                                     .q = y.q[Q],
                                                                     .k = y.q[K],
                                                                     .v = y.q[V],
                                                                     .out = y.result,
                                                                     .log_sum = y.log_sum});
    }
    return done;
}
