/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions described to oneDNN 2, and kept by shape. Operands may lie in whatever layout it
 * likes. Gradients of weights over large images are left to a kernel of our own, which wants blocks
 * of channels: docs/decisions/055.
 */

#include "base/num.h"

#ifdef SHERD_HAVE_DNNL
#include "onednn.h"
#endif

#if defined(SHERD_HAVE_DNNL) && DNNL_VERSION_MAJOR == 2

#include <string.h>

#include "conv_kept.h"

enum { X = SHERD__CONV_X, W = SHERD__CONV_W, Y = SHERD__CONV_Y, ARRAYS = SHERD__CONV_ARRAYS };
enum { BIAS = SHERD__CONV_BIAS, MOST = SHERD__CONV_ALL_DIMS, FIRST = 2 };
enum { BLOCK = 16, LARGE = 1 << 20 /* bytes */, FEW_PRODUCTS = 256 * 9 };
enum { LONG_SUM = 1 << 14, CALL_SUM = 1 << 11, CALL_PRODUCTS = 1 << 21 };

/* ---- layouts --------------------------------------------------------------------------------- */

static bool describe_row_major(sherd__engine *e, dnnl_memory_desc_t *out, int ndim,
                               const dnnl_dims_t size)
{
    static const dnnl_format_tag_t tags[] = {dnnl_a,    dnnl_ab,    dnnl_abc,
                                             dnnl_abcd, dnnl_abcde, dnnl_abcdef};

    return sherd__good(e,
                       e->dnnl.memory_desc_init_by_tag(out, ndim, size, dnnl_f32, tags[ndim - 1]));
}

bool sherd__conv_row_major(const sherd__conv_kept *k, dnnl_memory_desc_t *out,
                           const dnnl_dims_t size)
{
    return describe_row_major(k->engine, out, k->ndim, size);
}

/*
 * Write the sizes of a field or a weight: those in `first`, then those of the dims of space.
 * Returns how many dims.
 */
static int put_sizes(const sherd__conv_kept *k, dnnl_dim_t *out, const int64_t *first, int count,
                     const int64_t *space)
{
    int skip = MOST - k->ndim, n = 0;

    for (int i = 0; i < count; i++)
        out[n++] = first[i];
    for (int d = skip; d < SHERD__CONV_DIMS; d++)
        out[n++] = space[d];
    return n;
}

static bool describe_plain(sherd__conv_kept *k, const sherd__conv *c)
{
    sherd__engine *e = k->engine;
    const int64_t x[] = {c->batch, c->in_channels}, y[] = {c->batch, c->out_channels};
    const dnnl_dims_t channels = {c->out_channels};
    const int64_t w[] = {c->groups, c->out_channels / c->groups, c->in_channels / c->groups};
    int ungrouped = c->groups == 1;
    dnnl_dims_t size;
    dnnl_memory_desc_t *plain = k->plain;

    return describe_row_major(e, &plain[BIAS], 1, channels) &&
           describe_row_major(e, &plain[X], put_sizes(k, size, x, 2, c->in), size) &&
           describe_row_major(e, &plain[Y], put_sizes(k, size, y, 2, c->out), size) &&
           describe_row_major(e, &plain[W],
                              put_sizes(k, size, w + ungrouped, 3 - ungrouped, c->kernel), size);
}

/* x and y in blocks of channels; dw stays as it is. */
static bool describe_blocks(sherd__conv_kept *k)
{
    sherd__engine *e = k->engine;
    dnnl_format_tag_t tag = k->ndim < MOST ? dnnl_aBcd16b : dnnl_aBcde16b;

    k->blocks[W] = k->plain[W];
    for (int i = X; i <= Y; i += Y - X)
        if (!sherd__good(e, e->dnnl.memory_desc_init_by_tag(&k->blocks[i], k->ndim,
                                                            k->plain[i].dims, dnnl_f32, tag)))
            return false;
    return true;
}

static int64_t product(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

static bool are_whole(const sherd__conv *c)
{
    return c->in_channels / c->groups % BLOCK == 0 && c->out_channels / c->groups % BLOCK == 0;
}

/*
 * Whether sherd's own kernel makes it. oneDNN goes through an image of a block of x and one of dy
 * for each pair of blocks, and gets slow where the two do not stay in the second cache; before that
 * it is as fast, or faster, as it is where the kernel is 1.
 */
static bool is_own(const sherd__conv_wish *w)
{
    const sherd__conv *c = &w->conv;
    int64_t image = (product(c->in) + product(c->out)) * w->block * (int64_t)sizeof(float);

    return w->kind == SHERD__CONV_BACKWARD_W && w->block == BLOCK && c->groups == 1 &&
           are_whole(c) && product(c->kernel) > 1 && image >= LARGE;
}

/* ---- what oneDNN does ------------------------------------------------------------------------ */

/*
 * Padding as oneDNN takes it: behind the input, as much as the last output reads. False: it would
 * be negative, or give another size.
 */
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

/* Dims with too much padding get its zeros in memory, and no padding. */
static void lay_zeros(sherd__conv_kept *k, const sherd__conv_wish *w, int64_t *before,
                      int64_t *after)
{
    const sherd__conv *c = &w->conv;
    int skip = MOST - k->ndim;

    memcpy(k->x, k->plain[X].dims, sizeof k->x);
    for (int d = skip; d < SHERD__CONV_DIMS && w->kind == SHERD__CONV_BACKWARD_W; d++) {
        int64_t half = (c->kernel[d] - 1) * c->dilation[d] / 2;
        if (before[d] <= half && after[d] <= half)
            continue;
        k->x[FIRST + d - skip] += before[d] + after[d];
        k->zeros[FIRST + d - skip] = before[d];
        before[d] = after[d] = 0;
    }
}

bool sherd__conv_has_zeros(const sherd__conv_kept *k)
{
    return !k->own && memcmp(k->x, k->plain[X].dims, (size_t)k->ndim * sizeof *k->x) != 0;
}

/*
 * How many images a call takes. oneDNN adds all of them up in one f32 sum, whose error is 2.5e-3
 * for 2^18 equal numbers. So long sums are split among calls: each adds some thousand terms, and
 * has enough products that the call, and adding its results up, cost little beside them. One image
 * is never split.
 */
static int64_t images_of(const sherd__conv_wish *w)
{
    const sherd__conv *c = &w->conv;
    int64_t terms = product(c->out),
            products = terms * c->out_channels * product(c->kernel) * (c->in_channels / c->groups);
    int64_t least = sherd__max(sherd__ceil_div(CALL_SUM, sherd__max(terms, 1)),
                               sherd__ceil_div(CALL_PRODUCTS, sherd__max(products, 1)));

    if (w->kind != SHERD__CONV_BACKWARD_W || c->batch * terms < LONG_SUM)
        return c->batch;
    while (least < c->batch && c->batch % least)
        least++;
    return sherd__min(least, c->batch);
}

int64_t sherd__conv_calls(const sherd__conv_kept *k)
{
    return k->own || k->images == 0 ? 1 : k->plain[X].dims[0] / k->images;
}

/* Operands in any layout, x amid its zeros. */
static bool describe_any(const sherd__conv_kept *k, dnnl_memory_desc_t *any)
{
    sherd__engine *e = k->engine;

    for (int i = 0; i < ARRAYS; i++) {
        dnnl_dims_t size;
        memcpy(size, i == X ? k->x : k->plain[i].dims, sizeof size);
        if (i != W)
            size[0] = k->images;
        if (!sherd__good(e, e->dnnl.memory_desc_init_by_tag(&any[i], k->plain[i].ndims, size,
                                                            dnnl_f32, dnnl_format_tag_any)))
            return false;
    }
    return true;
}

/*
 * Whether the layout that oneDNN wants for some images holds for all of them, because images follow
 * one another in it; then `whole` is set.
 */
static bool lay_whole(sherd__conv_kept *k, sherd__conv_kind kind)
{
    for (int i = X; i <= Y; i += Y - X) {
        dnnl_memory_desc_t *all = &k->whole[i];
        const dnnl_blocking_desc_t *lie = &all->format_desc.blocking;
        *all = *sherd__conv_taken(k, kind, i);
        size_t some = k->engine->dnnl.memory_desc_get_size(all);
        if (all->format_kind != dnnl_blocked || all->padded_dims[0] != k->images ||
            (size_t)(lie->strides[0] * k->images) * sizeof(float) != some)
            return false;
        for (int b = 0; b < lie->inner_nblks; b++)
            if (lie->inner_idxs[b] == 0)
                return false;
        all->dims[0] = all->padded_dims[0] = k->plain[i].dims[0];
    }
    return true;
}

/*
 * oneDNN's forward of inference likes channels last, that of training blocks, into which and out of
 * which x and y are laid faster. That counts where an output takes few products, and channels are
 * whole blocks; with wide kernels channels last compute faster.
 */
static dnnl_prop_kind_t forward_kind(const sherd__conv_wish *w)
{
    const sherd__conv *c = &w->conv;
    int64_t products = c->in_channels / c->groups * product(c->kernel);
    bool blocks = are_whole(c) && c->kernel[2] <= 3 && products <= FEW_PRODUCTS;

    return w->kind != SHERD__CONV_FORWARD || blocks ? dnnl_forward_training
                                                    : dnnl_forward_inference;
}

/* The primitive for operands in whatever layout it likes. */
static bool describe(sherd__conv_kept *k, const sherd__conv_wish *w)
{
    sherd__engine *e = k->engine;
    const sherd__dnnl *dnnl = &e->dnnl;
    const sherd__conv *c = &w->conv;
    int skip = MOST - k->ndim;
    dnnl_memory_desc_t any[ARRAYS];
    dnnl_dims_t before = {0}, after = {0}, dilation = {0}, stride = {0};
    bool is_forward = w->kind == SHERD__CONV_FORWARD;
    dnnl_convolution_desc_t forward, backward;

    if (!find_padding(c, before, after))
        return false;
    lay_zeros(k, w, before, after);
    for (int d = skip; d < SHERD__CONV_DIMS; d++) {
        dilation[d - skip] = c->dilation[d] - 1;
        stride[d - skip] = c->stride[d];
    }
    if (!describe_any(k, any) ||
        !sherd__good(e, dnnl->dilated_convolution_forward_desc_init(
                            &forward, forward_kind(w), dnnl_convolution_direct, &any[X], &any[W],
                            w->biased ? &k->plain[BIAS] : NULL, &any[Y], stride, dilation,
                            before + skip, after + skip)) ||
        !sherd__good(e, dnnl->primitive_desc_create(is_forward ? &k->desc : &k->hint, &forward,
                                                    NULL, e->engine, NULL)))
        return false;
    if (is_forward)
        return true;
    return sherd__good(e, w->kind == SHERD__CONV_BACKWARD_X
                              ? dnnl->dilated_convolution_backward_data_desc_init(
                                    &backward, dnnl_convolution_direct, &any[X], &any[W], &any[Y],
                                    stride, dilation, before + skip, after + skip)
                              : dnnl->dilated_convolution_backward_weights_desc_init(
                                    &backward, dnnl_convolution_direct, &any[X], &any[W], NULL,
                                    &any[Y], stride, dilation, before + skip, after + skip)) &&
           sherd__good(e,
                       dnnl->primitive_desc_create(&k->desc, &backward, NULL, e->engine, k->hint));
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* Destroy the primitive, or what there is of one after a failure. */
static void clear(sherd__conv_kept *k)
{
    const sherd__dnnl *dnnl = &k->engine->dnnl;

    dnnl->primitive_destroy(k->primitive);
    dnnl->primitive_desc_destroy(k->desc);
    dnnl->primitive_desc_destroy(k->hint);
    k->primitive = NULL;
    k->desc = k->hint = NULL;
}

static void destroy(void *thing)
{
    sherd__conv_kept *k = thing;

    clear(k);
    sherd__free(k->engine->heap, k);
}

/* Whether each channel has a kernel of its own. */
static bool is_by_channel(const sherd__conv *c)
{
    return c->groups > 1 && c->groups == c->in_channels && c->groups == c->out_channels;
}

/*
 * Whether the first dim of space is trivial and can be left out. Only with whole blocks of
 * channels, or channel by channel, is oneDNN faster in fewer dims.
 */
static bool is_flat(const sherd__conv *c)
{
    return (are_whole(c) || is_by_channel(c)) && c->in[0] == 1 && c->out[0] == 1 &&
           c->kernel[0] == 1 && c->before[0] == 0;
}

/* The primitive for so many images. False: oneDNN has none, or none by which parts can be made. */
static bool make_for(sherd__conv_kept *k, const sherd__conv_wish *w, int64_t images)
{
    sherd__engine *e = k->engine;

    clear(k);
    k->images = images;
    return describe(k, w) && (images == w->conv.batch || lay_whole(k, (sherd__conv_kind)w->kind)) &&
           sherd__good(e, e->dnnl.primitive_create(&k->primitive, k->desc));
}

typedef struct making {
    sherd__conv_kept *kept;
    const sherd__conv_wish *wish;
} making;

static int make_any(void *context)
{
    sherd__conv_kept *k = ((making *)context)->kept;
    const sherd__conv_wish *w = ((making *)context)->wish;

    k->ndim = is_flat(&w->conv) ? MOST - 1 : MOST;
    if (k->ndim == MOST && is_by_channel(&w->conv))
        return false; /* oneDNN makes a matrix of each channel: the plain kernels are faster */
    if (!describe_plain(k, &w->conv))
        return false;
    if (is_own(w))
        return k->own = describe_blocks(k);
    return make_for(k, w, images_of(w)) ||
           (k->images < w->conv.batch && make_for(k, w, w->conv.batch));
}

const sherd__conv_kept *sherd__conv_find(sherd__engine *e, const sherd__conv_wish *w)
{
    bool fresh;
    sherd__conv_kept *k = sherd__shapes_take(&e->shapes, w, sizeof *w, sizeof *k, destroy, &fresh);

    if (fresh) {
        k->engine = e;
        sherd__done done = sherd__onednn_try(e, SHERD__ONEDNN_MAKES, make_any, &(making){k, w});
        if (done == SHERD__NO_MEMORY) {
            sherd__shapes_drop(&e->shapes, w, sizeof *w);
            return NULL;
        }
        if (done == SHERD__CANNOT)
            clear(k);
    }
    return k;
}

const dnnl_memory_desc_t *sherd__conv_taken(const sherd__conv_kept *k, sherd__conv_kind kind, int i)
{
    static const dnnl_query_t queries[][ARRAYS] = {
        [SHERD__CONV_FORWARD] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
        [SHERD__CONV_BACKWARD_X] = {dnnl_query_diff_src_md, dnnl_query_weights_md,
                                    dnnl_query_diff_dst_md},
        [SHERD__CONV_BACKWARD_W] = {dnnl_query_src_md, dnnl_query_diff_weights_md,
                                    dnnl_query_diff_dst_md}};

    return k->engine->dnnl.primitive_desc_query_md(k->desc, queries[kind][i], 0);
}

const dnnl_memory_desc_t *sherd__conv_wanted(const sherd__conv_kept *k, sherd__conv_kind kind,
                                             int i)
{
    if (k->own)
        return &k->blocks[i];
    return i != W && sherd__conv_calls(k) > 1 ? &k->whole[i] : sherd__conv_taken(k, kind, i);
}

#endif
