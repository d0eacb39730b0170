/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one element of a tensor that has one, on every rank, as a number of the program's. Costs a
 * move, unless all ranks have the element already.
 */
#include "tensor/state.h"

#include <math.h>

#include "kernels/cast.h"

/* The tensor itself, or a copy of it on every rank, which the caller releases. */
static sherd_tensor *everywhere(sherd_tensor *t)
{
    const sherd_layout *whole;

    if (!t->layout)
        return t;
    if (sherd__replicated(&whole, t->layout->spec.mesh, t->ndim, t->shape) != SHERD_OK)
        return sherd__fail_diag(t->world, true);
    return sherd__move_to(t, whole, false);
}

double sherd_item(sherd_tensor *t)
{
    double value = NAN;

    if (!t || sherd__stop(t->world, "sherd_item", &t, 1))
        return NAN;
    if (sherd_tensor_count(t) != 1) {
        sherd__fail_tensor(t->world, t->layout != NULL, SHERD_EINVAL,
                           "sherd_item: %s has not one element", sherd_tensor_text(t));
        return NAN;
    }
    sherd_tensor *whole = everywhere(t);
    const void *data = sherd__data(whole);
    if (data && whole->count == 1)
        sherd__cast(SHERD_F64, whole->dtype, 1, &value, data);
    if (whole != t)
        sherd_tensor_release(whole);
    return value;
}
