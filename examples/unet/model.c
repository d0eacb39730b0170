/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A U-Net: convolutions with group norm, halved in size level by level, attention over all places
 * at the bottom, and back up beside what each level has seen. Nothing here knows about ranks:
 * images may be split by batch, rows and columns, and convolutions read what lies around a rank's
 * part by themselves.
 */
#include <math.h>

#include "unet.h"

enum { KERNEL = 3 };

static const sherd_conv_options same = {.same = true};
static const sherd_conv_options halved = {.stride = {2, 2}, .before = {1, 1}, .after = {1, 1}};

/* ---- forward -------------------------------------------------------------------------------- */

static sherd_tensor *call(sherd_module *parent, const char *child, sherd_tensor *x)
{
    return sherd_module_call(sherd_module_find(parent, child), x);
}

static void give(sherd_args *out, sherd_tensor *y)
{
    out->value[0] = y;
    out->count = 1;
}

static void block(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];

    x = sherd_silu(call(self, "norm1", call(self, "conv1", x)));
    give(out, sherd_silu(call(self, "norm2", call(self, "conv2", x))));
}

/* [batch, channels, height, width] -> [batch, height width, channels], attention, and back */
static void places(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0], *y = call(self, "norm", x);
    const int64_t *shape = sherd_tensor_shape(x);

    y = sherd_permute(y, (int[]){0, 2, 3, 1}, 4);
    y = sherd_view(sherd_contiguous(y), (int64_t[]){shape[0], shape[2] * shape[3], shape[1]}, 3);
    y = call(self, "attn", y);
    y = sherd_view(y, (int64_t[]){shape[0], shape[2], shape[3], shape[1]}, 4);
    give(out, sherd_add(x, sherd_permute(y, (int[]){0, 3, 1, 2}, 4)));
}

/* Twice the size, or one less: as large as the second tensor, which stands beside the result. */
static void up(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0], *beside = in->value[1];
    sherd_conv_options o = halved;

    for (int d = 0; d < 2; d++)
        o.extra[d] = sherd_tensor_shape(beside)[2 + d] % 2 == 0;
    x = sherd_conv_transposed(x, sherd_module_parameter(self, "weight"),
                              sherd_module_parameter(self, "bias"), &o);
    give(out, call(self, "block", sherd_cat((sherd_tensor *[]){x, beside}, 2, 1)));
}

static void unet(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    enum { MOST = 8 };
    sherd_module *downs = sherd_module_find(self, "down"), *ups = sherd_module_find(self, "up");
    int levels = sherd_module_children(ups);
    sherd_tensor *seen[MOST];

    seen[0] = call(self, "in", in->value[0]);
    for (int i = 0; i < levels; i++) {
        sherd_module *down = sherd_module_child(downs, i);
        seen[i + 1] = call(down, "block", call(down, "half", seen[i]));
    }
    sherd_tensor *x = call(self, "bottom", seen[levels]);
    for (int i = levels - 1; i >= 0; i--) {
        sherd_args both = {.count = 2, .value = {x, seen[i]}}, y;
        sherd_module_run(sherd_module_child(ups, i), &both, &y);
        x = y.value[0];
    }
    give(out, call(self, "out", x));
}

/* ---- making the tree ------------------------------------------------------------------------ */

/* The first failure stays; what follows it does nothing. */
typedef struct builder {
    sherd_world *world;
    sherd_status status;
} builder;

typedef char path_text[96];

static const char *path_of(path_text path, const sherd_module *parent, const char *name)
{
    const char *above = sherd_module_path(parent);

    snprintf(path, sizeof(path_text), "%s%s%s", above, above[0] ? "." : "", name);
    return path;
}

static void hang(builder *b, sherd_module *parent, const char *name, sherd_module *child)
{
    if (!b->status)
        b->status = sherd_module_add(parent, name, child);
}

static sherd_module *branch(builder *b, sherd_module *parent, const char *name,
                            sherd_forward forward)
{
    sherd_module *made = NULL;

    if (!b->status)
        b->status = sherd_module_create(&made, b->world, forward, NULL);
    if (parent)
        hang(b, parent, name, made);
    return b->status ? NULL : made;
}

static void conv(builder *b, sherd_module *parent, const char *name, int64_t in, int64_t features,
                 const sherd_conv_options *how)
{
    static const int64_t kernel[] = {KERNEL, KERNEL};
    sherd_module *made = NULL;
    path_text path;

    if (b->status)
        return;
    b->status = sherd_conv_create(
        &made, b->world, in, features, 2, kernel, how,
        &(sherd_layer_options){.name = path_of(path, parent, name), .bias = true});
    hang(b, parent, name, made);
}

static void norm(builder *b, sherd_module *parent, const char *name, int64_t channels)
{
    sherd_module *made = NULL;

    if (!b->status)
        b->status =
            sherd_group_norm_create(&made, b->world, channels, channels % 8 ? 1 : 4, NULL, NULL);
    hang(b, parent, name, made);
}

static void add_block(builder *b, sherd_module *parent, const char *name, int64_t in,
                      int64_t channels)
{
    sherd_module *m = branch(b, parent, name, block);

    conv(b, m, "conv1", in, channels, &same);
    norm(b, m, "norm1", channels);
    conv(b, m, "conv2", channels, channels, &same);
    norm(b, m, "norm2", channels);
}

static void add_bottom(builder *b, sherd_module *root, int64_t channels)
{
    sherd_module *m = branch(b, root, "bottom", places), *attn = NULL;
    path_text path;

    norm(b, m, "norm", channels);
    if (!b->status)
        b->status = sherd_attention_create(
            &attn, b->world, channels, channels % 4 ? 1 : 4, NULL,
            &(sherd_layer_options){.name = path_of(path, m, "attn"), .bias = true});
    hang(b, m, "attn", attn);
}

/* Its weight is its own: how much larger the result is depends on what stands beside it. */
static void add_up(builder *b, sherd_module *ups, const char *name, int64_t channels)
{
    sherd_module *m = branch(b, ups, name, up);
    double bound = 1 / sqrt((double)(channels * KERNEL * KERNEL));
    path_text path;

    if (b->status)
        return;
    sherd_generator generator = sherd_generator_named(path_of(path, m, "weight"));
    sherd_tensor *weight =
        sherd_random_later(b->world, SHERD_F32, (int64_t[]){2 * channels, channels, KERNEL, KERNEL},
                           4, sherd_uniform(-bound, bound), &generator);
    sherd_tensor *bias = sherd_constant_later(b->world, SHERD_F32, &channels, 1, 0);
    b->status = sherd_module_add_parameter(m, "weight", weight);
    if (!b->status)
        b->status = sherd_module_add_parameter(m, "bias", bias);
    add_block(b, m, "block", 2 * channels, channels);
}

static void add_levels(builder *b, sherd_module *root, const options *o)
{
    sherd_module *downs = branch(b, root, "down", NULL), *ups = branch(b, root, "up", NULL);
    int64_t channels = o->channels;

    for (int64_t i = 0; i < o->levels && !b->status; i++, channels *= 2) {
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)i);
        sherd_module *down = branch(b, downs, name, NULL);
        conv(b, down, "half", channels, 2 * channels, &halved);
        add_block(b, down, "block", 2 * channels, 2 * channels);
        add_up(b, ups, name, channels);
    }
    add_bottom(b, root, channels);
}

sherd_status model_create(sherd_module **out, sherd_world *world, const options *o)
{
    builder b = {world, SHERD_OK};
    sherd_module *root = branch(&b, NULL, NULL, unet);

    sherd_scope_begin(world);
    add_block(&b, root, "in", 1, o->channels);
    add_levels(&b, root, o);
    conv(&b, root, "out", o->channels, 1, &same);
    sherd_scope_end(world);
    if (b.status) {
        sherd_module_destroy(root);
        root = NULL;
    }
    *out = root;
    return b.status;
}
