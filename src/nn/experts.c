/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mixture of experts as a module: a Linear child that scores experts, and three weights for all
 * experts, around the operators on groups of rows. Its forward names global sizes only; where
 * experts, features and tokens are follows from the layouts of weights and of its argument.
 */
#include <stdio.h>
#include <string.h>

#include "nn/layer.h"
#include "nn/quantize.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_groups.h"
#include "sherd/ops_quantized.h"
#include "sherd/ops_reductions.h"

enum { W1, W3, W2, WEIGHTS };

static const char *const weight_name[WEIGHTS] = {"w1", "w3", "w2"};

typedef struct experts {
    sherd_world *world;
    int64_t width;
    sherd_experts_options how;
    sherd__whole_numbers numbers; /* of weights that are buffers; 0 bits: none is */
} experts;

/* ---- forward --------------------------------------------------------------------------------- */

/* Whether positions are sharded and items are not: then they are the first dim of the tokens. */
static bool is_by_positions(const sherd_tensor *x)
{
    const sherd_layout *layout = x->layout;

    return layout && x->ndim == 3 && layout->spec.dim[1].axes && !layout->spec.dim[0].axes;
}

/* Scores of the chosen experts, [tokens, k], and which they are; and the softmax over all. */
static sherd_tensor *choose(const experts *e, sherd_tensor *logits, sherd_tensor **choice,
                            sherd_tensor **softmax)
{
    bool all = e->how.whole_scores || e->how.balance;
    sherd_tensor *top;

    *softmax = all ? sherd_softmax(logits, -1) : NULL;
    top = sherd_topk(e->how.whole_scores ? *softmax : logits, e->how.k, 1, true, choice);
    return e->how.whole_scores ? top : sherd_softmax(top, -1);
}

static sherd_tensor *balance_of(const experts *e, sherd_tensor *choice, sherd_tensor *softmax)
{
    sherd_tensor *wide = sherd_tensor_failed(softmax) || sherd_tensor_dtype(softmax) == SHERD_F64
                             ? softmax
                             : sherd_cast(softmax, SHERD_F32);
    sherd_tensor *count =
        sherd_cast(sherd_bincount(choice, e->how.experts), sherd_tensor_dtype(wide));
    double tokens = sherd_tensor_failed(wide) ? 1 : (double)wide->shape[0];
    sherd_tensor *mean = sherd_mean_over(wide, (int[]){0}, 1, false);

    return sherd_scale(sherd_sum(sherd_mul(mean, count)), (double)e->how.experts / tokens);
}

/* Rows by weight i of their experts, a parameter or whole numbers. */
static sherd_tensor *by_weight(const sherd_module *m, int i, sherd_tensor *rows,
                               const sherd_groups *to)
{
    static const char *const scale[WEIGHTS] = {"w1_scale", "w3_scale", "w2_scale"};
    const experts *e = m->options.payload;
    sherd_tensor *plain = sherd_module_parameter(m, weight_name[i]);

    if (plain || !e->numbers.bits)
        return sherd_grouped_linear(rows, plain, NULL, to->ends, to->group);
    return sherd_grouped_linear_quantized(rows, sherd_module_buffer(m, weight_name[i]),
                                          sherd_module_buffer(m, scale[i]), e->numbers.group, NULL,
                                          to->ends, to->group);
}

static sherd_tensor *mix(sherd_module *m, sherd_tensor *x, sherd_tensor *scores,
                         sherd_tensor *choice)
{
    sherd_tensor *w1 = sherd_module_parameter(m, weight_name[W1]);
    sherd_groups to;

    sherd_group_rows(&to, choice, w1 ? w1 : sherd_module_buffer(m, weight_name[W1]));
    sherd_tensor *rows = sherd_dispatch(x, &to);
    sherd_tensor *gate = sherd_silu(by_weight(m, W1, rows, &to));
    rows = by_weight(m, W2, sherd_mul(gate, by_weight(m, W3, rows, &to)), &to);
    return sherd_combine(rows, &to, scores);
}

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const experts *e = self->options.payload;
    sherd_tensor *x = sherd__layer_argument(self, in), *choice = NULL, *softmax = NULL;
    const int64_t flat[] = {-1, e->width};

    /*
     * Go on with failed tensors: they may have failed on this rank alone, and the generators must
     * stay in step with the others.
     */
    bool good = !sherd_tensor_failed(x), turned = good && is_by_positions(x);
    if (good && (x->ndim < 1 || x->shape[x->ndim - 1] != e->width))
        x = sherd__fail_tensor(
            self->world, true, SHERD_EINVAL, "%s: module \"%.200s\": it takes [..., %lld]",
            sherd__module_called(self), sherd__module_name(self), (long long)e->width);
    if (turned)
        x = sherd_transpose(x, 0, 1);
    sherd_tensor *tokens = sherd_view(x, flat, 2);
    sherd_tensor *scores =
        choose(e, sherd_module_call(self->child[0].module, tokens), &choice, &softmax);
    sherd_tensor *y = mix(self, tokens, scores, choice);
    y = sherd_view(y, good ? x->shape : flat, good ? x->ndim : 2);
    out->value[0] = turned ? sherd_transpose(y, 0, 1) : y;
    out->count = 1;
    if (e->how.balance)
        out->value[out->count++] = balance_of(e, choice, softmax);
}

sherd__whole_numbers *sherd__experts_numbers(const sherd_module *m)
{
    return m->forward == forward ? &((experts *)m->options.payload)->numbers : NULL;
}

/* ---- making one ------------------------------------------------------------------------------ */

static void free_experts(void *payload)
{
    experts *e = payload;
    sherd__free(sherd__world_heap(e->world), e);
}

/* "NAME.w1" into a text of this room. */
static void name_part(char *text, size_t room, const char *above, const char *part)
{
    snprintf(text, room, "%s%s%s", above, above[0] ? "." : "", part);
}

static sherd_status add_weight(sherd_module *m, int i, const sherd_layer_options *o)
{
    const sherd__diag *diag = sherd__world_diag(m->world);
    const experts *e = m->options.payload;
    const int64_t in = i == W2 ? e->how.hidden : e->width, out = i == W2 ? e->width : e->how.hidden;
    const int64_t shape[] = {e->how.experts, out, in};
    sherd_tensor *t = sherd__layer_draw(m->world, shape, 3, o);

    if (sherd_tensor_failed(t))
        return diag->status ? diag->status : SHERD_ENOMEM;
    return sherd_module_add_parameter(m, weight_name[i], t);
}

static sherd_status add_parts(sherd_module *m, const sherd_layer_options *options)
{
    const experts *e = m->options.payload;
    const char *above = options->name ? options->name : "";
    sherd__heap *heap = sherd__world_heap(m->world);
    size_t room = strlen(above) + sizeof ".router";
    char *name = sherd__alloc(heap, room, 1);
    sherd_layer_options o = *options;
    sherd_module *router = NULL;

    if (!name)
        return sherd__no_memory(sherd__world_diag(m->world), "sherd_experts_create");
    o.name = name;
    name_part(name, room, above, "router");
    sherd_status status = sherd_linear_create(&router, m->world, e->width, e->how.experts, &o);
    if (!status)
        status = sherd_module_add(m, "router", router);
    sherd_scope_begin(m->world);
    for (int i = 0; !status && i < WEIGHTS; i++) {
        name_part(name, room, above, weight_name[i]);
        status = add_weight(m, i, &o);
    }
    sherd_scope_end(m->world);
    sherd__free(heap, name);
    return status;
}

static const char *fault_of(const sherd_experts_options *how, const sherd_layer_options *o)
{
    if (how->experts < 1 || how->hidden < 1 || how->k < 1)
        return "experts, k or hidden is less than 1";
    if (how->k > how->experts)
        return "k is above the number of experts";
    return o->bias ? "experts have no bias" : NULL;
}

sherd_status sherd_experts_create(sherd_module **out, sherd_world *world, int64_t width,
                                  const sherd_experts_options *how,
                                  const sherd_layer_options *options)
{
    static const char function[] = "sherd_experts_create";
    const sherd_layer_options o = sherd__layer_options_of(options);
    sherd_module_options module = {SHERD_MODULE_OTHER, NULL, free_experts};
    sherd_module *m = NULL;
    sherd_status status = sherd__layer_check(out, world, function, width, 1, &o);
    const char *fault = status ? NULL : how ? fault_of(how, &o) : "how is NULL";

    if (fault)
        return sherd__fail(sherd__world_diag(world), SHERD_EINVAL, "%s(%lld): %s", function,
                           (long long)width, fault);
    if (status)
        return status;
    experts *e = sherd__alloc(sherd__world_heap(world), 1, sizeof *e);
    if (!e)
        return sherd__no_memory(sherd__world_diag(world), function);
    *e = (experts){.world = world, .width = width, .how = *how};
    module.payload = e;
    status = sherd_module_create(&m, world, forward, &module);
    if (status) {
        free_experts(e);
        return status;
    }
    m->is_layer = true;
    status = add_parts(m, &o);
    if (status)
        sherd_module_destroy(m);
    else
        *out = m;
    return status;
}
