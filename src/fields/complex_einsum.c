/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products of complex tensors by an index string, such as the channels that a Fourier
 * neural operator mixes for each frequency. The second operand becomes real matrices of 2 by 2, w
 * and i w, so it is one real einsum, and twice the second operand is written.
 */
#include "ops/einsum.h"
#include "ops/shared.h"
#include "sherd/ops_fft.h"

#include <stdio.h>
#include <string.h>

typedef struct wording {
    char text[SHERD__TEXT_BYTES];
} wording;

static const char *describe(sherd_call *call)
{
    const wording *at = call->attributes;
    const char *arrow = strstr(at->text, "->"), *comma = strchr(at->text, ',');

    for (int i = 0; i < 2; i++) {
        const sherd_tensor *t = call->in[i];
        if (t->ndim < 1 || t->shape[t->ndim - 1] != 2)
            return sherd_call_reason(call,
                                     "the last dim of %s must have 2 elements, the real and the "
                                     "imaginary part",
                                     i ? "b" : "a");
        if (sherd__is_half(t->dtype))
            return "it computes f32 and f64 only: cast first (sherd_cast)";
    }
    return !arrow || !comma || comma > arrow || strchr(comma + 1, ',') || strchr(arrow + 2, ',')
               ? sherd_call_reason(call, "\"%s\" is not of the kind \"ij,jk->ik\"", at->text)
               : NULL;
}

/* A letter that the text does not have, of those before `before`. */
static char free_letter(const char *text, char before)
{
    while (--before >= 'a' && strchr(text, before))
        ;
    return before;
}

/* [0, 1] */
static sherd_tensor *imaginary_unit(const sherd_tensor *like)
{
    static const float f32[] = {0, 1};
    static const double f64[] = {0, 1};
    static const int64_t two = 2;

    return sherd_mark_equal(sherd_from_data(like->world, like->dtype, &two, 1,
                                            like->dtype == SHERD_F64 ? (const void *)f64 : f32));
}

static bool multiply(sherd_call *call)
{
    const wording *at = call->attributes;
    sherd_tensor *b = call->in[1];
    char p = free_letter(at->text, 'z' + 1), q = free_letter(at->text, p), text[256];
    int first = (int)(strchr(at->text, ',') - at->text);
    int second = (int)(strstr(at->text, "->") - at->text) - first;

    if (q < 'a')
        return sherd_call_fail(call, SHERD_EINVAL, "it needs two small letters of its own");
    snprintf(text, sizeof text, "%.*s%c%.*s%c%c%s%c", first, at->text, p, second, at->text + first,
             p, q, at->text + first + second, q);
    sherd_tensor *both[] = {b, sherd_complex_mul(b, imaginary_unit(b))};
    sherd_tensor *in[] = {call->in[0], sherd_stack(both, 2, b->ndim - 1)};
    call->out[0] = sherd_einsum(text, in, 2);
    return true;
}

const sherd_op sherd__complex_einsum_op = {
    .name = "sherd_complex_einsum",
    .summary = "sums of products of complex tensors",
    .operand = {{"a", 0}, {"b", 0}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELDS(wording, text, BYTE, SHERD__TEXT_BYTES)},
    .attributes = sizeof(wording),
    .autocast = SHERD_AUTOCAST_FULL,
    .describe = describe,
    .compose = multiply};

sherd_tensor *sherd_complex_einsum(const char *text, sherd_tensor *a, sherd_tensor *b)
{
    wording at = {""};
    sherd_world *world = sherd_tensor_world(a ? a : b);

    /* two letters are added to three terms */
    if (world && (!text || strlen(text) + 4 >= sizeof at.text))
        return sherd__fail_tensor(world, (a && a->layout) || (b && b->layout), SHERD_EINVAL,
                                  "sherd_complex_einsum: the index string %s",
                                  text ? "is longer than 59 bytes" : "is NULL");
    if (world)
        snprintf(at.text, sizeof at.text, "%s", text);
    return sherd_apply(&sherd__complex_einsum_op, (sherd_tensor *[]){a, b}, 2, &at);
}
