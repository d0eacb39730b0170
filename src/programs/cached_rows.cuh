/* SPDX-License-Identifier: Apache-2.0 */
/* How threads of decode.cu have rows of keys and values: kinds of kernels, loads, numbers. */

#define WIDTHS(width)                     \
    struct w##width##_x1 {                \
        enum { WIDTH = width, ROWS = 1 }; \
    };                                    \
    struct w##width##_x4 {                \
        enum { WIDTH = width, ROWS = 4 }; \
    };                                    \
    struct w##width##_x8 {                \
        enum { WIDTH = width, ROWS = 8 }; \
    };
WIDTHS(32)
WIDTHS(64)
WIDTHS(128)
WIDTHS(256)
#undef WIDTHS

/* How a warp reads rows of keys and values: LANES share a row, each with EACH pieces of N. */
template <class K, class E> struct cached_shape {
    enum {
        N = 16 / (int)sizeof(E),
        PIECES = K::WIDTH / N,
        LANES = PIECES < WARP ? PIECES : WARP,
        EACH = PIECES / LANES,
        MINE = EACH * N,
        AT_ONCE = WARP / LANES,        /* rows of a warp */
        STEP = AT_ONCE * CACHED_WARPS, /* of a block */
        AHEAD = EACH > 1 ? 2 : 4,      /* such steps whose loads are on their way */
        ALL = STEP * AHEAD
    };
    /* A lane's elements of a row, as they lie and as numbers. */
    typedef unit_16 pieces[EACH];
    typedef typename number<E>::sum numbers[MINE];
};

/* Element i of 16 bytes, which stay in whole registers; and as a number. */
template <class E> __device__ inline void set_element(unit_16 &to, int i, E x)
{
    to.word[i / 2] |= (uint32_t)x.bits << i % 2 * 16;
}
__device__ inline void set_element(unit_16 &to, int i, f32 x)
{
    to.word[i] = bits_of(x);
}
__device__ inline void set_element(unit_16 &to, int i, f64 x)
{
    union {
        double x;
        uint32_t word[2];
    } both;
    both.x = x;
    to.word[2 * i] = both.word[0];
    to.word[2 * i + 1] = both.word[1];
}
template <class E> __device__ inline typename number<E>::sum element_of(const unit_16 &from, int i)
{
    E x;
    x.bits = (uint16_t)(from.word[i / 2] >> i % 2 * 16);
    return get(x);
}
template <> __device__ inline float element_of<f32>(const unit_16 &from, int i)
{
    return float_of(from.word[i]);
}
template <> __device__ inline double element_of<f64>(const unit_16 &from, int i)
{
    union {
        double x;
        uint32_t word[2];
    } both;
    both.word[0] = from.word[2 * i];
    both.word[1] = from.word[2 * i + 1];
    return both.x;
}

/* This lane's elements of a row as they lie, 0 behind its end. */
template <class K, class E, bool WIDE>
__device__ inline void load_row(typename cached_shape<K, E>::pieces &to, const E *row,
                                int64_t width)
{
    typedef cached_shape<K, E> S;
    int lane = threadIdx.x % S::LANES;

    UNROLL
    for (int e = 0; e < S::EACH; e++) {
        int c = (e * S::LANES + lane) * S::N;
        to[e] = {};
        if (WIDE && c < width)
            to[e] = *(const unit_16 *)(row + c);
        UNROLL
        for (int i = 0; i < S::N; i++)
            if (!WIDE && c + i < width)
                set_element(to[e], i, row[c + i]);
    }
}

/* As numbers. */
template <class K, class E>
__device__ inline void widen(typename cached_shape<K, E>::numbers &to,
                             const typename cached_shape<K, E>::pieces &row)
{
    typedef cached_shape<K, E> S;

    UNROLL
    for (int i = 0; i < S::MINE; i++)
        to[i] = element_of<E>(row[i / S::N], i % S::N);
}
