/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating tensors: copies of data, constants, random numbers. Each rank makes its own box; nothing
 * is sent. Random numbers are a function of the global index of their element; later.c draws them.
 */
#include "tensor/state.h"
#include "sherd/values.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "kernels/cast.h"
#include "world/doing.h"

bool sherd__is_plain_shape(sherd_world *world, const char *function, sherd_dtype dtype,
                           const int64_t *shape, int ndim)
{
    if (sherd_dtype_bytes(dtype) == 0) {
        sherd__fail_tensor(world, false, SHERD_EINVAL, "%s: %d is no dtype", function, (int)dtype);
        return false;
    }
    if (ndim < 0 || (ndim > 0 && !shape)) {
        sherd__fail_tensor(world, false, SHERD_EINVAL, "%s: %d dims without a shape", function,
                           ndim);
        return false;
    }
    if (ndim > SHERD_MAX_DIMS) {
        sherd__fail_tensor(world, false, SHERD_ELIMIT, "%s: %d dims, at most %d are possible",
                           function, ndim, SHERD_MAX_DIMS);
        return false;
    }
    for (int d = 0; d < ndim; d++)
        if (shape[d] < 0) {
            sherd__fail_tensor(world, false, SHERD_EINVAL, "%s: dim %d has size %lld", function, d,
                               (long long)shape[d]);
            return false;
        }
    return true;
}

sherd_tensor *sherd__made_plain(const char *function, sherd_world *world, sherd_dtype dtype,
                                int ndim, const int64_t *shape, unsigned varies)
{
    bool begun = sherd__doing_begin(world, function);
    sherd_tensor *t = sherd__new_plain(world, dtype, ndim, shape, varies);

    sherd__doing_end(world, begun);
    return t;
}

sherd_tensor *sherd__made_on(const char *function, const sherd_layout *layout, sherd_dtype dtype)
{
    sherd_world *world = sherd__space_world(layout->space);
    bool begun = sherd__doing_begin(world, function);
    sherd_tensor *t = sherd__new_on(layout, dtype);

    sherd__doing_end(world, begun);
    return t;
}

static sherd_tensor *made_later(const char *function, sherd_world *world, int ndim,
                                const int64_t *shape, const sherd__values *values)
{
    bool begun = sherd__doing_begin(world, function);
    sherd_tensor *t = sherd__new_later(world, ndim, shape, values);

    sherd__doing_end(world, begun);
    return t;
}

/* Whether the dtype can hold a value. */
static bool fits(sherd_world *world, bool distributed, const char *function, sherd_dtype dtype,
                 double value)
{
    bool good = sherd__holds(dtype, value);

    if (!good)
        sherd__fail_tensor(world, distributed, SHERD_EINVAL, "%s: %g is no %s", function, value,
                           sherd_dtype_name(dtype));
    return good;
}

sherd_tensor *sherd_from_data(sherd_world *world, sherd_dtype dtype, const int64_t *shape, int ndim,
                              const void *data)
{
    sherd_tensor *t;

    if (!world)
        return NULL;
    if (!sherd__is_plain_shape(world, "sherd_from_data", dtype, shape, ndim))
        return sherd__failed(world);
    t = sherd__made_plain("sherd_from_data", world, dtype, ndim, shape, (unsigned)SHERD__VARIES);
    if (!t->storage || t->count == 0)
        return t;
    if (!data) {
        sherd_tensor_release(t);
        return sherd__fail_tensor(world, false, SHERD_EINVAL, "sherd_from_data: data is NULL");
    }
    memcpy(sherd__fresh(t), data, (size_t)t->storage->bytes);
    return t;
}

sherd_tensor *sherd_constant(sherd_world *world, sherd_dtype dtype, const int64_t *shape, int ndim,
                             double value)
{
    sherd_tensor *t;

    if (!world)
        return NULL;
    if (!sherd__is_plain_shape(world, "sherd_constant", dtype, shape, ndim) ||
        !fits(world, false, "sherd_constant", dtype, value))
        return sherd__failed(world);
    t = sherd__made_plain("sherd_constant", world, dtype, ndim, shape, 0);
    if (t->storage)
        sherd__fill(t, value);
    return t;
}

sherd_tensor *sherd_constant_later(sherd_world *world, sherd_dtype dtype, const int64_t *shape,
                                   int ndim, double value)
{
    const sherd__values values = {.dtype = dtype, .start = value};

    if (!world)
        return NULL;
    if (!sherd__is_plain_shape(world, "sherd_constant_later", dtype, shape, ndim) ||
        !fits(world, false, "sherd_constant_later", dtype, value))
        return sherd__failed(world);
    return made_later("sherd_constant_later", world, ndim, shape, &values);
}

/* Whether, on axes with a pending sum, this rank holds the value rather than a zero. */
static bool holds_value(const sherd_tensor *t)
{
    int64_t coordinate[SHERD_MAX_AXES];

    if (!sherd__coordinate(t, coordinate))
        return false;
    for (int a = 0; a < t->layout->spec.mesh->axes; a++)
        if ((t->layout->pending_axes >> a & 1) && coordinate[a] != 0)
            return false;
    return true;
}

sherd_tensor *sherd_constant_on(const sherd_layout *layout, sherd_dtype dtype, double value)
{
    sherd_world *world = layout ? sherd__space_world(layout->space) : NULL;
    sherd_tensor *t;

    if (!world)
        return NULL;
    if (sherd_dtype_bytes(dtype) == 0)
        return sherd__fail_tensor(world, true, SHERD_EINVAL, "sherd_constant_on: %d is no dtype",
                                  (int)dtype);
    if (!fits(world, true, "sherd_constant_on", dtype, value))
        return sherd__failed(world);
    for (int a = 0; a < layout->spec.mesh->axes; a++)
        if (layout->spec.pending[a] > SHERD_SUM)
            return sherd__fail_tensor(world, true, SHERD_ENOTSUP,
                                      "sherd_constant_on: %s: only a pending sum can be filled",
                                      sherd_layout_text(layout));
    t = sherd__made_on("sherd_constant_on", layout, dtype);
    if (t->storage) {
        sherd__fill(t, holds_value(t) ? value : 0);
        sherd__note_values("sherd_constant_on", sherd__attribute_double(0, value),
                           &(sherd__values){.dtype = dtype, .start = value}, t);
    }
    return t;
}

sherd_tensor *sherd_from_data_on(const sherd_layout *layout, sherd_dtype dtype, const void *data)
{
    sherd_world *world = layout ? sherd__space_world(layout->space) : NULL;
    sherd_tensor *t;

    if (!world)
        return NULL;
    if (sherd_dtype_bytes(dtype) == 0)
        return sherd__fail_tensor(world, true, SHERD_EINVAL, "sherd_from_data_on: %d is no dtype",
                                  (int)dtype);
    t = sherd__made_on("sherd_from_data_on", layout, dtype);
    if (!t->storage)
        return t;
    if (t->count && !data) {
        sherd_tensor_release(t);
        return sherd__fail_tensor(world, true, SHERD_EINVAL, "sherd_from_data_on: data is NULL");
    }
    if (t->count)
        memcpy(sherd__fresh(t), data, (size_t)sherd__local_bytes(t));
    sherd__note_one("sherd_from_data_on", NULL, 0, t);
    return t;
}

/* ---- random numbers ------------------------------------------------------------------------- */

/* A random tensor as it was asked for. */
typedef struct request {
    sherd_world *world;
    const char *function;
    sherd_dtype dtype;
    int ndim;
    const int64_t *shape;
    const sherd_layout *layout; /* NULL: a plain tensor of `shape` */
    sherd_distribution distribution;
    bool later; /* plain only: deferred until its data is needed */
} request;

sherd_generator sherd_generator_named(const char *name)
{
    sherd_generator g = {.name = sherd__hash_text(0, name ? name : "")};
    return g;
}

/* What is wrong with a distribution for this dtype; NULL: nothing. */
static const char *fault_of(const sherd_distribution *d, sherd_dtype dtype)
{
    const double most = 0x1p32, exact = 0x1p53; /* the arithmetic is in f64 */

    if (!isfinite(d->a) || !isfinite(d->b))
        return "a number of the distribution is not finite";
    switch (d->kind) {
    case SHERD_DRAW_TRUNCATED:
        if (!(d->low < d->high) || !(d->b > 0))
            return "truncated normal numbers need low < high and a deviation above 0";
        break;
    case SHERD_DRAW_NORMAL:
        if (!(d->b >= 0))
            return "the deviation of normal numbers is negative";
        break;
    case SHERD_DRAW_UNIFORM:
        break;
    case SHERD_DRAW_INTEGERS:
        if (!(d->a < d->b) || d->b - d->a > most || d->a != floor(d->a) || d->b != floor(d->b) ||
            d->a < -exact || d->b > exact)
            return "integers need low < high, at most 2^32 apart, within -2^53 to 2^53";
        return sherd__holds(dtype, d->a) && sherd__holds(dtype, d->b - 1)
                   ? NULL
                   : "the dtype does not hold all of these integers";
    case SHERD_DRAW_BERNOULLI:
        return d->a >= 0 && d->a <= 1 ? NULL : "a probability must be in [0,1]";
    default:
        return "there is no such distribution";
    }
    return sherd__has_fractions(dtype) ? NULL
                                       : "the dtype must have fractions (f32, f64, bf16 or f16)";
}

static bool is_valid_random(const request *r)
{
    if (!r->layout && !sherd__is_plain_shape(r->world, r->function, r->dtype, r->shape, r->ndim))
        return false;
    const char *fault = sherd_dtype_bytes(r->dtype) ? fault_of(&r->distribution, r->dtype)
                                                    : "there is no such dtype";
    if (fault) {
        sherd__fail_tensor(r->world, r->layout != NULL, SHERD_EINVAL, "%s: %s", r->function, fault);
        return false;
    }
    if (r->layout && r->layout->pending_axes != 0) {
        sherd__fail_tensor(r->world, true, SHERD_EINVAL, "%s: %s has a pending reduction",
                           r->function, sherd_layout_text(r->layout));
        return false;
    }
    return true;
}

static sherd_tensor *draw(const request *r, sherd_generator *generator)
{
    sherd_tensor *t;

    if (!generator)
        return sherd__fail_tensor(r->world, r->layout != NULL, SHERD_EINVAL, "%s: no generator",
                                  r->function);
    /*
     * Counted also where it fails: it may fail on one rank only, and generators must stay in step.
     */
    sherd__key key = sherd__next_key(r->world, generator);
    if (!is_valid_random(r))
        return sherd__failed(r->world);
    const sherd__values values = {
        .dtype = r->dtype, .kind = SHERD__DRAWN, .distribution = r->distribution, .key = key};
    if (r->later)
        return made_later(r->function, r->world, r->ndim, r->shape, &values);
    t = r->layout ? sherd__made_on(r->function, r->layout, r->dtype)
                  : sherd__made_plain(r->function, r->world, r->dtype, r->ndim, r->shape, 0);
    if (t->storage) {
        sherd__draw(t, &values);
        sherd__note_values(r->function, sherd__values_hash(&values), &values, t);
    }
    return t;
}

sherd_tensor *sherd_random(sherd_world *world, sherd_dtype dtype, const int64_t *shape, int ndim,
                           sherd_distribution distribution, sherd_generator *generator)
{
    request r = {world, "sherd_random", dtype, ndim, shape, NULL, distribution, false};
    return world ? draw(&r, generator) : NULL;
}

sherd_tensor *sherd_random_later(sherd_world *world, sherd_dtype dtype, const int64_t *shape,
                                 int ndim, sherd_distribution distribution,
                                 sherd_generator *generator)
{
    request r = {world, "sherd_random_later", dtype, ndim, shape, NULL, distribution, true};
    return world ? draw(&r, generator) : NULL;
}

sherd_tensor *sherd_random_on(const sherd_layout *layout, sherd_dtype dtype,
                              sherd_distribution distribution, sherd_generator *generator)
{
    request r = {.function = "sherd_random_on", .dtype = dtype, .layout = layout};

    if (!layout)
        return NULL;
    r.world = sherd__space_world(layout->space);
    r.distribution = distribution;
    return draw(&r, generator);
}
