/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What access to elements (data.c, mirror.c) and their making (later.c) are made of: where the
 * first element is, and what is noted of a write: a new version, a new origin, and the deed in the
 * ledger that the contents now belong to.
 */
#include "tensor/state.h"

/*
 * The first element of the view. A tensor without elements has no block: then the pointer is valid
 * for zero elements.
 */
void *sherd__fresh(sherd_tensor *t)
{
    size_t element = sherd_dtype_bytes(t->dtype);

    if (!t->storage->block)
        return sherd__tensors_of(t->world);
    return (char *)sherd__block_data(t->storage->block) + (size_t)t->offset * element;
}

void sherd__mark_written(sherd_tensor *t)
{
    t->storage->version++;
    sherd__origin_written(t);
    sherd__drop_image(t->storage);
}

void sherd__mark_deed(const sherd_tensor *t)
{
    const sherd_mesh *mesh = t->layout->spec.mesh;

    if (t->storage->family && sherd__tensors_of(t->world)->families) {
        sherd__deed_writes(mesh, t->storage->family);
        return;
    }
    sherd__deed_writes(mesh, t->ledger.born);
    sherd__deed_writes(mesh, t->storage->born);
}

void sherd__await_deed(sherd_tensor *t)
{
    if (!t->layout)
        return;
    t->ledger.made = sherd__deed_count(t->layout->spec.mesh) + 1;
    sherd__mark_deed(t);
}
