/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a plan as a plain value: checked, defaults filled in, compared by content. A plan
 * without options that is in the cache never comes here.
 */
#include "planners.h"
#include "plans.h"
#include "base/hash.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static const char function[] = "sherd_plan_create";

static sherd_status check_ranges(const sherd_layout *from, const sherd_plan_options *options)
{
    sherd__diag *diag = from->space->diag;
    const sherd_weights *w = &options->weights;

    if ((unsigned)options->planner >= SHERD_PLANNERS)
        return sherd__fail(diag, SHERD_EINVAL, "%s: %d is not a planner", function,
                           (int)options->planner);
    if ((unsigned)w->kind > SHERD_WEIGHTS_CUSTOM || w->all_reduce < 0 || w->all_to_all < 0 ||
        w->all_gather < 0 || w->reduce_scatter < 0 || w->chunk < 0)
        return sherd__fail(diag, SHERD_EINVAL, "%s: weights of kind %d must not be negative",
                           function, (int)w->kind);
    if (options->per_host < 0 || options->max_bytes < 0)
        return sherd__fail(diag, SHERD_EINVAL,
                           "%s: per_host %lld and max_bytes %lld must not be negative", function,
                           (long long)options->per_host, (long long)options->max_bytes);
    if (options->flattened_count < 0 || options->flattened_count > SHERD__FLATTENED)
        return sherd__fail(diag, SHERD_EINVAL, "%s: %d flattened axis sets, not 0 to %d", function,
                           options->flattened_count, SHERD__FLATTENED);
    if (options->flattened_count > 0 && !options->flattened)
        return sherd__fail(diag, SHERD_EINVAL, "%s: flattened is NULL", function);
    for (int i = 0; i < options->flattened_count; i++)
        if (options->flattened[i] >> from->spec.mesh->axes)
            return sherd__fail(diag, SHERD_EINVAL,
                               "%s: flattened axis set %d (bits %x) has axes that the mesh (%s) "
                               "has not",
                               function, i, options->flattened[i], from->spec.mesh->text);
    return SHERD_OK;
}

/* What makes the i-th link none, in why[room]; "" = nothing. Price files are held to the same. */
static void link_fault(char *why, size_t room, const sherd_price *price, int i)
{
    const sherd_link *link = &price->link[i];
    char name[sizeof link->axis] = "";
    sherd__scanner axis = {link->axis, link->axis};

    why[0] = '\0';
    if (!memchr(link->axis, '\0', sizeof link->axis)) {
        snprintf(why, room, "link %d: its axis has more than 31 letters", i);
        return;
    }
    if (strcmp(link->axis, "*") != 0 &&
        !(sherd__take_name(&axis, name, sizeof name) && strcmp(name, link->axis) == 0))
        snprintf(why, room, "link %d: \"%s\" is no axis, and not *", i, link->axis);
    else if (link->alpha_picoseconds < 0 || link->beta_femtoseconds < 0 ||
             link->gamma_femtoseconds < 0 || link->upto_bytes < 0)
        snprintf(
            why, room,
            "link %d (%s): alpha %lld, beta %lld, gamma %lld, upto_bytes %lld: one is negative", i,
            link->axis, (long long)link->alpha_picoseconds, (long long)link->beta_femtoseconds,
            (long long)link->gamma_femtoseconds, (long long)link->upto_bytes);
    for (int j = 0; j < i && !*why; j++)
        if (strcmp(price->link[j].axis, link->axis) == 0 &&
            price->link[j].upto_bytes == link->upto_bytes)
            snprintf(why, room, "links %d and %d are both of axis %s with upto_bytes %lld", j, i,
                     link->axis, (long long)link->upto_bytes);
}

static bool price_fault(char *why, size_t room, const sherd_price *price)
{
    bool links = price->kind == SHERD_PRICE_LINKS;
    int count = price->links;

    why[0] = '\0';
    if ((unsigned)price->kind > SHERD_PRICE_TORCH)
        snprintf(why, room, "there is no kind %d", (int)price->kind);
    else if (count < links || count > SHERD_MAX_LINKS)
        snprintf(why, room, "%d links, not %d to %d", count, links, (int)SHERD_MAX_LINKS);
    else if (price->per_host < 0)
        snprintf(why, room, "%lld devices per host", (long long)price->per_host);
    for (int i = 0; i < count && !*why; i++)
        link_fault(why, room, price, i);
    return *why;
}

static sherd_status check_price(const sherd_layout *from, const sherd_price *price)
{
    char why[256];

    if (price_fault(why, sizeof why, price))
        return sherd__fail(from->space->diag, SHERD_EINVAL,
                           "%s: this is not a price: %s; sherd_price_parse makes one", function,
                           why);
    return SHERD_OK;
}

sherd_status sherd__request_make(sherd__request *out, const sherd_layout *from,
                                 const sherd_layout *to, const sherd_plan_options *options)
{
    memset(out, 0, sizeof *out);
    out->per_host = 1;
    if (from->space->price)
        out->price = *from->space->price;
    if (!options)
        return SHERD_OK;
    sherd_status status = check_ranges(from, options);
    if (status == SHERD_OK && options->price)
        status = check_price(from, options->price);
    if (status != SHERD_OK)
        return status;
    if (options->planner != SHERD_PLANNER_EXACT && from->spec.mesh != to->spec.mesh)
        return sherd__fail(from->space->diag, SHERD_ENOTSUP,
                           "%s: planner %s plans within one mesh, but from is %s and to is %s: use "
                           "exact",
                           function, sherd_planner_name(options->planner), from->text, to->text);
    out->planner = options->planner;
    out->weights = options->weights;
    out->per_host = options->per_host ? options->per_host : 1;
    out->max_bytes = options->max_bytes;
    out->forbidden = options->forbidden;
    out->flattened_count = options->flattened_count;
    for (int i = 0; i < options->flattened_count; i++)
        out->flattened[i] = options->flattened[i];
    if (options->price)
        out->price = *options->price;
    return SHERD_OK;
}

static uint64_t price_hash(uint64_t hash, const sherd_price *price)
{
    hash = sherd__hash_word(hash, (uint64_t)price->kind);
    hash = sherd__hash_word(hash, (uint64_t)price->per_host);
    hash = sherd__hash_word(hash, (uint64_t)price->straight << 1 | price->overlap);
    for (int i = 0; i < price->links; i++) {
        const sherd_link *link = &price->link[i];
        hash = sherd__hash_text(hash, link->axis);
        hash = sherd__hash_word(hash, (uint64_t)link->alpha_picoseconds);
        hash = sherd__hash_word(hash, (uint64_t)link->beta_femtoseconds);
        hash = sherd__hash_word(hash, (uint64_t)link->gamma_femtoseconds);
        hash = sherd__hash_word(hash, (uint64_t)link->upto_bytes);
    }
    return hash;
}

static bool is_default(const sherd__request *r)
{
    return r->planner == SHERD_PLANNER_EXACT && r->weights.kind == SHERD_WEIGHTS_TIME &&
           r->per_host == 1 && r->max_bytes == 0 && r->forbidden == 0 && r->flattened_count == 0 &&
           r->price.kind == SHERD_PRICE_ARENA;
}

uint64_t sherd__request_hash(const sherd__request *r)
{
    if (is_default(r))
        return 0;
    uint64_t hash = sherd__hash_word(0x72657175, (uint64_t)r->planner);

    hash = sherd__hash_word(hash, (uint64_t)r->weights.kind);
    hash = sherd__hash_word(hash, (uint64_t)r->weights.all_reduce);
    hash = sherd__hash_word(hash, (uint64_t)r->weights.all_to_all);
    hash = sherd__hash_word(hash, (uint64_t)r->weights.all_gather);
    hash = sherd__hash_word(hash, (uint64_t)r->weights.reduce_scatter);
    hash = sherd__hash_word(hash, (uint64_t)r->weights.chunk);
    hash = sherd__hash_word(hash, (uint64_t)r->per_host);
    hash = sherd__hash_word(hash, (uint64_t)r->max_bytes);
    hash = sherd__hash_word(hash, r->forbidden);
    for (int i = 0; i < r->flattened_count; i++)
        hash = sherd__hash_word(hash, r->flattened[i]);
    hash = price_hash(hash, &r->price);
    return hash ? hash : 1;
}

void sherd__plans_price(sherd__space *space, const sherd_price *price)
{
    space->price = price;
    space->price_hash = sherd__request_hash(&(sherd__request){.per_host = 1, .price = *price});
}

static bool same_price(const sherd_price *a, const sherd_price *b)
{
    bool same = a->kind == b->kind && a->links == b->links && a->per_host == b->per_host &&
                a->overlap == b->overlap && a->straight == b->straight;

    for (int i = 0; same && i < a->links; i++) {
        const sherd_link *x = &a->link[i], *y = &b->link[i];
        same = strcmp(x->axis, y->axis) == 0 && x->alpha_picoseconds == y->alpha_picoseconds &&
               x->beta_femtoseconds == y->beta_femtoseconds &&
               x->gamma_femtoseconds == y->gamma_femtoseconds && x->upto_bytes == y->upto_bytes;
    }
    return same;
}

bool sherd__request_equal(const sherd__request *a, const sherd__request *b)
{
    const sherd_weights *v = &a->weights, *w = &b->weights;
    bool same = a->planner == b->planner && v->kind == w->kind && v->all_reduce == w->all_reduce &&
                v->all_to_all == w->all_to_all && v->all_gather == w->all_gather &&
                v->reduce_scatter == w->reduce_scatter && v->chunk == w->chunk &&
                a->per_host == b->per_host && a->max_bytes == b->max_bytes &&
                a->forbidden == b->forbidden && a->flattened_count == b->flattened_count;

    for (int i = 0; same && i < a->flattened_count; i++)
        same = a->flattened[i] == b->flattened[i];
    return same && same_price(&a->price, &b->price);
}
