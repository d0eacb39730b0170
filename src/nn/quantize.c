/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linears and experts whose weights become 8 or 4 bits with scales: two buffers in the place of the
 * parameter, under the same path, so that styles, hooks and files know them. A tree is changed one
 * weight after the other, each in the layout that it has, so that no more than one is in memory
 * twice.
 */
#include <stdio.h>
#include <string.h>

#include "nn/layer.h"
#include "apply/sketch.h"
#include "base/hash.h"
#include "nn/quantize.h"
#include "sherd/ops.h"
#include "sherd/ops_quantized.h"
#include "tensor/state.h"

static const char function[] = "sherd_module_quantize";

/* What weights become; the payload of a Linear whose weight did. */
typedef sherd__whole_numbers quantized;

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

const sherd__whole_numbers *sherd__whole_numbers_of(const sherd_module *m)
{
    const sherd__whole_numbers *of_experts = sherd__experts_numbers(m);

    return m->forward == forward            ? m->options.payload
           : of_experts && of_experts->bits ? of_experts
                                            : NULL;
}

/* ---- what is asked --------------------------------------------------------------------------- */

/* The weights that a module may have. */
static const char *const weights[] = {"weight", "w1", "w3", "w2"};
enum { WEIGHTS = sizeof weights / sizeof *weights };

/* Which of the weights the module, a Linear or experts of the library's, has as a parameter, no
 * whole numbers yet. -1: it has no such weight. */
static int weight_of(const sherd_module *m, int i)
{
    bool takes_part =
        i == 0 ? m->forward == sherd__linear_forward : sherd__experts_numbers(m) != NULL;

    return takes_part ? sherd__find_parameter(m, weights[i]) : -1;
}

static sherd_status refuse(const sherd_module *m, const char *fault)
{
    return sherd__module_fail(m, SHERD_EINVAL, "%s: \"%s\" %s", function, sherd__module_name(m),
                              fault);
}

enum { SCALE_TEXT = 16 };

static void name_scale(char text[SCALE_TEXT], const char *weight)
{
    snprintf(text, SCALE_TEXT, "%s_scale", weight);
}

/* Whether a byte of two columns would be cut. */
static bool cuts_bytes(const sherd_tensor *t)
{
    int last = t->ndim - 1;

    if (!t->layout || t->layout->spec.dim[last].axes == 0)
        return false;
    const sherd_mesh *mesh = t->layout->spec.mesh;
    const sherd__dim *dim = &t->layout->spec.dim[last];
    bool odd = false;

    for (int64_t i = 1; i < sherd__dim_parts(mesh, dim); i++)
        odd |= sherd__dim_cut(mesh, dim, t->shape[last], i) % 2 != 0;
    return odd;
}

static sherd_status check_one(const sherd_module *m, int at, const quantized *how)
{
    const sherd__named_tensor *weight = &m->parameter[at];
    const quantized *of_experts = sherd__experts_numbers(m);
    sherd_tensor *t = weight->tensor;
    char scale[SCALE_TEXT];

    if (sherd__is_failed(t))
        return refuse(m, "has lost its weight in a step that failed: load it first");
    if (sherd__raw_grad(t))
        return refuse(m, "has a gradient: clear it first (sherd_clear_grad)");
    if (weight->sharded || m->in_unit)
        return refuse(m, "is fully sharded: quantize it before, or not");
    if (how->bits == 4 && t->ndim >= 2 && t->shape[t->ndim - 1] % 2)
        return refuse(m, "has an odd number of columns: of 4 bits two are a byte");
    if (how->bits == 4 && t->ndim >= 2 && cuts_bytes(t))
        return refuse(m, "has a weight that is cut at an odd column: of 4 bits two are a byte; "
                         "quantize it before it is sharded, or shard it with a granule of 2");
    if (of_experts && of_experts->bits &&
        (of_experts->bits != how->bits || of_experts->group != how->group))
        return refuse(m, "has weights of other bits or groups");
    if (!of_experts && m->options.payload)
        return refuse(m, "has a payload");
    name_scale(scale, weight->name);
    if (sherd__find_buffer(m, scale) >= 0 || sherd__find_child(m, scale, strlen(scale)) >= 0 ||
        sherd__find_parameter(m, scale) >= 0)
        return refuse(m, "has another tensor or module by the name of its scales");
    return SHERD_OK;
}

static sherd_status check_tree(const sherd_module *m, const quantized *how, int *count)
{
    sherd_status status = SHERD_OK;

    for (int i = 0, at; !status && i < WEIGHTS; i++)
        if ((at = weight_of(m, i)) >= 0) {
            ++*count;
            status = check_one(m, at, how);
        }
    for (int i = 0; !status && i < m->children; i++)
        status = check_tree(m->child[i].module, how, count);
    return status;
}

static sherd_status check(const sherd_module *module, const quantized *how, int *count)
{
    bool running = sherd__is_running(module), again = sherd__runs_again(module);

    for (const sherd_module *m = module->parent; m; m = m->parent) {
        running = running || m->running;
        again = again || m->checkpoint;
    }
    if (how->bits != 8 && how->bits != 4)
        return sherd__module_fail(module, SHERD_EINVAL, "%s: %d bits: 8 or 4", function, how->bits);
    if (how->group < 0 || (how->bits == 4 && how->group % 2))
        return sherd__module_fail(module, SHERD_EINVAL, "%s: a group of %lld columns%s", function,
                                  (long long)how->group,
                                  how->group < 0 ? "" : ": of 4 bits it must be even");
    if (running || again)
        return refuse(module, "or a module below or above it is being called, or backward may run "
                              "it again");
    return check_tree(module, how, count);
}

/* ---- one weight ------------------------------------------------------------------------------ */

/* Where the scales of a weight lie: with its rows, their groups whole. */
static sherd_status scales_layout(const sherd_layout **out, const sherd_layout *weight,
                                  int64_t groups)
{
    sherd__sketch s;

    int last = weight->spec.ndim - 1;

    sherd__sketch_begin(&s, weight);
    if (groups > 0) {
        s.spec.shape[last] = groups;
        s.spec.dim[last] = (sherd__dim){0};
    } else {
        s.spec.ndim = last;
    }
    return sherd__sketch_end(out, &s, function);
}

/* Where the values of a weight lie: as it does; of 4 bits with half as many columns. */
static sherd_status values_layout(const sherd_layout **out, const sherd_layout *weight, int bits)
{
    int last = weight->spec.ndim - 1;
    const sherd__dim *dim = &weight->spec.dim[last];
    const sherd_mesh *mesh = weight->spec.mesh;
    int64_t *cuts, in = weight->spec.shape[last];
    sherd__sketch s;

    *out = weight;
    if (bits == 8)
        return SHERD_OK;
    sherd__sketch_begin(&s, weight);
    s.spec.shape[last] = in / 2;
    if (dim->axes && (cuts = sherd__sketch_cuts(&s, last))) {
        for (int64_t i = 0; i <= sherd__dim_parts(mesh, dim); i++)
            cuts[i] = sherd__dim_cut(mesh, dim, in, i) / 2;
        s.spec.dim[last].cuts = cuts;
    }
    return sherd__sketch_end(out, &s, function);
}

/* Both as the weight lies. False: one has failed. */
static bool quantize(sherd_tensor *weight, const quantized *how, sherd_tensor **value,
                     sherd_tensor **scale)
{
    const sherd_layout *values, *scales;

    *value = sherd_quantize(weight, how->bits, how->group, scale);
    if (sherd_tensor_failed(*value))
        return false;
    if (weight->layout) {
        if (values_layout(&values, weight->layout, how->bits) ||
            scales_layout(&scales, weight->layout,
                          how->group ? (*scale)->shape[(*scale)->ndim - 1] : 0))
            return false;
        *value = sherd_redistribute(*value, values, NULL);
        *scale = sherd_redistribute(*scale, scales, NULL);
    }
    if (sherd_tensor_failed(*value) || sherd_tensor_failed(*scale))
        return false;
    (*value)->elsewhere = (*scale)->elsewhere = weight->elsewhere;
    return true;
}

/* Note that a parameter of m is none any more, for optimizers that were made before. */
static void note_buffered(sherd_module *m)
{
    for (; m; m = m->parent)
        m->buffered++;
}

/*
 * All ranks change a weight, or none does: the next call begins where this one has failed. So what
 * takes memory comes first, and a rank that has none raises it: others may wait for its piece.
 */
static sherd_status quantize_one(sherd_module *m, int at, const quantized *as, bool together)
{
    sherd__diag *diag = sherd__world_diag(m->world);
    sherd__heap *heap = sherd__world_heap(m->world);
    quantized *of_experts = sherd__experts_numbers(m);
    quantized *own = of_experts ? NULL : sherd__alloc(heap, 1, sizeof *own);
    char name[SCALE_TEXT];
    sherd_tensor *value = NULL, *scale = NULL;
    sherd_status status = SHERD_OK;
    sherd__buffering turning;
    name_scale(name, m->parameter[at].name);
    bool ready = sherd__buffering_begin(&turning, m, at, name) && (of_experts || own);

    sherd__follow_tie(m, &m->parameter[at]);
    bool recording = sherd_set_recording(m->world, false);
    sherd_scope_begin(m->world);
    if (!ready) {
        status = sherd__no_memory(diag, function);
        if (together)
            sherd__raise(m->world, status, "%s: out of memory", function);
    } else if (!quantize(m->parameter[at].tensor, as, &value, &scale)) {
        status = diag->status ? diag->status : SHERD_ENOMEM;
    }
    if (together)
        status =
            sherd__agree(m->world, status, sherd__hash_text(8, sherd__module_name(m)), function);
    if (status) {
        sherd__buffering_drop(&turning, m);
        sherd__free(heap, own);
    } else {
        *(of_experts ? of_experts : own) = *as;
        sherd__buffering_end(&turning, m, at, value, scale);
        if (own) {
            m->forward = forward;
            m->options.payload = own;
            m->options.destroy = free_payload;
        }
        m->is_layer = true;
        note_buffered(m);
    }
    sherd_scope_end(m->world);
    sherd_set_recording(m->world, recording);
    return status;
}

static sherd_status quantize_tree(sherd_module *m, const quantized *as, bool together)
{
    sherd_status status = SHERD_OK;

    for (int i = 0, at; !status && i < WEIGHTS; i++)
        if ((at = weight_of(m, i)) >= 0)
            status = quantize_one(m, at, as, together);
    for (int i = 0; !status && i < m->children; i++)
        status = quantize_tree(m->child[i].module, as, together);
    return status;
}

static uint64_t hash_of(const quantized *as, int count)
{
    uint64_t hash = sherd__hash_word(7, (uint64_t)as->group);

    return sherd__hash_word(sherd__hash_word(hash, (uint64_t)as->bits), (uint64_t)count);
}

sherd_status sherd_module_quantize(sherd_module *module, int bits, int64_t group)
{
    int count = 0;

    if (!module)
        return SHERD_EINVAL;
    const quantized as = {module->world, group, bits};
    bool together = sherd__load_kind_of(module) == SHERD__LOAD_TOGETHER;
    sherd_status status = check(module, &as, &count);
    if (!status && count == 0)
        status = refuse(module, "has no Linear or experts with a weight to quantize");
    if (together)
        status = sherd__agree(module->world, status, hash_of(&as, count), function);
    return status ? status : quantize_tree(module, &as, together);
}
