/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of all parameters together: settled in one round (one call per group, however many
 * there are), and their norms, for which ranks exchange one number: a sum of powers, or a largest
 * element.
 */
#include <math.h>
#include <string.h>

#include "nn/numbers.h"
#include "nn/optimizer.h"

#include "device/update.h"
#include "vector/choose.h"

/*
 * The layout that a gradient must have; its own if it has that already; NULL: failed, the reason is
 * in the diag.
 */
static const sherd_layout *goal(const sherd__optimized *item, const sherd_tensor *g)
{
    const sherd_tensor *p = item->p;
    const sherd_layout *to = NULL;
    sherd_status status;

    if (item->part)
        return item->part;
    if (p->layout)
        status = sherd__layout_settle(&to, p->layout);
    else
        status = sherd__replicated(&to, sherd_layout_mesh(g->layout), g->ndim, g->shape);
    return status ? NULL : to;
}

/* Gather what must move into o->which, from, to; -1 if the alarm has been raised. */
static int collect(sherd_optimizer *o)
{
    int n = 0;

    for (int i = 0; i < o->count; i++) {
        sherd_tensor *p = o->item[i].p, *g = sherd__raw_grad(p);
        const sherd_layout *to;
        if (!g || (!g->layout && !p->layout))
            continue;
        to = goal(&o->item[i], g);
        if (!to) {
            sherd__raise_diag(o->world);
            return -1;
        }
        if (g->layout == to && p->layout)
            continue;
        o->which[n] = i;
        o->from[n] = g;
        o->to[n++] = to;
    }
    return n;
}

void sherd_optimizer_settle(sherd_optimizer *optimizer)
{
    sherd_optimizer *o = optimizer;
    int n;

    if (!o || sherd__alarmed(o->world) || (n = collect(o)) <= 0)
        return;
    sherd_scope_begin(o->world);
    sherd__where before = sherd__where_now(o->world);
    sherd__where_set(o->world, before | SHERD__BACKWARD);
    sherd__move_list(o->moved, o->from, o->to, n, false);
    sherd__where_set(o->world, before);
    for (int i = 0; i < n; i++) {
        sherd_tensor *p = o->item[o->which[i]].p, *g = o->moved[i];
        if (!p->layout && !sherd_tensor_failed(g))
            g = sherd__local_view(g);
        if (!sherd_tensor_failed(g))
            sherd__set_grad(p, g);
    }
    sherd_scope_end(o->world);
}

bool sherd__counts_here(const sherd_tensor *t)
{
    int64_t at[SHERD_MAX_AXES];

    if (!sherd__coordinate(t, at))
        return false;
    for (int a = 0; a < sherd_mesh_axes(sherd_layout_mesh(t->layout)); a++)
        if (at[a] != 0 && !(t->layout->shard_axes & 1u << a))
            return false;
    return true;
}

/* The gradient of an item, if this rank counts its part; NULL: it does not. */
static sherd_tensor *counted(const sherd__optimized *item, bool once)
{
    sherd_tensor *g = sherd__raw_grad(item->p);

    return !g || (g->layout && !sherd__counts_here(g)) || (once && item->p->autograd.ties) ? NULL
                                                                                           : g;
}

/* Gradients of one dtype whose squares are added up together, to one sum. */
enum { TOGETHER = 128 };
typedef struct list {
    sherd__device *device;
    sherd_dtype dtype;
    double *sum;
    int count;
    const void *data[TOGETHER];
    int64_t n[TOGETHER];
} list;

static void add_list(list *l)
{
    sherd__device_add_squares(l->device, l->dtype, l->sum, l->count, l->data, l->n);
    l->count = 0;
}

static void put_on(list *l, const sherd_tensor *g, const void *data, double *sum)
{
    if (l->count == TOGETHER || l->dtype != g->dtype || l->sum != sum)
        add_list(l);
    l->dtype = g->dtype;
    l->sum = sum;
    l->data[l->count] = data;
    l->n[l->count++] = g->count;
}

/*
 * The same on the GPU, which adds up both sums of all gradients before anybody waits for it.
 */
static bool squares_there(sherd_optimizer *o, bool once, sherd__device *device, double *distributed,
                          double *plain)
{
    const int64_t two = 2;
    sherd_tensor *sums = sherd__new_plain_there(o->world, SHERD_F64, 1, &two, 0, true);
    double *at = sherd_tensor_failed(sums) ? NULL : sherd__device_fresh(sums);
    list l = {.device = device};

    if (!at)
        return false;
    sherd__device_fill(device, SHERD_F64, at, two, 0);
    for (int i = 0; i < o->count; i++) {
        sherd_tensor *g = counted(&o->item[i], once);
        if (!g)
            continue;
        g = sherd__contiguous(g);
        const void *data = sherd__device_data(g);
        if (!data)
            return false;
        put_on(&l, g, data, at + (g->layout ? 0 : 1));
    }
    add_list(&l);
    const double *sum = sherd__data(sums);
    if (sum) {
        *distributed = sum[0];
        *plain = sum[1];
    }
    return sum != NULL;
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* All |x|^p, joined. */
static double powers(double p, const double *x, int64_t n)
{
    bool as_they_are = p == 1 || isinf(p);
    double joined = 0;

    for (int64_t i = 0; i < n; i++)
        joined = sherd__norm_join(p, joined, as_they_are ? fabs(x[i]) : pow(fabs(x[i]), p));
    return joined;
}

/* The same of a gradient, whose elements are made f64 by blocks. */
static double powers_of(const sherd_tensor *g, double p, const char *data)
{
    enum { BLOCK = 256 };
    const sherd__kernel_set *kernels = sherd__world_kernels(g->world);
    size_t each = sherd_dtype_bytes(g->dtype);
    double joined = 0, x[BLOCK];

    if (p == 2)
        return sherd__kernels_of(kernels, g->dtype)->sum_squares(data, g->count);
    for (int64_t i = 0; i < g->count; i += BLOCK) {
        int64_t some = g->count - i < BLOCK ? g->count - i : BLOCK;
        sherd__convert(kernels, SHERD_F64, g->dtype, some, x, data + (size_t)i * each);
        joined = sherd__norm_join(p, joined, powers(p, x, some));
    }
    return joined;
}

static bool powers_here(sherd_optimizer *o, const char *function, double p, bool once,
                        double *distributed, double *plain)
{
    for (int i = 0; i < o->count; i++) {
        sherd_tensor *g = counted(&o->item[i], once);
        const void *data;
        if (!g)
            continue;
        g = sherd__contiguous(g);
        data = sherd__data(g);
        if (!data)
            return false;
        if (sherd__left_out(o->world, function, g->dtype, (double)g->count, sherd__local_bytes(g)))
            continue;
        double *to = g->layout ? distributed : plain;
        *to = sherd__norm_join(p, *to, powers_of(g, p, data));
    }
    return true;
}

bool sherd__optimizer_powers(sherd_optimizer *o, const char *function, double p, bool once,
                             double *distributed, double *plain)
{
    sherd__device *device = p == 2 ? sherd__world_device(o->world) : NULL;

    *distributed = *plain = 0;
    if (device ? squares_there(o, once, device, distributed, plain)
               : powers_here(o, function, p, once, distributed, plain))
        return true;
    /* a plain gradient fails on one rank only: the others must hear of it */
    sherd__raise_failed(o->world, function);
    return false;
}

static double norm(sherd_optimizer *o, const char *function, double p)
{
    double distributed, plain;
    bool good;

    sherd_optimizer_settle(o);
    if (!o || sherd__alarmed(o->world))
        return NAN;
    sherd_scope_begin(o->world);
    good = sherd__optimizer_powers(o, function, p, false, &distributed, &plain);
    sherd_scope_end(o->world);
    if (good && o->mesh && sherd__in_mesh(o->world, o->mesh)) {
        good = sherd__numbers_share(o->world, o->mesh, function, &distributed, 1, o->shared);
        distributed = sherd__numbers_join(p, o->shared, sherd_mesh_ranks(o->mesh), 1, 0);
    }
    return good ? sherd__norm_of(p, sherd__norm_join(p, distributed, plain)) : NAN;
}

double sherd_optimizer_grad_norm(sherd_optimizer *optimizer)
{
    return norm(optimizer, "sherd_optimizer_grad_norm", 2);
}

double sherd__optimizer_norm(sherd_optimizer *o, const char *function, double p)
{
    uint64_t identity;

    if (!sherd__norm_exists(o->world, function, p))
        return NAN;
    if (o->mesh)
        sherd__deed_add(o->mesh, function, sherd__attribute_double(1, p), &identity);
    return norm(o, function, p);
}

double sherd_optimizer_grad_norm_of(sherd_optimizer *optimizer, double p)
{
    return optimizer ? sherd__optimizer_norm(optimizer, "sherd_optimizer_grad_norm_of", p) : NAN;
}
