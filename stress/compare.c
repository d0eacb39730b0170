/* SPDX-License-Identifier: Apache-2.0 */
/* Elements: how they are stored, and comparing all that a rank holds with what it must be. */
#include "run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- storing and loading --------------------------------------------------------------------- */

static uint16_t half_of(double x)
{
    int exponent;
    double m = frexp(fabs(x), &exponent); /* m in [0.5, 1) */

    if (x == 0)
        return 0;
    return (uint16_t)((x < 0) << 15 | (exponent + 14) << 10 | ((int)(m * 2048) & 1023));
}

static double of_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = exponent ? ldexp(fraction + 1024, exponent - 25) : ldexp(fraction, -24);

    return bits >> 15 ? -x : x;
}

void store_element(sherd_dtype dtype, void *data, int64_t i, double x)
{
    float f = (float)x;
    uint32_t bits;

    switch (dtype) {
    case SHERD_F32:
        ((float *)data)[i] = f;
        return;
    case SHERD_F64:
        ((double *)data)[i] = x;
        return;
    case SHERD_BF16:
        memcpy(&bits, &f, sizeof bits);
        ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        return;
    case SHERD_F16:
        ((uint16_t *)data)[i] = half_of(x);
        return;
    case SHERD_I32:
        ((int32_t *)data)[i] = (int32_t)x;
        return;
    case SHERD_I64:
        ((int64_t *)data)[i] = (int64_t)x;
        return;
    case SHERD_I8:
        ((int8_t *)data)[i] = (int8_t)x;
        return;
    default:
        ((uint8_t *)data)[i] = (uint8_t)x;
    }
}

double load_element(sherd_dtype dtype, const void *data, int64_t i)
{
    uint32_t bits;
    float f;

    switch (dtype) {
    case SHERD_F32:
        return ((const float *)data)[i];
    case SHERD_F64:
        return ((const double *)data)[i];
    case SHERD_BF16:
        bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        memcpy(&f, &bits, sizeof f);
        return f;
    case SHERD_F16:
        return of_half(((const uint16_t *)data)[i]);
    case SHERD_I32:
        return ((const int32_t *)data)[i];
    case SHERD_I64:
        return (double)((const int64_t *)data)[i];
    case SHERD_I8:
        return ((const int8_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

/* ---- comparing ------------------------------------------------------------------------------- */

void say_wrong(runner *u, const char *format, ...)
{
    char what[256] = "";
    va_list arguments;
    size_t at;

    if (u->me->wrong[0])
        return;
    if (u->p && u->at < u->p->ops)
        op_text(u->p, &u->p->op[u->at], what, sizeof what);
    at = (size_t)snprintf(u->me->wrong, sizeof u->me->wrong,
                          "rank %d, operation %d (%s): ", u->rank, u->at, what);
    va_start(arguments, format);
    if (at < sizeof u->me->wrong)
        vsnprintf(u->me->wrong + at, sizeof u->me->wrong - at, format, arguments);
    va_end(arguments);
}

/* The whole tensor as this rank makes it alone, with the library's plain operators. */
static const void *made_alone(runner *u, const numbers *v, sherd_dtype dtype)
{
    sherd_generator g = {v->name, v->call};
    sherd_tensor *t;

    if (v->kind == VALUE_DRAWN)
        return sherd_tensor_read(
            sherd_random(u->world, dtype, v->shape, v->ndim, sherd_uniform(0, 1), &g));
    t = sherd_constant(u->world, dtype, v->shape, v->ndim, 0);
    void *data = sherd_tensor_write(t);
    for (int64_t i = 0; data && i < v->count; i++)
        store_element(dtype, data, i, v->x[i]);
    return sherd_tensor_read(sherd_dropout(t, v->p, &g));
}

typedef struct place {
    int64_t at[DIMS], index;
} place;

/* The next element of a box, and its index in the whole. */
static void step(place *p, const sherd_box *box, const int64_t *shape)
{
    p->index = 0;
    for (int d = box->ndim - 1; d >= 0 && ++p->at[d] == box->size[d]; d--)
        p->at[d] = 0;
    for (int d = 0; d < box->ndim; d++)
        p->index = p->index * shape[d] + box->offset[d] + p->at[d];
}

static void compare_box(runner *u, sherd_tensor *t, const numbers *v, const void *data,
                        const void *wanted)
{
    sherd_box box = sherd_tensor_box(t);
    sherd_dtype dtype = sherd_tensor_dtype(t);
    int64_t count = 1;
    place p = {{0}, 0};

    for (int d = 0; d < box.ndim; d++) {
        count *= box.size[d];
        p.index = p.index * v->shape[d] + box.offset[d];
    }
    for (int64_t i = 0; i < count; i++, step(&p, &box, v->shape)) {
        double x = load_element(dtype, data, i);
        double y = wanted ? load_element(dtype, wanted, p.index) : v->x[p.index];
        if (x == y)
            continue;
        say_wrong(u, "element %lld of %s is %g, not %g", (long long)p.index, sherd_tensor_text(t),
                  x, y);
        return;
    }
    u->me->elements += count;
}

static bool has_shape(const sherd_tensor *t, const numbers *v)
{
    return sherd_tensor_ndim(t) == v->ndim &&
           memcmp(sherd_tensor_shape(t), v->shape, (size_t)v->ndim * sizeof *v->shape) == 0;
}

void compare(runner *u, sherd_tensor *t, int i)
{
    const numbers *v = &u->p->value[i];
    const void *data = sherd_tensor_read(t), *wanted = NULL;

    if (!data)
        u->must_fail = true;
    if (!data || u->blind || i < 0)
        return;
    if (!has_shape(t, v)) {
        say_wrong(u, "%s is of another shape", sherd_tensor_text(t));
        return;
    }
    sherd_scope_begin(u->world);
    if (v->kind != VALUE_KNOWN)
        wanted = made_alone(u, v, sherd_tensor_dtype(t));
    if (v->kind == VALUE_KNOWN || wanted)
        compare_box(u, t, v, data, wanted);
    else
        u->must_fail = true;
    sherd_scope_end(u->world);
}
