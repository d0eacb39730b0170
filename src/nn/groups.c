/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of an optimizer's parameters, found by the paths of parameters when it is made or gets
 * others: a step reads only the factor and the decay that each parameter has got. A pattern that
 * finds nothing, or nothing that an earlier one has left, would be lost in silence, so it is
 * refused.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/near.h"
#include "nn/optimizer.h"
#include "nn/pattern.h"

enum { PATH = 256 };

typedef struct job {
    const char *function;
    sherd_optimizer *o;
    const sherd__grouping *grouping;
    const sherd_named_parameter *all; /* [count] */
    int count;
    const sherd_optimizer_group *group; /* that is looked at, and its number */
    int number;
    int matches, taken; /* parameters that it matches; those that no earlier group has */
    char path[PATH];
} job;

/* The weight decay of a parameter: 0 for fewer than two dims, unless `all` decay. */
static double decay_of(const sherd_tensor *p, double decay, bool all)
{
    return sherd_tensor_ndim(p) >= 2 || all ? decay : 0;
}

static void put_in(const job *j, sherd__optimized *item)
{
    const sherd_optimizer_group *g = j->group;
    double decay = g->weight_decay != 0 ? g->weight_decay : j->grouping->weight_decay;

    item->grouped = true;
    item->whole &= !g->adamw;
    item->rate = g->no_rate ? 0 : g->rate != 0 ? g->rate : 1;
    item->decay =
        g->no_decay ? 0 : decay_of(item->p, decay, j->grouping->decay_all || g->decay_all);
}

static void take(void *data, const sherd__named_tensor *named)
{
    job *j = data;
    sherd__optimized *item = sherd__optimizer_item(j->o, named->tensor);

    if (!item) /* the module got it later */
        return;
    j->matches++;
    if (item->grouped)
        return;
    j->taken++;
    put_in(j, item);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static sherd_status refuse(const job *j, const char *fault, const char *near)
{
    return sherd__module_fail(j->o->module, SHERD_EINVAL, "%s: group %d, \"%.120s\": %s%s",
                              j->function, j->number,
                              j->group->pattern ? j->group->pattern : "(null)", fault, near);
}

/* Path and name of the i-th parameter, as a pattern says them. */
static const char *path_at(void *of, int i)
{
    job *j = of;

    if (i >= j->count)
        return NULL;
    const char *path = sherd__path_below(j->o->module, j->all[i].tensor->visit.holder);
    snprintf(j->path, PATH, "%s%s%s", path, path[0] ? "." : "", j->all[i].name);
    return j->path;
}

static sherd_status no_match(job *j)
{
    static const char before[] = "; there are ";
    char near[PATH];

    memcpy(near, before, sizeof before);
    sherd__near_names(near + sizeof before - 1, sizeof near - sizeof before + 1, path_at, j,
                      j->group->pattern);
    return refuse(j, "no parameter has such a path", near[sizeof before - 1] ? near : "");
}

static const char *fault_of(const job *j)
{
    const sherd_optimizer_group *g = j->group;
    bool good =
        g->rate >= 0 && isfinite(g->rate) && g->weight_decay >= 0 && isfinite(g->weight_decay);

    if (!g->pattern)
        return "a group needs a pattern";
    if (!good)
        return "rate and weight_decay are finite and not negative";
    if (g->no_rate && g->rate != 0)
        return "it has a rate, and no_rate";
    if (g->no_decay && g->weight_decay != 0)
        return "it has a weight_decay, and no_decay";
    if (g->adamw && (!j->o->kind->update_whole || j->o->kind->lacks))
        return "adamw is for sherd_muon_create";
    return NULL;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static sherd_status form(job *j)
{
    const sherd__matching how = {.meet = take, .data = j};
    const char *fault = fault_of(j);

    if (fault)
        return refuse(j, fault, "");
    j->matches = j->taken = 0;
    if (!sherd__match_pattern(j->o->module, j->group->pattern, &how))
        return sherd__no_memory(sherd__world_diag(j->o->world), j->function);
    if (j->matches == 0)
        return no_match(j);
    return j->taken ? SHERD_OK : refuse(j, "all that it matches is in earlier groups", "");
}

/* Rate and decay of all items; they may be half done after a failure. */
static sherd_status group_all(job *j)
{
    const sherd__grouping *g = j->grouping;
    sherd_optimizer *o = j->o;
    sherd_status status = SHERD_OK;

    if (g->count < 0 || (g->count > 0 && !g->group))
        return sherd__module_fail(o->module, SHERD_EINVAL, "%s: %d groups%s", j->function, g->count,
                                  g->group ? "" : ", but groups is NULL");
    for (int i = 0; i < o->count; i++) {
        sherd__optimized *item = &o->item[i];
        item->rate = 1;
        item->grouped = false;
        item->whole = o->kind->update_whole && (o->kind->lacks || sherd_tensor_ndim(item->p) == 2);
        item->decay = decay_of(item->p, g->weight_decay, g->decay_all);
    }
    for (; !status && j->number < g->count; j->number++) {
        j->group = &g->group[j->number];
        status = form(j);
    }
    return status;
}

void sherd__optimizer_hash(sherd_optimizer *o)
{
    const sherd__moments none = {NULL, NULL, NULL, false};
    const sherd__moments m = o->kind->moments ? o->kind->moments(o) : none;

    o->settings = sherd__attribute_double(0, m.momentum ? *m.momentum : 0);
    o->settings = sherd__attribute_double(o->settings, m.beta1 ? *m.beta1 : 0);
    o->settings = sherd__attribute_double(o->settings, m.beta2 ? *m.beta2 : 0);
    for (int i = 0; i < o->count; i++) {
        o->settings = sherd__attribute_double(o->settings, o->item[i].rate);
        o->settings = sherd__attribute_double(o->settings, o->item[i].decay);
        o->settings = sherd__hash_word(o->settings, o->item[i].whole);
    }
}

sherd_status sherd__optimizer_group(sherd_optimizer *o, const sherd__grouping *grouping,
                                    const sherd_named_parameter *all)
{
    job j = {
        .function = o->kind->function, .o = o, .grouping = grouping, .all = all, .count = o->count};
    sherd_status status = group_all(&j);

    o->grouping = *grouping;
    o->grouping.group = NULL; /* the caller's */
    o->grouping.count = 0;
    sherd__optimizer_hash(o);
    return status;
}

/* ---- others, later --------------------------------------------------------------------------- */

/* The parameters that the module has now, of which the optimizer knows. */
static sherd_status list_now(job *j, sherd_named_parameter **out)
{
    int count = sherd_module_all_parameters(j->o->module, NULL, 0);
    sherd_named_parameter *all =
        sherd__alloc(sherd__world_heap(j->o->world), (size_t)count + 1, sizeof *all);

    if (!all)
        return sherd__no_memory(sherd__world_diag(j->o->world), j->function);
    sherd_module_all_parameters(j->o->module, all, count);
    for (int i = 0; i < count; i++)
        if (sherd__optimizer_item(j->o, all[i].tensor))
            all[j->count++] = all[i];
    j->all = *out = all;
    return SHERD_OK;
}

/*
 * A parameter must not change between whole and elementwise updates, whose states differ.
 * Parameters that are no longer in the module stay in their group.
 */
static sherd_status compare(const job *j, const sherd__optimized *old)
{
    sherd_optimizer *o = j->o;
    uint64_t walk = sherd__mark_holders(o->module);

    for (int i = 0; i < o->count; i++) {
        if (o->item[i].p->visit.walk != walk)
            o->item[i] = old[i];
        if (o->item[i].whole == old[i].whole)
            continue;
        const char *path = sherd__path_below(o->module, o->item[i].p->visit.holder);
        return sherd__module_fail(o->module, SHERD_EINVAL,
                                  "%s: the state \"%s%s%s\" is that of %s: a group's adamw stays "
                                  "as it was",
                                  j->function, path, path[0] ? "." : "", o->item[i].name[0],
                                  old[i].whole ? "Muon" : "AdamW");
    }
    return SHERD_OK;
}

sherd_status sherd_optimizer_groups(sherd_optimizer *optimizer, const sherd_optimizer_group *groups,
                                    int count)
{
    static const char function[] = "sherd_optimizer_groups";
    sherd_optimizer *o = optimizer;
    sherd_named_parameter *all = NULL;
    sherd__optimized *old;

    if (!o)
        return SHERD_EINVAL;
    sherd__heap *heap = sherd__world_heap(o->world);
    const sherd__grouping grouping = {o->grouping.weight_decay, o->grouping.decay_all, groups,
                                      count};
    job j = {.function = function, .o = o, .grouping = &grouping};
    if (!(old = sherd__alloc(heap, (size_t)o->count, sizeof *old)))
        return sherd__no_memory(sherd__world_diag(o->world), function);
    memcpy(old, o->item, (size_t)o->count * sizeof *old);
    sherd_status status = list_now(&j, &all);
    if (!status)
        status = group_all(&j);
    if (!status)
        status = compare(&j, old);
    if (status)
        memcpy(o->item, old, (size_t)o->count * sizeof *old);
    sherd__optimizer_hash(o);
    sherd__free(heap, all);
    sherd__free(heap, old);
    return status;
}
