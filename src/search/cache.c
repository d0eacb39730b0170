/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plans of a space, by (from, to, element size, options), or by window. Layouts are interned,
 * so a lookup hashes two stored numbers and compares two pointers, or finds the plan noted with the
 * layout: tens of nanoseconds. The table is bounded by number and, since schedules and layouts may
 * list all ranks, by bytes; the least recently used plan is dropped. What is sent for a plan is
 * made when it runs, so it is counted when the plan is asked for again, or another soon after. A
 * plan that runs is kept by a count.
 */
#include "planners.h"
#include "plans.h"
#include "layout/bytes.h"
#include "plan/sends.h"

#include "base/dtype.h"
#include "base/hash.h"

enum { PLANS_KEPT = 4096, BYTES_KEPT = 64 << 20, MAY_HAVE_GROWN = 16 };

/* Entries form a ring around the cache's `ends`: newer side first. */
typedef struct sherd__plan_entry {
    struct sherd__plan_entry *older, *newer;
    sherd_plan *plan;
    uint64_t hash;
    size_t bytes; /* of the plan */
} entry;

struct sherd__plan_cache {
    sherd__map map;
    entry ends;   /* ends.older = the newest, ends.newer = the oldest */
    size_t bytes; /* of all plans */
};

typedef struct plan_key {
    const sherd_layout *from, *to;
    size_t element_bytes;
    uint64_t request_hash;
    const sherd__request *request; /* NULL = the space's defaults */
    sherd__window *window;         /* NULL = between layouts */
    sherd__direction direction;
} plan_key;

/* Whether a plan is that of a key without a window and a request. */
static bool is_of(const sherd_plan *plan, const plan_key *key)
{
    return !plan->window && plan->from == key->from && plan->to == key->to &&
           plan->element_bytes == key->element_bytes && plan->request_hash == key->request_hash;
}

static bool equals_key(const void *item, const void *other)
{
    const sherd_plan *plan = ((const entry *)item)->plan;
    const plan_key *key = other;

    if (plan->window || key->window)
        return plan->window && key->window && plan->element_bytes == key->element_bytes &&
               plan->direction == (int)key->direction &&
               sherd__window_equal(plan->window, key->window);
    return is_of(plan, key) &&
           (!key->request || sherd__request_equal(&plan->request, key->request));
}

static void unlink_entry(entry *e)
{
    e->older->newer = e->newer;
    e->newer->older = e->older;
}

static void put_newest(struct sherd__plan_cache *cache, entry *e)
{
    e->newer = &cache->ends;
    e->older = cache->ends.older;
    e->older->newer = e;
    cache->ends.older = e;
}

/* The layout that a plan begins with; not const, because left_by is a cache: it says nothing of
 * what the layout is. */
static sherd_layout *source_of(const entry *e)
{
    return (sherd_layout *)(uintptr_t)e->plan->from;
}

/* What is sent for a plan, in messages: made when it first runs. */
static size_t sent_bytes(const sherd_plan *plan)
{
    size_t bytes = 0;

    for (int i = 0; plan->sends && plan->mine && i < plan->steps; i++) {
        const sherd__sends *s = plan->sends[i];
        const sherd__schedule *mine = plan->mine[i];
        if (!s || !mine)
            continue;
        bytes += sizeof *s + (size_t)(mine->readers + mine->sharers) * sizeof *s->out +
                 (size_t)(mine->sources + mine->sharers) * sizeof *s->in +
                 (size_t)mine->pulls * sizeof *s->place;
        for (int j = 0; j < s->outs; j++)
            bytes += (size_t)s->out[j].count * sizeof *s->box;
    }
    return bytes;
}

size_t sherd__plan_bytes(const sherd_plan *plan)
{
    size_t bytes = sizeof *plan + sherd__layout_bytes(plan->from) +
                   sherd__window_bytes(plan->window) + sent_bytes(plan);

    for (int i = 0; i < plan->steps; i++) /* each begins where the one before it ends */
        if (plan->step[i].to != plan->step[i].from)
            bytes += sherd__layout_bytes(plan->step[i].to);
    for (int i = 0; plan->mine && i < plan->steps; i++) {
        const sherd__schedule *s = plan->mine[i];
        if (s)
            bytes += sizeof *s + (size_t)s->regions * sizeof *s->region +
                     (size_t)s->pulls * sizeof *s->pull +
                     (size_t)(s->sources + s->readers + s->sharers) * sizeof *s->source;
    }
    return bytes;
}

/* A plan that has run since it was counted may have more. */
static void recount(struct sherd__plan_cache *cache, entry *e)
{
    size_t now = e->plan->sends ? sherd__plan_bytes(e->plan) : e->bytes;

    cache->bytes += now - e->bytes;
    e->bytes = now;
}

static void drop(sherd__space *space, entry *e)
{
    struct sherd__plan_cache *cache = space->plans;

    if (source_of(e)->left_by == e)
        source_of(e)->left_by = NULL;
    unlink_entry(e);
    cache->bytes -= e->bytes;
    sherd__map_remove(&cache->map, e->hash, e);
    sherd__plan_release(e->plan);
    sherd__free(space->heap, e);
}

static sherd_status open_cache(sherd__space *space)
{
    if (space->plans)
        return SHERD_OK;
    struct sherd__plan_cache *cache = sherd__alloc(space->heap, 1, sizeof *cache);
    if (!cache)
        return sherd__no_memory(space->diag, "sherd_plan_create");
    cache->map.heap = space->heap;
    cache->ends.older = cache->ends.newer = &cache->ends;
    space->plans = cache;
    return SHERD_OK;
}

/* Takes the plan, also on failure. */
static sherd_status keep(sherd__space *space, sherd_plan *plan, uint64_t hash)
{
    struct sherd__plan_cache *cache = space->plans;
    entry *e = sherd__alloc(space->heap, 1, sizeof *e);

    if (!e || !sherd__map_add(&cache->map, hash, e)) {
        sherd__free(space->heap, e);
        sherd__plan_release(plan);
        return sherd__no_memory(space->diag, "sherd_plan_create");
    }
    e->plan = plan;
    e->hash = hash;
    e->bytes = sherd__plan_bytes(plan);
    cache->bytes += e->bytes;
    put_newest(cache, e);
    entry *last = e->older;
    for (int i = 0; i < MAY_HAVE_GROWN && last != &cache->ends; i++, last = last->older)
        recount(cache, last);
    while (cache->ends.newer != e && (cache->map.count > PLANS_KEPT || cache->bytes > BYTES_KEPT))
        drop(space, cache->ends.newer);
    return SHERD_OK;
}

static sherd_status make(sherd_plan **out, const plan_key *key)
{
    sherd__request defaults;

    if (key->window)
        return sherd__window_plan_make(out, key->window, key->direction, key->element_bytes);
    sherd_status status =
        key->request ? SHERD_OK : sherd__request_make(&defaults, key->from, key->to, NULL);
    return status ? status
                  : sherd__plan_make(out, key->from, key->to, key->element_bytes,
                                     key->request ? key->request : &defaults);
}

/*
 * The entry of a key; NULL: there is none, and *hash is set. Mostly it is that of the last plan
 * from this layout, which the layout itself remembers (left_by): then nothing is hashed.
 */
static entry *look_up(const plan_key *key, uint64_t *hash)
{
    sherd__space *space = key->from->space;
    entry *e = key->from->left_by;

    if (e && equals_key(e, key))
        return e;
    *hash = sherd__hash_word(sherd__hash_word(key->from->hash, key->to->hash),
                             key->element_bytes + key->request_hash);
    return sherd__map_find(&space->plans->map, *hash, equals_key, key);
}

/* The plan of a key, which has no request where there are no options. */
static sherd_status find(const sherd_plan **out, const plan_key *key)
{
    sherd__space *space = key->from->space;
    sherd_plan *plan;
    uint64_t hash;

    sherd_status status = open_cache(space);
    if (status != SHERD_OK)
        return status;
    entry *e = look_up(key, &hash);
    if (!e) {
        status = make(&plan, key);
        if (status == SHERD_OK)
            status = keep(space, plan, hash);
        if (status == SHERD_OK)
            *out = plan;
        return status;
    }
    recount(space->plans, e);
    if (space->plans->ends.older != e) {
        unlink_entry(e);
        put_newest(space->plans, e);
    }
    source_of(e)->left_by = e;
    *out = e->plan;
    return SHERD_OK;
}

sherd_status sherd__plan_find(const sherd_plan **out, const sherd_layout *from,
                              const sherd_layout *to, size_t element_bytes,
                              const sherd_plan_options *options)
{
    plan_key key = {.from = from,
                    .to = to,
                    .element_bytes = element_bytes,
                    .request_hash = from->space->price_hash};
    sherd__request request;
    const entry *last = from->left_by;

    if (!options && last && is_of(last->plan, &key) && from->space->plans->ends.older == last) {
        *out = last->plan;
        return SHERD_OK;
    }
    *out = NULL;
    if (options) {
        sherd_status status = sherd__request_make(&request, from, to, options);
        if (status != SHERD_OK)
            return status;
        key.request_hash = sherd__request_hash(&request);
        key.request = &request;
    }
    return find(out, &key);
}

sherd_status sherd__window_plan(const sherd_plan **out, sherd__window *window,
                                sherd__direction direction, size_t element_bytes)
{
    *out = NULL;
    return find(out, &(plan_key){.from = window->layout,
                                 .to = window->layout,
                                 .element_bytes = element_bytes,
                                 .request_hash = window->hash,
                                 .window = window,
                                 .direction = direction});
}

/* Whether a step takes an average, of which a move of integers is refused. */
static bool averages(const sherd_step *step)
{
    const sherd__layout_spec *a = &step->from->spec, *b = &step->to->spec;
    bool parts = step->kind == SHERD_STEP_PARTITION, some = false;

    for (int i = 0; i < b->mesh->axes && parts; i++)
        some = some || b->pending[i] == SHERD_AVG;
    for (int i = 0; i < a->mesh->axes && sherd__step_reduces(step); i++)
        some = some || (a->pending[i] == SHERD_AVG && a->mesh->extent[i] > 1 &&
                        (a->mesh != b->mesh || b->pending[i] < 0));
    return some;
}

static sherd_status check_averages(const sherd_plan *plan, sherd_dtype dtype)
{
    bool some = false;

    for (int i = 0; i < plan->steps && !sherd__has_fractions(dtype); i++)
        some = some || averages(&plan->step[i]);
    if (some)
        return sherd__fail(plan->space->diag, SHERD_ENOTSUP,
                           "sherd_plan_create: %.150s: %s has no average: cast it to a dtype with "
                           "fractions first",
                           plan->what, sherd_dtype_name(dtype));
    return SHERD_OK;
}

sherd_status sherd_plan_create(const sherd_plan **out, const sherd_layout *from,
                               const sherd_layout *to, sherd_dtype dtype,
                               const sherd_plan_options *options)
{
    const sherd__argument need[] = {{"out", out}, {"from", from}, {"to", to}, {NULL, NULL}};
    const sherd_layout *any = from ? from : to;

    if (out)
        *out = NULL;
    if (sherd__require(any ? any->space->diag : NULL, "sherd_plan_create", need))
        return SHERD_EINVAL;
    sherd_status status = sherd__plan_find(out, from, to, sherd_dtype_bytes(dtype), options);
    if (status == SHERD_OK && (status = check_averages(*out, dtype)))
        *out = NULL;
    return status;
}

void sherd__plan_retain(const sherd_plan *plan)
{
    ((sherd_plan *)(uintptr_t)plan)->refs++;
}

void sherd__plan_release(const sherd_plan *plan)
{
    sherd_plan *own = (sherd_plan *)(uintptr_t)plan;

    if (plan && --own->refs == 0)
        sherd__plan_destroy(own);
}

void sherd__plans_clear(sherd__space *space)
{
    struct sherd__plan_cache *cache = space->plans;

    sherd__halos_clear(space);
    if (!cache)
        return;
    while (cache->ends.older != &cache->ends)
        drop(space, cache->ends.older);
    sherd__map_clear(&cache->map);
    sherd__free(space->heap, cache);
    space->plans = NULL;
}
