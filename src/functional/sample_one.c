/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row that is drawn from: its options, its number, by which it draws, and its logits here. No
 * rank is asked for anything.
 */
#include "sample.h"

#include <math.h>

#include "base/hash.h"
#include "vector/choose.h"

/* The number of a key, of `words` that begin at element `at`. */
static double number_of(const sherd_tensor *t, const void *keys, int64_t at, int64_t words)
{
    uint64_t low = 0x452821E638D01377u, high = 0xBE5466CF34E90C6Cu;
    uint32_t out[4];

    for (int64_t i = at; i < at + words; i++) {
        int64_t word =
            t->dtype == SHERD_I32 ? ((const int32_t *)keys)[i] : ((const int64_t *)keys)[i];
        low = sherd__hash_word(low, (uint64_t)word);
        high = sherd__hash_word(high, (uint64_t)word);
    }
    sherd__philox(out, sherd__philox_key(low, high, 0), 0);
    uint64_t bits = (uint64_t)out[0] << 16 | out[1] >> 16;
    return ((double)bits + 0.5) * 0x1p-48;
}

static double option(const sherd_call *call, int operand, int64_t i, double otherwise)
{
    return call->in[operand] ? (double)((const float *)call->from[operand])[i] : otherwise;
}

/* The number of row i of those here among all. */
static int64_t row_number(const sherd_call *call, int64_t i)
{
    const sherd_box box = sherd_tensor_box(call->out[0]);
    int64_t number = 0, times = 1;

    for (int d = box.ndim - 1; d >= 0; d--) {
        number += (box.offset[d] + i % box.size[d]) * times;
        times *= call->out[0]->shape[d];
        i /= box.size[d];
    }
    return number;
}

bool sherd__sample_marked(sherd_call *call, int64_t i, const char *fault)
{
    const sherd__sample_how *how = call->attributes;

    return how->marks || sherd_call_fail(call, SHERD_EINVAL, "row %lld: %s",
                                         (long long)row_number(call, i), fault);
}

void sherd__sample_row(const sherd_call *call, int64_t i, sherd__row *d)
{
    const sherd_tensor *logits = call->in[LOGITS], *key = call->in[KEY];
    const sherd__kernel_set *kernels = sherd__world_kernels(call->world);
    const int64_t words = key->local[key->ndim - 1];

    d->f64 = &kernels->f64;
    d->length = logits->shape[logits->ndim - 1];
    d->temperature = option(call, TEMPERATURE, i, 1);
    d->top_k = call->in[TOP_K] ? ((const int32_t *)call->from[TOP_K])[i] : 0;
    d->top_p = option(call, TOP_P, i, 1);
    d->min_p = option(call, MIN_P, i, 0);
    d->u = number_of(key, call->from[KEY], i * words, words);
}

static const char *row_of(const sherd_call *call, int64_t i)
{
    const sherd_tensor *logits = call->in[LOGITS];
    const int64_t n = logits->local[logits->ndim - 1];

    return (const char *)call->from[LOGITS] + (size_t)(i * n) * sherd_dtype_bytes(logits->dtype);
}

void sherd__sample_load(const sherd_call *call, int64_t i, const sherd__row *d)
{
    sherd__convert(sherd__world_kernels(call->world), SHERD_F64, call->in[LOGITS]->dtype, d->n,
                   d->x, row_of(call, i));
}

double sherd__sample_most(sherd_call *call, int64_t i)
{
    const sherd_tensor *logits = call->in[LOGITS];
    const sherd__kernels *kernels = sherd__kernels_in(call);
    const int64_t n = logits->local[logits->ndim - 1], none = 0;
    double room, most;

    kernels->fill(&room, 1, -INFINITY);
    if (n > 0)
        kernels->fold(SHERD_MAX, 1, &n, &room, &none, row_of(call, i));
    sherd__convert(sherd__world_kernels(call->world), SHERD_F64, logits->dtype, 1, &most, &room);
    return most;
}

int64_t sherd__sample_first(const sherd_call *call, int64_t i, const sherd__row *d)
{
    const float *x = (const float *)(const void *)row_of(call, i);
    int64_t at = 0;

    if (call->in[LOGITS]->dtype == SHERD_F32) {
        while ((double)x[at] != d->most)
            at++;
        return at;
    }
    sherd__sample_load(call, i, d);
    while (d->x[at] != d->most)
        at++;
    return at;
}
