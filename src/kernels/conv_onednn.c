/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f32 convolutions by oneDNN 2, which lays its operands out for the machine (blocks of channels) and generates
 * code. What is brought into its layouts and back costs a pass over each array. Primitives are kept by shape; memory objects
 * are made for each call, because what they hold in its layouts would be as much again as the arrays.
 */
#include "engine.h"

#ifdef SHERD_HAVE_DNNL
#include "onednn.h"
#endif

#if defined(SHERD_HAVE_DNNL) && DNNL_VERSION_MAJOR == 2

#include <string.h>

#include "base/num.h"

enum { X, W, Y, ARRAYS };
enum { LINE = 64 };

/*
 * A convolution as it is kept. Gradients of weights are fast only with padding of at most half a kernel: with more of
 * it, as where y is what lies around a piece, x is laid out with its zeros.
 */
typedef struct kept {
    sherd__heap *heap;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive; /* NULL: oneDNN does not do this one */
    dnnl_memory_desc_t plain[ARRAYS];
    dnnl_dims_t x, zeros; /* sizes of what it sees of x, and how many of them come before x's own */
} kept;

/* The operands as they lie in sherd, and as the primitive wants them. */
typedef struct job {
    sherd__conv_kind kind;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    const kept *kept;
    unsigned char *room;                         /* what is left of the workspace */
    dnnl_memory_t given[ARRAYS], wanted[ARRAYS]; /* the same one where the layout is */
} job;

/* What is to be made: the key by which it is kept. */
typedef struct wish {
    int64_t kind;
    sherd__conv conv;
} wish;

static bool good(dnnl_status_t status)
{
    return sherd__good(status);
}

/* ---- descriptions ---------------------------------------------------------------------------- */

static bool describe_plain(dnnl_memory_desc_t *plain, const wish *w)
{
    const sherd__conv *c = &w->conv;
    int64_t inputs = c->in_channels / c->groups, outputs = c->out_channels / c->groups;
    dnnl_dims_t x = {c->batch, c->in_channels, c->in[0], c->in[1], c->in[2]};
    dnnl_dims_t y = {c->batch, c->out_channels, c->out[0], c->out[1], c->out[2]};
    /* one more than dims, so that what begins behind the groups is as long too */
    dnnl_dim_t weight[DNNL_MAX_NDIMS + 1] = {c->groups,    outputs,      inputs,
                                             c->kernel[0], c->kernel[1], c->kernel[2]};
    bool grouped = c->groups > 1;

    return good(dnnl_memory_desc_init_by_tag(&plain[X], 5, x, dnnl_f32, dnnl_ncdhw)) &&
           good(dnnl_memory_desc_init_by_tag(&plain[Y], 5, y, dnnl_f32, dnnl_ncdhw)) &&
           good(grouped
                    ? dnnl_memory_desc_init_by_tag(&plain[W], 6, weight, dnnl_f32, dnnl_goidhw)
                    : dnnl_memory_desc_init_by_tag(&plain[W], 5, weight + 1, dnnl_f32, dnnl_oidhw));
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
    return memcmp(k->x, k->plain[X].dims, 5 * sizeof *k->x) != 0;
}

/* The primitive for operands in whatever layout it likes. */
static bool describe(kept *k, dnnl_engine_t engine, const wish *w)
{
    const sherd__conv *c = &w->conv;
    dnnl_memory_desc_t any[ARRAYS];
    dnnl_dims_t before = {0}, after = {0}, dilation = {0}, stride = {0};
    dnnl_primitive_desc_t hint = NULL;
    dnnl_convolution_desc_t forward, backward;

    if (!find_padding(c, before, after) || !describe_plain(k->plain, w))
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
        !good(dnnl_memory_desc_init_by_tag(&any[X], 5, k->x, dnnl_f32, dnnl_format_tag_any)))
        return false;
    dnnl_prop_kind_t prop =
        w->kind == SHERD__CONV_FORWARD ? dnnl_forward_inference : dnnl_forward_training;
    if (!good(dnnl_dilated_convolution_forward_desc_init(&forward, prop, dnnl_convolution_direct,
                                                         &any[X], &any[W], NULL, &any[Y], stride,
                                                         dilation, before, after)) ||
        !good(dnnl_primitive_desc_create(&hint, &forward, NULL, engine, NULL)))
        return false;
    if (w->kind == SHERD__CONV_FORWARD) {
        k->desc = hint;
        return true;
    }
    bool made = good(w->kind == SHERD__CONV_BACKWARD_X
                         ? dnnl_dilated_convolution_backward_data_desc_init(
                               &backward, dnnl_convolution_direct, &any[X], &any[W], &any[Y],
                               stride, dilation, before, after)
                         : dnnl_dilated_convolution_backward_weights_desc_init(
                               &backward, dnnl_convolution_direct, &any[X], &any[W], NULL, &any[Y],
                               stride, dilation, before, after)) &&
                good(dnnl_primitive_desc_create(&k->desc, &backward, NULL, engine, hint));
    dnnl_primitive_desc_destroy(hint);
    return made;
}

static void destroy(void *thing)
{
    kept *k = thing;

    dnnl_primitive_destroy(k->primitive);
    dnnl_primitive_desc_destroy(k->desc);
    sherd__free(k->heap, k);
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
    k->heap = e->heap;
    if (describe(k, e->engine, w) && !good(dnnl_primitive_create(&k->primitive, k->desc)))
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

static bool is_result(const job *j, int i)
{
    static const int result[] = {Y, X, W};

    return result[j->kind] == i;
}

static bool reorder(job *j, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_memory_desc_t *a, *b;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_exec_arg_t list[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};

    bool done = good(dnnl_memory_get_memory_desc(from, &a)) &&
                good(dnnl_memory_get_memory_desc(to, &b)) &&
                good(dnnl_reorder_primitive_desc_create(&desc, a, j->engine, b, j->engine, NULL)) &&
                good(dnnl_primitive_create(&primitive, desc)) &&
                good(dnnl_primitive_execute(primitive, j->stream, 2, list)) &&
                good(dnnl_stream_wait(j->stream));
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(desc);
    return done;
}

static const dnnl_memory_desc_t *wanted_of(const kept *k, sherd__conv_kind kind, int i)
{
    return dnnl_primitive_desc_query_md(k->desc, queries[kind][i], 0);
}

static bool is_plain(const kept *k, sherd__conv_kind kind, int i)
{
    return !(i == X && has_zeros(k)) && dnnl_memory_desc_equal(wanted_of(k, kind, i), &k->plain[i]);
}

static size_t room_of(const dnnl_memory_desc_t *wanted)
{
    size_t bytes = dnnl_memory_desc_get_size(wanted);

    return (bytes + LINE - 1) / LINE * LINE;
}

/* x amid its zeros, as the primitive wants it. */
static bool embed(job *j, const dnnl_memory_desc_t *wanted, void *data)
{
    const kept *k = j->kept;
    dnnl_memory_desc_t inner;
    dnnl_memory_t part = NULL;

    memset(data, 0, dnnl_memory_desc_get_size(wanted));
    bool done = good(dnnl_memory_desc_init_submemory(&inner, wanted, k->plain[X].dims, k->zeros)) &&
                good(dnnl_memory_create(&part, &inner, j->engine, data)) &&
                reorder(j, j->given[X], part);
    dnnl_memory_destroy(part);
    return done;
}

static bool make_memory(job *j, int i, void *data)
{
    const dnnl_memory_desc_t *wanted = wanted_of(j->kept, j->kind, i);
    void *room = j->room;

    if (!good(dnnl_memory_create(&j->given[i], &j->kept->plain[i], j->engine, data)))
        return false;
    if (is_plain(j->kept, j->kind, i)) {
        j->wanted[i] = j->given[i];
        return true;
    }
    j->room += room_of(wanted);
    if (!good(dnnl_memory_create(&j->wanted[i], wanted, j->engine, room)))
        return false;
    if (i == X && has_zeros(j->kept))
        return embed(j, wanted, room);
    return is_result(j, i) || reorder(j, j->given[i], j->wanted[i]);
}

static bool run(job *j, void *const *data)
{
    dnnl_exec_arg_t list[ARRAYS];

    for (int i = 0; i < ARRAYS; i++) {
        if (!make_memory(j, i, data[i]))
            return false;
        list[i] = (dnnl_exec_arg_t){arguments[j->kind][i], j->wanted[i]};
    }
    if (!good(dnnl_primitive_execute(j->kept->primitive, j->stream, ARRAYS, list)) ||
        !good(dnnl_stream_wait(j->stream)))
        return false;
    for (int i = 0; i < ARRAYS; i++)
        if (is_result(j, i) && j->wanted[i] != j->given[i])
            return reorder(j, j->wanted[i], j->given[i]);
    return true;
}

sherd__done sherd__conv_onednn_bytes(int64_t *bytes, sherd__engine *e, sherd__conv_kind kind,
                                     const sherd__conv *c)
{
    const wish wanted = {(int64_t)kind, *c};
    const kept *k = sherd__engine_start(e) ? find(e, &wanted) : NULL;

    *bytes = 0;
    if (!e->stream)
        return SHERD__CANNOT;
    if (!k)
        return SHERD__NO_MEMORY;
    for (int i = 0; i < ARRAYS && k->primitive; i++)
        *bytes += is_plain(k, kind, i) ? 0 : (int64_t)room_of(wanted_of(k, kind, i));
    return k->primitive ? SHERD__DONE : SHERD__CANNOT;
}

sherd__done sherd__conv_onednn(sherd__engine *e, sherd__conv_kind kind, const sherd__conv *c,
                               void *x, void *w, void *y, void *workspace)
{
    const wish wanted = {(int64_t)kind, *c};
    void *data[] = {x, w, y};
    job j = {.kind = kind, .engine = e->engine, .stream = e->stream, .room = workspace};

    j.kept = find(e, &wanted);
    if (!j.kept)
        return SHERD__NO_MEMORY;
    bool done = run(&j, data);
    for (int i = 0; i < ARRAYS; i++) {
        if (j.wanted[i] != j.given[i])
            dnnl_memory_destroy(j.wanted[i]);
        dnnl_memory_destroy(j.given[i]);
    }
    return done ? SHERD__DONE : SHERD__CANNOT;
}

#else

/* Without oneDNN, and with later versions, which describe primitives otherwise, the plain version computes. */
sherd__done sherd__conv_onednn_bytes(int64_t *bytes, sherd__engine *engine, sherd__conv_kind kind,
                                     const sherd__conv *c)
{
    (void)engine, (void)kind, (void)c;
    *bytes = 0;
    return SHERD__CANNOT;
}

sherd__done sherd__conv_onednn(sherd__engine *engine, sherd__conv_kind kind, const sherd__conv *c,
                               void *x, void *w, void *y, void *workspace)
{
    (void)engine, (void)kind, (void)c, (void)x, (void)w, (void)y, (void)workspace;
    return SHERD__CANNOT;
}

#endif
