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

/*
 * How many blocks are to share a processor, which limits the registers of a kernel: as many as
 * leave room for its numbers.
 */
constexpr int blocks_of(const char *name)
{
    return begins(name, "attention_w32_f32")                       ? 4
           : has(name, "w32") || begins(name, "attention_w64_f32") ? 3
                                                                   : 2;
}

#ifndef SHERD_EMULATED_CUDA
#undef KERNEL
#define KERNEL(name, args)                                                            \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, blocks_of(#name)) \
        name(const __grid_constant__ args a)
#endif

/* ---- forward --------------------------------------------------------------------------------- */

/* The state of the thread's queries after the keys so far; `most` is an exponent of 2. */
template <class K, class T> struct progress {
    T most[shape<K, T>::ROWS], sum[shape<K, T>::ROWS];
};

/*
 * Turn the scores of keys from `first` on into exponentials, and scale results so far to the
 * largest score. With MORE scores are exponents of 2 already.
 */
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

/*
 * Shared memory: queries; keys; values, where keys are if there is no spare tile; exponentials.
 * With a spare one keys and values are copied while the others are computed with.
 */
template <class K, class E> __device__ void attention(const attention_args &a)
{
    typedef typename number<E>::sum T;
    typedef shape<K, T> Z;
    SHARED_BYTES(shared);
    __shared__ uint32_t words[K::MORE ? kept_tile<K, T>::WORDS : 1];
    T *q = (T *)shared, *k = q + Z::TILE, *v = a.spare ? k + Z::TILE : k, *p = v + Z::TILE;
    progress<K, T> at;
    sums<K, T> out;
    scores<K, T> s;
    head h;
    int64_t i0 = first_query<Z::SIDE>(a, &h), rows = a.queries - i0;
    int64_t end = end_of<K>(a, h, (rows < Z::SIDE ? a.queries : i0 + Z::SIDE) - 1);
    int64_t begin = first_tile<K, Z::SIDE>(a, h, i0);

    clear(out);
    for (int i = 0; i < Z::ROWS; i++) {
        at.most[i] = minus_infinity<T>();
        at.sum[i] = 0;
    }
    begin_tile<K, E>(q, a.q, h.q + i0 * h.q_row, h.q_row, rows, a);
    begin_tile<K, E>(k, a.k, h.k + begin * h.k_row, h.k_row, a.keys - begin, a);
    for (int64_t j = begin; j < end; j += Z::SIDE) {
        int64_t key = h.k + j * h.k_row, next = j + Z::SIDE;
        if (K::MORE)
            draw<K, T>(words, a, h, i0, j);
        arrive();
        if (a.spare)
            begin_tile<K, E>(v, a.v, key, h.k_row, a.keys - j, a);
        multiply<K>(s, q, k);
        if (K::MORE)
            see<false, E>(s, a, h, i0, j);
        advance<K>(at, out, s, a, i0, j);
        if (K::MORE)
            drop<false>(s, words, a, (T)1);
        keep_scores<K>(p, s);
        if (!a.spare) {
            __syncthreads();
            begin_tile<K, E>(v, a.v, key, h.k_row, a.keys - j, a);
        }
        arrive();
        if (a.spare && next < end)
            begin_tile<K, E>(k, a.k, h.k + next * h.k_row, h.k_row, a.keys - next, a);
        add_product<K>(out, p, v);
        if (!a.spare && next < end) {
            __syncthreads();
            begin_tile<K, E>(k, a.k, h.k + next * h.k_row, h.k_row, a.keys - next, a);
        }
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

/* Shared memory: queries; gradients of results; values; keys, where values are if there is no spare
 * tile; gradients of scores. */
template <class K, class E> __device__ void attention_dq(const attention_dq_args &a)
{
    typedef typename number<E>::sum T;
    typedef shape<K, T> Z;
    SHARED_BYTES(shared);
    __shared__ uint32_t words[K::MORE ? kept_tile<K, T>::WORDS : 1];
    T *q = (T *)shared, *dout = q + Z::TILE, *v = dout + Z::TILE;
    T *k = a.spare ? v + Z::TILE : v, *ds = k + Z::TILE;
    scores<K, T> p, dp;
    sums<K, T> dq;
    head h;
    int64_t i0 = first_query<Z::SIDE>(a, &h), rows = a.queries - i0, at = h.q + i0 * h.q_row;
    int64_t end = end_of<K>(a, h, (rows < Z::SIDE ? a.queries : i0 + Z::SIDE) - 1);
    int64_t begin = first_tile<K, Z::SIDE>(a, h, i0);
    known<T> x[Z::ROWS];
    T by[Z::ROWS];

    clear(dq);
    for (int i = 0; i < Z::ROWS; i++) {
        x[i] = known_of<T>(a, h, i0 + own_row() + 8 * i);
        by[i] = 1;
    }
    begin_tile<K, E>(q, a.q, at, h.q_row, rows, a);
    begin_tile<K, E>(dout, a.dout, at, h.q_row, rows, a);
    begin_tile<K, E>(v, a.v, h.k + begin * h.k_row, h.k_row, a.keys - begin, a);
    for (int64_t j = begin; j < end; j += Z::SIDE) {
        int64_t key = h.k + j * h.k_row, next = j + Z::SIDE;
        if (K::MORE)
            draw<K, T>(words, a, h, i0, j);
        arrive();
        if (a.spare)
            begin_tile<K, E>(k, a.k, key, h.k_row, a.keys - j, a);
        multiply<K>(dp, dout, v);
        if (!a.spare) {
            __syncthreads();
            begin_tile<K, E>(k, a.k, key, h.k_row, a.keys - j, a);
        }
        arrive();
        if (a.spare && next < end)
            begin_tile<K, E>(v, a.v, h.k + next * h.k_row, h.k_row, a.keys - next, a);
        multiply<K>(p, q, k);
        if (K::MORE)
            see_and_drop<false, E>(p, dp, words, a, h, i0, j);
        for (int m = 0; m < Z::ROWS; m++)
            for (int n = 0; n < Z::EACH; n++)
                slope<K>(p.x[m][n], dp.x[m][n], x[m], j + own_column() + 16 * n, (T)a.scale, a);
        keep_scores<K>(ds, dp);
        __syncthreads();
        add_product<K>(dq, ds, k);
        if (!a.spare && next < end) {
            __syncthreads();
            begin_tile<K, E>(v, a.v, h.k + next * h.k_row, h.k_row, a.keys - next, a);
        }
    }
    write_rows<K, E>(a.dq, at, h.q_row, rows, dq, by, a.width);
}

/*
 * Turn the scores of keys from j0 on, which are rows, with a tile of queries into the probabilities
 * that values were multiplied by, and dp, the gradients of these, into those of scores.
 * known[2,SIDE].
 */
template <class K, class E, class T>
__device__ inline void slopes_of_keys(scores<K, T> &p, scores<K, T> &dp, const T *known_rows,
                                      const uint32_t *words, const attending &a,
                                      const query_place &at, int64_t j0)
{
    typedef shape<K, T> Z;

    if (K::MORE)
        see_and_drop<true, E>(p, dp, words, a, at.h, at.i, j0);
    for (int n = 0; n < Z::EACH; n++) {
        int c = own_column() + 16 * n;
        known<T> x = known_as(a, at.i + c, known_rows[c], known_rows[Z::SIDE + c]);
        for (int m = 0; m < Z::ROWS; m++)
            slope<K>(p.x[m][n], dp.x[m][n], x, j0 + own_row() + 8 * m, (T)a.scale, a);
    }
    if (K::MORE)
        drop<true>(p, words, a, (T)a.keep);
}

/*
 * Shared memory: keys, values, queries, gradients of results, perhaps a spare tile for the next
 * queries; probabilities, then gradients of scores.
 */
template <class K, class E> __device__ void attention_dkv(const attention_dkv_args &a)
{
    typedef typename number<E>::sum T;
    typedef shape<K, T> Z;
    SHARED_BYTES(shared);
    __shared__ uint32_t words[K::MORE ? kept_tile<K, T>::WORDS : 1];
    __shared__ T known_rows[2][2 * Z::SIDE];
    T *k = (T *)shared, *v = k + Z::TILE, *q = v + Z::TILE, *dout = q + Z::TILE;
    T *other = a.spare ? dout + Z::TILE : q, *kept = (a.spare ? other : dout) + Z::TILE;
    int64_t n = a.batch * a.groups, j0 = blockIdx.x / n * Z::SIDE;
    head h = head_of(a, blockIdx.x % n / a.groups, blockIdx.x % n % a.groups, 0);
    const query_range range = queries_seeing<K, Z::SIDE>(a, h, j0, Z::SIDE);
    int64_t first = range.first, tiles = tiles_of<Z::SIDE>(a, range);
    int64_t key = h.k + j0 * h.k_row;
    query_place at = {first, h};
    scores<K, T> p, dp;
    sums<K, T> dk, dv;
    T by[Z::ROWS];
    int turn = 0;

    clear(dk);
    clear(dv);
    for (int i = 0; i < Z::ROWS; i++)
        by[i] = 1;
    begin_tile<K, E>(k, a.k, key, h.k_row, a.keys - j0, a);
    begin_tile<K, E>(v, a.v, key, h.k_row, a.keys - j0, a);
    if (tiles) {
        int64_t place = h.q + first * h.q_row;
        begin_tile<K, E>(q, a.q, place, h.q_row, a.queries - first, a);
        begin_tile<K, E>(dout, a.dout, place, h.q_row, a.queries - first, a);
        begin_known<K>(known_rows[0], a, at);
    }
    for (; tiles > 0; tiles--) {
        query_place next = next_place<Z::SIDE>(at, a, range);
        int64_t place = next.h.q + next.i * h.q_row, left = a.queries - next.i;
        if (K::MORE)
            draw<K, T>(words, a, at.h, at.i, j0);
        arrive();
        if (a.spare && tiles > 1)
            begin_tile<K, E>(other, a.q, place, h.q_row, left, a);
        if (tiles > 1)
            begin_known<K>(known_rows[1 - turn], a, next);
        multiply<K>(p, k, q);
        multiply<K>(dp, v, dout);
        slopes_of_keys<K, E>(p, dp, known_rows[turn], words, a, at, j0);
        keep_scores<K>(kept, p);
        __syncthreads();
        add_product<K>(dv, kept, dout);
        __syncthreads();
        if (tiles > 1)
            begin_tile<K, E>(dout, a.dout, place, h.q_row, left, a);
        keep_scores<K>(kept, dp);
        __syncthreads();
        add_product<K>(dk, kept, q);
        if (!a.spare && tiles > 1) {
            __syncthreads();
            begin_tile<K, E>(q, a.q, place, h.q_row, left, a);
        }
        T *last = q;
        q = other;
        other = last;
        turn = 1 - turn;
        at = next;
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

/*
 * Add the gradients of the scores of queries i0.. with keys j0.. to `sum`. Shared memory: queries,
 * gradients of results, keys, values.
 */
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
