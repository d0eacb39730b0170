/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles of attention.cu in a block's shared memory, and their products by plain multiply-adds: by 8
 * by 16 threads with 8 by 4 results each (4 by 2 of f64), so that what is read from shared memory
 * is used often.
 */
#include "attention.cuh"

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Sizes of tiles whose numbers are T: a thread has ROWS rows, 8 apart, of scores EACH columns, 16
 * apart, and in results of a tile's width GROUPS pieces of C columns. */
template <class K, class T> struct shape {
    enum {
        W = ATTENTION_PIECE / (int)sizeof(T),
        EACH = ATTENTION_EACH / (sizeof(T) == 4 ? 1 : 2) / (K::WIDTH > 128 ? 2 : 1),
        ROWS = 2 * EACH,
        SIDE = 16 * EACH,
        C = K::WIDTH / 16 < W ? K::WIDTH / 16 : W,
        ROW = K::WIDTH + W,
        SCORES_ROW = SIDE + W,
        GROUPS = K::WIDTH / (16 * C),
        TILE = SIDE * ROW
    };
};

template <class K, class T> struct scores {
    T x[shape<K, T>::ROWS][shape<K, T>::EACH];
};
template <class K, class T> struct sums {
    T x[shape<K, T>::ROWS][shape<K, T>::GROUPS][shape<K, T>::C];
};

__device__ inline int own_row()
{
    return threadIdx.x / 16;
}
__device__ inline int own_column()
{
    return threadIdx.x % 16;
}

/* What does not depend on how many threads there are: N elements of row r, of a tile of which
 * `rows` rows are there, or zeroes. */
template <class K, class E, int N>
__device__ inline void load_piece(typename number<E>::sum *tile, const E *from, int64_t stride,
                                  int64_t rows, int64_t width, int i)
{
    typedef typename number<E>::sum T;
    int r = i * N / K::WIDTH, c = i * N % K::WIDTH;
    pack<E, N> p = {};
    T *to = tile + r * shape<K, T>::ROW + c;

    if (r < rows && c < width)
        p = *(const pack<E, N> *)(from + r * stride + c);
    UNROLL
    for (int j = 0; j < N; j++)
        to[j] = get(p.x[j]);
}

/* `rows`: that are there. Rows are `stride` elements apart. */
template <class K, class E>
__device__ inline void load_tile(typename number<E>::sum *tile, const void *base, int64_t at,
                                 int64_t stride, int64_t rows, const attending &a)
{
    typedef typename number<E>::sum T;
    enum { N = ATTENTION_PIECE / (int)sizeof(E), MANY = shape<K, T>::SIDE * K::WIDTH };
    const E *from = (const E *)base + at;

    if (a.wide)
        for (int i = threadIdx.x; i < MANY / N; i += ATTENTION_THREADS)
            load_piece<K, E, N>(tile, from, stride, rows, a.width, i);
    else
        for (int i = threadIdx.x; i < MANY; i += ATTENTION_THREADS)
            load_piece<K, E, 1>(tile, from, stride, rows, a.width, i);
}

/* The same in the background, if elements are numbers: what is copied is there after arrive. */
template <class K, class E>
__device__ inline void begin_tile(typename number<E>::sum *tile, const void *base, int64_t at,
                                  int64_t stride, int64_t rows, const attending &a)
{
    typedef typename number<E>::sum T;
    enum {
        N = ATTENTION_PIECE / (int)sizeof(E),
        PIECES = K::WIDTH / N,
        STEP = ATTENTION_THREADS / PIECES,
        SIDE = shape<K, T>::SIDE
    };

    if (sizeof(E) != sizeof(T) || !a.wide) {
        load_tile<K, E>(tile, base, at, stride, rows, a);
        return;
    }
    int r = threadIdx.x / PIECES, c = threadIdx.x % PIECES * N;
    int left = c >= a.width ? 0 : (rows < SIDE ? (int)rows : (int)SIDE) - r;
    const E *from = (const E *)base + at + r * stride + c;
    T *to = tile + r * shape<K, T>::ROW + c;
    UNROLL
    for (int k = 0; k < SIDE; k += STEP) { /* what is not there is not looked at */
        copy_later<ATTENTION_PIECE>(to + k * shape<K, T>::ROW, from, k < left);
        from += STEP * stride;
    }
}

/* s = rows of a times rows of b. */
template <class K, class T> __device__ inline void multiply(scores<K, T> &s, const T *a, const T *b)
{
    typedef shape<K, T> Z;
    typedef pack<T, Z::W> P;
    P x[Z::ROWS], y[Z::EACH];

    for (int i = 0; i < Z::ROWS; i++)
        for (int j = 0; j < Z::EACH; j++)
            s.x[i][j] = 0;
    for (int d = 0; d < K::WIDTH; d += Z::W) {
        UNROLL
        for (int i = 0; i < Z::ROWS; i++)
            x[i] = *(const P *)(a + (own_row() + 8 * i) * Z::ROW + d);
        UNROLL
        for (int i = 0; i < Z::EACH; i++)
            y[i] = *(const P *)(b + (own_column() + 16 * i) * Z::ROW + d);
        UNROLL
        for (int w = 0; w < Z::W; w++)
            UNROLL
        for (int i = 0; i < Z::ROWS; i++)
            UNROLL
        for (int j = 0; j < Z::EACH; j++)
            s.x[i][j] += x[i].x[w] * y[j].x[w];
    }
}

/* to += p[SIDE,SIDE] times the tile b. */
template <class K, class T>
__device__ inline void add_product(sums<K, T> &to, const T *p, const T *b)
{
    typedef shape<K, T> Z;
    typedef pack<T, Z::W> P;
    P x[Z::ROWS];
    pack<T, Z::C> y;

    for (int k = 0; k < Z::SIDE; k += Z::W) {
        UNROLL
        for (int i = 0; i < Z::ROWS; i++)
            x[i] = *(const P *)(p + (own_row() + 8 * i) * Z::SCORES_ROW + k);
        UNROLL
        for (int w = 0; w < Z::W; w++)
            UNROLL
        for (int g = 0; g < Z::GROUPS; g++) {
            y = *(const pack<T, Z::C> *)(b + (k + w) * Z::ROW + (own_column() + 16 * g) * Z::C);
            UNROLL
            for (int i = 0; i < Z::ROWS; i++)
                UNROLL
            for (int c = 0; c < Z::C; c++)
                to.x[i][g][c] += x[i].x[w] * y.x[c];
        }
    }
}

template <class K, class T> __device__ inline void clear(sums<K, T> &s)
{
    typedef shape<K, T> Z;

    for (int i = 0; i < Z::ROWS; i++)
        for (int g = 0; g < Z::GROUPS; g++)
            for (int c = 0; c < Z::C; c++)
                s.x[i][g][c] = 0;
}

template <class K, class T> __device__ inline void keep_scores(T *to, const scores<K, T> &s)
{
    typedef shape<K, T> Z;

    for (int i = 0; i < Z::ROWS; i++)
        for (int j = 0; j < Z::EACH; j++)
            to[(own_row() + 8 * i) * Z::SCORES_ROW + own_column() + 16 * j] = s.x[i][j];
}

/* The thread's rows of a result; `by`: factors of them. */
template <class K, class E>
__device__ inline void write_rows(void *base, int64_t at, int64_t stride, int64_t rows,
                                  const sums<K, typename number<E>::sum> &s,
                                  const typename number<E>::sum *by, int64_t width)
{
    typedef shape<K, typename number<E>::sum> Z;
    E *to = (E *)base + at;

    for (int i = 0; i < Z::ROWS; i++) {
        int r = own_row() + 8 * i;
        for (int g = 0; g < Z::GROUPS && r < rows; g++)
            for (int w = 0; w < Z::C; w++) {
                int c = (own_column() + 16 * g) * Z::C + w;
                if (c < width)
                    to[r * stride + c] = put<E>(s.x[i][g][w] * by[i]);
            }
    }
}

/* The sum of x over the 16 threads that share a row. */
template <class T> __device__ inline T sum_of_row(T x)
{
    for (int step = 8; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
template <class T> __device__ inline T max_of_row(T x)
{
    for (int step = 8; step > 0; step /= 2)
        x = larger(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* ---- gradients of scores --------------------------------------------------------------------- */

/* Of a query, as power of 2; -inf: it has no part in anything. */
template <class T> struct known {
    T log_sum, delta;
    int64_t end; /* keys that it sees */
};

template <class T>
__device__ inline known<T> known_as(const attending &a, int64_t i, T log_sum, T delta)
{
    bool none = i >= a.queries || log_sum == minus_infinity<T>();
    known<T> x = {log_sum * (T)log2_e(), delta, none ? 0 : visible(a, i)};

    return x;
}

template <class T> __device__ inline known<T> known_of(const attending &a, const head &h, int64_t i)
{
    bool there = i < a.queries;

    return known_as(a, i, there ? ((const T *)a.log_sum)[h.row + i] : 0,
                    there ? ((const T *)a.delta)[h.row + i] : 0);
}

/* Copies of log_sum and delta of a tile's queries i.. to to[2,SIDE]. */
template <class K, class T>
__device__ inline void begin_known(T *to, const attending &a, const query_place &p)
{
    enum { SIDE = shape<K, T>::SIDE };
    int r = threadIdx.x % SIDE;
    const void *from = threadIdx.x < SIDE ? a.log_sum : a.delta;

    if (threadIdx.x < 2 * SIDE)
        copy_later<sizeof(T)>(to + threadIdx.x, (const T *)from + p.h.row + p.i + r,
                              p.i + r < a.queries);
}

/* A score becomes a probability p, and dp, its gradient, `by` times that of the score. With MORE
 * scores are powers of 2 already. */
template <class K, class T>
__device__ inline void slope(T &p, T &dp, const known<T> &x, int64_t key, T by, const attending &a)
{
    T score = p * (K::MORE ? 1 : (T)(a.scale * log2_e())), over = score - x.log_sum;

    if (key >= x.end || score == minus_infinity<T>()) {
        p = dp = 0;
        return;
    }
    p = power_of_2(over > 0 ? 0 : over); /* above 0 by what rounding took from log_sum */
    dp = p * (dp - x.delta) * by;
    if (K::MORE)
        dp *= slope_of_cap(a, score);
}

/* ---- masks and dropout ----------------------------------------------------------------------- */

/*
 * Turn the scores of queries i.. with keys j.. into exponents of 2, and those that are not seen
 * into -inf. `across`: rows are keys.
 */
template <bool across, class E, class K, class T>
__device__ inline void see(scores<K, T> &s, const attending &a, const head &h, int64_t i, int64_t j)
{
    T by = (T)score_unit(a);

    UNROLL
    for (int m = 0; m < shape<K, T>::ROWS; m++)
        UNROLL
    for (int n = 0; n < shape<K, T>::EACH; n++) {
        int row = own_row() + 8 * m, column = own_column() + 16 * n;
        int64_t query = i + (across ? column : row), key = j + (across ? row : column);
        T shown = minus_infinity<T>();
        if (query < a.queries && key < visible(a, query) && key >= unseen(a, query) &&
            in_span(a, h, query, key))
            shown = a.mask
                        ? mask_at<E>(a, h.mask + query * a.mask_stride[3] + key * a.mask_stride[4])
                        : 0;
        s.x[m][n] = masked(capped(a, s.x[m][n]), by, shown);
    }
}

/* Which scores of a tile dropout keeps: words of 32 keys, for each query. */
template <class K, class T> struct kept_tile {
    enum { PARTS = (shape<K, T>::SIDE + 31) / 32, WORDS = shape<K, T>::SIDE * PARTS };
};

template <class K, class T>
__device__ inline void draw(uint32_t *words, const attending &a, const head &h, int64_t i,
                            int64_t j)
{
    typedef kept_tile<K, T> Z;

    for (int x = threadIdx.x; x < Z::WORDS && a.drops; x += ATTENTION_THREADS)
        words[x] =
            kept_scores(a, h.score + (i + x / Z::PARTS) * a.query_scores + j + x % Z::PARTS * 32);
}

/* Set what is dropped to 0, and multiply the rest. */
template <bool across, class K, class T>
__device__ inline void drop(scores<K, T> &s, const uint32_t *words, const attending &a, T by)
{
    if (!a.drops)
        return;
    UNROLL
    for (int m = 0; m < shape<K, T>::ROWS; m++)
        UNROLL
    for (int n = 0; n < shape<K, T>::EACH; n++) {
        int row = own_row() + 8 * m, column = own_column() + 16 * n;
        int query = across ? column : row, key = across ? row : column;
        uint32_t word = words[query * kept_tile<K, T>::PARTS + key / 32];
        s.x[m][n] = word >> key % 32 & 1 ? s.x[m][n] * by : 0;
    }
}

/* Scores as in `see`, and the gradients of what dropout made of probabilities as those of these. */
template <bool across, class E, class K, class T>
__device__ inline void see_and_drop(scores<K, T> &p, scores<K, T> &dp, const uint32_t *words,
                                    const attending &a, const head &h, int64_t i, int64_t j)
{
    see<across, E>(p, a, h, i, j);
    drop<across>(dp, words, a, (T)a.keep);
}
