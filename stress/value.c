/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tensors must hold. All numbers are whole and small enough to be exact in their dtype, on the
 * way too: so every order of additions gives the same, and every element is compared exactly.
 */
#include "value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS = 1 << 18 };

double dtype_limit(sherd_dtype dtype)
{
    switch (dtype) {
    case SHERD_F32:
        return 1 << 24;
    case SHERD_BF16:
        return 1 << 8;
    case SHERD_F16:
        return 1 << 11;
    case SHERD_I32:
        return INT32_MAX;
    case SHERD_U8:
        return UINT8_MAX;
    case SHERD_I8:
        return INT8_MAX;
    case SHERD_BOOL:
        return 1;
    default:
        return 0x1p53;
    }
}

bool dtype_has_fractions(sherd_dtype dtype)
{
    return dtype == SHERD_F32 || dtype == SHERD_F64 || dtype == SHERD_BF16 || dtype == SHERD_F16;
}

/* ---- addends --------------------------------------------------------------------------------- */

addends addends_of(const sherd_layout *l, sherd_dtype dtype)
{
    const sherd_mesh *mesh = sherd_layout_mesh(l);
    addends a = {.op = SHERD_SUM, .ways = 1, .average = 1, .most = 999, .dtype = dtype};

    for (int i = 0; i < sherd_mesh_axes(mesh); i++) {
        sherd_placement q = sherd_layout_placement(l, i);
        if (q.kind != SHERD_PARTIAL)
            continue;
        a.pending = true;
        a.ways *= (int)sherd_mesh_extent(mesh, i);
        if (q.op == SHERD_AVG)
            a.average *= (int)sherd_mesh_extent(mesh, i);
        else
            a.op = q.op;
    }
    double room = floor(dtype_limit(dtype) / (a.ways * a.average));
    a.most = a.most > room ? room : a.most;
    if (a.most > 15 && (dtype == SHERD_BF16 || dtype == SHERD_F16))
        a.most = 15;
    return a;
}

int addend_of(const sherd_layout *l, int rank)
{
    const sherd_mesh *mesh = sherd_layout_mesh(l);
    int64_t at[SHERD_MAX_AXES];
    int which = 0;

    if (!sherd_mesh_coordinate(mesh, rank, at))
        return 0;
    for (int i = 0; i < sherd_mesh_axes(mesh); i++)
        if (sherd_layout_placement(l, i).kind == SHERD_PARTIAL)
            which = which * (int)sherd_mesh_extent(mesh, i) + (int)at[i];
    return which;
}

static double element(uint64_t key, int which, int64_t index, double most, bool negative)
{
    uint64_t bits = mix(mix(key + (uint64_t)which * 0x9E3779B97F4A7C15u) ^ (uint64_t)index);
    double x = (double)(bits % ((uint64_t)most + 1));

    return negative && bits >> 63 ? -x : x;
}

double addend_element(const addends *a, uint64_t key, int which, int64_t index)
{
    bool negative = a->dtype != SHERD_U8 && a->dtype != SHERD_BOOL;

    /* Of a product only the first factor is drawn, the others are 1 or -1. */
    if (a->pending && a->op == SHERD_PRODUCT && which > 0)
        return negative && (mix(key + (uint64_t)(index + which)) & 1) ? -1 : 1;
    return a->average * element(key, which, index, a->most, negative);
}

static double reduce(sherd_reduce_op by, double x, double y)
{
    switch (by) {
    case SHERD_MIN:
        return x < y ? x : y;
    case SHERD_MAX:
        return x > y ? x : y;
    case SHERD_PRODUCT:
        return x * y;
    default:
        return x + y;
    }
}

double reduced_element(const addends *a, uint64_t key, int64_t index)
{
    double x = addend_element(a, key, 0, index);

    for (int i = 1; i < a->ways; i++)
        x = reduce(a->op, x, addend_element(a, key, i, index));
    return x / a->average;
}

double reduced_bound(const addends *a)
{
    return a->most * a->ways * a->average;
}

/* ---- making values --------------------------------------------------------------------------- */

int value_new(program *p, int ndim, const int64_t *shape)
{
    numbers *v = &p->value[p->values];

    if (p->values == VALUES)
        return -1;
    *v = (numbers){.ndim = ndim, .count = 1};
    for (int d = 0; d < ndim; d++) {
        v->shape[d] = shape[d];
        v->count *= shape[d];
    }
    if (v->count > MOST_ELEMENTS)
        return -1;
    v->x = calloc((size_t)v->count + 1, sizeof *v->x);
    return v->x ? p->values++ : -1;
}

int value_constant(program *p, int ndim, const int64_t *shape, double number)
{
    int i = value_new(p, ndim, shape);

    for (int64_t k = 0; i >= 0 && k < p->value[i].count; k++)
        p->value[i].x[k] = number;
    if (i >= 0)
        p->value[i].bound = fabs(number);
    return i;
}

int value_reduced(program *p, int ndim, const int64_t *shape, const addends *a, uint64_t key)
{
    int i = value_new(p, ndim, shape);

    for (int64_t k = 0; i >= 0 && k < p->value[i].count; k++)
        p->value[i].x[k] = reduced_element(a, key, k);
    if (i >= 0)
        p->value[i].bound = reduced_bound(a);
    return i;
}

/* The elements of a box, in the row-major order of the box. */
static void write_box(numbers *v, const sherd_box *box, const addends *a, uint64_t key)
{
    int64_t at[DIMS] = {0}, count = 1;

    for (int d = 0; d < box->ndim; d++)
        count *= box->size[d];
    for (int64_t k = 0; k < count; k++) {
        int64_t index = 0;
        for (int d = 0; d < v->ndim; d++)
            index = index * v->shape[d] + box->offset[d] + at[d];
        v->x[index] = addend_element(a, key, 0, index);
        for (int d = v->ndim - 1; d >= 0 && ++at[d] == box->size[d]; d--)
            at[d] = 0;
    }
}

int value_written(program *p, int v, const layout_plan *l, unsigned writers, const addends *a,
                  uint64_t key)
{
    const numbers *old = &p->value[v];
    int i = value_new(p, old->ndim, old->shape);

    if (i < 0)
        return -1;
    memcpy(p->value[i].x, old->x, (size_t)old->count * sizeof *old->x);
    p->value[i].bound = fmax(old->bound, reduced_bound(a));
    for (int r = 0; r < p->scene->ranks; r++) {
        sherd_box box = sherd_layout_box(l->paper, r, 0);
        if ((writers >> r & 1) && sherd_layout_boxes(l->paper, r))
            write_box(&p->value[i], &box, a, key);
    }
    return i;
}

int value_drawn(program *p, int ndim, const int64_t *shape, uint64_t name, uint64_t call)
{
    int i = value_new(p, ndim, shape);

    if (i < 0)
        return -1;
    p->value[i].kind = VALUE_DRAWN;
    p->value[i].name = name;
    p->value[i].call = call;
    p->value[i].bound = INFINITY;
    return i;
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* A value like `like` if nothing in it is larger than what is exact. */
static int bounded(program *p, const numbers *like, double bound, sherd_dtype dtype)
{
    int i = bound <= dtype_limit(dtype) ? value_new(p, like->ndim, like->shape) : -1;

    if (i >= 0)
        p->value[i].bound = bound;
    return i;
}

int value_dropped(program *p, int v, double probability, uint64_t name, uint64_t call)
{
    int i = bounded(p, &p->value[v], p->value[v].bound, SHERD_F64);

    if (i < 0)
        return -1;
    memcpy(p->value[i].x, p->value[v].x, (size_t)p->value[v].count * sizeof(double));
    p->value[i].kind = VALUE_DROPPED;
    p->value[i].name = name;
    p->value[i].call = call;
    p->value[i].p = probability;
    p->value[i].bound = INFINITY;
    return i;
}

int value_sum_of(program *p, int v, int w, double factor, sherd_dtype dtype)
{
    const numbers *a = &p->value[v], *b = &p->value[w];
    int i = bounded(p, a, a->bound + fabs(factor) * b->bound, dtype);

    for (int64_t k = 0; i >= 0 && k < a->count; k++)
        p->value[i].x[k] = a->x[k] + factor * b->x[b->ndim ? k : 0];
    return i;
}

int value_product_of(program *p, int v, int w, sherd_dtype dtype)
{
    const numbers *a = &p->value[v], *b = &p->value[w];
    int i = bounded(p, a, a->bound * b->bound, dtype);

    for (int64_t k = 0; i >= 0 && k < a->count; k++)
        p->value[i].x[k] = a->x[k] * b->x[b->ndim ? k : 0];
    return i;
}

int value_scaled(program *p, int v, double factor, sherd_dtype dtype)
{
    const numbers *a = &p->value[v];
    int i = bounded(p, a, fabs(factor) * a->bound, dtype);

    for (int64_t k = 0; i >= 0 && k < a->count; k++)
        p->value[i].x[k] = factor * a->x[k];
    return i;
}

int value_relu(program *p, int v)
{
    const numbers *a = &p->value[v];
    int i = bounded(p, a, a->bound, SHERD_F64);

    for (int64_t k = 0; i >= 0 && k < a->count; k++)
        p->value[i].x[k] = a->x[k] > 0 ? a->x[k] : 0;
    return i;
}

int value_step(program *p, int v)
{
    const numbers *a = &p->value[v];
    int i = bounded(p, a, 1, SHERD_F64);

    for (int64_t k = 0; i >= 0 && k < a->count; k++)
        p->value[i].x[k] = a->x[k] > 0;
    return i;
}

int value_sum(program *p, int v, sherd_dtype dtype)
{
    const numbers *a = &p->value[v], none = {.ndim = 0};
    int i = bounded(p, &none, a->bound * (double)a->count, dtype);

    for (int64_t k = 0; i >= 0 && k < a->count; k++)
        p->value[i].x[0] += a->x[k];
    return i;
}

/* [m,k] x [k,n] */
int value_matmul(program *p, int v, int w, sherd_dtype dtype)
{
    const numbers *a = &p->value[v], *b = &p->value[w];
    const int64_t m = a->shape[0], k = a->shape[1], n = b->shape[1];
    const numbers like = {.ndim = 2, .shape = {m, n}};
    int i = bounded(p, &like, (double)k * a->bound * b->bound, dtype);

    for (int64_t r = 0; i >= 0 && r < m; r++)
        for (int64_t j = 0; j < k; j++)
            for (int64_t c = 0; c < n; c++)
                p->value[i].x[r * n + c] += a->x[r * k + j] * b->x[j * n + c];
    return i;
}

int value_transposed(program *p, int v, int a, int b)
{
    const numbers *from = &p->value[v];
    int64_t shape[DIMS] = {0}, stride[DIMS], at[DIMS] = {0}, step = 1, keep;
    int i;

    for (int d = from->ndim - 1; d >= 0; d--) {
        shape[d] = from->shape[d];
        stride[d] = step;
        step *= from->shape[d];
    }
    keep = shape[a], shape[a] = shape[b], shape[b] = keep;
    keep = stride[a], stride[a] = stride[b], stride[b] = keep;
    const numbers like = {.ndim = from->ndim, .shape = {shape[0], shape[1], shape[2]}};
    i = bounded(p, &like, from->bound, SHERD_F64);
    for (int64_t k = 0; i >= 0 && k < from->count; k++) {
        int64_t index = 0;
        for (int d = 0; d < from->ndim; d++)
            index += at[d] * stride[d];
        p->value[i].x[k] = from->x[index];
        for (int d = from->ndim - 1; d >= 0 && ++at[d] == shape[d]; d--)
            at[d] = 0;
    }
    return i;
}

int value_reshaped(program *p, int v, int ndim, const int64_t *shape)
{
    int i = p->value[v].kind == VALUE_KNOWN ? value_new(p, ndim, shape) : -1;

    if (i < 0)
        return -1;
    memcpy(p->value[i].x, p->value[v].x, (size_t)p->value[v].count * sizeof(double));
    p->value[i].bound = p->value[v].bound;
    return i;
}
