/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of documents that are packed into sequences, for attention. */
#include "attend.h"

#include "base/num.h"
#include "ops/zigzag.h"

/* The length of a sequence; -1: it cannot be. */
static int64_t length_of(const int64_t *lengths, int64_t documents)
{
    int64_t n = 0;

    for (int64_t d = 0; d < documents; d++) {
        if (lengths[d] < 0 || lengths[d] > INT32_MAX - n)
            return -1;
        n += lengths[d];
    }
    return n;
}

static const char *fault_of(const int64_t *lengths, int64_t batch, int64_t documents)
{
    if (batch < 1 || documents < 1 || !lengths)
        return "there are no lengths";
    for (int64_t b = 0; b < batch; b++) {
        int64_t n = length_of(lengths + b * documents, documents);
        if (n < 0)
            return "a length is negative, or a sequence longer than 2^31 - 1";
        if (n != length_of(lengths, documents))
            return "sequences have different lengths";
    }
    return NULL;
}

/* Of a sequence. */
static void write_spans(int32_t *to, const int64_t *lengths, int64_t documents)
{
    for (int64_t d = 0, first = 0; d < documents; first += lengths[d++])
        for (int64_t i = 0; i < lengths[d]; i++, to += 2) {
            to[0] = (int32_t)first;
            to[1] = (int32_t)(first + lengths[d]);
        }
}

sherd_tensor *sherd_document_spans(sherd_world *world, const int64_t *lengths, int64_t batch,
                                   int64_t documents)
{
    const char *fault = world ? fault_of(lengths, batch, documents) : NULL;

    if (!world)
        return NULL;
    if (fault)
        return sherd__fail_tensor(world, false, SHERD_EINVAL, "sherd_document_spans: %s", fault);
    int64_t n = length_of(lengths, documents);
    sherd_tensor *spans = sherd_constant(world, SHERD_I32, (int64_t[]){batch, n, 2}, 3, 0);
    int32_t *to = sherd_tensor_write(spans);
    for (int64_t b = 0; to && b < batch; b++)
        write_spans(to + b * n * 2, lengths + b * documents, documents);
    return sherd_mark_equal(spans);
}

/* Whether the position of row i of spans, here, is that behind the one of the row before. */
static bool follows(const sherd_call *call, const sherd_tensor *spans, int64_t i)
{
    const sherd__attend_attributes *attributes = call->attributes;
    const int dim = spans->ndim - 2;
    int64_t at = i % spans->local[dim], row = sherd_tensor_box(spans).offset[dim] + at, run;

    if (at == 0 || attributes->zigzag <= 1)
        return at != 0;
    sherd__zigzag_position(spans->shape[dim], attributes->zigzag, row - 1, &run);
    return run > 1;
}

bool sherd__attend_check_spans(sherd_call *call)
{
    sherd_tensor *spans = call->in[SHERD__ATTEND_MASK];
    const int32_t *span = call->from[SHERD__ATTEND_MASK];

    if (!sherd__attend_are_spans(spans) || spans->count == 0 || sherd__is_dry(call->world))
        return true;
    if (sherd__device_in(call) && !(span = sherd__data(spans)))
        return false;
    for (int64_t i = 1; i < spans->count / 2; i++)
        if ((span[2 * i] < span[2 * i - 2] || span[2 * i + 1] < span[2 * i - 1]) &&
            follows(call, spans, i))
            return sherd_call_fail(
                call, SHERD_EINVAL, "the span [%d,%d) comes after [%d,%d): spans must not fall",
                (int)span[2 * i], (int)span[2 * i + 1], (int)span[2 * i - 2], (int)span[2 * i - 1]);
    return true;
}
