/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of an optimizer's parameters, found by the paths of parameters when it is made: a step
 * reads only the factor and the decay that each parameter has got. A pattern that finds nothing, or
 * nothing that an earlier one has left, would be lost in silence, so it is refused.
 */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/near.h"
#include "nn/optimizer.h"
#include "nn/pattern.h"

enum { PATH = 256 };

typedef struct job {
    sherd_optimizer *o;
    const sherd__grouping *grouping;
    const sherd_named_parameter *all;   /* of the items */
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

/* Put those parameters of a module (and of all below it) into the group that have this name. */
static void take(job *j, sherd_module *m, const char *name, bool below)
{
    for (int i = 0; i < m->parameters; i++) {
        if (fnmatch(name, m->parameter[i].name, 0) != 0)
            continue;
        sherd__optimized *item = sherd__optimizer_item(j->o, m->parameter[i].tensor);
        j->matches++;
        if (item->grouped)
            continue;
        j->taken++;
        put_in(j, item);
    }
    for (int i = 0; below && i < m->children; i++)
        take(j, m->child[i].module, name, below);
}

static sherd_status visit(void *data, sherd_module *m, const char *rest)
{
    bool all = strcmp(rest, "**") == 0;

    take(data, m, all ? "*" : rest, all);
    return SHERD_OK;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static sherd_status refuse(const job *j, const char *fault, const char *near)
{
    return sherd__module_fail(j->o->module, SHERD_EINVAL, "%s: group %d, \"%s\": %s%s",
                              j->o->kind->function, j->number,
                              j->group->pattern ? j->group->pattern : "(null)", fault, near);
}

/* Path and name of the i-th parameter, as a pattern says them. */
static const char *path_at(void *of, int i)
{
    job *j = of;
    const sherd_optimizer *o = j->o;

    if (i >= o->count)
        return NULL;
    const char *path = sherd__path_below(o->module, o->item[i].p->holder);
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
    if (g->adamw && !j->o->kind->update_whole)
        return "adamw is for sherd_muon_create";
    return NULL;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static sherd_status form(job *j)
{
    sherd__heap *heap = sherd__world_heap(j->o->world);
    sherd__descent d = {.visit = visit, .data = j, .any_depth = true, .deepest = -1};
    const char *fault = fault_of(j);
    int levels;
    char *names;

    if (fault)
        return refuse(j, fault, "");
    names = sherd__path_names(heap, j->group->pattern, &levels);
    if (!names)
        return sherd__no_memory(sherd__world_diag(j->o->world), j->o->kind->function);
    j->matches = j->taken = 0;
    /* The last name is that of a parameter. */
    if (levels > 0)
        sherd__descend(&d, j->o->module, names, levels - 1);
    sherd__free(heap, names);
    if (j->matches == 0)
        return no_match(j);
    return j->taken ? SHERD_OK : refuse(j, "all that it matches is in earlier groups", "");
}

sherd_status sherd__optimizer_group(sherd_optimizer *o, const sherd__grouping *grouping,
                                    const sherd_named_parameter *all)
{
    const sherd__grouping *g = grouping;
    job j = {.o = o, .grouping = g, .all = all};
    sherd_status status = SHERD_OK;

    if (g->count < 0 || (g->count > 0 && !g->group))
        return sherd__module_fail(o->module, SHERD_EINVAL, "%s: %d groups%s", o->kind->function,
                                  g->count, g->group ? "" : ", but groups is NULL");
    for (int i = 0; i < o->count; i++) {
        o->item[i].rate = 1;
        o->item[i].whole = o->kind->update_whole && sherd_tensor_ndim(all[i].tensor) == 2;
        o->item[i].decay = decay_of(all[i].tensor, g->weight_decay, g->decay_all);
    }
    for (; !status && j.number < g->count; j.number++) {
        j.group = &g->group[j.number];
        status = form(&j);
    }
    for (int i = 0; i < o->count; i++) {
        o->settings = sherd__attribute_double(o->settings, o->item[i].rate);
        o->settings = sherd__attribute_double(o->settings, o->item[i].decay);
        o->settings = sherd__hash_word(o->settings, o->item[i].whole);
    }
    return status;
}
