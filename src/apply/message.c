/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error texts of refused calls: the operator, the reason, and every operand with its layout, in one
 * line.
 */
#include "door.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/text.h"
#include "world/doing.h"

/* Long texts are cut here, so that the reason and the operands find room in one error. */
enum { OPERAND_BYTES = 100, OPERANDS_BYTES = 320 };

const char *sherd_call_reason(sherd_call *call, const char *format, ...)
{
    sherd__run *run = (sherd__run *)(void *)call;
    va_list args;

    if (!call || !format)
        return "no reason is given";
    va_start(args, format);
    vsnprintf(run->reason, sizeof run->reason, format, args);
    va_end(args);
    return run->reason;
}

static const char *text_of(sherd_tensor *t)
{
    return t ? sherd_tensor_text(t) : "NULL";
}

/* "x is f32[8,4], weight is NULL", as they were passed; whether one of them is distributed. */
static bool write_operands(const sherd_call *call, char out[OPERANDS_BYTES])
{
    const sherd__run *run = (const sherd__run *)(const void *)call;
    sherd__writer w = {out, OPERANDS_BYTES, 0};
    bool distributed = false;

    out[0] = '\0';
    for (int i = 0; i < call->operands; i++) {
        const sherd_op_slot *slot = sherd__slot(call->op, i);
        sherd_tensor *given = i < run->given_count ? run->given[i] : NULL;
        distributed |= (given && given->layout) || (call->in[i] && call->in[i]->layout);
        if (!given && (slot->flags & SHERD_OP_OPTIONAL))
            continue;
        sherd__write(&w, "%s%s is %.*s", w.length ? ", " : "", slot->name ? slot->name : "it",
                     OPERAND_BYTES, text_of(given));
    }
    return distributed;
}

/*
 * The call that the program has made, of which this one is a part; NULL: this is it. An operator
 * that is composed of others is known by its own name and operands only.
 */
static const sherd_call *made_by(const sherd_call *call)
{
    const sherd__ops *ops = sherd__ops_of(call->world);
    const sherd_call *outer = ops ? ops->composed : NULL;

    return outer && outer != call && strcmp(outer->op->name, call->op->name) != 0 ? outer : NULL;
}

/* Whether a name is the other's, with a word for a part: "sherd_quantile places". */
static bool is_part_of(const char *name, const char *whole)
{
    size_t n = strlen(whole);

    return strncmp(name, whole, n) == 0 && name[n] == ' ';
}

/* Whether it is one of several operators of a function: "sherd_attention_general". */
static bool is_kind_of(const char *name, const char *function)
{
    size_t n = strlen(function);

    return n > 0 && strncmp(name, function, n) == 0 && name[n] == '_';
}

/* The function that the program has called comes first, where that is not the operator. */
void sherd__refuse(const sherd_call *call, sherd_status status, const char *format, ...)
{
    char reason[SHERD__REASON_BYTES], operands[OPERANDS_BYTES];
    const sherd_call *outer = made_by(call);
    va_list args;

    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    bool distributed = write_operands(call, operands);
    if (outer)
        write_operands(outer, operands);
    bool part = outer && is_part_of(call->op->name, outer->op->name);
    const char *around = sherd__doing_around(call->world, outer ? outer->op->name : call->op->name);
    bool kind = !outer && is_kind_of(call->op->name, around);
    sherd__fail_tensor(call->world, distributed, status, "%s%s%s%s%s: %s: %s", around,
                       *around && !kind ? ": " : "", outer ? outer->op->name : "",
                       outer && !part ? ": " : "", part || kind ? "" : call->op->name,
                       *reason ? reason : "it failed and did not say why", operands);
}

void sherd__refuse_diag(const sherd_call *call, const char *reason)
{
    char operands[OPERANDS_BYTES];

    write_operands(call, operands);
    sherd__fail(sherd__world_diag(call->world), SHERD_EINVAL, "%s: %s: %s", call->op->name, reason,
                operands);
}

bool sherd_call_fail(sherd_call *call, sherd_status status, const char *format, ...)
{
    char reason[SHERD__REASON_BYTES] = "failed";
    va_list args;

    if (!call)
        return false;
    va_start(args, format);
    if (format)
        vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (status >= SHERD_OK || status < SHERD_ELIMIT) /* an operator cannot close the world */
        status = SHERD_EINVAL;
    sherd__refuse(call, status, "%s", reason);
    return false;
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

enum { INDICES_AT_ONCE = 512 };

/* Without a branch for each, so that vectors compare. */
static bool are_below(const int32_t *id, uint32_t end)
{
    uint32_t outside = 0;

    for (int i = 0; i < INDICES_AT_ONCE; i++)
        outside |= (uint32_t)id[i] >= end;
    return !outside;
}

/* The first element that is neither in [0, limit) nor one of `also`; -1: there is none. */
static int64_t find_wrong(const sherd_tensor *t, const int32_t *id, int64_t limit,
                          const int32_t *also)
{
    const uint32_t end = (uint32_t)sherd__min(limit, (int64_t)INT32_MAX + 1);

    for (int64_t lo = 0, hi; lo < t->count; lo = hi) {
        hi = sherd__min(lo + INDICES_AT_ONCE, t->count);
        if (hi - lo == INDICES_AT_ONCE && are_below(id + lo, end))
            continue;
        for (int64_t i = lo; i < hi; i++)
            if ((id[i] < 0 || id[i] >= limit) && !(also && id[i] == *also))
                return i;
    }
    return -1;
}

bool sherd__check_indices_or(sherd_call *call, int which, int64_t limit, const int32_t *also)
{
    const sherd_tensor *t = call->in[which];

    if (sherd__is_dry(call->world)) /* what operators have computed is not there */
        return true;
    /* On a GPU too they are looked at here, where they mostly come from. */
    const int32_t *id =
        sherd__device_in(call) && t->count ? sherd__data(call->in[which]) : call->from[which];
    int64_t wrong = !id && t->count ? -1 : find_wrong(t, id, limit, also);
    char at[SHERD_MAX_DIMS * 24] = ""; /* of a scalar nothing is written */
    sherd__writer w = {at, sizeof at, 0};

    if (wrong < 0)
        return id || !t->count;
    write_position(&w, t, wrong);
    return sherd_call_fail(call, SHERD_EINVAL, "%s[%s] = %d is outside of [0,%lld)",
                           sherd__slot(call->op, which)->name, at, (int)id[wrong],
                           (long long)limit);
}

bool sherd__check_indices(sherd_call *call, int which, int64_t limit)
{
    return sherd__check_indices_or(call, which, limit, NULL);
}

/* ---- dtypes ---------------------------------------------------------------------------------- */

/* What both fit into, as PyTorch promotes them: fractions before integers, the wider of each. */
static sherd_dtype wider_of(sherd_dtype a, sherd_dtype b)
{
    static const sherd_dtype order[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16, SHERD_I64,
                                        SHERD_I32, SHERD_U8,  SHERD_I8,   SHERD_BOOL};
    int i = 0;

    if (sherd__is_half(a) && sherd__is_half(b))
        return SHERD_F32;
    if ((a == SHERD_U8 && b == SHERD_I8) || (a == SHERD_I8 && b == SHERD_U8))
        return SHERD_I32;
    while (order[i] != a && order[i] != b)
        i++;
    return order[i];
}

/* The first operand whose dtype counts, which those before i share. */
static const char *first_name(const sherd_call *call)
{
    enum { APART = SHERD_OP_INDEX | SHERD_OP_BOOL | SHERD_OP_ANY };
    int j = 0;

    while (!call->in[j] || (sherd__slot(call->op, j)->flags & APART))
        j++;
    return sherd__slot(call->op, j)->name;
}

const char *sherd__say_cast(sherd_call *call, int i, sherd_dtype before)
{
    sherd_dtype now = call->in[i]->dtype, to = wider_of(before, now);
    const char *name = to == now      ? first_name(call)
                       : to == before ? sherd__slot(call->op, i)->name
                                      : "both";

    return sherd_call_reason(call, "dtypes differ: cast %s to %s (sherd_cast)", name,
                             sherd_dtype_name(to));
}
