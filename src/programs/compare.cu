/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparisons and logic, of any type to bool; one of two elements, as a mask says; triangles of
 * matrices; one of several elements, as an index says. All go at the speed of memory: which
 * comparison it is is a number, not an instance.
 */

/* ---- comparisons ----------------------------------------------------------------------------- */

/* What elements are compared as. */
template <class E> struct comparable {
    typedef int64_t type;
};
template <> struct comparable<f32> {
    typedef float type;
};
template <> struct comparable<f64> {
    typedef double type;
};
template <> struct comparable<bf16> {
    typedef float type;
};
template <> struct comparable<f16> {
    typedef float type;
};

/* The number that elements are compared with. */
template <class T> __device__ inline T number_of(const compare_args &a)
{
    return (T)a.number;
}
template <> __device__ inline int64_t number_of<int64_t>(const compare_args &a)
{
    return a.whole;
}

template <class T> __device__ inline uint8_t answer(const compare_args &a, T x, T y)
{
    uint32_t order = x < y ? 1 : x == y ? 2 : x > y ? 4 : 8;
    uint32_t both = 1u << ((x != 0) * 2 + (y != 0));

    return (a.truth & (a.logic ? both : order)) != 0;
}

/* LANES of them, of which the first lies at[k] in operand k. */
template <class E, int LANES>
__device__ inline void compare_at(const compare_args &a, const int64_t *at, uint8_t *dst)
{
    typedef typename comparable<E>::type type;
    const E *second = (const E *)a.operand[1];
    pack<E, LANES> x = group_at<E, LANES>((const E *)a.operand[0] + at[0], a.box.step[0]), y = x;
    type number = number_of<type>(a);
    pack<uint8_t, LANES> out;

    if (second)
        y = group_at<E, LANES>(second + at[1], a.box.step[1]);
    UNROLL
    for (int k = 0; k < LANES; k++)
        out.x[k] = answer<type>(a, (type)get(x.x[k]), second ? (type)get(y.x[k]) : number);
    *(pack<uint8_t, LANES> *)dst = out;
}

template <class E> __device__ void compare(const compare_args &a)
{
    enum { LANES = vector<E>::LANES };
    int64_t at[2], done = a.box.wide ? a.box.items * LANES : 0, step = all_threads();

    for (int64_t i = global_thread(); i < a.box.items && a.box.wide; i += step) {
        locate<2>(a.box, i, at);
        compare_at<E, LANES>(a, at, a.dst + i * LANES);
    }
    for (int64_t i = done + global_thread(); i < a.box.n; i += step) {
        at[0] = i * a.box.step[0];
        at[1] = i * a.box.step[1];
        if (!a.box.wide)
            locate<2>(a.box, i, at);
        compare_at<E, 1>(a, at, a.dst + i);
    }
}

/* ---- one of two ------------------------------------------------------------------------------ */

template <class UNIT, int LANES>
__device__ inline void pick_at(const pick_args &a, const int64_t *at, UNIT *dst)
{
    pack<uint8_t, LANES> mask = group_at<uint8_t, LANES>(a.mask + at[0], a.box.step[0]);
    pack<UNIT, LANES> x[2];

    UNROLL
    for (int i = 0; i < 2; i++) {
        UNROLL
        for (int k = 0; k < LANES; k++)
            x[i].x[k] = (UNIT)a.value;
        if (a.operand[i])
            x[i] = group_at<UNIT, LANES>((const UNIT *)a.operand[i] + at[1 + i], a.box.step[1 + i]);
    }
    UNROLL
    for (int k = 0; k < LANES; k++)
        x[0].x[k] = mask.x[k] ? x[0].x[k] : x[1].x[k];
    *(pack<UNIT, LANES> *)dst = x[0];
}

template <class UNIT> __device__ void pick(const pick_args &a)
{
    enum { LANES = vector<UNIT>::LANES };
    UNIT *dst = (UNIT *)a.dst;
    int64_t at[3], done = a.box.wide ? a.box.items * LANES : 0, step = all_threads();

    for (int64_t i = global_thread(); i < a.box.items && a.box.wide; i += step) {
        locate<3>(a.box, i, at);
        pick_at<UNIT, LANES>(a, at, dst + i * LANES);
    }
    for (int64_t i = done + global_thread(); i < a.box.n; i += step) {
        for (int k = 0; k < 3; k++)
            at[k] = i * a.box.step[k];
        if (!a.box.wide)
            locate<3>(a.box, i, at);
        pick_at<UNIT, 1>(a, at, dst + i);
    }
}

/* ---- triangles ------------------------------------------------------------------------------- */

template <class UNIT> __device__ void corner(const corner_args &a)
{
    int self = threadIdx.x % a.across, rows = blockDim.x / a.across;
    int64_t first = (int64_t)blockIdx.x * rows + threadIdx.x / a.across;

    for (int64_t r = first; r < a.rows; r += (int64_t)gridDim.x * rows) {
        const UNIT *from = (const UNIT *)a.src + r * a.cols;
        UNIT *to = (UNIT *)a.dst + r * a.cols;
        int64_t edge = a.edge + r % a.height;
        for (int64_t c = self; c < a.cols; c += a.across)
            to[c] = (c >= edge) == (a.upper != 0) ? from[c] : (UNIT)0;
    }
}

/* ---- one of several -------------------------------------------------------------------------- */

/* The column of a row's class; -1: it is not here, or does not count. */
__device__ inline int64_t column_of(const class_args &a, int64_t row)
{
    int32_t target = a.target[row];
    int64_t at = target - a.first;

    return at < 0 || at >= a.cols || (a.ignores && target == a.ignored) ? -1 : at;
}

/* With a weight of 0 it is 0, even if x is not finite. */
template <class E> __device__ inline E weighed(const class_args &a, E x, int64_t at)
{
    typedef typename number<E>::sum real;

    if (!a.weight)
        return x;
    real weight = get(((const E *)a.weight)[at]);
    return put<E>(weight == 0 ? (real)0 : (real)get(x) * weight);
}

template <class E> __device__ void take_class(const take_class_args &a)
{
    for (int64_t r = global_thread(); r < a.rows; r += all_threads()) {
        int64_t at = column_of(a, r);
        E none = put<E>(0);
        ((E *)a.dst)[r] = at < 0 ? none : weighed(a, ((const E *)a.src)[r * a.cols + at], at);
    }
}

template <class E> __device__ void put_class(const put_class_args &a)
{
    int self = threadIdx.x % a.across, rows = blockDim.x / a.across;
    int64_t first = (int64_t)blockIdx.x * rows + threadIdx.x / a.across;

    for (int64_t r = first; r < a.rows; r += (int64_t)gridDim.x * rows) {
        int64_t at = column_of(a, r);
        E none = put<E>(0), x = none;
        if (at >= 0)
            x = weighed(a, ((const E *)a.src)[r], at);
        for (int64_t c = self; c < a.cols; c += a.across)
            ((E *)a.dst)[r * a.cols + c] = c == at ? x : none;
    }
}
