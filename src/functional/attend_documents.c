/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of documents that are packed into sequences, for attention. */
#include "attend.h"

#include "base/num.h"

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
