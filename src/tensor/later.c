/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values that are functions of each element's global index: filling a box with them, at once or
 * when its data is first needed. A deferred tensor costs its description, and a branch where its
 * data is read. A rank that keeps only its box of a deferred tensor makes that box and nothing
 * else.
 */
#include "tensor/state.h"
#include "vector/choose.h"
#include "world/doing.h"

#include "base/dtype.h"
#include "base/num.h"
#include "kernels/cast.h"
#include "kernels/draw.h"

enum { BLOCK = 256 };

/* Values of the elements first, first + 1, ... */
static void count_block(const sherd__values *v, int64_t n, double *out, int64_t first)
{
    double step = v->count > 1 ? (v->end - v->start) / (double)(v->count - 1) : 0;

    for (int64_t i = 0, k = first; i < n; i++, k++) {
        if (v->kind == SHERD__STEPS)
            out[i] = v->start + (double)k * v->step;
        else if (v->kind == SHERD__DIAGONAL)
            out[i] = k / v->count == k % v->count;
        else if (k < v->count / 2) /* from the nearer end, so that both ends are exact */
            out[i] = v->start + step * (double)k;
        else
            out[i] = v->count == 1 ? v->start : v->end - step * (double)(v->count - 1 - k);
    }
}

/* Write one element, then double what is there. */
static void repeat(void *data, sherd_dtype dtype, int64_t count, double value)
{
    size_t element = sherd_dtype_bytes(dtype), bytes = (size_t)count * element;

    sherd__cast(dtype, SHERD_F64, 1, data, &value);
    for (size_t done = element; done < bytes; done *= 2)
        memcpy((char *)data + done, data, done < bytes - done ? done : bytes - done);
}

void sherd__fill(sherd_tensor *t, double value)
{
    const sherd__kernels *kernels = sherd__kernels_of(sherd__world_kernels(t->world), t->dtype);
    void *data = sherd__fresh(t);

    if (t->count == 0 || sherd__left_out(t->world, "fill", t->dtype, 0, sherd__local_bytes(t)))
        return;
    if (kernels)
        kernels->fill(data, t->count, value);
    else
        repeat(data, t->dtype, t->count, value);
}

static void draw_block(const sherd__values *v, int64_t n, double *out, int64_t first)
{
    const sherd_distribution *d = &v->distribution;

    if (d->kind == SHERD_DRAW_INTEGERS)
        sherd__draw_integers(n, out, d->a, d->b - d->a, v->key, first);
    else if (d->kind == SHERD_DRAW_BERNOULLI)
        sherd__draw_bernoulli(n, out, d->a, v->key, first);
    else
        sherd__draw_truncated(n, out, (const double[]){d->a, d->b}, d->low, d->high, v->key, first);
}

/* Computed in f64, rounded once; steps of integers in 64 bits. */
static void make_run(const sherd__values *v, int64_t n, char *dst, int64_t first)
{
    bool whole = v->kind == SHERD__STEPS && !sherd__has_fractions(v->dtype);
    size_t element = sherd_dtype_bytes(v->dtype);
    int64_t counted[BLOCK];
    double block[BLOCK];

    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t some = sherd__min(n - done, BLOCK), k = first + done;
        for (int64_t i = 0; i < some && whole; i++)
            /* Unsigned, as products of steps may wrap around where the sum does not. */
            counted[i] = (int64_t)((uint64_t)(int64_t)v->start +
                                   (uint64_t)(k + i) * (uint64_t)(int64_t)v->step);
        if (!whole)
            (v->kind == SHERD__DRAWN ? draw_block : count_block)(v, some, block, k);
        sherd__cast(v->dtype, whole ? SHERD_I64 : SHERD_F64, some, dst + (size_t)done * element,
                    whole ? (void *)counted : (void *)block);
    }
}

/* One kernel call for each run of neighbours in the global order. */
static void make_box(sherd_tensor *t, const sherd__values *values)
{
    const sherd__kernels *kernels = sherd__kernels_of(sherd__world_kernels(t->world), t->dtype);
    const sherd_distribution *d = &values->distribution;
    bool fast = values->kind == SHERD__DRAWN &&
                (d->kind == SHERD_DRAW_NORMAL || d->kind == SHERD_DRAW_UNIFORM);
    size_t element = sherd_dtype_bytes(t->dtype);
    char *dst = sherd__fresh(t);
    sherd__walk w;

    for (sherd__walk_begin(&w, t); sherd__walk_next(&w);) {
        char *to = dst + (size_t)w.local * element;
        if (!fast)
            make_run(values, w.length, to, w.global);
        else
            (d->kind == SHERD_DRAW_NORMAL ? kernels->normal : kernels->uniform)(
                w.length, to, d->a, d->b, values->key, w.global);
    }
}

void sherd__draw(sherd_tensor *t, const sherd__values *values)
{
    if (values->kind == SHERD__CONSTANT)
        sherd__fill(t, values->start);
    else if (!sherd__left_out(t->world, "draw", t->dtype, (double)t->count, sherd__local_bytes(t)))
        make_box(t, values);
}

uint64_t sherd__values_hash(const sherd__values *values)
{
    const sherd_distribution *d = &values->distribution;
    const double number[] = {values->start, values->step, values->end, d->a, d->b, d->low, d->high};
    uint64_t hash = sherd__attribute(1, (uint64_t)values->kind << 8 | (uint64_t)d->kind);

    hash = sherd__attribute(hash, sherd__key_word(values->key));
    hash = sherd__attribute(hash, (uint64_t)values->count);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        hash = sherd__attribute_double(hash, number[i]);
    return hash;
}

/*
 * Memory for what was deferred. If it runs out, the alarm is raised for a plain tensor too: the
 * caller may be in the middle of an operator of all ranks. The error names the function that is
 * running; if none is, as in a getter, the one that made the tensor.
 */
static sherd__block *take_block(const sherd__storage *storage, const sherd__values *values)
{
    bool begun =
        sherd__doing_begin(storage->world, values->kind == SHERD__CONSTANT ? "sherd_constant_later"
                                                                           : "sherd_random_later");
    sherd__block *block = sherd__block_take(storage->world, storage->bytes, true);

    sherd__doing_end(storage->world, begun);
    return block;
}

bool sherd__make_now(sherd_tensor *t)
{
    sherd__storage *storage = t->storage;
    sherd__values *values = storage->later;

    if (!values)
        return true;
    storage->block = take_block(storage, values);
    if (!storage->block)
        return false;
    sherd__block_serves(storage->world, storage->block, storage->serves);
    storage->later = NULL;
    /* `t` may be a view: what is filled is all of the storage, as one row. */
    int64_t n = storage->bytes / (int64_t)sherd_dtype_bytes(values->dtype);
    sherd_tensor row = {.world = storage->world,
                        .storage = storage,
                        .dtype = values->dtype,
                        .ndim = 1,
                        .shape = {n},
                        .local = {n},
                        .stride = {1},
                        .count = n};
    sherd__draw(&row, values);
    storage->made_of = sherd__values_hash(values);
    sherd__free(sherd__world_heap(storage->world), values);
    return true;
}
