/* SPDX-License-Identifier: Apache-2.0 */
/* See stored.h. Costs a look at each file for each name. */
#include "io/stored.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/num.h"
#include "base/text.h"
#include "io/names.h"
#include "tensor/tensor.h"
#include "layout/shape.h"

enum { MISFIT_TEXT = 192 };

/* The entry of this name, and its file; NULL: there is none. Of several the first. */
static const sherd_file_entry *find(const sherd__files *f, const char *name, int *file)
{
    const sherd_file_entry *e = NULL;

    for (*file = 0; *file < f->count && !(e = sherd_file_find(f->file[*file], name)); ++*file)
        ;
    return e;
}

/* "the file has another shape, f32[2,3]" */
static const char *other_shape(const sherd_file_entry *e, int64_t first, char text[MISFIT_TEXT])
{
    sherd__writer w = {text, MISFIT_TEXT, 0};

    sherd__write(&w, "the file has another shape, %s[", sherd_dtype_name(e->dtype));
    for (int d = 0; d < e->ndim; d++)
        sherd__write(&w, "%s%lld", d ? "," : "", (long long)e->shape[d]);
    sherd__write(&w, "]");
    if (first >= 0)
        sherd__write(&w, ", from row %lld on", (long long)first);
    return text;
}

/* Whether an entry has the shape of these dims, or, from row `first` >= 0 on, at least its rows. */
static bool has_shape(const sherd_file_entry *e, const int64_t *shape, int ndim, int64_t first)
{
    if (first < 0)
        return sherd__same_shape(e->ndim, e->shape, ndim, shape);
    return ndim > 0 && e->ndim == ndim && first <= e->shape[0] && shape[0] <= e->shape[0] - first &&
           sherd__same_shape(ndim - 1, e->shape + 1, ndim - 1, shape + 1);
}

/* Why an entry cannot be loaded into dims [stacked, ..) of a tensor; NULL: it can. */
static const char *misfit(const sherd_file_entry *e, const sherd_tensor *t,
                          const sherd__file_source *as, const sherd_read_options *options,
                          char text[MISFIT_TEXT])
{
    int more = as->stacked;

    if (!has_shape(e, t->shape + more, t->ndim - more, as->part ? as->first : -1))
        return other_shape(e, as->part ? as->first : -1, text);
    bool castable = sherd__has_fractions(e->dtype) && sherd__has_fractions(t->dtype);
    if (e->dtype == t->dtype || (options->cast && castable))
        return NULL;
    snprintf(text, MISFIT_TEXT, "the file has another dtype, %s%s", sherd_dtype_name(e->dtype),
             castable        ? " (options.cast casts it)"
             : options->cast ? ", and one of the two has no fractions"
                             : "");
    return text;
}

sherd_status sherd__refuse_stored(const sherd__wanted *want, const sherd__files *f, int file,
                                  const char *name, const char *why)
{
    return sherd__fail(want->diag, SHERD_EINVAL, "%s: \"%.180s\": \"%.80s\", %.80s: %s",
                       want->function, f->file[file]->path, name, sherd_tensor_text(want->tensor),
                       why);
}

/* Those that come after the first with this name have it too: it is known there, and not read. */
static void note_known(const sherd__files *f, int first, const char *name, bool *const *known)
{
    for (int i = first; i < f->count; i++) {
        const sherd_file_entry *e = sherd_file_find(f->file[i], name);
        if (e)
            known[i][e - f->file[i]->header.entry] = true;
    }
}

/* Find piece i. A piece may be missing only if all are, and if the options allow that. */
static sherd_status find_piece(sherd__stored *out, const sherd__files *f, const sherd__wanted *want,
                               const char *name, int64_t i, bool *const *known)
{
    int at;
    const sherd_file_entry *e = find(f, name, &at);
    const char *why = NULL;
    char text[MISFIT_TEXT];

    if (e)
        why = misfit(e, want->tensor, &out->rows, want->options, text);
    else if (!want->options->partial)
        why = f->count > 1 ? "none of the files has it" : "the file has none";
    out->missing = why && !e && !i;
    if (!why && i && (e != NULL) != (out->count > 0))
        why = "the file has only some of a stack";
    if (!why && e && i && e->dtype != out->piece[0].entry->dtype)
        why = "the file has other dtypes in one stack";
    if (why)
        return sherd__refuse_stored(want, f, e ? at : 0, name, why);
    if (!e)
        return SHERD_OK;
    out->piece[out->count++] = (sherd__file_piece){f->file[at], e};
    note_known(f, at, name, known);
    return SHERD_OK;
}

static const sherd_file_name *name_rule(const sherd__wanted *want)
{
    const sherd_read_options *o = want->options;

    return want->renamed ? sherd__file_name_find(o->names, o->name_count, want->name) : NULL;
}

char *sherd__stored_name(const sherd__wanted *want)
{
    return sherd__file_name_of(want->heap, name_rule(want), want->name, 0);
}

bool sherd__is_stored(const sherd__files *files, const sherd__wanted *want)
{
    char *name = sherd__stored_name(want);
    int at;
    bool there = !name || find(files, name, &at) != NULL;

    sherd__free(want->heap, name);
    return there;
}

/* Which rows of its entries a tensor has. */
static void take_part(sherd__file_source *rows, const sherd_file_name *as, const sherd_tensor *t)
{
    int64_t first = sherd__file_name_first(as);

    rows->part = first >= 0;
    rows->first = rows->part ? first : 0;
    rows->rows = rows->part && t->ndim > rows->stacked ? t->shape[rows->stacked] : 0;
}

sherd_status sherd__find_stored(sherd__stored *out, const sherd__files *files,
                                const sherd__wanted *want, bool *const *known)
{
    const sherd_file_name *as = name_rule(want);
    bool stacked = sherd__file_name_stacks(as);
    sherd_status status = SHERD_OK;

    *out = (sherd__stored){.piece = NULL};
    if (stacked && want->tensor->ndim == 0)
        return sherd__refuse_stored(want, files, 0, want->name, "it has no dim to be a stack");
    int64_t count = stacked ? want->tensor->shape[0] : 1;
    out->piece = sherd__alloc(want->heap, sherd__bytes(count) + 1, sizeof *out->piece);
    if (!out->piece)
        return sherd__no_memory(want->diag, want->function);
    out->rows = (sherd__file_source){.piece = out->piece, .count = count, .stacked = stacked};
    take_part(&out->rows, as, want->tensor);
    for (int64_t i = 0; i < count && !status; i++) {
        char *name = sherd__file_name_of(want->heap, as, want->name, i);
        status = name ? find_piece(out, files, want, name, i, known)
                      : sherd__no_memory(want->diag, want->function);
        sherd__free(want->heap, name);
    }
    return status;
}

void sherd__stored_clear(sherd__heap *heap, sherd__stored *source)
{
    sherd__free(heap, source->piece);
}
