/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Multi-head attention as a module: four Linear children around the operator. Its forward names
 * global sizes only, so Colwise on wq, wk and wv and Rowwise on wo, with a head as the granule,
 * split it by heads, whole ones on each rank; heads that share keys and values stay together with
 * granules of them.
 */
#include <stdio.h>
#include <string.h>

#include "nn/layer.h"
#include "sherd/ops.h"

enum { WQ, WK, WV, WO, CHILDREN };

static const char *const child_name[CHILDREN] = {"wq", "wk", "wv", "wo"};

typedef struct attention {
    sherd_world *world;
    int64_t width, heads, kv_heads;
    sherd_attention_options how;
} attention;

/* ---- forward -------------------------------------------------------------------------------- */

static sherd_tensor *refuse(const sherd_module *m, const char *fault)
{
    return sherd__fail_tensor(m->world, true, SHERD_EINVAL, "sherd_module_run: module \"%s\": %s",
                              sherd__module_name(m), fault);
}

/* [batch, s, width] through a child, as [batch, s, its heads, width / heads]. */
static sherd_tensor *heads_of(sherd_module *m, int child, sherd_tensor *x)
{
    const attention *a = m->options.payload;
    int64_t heads = child == WQ ? a->heads : a->kv_heads;
    const int64_t shape[] = {-1, x->shape[1], heads, a->width / a->heads};

    return sherd_view(sherd_module_call(m->child[child].module, x), shape, 4);
}

/* The options of a call: nothing is dropped in evaluation mode. */
static sherd_attention_options options_of(sherd_module *m, sherd_tensor *mask)
{
    const attention *a = m->options.payload;
    sherd_attention_options how = a->how;

    if (m->eval)
        how.dropout = 0;
    if (!how.generator)
        how.generator = &m->generator;
    if (mask)
        how.mask = mask;
    return how;
}

static sherd_tensor *attend(sherd_module *m, sherd_tensor *x, sherd_tensor *memory,
                            sherd_tensor *mask)
{
    const attention *a = m->options.payload;
    const sherd_attention_options how = options_of(m, mask);
    const int64_t whole[] = {-1, x->ndim > 1 ? x->shape[1] : 0, a->width};
    sherd_tensor *y;

    /*
     * Go on with failed tensors: they may have failed on this rank alone, and the generator must
     * stay in step with the others.
     */
    bool good = !sherd_tensor_failed(x) && !sherd_tensor_failed(memory);
    if (good && (x->ndim != 3 || memory->ndim != 3))
        return refuse(m, "it takes tensors [batch, positions, width]");
    y = sherd_attention(heads_of(m, WQ, x), heads_of(m, WK, memory), heads_of(m, WV, memory), &how);
    return sherd_module_call(m->child[WO].module, sherd_view(y, whole, 3));
}

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    static const char *const names[] = {"memory", "mask", NULL};
    sherd_tensor *x = sherd__layer_arguments(self, in, 1, names);
    sherd_tensor *memory = sherd_args_find(in, "memory");

    sherd__layer_give(out, attend(self, x, memory ? memory : x, sherd_args_find(in, "mask")));
}

/* ---- making one ----------------------------------------------------------------------------- */

static void free_attention(void *payload)
{
    attention *a = payload;
    sherd_tensor_release(a->how.mask);
    sherd__free(sherd__world_heap(a->world), a);
}

/* The four layers; their names begin with the given name. */
static sherd_status add_children(sherd_module *m, const sherd_layer_options *options)
{
    const attention *a = m->options.payload;
    int64_t kept = a->kv_heads * (a->width / a->heads);
    sherd__heap *heap = sherd__world_heap(m->world);
    sherd_layer_options o = options ? *options : (sherd_layer_options){0};
    const char *above = o.name ? o.name : "";
    size_t room = strlen(above) + 4;
    char *name = sherd__alloc(heap, room, 1);
    sherd_status status = SHERD_OK;

    if (!name)
        return sherd__no_memory(sherd__world_diag(m->world), "sherd_attention_create");
    o.name = name;
    for (int i = 0; !status && i < CHILDREN; i++) {
        sherd_module *child;
        snprintf(name, room, "%s%s%s", above, above[0] ? "." : "", child_name[i]);
        status = sherd_linear_create(&child, m->world, a->width,
                                     i == WK || i == WV ? kept : a->width, &o);
        if (!status)
            status = sherd_module_add(m, child_name[i], child);
    }
    sherd__free(heap, name);
    return status;
}

static sherd_status check(sherd_world *world, int64_t width, int64_t heads,
                          const sherd_layer_options *o)
{
    const char *fault = NULL;

    if (width < 1 || heads < 1 || width % heads != 0)
        fault = "the width is a multiple of the heads, and both are at least 1";
    else if (o && o->kv_heads && (o->kv_heads < 1 || heads % o->kv_heads != 0))
        return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                           "sherd_attention_create(%lld, %lld): %lld kv_heads do not divide the "
                           "%lld heads",
                           (long long)width, (long long)heads, (long long)o->kv_heads,
                           (long long)heads);
    else if (o && o->dtype != SHERD_DTYPE_NONE && !sherd__has_fractions(o->dtype))
        fault = "the dtype has no fractions";
    else if (o && !(o->deviation >= 0))
        fault = "the deviation is negative";
    if (!fault)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                       "sherd_attention_create(%lld, %lld): %s", (long long)width, (long long)heads,
                       fault);
}

sherd_status sherd_attention_create(sherd_module **out, sherd_world *world, int64_t width,
                                    int64_t heads, const sherd_attention_options *how,
                                    const sherd_layer_options *options)
{
    static const char function[] = "sherd_attention_create";
    const sherd__argument need[] = {{"out", out}, {"world", world}, {NULL, NULL}};
    sherd_module_options module = {SHERD_MODULE_OTHER, NULL, free_attention};
    sherd_module *m = NULL;
    attention *a;

    if (out)
        *out = NULL;
    if (sherd__require(sherd__world_diag(world), function, need) ||
        check(world, width, heads, options))
        return SHERD_EINVAL;
    a = sherd__alloc(sherd__world_heap(world), 1, sizeof *a);
    if (!a)
        return sherd__no_memory(sherd__world_diag(world), function);
    *a = (attention){.world = world,
                     .width = width,
                     .heads = heads,
                     .kv_heads = options && options->kv_heads ? options->kv_heads : heads,
                     .how = how ? *how : (sherd_attention_options){0}};
    sherd_tensor_retain(a->how.mask);
    module.payload = a;
    sherd_status status = sherd_module_create(&m, world, forward, &module);
    if (status) {
        free_attention(a);
        return status;
    }
    m->is_layer = true;
    status = add_children(m, options);
    if (status)
        sherd_module_destroy(m);
    else
        *out = m;
    return status;
}
