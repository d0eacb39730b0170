/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention without its matrix of scores: a block has a tile of queries, goes through tiles of
 * keys, and keeps the largest score and the sum of exponentials of each query so far. Backward
 * computes scores again: dq by tiles of queries, dk and dv by tiles of keys, so that nothing is
 * added by two blocks, and each sum has one order.
 *
 * Multiply-adds are plain ones, of f32 or f64 (of 16 bits: attention_half.cu), by 8 by 16 threads
 * with 8 by 4 results each (4 by 2 of f64), so that what is read from shared memory is used often;
 * there tiles are, and their rows begin in different banks.
 */
#include "attention.cuh"

constexpr bool begins(const char *name, const char *with)
{
    for (; *with; name++, with++)
        if (*name != *with)
            return false;
    return true;
}
constexpr bool has(const char *name, const char *word)
{
    for (; *name; name++)
        if (begins(name, word))
            return true;
    return false;
}

/* Kernels keep to the registers with which so many blocks share a processor, as
 * far as they have room for their numbers. */
constexpr int blocks_of(const char *name)
{
    return has(name, "w32") || begins(name, "attention_w64_f32") ? 3 : 2;
}

#ifndef SHERD_EMULATED_CUDA
#undef KERNEL
#define KERNEL(name, args)                                                            \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, blocks_of(#name)) \
        name(const __grid_constant__ args a)
#endif

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Sizes of tiles whose numbers are T: a thread has ROWS rows, 8 apart, of scores EACH columns, 16
 * apart, and in results of a tile's width GROUPS pieces of C columns. */
template <class K, class T> struct shape {
    enum {
        W = ATTENTION_PIECE / (int)sizeof(T),
        EACH = sizeof(T) == 4 ? ATTENTION_EACH : ATTENTION_EACH / 2,
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

/* Of the 16 threads that have a row. */
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

/* ---- forward --------------------------------------------------------------------------------- */

/* What is known of the thread's queries so far; `most` as power of 2. */
template <class K, class T> struct progress {
    T most[shape<K, T>::ROWS], sum[shape<K, T>::ROWS];
};

/* Scores of keys first.. become exponentials, results so far follow the largest score. */
template <class K, class T>
__device__ inline void advance(progress<K, T> &at, sums<K, T> &out, scores<K, T> &s,
                               const attending &a, int64_t query, int64_t first)
{
    typedef shape<K, T> Z;
    T scale = (T)(a.scale * log2_e());

    for (int i = 0; i < Z::ROWS; i++) {
        int64_t end = visible(a, query + own_row() + 8 * i) - first;
        T most = at.most[i], sum = 0;
        for (int j = 0; j < Z::EACH; j++) {
            bool seen = own_column() + 16 * j < end;
            s.x[i][j] = seen ? s.x[i][j] * scale : minus_infinity<T>();
            most = larger(most, s.x[i][j]);
        }
        most = max_of_row(most);
        T less = most == minus_infinity<T>() ? 0 : most, shrink = power_of_2(at.most[i] - less);
        for (int j = 0; j < Z::EACH; j++) {
            s.x[i][j] = power_of_2(s.x[i][j] - less);
            sum += s.x[i][j];
        }
        at.most[i] = most;
        at.sum[i] = at.sum[i] * shrink + sum_of_row(sum);
        for (int g = 0; g < Z::GROUPS; g++)
            for (int w = 0; w < Z::C; w++)
                out.x[i][g][w] *= shrink;
    }
}

/* Shared memory: queries; keys, then values; exponentials. */
template <class K, class E> __device__ void attention(const attention_args &a)
{
    typedef typename number<E>::sum T;
    typedef shape<K, T> Z;
    SHARED_BYTES(shared);
    T *q = (T *)shared, *kv = q + Z::TILE, *p = kv + Z::TILE;
    progress<K, T> at;
    sums<K, T> out;
    scores<K, T> s;
    head h;
    int64_t i0 = first_query<Z::SIDE>(a, &h), rows = a.queries - i0;
    int64_t end = visible(a, (rows < Z::SIDE ? a.queries : i0 + Z::SIDE) - 1);

    clear(out);
    for (int i = 0; i < Z::ROWS; i++) {
        at.most[i] = minus_infinity<T>();
        at.sum[i] = 0;
    }
    load_tile<K, E>(q, a.q, h.q + i0 * h.q_row, h.q_row, rows, a);
    for (int64_t j = 0; j < end; j += Z::SIDE) {
        int64_t key = h.k + j * h.k_row;
        __syncthreads();
        load_tile<K, E>(kv, a.k, key, h.k_row, a.keys - j, a);
        __syncthreads();
        multiply<K>(s, q, kv);
        advance<K>(at, out, s, a, i0, j);
        keep_scores<K>(p, s);
        __syncthreads();
        load_tile<K, E>(kv, a.v, key, h.k_row, a.keys - j, a);
        __syncthreads();
        add_product<K>(out, p, kv);
    }
    for (int i = 0; i < Z::ROWS; i++) {
        int64_t r = own_row() + 8 * i;
        T sum = at.sum[i], log_sum = at.most[i] + log_of_2(sum);
        at.sum[i] = at.most[i] == minus_infinity<T>() ? 0 : 1 / sum;
        if (own_column() == 0 && r < rows)
            ((T *)a.log_sum)[h.row + i0 + r] =
                at.most[i] == minus_infinity<T>() ? at.most[i] : log_sum / (T)log2_e();
    }
    write_rows<K, E>(a.out, h.q + i0 * h.q_row, h.q_row, rows, out, at.sum, a.width);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* delta = the sum of dout out, of each query, by a warp. */
template <class E> __device__ void attention_delta(const attention_delta_args &a)
{
    typedef typename number<E>::sum T;
    int64_t rows = a.batch * a.groups * a.repeat * a.queries;

    for (int64_t r = global_thread() / WARP; r < rows; r += all_threads() / WARP) {
        int64_t n = r / a.queries, g = n / a.repeat;
        head h = head_of(a, g / a.groups, g % a.groups, n % a.repeat);
        int64_t at = h.q + r % a.queries * h.q_row;
        T sum = 0;
        for (int64_t c = threadIdx.x % WARP; c < a.width; c += WARP)
            sum += get(((const E *)a.dout)[at + c]) * get(((const E *)a.out)[at + c]);
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0)
            ((T *)a.delta)[r] = sum;
    }
}

/* Shared memory: queries; gradients of results; values, then keys; gradients of scores. */
template <class K, class E> __device__ void attention_dq(const attention_dq_args &a)
{
    typedef typename number<E>::sum T;
    typedef shape<K, T> Z;
    SHARED_BYTES(shared);
    T *q = (T *)shared, *dout = q + Z::TILE, *kv = dout + Z::TILE, *ds = kv + Z::TILE;
    scores<K, T> p, dp;
    sums<K, T> dq;
    head h;
    int64_t i0 = first_query<Z::SIDE>(a, &h), rows = a.queries - i0, at = h.q + i0 * h.q_row;
    int64_t end = visible(a, (rows < Z::SIDE ? a.queries : i0 + Z::SIDE) - 1);
    known<T> x[Z::ROWS];
    T by[Z::ROWS];

    clear(dq);
    for (int i = 0; i < Z::ROWS; i++) {
        x[i] = known_of<T>(a, h, i0 + own_row() + 8 * i);
        by[i] = 1;
    }
    load_tile<K, E>(q, a.q, at, h.q_row, rows, a);
    load_tile<K, E>(dout, a.dout, at, h.q_row, rows, a);
    for (int64_t j = 0; j < end; j += Z::SIDE) {
        int64_t key = h.k + j * h.k_row;
        __syncthreads();
        load_tile<K, E>(kv, a.v, key, h.k_row, a.keys - j, a);
        __syncthreads();
        multiply<K>(dp, dout, kv);
        __syncthreads();
        load_tile<K, E>(kv, a.k, key, h.k_row, a.keys - j, a);
        __syncthreads();
        multiply<K>(p, q, kv);
        for (int m = 0; m < Z::ROWS; m++)
            for (int n = 0; n < Z::EACH; n++)
                slope(p.x[m][n], dp.x[m][n], x[m], j + own_column() + 16 * n, a);
        keep_scores<K>(ds, dp);
        __syncthreads();
        add_product<K>(dq, ds, kv);
    }
    write_rows<K, E>(a.dq, at, h.q_row, rows, dq, by, a.width);
}

/* What the queries i0.. of a head add to the gradients of keys j0... Rows of scores are keys. */
template <class K, class E>
__device__ inline void add_queries(sums<K, typename number<E>::sum> &dk,
                                   sums<K, typename number<E>::sum> &dv, typename number<E>::sum *k,
                                   const attending &a, const head &h, int64_t i0, int64_t j0)
{
    typedef typename number<E>::sum T;
    typedef shape<K, T> Z;
    T *v = k + Z::TILE, *q = v + Z::TILE, *dout = q + Z::TILE, *kept = dout + Z::TILE;
    int64_t at = h.q + i0 * h.q_row;
    scores<K, T> p, dp;

    __syncthreads();
    load_tile<K, E>(q, a.q, at, h.q_row, a.queries - i0, a);
    load_tile<K, E>(dout, a.dout, at, h.q_row, a.queries - i0, a);
    __syncthreads();
    multiply<K>(p, k, q);
    multiply<K>(dp, v, dout);
    for (int n = 0; n < Z::EACH; n++) {
        known<T> x = known_of<T>(a, h, i0 + own_column() + 16 * n);
        for (int m = 0; m < Z::ROWS; m++)
            slope(p.x[m][n], dp.x[m][n], x, j0 + own_row() + 8 * m, a);
    }
    keep_scores<K>(kept, p);
    __syncthreads();
    add_product<K>(dv, kept, dout);
    __syncthreads();
    keep_scores<K>(kept, dp);
    __syncthreads();
    add_product<K>(dk, kept, q);
}

/* Shared memory: keys, values, queries, gradients of results; probabilities, then gradients. */
template <class K, class E> __device__ void attention_dkv(const attention_dkv_args &a)
{
    typedef typename number<E>::sum T;
    typedef shape<K, T> Z;
    SHARED_BYTES(shared);
    T *k = (T *)shared;
    int64_t n = a.batch * a.groups, at = blockIdx.x % n, j0 = blockIdx.x / n * Z::SIDE;
    head h = head_of(a, at / a.groups, at % a.groups, 0);
    int64_t key = h.k + j0 * h.k_row, first = a.causal && j0 > a.ahead ? j0 - a.ahead : 0;
    sums<K, T> dk, dv;
    T by[Z::ROWS];

    clear(dk);
    clear(dv);
    for (int i = 0; i < Z::ROWS; i++)
        by[i] = 1;
    load_tile<K, E>(k, a.k, key, h.k_row, a.keys - j0, a);
    load_tile<K, E>(k + Z::TILE, a.v, key, h.k_row, a.keys - j0, a);
    for (int64_t r = 0; r < a.repeat; r++) {
        h = head_of(a, at / a.groups, at % a.groups, r);
        for (int64_t i = first / Z::SIDE * Z::SIDE; i < a.queries; i += Z::SIDE)
            add_queries<K, E>(dk, dv, k, a, h, i, j0);
    }
    write_rows<K, E>(a.dk, key, h.k_row, a.keys - j0, dk, by, a.width);
    write_rows<K, E>(a.dv, key, h.k_row, a.keys - j0, dv, by, a.width);
}
