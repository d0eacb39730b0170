/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of parameters that were frozen when their optimizer was made. It begins in their first
 * step, on ranks that take part in that; and before it is listed, or read, on all.
 */
#include "io/state.h"
#include "nn/optimizer.h"
#include "io/generators.h"

/*
 * A parameter that was frozen has state since its first step, which ranks outside its mesh have not
 * taken: they make it now, so that all ranks list the same.
 */
static sherd_status begin(const sherd__file_state *s, const sherd_optimizer *o, sherd_status status)
{
    sherd__heap *heap = sherd__world_heap(s->world);
    int count = o ? o->count : 0;
    int64_t *begun = sherd__alloc(heap, (size_t)count + 1, sizeof *begun);

    if (!status && !begun)
        status = sherd__no_memory(sherd__world_diag(s->world), s->function);
    status = sherd__agree(s->world, status, (uint64_t)count, s->function);
    if (!status && count) {
        sherd__optimizer_begun(o, begun);
        status = sherd__take_most(s->world, begun, count);
        status = status ? status : sherd__optimizer_start_begun(o, begun);
    }
    sherd__free(heap, begun);
    return status;
}

/* Ranks with other numbers of optimizers are found before one waits for another. */
sherd_status sherd__state_begin(const sherd__file_state *s, sherd_status status)
{
    if (status || s->other_count)
        status = sherd__agree(s->world, status, 1 + (uint64_t)s->other_count, s->function);
    for (int k = 0; !status && k < sherd__state_optimizers(s); k++)
        status = begin(s, sherd__state_optimizer(s, k), status);
    return status;
}

/* ---- of files -------------------------------------------------------------------------------- */

static bool is_chosen(const sherd__file_state *s, const sherd_tensor *parameter)
{
    bool found = !sherd__choice_leaves(&s->choice);

    for (int i = 0; i < s->of_module && !found; i++)
        found = s->listed[i].parameter == parameter;
    return found;
}

/* An optimizer of a state whose files are open, and what it lacks. */
typedef struct lacking {
    const sherd__file_state *s;
    const sherd__files *f;
    int number;
    uint64_t walk; /* of sherd__mark_holders */
    bool good;     /* there was memory for names */
} lacking;

/* Whether a file has state of a parameter's. */
static bool is_in_file(lacking *l, const sherd__optimized *item)
{
    const sherd_optimizer *o = sherd__state_optimizer(l->s, l->number);
    sherd_named_state entry;
    bool found = false;

    for (int e = 0; e < SHERD__OPTIMIZER_TENSORS && !found; e++) {
        if (!sherd__optimizer_entry(o, item, e, l->walk, &entry))
            continue;
        char *name = sherd__state_name(l->s, &entry, l->number);
        for (int i = 0; name && i < l->f->count; i++)
            found |= sherd_file_find(l->f->file[i], name) != NULL;
        l->good &= name != NULL;
        sherd__free(sherd__world_heap(l->s->world), name);
    }
    return found;
}

/*
 * begun[]: 1 for each parameter that is read and has no state, but has some in the files. Returns
 * how many there are; -1 for lack of memory.
 */
static int find_begun(const sherd__file_state *s, const sherd__files *f, int number, int64_t *begun)
{
    const sherd_optimizer *o = sherd__state_optimizer(s, number);
    lacking l = {s, f, number, sherd__mark_holders(o->module), true};
    int count = 0;

    for (int i = 0; i < o->count; i++) {
        const sherd__optimized *item = &o->item[i];
        begun[i] =
            !item->tensor[SHERD__OPTIMIZER_STEPS] && is_chosen(s, item->p) && is_in_file(&l, item);
        count += begun[i] != 0;
    }
    return l.good ? count : -1;
}

/* State of steps before a parameter was frozen, or after it was thawed in another run. */
static sherd_status begin_stored(sherd__file_state *s, const sherd__files *f, int number,
                                 bool *anew)
{
    sherd_optimizer *o = sherd__state_optimizer(s, number);
    sherd__heap *heap = sherd__world_heap(s->world);
    int64_t *begun = sherd__alloc(heap, (size_t)o->count + 1, sizeof *begun);
    int count = begun ? find_begun(s, f, number, begun) : -1;
    sherd_status status = SHERD_OK;

    if (count < 0)
        status = sherd__no_memory(sherd__world_diag(s->world), s->function);
    status = sherd__agree(s->world, status, (uint64_t)count, s->function);
    if (!status && count)
        status = sherd__optimizer_start_begun(o, begun);
    *anew |= count > 0;
    sherd__free(heap, begun);
    return status;
}

sherd_status sherd__state_begin_stored(sherd__file_state *s, const sherd__files *f)
{
    sherd_status status = SHERD_OK;
    bool anew = false;

    for (int k = 0; !status && k < sherd__state_optimizers(s); k++)
        if (sherd__state_optimizer(s, k))
            status = begin_stored(s, f, k, &anew);
    if (!anew)
        return status;
    if (!status) {
        sherd__state_clear(s);
        status = sherd__state_list(s);
    }
    return sherd__agree(s->world, status, 0, s->function);
}
