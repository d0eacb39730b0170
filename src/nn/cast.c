/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters and buffers that become other tensors: of another dtype here, of another layout in
 * parallel/. What is tied in one tree stays tied. A tree is cast one tensor after the other, so
 * that no more than one is in memory twice; ranks meet after each. An optimizer that has an old one
 * refuses its next step.
 */
#include <string.h>

#include "nn/module.h"
#include "base/hash.h"
#include "nn/quantize.h"
#include "sherd/ops.h"
#include "tensor/state.h"

/* ---- another tensor in a place --------------------------------------------------------------- */

static void replace_in(sherd__named_tensor *list, int count, const sherd_tensor *old,
                       sherd_tensor *fresh)
{
    for (int i = 0; i < count; i++)
        if (list[i].tensor == old) {
            sherd_tensor_release(list[i].tensor);
            list[i].tensor = sherd_tensor_retain(fresh);
        }
}

/* Replace `old` by `fresh` everywhere in the tree below m. */
static void replace_tied(sherd_module *m, const sherd_tensor *old, sherd_tensor *fresh)
{
    replace_in(m->parameter, m->parameters, old, fresh);
    replace_in(m->buffer, m->buffers, old, fresh);
    for (int i = 0; i < m->children; i++)
        replace_tied(m->child[i].module, old, fresh);
}

bool sherd__is_named_once(const sherd_tensor *t)
{
    return t->refs == 1 + (t->scope >= 0);
}

void sherd__put_in_place(sherd_module *m, sherd__named_tensor *named, sherd_tensor *fresh,
                         bool once)
{
    sherd_tensor *old = sherd_tensor_retain(named->tensor);

    if (sherd__has_fractions(old->dtype))
        sherd_require_grad(fresh, sherd_requires_grad(old));
    fresh->autograd.of_leaf = old->autograd.of_leaf; /* also of a parameter that is frozen */
    fresh->storage->leaf |= old->autograd.of_leaf;
    if (once) {
        replace_in(named, 1, old, fresh);
    } else {
        replace_tied(sherd__module_root(m), old, fresh);
        old->placed_as = sherd_tensor_retain(fresh);
    }
    sherd_tensor_release(old);
}

void sherd__follow_tie(sherd_module *m, sherd__named_tensor *named)
{
    sherd_tensor *fresh;

    while ((fresh = named->tensor->placed_as)) {
        sherd_tensor_retain(fresh);
        replace_tied(sherd__module_root(m), named->tensor, fresh);
        sherd_tensor_release(fresh);
    }
}

/* ---- another dtype --------------------------------------------------------------------------- */

static const char function[] = "sherd_module_cast";

static sherd_status refuse(const sherd_module *m, const sherd__named_tensor *named,
                           const char *fault)
{
    return sherd__module_fail(m, SHERD_EINVAL, "%s: \"%s\" of \"%s\" %s", function, named->name,
                              sherd__module_name(m), fault);
}

/* The dtype that a tensor of m gets: running averages of a norm are as precise as its moments. */
static sherd_dtype dtype_for(const sherd_module *m, const sherd__named_tensor *named, bool buffer,
                             sherd_dtype dtype)
{
    sherd_module_kind kind = m->options.kind;

    if (!sherd__has_fractions(named->tensor->dtype))
        return named->tensor->dtype;
    if (buffer && sherd__is_scale(m, named->name))
        return named->tensor->dtype;
    return buffer && (kind == SHERD_MODULE_BATCH_NORM || kind == SHERD_MODULE_INSTANCE_NORM)
               ? sherd__statistics_dtype(dtype)
               : dtype;
}

/* The same numbers in another dtype, deferred if they are. */
static sherd_tensor *converted(sherd_tensor *t, sherd_dtype dtype)
{
    sherd_tensor *fresh;

    if (t->storage->later && !t->layout && sherd__covers_storage(t)) {
        sherd__values values = *t->storage->later;
        values.dtype = dtype;
        fresh = sherd__new_later(t->world, t->ndim, t->shape, &values);
    } else {
        fresh = sherd_cast(t, dtype);
    }
    if (!sherd_tensor_failed(fresh))
        fresh->elsewhere = t->elsewhere;
    return fresh;
}

/* A parameter or buffer that is to be cast. */
typedef struct place {
    sherd_module *module;
    sherd__named_tensor *named;
    sherd_dtype dtype; /* that it gets */
} place;

/* All below m, into out (NULL: only counted) from `at` on. Returns how many there are then. */
static int list_places(sherd_module *m, sherd_dtype dtype, place *out, int at)
{
    for (int i = 0; i < m->parameters + m->buffers; i++) {
        bool buffer = i >= m->parameters;
        sherd__named_tensor *named = buffer ? &m->buffer[i - m->parameters] : &m->parameter[i];
        if (out)
            out[at] = (place){m, named, dtype_for(m, named, buffer, dtype)};
        at++;
    }
    for (int i = 0; i < m->children; i++)
        at = list_places(m->child[i].module, dtype, out, at);
    return at;
}

/*
 * Cast what is in a place (NULL: other ranks have one more). `together`: no rank puts it in its
 * place unless all can, since one that only some have made would be lost.
 */
static sherd_status cast_one(sherd_world *world, const place *p, bool together)
{
    sherd__diag *diag = sherd__world_diag(world);
    sherd_tensor *fresh = NULL;
    sherd_status status = SHERD_OK;
    bool once = false, recording = sherd_set_recording(world, false);

    sherd_scope_begin(world);
    if (p)
        sherd__follow_tie(p->module, p->named);
    if (p && p->named->tensor->dtype != p->dtype) {
        once = sherd__is_named_once(p->named->tensor);
        fresh = converted(p->named->tensor, p->dtype);
        if (sherd_tensor_failed(fresh))
            status = diag->status ? diag->status : SHERD_ENOMEM;
    }
    if (together)
        status = sherd__agree(world, status, 0, function);
    if (!status && fresh)
        sherd__put_in_place(p->module, p->named, fresh, once);
    sherd_scope_end(world);
    sherd_set_recording(world, recording);
    return status;
}

/* One after the other, on all ranks at once: they may have other modules. */
static sherd_status cast_tree(sherd_module *module, sherd_dtype dtype, bool together)
{
    sherd_world *world = module->world;
    sherd__heap *heap = sherd__world_heap(world);
    int count = list_places(module, dtype, NULL, 0);
    int64_t most = count;
    place *list = sherd__alloc(heap, (size_t)count + 1, sizeof *list);
    sherd_status status = list ? SHERD_OK : sherd__no_memory(sherd__world_diag(world), function);

    if (list)
        list_places(module, dtype, list, 0);
    if (together)
        status = sherd__agree(world, status, 0, function);
    if (together && !status)
        status = sherd_world_most(&most, world, count);
    for (int64_t i = 0; i < most && !status; i++)
        status = cast_one(world, i < count ? &list[i] : NULL, together);
    sherd__free(heap, list);
    return status;
}

/* Whether all tensors of a list can be cast. */
static sherd_status check_list(const sherd_module *m, const sherd__named_tensor *list, int count)
{
    for (int i = 0; i < count; i++) {
        const sherd_tensor *t = list[i].tensor;
        if (sherd__is_failed(t))
            return refuse(m, &list[i], "was lost in a step that failed: load it first");
        if (sherd__raw_grad(t))
            return refuse(m, &list[i], "has a gradient: clear it first (sherd_clear_grad)");
    }
    return SHERD_OK;
}

static sherd_status check_tree(const sherd_module *m)
{
    sherd_status status = check_list(m, m->parameter, m->parameters);

    if (!status)
        status = check_list(m, m->buffer, m->buffers);
    for (int i = 0; !status && i < m->children; i++)
        status = check_tree(m->child[i].module);
    return status;
}

static sherd_status check(const sherd_module *module, sherd_dtype dtype)
{
    bool running = sherd__is_running(module), again = sherd__runs_again(module);

    for (const sherd_module *m = module->parent; m; m = m->parent) {
        running = running || m->running;
        again = again || m->checkpoint;
    }
    if (!sherd__has_fractions(dtype))
        return sherd__module_fail(module, SHERD_EINVAL, "%s: %s (%d) has no fractions", function,
                                  sherd_dtype_name(dtype), (int)dtype);
    if (running)
        return sherd__module_fail(module, SHERD_EINVAL,
                                  "%s: \"%s\", or a module below or above it, is being called",
                                  function, sherd__module_name(module));
    if (again)
        return sherd__module_fail(module, SHERD_EINVAL,
                                  "%s: backward may still run \"%s\", or a module below or above "
                                  "it, again (sherd_module_checkpoint): cast it after backward",
                                  function, sherd__module_name(module));
    return check_tree(module);
}

sherd_status sherd_module_cast(sherd_module *module, sherd_dtype dtype)
{
    if (!module)
        return SHERD_EINVAL;

    bool together = sherd__load_kind_of(module) == SHERD__LOAD_TOGETHER;
    sherd_status status = check(module, dtype);
    if (together)
        status =
            sherd__agree(module->world, status, sherd__hash_word(6, (uint64_t)dtype), function);
    if (!status)
        status = cast_tree(module, dtype, together);
    return together ? sherd__agree(module->world, status, 0, function) : status;
}
