/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guard around functions that may do anything: the forward of a user's operator, handlers, and
 * every compose. Tensors that they leave behind belong to the call's scope. What later steps go by
 * (op, attributes, operands, results) is restored; a result that was replaced is refused; a handler
 * may change `in`, which nothing reads after it. A few nanoseconds; the forward of a library's
 * operator runs without.
 */
#include "door.h"

#include <string.h>

void sherd__guard_begin(sherd__guard *guard, sherd__run *run)
{
    const sherd_call *call = &run->call;

    sherd__open(run);
    guard->op = call->op;
    guard->attributes = call->attributes;
    guard->operands = call->operands;
    guard->results = call->results;
    memcpy(guard->in, call->in, (size_t)call->operands * sizeof *call->in);
    memcpy(guard->out, call->out, (size_t)call->results * sizeof *call->out);
    guard->floor = sherd__scope_fence(call->world);
}

void sherd__guard_end(const sherd__guard *guard, sherd__run *run)
{
    sherd__scope_leave(run->call.world, guard->floor);
    run->call.op = guard->op;
    run->call.attributes = guard->attributes;
    run->call.operands = guard->operands;
    run->call.results = guard->results;
}

/* Whether all elements of this rank's piece lie in its storage. */
static bool is_inside(const sherd_tensor *t)
{
    int64_t first = t->offset, last = t->offset, reach;
    int64_t elements = t->storage->bytes / (int64_t)sherd_dtype_bytes(t->dtype);

    for (int d = 0; d < t->ndim && t->count > 0; d++) {
        if (__builtin_mul_overflow(t->stride[d], t->local[d] - 1, &reach))
            return false;
        int64_t *end = reach < 0 ? &first : &last;
        if (__builtin_add_overflow(*end, reach, end))
            return false;
    }
    return t->count == 0 || (first >= 0 && last < elements);
}

/* Make a view that reaches beyond its storage empty, so that nobody reads through it. */
static void empty(sherd_tensor *view)
{
    view->offset = 0;
    view->count = 0;
    memset(view->local, 0, sizeof view->local);
    memset(view->stride, 0, sizeof view->stride);
    view->ledger.made = view->ledger.identity = 0;
}

static bool check_view(const sherd_call *call, int j, bool good)
{
    sherd_tensor *view = call->out[j];

    if (is_inside(view))
        return good;
    empty(view);
    if (good)
        sherd__refuse(call, SHERD_EINVAL,
                      "what sherd_call_view says of %s reaches beyond the storage of %s",
                      call->op->result[j].name, call->op->operand[0].name);
    return false;
}

bool sherd__guard_results(const sherd__guard *guard, sherd__run *run, bool good)
{
    sherd_call *call = &run->call;
    size_t bytes = (size_t)call->results * sizeof *call->out;

    if (memcmp(call->out, guard->out, bytes) != 0) {
        memcpy(call->out, guard->out, bytes);
        if (good)
            sherd__refuse(call, SHERD_EINVAL,
                          "it has replaced a tensor of call->out: results are written to call->to");
        good = false;
    }
    for (int j = 0; j < call->results && call->op->views; j++)
        good = check_view(call, j, good);
    return good;
}
