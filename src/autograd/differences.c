/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checking gradients: backward against central differences, element by element. The result of the
 * function is turned into one number by random weights, drawn by global index, so that it does not
 * depend on the layout. Costs two calls of the function for each element, so it is for small
 * tensors. Everything is compared whole, on every rank of the result's mesh; the others call the
 * function as often.
 */
#include "autograd/node.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char name[] = "sherd_check_gradients";

typedef struct check {
    sherd_world *world;
    sherd_differentiable function;
    const sherd_check_options *options;
    double step, absolute, relative;
    int count;
    sherd_tensor *x[SHERD_MAX_OPERANDS]; /* what the function is called with */
} check;

/* ---- one number ----------------------------------------------------------------------------- */

/* The function's result, or the failed tensor, raised. */
static sherd_tensor *call(check *c)
{
    int floor = sherd__scope_enter(c->world);
    sherd_tensor *y = c->function(c->x, c->count, c->options->payload);

    sherd__scope_leave(c->world, floor);
    if (!y || y->world != c->world)
        y = sherd__fail_tensor(c->world, true, SHERD_EINVAL, "%s: the function returned %s", name,
                               y ? "a tensor of another world" : "NULL");
    else if (y->storage && y->dtype != SHERD_F64)
        y = sherd__fail_tensor(c->world, true, SHERD_EINVAL,
                               "%s: the function returned %s: f64 is checked", name,
                               sherd_tensor_text(y));
    if (y->storage)
        sherd_scope_pass(y);
    sherd_scope_end(c->world);
    return y;
}

/* Weights for the elements of y, independent of its layout, in the layout of its gradient. */
static sherd_tensor *weights(sherd_tensor *y)
{
    sherd_generator generator = sherd_generator_named(name);
    const sherd_distribution uniform = sherd_uniform(0.5, 1.5);
    const sherd_layout *layout;

    if (!y->layout)
        return sherd_random(y->world, SHERD_F64, y->shape, y->ndim, uniform, &generator);
    if (sherd__layout_settle(&layout, y->layout) != SHERD_OK)
        return sherd__fail_diag(y->world, true);
    return sherd_random_on(layout, SHERD_F64, uniform, &generator);
}

/* Elements of the whole tensor on this rank; NULL: failed, or the rank is not in its mesh. */
static const double *whole(sherd_tensor *t)
{
    t = t->layout ? sherd__whole_at(t, -1) : sherd__contiguous(t);
    return t->storage && t->count == sherd_tensor_count(t) ? sherd_tensor_read(t) : NULL;
}

/* The weighted sum; NaN after a failure, and outside of the result's mesh. */
static double number(check *c)
{
    double sum = 0;

    sherd_scope_begin(c->world);
    /* The function may differentiate, too (sherd_gradients): it is recorded as the first time. */
    sherd_tensor *y = call(c);
    bool recording = sherd_set_recording(c->world, false);
    sherd_tensor *w = y->storage ? weights(y) : y;
    const double *a = y->storage ? whole(y) : NULL, *b = w->storage ? whole(w) : NULL;
    int64_t n = sherd_tensor_count(y);
    for (int64_t i = 0; a && b && i < n; i++)
        sum += a[i] * b[i];
    if (!a || !b)
        sum = n == 0 && y->storage ? 0 : NAN;
    sherd_set_recording(c->world, recording);
    sherd_scope_end(c->world);
    return sum;
}

/* ---- one element ---------------------------------------------------------------------------- */

/*
 * This rank's copy of element i of the whole tensor; NULL: it has none, or its copy does not count.
 */
static double *element(sherd_tensor *t, int64_t i)
{
    sherd_box box = sherd_tensor_box(t);
    int64_t coordinate[SHERD_MAX_AXES] = {0}, at = 0, stride = 1;
    double *data = sherd__mutable(t);

    if (t->layout && sherd__coordinate(t, coordinate))
        for (int a = 0; a < t->layout->spec.mesh->axes; a++)
            if (t->layout->pending_axes >> a & 1 && coordinate[a] > 0)
                return NULL;
    for (int d = t->ndim; d-- > 0; i /= t->shape[d]) {
        int64_t inside = i % t->shape[d] - box.offset[d];
        if (inside < 0 || inside >= box.size[d])
            return NULL;
        at += inside * stride;
        stride *= box.size[d];
    }
    return data && t->count > 0 ? data + at : NULL;
}

/* How far to change the first addend for a change of the whole by 1: an average of n, by n. */
static double reach(const sherd_tensor *t)
{
    return t->layout ? sherd__averaged(t->layout) : 1;
}

static double difference(check *c, int input, int64_t i)
{
    double value[2], by = c->step * reach(c->x[input]);

    for (int side = 0; side < 2; side++) {
        double *at = element(c->x[input], i), before = at ? *at : 0;
        if (at)
            *at = before + (side ? by : -by);
        value[side] = number(c);
        at = element(c->x[input], i);
        if (at)
            *at = before;
    }
    return (value[1] - value[0]) / (2 * c->step);
}

/* "(1,2)" of a row-major number. */
static void index_text(char *out, size_t bytes, const sherd_tensor *t, int64_t i)
{
    int64_t index[SHERD_MAX_DIMS] = {0};
    size_t used = 1;

    for (int d = t->ndim; d-- > 0; i /= t->shape[d])
        index[d] = i % t->shape[d];
    snprintf(out, bytes, "(");
    for (int d = 0; d < t->ndim && used < bytes; d++)
        used +=
            (size_t)snprintf(out + used, bytes - used, d ? ",%lld" : "%lld", (long long)index[d]);
    if (used < bytes)
        snprintf(out + used, bytes - used, ")");
}

/*
 * A whole gradient on the ranks that know the numbers, those of the result's mesh; NULL: this one
 * is not among them, or failed.
 */
static const double *beside(sherd_tensor *gradient, const sherd_tensor *y)
{
    const sherd_mesh *mesh = y->layout ? y->layout->spec.mesh : NULL;
    const sherd_layout *to;

    if (mesh && gradient->layout && gradient->layout->spec.mesh != mesh) {
        gradient = sherd__replicated(&to, mesh, gradient->ndim, gradient->shape) == SHERD_OK
                       ? sherd__move_to(gradient, to, false)
                       : sherd__fail_diag(gradient->world, true);
    }
    return gradient->storage && (!mesh || sherd__in_mesh(y->world, mesh)) ? whole(gradient) : NULL;
}

/* Whether all elements of one gradient are right; otherwise the first wrong one is raised. */
static bool is_right(check *c, int input, sherd_tensor *gradient, const sherd_tensor *y)
{
    char index[128];
    int64_t n = sherd_tensor_count(gradient);
    const double *have = beside(gradient, y);

    for (int64_t i = 0; i < n && !sherd__alarmed(c->world); i++) {
        double wanted = difference(c, input, i), bound = c->absolute + c->relative * fabs(wanted);
        if (!have || fabs(have[i] - wanted) <= bound || sherd__alarmed(c->world))
            continue;
        index_text(index, sizeof index, gradient, i);
        sherd__raise(c->world, SHERD_EINVAL,
                     "%s: input %d, %s, element %s: backward says %.12g, differences say %.12g (at "
                     "most %.3g apart is right)",
                     name, input, sherd_tensor_text(gradient), index, have[i], wanted, bound);
        return false;
    }
    return !sherd__alarmed(c->world);
}

/* ---- all ------------------------------------------------------------------------------------ */

/* A copy of an input as a leaf, to be modified; the input itself if it requires no gradient. */
static sherd_tensor *own(sherd_tensor *t)
{
    sherd_tensor *copy;

    if (!t->autograd.requires_grad)
        return t;
    if (t->dtype != SHERD_F64)
        return sherd__fail_tensor(t->world, true, SHERD_EINVAL, "%s: %s: f64 is checked", name,
                                  sherd_tensor_text(t));
    const void *data = sherd_tensor_read(t);
    copy = sherd__new_like(t, t->dtype);
    if (!copy->storage)
        return copy;
    if (!data && t->count > 0)
        return sherd__failed(t->world);
    if (t->count > 0)
        memcpy(sherd__fresh(copy), data, (size_t)t->count * sizeof(double));
    sherd__note_one(name, t, 0, copy);
    return sherd_require_grad(copy, true);
}

static bool copy_inputs(check *c, sherd_tensor *const *inputs)
{
    for (int i = 0; i < c->count; i++) {
        if (!inputs[i] || inputs[i]->world != c->world) {
            sherd__raise(c->world, SHERD_EINVAL, "%s: input %d is %s", name, i,
                         inputs[i] ? "of another world" : "NULL");
            return false;
        }
        c->x[i] = sherd__is_failed(inputs[i]) ? sherd__failed(c->world) : own(inputs[i]);
        if (!c->x[i]->storage) {
            sherd__raise_failed(c->world, name);
            return false;
        }
    }
    return true;
}

static void run(check *c, sherd_tensor *const *inputs)
{
    sherd_tensor *wanted[SHERD_MAX_OPERANDS], *gradient[SHERD_MAX_OPERANDS], *y, *w;
    int at[SHERD_MAX_OPERANDS], n = 0;

    if (!copy_inputs(c, inputs))
        return;
    for (int i = 0; i < c->count; i++)
        if (c->x[i]->autograd.requires_grad) {
            at[n] = i;
            wanted[n++] = c->x[i];
        }
    y = call(c);
    w = y->storage ? weights(y) : y;
    sherd_gradients(gradient, wanted, n, &y, 1,
                    &(sherd_gradients_options){.gradients = &w, .unused = true});
    for (int i = 0; i < n && !sherd__alarmed(c->world); i++) {
        if (!gradient[i]) {
            sherd__raise(c->world, SHERD_EINVAL, "%s: the result does not depend on input %d, %s",
                         name, at[i], sherd_tensor_text(wanted[i]));
            return;
        }
        if (!is_right(c, at[i], gradient[i], y))
            return;
    }
}

static double or_else(double value, double otherwise)
{
    return value > 0 ? value : otherwise;
}

sherd_status sherd_check_gradients(sherd_differentiable function, sherd_tensor *const *inputs,
                                   int count, const sherd_check_options *options)
{
    static const sherd_check_options none;
    const sherd__argument need[] = {
        {"function", (const void *)(uintptr_t)function}, {"inputs", inputs}, {NULL, NULL}};
    check c = {.function = function, .options = options ? options : &none, .count = count};
    sherd_tensor *failed;

    for (int i = 0; inputs && i < count && !c.world; i++)
        c.world = sherd_tensor_world(inputs[i]);
    if (!c.world)
        return SHERD_EINVAL;
    c.step = or_else(c.options->step, 1e-6);
    c.absolute = or_else(c.options->absolute, 1e-7);
    c.relative = or_else(c.options->relative, 1e-5);
    sherd_scope_begin(c.world);
    bool recording = sherd_set_recording(c.world, true);
    if (count > SHERD_MAX_OPERANDS)
        sherd__raise(c.world, SHERD_ELIMIT, "%s: %d inputs, at most %d", name, count,
                     SHERD_MAX_OPERANDS);
    else if (sherd__given(c.world, name, need, &failed) && !sherd__alarmed(c.world))
        run(&c, inputs);
    sherd_set_recording(c.world, recording);
    sherd_scope_end(c.world);
    return sherd_world_check(c.world);
}
