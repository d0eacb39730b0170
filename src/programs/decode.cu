/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What generating a token needs: attention of few queries to a long cache of keys and values, and
 * writing rows into the cache. The time of attention is that of reading keys and values, so all of
 * the GPU reads: a block has a part of the keys of one item and head, and the queries of all heads
 * that share them; a second kernel joins the parts in order. A part's length follows from the room
 * of the cache alone, so a query has the same bits whatever others there are, and wherever keys
 * lie: in a row, or in blocks of a pool that a table names. Keys and values are on their way before
 * the first is needed, and numbers of rows are of 32 bits: divisions of 64 bits took most of the
 * time.
 */

#include "cached_rows.cuh"

/* Where a block is, and how many keys of its part its rows see. */
struct cached_place {
    uint32_t item, group, row, part; /* the first row */
    uint32_t lo;                     /* the first key */
    int least, most;                 /* keys that any row sees */
};

/* Keys from .first on, before .end. */
struct key_range {
    int first, end;
};

__device__ inline int64_t keys_seen(const cached_part_args &a, uint32_t item, uint32_t row)
{
    int64_t n = (int64_t)a.where[item * a.queries + row / (uint32_t)a.repeat] + 1 - a.first;

    return n < 0 ? 0 : n < a.room ? n : a.room;
}

/* Before the first key that a row sees. */
__device__ inline int64_t keys_before(const cached_part_args &a, uint32_t item, uint32_t row)
{
    int64_t n = (int64_t)a.where[item * a.queries + row / (uint32_t)a.repeat] + 1 - a.first;

    return a.window == 0 || n < a.window ? 0 : n - a.window;
}

template <int ROWS>
__device__ inline cached_place find_place(const cached_part_args &a, key_range (&seen)[ROWS])
{
    uint32_t i = blockIdx.x, rows = (uint32_t)(a.queries * a.repeat);
    cached_place p;

    p.row = i % (uint32_t)a.chunks * ROWS;
    i /= (uint32_t)a.chunks;
    p.part = i % (uint32_t)a.parts;
    i /= (uint32_t)a.parts;
    p.group = i % (uint32_t)a.groups;
    p.item = i / (uint32_t)a.groups;
    p.lo = p.part * (uint32_t)a.keys;
    p.least = (int)a.keys;
    p.most = 0;
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        int64_t n = p.row + r < rows ? keys_seen(a, p.item, p.row + r) - p.lo : 0, first = 0;
        if (n > 0)
            first = keys_before(a, p.item, p.row + r) - p.lo;
        seen[r].end = n < 0 ? 0 : (int)(n < a.keys ? n : a.keys);
        seen[r].first = first < 0 ? 0 : first < seen[r].end ? (int)first : seen[r].end;
        if (seen[r].first == seen[r].end)
            continue;
        p.least = seen[r].first < p.least ? seen[r].first : p.least;
        p.most = seen[r].end > p.most ? seen[r].end : p.most;
    }
    return p;
}

/* Where key j of the part begins. */
__device__ inline int64_t key_at(const cached_part_args &a, const cached_place &p, int j)
{
    uint32_t key = p.lo + (uint32_t)j, together = (uint32_t)a.together;
    int64_t row = p.item * a.room + key;

    if (a.table) {
        int64_t block = a.table[p.item * a.entries + key / together] - a.first_block;
        row = block * a.together + key % together;
    }
    return (row * a.groups + p.group) * a.width;
}

/* A lane's elements of the rows of keys or values of some steps. */
template <class K, class E> struct cached_rows {
    unit_16 x[cached_shape<K, E>::AHEAD][cached_shape<K, E>::EACH];
};

/* Load those of keys from `base` on; after the last key that is seen, that one again, and before
 * the first one that. */
template <class K, class E>
__device__ inline void load_rows(cached_rows<K, E> &to, const cached_part_args &a,
                                 const cached_place &p, const void *from, int base)
{
    typedef cached_shape<K, E> S;
    int own = threadIdx.x / S::LANES;

    UNROLL
    for (int u = 0; u < S::AHEAD; u++) {
        int j = base + u * S::STEP + own;
        int there = j < p.least ? p.least : j < p.most ? j : p.most - 1;
        const E *row = (const E *)from + key_at(a, p, there);
        if (a.wide)
            load_row<K, E, true>(to.x[u], row, a.width);
        else
            load_row<K, E, false>(to.x[u], row, a.width);
    }
}

/* The first key of the steps that have any that is seen. */
template <class K, class E> __device__ inline int first_step(const cached_place &p)
{
    return p.least / cached_shape<K, E>::ALL * cached_shape<K, E>::ALL;
}

/* Where a row of the item and group begins in q and out. */
__device__ inline int64_t row_at(const cached_part_args &a, const cached_place &p, uint32_t row)
{
    uint32_t repeat = (uint32_t)a.repeat, query = row / repeat;

    return (((p.item * a.queries + query) * a.groups + p.group) * a.repeat + row % repeat) *
           a.width;
}

/* Element c of a row's result, from its sum of weighted values, and the sum of weights. */
template <class E, class T>
__device__ inline void store_result(const cached_part_args &a, const cached_place &p, uint32_t row,
                                    int64_t c, T sum, T total)
{
    T x = total == 0 ? 0 : sum / total;

    if (a.log_sum)
        ((T *)a.out)[row_at(a, p, row) + c] = x;
    else
        ((E *)a.out)[row_at(a, p, row) + c] = put<E>(x);
}

/* Write the logarithm of a row's sum, if it is wanted. Called by one thread. */
template <class T>
__device__ inline void store_log_sum(const cached_part_args &a, const cached_place &p, uint32_t row,
                                     T most, T total)
{
    uint32_t repeat = (uint32_t)a.repeat;
    int64_t head = (p.item * a.groups + p.group) * a.repeat + row % repeat;

    if (a.log_sum)
        ((T *)a.log_sum)[head * a.queries + row / repeat] =
            total == 0 ? minus_infinity<T>() : most + log(total);
}

/* Scores of the block's rows with its keys, of which the first are in x; those that a row does not
 * see are -inf. */
template <class K, class E>
__device__ inline void cached_scores(const cached_part_args &a, const cached_place &p,
                                     const key_range (&seen)[K::ROWS], cached_rows<K, E> &x,
                                     typename number<E>::sum (*score)[CACHED_KEYS])
{
    typedef cached_shape<K, E> S;
    typedef typename number<E>::sum T;
    int lane = threadIdx.x % S::LANES, own = threadIdx.x / S::LANES;
    uint32_t rows = (uint32_t)(a.queries * a.repeat);
    unit_16 mine[S::EACH];
    T q[K::ROWS][S::MINE], k[S::MINE];

    UNROLL
    for (int r = 0; r < K::ROWS; r++) {
        const E *row = (const E *)a.q + row_at(a, p, p.row + r < rows ? p.row + r : rows - 1);
        if (a.wide)
            load_row<K, E, true>(mine, row, a.width);
        else
            load_row<K, E, false>(mine, row, a.width);
        widen<K, E>(q[r], mine);
    }
    for (int base = first_step<K, E>(p); base < p.most; base += S::ALL) {
        if (base > first_step<K, E>(p))
            load_rows(x, a, p, a.k, base);
        UNROLL
        for (int u = 0; u < S::AHEAD; u++) {
            int j = base + u * S::STEP + own;
            widen<K, E>(k, x.x[u]);
            UNROLL
            for (int r = 0; r < K::ROWS; r++) {
                T sum = 0;
                UNROLL
                for (int i = 0; i < S::MINE; i++)
                    sum += q[r][i] * k[i];
                UNROLL
                for (int step = S::LANES / 2; step > 0; step /= 2)
                    sum += __shfl_xor_sync(0xffffffffu, sum, step);
                sum *= (T)a.scale;
                if (a.cap != 0)
                    sum = (T)a.cap * tanh(sum / (T)a.cap);
                if (lane == 0 && j < p.most)
                    score[r][j] = j >= seen[r].first && j < seen[r].end ? sum : minus_infinity<T>();
            }
        }
    }
}

/* Turn scores into exponentials, and keep their sums; a warp has a row. */
template <int ROWS, class T>
__device__ inline void cached_weights(int first, int n, T (*score)[CACHED_KEYS], T *most, T *total)
{
    int lane = threadIdx.x % WARP;

    for (int r = threadIdx.x / WARP; r < ROWS; r += CACHED_WARPS) {
        T top = minus_infinity<T>(), sum = 0;
        for (int j = first + lane; j < n; j += WARP)
            top = larger(top, score[r][j]);
        top = warp_max(top);
        for (int j = first + lane; j < n; j += WARP) {
            T e = top == minus_infinity<T>() ? 0 : exp(score[r][j] - top);
            score[r][j] = e;
            sum += e;
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            most[r] = top;
            total[r] = sum;
        }
    }
}

/* This lane's sums of weighted values, over the rows that its warp has read, of which the first are
 * in x. A weight of 0 takes nothing, not even of a value that is no number. */
template <class K, class E>
__device__ inline void
cached_values(const cached_part_args &a, const cached_place &p, cached_rows<K, E> &x,
              typename number<E>::sum (*weight)[CACHED_KEYS],
              typename number<E>::sum (&sum)[K::ROWS][cached_shape<K, E>::MINE])
{
    typedef cached_shape<K, E> S;
    typedef typename number<E>::sum T;
    int own = threadIdx.x / S::LANES;
    T v[S::MINE];

    for (int base = first_step<K, E>(p); base < p.most; base += S::ALL) {
        if (base > first_step<K, E>(p))
            load_rows(x, a, p, a.v, base);
        UNROLL
        for (int u = 0; u < S::AHEAD; u++) {
            int j = base + u * S::STEP + own;
            widen<K, E>(v, x.x[u]);
            UNROLL
            for (int r = 0; r < K::ROWS; r++) {
                T w = j < p.most ? weight[r][j] : 0;
                if (w != 0)
                    UNROLL
                for (int i = 0; i < S::MINE; i++)
                    sum[r][i] += w * v[i];
            }
        }
    }
    UNROLL
    for (int r = 0; r < K::ROWS; r++)
        UNROLL
    for (int i = 0; i < S::MINE; i++)
        UNROLL
    for (int step = S::LANES; step < WARP; step *= 2)
        sum[r][i] += __shfl_xor_sync(0xffffffffu, sum[r][i], step);
}

/* The sums of a block's warps for a row, added in their order, to where they belong. */
template <class K, class E>
__device__ inline void cached_store(const cached_part_args &a, const cached_place &p, uint32_t row,
                                    const typename number<E>::sum *mine,
                                    typename number<E>::sum (*room)[K::WIDTH],
                                    typename number<E>::sum most, typename number<E>::sum total)
{
    typedef cached_shape<K, E> S;
    typedef typename number<E>::sum T;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t rows = (uint32_t)(a.queries * a.repeat);
    int64_t at = ((p.item * a.groups + p.group) * rows + row) * a.parts + p.part;

    UNROLL
    for (int i = 0; i < S::MINE; i++)
        if (lane < S::LANES)
            room[warp][(i / S::N * S::LANES + lane) * S::N + i % S::N] = mine[i];
    __syncthreads();
    for (int64_t c = threadIdx.x; c < a.width && row < rows; c += CACHED_THREADS) {
        T sum = 0;
        UNROLL
        for (int w = 0; w < CACHED_WARPS; w++)
            sum += room[w][c];
        if (a.parts > 1)
            ((T *)a.sums)[at * a.width + c] = sum;
        else
            store_result<E>(a, p, row, c, sum, total);
    }
    if (threadIdx.x == 0 && row < rows && a.parts == 1)
        store_log_sum(a, p, row, most, total);
    if (threadIdx.x == 0 && row < rows && a.parts > 1) {
        ((T *)a.most)[at] = most;
        ((T *)a.total)[at] = total;
    }
    __syncthreads();
}

template <class K, class E> __device__ void cached_part(const cached_part_args &a)
{
    typedef cached_shape<K, E> S;
    typedef typename number<E>::sum T;
    __shared__ T score[K::ROWS][CACHED_KEYS], room[CACHED_WARPS][K::WIDTH];
    __shared__ T most[K::ROWS], total[K::ROWS];
    key_range seen[K::ROWS];
    T sum[K::ROWS][S::MINE];
    cached_rows<K, E> k, v;
    cached_place p = find_place(a, seen);

    if (p.most == 0 && a.parts > 1)
        return; /* nobody asks for it */
    if (p.most > 0) {
        load_rows(k, a, p, a.k, first_step<K, E>(p));
        load_rows(v, a, p, a.v, first_step<K, E>(p));
    }
    cached_scores(a, p, seen, k, score);
    __syncthreads();
    cached_weights<K::ROWS>(first_step<K, E>(p), p.most, score, most, total);
    __syncthreads();
    UNROLL
    for (int r = 0; r < K::ROWS; r++)
        UNROLL
    for (int i = 0; i < S::MINE; i++)
        sum[r][i] = 0;
    cached_values(a, p, v, score, sum);
    UNROLL
    for (int r = 0; r < K::ROWS; r++)
        cached_store<K, E>(a, p, p.row + r, sum[r], room, most[r], total[r]);
}

/* Weighted sums of column c of n parts, `width` apart, in their order; the weights behind n are 0.
 * A weight of 0 takes nothing. */
template <class T>
__device__ inline void add_parts(T &sum, const T *from, const T *weight, int n, int64_t width)
{
    enum { AT_ONCE = 8 };
    T x[AT_ONCE];

    for (int i = 0; i < n; i += AT_ONCE) {
        UNROLL
        for (int u = 0; u < AT_ONCE; u++)
            x[u] = weight[i + u] == 0 ? 0 : from[(i + u) * width];
        UNROLL
        for (int u = 0; u < AT_ONCE; u++)
            sum += weight[i + u] * x[u];
    }
}

/* A block has a row, and goes through its parts, as many at once as it has threads. */
template <class E> __device__ void cached_join(const cached_join_args &a)
{
    typedef typename number<E>::sum T;
    __shared__ T weight[CACHED_THREADS], room[MOST_WARPS];
    enum { EACH = 256 / CACHED_THREADS };
    uint32_t rows = (uint32_t)(a.queries * a.repeat), row = blockIdx.x % rows;
    cached_place p = {};
    T top = minus_infinity<T>(), total = 0, sum[EACH];

    p.group = blockIdx.x / rows % (uint32_t)a.groups;
    p.item = blockIdx.x / rows / (uint32_t)a.groups;
    int parts =
        (int)(((uint32_t)keys_seen(a, p.item, row) + (uint32_t)a.keys - 1) / (uint32_t)a.keys);
    int skipped = (int)((uint32_t)keys_before(a, p.item, row) / (uint32_t)a.keys);
    int64_t at = blockIdx.x * a.parts + skipped;
    parts = parts > skipped ? parts - skipped : 0;
    for (int i = threadIdx.x; i < parts; i += CACHED_THREADS)
        top = larger(top, ((const T *)a.most)[at + i]);
    top = block_max(top, room);
    for (int e = 0; e < EACH; e++)
        sum[e] = 0;
    for (int base = 0; base < parts; base += CACHED_THREADS) {
        int n = parts - base < CACHED_THREADS ? parts - base : CACHED_THREADS;
        T w = 0;
        if ((int)threadIdx.x < n && top != minus_infinity<T>())
            w = exp(((const T *)a.most)[at + base + threadIdx.x] - top);
        if (w != 0)
            total += w * ((const T *)a.total)[at + base + threadIdx.x];
        __syncthreads();
        weight[threadIdx.x] = w;
        __syncthreads();
        for (int e = 0; e < EACH; e++) {
            int64_t c = threadIdx.x + e * CACHED_THREADS;
            if (c < a.width)
                add_parts(sum[e], (const T *)a.sums + (at + base) * a.width + c, weight, n,
                          a.width);
        }
    }
    total = block_sum(total, room);
    for (int e = 0; e < EACH; e++) {
        int64_t c = threadIdx.x + e * CACHED_THREADS;
        if (c < a.width)
            store_result<E>(a, p, row, c, sum[e], total);
    }
    if (threadIdx.x == 0)
        store_log_sum(a, p, row, top, total);
}

/* ---- rows into a cache ----------------------------------------------------------------------- */

/* Where row w goes; -1: nowhere. */
__device__ inline int64_t goes_to(const write_rows_args &a, uint32_t w)
{
    uint32_t item = w / (uint32_t)a.n;
    int64_t id = a.index[w], at = id - a.first;

    if (id < 0)
        return -1;
    if (a.table) {
        uint32_t together = (uint32_t)a.together;
        int64_t block = a.table[item * a.entries + (uint32_t)id / together] - a.first;
        return block * a.dst_batch + (uint32_t)id % together * a.dst_row;
    }
    return at < 0 || at >= a.entries ? -1 : item * a.dst_batch + at * a.dst_row;
}

/*
 * Whether a later row goes to the same place, and so is the one that counts. It is of the same
 * item, unless items share blocks. Called by a whole warp.
 */
__device__ inline bool comes_again(const write_rows_args &a, uint32_t w, int64_t to)
{
    int64_t end = (a.table ? a.batch : w / (uint32_t)a.n + 1) * a.n;

    for (int64_t base = (int64_t)w + 1; base < end; base += WARP) {
        int64_t j = base + threadIdx.x % WARP;
        if (__any_sync(0xffffffffu, j < end && goes_to(a, (uint32_t)j) == to))
            return true;
    }
    return false;
}

/* A warp has a row. */
template <class UNIT> __device__ void write_rows(const write_rows_args &a)
{
    int lane = threadIdx.x % WARP;

    for (int64_t w = global_thread() / WARP; w < a.batch * a.n; w += all_threads() / WARP) {
        int64_t item = w / a.n, to = goes_to(a, (uint32_t)w);
        if (to < 0 || comes_again(a, (uint32_t)w, to))
            continue;
        UNIT *dst = (UNIT *)a.dst + to;
        const UNIT *src = (const UNIT *)a.src + item * a.src_batch + (w - item * a.n) * a.src_row;
        for (int64_t c = lane; c < a.units; c += WARP)
            dst[c] = src[c];
    }
}
