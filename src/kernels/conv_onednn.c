/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f32 convolutions by oneDNN 2, which lays its operands out for the machine (blocks of channels) and generates code. What
 * is brought into its layouts and back costs a pass over each array. Making a primitive takes a while the first time; oneDNN keeps
 * it by its shape. Engine, stream and memory objects are made for each call: some microseconds.
 */
#include "conv.h"

#ifdef SHERD_HAVE_DNNL

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR == 2

#include <string.h>

#include "base/num.h"

enum { X, W, Y, ARRAYS };

/*
 * The operands as they lie in sherd, and as the primitive wants them. Gradients of weights are fast only with padding of
 * at most half a kernel: with more of it, as where y is what lies around a piece, x is laid out with its zeros.
 */
typedef struct job {
    sherd__conv_kind kind;
    const sherd__conv *c;
    dnnl_dims_t x,
        zeros; /* sizes of what the primitive sees of x, and how many of them come before its own */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t plain[ARRAYS];
    dnnl_memory_t given[ARRAYS], wanted[ARRAYS]; /* the same one where the layout is */
} job;

static bool good(dnnl_status_t status)
{
    return status == dnnl_success;
}

/* ---- descriptions ---------------------------------------------------------------------------- */

static bool describe_plain(job *j)
{
    const sherd__conv *c = j->c;
    int64_t inputs = c->in_channels / c->groups, outputs = c->out_channels / c->groups;
    dnnl_dims_t x = {c->batch, c->in_channels, c->in[0], c->in[1], c->in[2]};
    dnnl_dims_t y = {c->batch, c->out_channels, c->out[0], c->out[1], c->out[2]};
    /* one more than dims, so that what begins behind the groups is as long too */
    dnnl_dim_t w[DNNL_MAX_NDIMS + 1] = {c->groups,    outputs,      inputs,
                                        c->kernel[0], c->kernel[1], c->kernel[2]};
    bool grouped = c->groups > 1;

    return good(dnnl_memory_desc_init_by_tag(&j->plain[X], 5, x, dnnl_f32, dnnl_ncdhw)) &&
           good(dnnl_memory_desc_init_by_tag(&j->plain[Y], 5, y, dnnl_f32, dnnl_ncdhw)) &&
           good(grouped
                    ? dnnl_memory_desc_init_by_tag(&j->plain[W], 6, w, dnnl_f32, dnnl_goidhw)
                    : dnnl_memory_desc_init_by_tag(&j->plain[W], 5, w + 1, dnnl_f32, dnnl_oidhw));
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
static void lay_zeros(job *j, int64_t *before, int64_t *after)
{
    const sherd__conv *c = j->c;

    j->x[0] = c->batch;
    j->x[1] = c->in_channels;
    for (int d = 0; d < SHERD__CONV_DIMS; d++) {
        int64_t half = (c->kernel[d] - 1) * c->dilation[d] / 2;
        j->x[2 + d] = c->in[d];
        if (j->kind != SHERD__CONV_BACKWARD_W || (before[d] <= half && after[d] <= half))
            continue;
        j->x[2 + d] += before[d] + after[d];
        j->zeros[2 + d] = before[d];
        before[d] = after[d] = 0;
    }
}

static bool has_zeros(const job *j)
{
    return j->x[2] != j->c->in[0] || j->x[3] != j->c->in[1] || j->x[4] != j->c->in[2];
}

/* The primitive for operands in whatever layout it likes. */
static bool describe(job *j)
{
    const sherd__conv *c = j->c;
    dnnl_memory_desc_t any[ARRAYS];
    dnnl_dims_t before = {0}, after = {0}, dilation = {0}, stride = {0};
    dnnl_primitive_desc_t hint = NULL;
    dnnl_convolution_desc_t forward, backward;

    if (!find_padding(c, before, after) || !describe_plain(j))
        return false;
    lay_zeros(j, before, after);
    for (int d = 0; d < SHERD__CONV_DIMS; d++) {
        dilation[d] = c->dilation[d] - 1;
        stride[d] = c->stride[d];
    }
    for (int i = 0; i < ARRAYS; i++) {
        any[i] = j->plain[i];
        any[i].format_kind = dnnl_format_kind_any;
    }
    if (has_zeros(j) &&
        !good(dnnl_memory_desc_init_by_tag(&any[X], 5, j->x, dnnl_f32, dnnl_format_tag_any)))
        return false;
    dnnl_prop_kind_t prop =
        j->kind == SHERD__CONV_FORWARD ? dnnl_forward_inference : dnnl_forward_training;
    if (!good(dnnl_dilated_convolution_forward_desc_init(&forward, prop, dnnl_convolution_direct,
                                                         &any[X], &any[W], NULL, &any[Y], stride,
                                                         dilation, before, after)) ||
        !good(dnnl_primitive_desc_create(&hint, &forward, NULL, j->engine, NULL)))
        return false;
    if (j->kind == SHERD__CONV_FORWARD) {
        j->desc = hint;
        return true;
    }
    bool made = good(j->kind == SHERD__CONV_BACKWARD_X
                         ? dnnl_dilated_convolution_backward_data_desc_init(
                               &backward, dnnl_convolution_direct, &any[X], &any[W], &any[Y],
                               stride, dilation, before, after)
                         : dnnl_dilated_convolution_backward_weights_desc_init(
                               &backward, dnnl_convolution_direct, &any[X], &any[W], NULL, &any[Y],
                               stride, dilation, before, after)) &&
                good(dnnl_primitive_desc_create(&j->desc, &backward, NULL, j->engine, hint));
    dnnl_primitive_desc_destroy(hint);
    return made;
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

/* x amid its zeros, as the primitive wants it. */
static bool embed(job *j, const dnnl_memory_desc_t *wanted)
{
    dnnl_memory_desc_t inner;
    dnnl_memory_t part = NULL;
    void *data = NULL;

    bool done = good(dnnl_memory_create(&j->wanted[X], wanted, j->engine, DNNL_MEMORY_ALLOCATE)) &&
                good(dnnl_memory_get_data_handle(j->wanted[X], &data)) &&
                good(dnnl_memory_desc_init_submemory(&inner, wanted, j->plain[X].dims, j->zeros)) &&
                good(dnnl_memory_create(&part, &inner, j->engine, data));
    if (done) {
        memset(data, 0, dnnl_memory_desc_get_size(wanted));
        done = reorder(j, j->given[X], part);
    }
    dnnl_memory_destroy(part);
    return done;
}

static bool make_memory(job *j, int i, void *data)
{
    const dnnl_memory_desc_t *wanted =
        dnnl_primitive_desc_query_md(j->desc, queries[j->kind][i], 0);

    if (!good(dnnl_memory_create(&j->given[i], &j->plain[i], j->engine, data)))
        return false;
    if (i == X && has_zeros(j))
        return embed(j, wanted);
    if (dnnl_memory_desc_equal(wanted, &j->plain[i])) {
        j->wanted[i] = j->given[i];
        return true;
    }
    return good(dnnl_memory_create(&j->wanted[i], wanted, j->engine, DNNL_MEMORY_ALLOCATE)) &&
           (is_result(j, i) || reorder(j, j->given[i], j->wanted[i]));
}

static bool run(job *j, void *const *data)
{
    dnnl_exec_arg_t list[ARRAYS];

    if (!good(dnnl_engine_create(&j->engine, dnnl_cpu, 0)) ||
        !good(dnnl_stream_create(&j->stream, j->engine, dnnl_stream_default_flags)) ||
        !describe(j) || !good(dnnl_primitive_create(&j->primitive, j->desc)))
        return false;
    for (int i = 0; i < ARRAYS; i++) {
        if (!make_memory(j, i, data[i]))
            return false;
        list[i] = (dnnl_exec_arg_t){arguments[j->kind][i], j->wanted[i]};
    }
    if (!good(dnnl_primitive_execute(j->primitive, j->stream, ARRAYS, list)) ||
        !good(dnnl_stream_wait(j->stream)))
        return false;
    for (int i = 0; i < ARRAYS; i++)
        if (is_result(j, i) && j->wanted[i] != j->given[i])
            return reorder(j, j->wanted[i], j->given[i]);
    return true;
}

bool sherd__conv_onednn(sherd__conv_kind kind, const sherd__conv *c, void *x, void *w, void *y)
{
    void *data[] = {x, w, y};
    job j;

    memset(&j, 0, sizeof j);
    j.kind = kind;
    j.c = c;
    bool done = run(&j, data);
    for (int i = 0; i < ARRAYS; i++) {
        if (j.wanted[i] != j.given[i])
            dnnl_memory_destroy(j.wanted[i]);
        dnnl_memory_destroy(j.given[i]);
    }
    dnnl_primitive_destroy(j.primitive);
    dnnl_primitive_desc_destroy(j.desc);
    dnnl_stream_destroy(j.stream);
    dnnl_engine_destroy(j.engine);
    return done;
}

#else

/* Later versions describe primitives otherwise; until that is written here the plain version computes. */
bool sherd__conv_onednn(sherd__conv_kind kind, const sherd__conv *c, void *x, void *w, void *y)
{
    (void)kind, (void)c, (void)x, (void)w, (void)y;
    return false;
}

#endif

#endif
