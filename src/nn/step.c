/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of an optimizer: first all memory that it takes, then the update of each parameter, which
 * is optimizer_update.c.
 */
#include <math.h>
#include <string.h>

#include "nn/numbers.h"
#include "nn/optimizer.h"
#include "tensor/said.h"

#include "world/doing.h"

/* ---- before a step --------------------------------------------------------------------------- */

/*
 * Memory for all that a step changes or makes of an item: then only the alarm ends it. False: it is
 * raised, and nothing has changed.
 */
static bool prepare(const sherd_optimizer *o, sherd__optimized *item)
{
    sherd_tensor *g = sherd__contiguous(sherd__raw_grad(item->p));

    /* It was frozen when the optimizer was made, maybe. */
    if (sherd_tensor_failed(g) || !sherd__optimizer_has_state(o, item))
        return false;
    if (!sherd__optimizer_device(o, item->p))
        return true;
    sherd__set_grad(item->p, g);
    for (int i = 0; i < SHERD__OPTIMIZER_STEPS; i++)
        if (item->tensor[i] && !sherd__device_data(item->tensor[i]))
            return false;
    return sherd__device_data(item->p) && sherd__device_data(g);
}

/* Load the kernels of a dtype, which takes memory, by a step of dummy data. */
static bool try_kernels(const sherd_optimizer *o, sherd__device *device, sherd_dtype dtype)
{
    enum { EACH = 256, ALL = 2 + SHERD__OPTIMIZER_STATES };
    sherd__device_block *room = sherd__device_take(device, (int64_t)EACH * ALL);
    sherd__update u = {.device = device, .dtype = dtype, .count = 1, .steps = 1};

    if (room) {
        char *at = room->data;
        sherd__device_set(device, at, 0, (int64_t)EACH * ALL);
        u.grad = at;
        u.p = at + EACH;
        for (int i = 0; i < o->states; i++)
            u.state[i] = at + (2 + i) * EACH;
        if (sherd__is_half(dtype)) {
            sherd__device_convert(device, SHERD_F32, dtype, 1, u.p, u.grad);
            sherd__device_convert(device, dtype, SHERD_F32, 1, at, u.p);
        }
        o->kind->update_there(o, &u, 1);
        sherd__device_give(device, room);
    } else {
        sherd__device_lack(device, "out of memory for a step");
    }
    return sherd__device_sound(o->world);
}

/* Refuse a step of parameters that are no longer the module's. */
static bool is_in_place(const sherd_optimizer *o, const sherd__optimized *item)
{
    char name[SHERD__NAME_TEXT];

    if (!item->p->placed_as)
        return true;
    /* "layers.0.wq.weight.steps" */
    const char *end = strrchr(sherd__optimizer_name(o, item, SHERD__OPTIMIZER_STEPS, name), '.');
    sherd__raise(o->world, SHERD_EINVAL,
                 "sherd_optimizer_step: the parameter \"%.*s\" got another layout or dtype "
                 "(sherd_parallelize, sherd_fully_shard, sherd_module_cast) after the optimizer "
                 "was made: make the optimizer afterwards",
                 end ? (int)(end - name) : SHERD__NAME_TEXT, name);
    return false;
}

bool sherd__optimizer_has_parameters(sherd_optimizer *o, const char *function)
{
    if (o->buffered == o->module->buffered)
        return true;
    uint64_t walk = sherd__mark_holders(o->module);
    for (int i = 0; i < o->count; i++) {
        if (o->item[i].p->placed_as || o->item[i].p->visit.walk == walk)
            continue;
        sherd__raise(o->world, SHERD_EINVAL,
                     "%s: a parameter of shape %s is none any more, since "
                     "sherd_module_quantize: make the optimizer afterwards",
                     function, sherd_tensor_text(o->item[i].p));
        return false;
    }
    o->buffered = o->module->buffered;
    return true;
}

/*
 * Before anything changes. Where memory is taken that later steps have (the first step, on GPUs),
 * ranks wait for each other: parameters that only some ranks have changed would be lost. Also after
 * a failed check, since one may have been ready when another was not.
 */
static bool prepare_all(sherd_optimizer *o)
{
    bool same = !sherd__world_device(o->world) || o->checks == sherd__failed_checks(o->world);
    bool ready = true;
    unsigned tried = 0;

    if (!sherd__optimizer_has_parameters(o, "sherd_optimizer_step"))
        return false;
    for (int i = 0; i < o->count; i++) {
        sherd__optimized *item = &o->item[i];
        if (!is_in_place(o, item))
            return false;
        if (!sherd__optimizer_takes(item))
            continue;
        if (!prepare(o, item))
            return false;
        sherd__device *device = item->ready ? NULL : sherd__optimizer_device(o, item->p);
        if (device && !(tried >> item->p->dtype & 1) && !try_kernels(o, device, item->p->dtype))
            return false;
        if (device)
            tried |= 1u << item->p->dtype;
        ready &= (item->ready && same) || !item->p->layout;
    }
    const double none = 0;
    if (!ready && o->mesh && sherd__in_mesh(o->world, o->mesh) &&
        !sherd__numbers_share(o->world, o->mesh, "sherd_optimizer_step", &none, 1, o->shared))
        return false;
    for (int i = 0; i < o->count; i++)
        o->item[i].ready |= sherd__optimizer_takes(&o->item[i]);
    o->checks = sherd__failed_checks(o->world);
    return true;
}

/* ---- a step of all -------------------------------------------------------------------------- */

/*
 * Ranks must take the same step, of the same parameters; those that only some ranks have changed
 * are lost. A plain parameter may have a gradient on some ranks only.
 */
static void note(const sherd_optimizer *o, double rate, double grad_scale)
{
    typedef struct taken {
        double learning_rate, grad_scale;
        int64_t options, gradients; /* a hash; how many parameters have one */
    } taken;
    static const sherd_op said = {.name = "step",
                                  .field = {SHERD_FIELD(taken, learning_rate, DOUBLE),
                                            SHERD_FIELD(taken, grad_scale, DOUBLE),
                                            {"one of the options, or those of groups,",
                                             SHERD_FIELD_INT64, offsetof(taken, options), 1},
                                            {"the number of parameters with a gradient",
                                             SHERD_FIELD_INT64, offsetof(taken, gradients), 1}},
                                  .attributes = sizeof(taken)};
    taken t = {rate, grad_scale, (int64_t)o->settings, 0};
    uint64_t what = sherd__attribute_double(sherd__attribute_double(1, rate), grad_scale);

    what = sherd__hash_word(what, o->settings);
    for (int i = 0; i < o->count; i++)
        if (o->item[i].p->layout) {
            bool has = sherd__raw_grad(o->item[i].p) != NULL;
            what = sherd__hash_word(what, has);
            t.gradients += has;
        }
    sherd__note_deed(o->world, o->mesh, "sherd_optimizer_step", what, NULL, &said, &t);
}

bool sherd__optimizer_rate(sherd_world *world, const char *function, double rate)
{
    if (rate >= 0 && isfinite(rate))
        return true;
    sherd__raise(world, SHERD_EINVAL, "%s: the learning rate is %g: it must be finite, and %s",
                 function, rate,
                 rate < 0 ? "not negative (a grad_scale of -1 climbs)" : "not negative");
    return false;
}

/*
 * Whether rate and scale are finite: others would make every parameter NaN. After an alarm a norm
 * is NaN, and a scale may be.
 */
static bool has_factors(const sherd_optimizer *o, double rate, double grad_scale)
{
    static const char function[] = "sherd_optimizer_step";

    if (sherd__alarmed(o->world) || !sherd__optimizer_rate(o->world, function, rate))
        return false;
    if (isfinite(grad_scale))
        return true;
    sherd__raise(o->world, SHERD_EINVAL, "%s: grad_scale is %g: it must be finite", function,
                 grad_scale);
    return false;
}

static void step(sherd_optimizer *o, double learning_rate, double grad_scale)
{
    sherd_optimizer_settle(o);
    if (sherd__alarmed(o->world))
        return;
    sherd_scope_begin(o->world);
    bool good = prepare_all(o);
    bool before = sherd__write_families(o->world, true);
    if (good && o->kind->update_whole)
        good = o->kind->update_whole(o, learning_rate, grad_scale);
    if (good)
        good = sherd__optimizer_update_all(o, learning_rate, grad_scale) &&
               sherd__optimizer_update_slices(o, learning_rate, grad_scale);
    sherd__write_families(o->world, before);
    if (good && o->mesh)
        note(o, learning_rate, grad_scale);
    sherd_scope_end(o->world);
    sherd__dry_step(o->world);
}

void sherd_optimizer_step(sherd_optimizer *optimizer, double learning_rate, double grad_scale)
{
    sherd_optimizer *o = optimizer;

    if (!o || !has_factors(o, learning_rate, grad_scale))
        return;
    bool begun = sherd__doing_begin(o->world, "sherd_optimizer_step");
    step(o, learning_rate, grad_scale);
    sherd__doing_end(o->world, begun);
}

void sherd_optimizer_clear(sherd_optimizer *optimizer)
{
    for (int i = 0; optimizer && i < optimizer->count; i++)
        sherd_clear_grad(optimizer->item[i].p);
}
