/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's words for the C++ compiler, so that tests run the kernels of src/device/ on a CPU. A
 * program's file here includes this, numbers.cuh, <program>_args.h and <program>.cu, and makes the
 * instances of its kernels; run_grid runs one.
 *
 * Blocks run one after another on the calling thread; a block's threads are fibers. A thread runs
 * until it waits for others, so what lacks a barrier reads what is not written yet: every other
 * block runs its threads from the last to the first. What waits for ever, reads from a lane that
 * does not take part, or takes more memory of a block than there is, ends with a line and an abort.
 * Memory of a block that the launch asks for holds NaN at first.
 *
 * About 10 ns a thread that never waits, 70 ns a wait.
 */
#ifndef SHERD_EMULATED_CUDA_GRID_H
#define SHERD_EMULATED_CUDA_GRID_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SHERD_EMULATED_CUDA

/* ---- running a kernel ------------------------------------------------------------------------ */

/* Threads: a multiple of 32, at most 1024. Several threads of the process may run one each. */
void run_grid(void (*kernel)(const void *), const void *args, long long blocks, int threads,
              int shared_bytes);

#define KERNEL(name, T)                                                                      \
    static void name##_body(const T a);                                                      \
    extern "C" __attribute__((visibility("default"))) void emulated_##name(const void *args) \
    {                                                                                        \
        name##_body(*static_cast<const T *>(args));                                          \
    }                                                                                        \
    static void name##_body(const T a)

#define SHARED_BYTES(name) unsigned char *name = grid_here.shared
#define UNROLL

/* ---- words ----------------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __constant__    static const
#define __shared__      static thread_local
#define __forceinline__ inline
#define __align__(n)    alignas(n)
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
};

/* Where the thread that runs now is. */
struct grid_place {
    dim3 thread, block, block_size, grid_size;
    unsigned char *shared;
};
extern __thread grid_place grid_here __attribute__((visibility("hidden")));

#define threadIdx grid_here.thread
#define blockIdx  grid_here.block
#define blockDim  grid_here.block_size
#define gridDim   grid_here.grid_size
#define warpSize  32

/* What loads and stores of many bytes are made with, to memory of any type. */
#define GRID_VECTOR(name, T, bytes, members)                 \
    struct __attribute__((may_alias, aligned(bytes))) name { \
        T members;                                           \
    };
#define GRID_MEMBERS2 x, y
#define GRID_MEMBERS4 x, y, z, w
GRID_VECTOR(uint2, unsigned, 8, GRID_MEMBERS2)
GRID_VECTOR(int2, int, 8, GRID_MEMBERS2)
GRID_VECTOR(float2, float, 8, GRID_MEMBERS2)
GRID_VECTOR(double2, double, 16, GRID_MEMBERS2)
GRID_VECTOR(uint4, unsigned, 16, GRID_MEMBERS4)
GRID_VECTOR(int4, int, 16, GRID_MEMBERS4)
GRID_VECTOR(float4, float, 16, GRID_MEMBERS4)
#undef GRID_VECTOR
#undef GRID_MEMBERS2
#undef GRID_MEMBERS4

/* ---- threads that meet ----------------------------------------------------------------------- */

/* All threads of the block; those that have returned count as there. */
void grid_sync_block();
/* All lanes of the mask bring a value; a lane gets that of lane `from`. */
uint64_t grid_exchange(unsigned mask, uint64_t value, unsigned from);
/* The lanes of the mask that bring one. */
unsigned grid_ballot(unsigned mask, bool yes);

inline void __syncthreads()
{
    grid_sync_block();
}
inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    grid_ballot(mask, false);
}
inline unsigned __ballot_sync(unsigned mask, int yes)
{
    return grid_ballot(mask, yes != 0);
}
inline int __any_sync(unsigned mask, int yes)
{
    return grid_ballot(mask, yes != 0) != 0;
}
inline int __all_sync(unsigned mask, int yes)
{
    return grid_ballot(mask, yes != 0) == mask;
}

inline unsigned grid_lane()
{
    return grid_here.thread.x % 32;
}
template <class T> inline T grid_exchange_of(unsigned mask, T x, unsigned from)
{
    uint64_t word = 0;

    static_assert(sizeof x <= sizeof word, "a value of a lane has 8 bytes at most");
    memcpy(&word, &x, sizeof x);
    word = grid_exchange(mask, word, from);
    memcpy(&x, &word, sizeof x);
    return x;
}
template <class T> inline T __shfl_sync(unsigned mask, T x, int lane, int width = 32)
{
    unsigned w = static_cast<unsigned>(width), first = grid_lane() & ~(w - 1);

    return grid_exchange_of(mask, x, first + (static_cast<unsigned>(lane) & (w - 1)));
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32)
{
    unsigned w = static_cast<unsigned>(width), from = grid_lane() ^ static_cast<unsigned>(bits);

    return grid_exchange_of(mask, x, from / w <= grid_lane() / w ? from : grid_lane());
}
template <class T> inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    unsigned w = static_cast<unsigned>(width), from = grid_lane() + by;

    return grid_exchange_of(mask, x, from / w == grid_lane() / w ? from : grid_lane());
}
template <class T> inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    unsigned w = static_cast<unsigned>(width);

    return grid_exchange_of(mask, x, grid_lane() % w >= by ? grid_lane() - by : grid_lane());
}

inline void __threadfence()
{
}
/* The unsigned count of blocks that are done, and the like. */
inline unsigned atomicAdd(unsigned *to, unsigned x)
{
    return __atomic_fetch_add(to, x, __ATOMIC_ACQ_REL);
}
inline int atomicAdd(int *to, int x)
{
    return __atomic_fetch_add(to, x, __ATOMIC_ACQ_REL);
}
/* Blocks run one after another. */
inline int atomicMax(int *to, int x)
{
    int before = *to;

    *to = x > before ? x : before;
    return before;
}

/* ---- numbers --------------------------------------------------------------------------------- */

inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}
inline float rsqrt(float x)
{
    return 1 / sqrtf(x);
}
inline double rsqrt(double x)
{
    return 1 / sqrt(x);
}
inline float __expf(float x)
{
    return expf(x);
}
inline float __logf(float x)
{
    return logf(x);
}
inline float __fdividef(float x, float y)
{
    return x / y;
}
inline unsigned __umulhi(unsigned x, unsigned y)
{
    return static_cast<unsigned>(static_cast<uint64_t>(x) * y >> 32);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
template <class T> inline T __ldg(const T *x)
{
    return *x;
}
template <class T> inline T __ldcs(const T *x)
{
    return *x;
}
template <class T> inline void __stcs(T *to, T x)
{
    *to = x;
}
template <class T> inline T min(T x, T y)
{
    return y < x ? y : x;
}
template <class T> inline T max(T x, T y)
{
    return x < y ? y : x;
}

#endif
