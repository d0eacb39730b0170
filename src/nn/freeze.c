/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters frozen and thawed by patterns of their paths. Costs a walk over the part of the tree
 * that the pattern leads through.
 */
#include "nn/module.h"
#include "nn/pattern.h"

typedef struct freezing {
    bool wanted;
    uint64_t walk; /* tensors that were met bear it */
    int count;
    bool failed;
} freezing;

static void meet(void *data, const sherd__named_tensor *named)
{
    freezing *f = data;
    sherd_tensor *t = named->tensor;

    if (t->visit.walk == f->walk || f->failed)
        return;
    t->visit.walk = f->walk;
    f->count++;
    f->failed = sherd_tensor_failed(sherd_require_grad(t, f->wanted));
}

int sherd_module_require_grad(sherd_module *module, const char *pattern, bool wanted)
{
    static const char function[] = "sherd_module_require_grad";

    if (!module)
        return 0;
    freezing f = {.wanted = wanted, .walk = sherd__walk_number(module->world)};
    if (!pattern)
        sherd__raise(module->world, SHERD_EINVAL, "%s: pattern is NULL", function);
    else if (!sherd__match_pattern(module, pattern, &(sherd__matching){.meet = meet, .data = &f}))
        sherd__raise(module->world, SHERD_ENOMEM, "%s: out of memory", function);
    return f.failed ? 0 : f.count;
}
