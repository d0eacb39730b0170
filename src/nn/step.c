/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of an optimizer: first all memory that it takes, then each parameter by one pass of a
 * kernel over it, its state and the gradient. On GPUs one launch takes many parameters.
 */
#include <math.h>
#include <string.h>

#include "nn/numbers.h"
#include "nn/optimizer.h"
#include "tensor/said.h"
#include "vector/choose.h"

#include "world/doing.h"

/* ---- one parameter --------------------------------------------------------------------------- */

static void *to_write(sherd_tensor *t, const sherd__device *device)
{
    return device ? sherd__device_mutable(t) : sherd__mutable(t);
}

static void convert(sherd_tensor *p, sherd__device *device, sherd_dtype to, sherd_dtype from,
                    void *dst, const void *src)
{
    int64_t each = (int64_t)(sherd_dtype_bytes(to) + sherd_dtype_bytes(from));

    if (sherd__left_out(p->world, "convert", to, 0, p->count * each))
        return;
    if (device)
        sherd__device_convert(device, to, from, p->count, dst, src);
    else
        sherd__convert(sherd__world_kernels(p->world), to, from, p->count, dst, src);
}

static bool refresh(sherd__optimized *item, sherd__device *device)
{
    sherd_tensor *p = sherd__updated(item);
    void *exact = to_write(item->tensor[SHERD__OPTIMIZER_EXACT], device);
    const void *from = device ? sherd__device_data(p) : sherd__data(p);

    if (!exact || !from)
        return false;
    convert(p, device, SHERD_F32, p->dtype, exact, from);
    if (device && !sherd__device_sound(p->world))
        return false;
    item->version = item->p->storage->version;
    return true;
}

bool sherd__optimizer_refresh(sherd__optimized *item, sherd__device *device)
{
    if (item->version == item->p->storage->version)
        return true;
    if (item->slice || !item->part)
        return refresh(item, device);
    sherd_scope_begin(item->p->world);
    bool good = sherd__optimizer_slice(item) && refresh(item, device);
    item->slice = NULL;
    sherd_scope_end(item->p->world);
    return good;
}

void *sherd__optimizer_change(sherd__optimized *item, sherd__device *device)
{
    if (!item->tensor[SHERD__OPTIMIZER_EXACT])
        return to_write(sherd__updated(item), device);
    return sherd__optimizer_refresh(item, device)
               ? to_write(item->tensor[SHERD__OPTIMIZER_EXACT], device)
               : NULL;
}

bool sherd__optimizer_round(sherd__optimized *item, sherd__device *device, const void *changed)
{
    sherd_tensor *p = sherd__updated(item);
    void *to;

    if (!item->tensor[SHERD__OPTIMIZER_EXACT])
        return true;
    if (!(to = to_write(p, device)))
        return false;
    convert(p, device, p->dtype, SHERD_F32, to, changed);
    item->version = item->p->storage->version;
    return true;
}

/* A rank outside the mesh has nothing to count with. */
bool sherd__optimizer_count(sherd__optimized *item, sherd__update *u)
{
    sherd_tensor *steps = item->tensor[SHERD__OPTIMIZER_STEPS];
    int64_t *n = steps->count ? sherd__mutable(steps) : NULL;

    u->steps = n ? ++*n : steps->count == 0;
    return u->steps != 0;
}

/* Whether a count of steps, which was loaded maybe, can be counted on. */
static bool has_count(const sherd_optimizer *o, const sherd__optimized *item)
{
    sherd_tensor *steps = item->tensor[SHERD__OPTIMIZER_STEPS];
    const int64_t *n = steps && steps->count ? sherd__data(steps) : NULL;

    if (!n || (*n >= 0 && *n < INT64_MAX))
        return true;
    sherd__raise(o->world, SHERD_EINVAL,
                 "sherd_optimizer_step: the state %s is %lld, which is no number of steps",
                 item->name[SHERD__OPTIMIZER_STEPS], (long long)*n);
    return false;
}

/* Refuse a step if state was lost, because an earlier step changed it on some ranks only. */
static bool has_state(const sherd_optimizer *o, const sherd__optimized *item)
{
    for (int i = 0; i < SHERD__OPTIMIZER_TENSORS; i++)
        if (item->tensor[i] && sherd__is_failed(item->tensor[i])) {
            sherd__raise(o->world, SHERD_EINVAL,
                         "sherd_optimizer_step: the state %s was lost in a step that failed: load "
                         "it (sherd_optimizer_load), or make a new optimizer",
                         item->name[i]);
            return false;
        }
    return has_count(o, item);
}

/* ---- before a step --------------------------------------------------------------------------- */

/*
 * Memory for all that a step changes or makes of an item: then only the alarm ends it. False: it is
 * raised, and nothing has changed.
 */
static bool prepare(const sherd_optimizer *o, sherd__optimized *item)
{
    sherd_tensor *g = sherd__contiguous(sherd__raw_grad(item->p));

    /* It was frozen when the optimizer was made, maybe. */
    if (sherd_tensor_failed(g) || sherd__optimizer_start_state(o, item) || !has_state(o, item))
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

static bool takes_part(const sherd__optimized *item)
{
    return sherd__raw_grad(item->p) && !item->whole;
}

/* Refuse a step of parameters that are no longer the module's. */
static bool is_in_place(const sherd_optimizer *o, const sherd__optimized *item)
{
    const char *name = item->name[SHERD__OPTIMIZER_STEPS]; /* "weight.steps" */

    if (!item->p->placed_as)
        return true;
    sherd__raise(o->world, SHERD_EINVAL,
                 "sherd_optimizer_step: the parameter \"%.*s\" got another layout or dtype "
                 "(sherd_parallelize, sherd_fully_shard, sherd_module_cast) after the optimizer "
                 "was made: make the optimizer afterwards",
                 (int)strcspn(name, "."), name);
    return false;
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

    for (int i = 0; i < o->count; i++) {
        sherd__optimized *item = &o->item[i];
        if (!is_in_place(o, item))
            return false;
        if (!takes_part(item))
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
        o->item[i].ready |= takes_part(&o->item[i]);
    o->checks = sherd__failed_checks(o->world);
    return true;
}

/* ---- a step of all -------------------------------------------------------------------------- */

bool sherd__optimizer_begin(const sherd_optimizer *o, sherd__optimized *item, sherd__update *u)
{
    sherd_tensor *p = item->p, *g = sherd__contiguous(sherd__raw_grad(p));

    *u = (sherd__update){.device = sherd__optimizer_device(o, p),
                         .dtype = p->dtype,
                         .count = sherd__updated(item)->count,
                         .decay = item->decay};
    if (sherd__optimizer_start_state(o, item) || !has_state(o, item))
        return false;
    u->grad = u->device ? sherd__device_data(g) : sherd__data(g);
    if (!u->grad)
        return false;
    for (int i = 0; i < sherd__optimizer_states(o, item); i++)
        if (item->tensor[i] && !(u->state[i] = to_write(item->tensor[i], u->device)))
            return false;
    /* A plain parameter varies as far as it did, or its gradient does. */
    sherd__set_varies(p, p->varies | g->varies);
    u->kernels = sherd__kernels_of(sherd__world_kernels(o->world), p->dtype);
    return true;
}

/* Updates of one dtype on the GPU, which are queued together. */
typedef struct list {
    int count;
    sherd__update update[SHERD__TOGETHER];
    sherd__optimized *item[SHERD__TOGETHER];
} list;

/*
 * Take the step for all items on the list; they have counted it already. False: ended by the alarm.
 */
static bool update_list(const sherd_optimizer *o, list *l)
{
    bool good = true;

    if (l->count == 0)
        return true;
    o->kind->update_there(o, l->update, l->count);
    for (int i = 0; i < l->count; i++)
        good &= sherd__optimizer_round(l->item[i], l->update[i].device, l->update[i].p);
    l->count = 0;
    return good && sherd__device_sound(o->world);
}

/*
 * In a dry world: each element is read and written once, and so is the state. Some operations an
 * element hide behind that.
 */
static bool is_left_out(const sherd_optimizer *o, const sherd__update *u)
{
    sherd_dtype exact = sherd__statistics_dtype(u->dtype);
    int64_t grad = (int64_t)sherd_dtype_bytes(u->dtype), each = (int64_t)sherd_dtype_bytes(exact);

    return sherd__left_out(o->world, "sherd_optimizer_step", exact, (double)u->count,
                           u->count * (grad + 2 * (1 + o->states) * each));
}

/* Update one parameter, or put it on the list; false: ended by the alarm. */
static bool update(const sherd_optimizer *o, list *l, sherd__optimized *item, double rate,
                   double grad_scale)
{
    sherd__update u;

    if (!takes_part(item))
        return true;
    if (!sherd__optimizer_begin(o, item, &u) || !sherd__optimizer_count(item, &u) ||
        !(u.p = sherd__optimizer_change(item, u.device)))
        return false;
    u.rate = rate * item->rate;
    u.grad_scale = grad_scale;
    if (!u.device) {
        if (!is_left_out(o, &u))
            o->kind->update(o, &u);
        return sherd__optimizer_round(item, NULL, u.p);
    }
    if ((l->count == SHERD__TOGETHER || (l->count && l->update[0].dtype != u.dtype)) &&
        !update_list(o, l))
        return false;
    l->item[l->count] = item;
    l->update[l->count++] = u;
    return true;
}

bool sherd__optimizer_update(const sherd_optimizer *o, sherd__optimized *item, double rate,
                             double grad_scale)
{
    list l = {.count = 0};

    return update(o, &l, item, rate, grad_scale) && update_list(o, &l);
}

static bool update_all(const sherd_optimizer *o, double rate, double grad_scale)
{
    list l = {.count = 0};
    bool good = true;

    for (int i = 0; good && i < o->count; i++)
        good = o->item[i].part || update(o, &l, &o->item[i], rate, grad_scale);
    good = update_list(o, &l) && good;
    return good && sherd__optimizer_update_slices(o, rate, grad_scale);
}

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
        good = update_all(o, learning_rate, grad_scale);
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
