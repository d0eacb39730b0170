/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions: of several tensors into one, and sums over a dim. Sums of 16-bit types are f32 and
 * rounded once. What is added in which order depends on shapes alone, so every run has the same
 * bits. All go at the speed of memory.
 */

/* ---- of several tensors ---------------------------------------------------------------------- */

__device__ inline float plus(float a, float b)
{
    return a + b;
}
__device__ inline double plus(double a, double b)
{
    return a + b;
}
/* Integers wrap around. */
__device__ inline int32_t plus(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}
__device__ inline int64_t plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
__device__ inline float times(float a, float b)
{
    return a * b;
}
__device__ inline double times(double a, double b)
{
    return a * b;
}
__device__ inline int32_t times(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a * (uint32_t)b);
}
__device__ inline int64_t times(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

struct by_sum {
    template <class REAL> static __device__ inline REAL join(REAL a, REAL b)
    {
        return plus(a, b);
    }
};
struct by_product {
    template <class REAL> static __device__ inline REAL join(REAL a, REAL b)
    {
        return times(a, b);
    }
};
/* A NaN on either side wins. */
struct by_min {
    template <class REAL> static __device__ inline REAL join(REAL a, REAL b)
    {
        return b < a || b != b ? b : a;
    }
};
struct by_max {
    template <class REAL> static __device__ inline REAL join(REAL a, REAL b)
    {
        return b > a || b != b ? b : a;
    }
};

/* A kind is an operation and how many there may be, at most: places of more take registers. */
#define KINDS(op)              \
    struct op##_2 : by_##op {  \
        enum { MOST = 2 };     \
    };                         \
    struct op##_4 : by_##op {  \
        enum { MOST = 4 };     \
    };                         \
    struct op##_8 : by_##op {  \
        enum { MOST = 8 };     \
    };                         \
    struct op##_16 : by_##op { \
        enum { MOST = 16 };    \
    };
KINDS(sum)
KINDS(product)
KINDS(min)
KINDS(max)
#undef KINDS

/* Averages are of fractions only. */
template <class REAL> __device__ inline REAL average(REAL x, double divisor)
{
    return x / (REAL)divisor;
}
__device__ inline int32_t average(int32_t x, double)
{
    return x;
}
__device__ inline int64_t average(int64_t x, double)
{
    return x;
}

/* One item, LANES neighbours, at[0] in dst and at[k + 1] in source k. */
template <class KIND, class E, int LANES>
__device__ inline void reduce_at(const reduce_args &a, const int64_t *at)
{
    typedef typename number<E>::sum real;
    typedef pack<E, LANES> group;
    real sum[LANES] = {};
    group x;

    UNROLL
    for (int k = 0; k < KIND::MOST; k++) {
        if (k >= a.count)
            continue;
        x = *(const group *)((const E *)a.src[k] + at[k + 1]);
        UNROLL
        for (int i = 0; i < LANES; i++)
            sum[i] = k == 0 ? (real)get(x.x[i]) : KIND::join(sum[i], (real)get(x.x[i]));
    }
    UNROLL
    for (int i = 0; i < LANES; i++)
        x.x[i] = put<E>(a.average ? average(sum[i], a.divisor) : sum[i]);
    *(group *)((E *)a.dst + at[0]) = x;
}

template <class KIND, class E> __device__ void reduce(const reduce_args &a)
{
    int64_t at[KIND::MOST + 1];

    for (int64_t i = global_thread(); i < a.items; i += all_threads()) {
        locate<KIND::MOST + 1>(a, i, at);
        if (a.wide)
            reduce_at<KIND, E, vector<E>::LANES>(a, at);
        else
            reduce_at<KIND, E, 1>(a, at);
    }
}

/* ---- over a dim ------------------------------------------------------------------------------ */

template <class TO, class REAL> __device__ inline void store_sum(TO *dst, REAL sum, int32_t add)
{
    *dst = put<TO>(add ? (REAL)get(*dst) + sum : sum);
}

/* The sum of every `team`th element, from `self` on, of x[n]. */
template <class REAL, class E>
__device__ inline REAL strided_sum(const E *x, int64_t n, int self, int team, int32_t in_groups)
{
    typedef typename vector<E>::type group;
    enum { LANES = vector<E>::LANES };
    int64_t groups = in_groups ? n / LANES : 0;
    REAL lane[LANES] = {}, sum = 0;

    for (int64_t i = self; i < groups; i += team) {
        group g = ((const group *)x)[i];
        UNROLL
        for (int k = 0; k < LANES; k++)
            lane[k] += get(g.x[k]);
    }
    for (int64_t i = groups * LANES + self; i < n; i += team)
        sum += get(x[i]);
    UNROLL
    for (int k = 0; k < LANES; k++)
        sum += lane[k];
    return sum;
}

template <class TO, class FROM> __device__ void sum_rows(const sum_rows_args &a)
{
    typedef typename number<FROM>::sum real;
    __shared__ real room[MOST_WARPS];
    const FROM *src = (const FROM *)a.src;
    TO *dst = (TO *)a.dst;
    int self = threadIdx.x % a.team, teams = blockDim.x / a.team;
    int64_t first = (int64_t)blockIdx.x * teams + threadIdx.x / a.team;

    for (int64_t t = first; t < a.rows * a.parts; t += (int64_t)gridDim.x * teams) {
        int64_t row = t / a.parts, from = (t - row * a.parts) * a.length;
        int64_t n = a.mid - from < a.length ? a.mid - from : a.length;
        real sum = strided_sum<real>(src + row * a.mid + from, n, self, a.team, a.wide);
        sum = a.team == WARP ? warp_sum(sum) : block_sum(sum, room);
        if (self == 0)
            store_sum(dst + t, sum, a.add);
    }
}

/* A block's sum of LANES columns for each of its `across` threads: of the elements `from` to `to`
 * of mid. To the first `across` threads. */
template <class REAL, class FROM, int LANES>
__device__ inline void column_sums(const sum_columns_args &a, const FROM *x, int64_t n, bool inside,
                                   REAL sum[LANES], REAL *room)
{
    typedef pack<FROM, LANES> group;
    int rows = blockDim.x / a.across, row = threadIdx.x / a.across;

    for (int k = 0; k < LANES; k++)
        sum[k] = 0;
    for (int64_t m = row; m < n && inside; m += rows) {
        group g = *(const group *)(x + m * a.inner);
        UNROLL
        for (int k = 0; k < LANES; k++)
            sum[k] += get(g.x[k]);
    }
    for (int half = rows / 2; half > 0; half /= 2) {
        __syncthreads();
        UNROLL
        for (int k = 0; k < LANES; k++)
            room[k * blockDim.x + threadIdx.x] = sum[k];
        __syncthreads();
        UNROLL
        for (int k = 0; k < LANES && row < half; k++)
            sum[k] += room[k * blockDim.x + threadIdx.x + half * a.across];
    }
    __syncthreads();
}

template <class TO, class FROM, int LANES>
__device__ inline void sum_columns_by(const sum_columns_args &a, void *memory)
{
    typedef typename number<FROM>::sum real;
    const FROM *src = (const FROM *)a.src;
    TO *dst = (TO *)a.dst;
    int lane = threadIdx.x % a.across;

    for (int64_t t = blockIdx.x; t < a.outer * a.parts * a.tiles; t += gridDim.x) {
        int64_t part = t / a.tiles, outer = part / a.parts;
        int64_t col = ((t - part * a.tiles) * a.across + lane) * LANES;
        int64_t from = (part - outer * a.parts) * a.length;
        int64_t n = a.mid - from < a.length ? a.mid - from : a.length;
        bool inside = col < a.inner;
        real sum[LANES];
        column_sums<real, FROM, LANES>(a, src + (outer * a.mid + from) * a.inner + col, n, inside,
                                       sum, (real *)memory);
        for (int k = 0; k < LANES && inside && (int)threadIdx.x < a.across; k++)
            store_sum(dst + part * a.inner + col + k, sum[k], a.add);
    }
}

/* Blocks of 256 threads, with that many sums of each lane in memory. */
template <class TO, class FROM> __device__ void sum_columns(const sum_columns_args &a)
{
    SHARED_BYTES(memory);

    if (a.wide)
        sum_columns_by<TO, FROM, vector<FROM>::LANES>(a, memory);
    else
        sum_columns_by<TO, FROM, 1>(a, memory);
}
