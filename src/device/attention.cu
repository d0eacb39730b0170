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
#include "attention_tiles.cuh"

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

/* ---- forward --------------------------------------------------------------------------------- */

/* What is known of the thread's queries so far; `most` as power of 2. */
template <class K, class T> struct progress {
    T most[shape<K, T>::ROWS], sum[shape<K, T>::ROWS];
};

/* Scores of keys first.. become exponentials, results so far follow the largest score. With MORE
 * they are powers of 2 already. */
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
            if (!K::MORE)
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
    __shared__ uint32_t words[K::MORE ? kept_tile<K, T>::WORDS : 1];
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
        if (K::MORE)
            draw<K, T>(words, a, h, i0, j);
        __syncthreads();
        multiply<K>(s, q, kv);
        if (K::MORE)
            see<false, E>(s, a, h, i0, j);
        advance<K>(at, out, s, a, i0, j);
        if (K::MORE)
            drop<false>(s, words, a, (T)1);
        keep_scores<K>(p, s);
        __syncthreads();
        load_tile<K, E>(kv, a.v, key, h.k_row, a.keys - j, a);
        __syncthreads();
        add_product<K>(out, p, kv);
    }
    for (int i = 0; i < Z::ROWS; i++) {
        int64_t r = own_row() + 8 * i;
        T sum = at.sum[i], log_sum = at.most[i] + log_of_2(sum);
        at.sum[i] = at.most[i] == minus_infinity<T>() ? 0 : (K::MORE ? (T)a.keep : 1) / sum;
        if (own_column() == 0 && r < rows)
            ((T *)a.log_sum)[h.row + i0 + r] =
                at.most[i] == minus_infinity<T>() ? at.most[i] : log_sum / (T)log2_e();
    }
    write_rows<K, E>(a.out, h.q + i0 * h.q_row, h.q_row, rows, out, at.sum, a.width);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* delta = the sum of dout out, less dlog_sum, of each query, by a warp. */
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
            ((T *)a.delta)[r] = sum - (a.dlog_sum ? ((const T *)a.dlog_sum)[r] : 0);
    }
}

/* Shared memory: queries; gradients of results; values, then keys; gradients of scores. */
template <class K, class E> __device__ void attention_dq(const attention_dq_args &a)
{
    typedef typename number<E>::sum T;
    typedef shape<K, T> Z;
    SHARED_BYTES(shared);
    __shared__ uint32_t words[K::MORE ? kept_tile<K, T>::WORDS : 1];
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
        if (K::MORE)
            draw<K, T>(words, a, h, i0, j);
        __syncthreads();
        multiply<K>(p, q, kv);
        if (K::MORE)
            see_and_drop<false, E>(p, dp, words, a, h, i0, j);
        for (int m = 0; m < Z::ROWS; m++)
            for (int n = 0; n < Z::EACH; n++)
                slope<K>(p.x[m][n], dp.x[m][n], x[m], j + own_column() + 16 * n, (T)a.scale, a);
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
                                   uint32_t *words, const attending &a, const head &h, int64_t i0,
                                   int64_t j0)
{
    typedef typename number<E>::sum T;
    typedef shape<K, T> Z;
    T *v = k + Z::TILE, *q = v + Z::TILE, *dout = q + Z::TILE, *kept = dout + Z::TILE;
    int64_t at = h.q + i0 * h.q_row;
    scores<K, T> p, dp;

    __syncthreads();
    load_tile<K, E>(q, a.q, at, h.q_row, a.queries - i0, a);
    load_tile<K, E>(dout, a.dout, at, h.q_row, a.queries - i0, a);
    if (K::MORE)
        draw<K, T>(words, a, h, i0, j0);
    __syncthreads();
    multiply<K>(p, k, q);
    multiply<K>(dp, v, dout);
    if (K::MORE)
        see_and_drop<true, E>(p, dp, words, a, h, i0, j0);
    for (int n = 0; n < Z::EACH; n++) {
        known<T> x = known_of<T>(a, h, i0 + own_column() + 16 * n);
        for (int m = 0; m < Z::ROWS; m++)
            slope<K>(p.x[m][n], dp.x[m][n], x, j0 + own_row() + 8 * m, (T)a.scale, a);
    }
    if (K::MORE)
        drop<true>(p, words, a, (T)a.keep);
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
    __shared__ uint32_t words[K::MORE ? kept_tile<K, T>::WORDS : 1];
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
            add_queries<K, E>(dk, dv, k, words, a, h, i, j0);
    }
    write_rows<K, E>(a.dk, key, h.k_row, a.keys - j0, dk, by, a.width);
    write_rows<K, E>(a.dv, key, h.k_row, a.keys - j0, dv, by, a.width);
}

/* ---- the gradient of a mask ------------------------------------------------------------------ */

/* A dim of the mask, of `all` indices or tiles: the block's own one, or all where it is
 * stretched. */
struct part_of_dim {
    int64_t first, many;
};
__device__ inline part_of_dim next_dim(int64_t *block, int64_t all, bool stretched)
{
    part_of_dim p = {stretched ? 0 : *block % all, stretched ? all : 1};

    *block = stretched ? *block : *block / all;
    return p;
}
__device__ inline int64_t next_index(int64_t *n, const part_of_dim &p)
{
    int64_t i = p.first + *n % p.many;

    *n /= p.many;
    return i;
}

/* Gradients of the scores of queries i0.. with keys j0.. are added to `sum`. Shared memory:
 * queries, gradients of results, keys, values. */
template <class K, class E>
__device__ inline void add_slopes(scores<K, typename number<E>::sum> &sum,
                                  typename number<E>::sum *q, uint32_t *words, const attending &a,
                                  const head &h, int64_t i0, int64_t j0)
{
    typedef typename number<E>::sum T;
    typedef shape<K, T> Z;
    T *dout = q + Z::TILE, *k = dout + Z::TILE, *v = k + Z::TILE;
    int64_t at = h.q + i0 * h.q_row, key = h.k + j0 * h.k_row;
    scores<K, T> p, dp;

    __syncthreads();
    load_tile<K, E>(q, a.q, at, h.q_row, a.queries - i0, a);
    load_tile<K, E>(dout, a.dout, at, h.q_row, a.queries - i0, a);
    load_tile<K, E>(k, a.k, key, h.k_row, a.keys - j0, a);
    load_tile<K, E>(v, a.v, key, h.k_row, a.keys - j0, a);
    draw<K, T>(words, a, h, i0, j0);
    __syncthreads();
    multiply<K>(p, q, k);
    multiply<K>(dp, dout, v);
    see_and_drop<false, E>(p, dp, words, a, h, i0, j0);
    for (int m = 0; m < Z::ROWS; m++) {
        known<T> x = known_of<T>(a, h, i0 + own_row() + 8 * m);
        for (int n = 0; n < Z::EACH; n++) {
            slope<K>(p.x[m][n], dp.x[m][n], x, j0 + own_column() + 16 * n, (T)1, a);
            sum.x[m][n] += dp.x[m][n];
        }
    }
}

/* Element (i, j) of a tile's sums, over the rows or columns in which the mask is stretched. */
template <class K, class T>
__device__ inline double sum_of_tile(const T *sums, int i, int j, bool rows, bool columns)
{
    typedef shape<K, T> Z;
    double sum = 0;

    for (int r = rows ? 0 : i; r < (rows ? (int)Z::SIDE : i + 1); r++)
        for (int c = columns ? 0 : j; c < (columns ? (int)Z::SIDE : j + 1); c++)
            sum += (double)sums[r * Z::SCORES_ROW + c];
    return sum;
}

/* A block has a tile of the mask, and goes through all that it is added to. */
template <class K, class E> __device__ void attention_dmask(const attention_dmask_args &a)
{
    typedef typename number<E>::sum T;
    typedef shape<K, T> Z;
    SHARED_BYTES(shared);
    __shared__ uint32_t words[kept_tile<K, T>::WORDS];
    const int64_t *stride = a.mask_stride;
    const int64_t all[5] = {a.batch, a.groups, a.repeat, (a.queries + Z::SIDE - 1) / Z::SIDE,
                            (a.keys + Z::SIDE - 1) / Z::SIDE};
    part_of_dim part[5];
    int64_t block = blockIdx.x, many = 1;
    scores<K, T> sum;

    for (int m = 0; m < Z::ROWS; m++)
        for (int n = 0; n < Z::EACH; n++)
            sum.x[m][n] = 0;
    for (int d = 4; d >= 0; d--) {
        part[d] = next_dim(&block, all[d], stride[d] == 0);
        many *= part[d].many;
    }
    for (int64_t x = 0; x < many; x++) {
        int64_t n = x, at[5];
        for (int d = 4; d >= 0; d--)
            at[d] = next_index(&n, part[d]);
        head h = head_of(a, at[0], at[1], at[2]);
        add_slopes<K, E>(sum, (T *)shared, words, a, h, at[3] * Z::SIDE, at[4] * Z::SIDE);
    }
    __syncthreads();
    keep_scores<K>((T *)shared, sum);
    __syncthreads();
    head h = head_of(a, part[0].first, part[1].first, part[2].first);
    int64_t i0 = part[3].first * Z::SIDE, j0 = part[4].first * Z::SIDE;
    int rows = stride[3] ? Z::SIDE : 1, columns = stride[4] ? Z::SIDE : 1;
    for (int x = threadIdx.x; x < rows * columns; x += ATTENTION_THREADS) {
        int i = x / columns, j = x % columns;
        if (i0 + i < a.queries && j0 + j < a.keys)
            a.dmask[h.mask + (i0 + i) * stride[3] + (j0 + j) * stride[4]] +=
                sum_of_tile<K>((const T *)shared, i, j, !stride[3], !stride[4]);
    }
}

/* ---- more keys ------------------------------------------------------------------------------- */

/* Results over two sets of keys become that over both, in the place of the first; a warp has one.
 */
template <class E> __device__ void attention_join(const attention_join_args &a)
{
    typedef typename number<E>::sum T;
    int64_t heads = a.groups * a.repeat, rows = a.batch * heads * a.queries;

    for (int64_t r = global_thread() / WARP; r < rows; r += all_threads() / WARP) {
        int64_t n = r / a.queries, i = r % a.queries;
        int64_t at = ((n / heads * a.queries + i) * heads + n % heads) * a.width;
        T x = ((const T *)a.log_sum)[r], y = ((const T *)a.more_log_sum)[r], most = x >= y ? x : y;
        if (y == minus_infinity<T>())
            continue;
        __syncwarp();
        x = power_of_2((x - most) * (T)log2_e());
        y = power_of_2((y - most) * (T)log2_e());
        T total = x + y;
        if (threadIdx.x % WARP == 0)
            ((T *)a.log_sum)[r] = most + log_of_2(total) / (T)log2_e();
        for (int64_t c = threadIdx.x % WARP; c < a.width; c += WARP) {
            E *to = (E *)a.out + at + c;
            *to = put<E>(x / total * get(*to) + y / total * get(((const E *)a.more)[at + c]));
        }
    }
}
