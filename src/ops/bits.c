/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits of integers and bool, of two operands and with a number. On a GPU's world the CPU computes
 * them, with copies.
 */
#include "kernels/bits.h"
#include "shared.h"
#include "sherd/ops_bits.h"

#include <string.h>

static const char *describe(sherd_call *call)
{
    return sherd__has_fractions(call->in[0]->dtype)
               ? "it computes i32, i64, i8, u8 and bool: cast first (sherd_cast)"
               : NULL;
}

static bool compute(sherd_call *call)
{
    const sherd_tensor *out = call->out[0];
    int64_t a[SHERD_MAX_DIMS], b[SHERD_MAX_DIMS];

    sherd__broadcast_strides(call, 0, a);
    sherd__broadcast_strides(call, 1, b);
    if (out->count)
        sherd__bits(out->dtype, (sherd__bits_kind)(call->op - sherd__bits_ops), out->ndim,
                    out->local, call->to[0], call->from[0], a, call->from[1], b);
    return true;
}

/* In the order of sherd__bits_kind. */
#define ROWS                                                         \
    ROW(bitwise_and, "a and b, bit by bit", EVERYTHING)              \
    ROW(bitwise_or, "a or b, bit by bit", EVERYTHING)                \
    ROW(bitwise_xor, "bits in which a and b differ", EVERYTHING)     \
    ROW(bitwise_left_shift, "bits moved up, zeros come in", NUMBERS) \
    ROW(bitwise_right_shift, "bits moved down, the sign comes in", NUMBERS)

#define ROW(name_, text, numbers_)    \
    {.name = "sherd_" #name_,         \
     .summary = text,                 \
     .operand = {{"a", 0}, {"b", 0}}, \
     .result = {{"y", 0}},            \
     .rule = "...,...->...",          \
     .broadcasts = true,              \
     .strided = true,                 \
     .numbers = SHERD_##numbers_,     \
     .describe = describe,            \
     .forward = compute},
const sherd_op sherd__bits_ops[SHERD__BITS_KINDS] = {ROWS};
#undef ROW

/* ---- with a number --------------------------------------------------------------------------- */

typedef struct number {
    int64_t bits;
} number;

/* The number as an element; a shift by more than all bits is one by all. */
static void write_element(sherd_dtype dtype, sherd__bits_kind kind, int64_t bits, void *element)
{
    bool shifts = kind == SHERD__BITS_LEFT || kind == SHERD__BITS_RIGHT;
    uint64_t low = (uint64_t)(shifts && (bits < 0 || bits > 64) ? 64 : bits);
    const uint8_t byte = dtype == SHERD_BOOL ? low != 0 : (uint8_t)low;
    const uint32_t word = (uint32_t)low;

    if (dtype == SHERD_I64)
        memcpy(element, &low, sizeof low);
    else if (dtype == SHERD_I32)
        memcpy(element, &word, sizeof word);
    else
        memcpy(element, &byte, sizeof byte);
}

static void compute_with(sherd_call *call, sherd__bits_kind kind, int64_t bits)
{
    const sherd_tensor *out = call->out[0];
    const int64_t one = 1, none = 0;
    uint64_t element = 0;

    write_element(out->dtype, kind, bits, &element);
    if (out->count)
        sherd__bits(out->dtype, kind, 1, &out->count, call->to[0], call->from[0], &one, &element,
                    &none);
}

static bool compute_scalar(sherd_call *call)
{
    compute_with(call, (sherd__bits_kind)(call->op - sherd__bits_scalar_ops),
                 ((const number *)call->attributes)->bits);
    return true;
}

static bool compute_not(sherd_call *call)
{
    compute_with(call, SHERD__BITS_XOR, -1);
    return true;
}

#define ROW(name_, text, numbers_)                \
    {.name = "sherd_" #name_ "_scalar",           \
     .summary = text "; b is a number",           \
     .operand = {{"a", 0}},                       \
     .result = {{"y", 0}},                        \
     .field = {SHERD_FIELD(number, bits, INT64)}, \
     .attributes = sizeof(number),                \
     .rule = "...->...",                          \
     .numbers = SHERD_##numbers_,                 \
     .describe = describe,                        \
     .forward = compute_scalar},
const sherd_op sherd__bits_scalar_ops[SHERD__BITS_KINDS] = {ROWS};
#undef ROW

const sherd_op sherd__bitwise_not_op = {.name = "sherd_bitwise_not",
                                        .summary = "all bits changed",
                                        .operand = {{"a", 0}},
                                        .result = {{"y", 0}},
                                        .rule = "...->...",
                                        .numbers = SHERD_EVERYTHING,
                                        .describe = describe,
                                        .forward = compute_not};

/* ---- the functions --------------------------------------------------------------------------- */

sherd_tensor *sherd_bitwise_and(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&sherd__bits_ops[SHERD__BITS_AND], (sherd_tensor *[]){a, b}, 2, NULL);
}

sherd_tensor *sherd_bitwise_or(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&sherd__bits_ops[SHERD__BITS_OR], (sherd_tensor *[]){a, b}, 2, NULL);
}

sherd_tensor *sherd_bitwise_xor(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&sherd__bits_ops[SHERD__BITS_XOR], (sherd_tensor *[]){a, b}, 2, NULL);
}

sherd_tensor *sherd_bitwise_left_shift(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&sherd__bits_ops[SHERD__BITS_LEFT], (sherd_tensor *[]){a, b}, 2, NULL);
}

sherd_tensor *sherd_bitwise_right_shift(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&sherd__bits_ops[SHERD__BITS_RIGHT], (sherd_tensor *[]){a, b}, 2, NULL);
}

sherd_tensor *sherd_bitwise_not(sherd_tensor *a)
{
    return sherd_apply(&sherd__bitwise_not_op, &a, 1, NULL);
}

sherd_tensor *sherd_bitwise_and_scalar(sherd_tensor *a, int64_t bits)
{
    return sherd_apply(&sherd__bits_scalar_ops[SHERD__BITS_AND], &a, 1, &(number){bits});
}

sherd_tensor *sherd_bitwise_or_scalar(sherd_tensor *a, int64_t bits)
{
    return sherd_apply(&sherd__bits_scalar_ops[SHERD__BITS_OR], &a, 1, &(number){bits});
}

sherd_tensor *sherd_bitwise_xor_scalar(sherd_tensor *a, int64_t bits)
{
    return sherd_apply(&sherd__bits_scalar_ops[SHERD__BITS_XOR], &a, 1, &(number){bits});
}

sherd_tensor *sherd_bitwise_left_shift_scalar(sherd_tensor *a, int64_t places)
{
    return sherd_apply(&sherd__bits_scalar_ops[SHERD__BITS_LEFT], &a, 1, &(number){places});
}

sherd_tensor *sherd_bitwise_right_shift_scalar(sherd_tensor *a, int64_t places)
{
    return sherd_apply(&sherd__bits_scalar_ops[SHERD__BITS_RIGHT], &a, 1, &(number){places});
}
