/* SPDX-License-Identifier: Apache-2.0 */
/* What forward may ask of its call: room for scratch, shapes and views of results, its GPU. */
#include "operator.h"

#include <string.h>

/* Scratch is plain, so its failure is local; if an operand is distributed, raise the alarm. */
static void tell(sherd_call *call, sherd_tensor *failed)
{
    for (int i = 0; i < call->operands; i++)
        if (call->in[i] && call->in[i]->layout)
            sherd__stop(call->world, call->op->name, (sherd_tensor *[]){failed, call->in[i]}, 2);
}

void *sherd_call_scratch(sherd_call *call, int64_t bytes)
{
    sherd__run *run = (sherd__run *)(void *)call;

    if (!call)
        return NULL;
    if (bytes < 0 || bytes >> 62) {
        sherd__refuse(call, bytes < 0 ? SHERD_EINVAL : SHERD_ELIMIT,
                      "sherd_call_scratch: %lld bytes%s", (long long)bytes,
                      bytes < 0 ? "" : " are 2^62 or more");
        return NULL;
    }
    sherd__open(run);
    sherd_tensor *t = sherd__new_plain(call->world, SHERD_U8, 1, &bytes, 0);
    if (!sherd_tensor_failed(t))
        return sherd__fresh(t);
    tell(call, t);
    return NULL;
}

void sherd_call_shape(sherd_call *call, int j, int ndim, const int64_t *shape)
{
    if (!call || j < 0 || j >= call->results || ndim < 0 || ndim > SHERD_MAX_DIMS)
        return;
    call->ndim[j] = ndim;
    if (shape && shape != call->shape[j])
        memcpy(call->shape[j], shape, (size_t)ndim * sizeof *shape);
}

void sherd_call_view(sherd_call *call, int j, const int64_t *stride, int64_t offset)
{
    if (!call || j < 0 || j >= call->results || !stride)
        return;
    sherd_tensor *view = call->out[j];
    memcpy(view->stride, stride, (size_t)view->ndim * sizeof *stride);
    if (__builtin_add_overflow(call->in[0]->offset, offset, &view->offset))
        view->offset = -1; /* outside the storage: guard.c refuses it */
}

/* ---- on a GPU -------------------------------------------------------------------------------- */

bool sherd__fractions_there(const sherd_call *call)
{
    return sherd__device_computes(((const sherd__run *)(const void *)call)->dtype);
}

/* What only moves elements goes where the first operand is: the others are mostly indices. */
bool sherd__copies_there(const sherd_call *call)
{
    for (int i = 0; i < call->operands; i++)
        if (call->in[i] && call->in[i]->count)
            return sherd__fractions_there(call) || sherd__is_only_there(call->in[i]);
    return sherd__fractions_there(call);
}

/* What computes goes where any operand is, so that none is brought back. */
bool sherd__numbers_there(const sherd_call *call)
{
    bool there = sherd__fractions_there(call), empty = true;

    for (int i = 0; i < call->operands && !there; i++)
        if (call->in[i] && call->in[i]->count) {
            empty = false;
            there = sherd__is_only_there(call->in[i]);
        }
    return there || empty;
}

void *sherd_call_stream(const sherd_call *call)
{
    sherd__device *device = call ? sherd__device_in(call) : NULL;

    return device ? sherd__device_stream(device) : NULL;
}

void *sherd__device_scratch(sherd_call *call, int64_t bytes)
{
    sherd__run *run = (sherd__run *)(void *)call;

    sherd__open(run);
    sherd_tensor *t = sherd__new_plain_there(call->world, SHERD_U8, 1, &bytes, 0, true);
    if (!sherd_tensor_failed(t))
        return sherd__device_fresh(t);
    tell(call, t);
    return NULL;
}
