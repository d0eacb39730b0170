/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Origins. A part of a program that is run again (a checkpointed module) must read the same values
 * as the first time. So while it runs, each tensor notes from which contents outside of the part it
 * was computed: a storage has a number, and a version that each write raises; results get those of
 * their operands, mixed into one hash. A different origin in the second run means that something it
 * depends on, however distantly, was written in between. Nothing is kept alive for this, and
 * outside of such parts it costs next to nothing.
 *
 * If the first run writes a storage older than itself, the second one may write it again, and then
 * depends on what is written; or it may only read what it finds there (sherd_is_recomputing). So
 * an origin says both: what contents were made of, and where they were found.
 */
#include "tensor/state.h"

uint64_t sherd__origins_enter(sherd_world *world, bool again)
{
    sherd__tensors *s = sherd__tensors_of(world);
    uint64_t before = s->run;

    if (again || !before)
        s->run = ++s->runs << 1 | again;
    return before;
}

void sherd__origins_leave(sherd_world *world, uint64_t before)
{
    sherd__tensors_of(world)->run = before;
}

static sherd__origin as_it_is(const sherd__storage *storage)
{
    const sherd__contents source = {storage->number, (uint64_t)storage->version};
    return (sherd__origin){source, source};
}

/*
 * What is written in a run depends on nothing outside. But if the first run writes a storage that
 * is older than the run, and the second does not, it must find the storage as the first left it.
 */
void sherd__origin_written(sherd_tensor *t)
{
    sherd__storage *storage = t->storage;
    uint64_t run = sherd__tensors_of(t->world)->run;
    bool older = storage->run != run || storage->origin.found.who == storage->number;
    sherd__origin origin = {{0, 0}, {0, 0}};

    if (!(run & 1) && older)
        origin = as_it_is(storage);
    sherd__origin_set(t, origin);
}

/* What was made or written in this run depends on what was noted, and on nothing else outside. */
sherd__origin sherd__origin_of(const sherd_tensor *t)
{
    const sherd__storage *storage = t->storage;
    uint64_t run = sherd__tensors_of(t->world)->run;

    if (!run || !storage)
        return (sherd__origin){{0, 0}, {0, 0}};
    return storage->run == run ? storage->origin : as_it_is(storage);
}

void sherd__origin_set(sherd_tensor *t, sherd__origin origin)
{
    uint64_t run = sherd__tensors_of(t->world)->run;

    if (!run || !t->storage)
        return;
    t->storage->run = run;
    t->storage->origin = origin;
}

static sherd__contents both(sherd__contents a, sherd__contents b)
{
    if (!a.who || (a.who == b.who && a.when == b.when))
        return b;
    if (!b.who)
        return a;
    return (sherd__contents){sherd__attribute(sherd__attribute(1, a.who), b.who),
                             sherd__attribute(sherd__attribute(1, a.when), b.when)};
}

sherd__origin sherd__origin_mixed(sherd__origin a, sherd__origin b)
{
    return (sherd__origin){both(a.made, b.made), both(a.found, b.found)};
}

/*
 * If both runs found contents in one storage, its versions then decide. Otherwise the first run had
 * written there, and what the contents were made of is compared.
 */
bool sherd__origin_changed(const sherd__origin *first, const sherd__origin *again)
{
    if (first->found.who && first->found.who == again->found.who)
        return first->found.when != again->found.when;
    return first->made.who == again->made.who && first->made.when != again->made.when;
}

void sherd__origin_pass(sherd_tensor *const *in, int ins, sherd_tensor *const *out, int outs)
{
    sherd__origin mixed = {{0, 0}, {0, 0}};
    bool any = false;

    for (int i = 0; i < ins; i++) {
        if (!in[i] || !in[i]->storage)
            continue;
        any = true;
        mixed = sherd__origin_mixed(mixed, sherd__origin_of(in[i]));
    }
    for (int j = 0; any && j < outs && out[j]; j++) {
        bool shared = false; /* a view has its origin already */
        for (int i = 0; i < ins; i++)
            shared |= in[i] && in[i]->storage == out[j]->storage;
        if (!shared)
            sherd__origin_set(out[j], mixed);
    }
}
