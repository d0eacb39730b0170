/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Number sequences, identity matrices, and distributions for weights. Each element is a function of
 * its index (later.c), so each rank makes its own box and nothing is sent.
 */
#include "tensor/state.h"

#include <math.h>

#include "base/dtype.h"
#include "kernels/cast.h"
#include "sherd/values.h"

/* A plain tensor, or one on a layout. */
typedef struct target {
    const char *function;
    sherd_world *world;
    const sherd_layout *layout; /* NULL: plain */
    int ndim;
    int64_t shape[2];
} target;

static target on(const char *function, const sherd_layout *layout)
{
    target t = {.function = function, .layout = layout};

    t.world = layout ? sherd__space_world(layout->space) : NULL;
    t.ndim = sherd_layout_ndim(layout);
    for (int d = 0; d < t.ndim && d < 2; d++)
        t.shape[d] = layout->spec.shape[d];
    return t;
}

static sherd_tensor *refuse(const target *t, const char *reason)
{
    return sherd__fail_tensor(t->world, t->layout != NULL, SHERD_EINVAL, "%s: %s%s%s", t->function,
                              reason, t->layout ? ": " : "",
                              t->layout ? sherd_layout_text(t->layout) : "");
}

static sherd_tensor *make(const target *t, int ndim, const char *fault, const sherd__values *values)
{
    sherd_tensor *out;

    if (!t->layout && !fault &&
        !sherd__is_plain_shape(t->world, t->function, values->dtype, t->shape, ndim))
        return sherd__failed(t->world);
    if (!fault && sherd_dtype_bytes(values->dtype) == 0)
        fault = "there is no such dtype";
    if (t->layout && t->ndim != ndim)
        fault = ndim == 1 ? "the layout must have one dim" : "the layout must have two dims";
    else if (t->layout && t->layout->pending_axes)
        fault = "the layout has a pending reduction";
    if (fault)
        return refuse(t, fault);
    out = t->layout ? sherd__made_on(t->function, t->layout, values->dtype)
                    : sherd__made_plain(t->function, t->world, values->dtype, ndim, t->shape, 0);
    if (out->storage) {
        sherd__draw(out, values);
        sherd__note_values(t->function, sherd__values_hash(values), values, out);
    }
    return out;
}

/* ---- counting -------------------------------------------------------------------------------- */

/* Whether all n values of a sequence fit the dtype. */
static const char *fault_of_steps(const sherd__values *v, int64_t n)
{
    double last = v->start + (double)(n > 0 ? n - 1 : 0) * v->step;

    if (!isfinite(v->start) || !isfinite(v->step))
        return "start and step must be numbers";
    if (v->dtype == SHERD_BOOL)
        return "there is no counting in bool";
    if (sherd__has_fractions(v->dtype))
        return NULL;
    return v->start == floor(v->start) && v->step == floor(v->step) && fabs(v->step) < 0x1p62 &&
                   sherd__holds(v->dtype, v->start) && sherd__holds(v->dtype, last)
               ? NULL
               : "the dtype does not hold these numbers";
}

sherd_tensor *sherd_arange(sherd_world *world, sherd_dtype dtype, double start, double end,
                           double step)
{
    const sherd__values values = {
        .dtype = dtype, .kind = SHERD__STEPS, .start = start, .step = step};
    target t = {.function = "sherd_arange", .world = world};
    double steps = (end - start) / step;

    if (!world)
        return NULL;
    if (step == 0 || !(steps >= 0)) /* NaN too */
        return refuse(&t, "the step leads away from end, or nowhere");
    t.shape[0] = steps < 0x1p62 ? (int64_t)ceil(steps) : INT64_MAX;
    return make(&t, 1, sherd_dtype_bytes(dtype) ? fault_of_steps(&values, t.shape[0]) : NULL,
                &values);
}

sherd_tensor *sherd_arange_on(const sherd_layout *layout, sherd_dtype dtype, double start,
                              double step)
{
    const sherd__values values = {
        .dtype = dtype, .kind = SHERD__STEPS, .start = start, .step = step};
    target t = on("sherd_arange_on", layout);

    if (!layout)
        return NULL;
    return make(&t, 1, sherd_dtype_bytes(dtype) ? fault_of_steps(&values, t.shape[0]) : NULL,
                &values);
}

static sherd_tensor *spaced(const target *t, sherd_dtype dtype, double start, double end)
{
    const sherd__values values = {
        .dtype = dtype, .kind = SHERD__BETWEEN, .start = start, .end = end, .count = t->shape[0]};

    return make(t, 1,
                sherd__has_fractions(dtype)
                    ? NULL
                    : "the dtype must have fractions (f32, f64, bf16 or f16)",
                &values);
}

sherd_tensor *sherd_linspace(sherd_world *world, sherd_dtype dtype, double start, double end,
                             int64_t count)
{
    target t = {.function = "sherd_linspace", .world = world, .shape = {count}};

    return world ? spaced(&t, dtype, start, end) : NULL;
}

sherd_tensor *sherd_linspace_on(const sherd_layout *layout, sherd_dtype dtype, double start,
                                double end)
{
    target t = on("sherd_linspace_on", layout);

    return layout ? spaced(&t, dtype, start, end) : NULL;
}

sherd_tensor *sherd_eye(sherd_world *world, sherd_dtype dtype, int64_t rows, int64_t columns)
{
    const sherd__values values = {.dtype = dtype, .kind = SHERD__DIAGONAL, .count = columns};
    target t = {.function = "sherd_eye", .world = world, .shape = {rows, columns}};

    return world ? make(&t, 2, NULL, &values) : NULL;
}

sherd_tensor *sherd_eye_on(const sherd_layout *layout, sherd_dtype dtype)
{
    target t = on("sherd_eye_on", layout);
    const sherd__values values = {.dtype = dtype, .kind = SHERD__DIAGONAL, .count = t.shape[1]};

    return layout ? make(&t, 2, NULL, &values) : NULL;
}

/* ---- distributions for weights --------------------------------------------------------------- */

/*
 * Fan in and fan out of a weight [out, in, ...]; NaN if it is not one. For a weight without
 * elements they are any positive numbers.
 */
static void fans(const int64_t *shape, int ndim, double *in, double *out)
{
    double behind = 1;

    *in = *out = (double)NAN;
    if (!shape || ndim < 2)
        return;
    for (int d = 2; d < ndim; d++)
        behind *= (double)shape[d];
    *in = fmax(1, behind * (double)shape[1]);
    *out = fmax(1, behind * (double)shape[0]);
}

static double deviation(const int64_t *shape, int ndim, double gain, bool both)
{
    double in, out;

    fans(shape, ndim, &in, &out);
    return gain * sqrt(both ? 2 / (in + out) : 1 / in);
}

/* A uniform distribution around 0 with a given standard deviation. */
static sherd_distribution symmetric(double deviation_of)
{
    double bound = sqrt(3.0) * deviation_of;

    return sherd_uniform(-bound, bound);
}

sherd_distribution sherd_xavier_uniform(const int64_t *shape, int ndim, double gain)
{
    return symmetric(deviation(shape, ndim, gain, true));
}

sherd_distribution sherd_xavier_normal(const int64_t *shape, int ndim, double gain)
{
    return sherd_normal(0, deviation(shape, ndim, gain, true));
}

sherd_distribution sherd_kaiming_uniform(const int64_t *shape, int ndim, double gain)
{
    return symmetric(deviation(shape, ndim, gain, false));
}

sherd_distribution sherd_kaiming_normal(const int64_t *shape, int ndim, double gain)
{
    return sherd_normal(0, deviation(shape, ndim, gain, false));
}
