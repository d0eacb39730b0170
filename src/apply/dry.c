/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators in a dry world: instead of forward, count what it would compute, and do what it does
 * besides that (calls, scratch). Costs a few tens of nanoseconds a call.
 */
#include "door.h"

/* Bytes of a tensor's piece; 0 of an absent operand. */
static int64_t bytes_of(const sherd_tensor *t)
{
    return t ? sherd__local_bytes(t) : 0;
}

static int64_t larger(int64_t most, const sherd_tensor *t)
{
    return t && t->count > most ? t->count : most;
}

static void count(sherd__run *run)
{
    const sherd_call *call = &run->call;
    int64_t bytes = 0, most = 0;

    for (int i = 0; i < call->operands; i++) {
        bytes += bytes_of(call->in[i]);
        most = larger(most, call->in[i]);
    }
    for (int j = 0; j < call->results; j++) {
        bytes += bytes_of(call->out[j]);
        most = larger(most, call->out[j]);
    }
    double operations = call->op->operations ? call->op->operations(call) : (double)most;
    sherd__left_out(call->world, call->op->name, run->dtype, operations, bytes);
}

bool sherd__rehearse(sherd__run *run)
{
    sherd_call *call = &run->call;

    if (call->op->views) /* forward only computes strides */
        return call->op->forward(call);
    count(run);
    return !call->op->dry || call->op->dry(call);
}
