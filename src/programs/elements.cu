/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions element by element, of the rows of kernels/functions.inc: a row is a type, f_<name>,
 * whose value and slopes are computed in the type of sums, so that f32 never becomes f64. Also
 * fills, conversions and dropout. All go at the speed of memory, 16 bytes an access where places
 * allow, but for powers and remainders.
 */

#include "philox.cuh"

/* ---- functions ------------------------------------------------------------------------------- */

#define R(x)        ((REAL)(x))
#define LOGISTIC(x) (1 / (1 + exp(-(x))))

/* x (1 + tanh u) / 2 = x / (1 + e^-2u), which cancels nowhere; this is 2u. */
template <class REAL> __device__ inline REAL gelu_exponent(REAL x)
{
    return R(1.5957691216057308) * (x + R(0.044715) * x * x * x);
}

template <class REAL> __device__ inline REAL gelu(REAL x)
{
    return x / (1 + exp(-gelu_exponent(x)));
}

/* Beyond 30 it is 0 or 1, and the square may overflow. */
template <class REAL> __device__ inline REAL gelu_slope(REAL x)
{
    x = x > 30 ? R(30) : x < -30 ? R(-30) : x;
    REAL part = LOGISTIC(gelu_exponent(x));

    return part + x * part * (1 - part) * R(1.5957691216057308) * (1 + R(0.134145) * x * x);
}

/* tanh(log(1 + e^x)) as a quotient of what never is far from 1, and 1 - that; e = e^-|x|. */
template <class REAL> __device__ inline REAL mish_part(REAL x, REAL e, REAL *rest)
{
    REAL below = x > 0 ? 1 + 2 * e + 2 * e * e : e * e + 2 * e + 2;

    *rest = (x > 0 ? 2 * e * e : 2) / below;
    return (x > 0 ? 1 + 2 * e : e * e + 2 * e) / below;
}

template <class REAL> __device__ inline REAL mish(REAL x)
{
    REAL rest;

    return x * mish_part(x, exp(-fabs(x)), &rest);
}

template <class REAL> __device__ inline REAL mish_slope(REAL x)
{
    REAL e = exp(-fabs(x)), rest, part = mish_part(x, e, &rest);

    return part + x * rest * (1 + part) * (x > 0 ? 1 / (1 + e) : e / (1 + e));
}

/* As those of kernels/quotients.h. */
template <class REAL> __device__ inline REAL modulo(REAL a, REAL b)
{
    REAL left = fmod(a, b);

    return left != 0 && (left < 0) != (b < 0) ? left + b : left;
}

template <class REAL> __device__ inline REAL floor_quotient(REAL a, REAL b)
{
    REAL left = fmod(a, b), quotient = rint((a - left) / b);

    if (b == 0)
        return a / b;
    if (left != 0 && (left < 0) != (b < 0))
        quotient -= 1;
    return quotient == 0 ? copysign(R(0), a / b) : quotient;
}

struct f_scale {
    template <class REAL> static __device__ inline REAL value_of(REAL x, REAL factor, REAL)
    {
        return x * factor;
    }
};
struct f_shift {
    template <class REAL> static __device__ inline REAL value_of(REAL x, REAL addend, REAL)
    {
        return x + addend;
    }
};
struct f_add {
    template <class REAL> static __device__ inline REAL value_of(REAL a, REAL b)
    {
        return a + b;
    }
};
struct f_sub {
    template <class REAL> static __device__ inline REAL value_of(REAL a, REAL b)
    {
        return a - b;
    }
};
struct f_mul {
    template <class REAL> static __device__ inline REAL value_of(REAL a, REAL b)
    {
        return a * b;
    }
};

enum { READS_NOTHING, READS_X, READS_Y };
#define AT_NOTHING unread
#define AT_X       x
#define AT_Y       y

#define UNARY2(name, NAME, p, q, text, numbers, at, value, slope)                            \
    struct f_##name {                                                                        \
        enum { READS = (int)READS_##at };                                                    \
        template <class REAL> static __device__ inline REAL value_of(REAL x, REAL p, REAL q) \
        {                                                                                    \
            (void)x, (void)p, (void)q;                                                       \
            return (REAL)(value);                                                            \
        }                                                                                    \
        template <class REAL>                                                                \
        static __device__ inline REAL slope_of(REAL AT_##at, REAL dy, REAL p, REAL q)        \
        {                                                                                    \
            (void)AT_##at, (void)dy, (void)p, (void)q;                                       \
            return (REAL)(slope);                                                            \
        }                                                                                    \
    };
#define UNARY1(name, NAME, p, text, numbers, at, value, slope) \
    UNARY2(name, NAME, p, second, text, numbers, at, value, slope)
#define HIDDEN1(name, NAME, p, text, numbers, at, value, slope) \
    UNARY2(name, NAME, p, second, text, numbers, at, value, slope)
#define UNARY0(name, NAME, text, numbers, at, value, slope) \
    UNARY2(name, NAME, first, second, text, numbers, at, value, slope)
#define BINARY(name, NAME, text, numbers, value, slope_a, slope_b)                              \
    struct f_##name {                                                                           \
        template <class REAL> static __device__ inline REAL value_of(REAL a, REAL b)            \
        {                                                                                       \
            return (REAL)(value);                                                               \
        }                                                                                       \
        template <class REAL> static __device__ inline REAL slope_of_a(REAL a, REAL b, REAL dy) \
        {                                                                                       \
            (void)a, (void)b, (void)dy;                                                         \
            return (REAL)(slope_a);                                                             \
        }                                                                                       \
        template <class REAL> static __device__ inline REAL slope_of_b(REAL a, REAL b, REAL dy) \
        {                                                                                       \
            (void)a, (void)b, (void)dy;                                                         \
            return (REAL)(slope_b);                                                             \
        }                                                                                       \
    };
/* What the CPU computes in f64 is written such that f32 is enough here. */
#define double REAL
#include "kernels/functions.inc"
#undef double
#undef R
#undef LOGISTIC

/* ---- of one operand -------------------------------------------------------------------------- */

template <class KIND, class E> __device__ inline E unary_of(const unary_args &a, E x)
{
    typedef typename number<E>::sum real;

    return put<E>(KIND::value_of((real)get(x), (real)a.parameter[0], (real)a.parameter[1]));
}

template <class KIND, class E> __device__ void unary(const unary_args &a)
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
            x.x[k] = unary_of<KIND>(a, x.x[k]);
        ((group *)dst)[i] = x;
    }
    for (int64_t i = groups * LANES + global_thread(); i < a.n; i += step)
        dst[i] = unary_of<KIND>(a, src[i]);
}

template <class KIND, class E> __device__ inline E slope_of(const unary_args &a, E at, E dy)
{
    typedef typename number<E>::sum real;

    return put<E>(
        KIND::slope_of((real)get(at), (real)get(dy), (real)a.parameter[0], (real)a.parameter[1]));
}

template <class KIND, class E> __device__ void unary_grad(const unary_grad_args &a)
{
    typedef typename vector<E>::type group;
    enum { LANES = vector<E>::LANES, READS = (int)KIND::READS != (int)READS_NOTHING };
    const E *dy = (const E *)a.dy, *at = READS ? (const E *)a.src : dy;
    E *dst = (E *)a.dst;
    int64_t groups = a.wide ? a.n / LANES : 0, step = all_threads();

    for (int64_t i = global_thread(); i < groups; i += step) {
        group g = ((const group *)dy)[i], x = ((const group *)at)[i];
        UNROLL
        for (int k = 0; k < LANES; k++)
            g.x[k] = slope_of<KIND>(a, x.x[k], g.x[k]);
        ((group *)dst)[i] = g;
    }
    for (int64_t i = groups * LANES + global_thread(); i < a.n; i += step)
        dst[i] = slope_of<KIND>(a, at[i], dy[i]);
}

/* ---- of two operands ------------------------------------------------------------------------- */

/* What a kernel computes of two operands, and dy: the value, or a slope. */
template <class KIND> struct as_value {
    enum { READS_DY = 0 };
    template <class REAL> static __device__ inline REAL of(REAL a, REAL b, REAL)
    {
        return KIND::value_of(a, b);
    }
};
template <class KIND> struct as_slope_a {
    enum { READS_DY = 1 };
    template <class REAL> static __device__ inline REAL of(REAL a, REAL b, REAL dy)
    {
        return KIND::slope_of_a(a, b, dy);
    }
};
template <class KIND> struct as_slope_b {
    enum { READS_DY = 1 };
    template <class REAL> static __device__ inline REAL of(REAL a, REAL b, REAL dy)
    {
        return KIND::slope_of_b(a, b, dy);
    }
};

template <class WHAT, class E> __device__ inline E pair_of(E x, E y, E dy)
{
    typedef typename number<E>::sum real;

    return put<E>(WHAT::of((real)get(x), (real)get(y), (real)get(dy)));
}

template <class WHAT, class E> __device__ inline void pairs(const binary_args &a)
{
    typedef typename vector<E>::type group;
    enum { LANES = vector<E>::LANES };
    const E *x = (const E *)a.operand[0], *y = (const E *)a.operand[1];
    E *dst = (E *)a.dst;
    const E *dy = WHAT::READS_DY ? (const E *)a.dy : 0;
    int64_t at[2], done = 0, step = all_threads();

    for (int64_t i = global_thread(); i < a.items && a.wide; i += step) {
        locate<2>(a, i, at);
        group u = group_at<E, LANES>(x + at[0], a.step[0]),
              v = group_at<E, LANES>(y + at[1], a.step[1]), g = u;
        if (WHAT::READS_DY)
            g = ((const group *)dy)[i];
        UNROLL
        for (int k = 0; k < LANES; k++)
            u.x[k] = pair_of<WHAT>(u.x[k], v.x[k], g.x[k]);
        ((group *)dst)[i] = u;
    }
    if (a.wide)
        done = a.items * LANES;
    for (int64_t i = done + global_thread(); i < a.n; i += step) {
        at[0] = i * a.step[0];
        at[1] = i * a.step[1];
        if (!a.wide)
            locate<2>(a, i, at);
        E u = x[at[0]];
        dst[i] = pair_of<WHAT>(u, y[at[1]], WHAT::READS_DY ? dy[i] : u);
    }
}

template <class KIND, class E> __device__ void binary(const binary_args &a)
{
    pairs<as_value<KIND>, E>(a);
}
template <class KIND, class E> __device__ void binary_grad_a(const binary_grad_a_args &a)
{
    pairs<as_slope_a<KIND>, E>(a);
}
template <class KIND, class E> __device__ void binary_grad_b(const binary_grad_b_args &a)
{
    pairs<as_slope_b<KIND>, E>(a);
}

/* ---- fills and conversions ------------------------------------------------------------------- */

/* An f32 that rounds to 16 bits as x does: where it is not exact its last bit is 1. */
__device__ inline float to_odd(double x)
{
    float near = (float)x;

    if ((double)near == x || x != x)
        return near;
    uint32_t bits = bits_of(near);
    if (fabs((double)near) > fabs(x))
        bits--;
    return float_of(bits | 1);
}

/* The same of an integer: of a large one the lowest 11 bits become one that says whether any of
 * them was set, which leaves a double exact. */
__device__ inline float to_odd(int64_t x)
{
    uint64_t size = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;

    if (size >> 53)
        size = size >> 11 << 11 | (uint64_t)((size & 0x7ff) != 0) << 11;
    return to_odd(x < 0 ? -(double)size : (double)size);
}
__device__ inline float to_odd(int32_t x)
{
    return to_odd((double)x);
}
__device__ inline float to_odd(float x)
{
    return x;
}

/* The least and the largest one. */
template <class E> struct range;
template <> struct range<i32> {
    static const int64_t low = -2147483647 - 1, high = 2147483647;
};
template <> struct range<i64> {
    static const int64_t low = -9223372036854775807 - 1, high = 9223372036854775807;
};
template <> struct range<i8> {
    static const int64_t low = -128, high = 127;
};
template <> struct range<u8> {
    static const int64_t low = 0, high = 255;
};

/* Of fractions truncated, and held within the range; of integers the low bits. */
template <class TO, class REAL> __device__ inline TO truncated(REAL x)
{
    if (x != x)
        return 0;
    if (x <= (REAL)range<TO>::low)
        return (TO)range<TO>::low;
    return x >= (REAL)range<TO>::high ? (TO)range<TO>::high : (TO)x;
}

template <class E> struct is_half {
    static const bool yes = false;
};
template <> struct is_half<bf16> {
    static const bool yes = true;
};
template <> struct is_half<f16> {
    static const bool yes = true;
};

/* x, which was a FROM, as a TO. */
template <class TO, class FROM> struct conversion {
    template <class REAL> static __device__ inline TO of(REAL x)
    {
        if constexpr (is_half<TO>::yes)
            return put<TO>(to_odd(x));
        else if constexpr (number<TO>::whole && !number<FROM>::whole)
            return truncated<TO>(x);
        else if constexpr (number<TO>::whole)
            return (TO)(uint64_t)x;
        else
            return put<TO>((typename number<TO>::sum)x);
    }
};
template <class FROM> struct conversion<b8, FROM> {
    template <class REAL> static __device__ inline b8 of(REAL x)
    {
        return put<b8>(x != 0);
    }
};

template <class E> __device__ void fill(const fill_args &a)
{
    typedef typename vector<E>::type group;
    enum { LANES = vector<E>::LANES };
    E *dst = (E *)a.dst, value = conversion<E, f64>::of(a.value);
    int64_t groups = a.wide ? a.n / LANES : 0, step = all_threads();
    group all;

    UNROLL
    for (int k = 0; k < LANES; k++)
        all.x[k] = value;
    for (int64_t i = global_thread(); i < groups; i += step)
        ((group *)dst)[i] = all;
    for (int64_t i = groups * LANES + global_thread(); i < a.n; i += step)
        dst[i] = value;
}

template <class TO, class FROM> __device__ void convert(const convert_args &a)
{
    enum { MOST = sizeof(TO) > sizeof(FROM) ? sizeof(TO) : sizeof(FROM), LANES = 16 / MOST };
    typedef pack<TO, LANES> to;
    typedef pack<FROM, LANES> from;
    const FROM *src = (const FROM *)a.src;
    TO *dst = (TO *)a.dst;
    int64_t groups = a.wide ? a.n / LANES : 0, step = all_threads();

    for (int64_t i = global_thread(); i < groups; i += step) {
        from x = ((const from *)src)[i];
        to y;
        UNROLL
        for (int k = 0; k < LANES; k++)
            y.x[k] = conversion<TO, FROM>::of(get(x.x[k]));
        ((to *)dst)[i] = y;
    }
    for (int64_t i = groups * LANES + global_thread(); i < a.n; i += step)
        dst[i] = conversion<TO, FROM>::of(get(src[i]));
}

/* ---- dropout --------------------------------------------------------------------------------- */

template <class E> __device__ inline E dropped(const dropout_args &a, E x, uint32_t random)
{
    typedef typename number<E>::sum real;

    return put<E>(random >> 8 >= a.threshold ? (real)get(x) * (real)a.factor : (real)0);
}

/* A thread takes the elements of one block of random numbers after another. */
template <class E> __device__ void dropout(const dropout_args &a)
{
    typedef pack<E, 4> group;
    const E *src = (const E *)a.src;
    E *dst = (E *)a.dst;
    int64_t first = a.first / 4, last = (a.first + a.n + 3) / 4;

    for (int64_t block = first + global_thread(); block < last; block += all_threads()) {
        uint32_t random[4];
        int64_t at = block * 4 - a.first;
        philox(random, a.word, a.high, (uint64_t)block);
        if (a.wide && at + 4 <= a.n) {
            group x = ((const group *)src)[at / 4];
            UNROLL
            for (int k = 0; k < 4; k++)
                x.x[k] = dropped(a, x.x[k], random[k]);
            ((group *)dst)[at / 4] = x;
            continue;
        }
        UNROLL
        for (int k = 0; k < 4; k++)
            if (at + k >= 0 && at + k < a.n)
                dst[at + k] = dropped(a, src[at + k], random[k]);
    }
}
