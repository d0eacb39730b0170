/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both programs of attention share: where things are, copies to shared memory, and what a
 * score may have besides causality, a mask and dropout. Logarithms and powers are of 2, and the
 * scale has the factor.
 */
#include "philox.cuh"

/* Rows of a tile have so many elements, those behind the width are 0. Of 16 bits a warp has PARTS
 * times 16 rows: with two, what it loads is used twice, but there are half as many blocks. Those
 * with MORE know masks and dropout. */
template <int WIDTH_, int PARTS_, bool MORE_> struct kind_of {
    enum { WIDTH = WIDTH_, PARTS = PARTS_ };
    static constexpr bool MORE = MORE_;
};
typedef kind_of<32, 1, false> w32;
typedef kind_of<64, 1, false> w64;
typedef kind_of<128, 1, false> w128;
typedef kind_of<32, 2, false> w32_tall;
typedef kind_of<64, 2, false> w64_tall;
typedef kind_of<64, 1, true> w64_more;
typedef kind_of<128, 1, true> w128_more;
typedef kind_of<256, 1, true> w256_more;

__device__ inline float power_of_2(float x)
{
    return exp2f(x);
}
__device__ inline double power_of_2(double x)
{
    return exp2(x);
}
__device__ inline float log_of_2(float x)
{
    return log2f(x);
}
__device__ inline double log_of_2(double x)
{
    return log2(x);
}
__device__ inline double log2_e()
{
    return 1.4426950408889634;
}

/* ---- where things are ------------------------------------------------------------------------ */

/* The queries of a head that follow each other, and its group's keys: first elements, and from one
 * row to the next. */
struct head {
    int64_t q, q_row, k, k_row, row; /* row: in log_sum */
    int64_t mask, score;             /* with the first query and key */
    const int32_t *span;             /* of the first query; NULL = none */
};

__device__ inline head head_of(const attending &a, int64_t batch, int64_t group, int64_t repeat)
{
    head h;

    h.q_row = a.groups * a.repeat * a.width;
    h.k_row = a.groups * a.width;
    h.q = batch * a.queries * h.q_row + (group * a.repeat + repeat) * a.width;
    h.k = batch * a.keys * h.k_row + group * a.width;
    h.row = ((batch * a.groups + group) * a.repeat + repeat) * a.queries;
    h.mask = batch * a.mask_stride[0] + group * a.mask_stride[1] + repeat * a.mask_stride[2];
    h.span = a.span ? a.span + batch * a.span_batch : 0;
    h.score =
        a.first_score + batch * a.batch_scores + (group * a.all_repeat + repeat) * a.head_scores;
    return h;
}

/* Keys that query i sees. */
__device__ inline int64_t visible(const attending &a, int64_t i)
{
    int64_t end = i + 1 + a.ahead;

    return !a.causal || end > a.keys ? a.keys : end < 0 ? 0 : end;
}

/* The first key that query i sees. */
__device__ inline int64_t unseen(const attending &a, int64_t i)
{
    int64_t first = i + 1 + a.ahead - a.window;

    return a.window == 0 || first < 0 ? 0 : first > a.keys ? a.keys : first;
}

/* Where the span of query i begins, or ends, counted from the first key here. */
__device__ inline int64_t span_side(const attending &a, const head &h, int64_t i, int side)
{
    int64_t key = h.span[2 * i + side] - a.first_key;

    return key < 0 ? 0 : key > a.keys ? a.keys : key;
}
__device__ inline bool in_span(const attending &a, const head &h, int64_t i, int64_t key)
{
    return !h.span || (key >= span_side(a, h, i, 0) && key < span_side(a, h, i, 1));
}

/* Where tiles of keys begin for queries from i on, and end for those up to `last`. */
template <class K, int SIDE>
__device__ inline int64_t first_tile(const attending &a, const head &h, int64_t i)
{
    int64_t first = unseen(a, i);

    if (K::MORE && h.span)
        first = larger(first, span_side(a, h, i, 0));
    return K::MORE ? first / SIDE * SIDE : 0;
}
template <class K> __device__ inline int64_t end_of(const attending &a, const head &h, int64_t last)
{
    int64_t end = visible(a, last);

    if (K::MORE && h.span) {
        int64_t side = span_side(a, h, last < a.queries ? last : a.queries - 1, 1);
        end = side < end ? side : end;
    }
    return end;
}

/* What products are multiplied by: scores are exponents of 2 then, or with a cap, what it takes. */
__device__ inline double score_unit(const attending &a)
{
    return a.cap != 0 ? a.cap * log2_e() : a.scale * log2_e();
}
template <class T> __device__ inline T capped(const attending &a, T product)
{
    return a.cap != 0 ? tanh(product * (T)(a.scale / a.cap)) : product;
}

/* The slope of a cap, where the score is this exponent of 2. */
template <class T> __device__ inline T slope_of_cap(const attending &a, T exponent)
{
    T x = exponent / (T)(a.cap * log2_e());

    return a.cap != 0 ? 1 - x * x : 1;
}

/* The first query of a block: heads are neighbours, and those that see most keys begin. */
template <int SIDE> __device__ inline int64_t first_query(const attending &a, head *h)
{
    int64_t heads = a.groups * a.repeat, n = a.batch * heads, at = blockIdx.x % n;
    int64_t tiles = (a.queries + SIDE - 1) / SIDE;

    *h = head_of(a, at / heads, at % heads / a.repeat, at % a.repeat);
    return (tiles - 1 - blockIdx.x / n) * SIDE;
}

/* A tile of queries that a block with keys j0.. meets, in backward: of each head of the group those
 * from the first query that sees a key. */
struct query_place {
    int64_t i;
    head h;
};

/* Of a head, from the first query that sees a key of the block's OWN ones, to the last. */
struct query_range {
    int64_t first, end;
};
/* The first query whose span's side is above `key`: sides never fall. */
__device__ inline int64_t first_above(const attending &a, const head &h, int side, int64_t key)
{
    int64_t lo = 0, hi = a.queries;

    while (lo < hi) {
        int64_t i = lo + (hi - lo) / 2;
        if (h.span[2 * i + side] - a.first_key > key)
            hi = i;
        else
            lo = i + 1;
    }
    return lo;
}
template <class K, int SIDE>
__device__ inline query_range queries_seeing(const attending &a, const head &h, int64_t j0, int own)
{
    query_range r = {a.causal && j0 > a.ahead ? (j0 - a.ahead) / SIDE * SIDE : 0, a.queries};

    if (K::MORE && a.window) {
        int64_t end = j0 + own - 1 - a.ahead + a.window;
        r.end = end < r.first ? r.first : end < a.queries ? end : a.queries;
    }
    if (K::MORE && h.span) {
        int64_t first = first_above(a, h, 1, j0) / SIDE * SIDE;
        int64_t end = first_above(a, h, 0, j0 + own - 1);
        r.first = first > r.first ? first : r.first;
        r.end = end < r.end ? end : r.end;
    }
    return r;
}

/* How many tiles there are. */
template <int SIDE> __device__ inline int64_t tiles_of(const attending &a, const query_range &r)
{
    return r.first < r.end ? (r.end - r.first + SIDE - 1) / SIDE * a.repeat : 0;
}

/* The next one: of the same head, or of the next one. */
template <int SIDE>
__device__ inline query_place next_place(query_place p, const attending &a, const query_range &r)
{
    p.i += SIDE;
    if (p.i >= r.end) {
        p.i = r.first;
        p.h.q += a.width;
        p.h.row += a.queries;
        p.h.mask += a.mask_stride[2];
        p.h.score += a.head_scores;
    }
    return p;
}

/* ---- copies ---------------------------------------------------------------------------------- */

#ifdef SHERD_EMULATED_CUDA

#define ONE_BY_ONE

/* Copies of N bytes that end later, when arrive says so; zeroes if what is copied is not there. */
template <int N> inline void copy_later(void *to, const void *from, bool there)
{
    if (there)
        memcpy(to, from, N);
    else
        memset(to, 0, N);
}
inline void arrive()
{
    __syncthreads();
}

#else

#define ONE_BY_ONE _Pragma("unroll 1")

/* By the copying unit, past registers, since Ampere. A copy of 16 bytes is not kept near the
 * processor. */
template <int N> __device__ inline void copy_later(void *to, const void *from, bool there)
{
#if __CUDA_ARCH__ < 800
    pack<uint8_t, N> none = {};
    *(pack<uint8_t, N> *)to = there ? *(const pack<uint8_t, N> *)from : none;
#else
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    int bytes = there ? N : 0;

    if (N == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(at), "l"(from), "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :
                     : "r"(at), "l"(from), "n"(N == 16 ? 8 : N), "r"(bytes)
                     : "memory");
#endif
}
/* Wait until all copies of all threads have arrived, and all threads are here. */
__device__ inline void arrive()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
    __syncthreads();
}

#endif

/* ---- masks and dropout ----------------------------------------------------------------------- */

/* What is added to a score. */
template <class E> __device__ inline typename number<E>::sum mask_at(const attending &a, int64_t i)
{
    typedef typename number<E>::sum T;

    switch (a.mask_kind) {
    case ATTENTION_MASK_BOOL:
        return ((const uint8_t *)a.mask)[i] ? 0 : minus_infinity<T>();
    case ATTENTION_MASK_BF16:
        return get(((const bf16 *)a.mask)[i]);
    case ATTENTION_MASK_F16:
        return get(((const f16 *)a.mask)[i]);
    default:
        return get(((const E *)a.mask)[i]);
    }
}

/* A score with a mask, as power of 2; what is hidden is -inf, whatever the score is. */
template <class T> __device__ inline T masked(T score, T by, T shown)
{
    return shown == minus_infinity<T>() ? shown : score * by + shown * (T)log2_e();
}

/* Which of the 32 scores from number `first` on dropout keeps: a bit each. */
__device__ inline uint32_t kept_scores(const attending &a, int64_t first)
{
    uint32_t bits = 0, random[4];

    ONE_BY_ONE
    for (int at = -(int)(first & 3); at < 32; at += 4) {
        uint32_t four = 0;
        philox(random, a.key_word, a.key_high, (uint64_t)(first + at) / 4);
        UNROLL
        for (int i = 0; i < 4; i++)
            four |= (uint32_t)(random[i] >> 8 >= a.threshold) << i;
        bits |= at < 0 ? four >> -at : four << at;
    }
    return bits;
}
