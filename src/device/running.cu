/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running sums. Rows: a block takes some elements at a time, adds up what its threads have, and
 * goes on with the sum of all; long rows are cut into parts, whose sums are found first. Columns:
 * one thread each. What is added in which order depends on shapes alone.
 */

/* What is added: integers wrap around. */
template <class E> struct running {
    typedef typename number<E>::sum type;
};
template <> struct running<i32> {
    typedef uint32_t type;
};
template <> struct running<i64> {
    typedef uint64_t type;
};
template <> struct running<u8> {
    typedef uint32_t type;
};

template <class E> __device__ inline E put_sum(typename running<E>::type x)
{
    return put<E>((typename number<E>::sum)x);
}

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

/* The place of the ith element of a row, from the end if reverse. */
template <class ARGS> __device__ inline int64_t turned(const ARGS &a, int64_t i)
{
    return a.reverse ? a.n - 1 - i : i;
}

/* A part of a row, from `carry` on. */
template <class E>
__device__ inline void run_part(const running_rows_args &a, const E *src, E *dst, int64_t from,
                                int64_t end, typename running<E>::type carry,
                                typename running<E>::type *room)
{
    typedef typename running<E>::type type;

    for (; from < end; from += (int64_t)blockDim.x * EACH) {
        int64_t first = from + (int64_t)threadIdx.x * EACH;
        type x[EACH], mine = 0, all;
        for (int k = 0; k < EACH; k++) {
            if (first + k < end)
                mine += (type)get(src[turned(a, first + k)]);
            x[k] = mine;
        }
        type before = carry + sum_before(mine, &all, room);
        for (int k = 0; k < EACH; k++)
            if (first + k < end)
                dst[turned(a, first + k)] = put_sum<E>(before + x[k]);
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

/* totals[outer,parts]: the sums of parts. */
template <class E> __device__ void running_totals(const running_totals_args &a)
{
    typedef typename running<E>::type type;
    __shared__ type room[MOST_WARPS];
    type *totals = (type *)a.totals;

    for (int64_t p = blockIdx.x; p < a.outer * a.parts; p += gridDim.x) {
        int64_t row = p / a.parts, from = (p - row * a.parts) * a.length;
        int64_t end = from + a.length < a.n ? from + a.length : a.n;
        type mine = 0, all;
        for (int64_t i = from + threadIdx.x; i < end; i += blockDim.x)
            mine += (type)get(((const E *)a.src)[row * a.n + turned(a, i)]);
        sum_before(mine, &all, room);
        if (threadIdx.x == 0)
            totals[p] = all;
    }
}

/* totals[outer,parts]: the sum of those before each, in place. */
template <class E> __device__ void running_starts(const running_starts_args &a)
{
    typedef typename running<E>::type type;

    for (int64_t row = global_thread(); row < a.outer; row += all_threads()) {
        type *totals = (type *)a.totals + row * a.parts, sum = 0;
        for (int64_t p = 0; p < a.parts; p++) {
            type mine = totals[p];
            totals[p] = sum;
            sum += mine;
        }
    }
}

template <class E> __device__ void running_columns(const running_columns_args &a)
{
    typedef typename running<E>::type type;

    for (int64_t i = global_thread(); i < a.outer * a.inner; i += all_threads()) {
        int64_t outer = i / a.inner, at = outer * a.n * a.inner + (i - outer * a.inner);
        type sum = 0;
        for (int64_t m = 0; m < a.n; m++) {
            int64_t place = at + turned(a, m) * a.inner;
            sum += (type)get(((const E *)a.src)[place]);
            ((E *)a.dst)[place] = put_sum<E>(sum);
        }
    }
}
