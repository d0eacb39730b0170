/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of a module's state and those of the files that it is read from: what is missing on
 * either side is listed. Costs a look at each file for each name.
 */
#include "io/names.h"
#include "io/state.h"

#include <stdio.h>
#include <string.h>

enum { LISTED = 120 }; /* bytes of names in a message */

/* The names of a file that nothing here has. */
typedef struct unknown {
    const sherd__file_state *s;
    const sherd_file *file;
    const bool *known; /* [entries] */
} unknown;

static bool is_state(const char *name)
{
    return strncmp(name, SHERD__OF_OPTIMIZER, strlen(SHERD__OF_OPTIMIZER)) == 0 ||
           strncmp(name, SHERD__OF_OPTIMIZERS, strlen(SHERD__OF_OPTIMIZERS)) == 0;
}

/* Optimizer state is ignored if none is asked for. */
static const char *next_unknown(const void *of, int *i)
{
    const unknown *u = of;

    for (; *i < u->file->header.entries; ++*i) {
        const char *name = u->file->header.entry[*i].name;
        if (!u->known[*i] && (u->s->optimizer || u->s->other_count || !is_state(name)))
            return name;
    }
    return NULL;
}

static sherd_status check_unknown(const sherd__file_state *s, const sherd_file *file,
                                  const bool *known)
{
    const unknown u = {s, file, known};
    char names[LISTED];

    if (!sherd__list_names(names, sizeof names, next_unknown, &u))
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(s->world), SHERD_EINVAL,
                       "%s: \"%.180s\": the module has no %s%s (options.more ignores that)",
                       s->function, file->path, sherd__choice_leaves(&s->choice) ? "chosen " : "",
                       names);
}

/* Whether the files have state of the optimizer whose names begin like this one. */
static bool has_state(const sherd__files *f, const char *name, int optimizer)
{
    const char *dot = strchr(name, '.');
    size_t length = (size_t)((optimizer ? strchr(dot + 1, '.') : dot) - name) + 1;

    for (int i = 0; i < f->count; i++)
        for (int k = 0; k < f->file[i]->header.entries; k++)
            if (strncmp(f->file[i]->header.entry[k].name, name, length) == 0)
                return true;
    return false;
}

/*
 * Whether entry i is state that had not begun when the files were written: they have state, but
 * nothing of this parameter, which was frozen.
 */
static bool begins_anew(const sherd__file_state *s, const sherd__files *f, int i)
{
    if (i < s->of_module || i >= s->states)
        return false;
    const char *name = s->named[i].name;
    size_t length = (size_t)(strrchr(name, '.') - name) + 1; /* "optimizer.weight." */
    int first = i;
    while (first > s->of_module && strncmp(s->named[first - 1].name, name, length) == 0)
        first--;
    for (int j = first; j < s->states && strncmp(s->named[j].name, name, length) == 0; j++)
        for (int k = 0; k < f->count; k++)
            if (sherd_file_find(f->file[k], s->named[j].name))
                return false;
    return has_state(f, name, s->listed[i].optimizer);
}

static sherd__wanted want_of(const sherd__file_state *s, const sherd_read_options *options, int i)
{
    return (sherd__wanted){
        s->function,      sherd__world_diag(s->world), sherd__world_heap(s->world),
        s->named[i].name, s->named[i].tensor,          options,
        i < s->of_module};
}

/* What the files lack, behind number `first`. */
typedef struct lacking {
    const sherd__file_state *s;
    const sherd__files *f;
    const sherd_read_options *options;
    int first;
} lacking;

static const char *next_lacking(const void *of, int *i)
{
    const lacking *l = of;

    for (; l->first + *i < l->s->count; ++*i) {
        const sherd__wanted want = want_of(l->s, l->options, l->first + *i);
        if (!sherd__is_stored(l->f, &want) && !begins_anew(l->s, l->f, l->first + *i))
            return want.name;
    }
    return NULL;
}

/* Entry i is missing: say so, and what else is. */
static sherd_status lacks(const sherd__file_state *s, const sherd__files *f,
                          const sherd_read_options *options, int i)
{
    const lacking behind = {s, f, options, i + 1};
    const sherd__wanted want = want_of(s, options, i);
    char names[LISTED], why[2 * LISTED + 40];
    int more = sherd__list_names(names, sizeof names, next_lacking, &behind);
    char *as = sherd__stored_name(&want);
    bool many = f->count > 1, renamed = as && strcmp(as, want.name) != 0;

    if (renamed)
        snprintf(why, sizeof why, "%s \"%.80s\"%s%s",
                 many ? "none of the files has" : "the file has no", as, more ? ", nor " : "",
                 names);
    else
        snprintf(why, sizeof why, "%s%s%s", many ? "none of the files has it" : "the file has none",
                 more ? ", nor " : "", names);
    sherd__free(want.heap, as);
    return sherd__refuse_stored(&want, f, 0, want.name, why);
}

/* Whether everything here can be loaded. known: of each file a list, all false. */
static sherd_status match(sherd__file_state *s, const sherd__files *f,
                          const sherd_read_options *options, bool *const *known)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; i < s->count && !status; i++) {
        const sherd__wanted want = want_of(s, options, i);
        s->source[i].anew = !options->partial && begins_anew(s, f, i);
        if (s->source[i].anew)
            continue;
        status = sherd__find_stored(&s->source[i], f, &want, known);
        if (status && s->source[i].missing)
            return lacks(s, f, options, i);
    }
    for (int i = 0; i < f->count && !status && !options->partial && !options->more; i++)
        status = check_unknown(s, f->file[i], known[i]);
    return status;
}

sherd_status sherd__state_match(sherd__file_state *s, const sherd__files *f,
                                const sherd_read_options *options)
{
    sherd__heap *heap = sherd__world_heap(s->world);
    bool **known = sherd__alloc(heap, (size_t)f->count, sizeof *known), good = known != NULL;

    s->source = sherd__alloc(heap, (size_t)s->count + 1, sizeof *s->source);
    good = good && s->source;

    for (int i = 0; i < f->count && good; i++)
        good = (known[i] = sherd__alloc(heap, (size_t)f->file[i]->header.entries + 1,
                                        sizeof **known)) != NULL;
    sherd_status status = good ? match(s, f, options, known)
                               : sherd__no_memory(sherd__world_diag(s->world), s->function);
    for (int i = 0; i < f->count && known; i++)
        sherd__free(heap, known[i]);
    sherd__free(heap, known);
    return status;
}
