/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks that write a file together agree on: that they passed the same arguments, tensors and
 * notes; and at the end that rank 0 has given the file its name. Each agreement is a meeting of all
 * ranks. What differs is looked for only if something does.
 */
#include "io/writing.h"

#include "base/hash.h"

#include <stdio.h>

bool sherd__write_agree(sherd_writing *w, uint64_t arguments)
{
    w->status = sherd__agree(w->world, w->status, arguments, w->function);
    return w->status == SHERD_OK;
}

bool sherd__write_agree_on(sherd_writing *w, uint64_t hash, const char *kind, const char *text)
{
    char shown[48], name[160];

    sherd__fit_text(shown, sizeof shown, text);
    snprintf(name, sizeof name, "%s: %s \"%s\"", w->function, kind, shown);
    w->status = sherd__agree(w->world, w->status, sherd__hash_text(hash, text), name);
    return w->status == SHERD_OK;
}

/* "tensor 1, f32[2,3],", of the header. */
static void describe_tensor(const sherd_file_entry *e, int i, char *text, size_t room)
{
    sherd__writer w = {text, room, 0};

    sherd__write(&w, "tensor %d, %s[", i, sherd_dtype_name(e->dtype));
    for (int d = 0; d < e->ndim; d++)
        sherd__write(&w, "%s%lld", d ? "," : "", (long long)e->shape[d]);
    sherd__write(&w, "],");
}

bool sherd__write_of_all(const sherd_tensor *t)
{
    return t->layout && t->layout->spec.mesh->count == sherd_world_ranks(t->world);
}

static uint64_t hash_of_tensors(const sherd_writing *w, uint64_t hash)
{
    for (int i = 0; i < w->header.entries; i++) {
        const sherd_tensor *t = w->list[i].tensor;
        if (sherd__write_of_all(t))
            hash = sherd__hash_word(sherd__hash_word(hash, t->layout->hash), t->ledger.identity);
    }
    return hash;
}

/* The i-th tensors lie alike and are the same, as far as all ranks know. */
static bool agree_on_tensor(sherd_writing *w, int i)
{
    const sherd_tensor *t = w->list[i].tensor;
    bool all = sherd__write_of_all(t);
    char kind[64];

    snprintf(kind, sizeof kind, "the layout of tensor %d,", i);
    if (!sherd__write_agree_on(w, 0, kind, all ? t->layout->text : "none that all ranks know"))
        return false;
    snprintf(kind, sizeof kind, "what was computed of tensor %d,", i);
    return sherd__write_agree_on(w, all ? t->ledger.identity : 0, kind, w->header.entry[i].name);
}

bool sherd__write_agree_header(sherd_writing *w, const char *text, size_t bytes)
{
    const sherd__header *h = &w->header;
    char kind[96];

    if (sherd__write_agree(w, text ? hash_of_tensors(w, sherd__hash_bytes(1, text, bytes)) : 0) ||
        w->status != SHERD_EDIFFER)
        return w->status == SHERD_OK;
    w->status = SHERD_OK;
    snprintf(kind, sizeof kind, "%d tensors and %d notes for", h->entries, h->notes);
    bool same = sherd__write_agree_on(w, 0, kind, w->path);
    for (int i = 0; same && i < h->entries; i++) {
        describe_tensor(&h->entry[i], i, kind, sizeof kind);
        same = sherd__write_agree_on(w, 0, kind, h->entry[i].name) && agree_on_tensor(w, i);
    }
    for (int i = 0; same && i < h->notes; i++) {
        snprintf(kind, sizeof kind, "note %d,", i);
        same = sherd__write_agree_on(w, 0, kind, h->note[i].key);
        snprintf(kind, sizeof kind, "note \"%.24s\",", h->note[i].key);
        same = same && sherd__write_agree_on(w, 1, kind, h->note[i].text);
    }
    w->status = w->status ? w->status : SHERD_EDIFFER;
    return false;
}

void sherd__write_name(sherd_writing *w)
{
    if (sherd_world_rank(w->world) == 0 && !sherd__is_dry(w->world))
        sherd__part_rename(w);
    sherd__write_agree(w, 3);
}

sherd_status sherd__file_name(sherd_writing *w)
{
    if (sherd__write_agree_on(w, 4, "the path", w->path))
        sherd__write_name(w);
    return w->status;
}
