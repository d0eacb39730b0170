/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this room does at checks, and when the world ends. With SHERD_VERIFY the contents of tensors
 * that should be equal are compared at each check; without, a check costs nothing here.
 */
#include "tensor/state.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "tensor/stands.h"

/* Bytes are hashed as they come, whatever pieces they come in. */
typedef struct digest {
    uint64_t hash;
    size_t used;
    char chunk[512];
} digest;

static void flush(digest *d)
{
    d->hash = sherd__hash_bytes(d->hash, d->chunk, d->used);
    d->used = 0;
}

static void add(digest *d, const char *from, size_t bytes)
{
    while (bytes > 0) {
        size_t room = sizeof d->chunk - d->used, n = bytes < room ? bytes : room;
        memcpy(d->chunk + d->used, from, n);
        d->used += n;
        from += n;
        bytes -= n;
        if (d->used == sizeof d->chunk)
            flush(d);
    }
}

static void add_row(digest *d, const char *at, int64_t count, int64_t stride, size_t element)
{
    if (stride == 1)
        add(d, at, (size_t)count * element);
    for (int64_t k = 0; k < count && stride != 1; k++)
        add(d, at + k * stride * (int64_t)element, element);
}

/* A hash of the local elements in order; false: they cannot be read (raised). No memory is taken: a
 * program is to have as much of it as without SHERD_VERIFY. */
static bool hash_content(sherd_tensor *t, uint64_t *hash)
{
    const char *data = t->count ? sherd__data(t) : NULL;
    int last = t->ndim - 1;
    int64_t at[SHERD_MAX_DIMS] = {0};
    int64_t row = t->ndim ? t->local[last] : 1, step = t->ndim ? t->stride[last] : 1;
    size_t element = sherd_dtype_bytes(t->dtype);
    digest d = {.hash = 7};

    for (int64_t done = 0; data && done < t->count; done += row) {
        int64_t offset = 0;
        for (int i = 0; i < last; i++)
            offset += at[i] * t->stride[i];
        add_row(&d, data + offset * (int64_t)element, row, step, element);
        for (int i = last - 1; i >= 0 && ++at[i] == t->local[i]; i--)
            at[i] = 0;
    }
    flush(&d);
    *hash = d.hash;
    return data || t->count == 0;
}

uint64_t sherd__content(sherd_tensor *t)
{
    const sherd__storage *storage = t->storage;
    uint64_t hash = 0;

    /* A hash of the description, also once it was made here: on other ranks it may not be yet. */
    if (storage->later)
        return sherd__values_hash(storage->later);
    if (storage->made_of && storage->version == 0)
        return storage->made_of;
    if (sherd__verifies(t->world))
        hash_content(t, &hash);
    return hash;
}

/*
 * All ranks have the same noted tensors, so all claim the same ones. Deferred ones are left out:
 * their descriptions were noted.
 */
static void claim_all(sherd_world *world)
{
    for (sherd_tensor *t = sherd__tensors_of(world)->all; t; t = t->next) {
        sherd__claim claim = {.made = t->ledger.made, .identity = t->ledger.identity};
        if (!t->layout || !t->ledger.identity || sherd__is_failed(t) || t->storage->later ||
            !sherd__equal_axes(t->layout))
            continue;
        snprintf(claim.text, sizeof claim.text, "%s", sherd_tensor_text(t));
        if (!hash_content(t, &claim.content))
            return;
        if (!sherd__claim_equal(world, t->layout->spec.mesh, sherd__equal_axes(t->layout),
                                &claim)) {
            sherd__raise(world, SHERD_ENOMEM, "sherd_world_check: out of memory for SHERD_VERIFY");
            return;
        }
    }
}

static void destroy(sherd_world *world, void *memory)
{
    sherd__tensors *s = memory;
    sherd__heap *heap = sherd__world_heap(world);

    sherd__tensors_empty(world);
    while (s->all) {
        sherd_tensor *t = s->all;
        s->all = t->next;
        sherd__free(heap, t);
    }
    sherd__stock_clear(&s->structs);
    sherd__stock_clear(&s->storages);
    sherd__free(heap, s->failed.text);
    sherd__free(heap, s->list);
    sherd__free(heap, s->start);
    memset(s, 0, sizeof *s); /* another room's end may need this one once more */
}

const sherd__tensors_hooks sherd__tensors_own_hooks = {
    .watcher = {.before_check = claim_all,
                .after_check = sherd__standings_checked,
                .after_failure = sherd__lose,
                .calls_back = sherd__calls_back,
                .tell_deed = sherd__tell_deed},
    .end = destroy};
