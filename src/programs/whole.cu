/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Integers element by element, modulo a power of two: the rows of kernels/functions.inc that are
 * for numbers; and how often indices occur. Which function it is is a number, not an instance: all
 * but divisions go at the speed of memory.
 */

/* The numbers of functions, as in kernels/functions.h. */
enum {
    SCALE,
    SHIFT,
#define UNARY0(name, NAME, ...)  NAME,
#define UNARY1(name, NAME, ...)  NAME,
#define UNARY2(name, NAME, ...)  NAME,
#define HIDDEN1(name, NAME, ...) NAME,
#include "kernels/functions.inc"
};
enum {
    ADD,
    SUB,
    MUL,
#define BINARY(name, NAME, ...) NAME,
#include "kernels/functions.inc"
};

/* What is computed without overflow. */
template <class E> struct wrapping {
    typedef uint32_t type;
};
template <> struct wrapping<i64> {
    typedef uint64_t type;
};

template <class E> __device__ inline bool is_negative(E x)
{
    return x < 0;
}
template <> __device__ inline bool is_negative<u8>(u8)
{
    return false;
}

/* floor(x / by), by != 0; the quotient of the least number and -1 wraps around. */
template <class E> __device__ inline E whole_quotient(E x, E by)
{
    typedef typename wrapping<E>::type word;

    if (is_negative(by) && by + 1 == 0)
        return (E)(0 - (word)x);
    E quotient = (E)(x / by);
    return x % by != 0 && is_negative(x) != is_negative(by) ? (E)(quotient - 1) : quotient;
}

template <class E> __device__ inline E whole_unary_of(const whole_unary_args &a, E x)
{
    typedef typename wrapping<E>::type word;
    E p = (E)a.parameter[0], q = (E)a.parameter[1];

    switch (a.kind) {
    case SHIFT:
        return (E)((word)x + (word)p);
    case NEG:
        return (E)(0 - (word)x);
    case ABS:
        return is_negative(x) ? (E)(0 - (word)x) : x;
    case SIGN:
        return (E)((x > 0) - is_negative(x));
    case SQUARE:
        return (E)((word)x * (word)x);
    case RELU:
        return is_negative(x) ? 0 : x;
    case FLOOR_DIVIDE_SCALAR:
        return whole_quotient<E>(x, p);
    case REMAINDER_SCALAR:
        return (E)((word)x - (word)whole_quotient<E>(x, p) * (word)p);
    case CLAMP:
        return x < p ? p : x > q ? q : x;
    default:
        return x;
    }
}

template <class E> __device__ void whole_unary(const whole_unary_args &a)
{
    typedef typename vector<E>::type group;
    enum { LANES = vector<E>::LANES };
    const E *src = (const E *)a.src;
    E *dst = (E *)a.dst;
    int64_t groups = a.wide ? a.n / LANES : 0, step = all_threads();

    for (int64_t i = global_thread(); i < groups; i += step) {
        group x = ((const group *)src)[i];
        UNROLL
        for (int k = 0; k < LANES; k++)
            x.x[k] = whole_unary_of<E>(a, x.x[k]);
        ((group *)dst)[i] = x;
    }
    for (int64_t i = groups * LANES + global_thread(); i < a.n; i += step)
        dst[i] = whole_unary_of<E>(a, src[i]);
}

template <class E> __device__ inline E whole_binary_of(int kind, E x, E y)
{
    typedef typename wrapping<E>::type word;

    switch (kind) {
    case ADD:
        return (E)((word)x + (word)y);
    case SUB:
        return (E)((word)x - (word)y);
    case MUL:
        return (E)((word)x * (word)y);
    case MAXIMUM:
        return x > y ? x : y;
    case MINIMUM:
        return x < y ? x : y;
    default:
        return x;
    }
}

template <class E> __device__ void whole_binary(const whole_binary_args &a)
{
    enum { LANES = vector<E>::LANES };
    typedef pack<E, LANES> group;
    const E *x = (const E *)a.operand[0], *y = (const E *)a.operand[1];
    E *dst = (E *)a.dst;
    int64_t at[2], done = a.wide ? a.items * LANES : 0, step = all_threads();

    for (int64_t i = global_thread(); i < a.items && a.wide; i += step) {
        locate<2>(a, i, at);
        group u = group_at<E, LANES>(x + at[0], a.step[0]);
        group v = group_at<E, LANES>(y + at[1], a.step[1]);
        UNROLL
        for (int k = 0; k < LANES; k++)
            u.x[k] = whole_binary_of<E>(a.kind, u.x[k], v.x[k]);
        ((group *)dst)[i] = u;
    }
    for (int64_t i = done + global_thread(); i < a.n; i += step) {
        at[0] = i * a.step[0];
        at[1] = i * a.step[1];
        if (!a.wide)
            locate<2>(a, i, at);
        dst[i] = whole_binary_of<E>(a.kind, x[at[0]], y[at[1]]);
    }
}

/* ---- how often ------------------------------------------------------------------------------- */

/* Counts do not depend on the order in which they are added up. */
template <class E> __device__ void count(const count_args &a)
{
    SHARED_BYTES(memory);
    int32_t *here = a.shared ? (int32_t *)memory : a.counts;

    for (int64_t i = threadIdx.x; i < a.classes && a.shared; i += blockDim.x)
        here[i] = 0;
    __syncthreads();
    for (int64_t i = global_thread(); i < a.n; i += all_threads()) {
        int64_t at = (int64_t)((const E *)a.index)[i] - a.first;
        if (at >= 0 && at < a.classes)
            atomicAdd(here + at, 1);
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.classes && a.shared; i += blockDim.x)
        if (here[i])
            atomicAdd(a.counts + i, here[i]);
}
