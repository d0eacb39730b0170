/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values that follow from the number of each element: filling a box with them, now or when its data is first needed.
 * A tensor that is left for later costs what describes it, and a branch where its data is read. Whoever wants only a
 * part of it (a rank that keeps its box) makes that part and leaves the rest.
 */
#include "tensor/state.h"

/* One kernel call for each run of neighbours in the global order. */
static void draw_box(sherd_tensor *t, const sherd__values *values)
{
    const sherd__kernels *kernels = sherd__kernels_of(sherd__world_kernels(t->world), t->dtype);
    const sherd_distribution *d = &values->distribution;
    size_t element = sherd_dtype_bytes(t->dtype);
    char *dst = sherd__fresh(t);
    sherd__walk w;

    for (sherd__walk_begin(&w, t); sherd__walk_next(&w);)
        (d->normal ? kernels->normal : kernels->uniform)(w.length, dst + (size_t)w.local * element,
                                                         d->a, d->b, values->key, w.global);
}

void sherd__draw(sherd_tensor *t, const sherd__values *values)
{
    if (values->drawn)
        draw_box(t, values);
    else
        sherd__fill(t, values->constant);
}

uint64_t sherd__values_hash(const sherd__values *values)
{
    const sherd_distribution *d = &values->distribution;
    uint64_t hash = sherd__attribute(sherd__key_word(values->key), d->normal);

    hash = sherd__attribute_double(sherd__attribute_double(hash, d->a), d->b);
    return values->drawn ? hash : sherd__attribute_double(1, values->constant);
}

/* The alarm is raised for a plain tensor too: whoever needs its data may be in the middle of an operator of all ranks. */
bool sherd__make_now(sherd_tensor *t)
{
    sherd__storage *storage = t->storage;
    sherd__values *values = storage->later;

    if (!values)
        return true;
    storage->block = sherd__block_take(storage->world, storage->bytes, true);
    if (!storage->block)
        return false;
    storage->later = NULL;
    /* `t` may be a view: what is filled is all of the storage, as one row. */
    int64_t n = storage->bytes / (int64_t)sherd_dtype_bytes(values->dtype);
    sherd_tensor row = {.world = storage->world,
                        .storage = storage,
                        .dtype = values->dtype,
                        .ndim = 1,
                        .shape = {n},
                        .local = {n},
                        .stride = {1},
                        .count = n};
    sherd__draw(&row, values);
    sherd__free(sherd__world_heap(storage->world), values);
    return true;
}
