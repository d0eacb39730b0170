/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Multi-head attention as a module: four Linear children around the operator, and two norms of
 * heads if they are asked for. Its forward names global sizes only, so Colwise on wq, wk and wv and
 * Rowwise on wo, with a head as the granule, split it by heads, whole ones on each rank; heads that
 * share keys and values stay together with granules of them.
 */
#include <stdio.h>
#include <string.h>

#include "nn/layer.h"
#include "sherd/ops.h"
#include "sherd/ops_layers.h"

enum { WQ, WK, WV, WO, LINEARS, Q_NORM = LINEARS, K_NORM, CHILDREN };

static const char *const child_name[CHILDREN] = {"wq", "wk", "wv", "wo", "q_norm", "k_norm"};

typedef struct attention {
    sherd_world *world;
    int64_t width, heads, kv_heads, head; /* head: its width */
    bool rotates, norms;                  /* queries and keys */
    sherd_rotary_options rotary;
    sherd_attention_options how;
} attention;

/* ---- forward -------------------------------------------------------------------------------- */

static sherd_tensor *refuse(const sherd_module *m, const char *fault)
{
    return sherd__fail_tensor(m->world, true, SHERD_EINVAL, "%s: module \"%.200s\": %s",
                              sherd__module_called(m), sherd__module_name(m), fault);
}

/* [batch, s, width] through a child, as [batch, s, its heads, width of a head]. */
static sherd_tensor *heads_of(sherd_module *m, int child, sherd_tensor *x)
{
    const attention *a = m->options.payload;
    int64_t heads = child == WQ ? a->heads : a->kv_heads;
    const int64_t shape[] = {-1, x->shape[1], heads, a->head};

    return sherd_view(sherd_module_call(m->child[child].module, x), shape, 4);
}

/* Queries or keys, normalised and rotated as far as they are. */
static sherd_tensor *turned(sherd_module *m, int child, sherd_tensor *x, sherd_tensor *positions)
{
    const attention *a = m->options.payload;
    sherd_tensor *t = heads_of(m, child, x);

    if (a->norms)
        t = sherd_module_call(m->child[child == WQ ? Q_NORM : K_NORM].module, t);
    return a->rotates ? sherd_rotary(t, positions, &a->rotary) : t;
}

/* The options of a call: nothing is dropped in evaluation mode. */
static sherd_attention_options options_of(sherd_module *m, const sherd_args *in)
{
    const attention *a = m->options.payload;
    sherd_tensor *mask = sherd_args_find(in, "mask"), *spans = sherd_args_find(in, "spans");
    sherd_attention_options how = a->how;

    if (m->eval)
        how.dropout = 0;
    if (!how.generator && how.dropout != 0)
        how.generator = sherd_module_generator(m);
    if (mask)
        how.mask = mask;
    if (spans)
        how.spans = spans;
    return how;
}

static sherd_tensor *attend(sherd_module *m, sherd_tensor *x, const sherd_args *in)
{
    const attention *a = m->options.payload;
    const sherd_attention_options how = options_of(m, in);
    const int64_t whole[] = {-1, x->ndim > 1 ? x->shape[1] : 0, a->heads * a->head};
    sherd_tensor *given = sherd_args_find(in, "memory"), *memory = given ? given : x;
    sherd_tensor *positions = sherd_args_find(in, "positions"), *q, *k;

    /*
     * Go on with failed tensors: they may have failed on this rank alone, and the generator must
     * stay in step with the others.
     */
    bool good = !sherd_tensor_failed(x) && !sherd_tensor_failed(memory);
    if (good && (x->ndim != 3 || memory->ndim != 3))
        return refuse(m, "it takes tensors [batch, positions, width]");
    q = turned(m, WQ, x, positions);
    k = turned(m, WK, memory, positions);
    sherd_tensor *y = sherd_attention(q, k, heads_of(m, WV, memory), &how);
    return sherd_module_call(m->child[WO].module, sherd_view(y, whole, 3));
}

/* Where it rotates, keys have the positions of queries: they are not another tensor's. */
static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    static const char *const names[] = {"mask", "memory", "spans", NULL};
    static const char *const of_rotary[] = {"mask", "positions", "spans", NULL};
    const attention *a = self->options.payload;
    sherd_tensor *x = sherd__layer_arguments(self, in, 1, a->rotates ? of_rotary : names);

    sherd__layer_give(out, attend(self, x, in));
}

/* ---- making one ----------------------------------------------------------------------------- */

static void free_attention(void *payload)
{
    attention *a = payload;
    sherd_tensor_release(a->how.mask);
    sherd_tensor_release(a->how.spans);
    sherd_tensor_release(a->rotary.frequencies);
    sherd__free(sherd__world_heap(a->world), a);
}

/* Make a child, with options that name it. */
static sherd_status make_child(sherd_module **out, const sherd_module *m, int i,
                               const sherd_layer_options *o)
{
    const attention *a = m->options.payload;
    int64_t inside = a->heads * a->head, kept = a->kv_heads * a->head;

    if (i >= LINEARS)
        return sherd_rms_norm_create(out, m->world, a->head, o->eps, o);
    return i == WO ? sherd_linear_create(out, m->world, inside, a->width, o)
                   : sherd_linear_create(out, m->world, a->width, i == WQ ? inside : kept, o);
}

/* The layers; their names begin with the given name. */
static sherd_status add_children(sherd_module *m, const sherd_layer_options *options)
{
    const attention *a = m->options.payload;
    sherd__heap *heap = sherd__world_heap(m->world);
    sherd_layer_options o = options ? *options : (sherd_layer_options){0};
    const char *above = o.name ? o.name : "";
    size_t room = strlen(above) + sizeof "." + strlen(child_name[Q_NORM]);
    char *name = sherd__alloc(heap, room, 1);
    sherd_status status = SHERD_OK;

    if (!name)
        return sherd__no_memory(sherd__world_diag(m->world), "sherd_attention_create");
    o.name = name;
    for (int i = 0; !status && i < (a->norms ? CHILDREN : LINEARS); i++) {
        sherd_module *child;
        snprintf(name, room, "%s%s%s", above, above[0] ? "." : "", child_name[i]);
        status = make_child(&child, m, i, &o);
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

    if (width < 1 || heads < 1)
        fault = "width and heads are at least 1";
    else if (o && o->head_width < 0)
        fault = "the width of a head is negative";
    else if (!(o && o->head_width) && width % heads != 0)
        fault = "the width is no multiple of the heads, and options.head_width not given";
    else if (o && (o->head_width > INT64_MAX / heads))
        fault = "the heads are too wide";
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
    else if (o && !(o->eps >= 0))
        fault = "eps is negative or no number";
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
                     .head = options && options->head_width ? options->head_width : width / heads,
                     .norms = options && options->norm_heads,
                     .how = how ? *how : (sherd_attention_options){0}};
    if (options && options->rotary) {
        a->rotates = true;
        a->rotary = *options->rotary;
        if (!a->rotary.zigzag)
            a->rotary.zigzag = a->how.zigzag;
    }
    sherd_tensor_retain(a->how.mask);
    sherd_tensor_retain(a->how.spans);
    sherd_tensor_retain(a->rotary.frequencies);
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
