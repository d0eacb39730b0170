/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of what a file of a state holds, under which names: of the module, of its optimizers,
 * and of the program's own. A walk over the tree for each of them; nothing is communicated.
 */
#include "io/state.h"
#include "nn/optimizer.h"

#include <stdio.h>
#include <string.h>

void sherd__state_clear(sherd__file_state *s)
{
    sherd__heap *heap = sherd__world_heap(s->world);

    for (int i = 0; s->named && i < s->count; i++)
        sherd__free(heap, (char *)(uintptr_t)s->named[i].name);
    for (int i = 0; s->source && i < s->count; i++)
        sherd__stored_clear(heap, &s->source[i]);
    sherd__free(heap, s->source);
    sherd__free(heap, s->named);
    sherd__free(heap, s->listed);
    s->source = NULL;
    s->named = NULL;
    s->listed = NULL;
    s->count = 0;
}

int sherd__state_optimizers(const sherd__file_state *s)
{
    return 1 + s->other_count;
}

sherd_optimizer *sherd__state_optimizer(const sherd__file_state *s, int number)
{
    return number == 0 ? s->optimizer : s->others[number - 1];
}

int sherd__state_prefix(int number, char *out, size_t room)
{
    return number == 0 ? snprintf(out, room, SHERD__OF_OPTIMIZER)
                       : snprintf(out, room, SHERD__OF_OPTIMIZERS "%d.", number - 1);
}

char *sherd__state_name(const sherd__file_state *s, const sherd_named_state *entry, int number)
{
    char prefix[32] = "";
    size_t before = number < 0 ? 0 : (size_t)sherd__state_prefix(number, prefix, sizeof prefix);
    size_t length = (size_t)sherd_state_name(entry, NULL, 0);
    char *name = sherd__alloc(sherd__world_heap(s->world), before + length + 1, 1);

    if (name) {
        memcpy(name, prefix, before);
        sherd_state_name(entry, name + before, length + 1);
    }
    return name;
}

static sherd_status list_one(sherd__file_state *s, sherd_tensor *t, char *name)
{
    if (!name)
        return sherd__no_memory(sherd__world_diag(s->world), s->function);
    s->named[s->count++] = (sherd_named_tensor){name, t};
    return SHERD_OK;
}

static sherd_status list_more(sherd__file_state *s, const sherd_named_tensor *t, int i)
{
    const char *fault = !t->name || !t->tensor                            ? "is NULL"
                        : sherd_tensor_world(t->tensor) != s->world       ? "is of another world"
                        : !t->tensor->lost && sherd__is_failed(t->tensor) ? "has failed"
                                                                          : NULL;

    if (fault)
        return sherd__module_fail(s->module, SHERD_EINVAL,
                                  "%s: tensor %d of the options, \"%.120s\", %s", s->function, i,
                                  t->name ? t->name : "(NULL)", fault);
    return list_one(s, t->tensor, sherd__copy_text(sherd__world_heap(s->world), t->name));
}

static sherd_status check_lists(const sherd__file_state *s)
{
    if (s->more_count < 0 || (s->more_count > 0 && !s->more))
        return sherd__module_fail(s->module, SHERD_EINVAL, "%s: %d tensors in the options%s",
                                  s->function, s->more_count, s->more ? "" : ", which are NULL");
    return SHERD_OK;
}

/* The entries of the module, and then those of each optimizer. */
static void list_states(sherd__file_state *s, sherd_named_state *room)
{
    int at = sherd_module_state(s->module, room, s->of_module);

    for (int i = 0; i < at; i++)
        s->listed[i] = (sherd__listed){room[i], room[i].tensor, -1};
    for (int k = 0; k < sherd__state_optimizers(s); k++) {
        sherd_optimizer *o = sherd__state_optimizer(s, k);
        int more = sherd_optimizer_state(o, room, s->states - at);
        for (int i = 0; i < more; i++)
            s->listed[at++] =
                (sherd__listed){room[i], sherd__optimizer_owner(o, room[i].tensor), k};
    }
}

sherd_status sherd__state_list(sherd__file_state *s)
{
    sherd__heap *heap = sherd__world_heap(s->world);
    sherd_status status = check_lists(s);

    if (status)
        return status;
    s->states = s->of_module = sherd_module_state(s->module, NULL, 0);
    for (int k = 0; k < sherd__state_optimizers(s); k++)
        s->states += sherd_optimizer_state(sherd__state_optimizer(s, k), NULL, 0);
    sherd_named_state *room = sherd__alloc(heap, (size_t)s->states + 1, sizeof *room);
    s->listed = sherd__alloc(heap, (size_t)s->states + 1, sizeof *s->listed);
    s->named = sherd__alloc(heap, (size_t)s->states + (size_t)s->more_count + 1, sizeof *s->named);
    if (room && s->listed && s->named)
        list_states(s, room);
    else
        status = sherd__no_memory(sherd__world_diag(s->world), s->function);
    sherd__free(heap, room);
    if (!status)
        status =
            sherd__choose(&s->choice, s->function, s->module, s->listed, &s->of_module, &s->states);
    for (int i = 0; !status && i < s->states; i++)
        status = list_one(s, s->listed[i].entry.tensor,
                          sherd__state_name(s, &s->listed[i].entry, s->listed[i].optimizer));
    for (int i = 0; !status && i < s->more_count; i++)
        status = list_more(s, &s->more[i], i);
    return status;
}
