/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See choice.h. Tensors that the patterns match get the number of a walk, and those that lack it
 * are dropped. Costs a walk over the tree for each pattern.
 */
#include "io/choice.h"

#include <string.h>

#include "base/hash.h"
#include "base/near.h"
#include "nn/pattern.h"

enum { NAME = 256 };

typedef struct choosing {
    const sherd__file_choice *choice;
    const char *function;
    sherd_module *module;
    const sherd__listed *listed; /* [of_module], for a message */
    int of_module;
    uint64_t walk; /* what is chosen bears it */
    int matches;   /* of the pattern at hand */
    char name[NAME];
} choosing;

bool sherd__choice_leaves(const sherd__file_choice *choice)
{
    return choice->part != SHERD_FILE_ALL || choice->only_count != 0;
}

uint64_t sherd__choice_hash(const sherd__file_choice *choice)
{
    uint64_t hash = sherd__hash_word((uint64_t)choice->part, (uint64_t)choice->only_count);

    for (int i = 0; i < choice->only_count; i++)
        hash = sherd__hash_text(hash, choice->only[i]);
    return hash;
}

static sherd_status refuse(const choosing *c, const char *fault, const char *of, const char *near)
{
    return sherd__module_fail(c->module, SHERD_EINVAL, "%s: %s%.120s%s", c->function, fault, of,
                              near);
}

static const char *name_at(void *of, int i)
{
    choosing *c = of;

    if (i >= c->of_module)
        return NULL;
    sherd_state_name(&c->listed[i].entry, c->name, NAME);
    return c->name;
}

static sherd_status no_match(choosing *c, const char *pattern)
{
    static const char before[] = "\"; there are ";
    char near[NAME];

    memcpy(near, before, sizeof before);
    sherd__near_names(near + sizeof before - 1, sizeof near - sizeof before + 1, name_at, c,
                      pattern);
    return refuse(c, "only: no parameter or buffer matches \"", pattern,
                  near[sizeof before - 1] ? near : "\"");
}

static void meet(void *data, const sherd__named_tensor *named)
{
    choosing *c = data;

    named->tensor->visit.walk = c->walk;
    c->matches++;
}

/* Mark what the patterns match. */
static sherd_status mark(choosing *c)
{
    const sherd__file_choice *choice = c->choice;
    const sherd__matching how = {.meet = meet, .data = c, .buffers = true};

    for (int i = 0; i < choice->only_count; i++) {
        c->matches = 0;
        if (!choice->only[i])
            return refuse(c, "only: a pattern is NULL", "", "");
        if (!sherd__match_pattern(c->module, choice->only[i], &how))
            return sherd__no_memory(sherd__world_diag(c->module->world), c->function);
        if (c->matches == 0)
            return no_match(c, choice->only[i]);
    }
    return SHERD_OK;
}

/* Whether a parameter, or a buffer, is chosen. */
static bool takes(const choosing *c, const sherd_tensor *t)
{
    const sherd__file_choice *choice = c->choice;
    bool trained = sherd_requires_grad(t);

    if (choice->only_count > 0 && t->visit.walk != c->walk)
        return false;
    return choice->part == SHERD_FILE_ALL || trained == (choice->part == SHERD_FILE_TRAINED);
}

static sherd_status check(const choosing *c)
{
    const sherd__file_choice *choice = c->choice;

    if (choice->part < SHERD_FILE_ALL || choice->part > SHERD_FILE_FROZEN)
        return refuse(c, "part: there is no such part", "", "");
    if (choice->only_count < 0 || (choice->only_count > 0 && !choice->only))
        return refuse(c, "only: there is no list of patterns", "", "");
    return SHERD_OK;
}

sherd_status sherd__choose(const sherd__file_choice *choice, const char *function,
                           sherd_module *module, sherd__listed *listed, int *of_module, int *count)
{
    choosing c = {choice, function, module, listed, *of_module, 0, 0, ""};
    sherd_status status = check(&c);
    int kept = 0, before = *of_module;

    if (status || !sherd__choice_leaves(choice))
        return status;
    c.walk = sherd__walk_number(module->world);
    status = mark(&c);
    if (status)
        return status;
    for (int i = 0; i < *count; i++) {
        if (i == before)
            *of_module = kept;
        if (takes(&c, listed[i].parameter))
            listed[kept++] = listed[i];
    }
    if (*count == before)
        *of_module = kept;
    *count = kept;
    return *of_module ? SHERD_OK
                      : refuse(&c, "no parameter or buffer is chosen by part and only", "", "");
}
