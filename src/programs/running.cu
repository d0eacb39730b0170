/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs along a dim: running sums here, all else in lines.cuh. Rows: a block takes some
 * elements at a time, adds up what its threads have, and goes on with the sum of all. Columns: a
 * thread each. Few of them are cut into parts, whose sums are found first. What is added in which
 * order depends on shapes alone.
 */

/* What is added: fractions in f64, as on the CPU, so that the error does not grow with the number
 * of elements; integers wrap around. */
template <class E> struct running {
    typedef double type;
};
template <> struct running<i32> {
    typedef uint32_t type;
};
template <> struct running<i64> {
    typedef uint64_t type;
};
template <> struct running<i8> {
    typedef uint32_t type;
};
template <> struct running<u8> {
    typedef uint32_t type;
};

template <class E> __device__ inline E put_sum(typename running<E>::type x)
{
    return put<E>((typename number<E>::sum)x);
}

#include "lines.cuh"

enum { EACH = 4 /* elements of a thread at a time */ };

/* The sum of x of all threads before this one; `all`: of all threads. */
template <class T> __device__ inline T sum_before(T x, T *all, T *room)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    T sum = x, before = 0, total = 0;

    for (int step = 1; step < WARP; step *= 2) {
        T other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step)
            sum += other;
    }
    __syncthreads();
    if (lane == WARP - 1)
        room[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warps; w++) {
        if (w == warp)
            before = total;
        total += room[w];
    }
    *all = total;
    T left = __shfl_up_sync(0xffffffffu, sum, 1);
    return lane > 0 ? before + left : before;
}

/* The place of the ith element, from the end if reverse. */
__device__ inline int64_t turned(const running_args &a, int64_t i)
{
    return a.reverse ? a.n - 1 - i : i;
}

/* EACH elements of a row from i on, of which those before `end` are there. */
template <class E>
__device__ inline void load_some(const running_args &a, E *x, const E *row, int64_t i, int64_t end)
{
    if (a.wide && i < end) {
        pack<E, EACH> g = *(const pack<E, EACH> *)(row + (a.reverse ? a.n - EACH - i : i));
        UNROLL
        for (int k = 0; k < EACH; k++)
            x[k] = a.reverse ? g.x[EACH - 1 - k] : g.x[k];
        return;
    }
    UNROLL
    for (int k = 0; k < EACH; k++)
        x[k] = i + k < end ? row[turned(a, i + k)] : put_sum<E>(0);
}

template <class E>
__device__ inline void store_some(const running_args &a, const E *x, E *row, int64_t i, int64_t end)
{
    pack<E, EACH> g;

    UNROLL
    for (int k = 0; k < EACH; k++)
        g.x[k] = a.reverse ? x[EACH - 1 - k] : x[k];
    if (a.wide && i < end)
        *(pack<E, EACH> *)(row + (a.reverse ? a.n - EACH - i : i)) = g;
    for (int k = 0; k < EACH && !a.wide; k++)
        if (i + k < end)
            row[turned(a, i + k)] = x[k];
}

/* A part of a row, from `carry` on. */
template <class E>
__device__ inline void run_part(const running_args &a, const E *src, E *dst, int64_t from,
                                int64_t end, typename running<E>::type carry,
                                typename running<E>::type *room)
{
    typedef typename running<E>::type type;

    for (; from < end; from += (int64_t)blockDim.x * EACH) {
        int64_t first = from + (int64_t)threadIdx.x * EACH;
        type sum[EACH], mine = 0, all;
        E x[EACH];
        load_some(a, x, src, first, end);
        for (int k = 0; k < EACH; k++) {
            mine += (type)get(x[k]);
            sum[k] = mine;
        }
        type before = carry + sum_before(mine, &all, room);
        for (int k = 0; k < EACH; k++)
            x[k] = put_sum<E>(before + sum[k]);
        store_some(a, x, dst, first, end);
        carry += all;
    }
}

template <class E> __device__ void running_rows(const running_rows_args &a)
{
    typedef typename running<E>::type type;
    __shared__ type room[MOST_WARPS];

    for (int64_t p = blockIdx.x; p < a.outer * a.parts; p += gridDim.x) {
        int64_t row = p / a.parts, from = (p - row * a.parts) * a.length;
        int64_t end = from + a.length < a.n ? from + a.length : a.n;
        run_part<E>(a, (const E *)a.src + row * a.n, (E *)a.dst + row * a.n, from, end,
                    a.totals ? ((const type *)a.totals)[p] : (type)0, room);
    }
}

/* totals: the sums of parts. */
template <class E> __device__ void row_totals(const row_totals_args &a)
{
    typedef typename running<E>::type type;
    __shared__ type room[MOST_WARPS];

    for (int64_t p = blockIdx.x; p < a.outer * a.parts; p += gridDim.x) {
        int64_t row = p / a.parts, from = (p - row * a.parts) * a.length;
        int64_t end = from + a.length < a.n ? from + a.length : a.n;
        type mine = 0, all;
        for (int64_t i = from + threadIdx.x; i < end; i += blockDim.x)
            mine += (type)get(((const E *)a.src)[row * a.n + turned(a, i)]);
        sum_before(mine, &all, room);
        if (threadIdx.x == 0)
            ((type *)a.totals)[p] = all;
    }
}

/* totals: the sums of those before each, in place. */
template <class E> __device__ void running_starts(const running_starts_args &a)
{
    typedef typename running<E>::type type;

    for (int64_t i = global_thread(); i < a.outer * a.inner; i += all_threads()) {
        int64_t outer = i / a.inner, at = outer * a.parts * a.inner + (i - outer * a.inner);
        type sum = 0;
        for (int64_t p = 0; p < a.parts; p++, at += a.inner) {
            type mine = ((type *)a.totals)[at];
            ((type *)a.totals)[at] = sum;
            sum += mine;
        }
    }
}

/* A thread takes a part of a column, some elements at a time. `writes`, or only the sum. */
template <class E>
__device__ inline typename running<E>::type run_column(const running_args &a, int64_t at,
                                                       int64_t from, int64_t end,
                                                       typename running<E>::type sum, bool writes)
{
    typedef typename running<E>::type type;
    const E *src = (const E *)a.src + at;
    E *dst = (E *)a.dst + at;

    for (; from < end; from += EACH) {
        E x[EACH];
        UNROLL
        for (int k = 0; k < EACH; k++)
            x[k] = from + k < end ? src[turned(a, from + k) * a.inner] : put_sum<E>(0);
        UNROLL
        for (int k = 0; k < EACH; k++) {
            sum += (type)get(x[k]);
            if (writes && from + k < end)
                dst[turned(a, from + k) * a.inner] = put_sum<E>(sum);
        }
    }
    return sum;
}

template <class E> __device__ inline void run_columns(const running_args &a, bool writes)
{
    typedef typename running<E>::type type;
    type *totals = (type *)a.totals;

    for (int64_t i = global_thread(); i < a.outer * a.parts * a.inner; i += all_threads()) {
        int64_t part = i / a.inner, outer = part / a.parts,
                from = (part - outer * a.parts) * a.length;
        int64_t end = from + a.length < a.n ? from + a.length : a.n;
        type before = writes && totals ? totals[i] : (type)0;
        type sum = run_column<E>(a, outer * a.n * a.inner + (i - part * a.inner), from, end, before,
                                 writes);
        if (!writes)
            totals[i] = sum;
    }
}

template <class E> __device__ void running_columns(const running_columns_args &a)
{
    run_columns<E>(a, true);
}
template <class E> __device__ void column_totals(const column_totals_args &a)
{
    run_columns<E>(a, false);
}
