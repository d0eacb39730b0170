/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f32 convolutions by oneDNN 2, which lays its operands out for the machine (blocks of channels) and generates
 * code. What is brought into its layouts and back costs a pass over each array, so an operand of two tasks is brought there
 * once. Primitives are kept by shape; memory objects are made for each call, because what they hold in its layouts would be as
 * much again as the arrays.
 */
#include "engine.h"

#ifdef SHERD_HAVE_DNNL
#include "onednn.h"
#endif

#if defined(SHERD_HAVE_DNNL) && DNNL_VERSION_MAJOR == 2

#include <string.h>

#include "base/num.h"

enum { X = SHERD__CONV_X, W = SHERD__CONV_W, Y = SHERD__CONV_Y, ARRAYS = SHERD__CONV_ARRAYS };
enum { BIAS = ARRAYS, OPERANDS };
enum { DIMS = 5, LINE = 64, TASKS = 2 };

/*
 * A convolution as it is kept. Gradients of weights are fast only with padding of at most half a kernel: with more of
 * it, as where y is what lies around a piece, x is laid out with its zeros.
 */
typedef struct kept {
    sherd__engine *engine;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive; /* NULL: oneDNN does not do this one */
    dnnl_memory_desc_t plain[OPERANDS];
    dnnl_dims_t x, zeros; /* sizes of what it sees of x, and how many of them come before x's own */
} kept;

/* A task: its operands as they lie in sherd, and as the primitive wants them. */
typedef struct run {
    sherd__conv_kind kind;
    sherd__engine *engine;
    const kept *kept;
    unsigned char *room;                             /* what is left of the workspace */
    bool biased, borrowed[OPERANDS];                 /* borrowed: of the task before */
    dnnl_memory_t given[OPERANDS], wanted[OPERANDS]; /* the same one where the layout is */
} run;

/* What is to be made: the key by which it is kept. */
typedef struct wish {
    int64_t kind, biased;
    sherd__conv conv;
} wish;

static bool good(dnnl_status_t status)
{
    return sherd__good(status);
}

/* ---- descriptions ---------------------------------------------------------------------------- */

static bool describe_plain(const sherd__dnnl *dnnl, dnnl_memory_desc_t *plain, const wish *w)
{
    const sherd__conv *c = &w->conv;
    int64_t inputs = c->in_channels / c->groups, outputs = c->out_channels / c->groups;
    dnnl_dims_t x = {c->batch, c->in_channels, c->in[0], c->in[1], c->in[2]};
    dnnl_dims_t y = {c->batch, c->out_channels, c->out[0], c->out[1], c->out[2]};
    /* one more than dims, so that what begins behind the groups is as long too */
    dnnl_dim_t weight[DNNL_MAX_NDIMS + 1] = {c->groups,    outputs,      inputs,
                                             c->kernel[0], c->kernel[1], c->kernel[2]};
    dnnl_dims_t channels = {c->out_channels};
    bool grouped = c->groups > 1;

    return good(dnnl->memory_desc_init_by_tag(&plain[BIAS], 1, channels, dnnl_f32, dnnl_x)) &&
           good(dnnl->memory_desc_init_by_tag(&plain[X], 5, x, dnnl_f32, dnnl_ncdhw)) &&
           good(dnnl->memory_desc_init_by_tag(&plain[Y], 5, y, dnnl_f32, dnnl_ncdhw)) &&
           good(grouped ? dnnl->memory_desc_init_by_tag(&plain[W], 6, weight, dnnl_f32, dnnl_goidhw)
                        : dnnl->memory_desc_init_by_tag(&plain[W], 5, weight + 1, dnnl_f32,
                                                        dnnl_oidhw));
}

/* Behind the input as much as the last output reads; false: oneDNN takes no negative padding. */
static bool find_padding(const sherd__conv *c, int64_t *before, int64_t *after)
{
    for (int d = 0; d < SHERD__CONV_DIMS; d++) {
        int64_t reach = (c->out[d] - 1) * c->stride[d] + (c->kernel[d] - 1) * c->dilation[d] + 1;
        before[d] = c->before[d];
        after[d] = sherd__max(reach - c->before[d] - c->in[d], 0);
        int64_t out = (c->in[d] + before[d] + after[d] - (c->kernel[d] - 1) * c->dilation[d] - 1) /
                          c->stride[d] +
                      1;
        if (before[d] < 0 || out != c->out[d])
            return false;
    }
    return true;
}

/* What is padded too much by its zeros in memory; padding goes down to nothing there. */
static void lay_zeros(kept *k, const wish *w, int64_t *before, int64_t *after)
{
    const sherd__conv *c = &w->conv;

    k->x[0] = c->batch;
    k->x[1] = c->in_channels;
    for (int d = 0; d < SHERD__CONV_DIMS; d++) {
        int64_t half = (c->kernel[d] - 1) * c->dilation[d] / 2;
        k->x[2 + d] = c->in[d];
        if (w->kind != SHERD__CONV_BACKWARD_W || (before[d] <= half && after[d] <= half))
            continue;
        k->x[2 + d] += before[d] + after[d];
        k->zeros[2 + d] = before[d];
        before[d] = after[d] = 0;
    }
}

static bool has_zeros(const kept *k)
{
    return memcmp(k->x, k->plain[X].dims, DIMS * sizeof *k->x) != 0;
}

/* The primitive for operands in whatever layout it likes. */
static bool describe(kept *k, const wish *w)
{
    const sherd__dnnl *dnnl = &k->engine->dnnl;
    dnnl_engine_t engine = k->engine->engine;
    const sherd__conv *c = &w->conv;
    dnnl_memory_desc_t any[ARRAYS];
    dnnl_dims_t before = {0}, after = {0}, dilation = {0}, stride = {0};
    dnnl_primitive_desc_t hint = NULL;
    dnnl_convolution_desc_t forward, backward;

    if (!find_padding(c, before, after) || !describe_plain(dnnl, k->plain, w))
        return false;
    lay_zeros(k, w, before, after);
    for (int d = 0; d < SHERD__CONV_DIMS; d++) {
        dilation[d] = c->dilation[d] - 1;
        stride[d] = c->stride[d];
    }
    for (int i = 0; i < ARRAYS; i++) {
        any[i] = k->plain[i];
        any[i].format_kind = dnnl_format_kind_any;
    }
    if (has_zeros(k) &&
        !good(dnnl->memory_desc_init_by_tag(&any[X], 5, k->x, dnnl_f32, dnnl_format_tag_any)))
        return false;
    dnnl_prop_kind_t prop =
        w->kind == SHERD__CONV_FORWARD ? dnnl_forward_inference : dnnl_forward_training;
    if (!good(dnnl->dilated_convolution_forward_desc_init(
            &forward, prop, dnnl_convolution_direct, &any[X], &any[W],
            w->biased ? &k->plain[BIAS] : NULL, &any[Y], stride, dilation, before, after)) ||
        !good(dnnl->primitive_desc_create(&hint, &forward, NULL, engine, NULL)))
        return false;
    if (w->kind == SHERD__CONV_FORWARD) {
        k->desc = hint;
        return true;
    }
    bool made = good(w->kind == SHERD__CONV_BACKWARD_X
                         ? dnnl->dilated_convolution_backward_data_desc_init(
                               &backward, dnnl_convolution_direct, &any[X], &any[W], &any[Y],
                               stride, dilation, before, after)
                         : dnnl->dilated_convolution_backward_weights_desc_init(
                               &backward, dnnl_convolution_direct, &any[X], &any[W], NULL, &any[Y],
                               stride, dilation, before, after)) &&
                good(dnnl->primitive_desc_create(&k->desc, &backward, NULL, engine, hint));
    dnnl->primitive_desc_destroy(hint);
    return made;
}

static void destroy(void *thing)
{
    kept *k = thing;
    const sherd__dnnl *dnnl = &k->engine->dnnl;

    dnnl->primitive_destroy(k->primitive);
    dnnl->primitive_desc_destroy(k->desc);
    sherd__free(k->engine->heap, k);
}

/* The primitive of a shape, made if there is none yet; NULL: out of memory. */
static const kept *find(sherd__engine *e, const wish *w)
{
    kept *k = sherd__shapes_find(&e->shapes, w, sizeof *w);

    if (k)
        return k;
    k = sherd__alloc(e->heap, 1, sizeof *k);
    if (!k)
        return NULL;
    k->engine = e;
    if (describe(k, w) && !good(e->dnnl.primitive_create(&k->primitive, k->desc)))
        k->primitive = NULL;
    if (!sherd__shapes_add(&e->shapes, w, sizeof *w, k, destroy)) {
        destroy(k);
        return NULL;
    }
    return k;
}

/* ---- running --------------------------------------------------------------------------------- */

static const dnnl_query_t queries[][ARRAYS] = {
    [SHERD__CONV_FORWARD] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
    [SHERD__CONV_BACKWARD_X] = {dnnl_query_diff_src_md, dnnl_query_weights_md,
                                dnnl_query_diff_dst_md},
    [SHERD__CONV_BACKWARD_W] = {dnnl_query_src_md, dnnl_query_diff_weights_md,
                                dnnl_query_diff_dst_md}};

static const int arguments[][ARRAYS] = {
    [SHERD__CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
    [SHERD__CONV_BACKWARD_X] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
    [SHERD__CONV_BACKWARD_W] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};

static bool is_result(sherd__conv_kind kind, int i)
{
    static const int result[] = {Y, X, W};

    return result[kind] == i;
}

static bool reorder(sherd__engine *e, dnnl_memory_t from, dnnl_memory_t to)
{
    const sherd__dnnl *dnnl = &e->dnnl;
    const dnnl_memory_desc_t *a, *b;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_exec_arg_t list[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};

    bool done =
        good(dnnl->memory_get_memory_desc(from, &a)) &&
        good(dnnl->memory_get_memory_desc(to, &b)) &&
        good(dnnl->reorder_primitive_desc_create(&desc, a, e->engine, b, e->engine, NULL)) &&
        good(dnnl->primitive_create(&primitive, desc)) &&
        good(dnnl->primitive_execute(primitive, e->stream, 2, list)) &&
        good(dnnl->stream_wait(e->stream));
    dnnl->primitive_destroy(primitive);
    dnnl->primitive_desc_destroy(desc);
    return done;
}

static const dnnl_memory_desc_t *wanted_of(const kept *k, sherd__conv_kind kind, int i)
{
    return k->engine->dnnl.primitive_desc_query_md(k->desc, queries[kind][i], 0);
}

static bool is_plain(const kept *k, sherd__conv_kind kind, int i)
{
    return !(i == X && has_zeros(k)) &&
           k->engine->dnnl.memory_desc_equal(wanted_of(k, kind, i), &k->plain[i]);
}

/* The elements of the thickest slab of zeros around x. */
static int64_t slab_count(const kept *k)
{
    int64_t most = 0;

    for (int d = 2; d < DIMS; d++) {
        int64_t before = k->zeros[d], after = k->x[d] - before - k->plain[X].dims[d], area = 1;
        for (int i = 0; i < DIMS; i++)
            area *= i == d ? 1 : k->x[i];
        most = sherd__max(most, area * sherd__max(before, after));
    }
    return most;
}

static size_t room_of(const kept *k, sherd__conv_kind kind, int i)
{
    size_t bytes =
        is_plain(k, kind, i) ? 0 : k->engine->dnnl.memory_desc_get_size(wanted_of(k, kind, i));
    size_t slab = i == X && has_zeros(k) ? (size_t)slab_count(k) * sizeof(float) : 0;

    return sherd__round_up(bytes, LINE) + sherd__round_up(slab, LINE);
}

/* Whether two tasks read the same array in the same layout, which is not the plain one. */
static bool is_shared(const kept *const *k, const sherd__conv_task *t, int i)
{
    return t[0].array[i] == t[1].array[i] && !is_result(t[0].kind, i) && !is_result(t[1].kind, i) &&
           !(i == X && (has_zeros(k[0]) || has_zeros(k[1]))) && !is_plain(k[0], t[0].kind, i) &&
           k[0]->engine->dnnl.memory_desc_equal(wanted_of(k[0], t[0].kind, i),
                                                wanted_of(k[1], t[1].kind, i));
}

/* A box of x's room as the primitive lays it out, from an array in plain order. */
static bool lay_box(run *r, const dnnl_memory_desc_t *wanted, void *room, const dnnl_dims_t size,
                    const dnnl_dims_t offset, const void *array)
{
    const sherd__dnnl *dnnl = &r->engine->dnnl;
    dnnl_memory_desc_t plain, inner;
    dnnl_memory_t from = NULL, to = NULL;
    bool done =
        good(dnnl->memory_desc_init_by_tag(&plain, DIMS, size, dnnl_f32, dnnl_ncdhw)) &&
        good(dnnl->memory_desc_init_submemory(&inner, wanted, size, offset)) &&
        good(dnnl->memory_create(&from, &plain, r->engine->engine, (void *)(uintptr_t)array)) &&
        good(dnnl->memory_create(&to, &inner, r->engine->engine, room)) &&
        reorder(r->engine, from, to);

    dnnl->memory_destroy(from);
    dnnl->memory_destroy(to);
    return done;
}

/* Zeros before and behind x in every dim: thin slabs, since a pass over all of it would cost as much as laying x out. */
static bool lay_slabs(run *r, const dnnl_memory_desc_t *wanted, void *room, float *slab)
{
    const kept *k = r->kept;

    memset(slab, 0, (size_t)slab_count(k) * sizeof *slab);
    for (int d = 2; d < DIMS; d++) {
        int64_t before = k->zeros[d], after = k->x[d] - before - k->plain[X].dims[d];
        dnnl_dims_t size, offset = {0};
        memcpy(size, k->x, sizeof size);
        size[d] = before;
        if (before && !lay_box(r, wanted, room, size, offset, slab))
            return false;
        size[d] = after;
        offset[d] = k->x[d] - after;
        if (after && !lay_box(r, wanted, room, size, offset, slab))
            return false;
    }
    return true;
}

/* x amid its zeros, as the primitive wants it. Where channels are filled up to blocks, those are zeros too. */
static bool embed(run *r, const dnnl_memory_desc_t *wanted, void *room, const void *x)
{
    const kept *k = r->kept;
    size_t bytes = k->engine->dnnl.memory_desc_get_size(wanted);

    if (memcmp(wanted->dims, wanted->padded_dims, DIMS * sizeof *wanted->dims) != 0)
        memset(room, 0, bytes);
    else if (!lay_slabs(r, wanted, room,
                        (float *)(void *)((unsigned char *)room + sherd__round_up(bytes, LINE))))
        return false;
    return lay_box(r, wanted, room, k->plain[X].dims, k->zeros, x);
}

static bool make_memory(run *r, int i, void *data)
{
    const sherd__dnnl *dnnl = &r->engine->dnnl;
    const dnnl_memory_desc_t *wanted = wanted_of(r->kept, r->kind, i);
    dnnl_engine_t engine = r->engine->engine;
    void *room = r->room;

    if (!good(dnnl->memory_create(&r->given[i], &r->kept->plain[i], engine, data)))
        return false;
    if (is_plain(r->kept, r->kind, i)) {
        r->wanted[i] = r->given[i];
        return true;
    }
    r->room += room_of(r->kept, r->kind, i);
    if (!good(dnnl->memory_create(&r->wanted[i], wanted, engine, room)))
        return false;
    if (i == X && has_zeros(r->kept))
        return embed(r, wanted, room, data);
    return is_result(r->kind, i) || reorder(r->engine, r->given[i], r->wanted[i]);
}

static bool make_bias(run *r, const void *bias)
{
    r->biased = bias;
    if (bias && !good(r->engine->dnnl.memory_create(&r->given[BIAS], &r->kept->plain[BIAS],
                                                    r->engine->engine, (void *)(uintptr_t)bias)))
        return false;
    r->wanted[BIAS] = r->given[BIAS];
    return true;
}

static bool execute(run *r)
{
    const sherd__dnnl *dnnl = &r->engine->dnnl;
    dnnl_exec_arg_t list[OPERANDS] = {[BIAS] = {DNNL_ARG_BIAS, r->wanted[BIAS]}};

    for (int i = 0; i < ARRAYS; i++)
        list[i] = (dnnl_exec_arg_t){arguments[r->kind][i], r->wanted[i]};
    if (!good(dnnl->primitive_execute(r->kept->primitive, r->engine->stream,
                                      r->biased ? OPERANDS : ARRAYS, list)) ||
        !good(dnnl->stream_wait(r->engine->stream)))
        return false;
    for (int i = 0; i < ARRAYS; i++)
        if (is_result(r->kind, i) && r->wanted[i] != r->given[i])
            return reorder(r->engine, r->wanted[i], r->given[i]);
    return true;
}

static void release(run *r)
{
    const sherd__dnnl *dnnl = &r->engine->dnnl;

    for (int i = 0; i < OPERANDS; i++) {
        if (r->borrowed[i])
            continue;
        if (r->wanted[i] != r->given[i])
            dnnl->memory_destroy(r->wanted[i]);
        dnnl->memory_destroy(r->given[i]);
    }
}

/* The primitives of all tasks; CANNOT if one has none. */
static sherd__done find_all(const kept **out, sherd__engine *e, const sherd__conv_job *job)
{
    for (int t = 0; t < job->tasks; t++) {
        wish wanted = {(int64_t)job->task[t].kind, job->bias != NULL, *job->conv};
        out[t] = find(e, &wanted);
        if (!out[t])
            return SHERD__NO_MEMORY;
        if (!out[t]->primitive)
            return SHERD__CANNOT;
    }
    return SHERD__DONE;
}

sherd__done sherd__conv_onednn_bytes(int64_t *bytes, sherd__engine *e, const sherd__conv_job *job)
{
    const kept *k[TASKS];
    int64_t shared = 0, own[TASKS] = {0};

    *bytes = 0;
    if (!sherd__engine_start(e))
        return SHERD__CANNOT;
    sherd__done found = find_all(k, e, job);
    if (found != SHERD__DONE)
        return found;
    for (int i = 0; i < ARRAYS; i++) {
        bool both = job->tasks == TASKS && is_shared(k, job->task, i);
        for (int t = 0; t < (both ? 1 : job->tasks); t++)
            *(both ? &shared : &own[t]) += (int64_t)room_of(k[t], job->task[t].kind, i);
    }
    *bytes = shared + sherd__max(own[0], own[1]);
    return SHERD__DONE;
}

/* What both read comes first in the workspace, and stays there for the second. */
static bool lay_shared(run *r, const sherd__conv_job *job)
{
    const kept *k[] = {r[0].kept, r[1].kept};

    for (int i = 0; i < ARRAYS && job->tasks == TASKS; i++) {
        if (!is_shared(k, job->task, i))
            continue;
        if (!make_memory(&r[0], i, job->task[0].array[i]))
            return false;
        r[1].wanted[i] = r[0].wanted[i];
        r[1].borrowed[i] = true;
    }
    return true;
}

static bool run_task(run *r, unsigned char *room, const sherd__conv_task *task, const void *bias)
{
    r->room = room;
    for (int i = 0; i < ARRAYS; i++)
        if (!r->wanted[i] && !make_memory(r, i, task->array[i]))
            return false;
    return make_bias(r, bias) && execute(r);
}

sherd__done sherd__conv_onednn(sherd__engine *e, const sherd__conv_job *job, void *workspace)
{
    run r[TASKS] = {{.room = workspace}};
    const kept *k[TASKS];

    sherd__done found = find_all(k, e, job);
    if (found != SHERD__DONE)
        return found;
    for (int t = 0; t < job->tasks; t++) {
        r[t].kind = job->task[t].kind;
        r[t].engine = e;
        r[t].kept = k[t];
    }
    bool done = lay_shared(r, job);
    unsigned char *room = r[0].room;
    for (int t = 0; t < job->tasks; t++)
        done = done && run_task(&r[t], room, &job->task[t], job->bias);
    for (int t = 0; t < job->tasks; t++)
        release(&r[t]);
    return done ? SHERD__DONE : SHERD__CANNOT;
}

#else

/* Without oneDNN, and with later versions, which describe primitives otherwise, the plain version computes. */
sherd__done sherd__conv_onednn_bytes(int64_t *bytes, sherd__engine *engine,
                                     const sherd__conv_job *job)
{
    (void)engine, (void)job;
    *bytes = 0;
    return SHERD__CANNOT;
}

sherd__done sherd__conv_onednn(sherd__engine *engine, const sherd__conv_job *job, void *workspace)
{
    (void)engine, (void)job, (void)workspace;
    return SHERD__CANNOT;
}

#endif
