/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of bits, bins, rows by index, several indices, and what is repeated: see misuse.h. */
#include <math.h>

#include "misuse.h"
#include "sherd/ops_bits.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_index.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

static sherd_tensor *numbers(sherd_world *world, sherd_dtype dtype, int ndim)
{
    return sherd_constant(world, dtype, (int64_t[]){4, 4}, ndim, 1);
}

MISUSE(an_index_of_nothing_is_nothing)
{
    ANSWERS(!sherd_bitwise_and(NULL, NULL) && !sherd_bitwise_or(NULL, NULL));
    ANSWERS(!sherd_bitwise_xor(NULL, NULL) && !sherd_bitwise_not(NULL));
    ANSWERS(!sherd_bitwise_left_shift(NULL, NULL) && !sherd_bitwise_right_shift(NULL, NULL));
    ANSWERS(!sherd_bitwise_and_scalar(NULL, 1) && !sherd_bitwise_or_scalar(NULL, 1));
    ANSWERS(!sherd_bitwise_xor_scalar(NULL, 1) && !sherd_bitwise_left_shift_scalar(NULL, 1));
    ANSWERS(!sherd_bitwise_right_shift_scalar(NULL, 1) && !sherd_histc(NULL, 1, 0, 1));
    ANSWERS(!sherd_repeat_interleave(NULL, 0, 1) && !sherd_repeat_interleave_by(NULL, 0, NULL, 1));
    ANSWERS(!sherd_index_add(NULL, 0, NULL, NULL) && !sherd_index_copy(NULL, 0, NULL, NULL));
    ANSWERS(!sherd_index_fill(NULL, 0, NULL, 1) && !sherd_index_at(NULL, NULL, 1));
    ANSWERS(!sherd_index_put(NULL, NULL, 1, NULL, false));
    ANSWERS(!sherd_index_reduce(NULL, 0, NULL, NULL, SHERD_MAX, true));
    ANSWERS(!sherd_index_softmax(NULL, 0, NULL, 1));
}

MISUSE(fractions_have_no_bits)
{
    sherd_scope_begin(m->world);
    sherd_tensor *i = numbers(m->world, SHERD_I32, 2), *f = numbers(m->world, SHERD_F32, 2);
    sherd_tensor *u = numbers(m->world, SHERD_U8, 2), *b = numbers(m->world, SHERD_BOOL, 2);
    FAILS(SHERD_EINVAL, sherd_bitwise_and(BAD(f, i), BAD(f, i)));
    FAILS(SHERD_EINVAL, sherd_bitwise_or(i, BAD(u, i)));
    FAILS(SHERD_EINVAL, sherd_bitwise_xor(i, NUL(i)));
    FAILS(SHERD_EINVAL, sherd_bitwise_left_shift(BAD(b, i), BAD(b, i)));
    FAILS(SHERD_EINVAL, sherd_bitwise_right_shift(NUL(i), i));
    FAILS(SHERD_EINVAL, sherd_bitwise_not(BAD(f, i)));
    FAILS(SHERD_EINVAL, sherd_bitwise_and_scalar(BAD(f, i), 1));
    FAILS(SHERD_EINVAL, sherd_bitwise_or_scalar(BAD(f, i), 1));
    FAILS(SHERD_EINVAL, sherd_bitwise_xor_scalar(BAD(f, i), 1));
    FAILS(SHERD_EINVAL, sherd_bitwise_left_shift_scalar(BAD(b, i), 1));
    FAILS(SHERD_EINVAL, sherd_bitwise_right_shift_scalar(BAD(b, i), 1));
    FAILS(SHERD_EINVAL, sherd_celu(f, BAD(0, 1)));
    FAILS(SHERD_EINVAL, sherd_celu(f, BAD((double)INFINITY, 1)));
    FAILS(SHERD_EINVAL, sherd_softshrink(f, BAD(-1, 1)));
    FAILS(SHERD_EINVAL, sherd_softshrink(f, BAD((double)NAN, 1)));
    FAILS(SHERD_EINVAL, sherd_histc(BAD(i, f), 2, 0, 1));
    FAILS(SHERD_EINVAL, sherd_histc(f, BAD(0, 2), 0, 1));
    FAILS(SHERD_EINVAL, sherd_histc(f, BAD(INT64_MAX, 2), 0, 1));
    FAILS(SHERD_EINVAL, sherd_histc(f, 2, BAD((double)NAN, 0), 1));
    FAILS(SHERD_EINVAL, sherd_histc(f, 2, 0, BAD((double)INFINITY, 1)));
    sherd_scope_end(m->world);
}

MISUSE(indices_and_counts_fit)
{
    sherd_scope_begin(m->world);
    sherd_tensor *a = numbers(m->world, SHERD_F32, 2), *i = numbers(m->world, SHERD_I32, 1);
    sherd_tensor *both[] = {i, i}, *one[] = {i, NULL};
    FAILS(SHERD_EINVAL, sherd_repeat_interleave(a, BAD(2, 1), 2));
    FAILS(SHERD_EINVAL, sherd_repeat_interleave(a, 0, BAD(-1, 1)));
    FAILS(SHERD_EINVAL, sherd_repeat_interleave_by(a, BAD(-3, 0), i, 4));
    FAILS(SHERD_EINVAL, sherd_repeat_interleave_by(a, 0, NUL(i), 4));
    FAILS(SHERD_EINVAL, sherd_repeat_interleave_by(a, 0, BAD(a, i), 4));
    FAILS(SHERD_EINVAL, sherd_repeat_interleave_by(a, 0, i, BAD(5, 4)));
    FAILS(SHERD_EINVAL, sherd_repeat_interleave_by(a, 0, i, BAD(INT64_MIN, 4)));
    FAILS(SHERD_EINVAL, sherd_index_add(a, 0, BAD(a, i), a));
    FAILS(SHERD_EINVAL, sherd_index_add(a, BAD(2, 0), i, a));
    FAILS(SHERD_EINVAL, sherd_index_add(a, 0, i, NUL(a)));
    FAILS(SHERD_EINVAL, sherd_index_copy(a, 0, i, BAD(numbers(m->world, SHERD_F32, 1), a)));
    FAILS(SHERD_EINVAL, sherd_index_copy(a, 0, NUL(i), a));
    FAILS(SHERD_EINVAL, sherd_index_fill(a, 0, NUL(i), 1));
    FAILS(SHERD_EINVAL, sherd_index_fill(a, BAD(INT32_MIN, 0), i, 1));
    FAILS(SHERD_EINVAL, sherd_index_reduce(a, BAD(2, 0), i, a, SHERD_AVG, true));
    FAILS(SHERD_EINVAL, sherd_index_reduce(a, 0, BAD(a, i), a, SHERD_MIN, false));
    FAILS(SHERD_EINVAL, sherd_index_reduce(a, 0, i, NUL(a), SHERD_PRODUCT, true));
    FAILS(SHERD_EINVAL, sherd_index_reduce(a, 0, i, a, BAD((sherd_reduce_op)-1, SHERD_SUM), true));
    FAILS(SHERD_EINVAL, sherd_index_softmax(a, BAD(-3, 0), i, 4));
    FAILS(SHERD_EINVAL, sherd_index_softmax(a, 0, NUL(i), 4));
    FAILS(SHERD_EINVAL, sherd_index_softmax(BAD(sherd_cast(a, SHERD_I32), a), 0, i, 4));
    FAILS(SHERD_EINVAL, sherd_index_softmax(a, 0, i, BAD(-1, 4)));
    FAILS(SHERD_EINVAL, sherd_index_softmax(a, 0, i, BAD(1, 2)));
    FAILS(SHERD_EINVAL, sherd_index_at(a, both, BAD(0, 2)));
    FAILS(SHERD_EINVAL, sherd_index_at(a, both, BAD(5, 2)));
    FAILS(SHERD_EINVAL, sherd_index_at(a, NUL(both), 2));
    FAILS(SHERD_EINVAL, sherd_index_at(a, BAD(one, both), 2));
    FAILS(SHERD_EINVAL, sherd_index_at(BAD(numbers(m->world, SHERD_F32, 1), a), both, 2));
    FAILS(SHERD_EINVAL, sherd_index_put(a, both, 2, NUL(numbers(m->world, SHERD_F32, 0)), true));
    FAILS(SHERD_EINVAL,
          sherd_index_put(a, both, BAD(INT32_MIN, 2), numbers(m->world, SHERD_F32, 0), true));
    FAILS(SHERD_EINVAL, sherd_index_put(a, NUL(both), 2, numbers(m->world, SHERD_F32, 0), true));
    sherd_scope_end(m->world);
}

static const check_test tests[] = {
    {TEST(an_index_of_nothing_is_nothing), {1, 2, 3}},
    {TEST(fractions_have_no_bits), {1, 2, 3}},
    {TEST(indices_and_counts_fit), {1, 2, 3}},
};
CHECK_MAIN(tests)
