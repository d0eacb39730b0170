/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all programs of this room begin with: element types, sums over a warp and a block, and how a
 * kernel is declared. Programs are compiled by NVRTC, which has no headers, and for tests by the
 * C++ compiler, with CUDA's words from tests/emulated_cuda/grid.h.
 *
 * A kernel is a template of element types, named `family`, whose argument is one struct,
 * `family_args`. Its instances are made by KERNEL.
 */
#ifndef SHERD_EMULATED_CUDA
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

/* The argument stays where the launch put it: no thread copies it. */
#define KERNEL(name, args) extern "C" __global__ void name(const __grid_constant__ args a)
/* Memory of a block whose size the launch says. */
#define SHARED_BYTES(name) extern __shared__ __align__(16) unsigned char name[]
#define UNROLL             _Pragma("unroll")
#endif

/* ---- element types --------------------------------------------------------------------------- */

typedef float f32;
typedef double f64;
typedef int32_t i32;
typedef int64_t i64;
typedef int8_t i8;
typedef uint8_t u8;
struct b8 { /* bool: what is not 0 is true */
    uint8_t bits;
};
struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

/* What sums of E are computed in, and statistics kept in; whole: an integer, or bool. */
template <class E> struct number {
    typedef float sum;
    static const bool whole = false;
};
template <> struct number<f64> {
    typedef double sum;
    static const bool whole = false;
};
template <> struct number<i32> {
    typedef int32_t sum;
    static const bool whole = true;
};
template <> struct number<i64> {
    typedef int64_t sum;
    static const bool whole = true;
};
template <> struct number<i8> {
    typedef int32_t sum;
    static const bool whole = true;
};
template <> struct number<u8> {
    typedef int32_t sum;
    static const bool whole = true;
};
template <> struct number<b8> {
    typedef int32_t sum;
    static const bool whole = true;
};

__device__ inline uint32_t bits_of(float x)
{
    union {
        float x;
        uint32_t bits;
    } both;
    both.x = x;
    return both.bits;
}

__device__ inline float float_of(uint32_t bits)
{
    union {
        uint32_t bits;
        float x;
    } both;
    both.bits = bits;
    return both.x;
}

__device__ inline float get(f32 x)
{
    return x;
}
__device__ inline double get(f64 x)
{
    return x;
}
__device__ inline int32_t get(i32 x)
{
    return x;
}
__device__ inline int64_t get(i64 x)
{
    return x;
}
__device__ inline int32_t get(i8 x)
{
    return x;
}
__device__ inline int32_t get(u8 x)
{
    return x;
}
__device__ inline int32_t get(b8 x)
{
    return x.bits != 0;
}
__device__ inline float get(bf16 x)
{
    return float_of((uint32_t)x.bits << 16);
}

/* Exact, numbers below the smallest normal one and NaN included. */
__device__ inline float get(f16 x)
{
    uint32_t sign = (uint32_t)(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;

    if (rest >= 0x7c00)
        return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400)
        return float_of(sign | ((rest << 13) + 0x38000000));
    return float_of(sign | bits_of((float)rest * 5.9604644775390625e-8f));
}

template <class E> struct put_as;
template <> struct put_as<f32> {
    static __device__ inline f32 put(float x)
    {
        return x;
    }
};
template <> struct put_as<f64> {
    static __device__ inline f64 put(double x)
    {
        return x;
    }
};
template <> struct put_as<i32> {
    static __device__ inline i32 put(int32_t x)
    {
        return x;
    }
};
template <> struct put_as<i64> {
    static __device__ inline i64 put(int64_t x)
    {
        return x;
    }
};
template <> struct put_as<i8> {
    static __device__ inline i8 put(int32_t x)
    {
        return (i8)x;
    }
};
template <> struct put_as<u8> {
    static __device__ inline u8 put(int32_t x)
    {
        return (u8)x;
    }
};
template <> struct put_as<b8> {
    static __device__ inline b8 put(int32_t x)
    {
        b8 y;
        y.bits = x != 0;
        return y;
    }
};
/* To the nearest, ties to even; NaN stays one. */
template <> struct put_as<bf16> {
    static __device__ inline bf16 put(float x)
    {
        uint32_t bits = bits_of(x);
        bf16 y;
        y.bits = (bits & 0x7fffffff) > 0x7f800000
                     ? (uint16_t)(bits >> 16 | 0x40)
                     : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        return y;
    }
};
template <> struct put_as<f16> {
    static __device__ inline f16 put(float x)
    {
        uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
        f16 y;
        if (rest > 0x7f800000)
            y.bits = (uint16_t)(sign | 0x7e00);
        else if (rest >= 0x477ff000) /* what rounds beyond the largest one */
            y.bits = (uint16_t)(sign | 0x7c00);
        else if (rest < 0x38800000) /* below the smallest normal one: in units of 2^-24 */
            y.bits = (uint16_t)(sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000));
        else
            y.bits = (uint16_t)(sign | ((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13));
        return y;
    }
};
template <class E> __device__ inline E put(typename number<E>::sum x)
{
    return put_as<E>::put(x);
}

template <class T> __device__ inline T minus_infinity()
{
    return (T)float_of(0xff800000u);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { WARP = 32, MOST_WARPS = 32 };

__device__ inline int64_t global_thread()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ inline int64_t all_threads()
{
    return (int64_t)gridDim.x * blockDim.x;
}

template <class T> __device__ inline T larger(T a, T b)
{
    return b > a || b != b ? b : a;
}

/* The sum of a warp's 32 values, to all of them, in a fixed order. */
template <class T> __device__ inline T warp_sum(T x)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
template <class T> __device__ inline T warp_max(T x)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        x = larger(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* The sum of a block's values, to all of its threads, in a fixed order. `room`: MOST_WARPS in
 * shared memory, which may be used again after it. */
template <class T> __device__ inline T block_sum(T x, T *room)
{
    int warps = (blockDim.x + WARP - 1) / WARP;

    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < warps; w++)
        x += room[w];
    return x;
}
template <class T> __device__ inline T block_max(T x, T *room)
{
    int warps = (blockDim.x + WARP - 1) / WARP;

    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        room[threadIdx.x / WARP] = x;
    __syncthreads();
    x = room[0];
    for (int w = 1; w < warps; w++)
        x = larger(x, room[w]);
    return x;
}

/* ---- several at once ----------------------------------------------------------------------- */

/* N elements that are loaded and stored at once. */
template <class E, int N> struct __align__(N * sizeof(E)) pack
{
    E x[N];
};
template <class E> struct vector {
    enum { LANES = 16 / sizeof(E) };
    typedef pack<E, LANES> type;
};

template <class E, int N> __device__ inline void load(typename number<E>::sum *to, const E *from)
{
    pack<E, N> p = *(const pack<E, N> *)from;

    UNROLL
    for (int i = 0; i < N; i++)
        to[i] = get(p.x[i]);
}

template <class E, int N> __device__ inline void store(E *to, const typename number<E>::sum *from)
{
    pack<E, N> p;

    UNROLL
    for (int i = 0; i < N; i++)
        p.x[i] = put<E>(from[i]);
    *(pack<E, N> *)to = p;
}

/* N elements from `c` on of an array that may be missing; then each is `none`. */
template <class E, int N>
__device__ inline void load_or(typename number<E>::sum *to, const void *from, int64_t c, int none)
{
    UNROLL
    for (int i = 0; i < N; i++)
        to[i] = (typename number<E>::sum)none;
    if (from)
        load<E, N>(to, (const E *)from + c);
}

/* LANES neighbours, or one element for all. */
template <class E, int LANES> __device__ inline pack<E, LANES> group_at(const E *x, int32_t step)
{
    pack<E, LANES> group;

    if (step)
        return *(const pack<E, LANES> *)x;
    E same = *x;
    UNROLL
    for (int k = 0; k < LANES; k++)
        group.x[k] = same;
    return group;
}

/* Elements that are only copied, by their bytes. */
typedef uint8_t unit_1;
typedef uint16_t unit_2;
typedef uint32_t unit_4;
typedef uint64_t unit_8;
struct __align__(16) unit_16
{
    uint32_t word[4];
};

/* ---- boxes ----------------------------------------------------------------------------------- */

/* i / size for i < 2^31, with the numbers that sherd__box_divisors found for the size. */
__device__ inline uint32_t divide(uint32_t i, uint32_t multiplier, uint32_t shift)
{
    return (__umulhi(i, multiplier) + i) >> shift;
}

/*
 * Where element i of a box, counted in row-major order, lies in N operands. The argument of a
 * kernel has ndim, size, stride[N], and small, multiplier, shift of box.h.
 */
template <int N, class ARGS> __device__ inline void locate(const ARGS &a, int64_t i, int64_t at[N])
{
    for (int k = 0; k < N; k++)
        at[k] = 0;
    for (int d = a.ndim - 1; d > 0; d--) {
        int64_t next =
            a.small ? (int64_t)divide((uint32_t)i, a.multiplier[d], a.shift[d]) : i / a.size[d];
        for (int k = 0; k < N; k++)
            at[k] += (i - next * a.size[d]) * a.stride[k][d];
        i = next;
    }
    for (int k = 0; k < N; k++)
        at[k] += i * a.stride[k][0];
}
