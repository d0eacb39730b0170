/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What warps of attention_half.cu do with tensor cores: operands in registers, tiles of 16 bits in
 * shared memory, their products.
 */
#include "attention.cuh"

/* ---- fragments ------------------------------------------------------------------------------- */

/*
 * mma.sync multiplies [16,16] by [16,8]. A fragment is what each of a warp's 32 lanes holds of such
 * a matrix; with g = lane / 4 and t = lane % 4:
 *   first operand, 4 words of two numbers: rows g, g + 8, g, g + 8, columns 2t and 2t + 1 of the
 *     left half, of the left, of the right, of the right;
 *   second operand, 2 words: rows 2t and 2t + 1 of the upper half, of the lower; column g;
 *   result, 4 numbers: row g, columns 2t and 2t + 1; row g + 8, the same columns.
 * So two results side by side, rounded, are a first operand.
 */

__device__ inline int lane_row()
{
    return threadIdx.x % WARP / 4;
}
__device__ inline int lane_column()
{
    return threadIdx.x % 4 * 2;
}

/*
 * Four 8 by 8 matrices of a 16 by 16 part of a tile, of each of which a lane gets row g, columns 2t
 * and 2t + 1. As a first operand: upper left, lower left, upper right, lower right; `across` with
 * row and column exchanged. As two second ones: upper left, upper right, lower left, lower right:
 * then the words of each are neighbours, as the multiplication needs them.
 */
enum { OWN_PART, OTHER_PART, ACROSS_PART };

#ifdef SHERD_EMULATED_CUDA

template <class E> inline uint32_t two(float low, float high)
{
    return put<E>(low).bits | (uint32_t)put<E>(high).bits << 16;
}

template <class E> inline void show(float *to, uint32_t word)
{
    E low, high;

    low.bits = (uint16_t)word;
    high.bits = (uint16_t)(word >> 16);
    to[0] = get(low);
    to[1] = get(high);
}

/* By plain loops, after lanes have shown each other what they hold: in one place and another in
 * turn, so that none writes over what is still read. */
template <class E>
inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    enum { WARPS = ATTENTION_HALF_THREADS / WARP, NUMBERS = 12 };
    __shared__ float shown[2][WARPS][WARP][NUMBERS];
    __shared__ bool turn[WARPS][WARP];
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float(&all)[WARP][NUMBERS] = shown[turn[warp][lane] ^= true][warp], *own = all[lane];
    float(*row)[NUMBERS] = all + lane_row() * 4, (*column)[NUMBERS] = all + lane_column() * 4;

    for (int i = 0; i < 4; i++)
        show<E>(own + 2 * i, a[i]);
    show<E>(own + 8, b0);
    show<E>(own + 10, b1);
    __syncwarp();
    for (int k = 0; k < 16; k++) {
        int from = k % 8 / 2, left = k / 8 * 4 + k % 2, right = 8 + k / 8 * 2 + k % 2;
        float upper = row[from][left], lower = row[from][left + 2];
        c[0] += upper * column[from][right];
        c[1] += upper * column[from + 4][right];
        c[2] += lower * column[from][right];
        c[3] += lower * column[from + 4][right];
    }
}

template <class E>
inline void multiply_new(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    c[0] = c[1] = c[2] = c[3] = 0;
    multiply_add<E>(c, a, b0, b1);
}

/* Where a tile is, whose rows are ROW elements apart. */
template <class E> struct place {
    const E *tile;
};
template <int KIND, int ROW, class E> inline place<E> place_in(const E *tile)
{
    place<E> p = {tile};

    return p;
}
template <int KIND, int ROW, class E>
inline void load_part(uint32_t (&to)[4], const place<E> &p, int from_row, int from_column)
{
    for (int m = 0; m < 4; m++) {
        int down = KIND == OTHER_PART ? m / 2 : m % 2, right = KIND == OTHER_PART ? m % 2 : m / 2;
        const E *at = p.tile + (from_row + down * 8) * ROW + from_column + right * 8;
        int g = lane_row(), t = lane_column();
        const E &low = KIND == ACROSS_PART ? at[t * ROW + g] : at[g * ROW + t];
        const E &high = KIND == ACROSS_PART ? at[(t + 1) * ROW + g] : at[g * ROW + t + 1];
        to[m] = low.bits | (uint32_t)high.bits << 16;
    }
}

inline float fast_power_of_2(float x)
{
    return exp2f(x);
}
/* NaN stays one. */
inline float at_most_0(float x)
{
    return x > 0 ? 0 : x;
}

#else

template <class E> __device__ uint32_t two(float low, float high);
template <> __device__ inline uint32_t two<bf16>(float low, float high)
{
    uint32_t x;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}
template <> __device__ inline uint32_t two<f16>(float low, float high)
{
    uint32_t x;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}

/* c += a b, and c = a b: that takes no register to be 0 before. */
template <class E>
__device__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <class E>
__device__ void multiply_new(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

#define MULTIPLY(E, name)                                                                    \
    template <>                                                                              \
    __device__ inline void multiply_add<E>(float(&c)[4], const uint32_t(&a)[4], uint32_t b0, \
                                           uint32_t b1)                                      \
    {                                                                                        \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                           \
            ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"           \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                 \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                 \
    }                                                                                        \
    template <>                                                                              \
    __device__ inline void multiply_new<E>(float(&c)[4], const uint32_t(&a)[4], uint32_t b0, \
                                           uint32_t b1)                                      \
    {                                                                                        \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                           \
            ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"       \
            : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])                                 \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));      \
    }
MULTIPLY(bf16, "bf16")
MULTIPLY(f16, "f16")

/* Where the lane's own row of a part is, of a tile whose rows are ROW elements apart: each lane
 * says that of one row of one of the four matrices. What a part adds to it is a constant. */
template <class E> struct place {
    uint32_t at;
};
template <int KIND, int ROW, class E> __device__ inline place<E> place_in(const E *tile)
{
    int lane = threadIdx.x % WARP;
    int row = KIND == OTHER_PART ? lane / 16 * 8 + lane % 8 : lane % 16;
    int column = KIND == OTHER_PART ? lane / 8 % 2 * 8 : lane / 16 * 8;
    place<E> p = {(uint32_t)__cvta_generic_to_shared(tile + row * ROW + column)};

    return p;
}
template <int KIND, int ROW, class E>
__device__ inline void load_part(uint32_t (&to)[4], const place<E> &p, int from_row,
                                 int from_column)
{
    uint32_t at = p.at + (uint32_t)((from_row * ROW + from_column) * (int)sizeof(E));

    if (KIND == ACROSS_PART)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
}

__device__ inline float fast_power_of_2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float at_most_0(float x)
{
    float y;

    asm("min.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}

#endif

/* ---- tiles of 16 bits ------------------------------------------------------------------------ */

template <class K> struct half_shape {
    enum {
        PARTS = K::PARTS,
        OWN = ATTENTION_HALF_THREADS / WARP * 16 * PARTS,
        SIDE = ATTENTION_HALF_SIDE,
        ROW = K::WIDTH + ATTENTION_HALF_GAP, /* rows begin in different banks */
        OWN_TILE = OWN * ROW,
        TILE = SIDE * ROW,
        COLUMNS = K::WIDTH / 8,
        STEPS = K::WIDTH / 16,
        CHUNK =
            PARTS * K::WIDTH > 64 ? 16 : 32 /* columns of scores at a time, backward: registers */
    };
};

/* First operands of the warp's own rows, and results. */
template <class K> struct fragments {
    uint32_t x[half_shape<K>::STEPS][half_shape<K>::PARTS][4];
};
template <class K, int N> struct results {
    float x[half_shape<K>::PARTS][N][4];
};
template <class K> struct totals {
    float x[half_shape<K>::PARTS][half_shape<K>::COLUMNS][4];
};

/* The first of the warp's rows in the block. */
template <class K> __device__ inline int warp_row()
{
    return threadIdx.x / WARP * 16 * half_shape<K>::PARTS;
}

/* ROWS rows of an array, or of two at once, of which `rows` are there; the others, and columns
 * behind the width, are 0. The second tile is behind the first. What is copied is there after
 * arrive. */
template <class K, int ROWS, int TILES, class E>
__device__ inline void copy_tiles(E *tile, const void *first, const void *second, int64_t at,
                                  int64_t stride, int64_t rows, const attending &a)
{
    enum {
        ROW = half_shape<K>::ROW,
        PIECES = K::WIDTH / 8,
        STEP = ATTENTION_HALF_THREADS / PIECES
    };
    const E *x = (const E *)first + at, *y = (const E *)second + at;
    int left = rows < ROWS ? (int)rows : ROWS;

    if (a.wide) {
        int r = threadIdx.x / PIECES, c = threadIdx.x % PIECES * 8;
        E *to = tile + r * ROW + c;
        x += r * stride + c;
        y += r * stride + c;
        left = c < a.width ? left - r : 0;
        UNROLL
        for (int k = 0; k < ROWS; k += STEP) { /* what is not there is not looked at */
            copy_later<16>(to + k * ROW, x, k < left);
            if (TILES == 2)
                copy_later<16>(to + (ROWS + k) * ROW, y, k < left);
            x += STEP * stride;
            y += STEP * stride;
        }
        return;
    }
    ONE_BY_ONE
    for (int i = threadIdx.x; i < ROWS * K::WIDTH; i += ATTENTION_HALF_THREADS) {
        int r = i / K::WIDTH, c = i % K::WIDTH;
        bool there = r < left && c < a.width;
        E none = {};
        tile[r * ROW + c] = there ? x[r * stride + c] : none;
        if (TILES == 2)
            tile[(ROWS + r) * ROW + c] = there ? y[r * stride + c] : none;
    }
}

template <class K, class E> __device__ inline void load_own(fragments<K> &to, const E *tile)
{
    enum { ROW = half_shape<K>::ROW };
    place<E> p = place_in<OWN_PART, ROW>(tile + warp_row<K>() * ROW);

    UNROLL
    for (int d = 0; d < half_shape<K>::STEPS; d++)
        UNROLL
    for (int m = 0; m < half_shape<K>::PARTS; m++)
        load_part<OWN_PART, ROW>(to.x[d][m], p, 16 * m, 16 * d);
}

/* s = the warp's own rows times 8 N rows of b. */
template <class E, class K, int N>
__device__ inline void multiply(results<K, N> &s, const fragments<K> &own, const E *b, int b_row)
{
    enum { ROW = half_shape<K>::ROW };
    place<E> p = place_in<OTHER_PART, ROW>(b + b_row * ROW);

    UNROLL
    for (int d = 0; d < half_shape<K>::STEPS; d++)
        UNROLL
    for (int n = 0; n < N; n += 2) {
        uint32_t y[4];
        load_part<OTHER_PART, ROW>(y, p, n * 8, 16 * d);
        UNROLL
        for (int m = 0; m < half_shape<K>::PARTS; m++)
            if (d == 0) {
                multiply_new<E>(s.x[m][n], own.x[d][m], y[0], y[1]);
                multiply_new<E>(s.x[m][n + 1], own.x[d][m], y[2], y[3]);
            } else {
                multiply_add<E>(s.x[m][n], own.x[d][m], y[0], y[1]);
                multiply_add<E>(s.x[m][n + 1], own.x[d][m], y[2], y[3]);
            }
    }
}

/* to += p, rounded, times 8 N rows of b. */
template <class E, class K, int N>
__device__ inline void add_product(totals<K> &to, const results<K, N> &p, const E *b, int b_row)
{
    enum { PARTS = half_shape<K>::PARTS, ROW = half_shape<K>::ROW };
    place<E> at = place_in<ACROSS_PART, ROW>(b + b_row * ROW);

    UNROLL
    for (int n = 0; n < N; n += 2) {
        uint32_t x[PARTS][4], y[4];
        UNROLL
        for (int m = 0; m < PARTS; m++)
            UNROLL
        for (int i = 0; i < 4; i++)
            x[m][i] = two<E>(p.x[m][n + i / 2][i % 2 * 2], p.x[m][n + i / 2][i % 2 * 2 + 1]);
        UNROLL
        for (int c = 0; c < half_shape<K>::COLUMNS; c += 2) {
            load_part<ACROSS_PART, ROW>(y, at, n * 8, c * 8);
            UNROLL
            for (int m = 0; m < PARTS; m++) {
                multiply_add<E>(to.x[m][c], x[m], y[0], y[1]);
                multiply_add<E>(to.x[m][c + 1], x[m], y[2], y[3]);
            }
        }
    }
}

template <class K> __device__ inline void clear(totals<K> &s)
{
    UNROLL
    for (int m = 0; m < half_shape<K>::PARTS; m++)
        for (int c = 0; c < half_shape<K>::COLUMNS; c++)
            for (int i = 0; i < 4; i++)
                s.x[m][c][i] = 0;
}

#include "attention_more.cuh"
