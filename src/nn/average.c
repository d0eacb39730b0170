/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The average of a module over its training. All is compared before anything is written; then one
 * tensor after the other is written in place, where it lies, by operators on the whole tensor, so
 * that ledgers, GPUs and dry worlds know of it. Costs three passes over a parameter, and its memory
 * once more for the largest one.
 */
#include <string.h>

#include "nn/module.h"
#include "sherd/average.h"
#include "sherd/ops.h"
#include "sherd/ops_shape.h"
#include "layout/shape.h"

static const char function[] = "sherd_module_average";

enum { NAME_BYTES = 200 };

typedef struct averaging {
    sherd_world *world;
    double weight;
    int count;                     /* of those that both have */
    sherd_named_state *to, *from;  /* of the average and of the module */
    const sherd_named_state *more; /* the first that only one of them has; NULL: none */
} averaging;

/* ---- what does not fit ----------------------------------------------------------------------- */

/* Why the values of b cannot be written to a; NULL: they can. */
static const char *fault(const sherd_named_state *to, const sherd_named_state *from)
{
    const sherd_tensor *a = to->tensor, *b = from->tensor;

    if (strcmp(to->path, from->path) || strcmp(to->name, from->name) || to->buffer != from->buffer)
        return "stands in the place of";
    if (!sherd__same_shape(a->ndim, a->shape, b->ndim, b->shape))
        return "has another shape than";
    if (a->dtype != b->dtype && !(sherd__has_fractions(a->dtype) && sherd__has_fractions(b->dtype)))
        return "has another dtype than";
    if (!a->layout != !b->layout)
        return a->layout ? "is distributed, unlike" : "is plain, unlike";
    if (a->layout && a->layout->spec.mesh != b->layout->spec.mesh)
        return "lies on another mesh than";
    return NULL;
}

static bool refuse_more(const averaging *v)
{
    bool ours = v->more < v->from;
    char name[NAME_BYTES];

    sherd_state_name(v->more, name, sizeof name);
    sherd__raise(v->world, SHERD_EINVAL, "%s: \"%s\" of the %s, %.80s, is not in the %s", function,
                 name, ours ? "average" : "module", sherd_tensor_text(v->more->tensor),
                 ours ? "module" : "average");
    return false;
}

/* False: some do not fit, raised. */
static bool fits(const averaging *v)
{
    char name[NAME_BYTES], other[NAME_BYTES];

    for (int i = 0; i < v->count; i++) {
        const char *reason = fault(&v->to[i], &v->from[i]);
        if (!reason)
            continue;
        sherd_state_name(&v->to[i], name, sizeof name);
        sherd_state_name(&v->from[i], other, sizeof other);
        sherd__raise(v->world, SHERD_EINVAL, "%s: \"%s\" of the average, %.80s, %s \"%s\", %.80s",
                     function, name, sherd_tensor_text(v->to[i].tensor), reason, other,
                     sherd_tensor_text(v->from[i].tensor));
        return false;
    }
    return !v->more || refuse_more(v);
}

static const char *fault_of_modules(sherd_module *average, sherd_module *module)
{
    if (!average || !module)
        return average ? "module is NULL" : "average is NULL";
    if (average == module)
        return "the module is its own average";
    if (average->world != module->world)
        return "the average and the module are of two worlds";
    if (sherd__is_running(sherd__module_root(average)) ||
        sherd__is_running(sherd__module_root(module)))
        return "the average or the module is being called";
    return NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* a = b, or a += weight (b - a). False: failed. */
static bool write_one(const averaging *v, int i)
{
    sherd_tensor *a = v->to[i].tensor, *b = v->from[i].tensor;

    if (sherd__is_elsewhere(a) || sherd__is_elsewhere(b))
        return true;
    if (v->to[i].buffer || v->weight == 1)
        return !sherd_tensor_failed(sherd_copy_from(a, b));
    b = sherd_cast(b, a->dtype);
    if (a->layout)
        b = sherd_redistribute(b, a->layout, NULL);
    b = sherd_scale_by(sherd_sub(b, a), v->weight);
    return !sherd_tensor_failed(sherd_add_to(a, b));
}

static void write_all(const averaging *v)
{
    bool recording = sherd_set_recording(v->world, false), good = true;

    for (int i = 0; i < v->count && good; i++) {
        sherd_scope_begin(v->world);
        good = write_one(v, i);
        sherd_scope_end(v->world);
    }
    sherd_set_recording(v->world, recording);
}

void sherd_module_average(sherd_module *average, sherd_module *module, double weight)
{
    sherd_world *world = average ? average->world : module ? module->world : NULL;

    if (!world)
        return;
    const char *reason = fault_of_modules(average, module);
    if (reason) {
        sherd__raise(world, SHERD_EINVAL, "%s: %s", function, reason);
        return;
    }
    if (!(weight >= 0 && weight <= 1)) {
        sherd__raise(world, SHERD_EINVAL, "%s: a weight of %g is outside of [0,1]", function,
                     weight);
        return;
    }
    int to = sherd_module_state(average, NULL, 0), from = sherd_module_state(module, NULL, 0);
    averaging v = {.world = world, .weight = weight, .count = to < from ? to : from};
    v.to = sherd__alloc(sherd__world_heap(world), (size_t)to + (size_t)from + 1, sizeof *v.to);
    if (!v.to) {
        sherd__raise(world, SHERD_ENOMEM, "%s: out of memory", function);
        return;
    }
    v.from = v.to + to;
    sherd_module_state(average, v.to, to);
    sherd_module_state(module, v.from, from);
    if (to != from)
        v.more = to > from ? v.to + from : v.from + to;
    if (fits(&v))
        write_all(&v);
    sherd__free(sherd__world_heap(world), v.to);
}
