/* SPDX-License-Identifier: Apache-2.0 */
/* What can not be written in place, and why: the texts of sherd_add_to and its kin. */
#include "inplace.h"

#include <stdio.h>

#include "kernels/cast.h"

static bool broadcasts(const sherd_tensor *b, const sherd_tensor *a)
{
    int skipped = a->ndim - b->ndim;
    bool good = skipped >= 0;

    for (int d = 0; d < b->ndim && good; d++)
        good = b->shape[d] == 1 || b->shape[d] == a->shape[skipped + d];
    return good;
}

bool sherd__is_expanded(const sherd_tensor *a)
{
    bool expanded = false;

    for (int d = 0; d < a->ndim && a->count; d++)
        expanded |= a->local[d] > 1 && a->stride[d] == 0;
    return expanded;
}

static const char *fault_of_operands(const sherd__write_in *w)
{
    const sherd_tensor *a = w->a, *b = w->b;

    if (w->kind != SHERD__WRITE_COPY && a->dtype != b->dtype)
        return "dtypes differ: cast b to that of a (sherd_cast)";
    if (w->kind == SHERD__WRITE_ADD_SCALED && !sherd__has_fractions(a->dtype))
        return "a has no fractions: its dtype must be f32, f64, bf16 or f16";
    if (!broadcasts(b, a))
        return "b does not broadcast to the shape of a";
    if (b->layout && !a->layout)
        return "b is distributed and a is not";
    if (b->layout && b->layout->spec.mesh != a->layout->spec.mesh)
        return "a and b lie on two meshes";
    return NULL;
}

/* Why the dtype cannot take the number, with the number, in `text`. */
static const char *fault_of_value(const sherd__write_in *w, char *text, size_t room)
{
    if (sherd__holds(w->a->dtype, w->value))
        return NULL;
    snprintf(text, room, "%.15g is no %s", w->value, sherd_dtype_name(w->a->dtype));
    return text;
}

const char *sherd__write_fault(const sherd__write_in *w, char *text, size_t room)
{
    const char *reason = w->b ? fault_of_operands(w) : fault_of_value(w, text, room);
    sherd_tensor *both[] = {w->a, w->b};

    if (reason)
        return reason;
    if (sherd__is_expanded(w->a))
        return "a is a stretched view: one of its elements stands for many";
    if (!sherd__is_recorded(w->a->world, both, 2))
        return NULL;
    return w->a->autograd.requires_grad && !w->a->autograd.node
               ? "a is a leaf that wants a gradient: stop recording (sherd_set_recording) to write "
                 "it"
               : "a gradient would be lost: stop recording (sherd_set_recording), or use an "
                 "operator that makes a new tensor";
}

/*
 * Only into a pending sum can one rank write for all; a factor may also be applied to a pending
 * average.
 */
bool sherd__can_be_written(const sherd__write_in *w)
{
    const sherd_layout *layout = w->a->layout;
    bool good = true;

    for (int x = 0; layout && x < layout->spec.mesh->axes; x++)
        good &=
            layout->spec.pending[x] <=
            (w->kind == SHERD__WRITE_MULTIPLY || w->kind == SHERD__WRITE_SCALE ? (int)SHERD_AVG
                                                                               : (int)SHERD_SUM);
    return good;
}
