/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes: functions that make or change distributed tensors note that in the ledger of their mesh.
 * So ranks that do different things are found at the next check, and after a failed check the
 * tensors that some ranks lack are lost on all of them (lost.c). A note costs a few nanoseconds.
 * The last are kept with what they were of (said.c).
 */
#include "tensor/state.h"

#include <string.h>

uint64_t sherd__attribute_double(uint64_t hash, double value)
{
    uint64_t word;

    memcpy(&word, &value, sizeof word);
    return sherd__attribute(hash, word);
}

/* Keep the first identity of a tensor: each write in place gives it another one. */
static void be_born(sherd_tensor *t)
{
    if (t->ledger.born)
        return;
    t->ledger.born_at = t->ledger.made;
    t->ledger.born = t->ledger.identity;
    if (t->storage && !t->storage->born)
        t->storage->born = t->ledger.born;
}

void sherd__note(const char *name, sherd_tensor *const *in, int ins, uint64_t attributes,
                 sherd_tensor *const *out, int outs)
{
    const sherd_layout *layout = out[0] ? out[0]->layout : NULL;
    uint64_t what, identity;

    if (out[0] && out[0]->storage && out[0]->storage->run)
        sherd__origin_pass(in, ins, out, outs);
    if (!layout)
        return;
    sherd__last_deeds *last = &sherd__tensors_of(out[0]->world)->said;
    sherd__said_deed *said = &last->deed[last->count % SHERD__SAID];
    what = attributes ^ (layout->hash + (uint64_t)out[0]->dtype);
    for (int i = 0; i < ins; i++) {
        uint64_t operand = in[i] ? in[i]->ledger.identity : SHERD__SAID_ABSENT;
        what = (what << 5 | what >> 59) + operand;
        if (i < SHERD__SAID_INS)
            said->in[i] = operand;
    }
    uint64_t made = sherd__deed_add(layout->spec.mesh, name, what, &identity);
    if (identity) {
        said->mesh = layout->spec.mesh;
        said->deed = made;
        said->identity = identity;
        said->name = name;
        said->op = NULL;
        said->attributes = attributes;
        said->layout = layout->hash;
        said->dtype = out[0]->dtype;
        said->ins = ins;
        last->count++;
    }
    for (int j = 0; j < outs && out[j]; j++) {
        out[j]->ledger.made = made;
        out[j]->ledger.identity = identity + (uint64_t)j;
        if (identity)
            be_born(out[j]);
    }
}

unsigned sherd__equal_axes(const sherd_layout *layout)
{
    unsigned all = (1u << layout->spec.mesh->axes) - 1;

    return all & ~layout->shard_axes & ~layout->pending_axes;
}
