/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linears whose weights become 8 bits with scales: two buffers in the place of the parameter, under
 * the same path, so that styles, hooks and files know them. A tree is changed one weight after the
 * other, each in the layout that it has, so that no more than one is in memory twice.
 */
#include "nn/layer.h"
#include "apply/sketch.h"
#include "base/hash.h"
#include "nn/quantize.h"
#include "sherd/ops.h"
#include "sherd/ops_quantized.h"
#include "tensor/state.h"

static const char function[] = "sherd_module_quantize";

typedef struct quantized {
    sherd_world *world;
    int64_t group;
} quantized;

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const quantized *how = self->options.payload;

    sherd__layer_give(out, sherd_linear_quantized(
                               sherd__layer_argument(self, in), sherd_module_buffer(self, "weight"),
                               sherd_module_buffer(self, "weight_scale"), how->group,
                               sherd_module_parameter(self, "bias")));
}

static void free_payload(void *payload)
{
    quantized *how = payload;

    sherd__free(sherd__world_heap(how->world), how);
}

/* ---- what is asked --------------------------------------------------------------------------- */

/* Whether it is a Linear of the library's, with a weight that is no 8 bits yet. */
static bool takes_part(const sherd_module *m)
{
    return m->forward == sherd__linear_forward && sherd__find_parameter(m, "weight") >= 0;
}

static sherd_status refuse(const sherd_module *m, const char *fault)
{
    return sherd__module_fail(m, SHERD_EINVAL, "%s: \"%s\" %s", function, sherd__module_name(m),
                              fault);
}

static sherd_status check_one(const sherd_module *m)
{
    const sherd__named_tensor *weight = &m->parameter[sherd__find_parameter(m, "weight")];
    sherd_tensor *t = weight->tensor;

    if (sherd__is_failed(t))
        return refuse(m, "has lost its weight in a step that failed: load it first");
    if (sherd__raw_grad(t))
        return refuse(m, "has a gradient: clear it first (sherd_clear_grad)");
    if (weight->sharded || m->in_unit)
        return refuse(m, "is fully sharded: quantize it before, or not");
    if (m->options.payload)
        return refuse(m, "has a payload");
    if (sherd__find_buffer(m, "weight_scale") >= 0 ||
        sherd__find_child(m, "weight_scale", 12) >= 0 ||
        sherd__find_parameter(m, "weight_scale") >= 0)
        return refuse(m, "has another \"weight_scale\"");
    return SHERD_OK;
}

static sherd_status check_tree(const sherd_module *m, int *count)
{
    sherd_status status = SHERD_OK;

    if (takes_part(m)) {
        ++*count;
        status = check_one(m);
    }
    for (int i = 0; !status && i < m->children; i++)
        status = check_tree(m->child[i].module, count);
    return status;
}

static sherd_status check(const sherd_module *module, int64_t group, int *count)
{
    bool running = sherd__is_running(module), again = sherd__runs_again(module);

    for (const sherd_module *m = module->parent; m; m = m->parent) {
        running = running || m->running;
        again = again || m->checkpoint;
    }
    if (group < 0)
        return sherd__module_fail(module, SHERD_EINVAL, "%s: a group of %lld columns", function,
                                  (long long)group);
    if (running || again)
        return refuse(module, "or a module below or above it is being called, or backward may run "
                              "it again");
    return check_tree(module, count);
}

/* ---- one weight ------------------------------------------------------------------------------ */

/* Where the scales of a weight lie: with its rows, their groups whole. */
static sherd_status scales_layout(const sherd_layout **out, const sherd_layout *weight,
                                  int64_t groups)
{
    sherd__sketch s;

    sherd__sketch_begin(&s, weight);
    if (groups > 0) {
        s.spec.shape[1] = groups;
        s.spec.dim[1] = (sherd__dim){0};
    } else {
        s.spec.ndim = 1;
    }
    return sherd__sketch_end(out, &s, function);
}

/* Both as the weight lies. False: one has failed. */
static bool quantize(sherd_tensor *weight, int64_t group, sherd_tensor **value,
                     sherd_tensor **scale)
{
    const sherd_layout *layout;

    *value = sherd_quantize(weight, group, scale);
    if (sherd_tensor_failed(*value))
        return false;
    if (weight->layout) {
        if (scales_layout(&layout, weight->layout, group ? (*scale)->shape[1] : 0))
            return false;
        *value = sherd_redistribute(*value, weight->layout, NULL);
        *scale = sherd_redistribute(*scale, layout, NULL);
    }
    (*value)->elsewhere = (*scale)->elsewhere = weight->elsewhere;
    return !sherd_tensor_failed(*value) && !sherd_tensor_failed(*scale);
}

/*
 * All ranks change a weight, or none does: the next call begins where this one has failed. So what
 * takes memory comes first, and a rank that has none raises it: others may wait for its piece.
 */
static sherd_status quantize_one(sherd_module *m, int64_t group, bool together)
{
    sherd__diag *diag = sherd__world_diag(m->world);
    sherd__heap *heap = sherd__world_heap(m->world);
    quantized *how = sherd__alloc(heap, 1, sizeof *how);
    sherd_tensor *value = NULL, *scale = NULL;
    sherd_status status = SHERD_OK;
    sherd__buffering turning;
    int at = sherd__find_parameter(m, "weight");
    bool ready = sherd__buffering_begin(&turning, m, at, "weight_scale") && how;

    sherd__follow_tie(m, &m->parameter[at]);
    bool recording = sherd_set_recording(m->world, false);
    sherd_scope_begin(m->world);
    if (!ready) {
        status = sherd__no_memory(diag, function);
        if (together)
            sherd__raise(m->world, status, "%s: out of memory", function);
    } else if (!quantize(m->parameter[at].tensor, group, &value, &scale)) {
        status = diag->status ? diag->status : SHERD_ENOMEM;
    }
    if (together)
        status =
            sherd__agree(m->world, status, sherd__hash_text(8, sherd__module_name(m)), function);
    if (status) {
        sherd__buffering_drop(&turning, m);
        sherd__free(heap, how);
    } else {
        *how = (quantized){m->world, group};
        sherd__buffering_end(&turning, m, at, value, scale);
        m->forward = forward;
        m->options.payload = how;
        m->options.destroy = free_payload;
        m->is_layer = true;
    }
    sherd_scope_end(m->world);
    sherd_set_recording(m->world, recording);
    return status;
}

static sherd_status quantize_tree(sherd_module *m, int64_t group, bool together)
{
    sherd_status status = takes_part(m) ? quantize_one(m, group, together) : SHERD_OK;

    for (int i = 0; !status && i < m->children; i++)
        status = quantize_tree(m->child[i].module, group, together);
    return status;
}

sherd_status sherd_module_quantize(sherd_module *module, int64_t group)
{
    int count = 0;

    if (!module)
        return SHERD_EINVAL;
    bool together = sherd__load_kind_of(module) == SHERD__LOAD_TOGETHER;
    sherd_status status = check(module, group, &count);
    if (!status && count == 0)
        status = refuse(module, "has no Linear with a weight to quantize");
    if (together)
        status = sherd__agree(
            module->world, status,
            sherd__hash_word(sherd__hash_word(7, (uint64_t)group), (uint64_t)count), function);
    return status ? status : quantize_tree(module, group, together);
}
