/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor in another dtype: one pass over the local piece, nothing travels. What is pending may stay so where the
 * result has fractions: addends are rounded one by one. Cutting them off one by one would give another sum, so what
 * becomes integers or bool is settled first.
 */
#include "operator.h"

typedef struct cast_attrs {
    sherd_dtype from;
} cast_attrs;

/* Not recorded; t is contiguous. */
static bool convert(sherd_tensor *out, sherd_tensor *t)
{
    if (t->count == 0)
        return true;
    const void *src = sherd__data(t);
    if (!src)
        return false;
    sherd__convert(sherd__world_kernels(t->world), out->dtype, t->dtype, t->count,
                   sherd__fresh(out), src);
    return true;
}

sherd_tensor *sherd__cast_unrecorded(sherd_tensor *t, sherd_dtype dtype)
{
    sherd_world *world = t->world;

    if (sherd__stop(world, &t, 1))
        return sherd__failed(world);
    if (t->dtype == dtype)
        return t;
    sherd_tensor *out = t->layout ? sherd__new_on(t->layout, dtype)
                                  : sherd__new_plain(world, dtype, t->ndim, t->shape, t->varies);
    sherd_tensor *whole = sherd_tensor_failed(out) ? out : sherd__contiguous(t);
    bool good = !sherd_tensor_failed(whole) && convert(out, whole);
    if (whole != t && whole != out)
        sherd_tensor_release(whole);
    if (good)
        sherd__note_one("sherd_cast", t, 0, out);
    else
        sherd_tensor_release(out);
    return good ? out : sherd__failed(world);
}

/* The gradient may be pending: it has fractions. */
static void cast_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const cast_attrs *attrs = sherd__attrs(node);

    grad_in[0] = sherd__cast_unrecorded(grad_out[0], attrs->from);
}

static const sherd__backward cast_table = {"sherd_cast", true, cast_back};

sherd_tensor *sherd_cast(sherd_tensor *t, sherd_dtype dtype)
{
    static const char *const names[] = {"t"};
    sherd_tensor *failed;
    sherd__operands o = {cast_table.name, names, &t, 1, 0};

    if (!sherd__enter(&o, &failed))
        return failed;
    if (sherd_dtype_bytes(dtype) == 0)
        return sherd__refuse(&o, SHERD_EINVAL, "%s (%d) is no dtype to cast to",
                             sherd_dtype_name(dtype), (int)dtype);
    if (t->dtype == dtype)
        return t;
    if (!sherd__has_fractions(dtype))
        t = sherd__without_pending(t);
    sherd_tensor *y = sherd__cast_unrecorded(t, dtype);
    if (sherd_tensor_failed(y))
        return y;
    cast_attrs attrs = {t->dtype};
    sherd__record_node(t->world, &cast_table, &t, 1, &y, 1, &attrs, sizeof attrs);
    return y;
}
