/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is noted of an operator call that has computed its results: in the ledger, and, if a
 * gradient may come, on the tape, with the tensors that backward needs.
 */
#include "door.h"
#include "autograd/replay.h"
#include "tensor/said.h"

/*
 * Whether this is an operator that only backwards use, called in a backward that is recorded
 * (create_graph). It is recorded although it has no backward of its own, so that a gradient that
 * reaches it is an error, and not silently lost.
 */
static bool is_of_backward(const sherd__run *run)
{
    const sherd_op *op = run->call.op;

    if (!sherd__makes_graph(run->call.world) || !run->own)
        return false;
    for (int i = 0; sherd__operators[i]; i++)
        if (sherd__operators[i] == op)
            return false; /* a public operator; without a backward it is not differentiable */
    return true;
}

/*
 * A part of an operator that is composed of others has the name and the attributes of the whole,
 * which is what the program has called. The attributes count in each of the parts, so that ranks
 * which differ in them are told so, and not that they do other parts later.
 */
void sherd__note_call(const sherd_call *call, sherd_tensor *const *in, int ins, uint64_t what)
{
    const sherd_call *outer = sherd__ops_of(call->world)->composed, *said = outer ? outer : call;
    bool shared = call->out[0]->layout != NULL;

    if (outer && shared)
        what = sherd__hash_word(what, sherd__hash_fields(outer->op, outer->attributes));
    sherd__note(said->op->name, in, ins, what, call->out, call->results);
    if (shared)
        sherd__say_call(call->out[0], said->op, said->attributes, outer != NULL);
}

/*
 * In the ledger. A handler below the tape may compute something else, so either all ranks have
 * replaced forward, or none.
 */
static void note(sherd__run *run)
{
    sherd_call *call = &run->call;
    uint64_t what = call->out[0]->layout ? sherd__attributes_hash(run) : 0;
    int noted = call->operands;

    if (run->adds)
        run->arg[noted++] = run->into.tensor;
    sherd__note_call(call, run->arg, noted, run->replaced ? ~what : what);
}

void sherd__record(sherd__run *run)
{
    sherd_call *call = &run->call;
    const sherd_op *op = call->op;
    uint64_t needs = 0;

    note(run);
    sherd_node *node =
        op->backward || is_of_backward(run)
            ? sherd__record_node(call->world, op, run->arg, call->operands, call->out, run->visible,
                                 call->attributes, op->attributes)
            : NULL;
    if (!node)
        return;
    for (int i = 0; i < call->operands; i++)
        if (sherd_node_wants(node, i))
            needs |= op->needs[sherd__slot_number(op, i)];
    for (int i = 0; needs && i < call->operands; i++)
        if (needs & SHERD_NEEDS_OPERAND(sherd__slot_number(op, i)))
            sherd__save(node, i, run->arg[i]);
    for (int j = 0; needs && j < call->results; j++)
        if (needs & SHERD_NEEDS_RESULT(j))
            sherd__save(node, call->operands + j, call->out[j]);
    if (!op->views && !run->into.tensor)
        sherd__keep_results(node, call->out, call->results);
}
