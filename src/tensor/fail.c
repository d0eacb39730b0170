/* SPDX-License-Identifier: Apache-2.0 */
/* How expressions fail: the failed tensor, and which ranks learn of the failure. */
#include "tensor/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

sherd_tensor *sherd__failed(sherd_world *world)
{
    return &sherd__tensors_of(world)->failed;
}

static sherd_tensor *fail(sherd_world *world, bool distributed, sherd_status status,
                          const char *text)
{
    if (distributed)
        sherd__raise(world, status, "%s", text);
    else
        sherd__fail_locally(world, status, "%s", text);
    return sherd__failed(world);
}

sherd_tensor *sherd__fail_tensor(sherd_world *world, bool distributed, sherd_status status,
                                 const char *format, ...)
{
    char text[SHERD_ERROR_BYTES];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return fail(world, distributed, status, text);
}

sherd_tensor *sherd__fail_diag(sherd_world *world, bool distributed)
{
    const sherd__diag *diag = sherd__world_diag(world);
    char text[SHERD_ERROR_BYTES], rank[32];

    if (distributed) {
        sherd__raise_diag(world);
        return sherd__failed(world);
    }
    /* The text has the rank in front, and keeping it would put it there again. */
    memcpy(text, diag->text, sizeof text);
    snprintf(rank, sizeof rank, "rank %d: ", diag->rank);
    size_t skip = strncmp(text, rank, strlen(rank)) == 0 ? strlen(rank) : 0;
    return fail(world, false, diag->status, text + skip);
}

void sherd__raise_failed(sherd_world *world, const char *function)
{
    if (sherd__alarmed(world))
        return;
    if (sherd__has_failed_locally(world))
        sherd__raise_local(world);
    else
        sherd__raise(world, SHERD_EINVAL,
                     "%s: it was given a tensor that an earlier step failed to make, or that not "
                     "all ranks made: make it anew",
                     function);
}

sherd_world *sherd__world_among(sherd_tensor *const *t, int count)
{
    for (int i = 0; t && i < count; i++)
        if (t[i])
            return t[i]->world;
    return NULL;
}

bool sherd__not_given(sherd_world *world, const char *function, const sherd__argument *list,
                      sherd_tensor **result)
{
    (void)sherd__require(sherd__world_diag(world), function, list);
    if (world)
        *result = sherd__fail_diag(world, true);
    return false;
}

/* For the first operand that is lost, or that failed. */
static void raise_first(sherd_world *world, const char *function, sherd_tensor *const *operands,
                        int count)
{
    for (int i = 0; i < count; i++)
        if (operands[i] && operands[i]->lost)
            sherd__raise_lost(operands[i], function);
    sherd__raise_failed(world, function);
}

bool sherd__stop(sherd_world *world, const char *function, sherd_tensor *const *operands, int count)
{
    bool failed = false, distributed = false;

    for (int i = 0; i < count; i++) {
        if (!operands[i])
            continue;
        failed |= sherd__is_failed(operands[i]);
        distributed |= operands[i]->layout != NULL;
    }
    /*
     * A plain failure stays local until something distributed meets it, or the check that reports
     * it has come.
     */
    if (failed && (distributed || !sherd__has_failed_locally(world)))
        raise_first(world, function, operands, count);
    return failed || (distributed && sherd__alarmed(world));
}

void sherd__raise_lost(sherd_tensor *t, const char *function)
{
    if (sherd__alarmed(t->world))
        return;
    if (t->lost == SHERD__HALF_WRITTEN)
        sherd__raise(t->world, SHERD_EINVAL,
                     "%s: %s was being written when an earlier step failed, and ranks may differ "
                     "in it: write it anew (sherd_fill, sherd_copy_from, sherd_module_load), or "
                     "take it as it is (sherd_tensor_revive)",
                     function, sherd_tensor_text(t));
    else
        sherd__raise_failed(t->world, function);
}
