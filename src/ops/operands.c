/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry of operators: who may look at its operands, and the texts of refusals. A refusal names the
 * function, the reason, and every operand with its layout.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/num.h"
#include "base/text.h"
#include "kernels/cast.h"
#include "operator.h"

bool sherd__any_distributed(sherd_tensor *const *in, int count)
{
    for (int i = 0; i < count; i++)
        if (in[i] && in[i]->layout)
            return true;
    return false;
}

int64_t sherd__local_count(const sherd_tensor *t, int first, int end)
{
    int64_t n = 1;

    for (int i = first; i < end; i++)
        n *= t->local[i];
    return n;
}

/* Long texts are cut here, so that the reason and every operand find room in one error. */
enum { OPERAND_BYTES = 100 };

static void describe(sherd__writer *w, const char *name, sherd_tensor *t)
{
    const char *text = t ? sherd_tensor_text(t) : "NULL";

    sherd__write(w, "%s is %.*s", name, OPERAND_BYTES, text ? text : "?");
}

sherd_tensor *sherd__refuse(const sherd__operands *o, sherd_status status, const char *format, ...)
{
    char reason[192], operands[320];
    sherd__writer w = {operands, sizeof operands, 0};
    sherd_world *world = NULL;
    va_list args;

    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    for (int i = 0; i < o->count; i++) {
        if (!o->in[i] && (o->optional >> i & 1))
            continue;
        if (w.length)
            sherd__write(&w, ", ");
        describe(&w, o->names[i], o->in[i]);
        if (!world && o->in[i])
            world = o->in[i]->world;
    }
    return sherd__fail_tensor(world, sherd__any_distributed(o->in, o->count), status, "%s: %s: %s",
                              o->function, reason, operands);
}

sherd_tensor *sherd__misfit(sherd_world *world, const char *name, sherd_tensor *const *in,
                            int count, const char *reason)
{
    char operands[320];
    sherd__writer w = {operands, sizeof operands, 0};

    for (int i = 0; i < count; i++)
        if (in[i])
            sherd__write(&w, "%s%.*s", w.length ? ", " : "", OPERAND_BYTES,
                         sherd_tensor_text(in[i]));
    return sherd__fail_tensor(world, sherd__any_distributed(in, count), SHERD_EINVAL,
                              "%s: %s: operands are %s", name, reason, operands);
}

bool sherd__enter(const sherd__operands *o, sherd_tensor **result)
{
    sherd_tensor *there[SHERD__OPERANDS];
    int count = 0;
    bool missing = false, foreign = false;

    for (int i = 0; i < o->count; i++) {
        if (o->in[i]) {
            foreign |= count && o->in[i]->world != there[0]->world;
            there[count++] = o->in[i];
        } else if (!(o->optional >> i & 1)) {
            missing = true;
        }
    }
    *result = count ? sherd__failed(there[0]->world) : NULL;
    if (!count || sherd__stop(there[0]->world, there, count))
        return false;
    if (missing || foreign)
        *result = sherd__refuse(o, SHERD_EINVAL,
                                missing ? "an operand is NULL" : "operands are of two worlds");
    return !missing && !foreign;
}

/* "3,17": global index of the i-th element of a local, contiguous piece. */
static void write_position(sherd__writer *w, const sherd_tensor *t, int64_t i)
{
    sherd_box box = sherd_tensor_box(t);
    int64_t index[SHERD_MAX_DIMS];

    for (int d = t->ndim - 1; d >= 0; d--) {
        index[d] = box.offset[d] + i % t->local[d];
        i /= t->local[d];
    }
    for (int d = 0; d < t->ndim; d++)
        sherd__write(w, "%s%lld", d ? "," : "", (long long)index[d]);
}

bool sherd__check_indices(const sherd__operands *o, int which, int64_t limit, sherd_tensor **result)
{
    sherd_tensor *t = sherd__contiguous(o->in[which]);
    const int32_t *id = sherd_tensor_failed(t) ? NULL : sherd__data(t);

    *result = sherd__failed(o->in[which]->world);
    if (t->count && !id)
        return false;
    for (int64_t i = 0; i < t->count; i++)
        if (id[i] < 0 || id[i] >= limit) {
            char at[SHERD_MAX_DIMS * 24];
            sherd__writer w = {at, sizeof at, 0};
            write_position(&w, t, i);
            *result = sherd__refuse(o, SHERD_EINVAL, "%s[%s] = %d is outside of [0,%lld)",
                                    o->names[which], at, (int)id[i], (long long)limit);
            return false;
        }
    return true;
}

bool sherd__scalar_value(sherd_tensor *t, double *value)
{
    const void *data = t->count ? sherd__data(t) : NULL;

    *value = 0;
    if (t->count == 0)
        return true;
    if (!data)
        return false;
    sherd__cast(SHERD_F64, t->dtype, 1, value, data);
    return true;
}
