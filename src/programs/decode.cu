/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What writes a token: few queries against a long cache of keys and values, and rows that are put
 * into that. The time of attention is that of reading keys and values, so all of the GPU reads: a
 * block has a part of the keys of one item and head, and the queries of all heads that share them;
 * a second kernel joins the parts in order. A part's length follows from the room of the cache
 * alone, so a query has the same bits whatever others there are.
 */

#define WIDTHS(width)                     \
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
        AHEAD = EACH > 1 ? 2 : 4       /* such steps whose loads are on their way */
    };
};

/* This lane's elements of a row, 0 behind its end. */
template <class K, class E, bool WIDE>
__device__ inline void load_row(typename number<E>::sum *to, const E *row, int64_t width)
{
    typedef cached_shape<K, E> S;
    int lane = threadIdx.x % S::LANES;

    UNROLL
    for (int e = 0; e < S::EACH; e++) {
        int c = (e * S::LANES + lane) * S::N;
        UNROLL
        for (int i = 0; i < S::N; i++)
            to[e * S::N + i] = 0;
        if (WIDE && c < width)
            load<E, S::N>(to + e * S::N, row + c);
        UNROLL
        for (int i = 0; i < S::N; i++)
            if (!WIDE && c + i < width)
                to[e * S::N + i] = get(row[c + i]);
    }
}

/* Where a block is, and how many keys of its part its rows see. */
struct cached_place {
    int64_t item, group, row, part, lo; /* the first row, and key */
    int64_t most;                       /* keys that any row sees */
};

__device__ inline int64_t keys_seen(const cached_part_args &a, int64_t item, int64_t row)
{
    int64_t n = (int64_t)a.where[item * a.queries + row / a.repeat] + 1 - a.first;

    return n < 0 ? 0 : n < a.room ? n : a.room;
}

template <int ROWS>
__device__ inline cached_place find_place(const cached_part_args &a, int64_t (&seen)[ROWS])
{
    int64_t i = blockIdx.x, rows = a.queries * a.repeat;
    cached_place p;

    p.row = i % a.chunks * ROWS;
    i /= a.chunks;
    p.part = i % a.parts;
    i /= a.parts;
    p.group = i % a.groups;
    p.item = i / a.groups;
    p.lo = p.part * a.keys;
    p.most = 0;
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        int64_t n = p.row + r < rows ? keys_seen(a, p.item, p.row + r) - p.lo : 0;
        seen[r] = n < 0 ? 0 : n < a.keys ? n : a.keys;
        p.most = seen[r] > p.most ? seen[r] : p.most;
    }
    return p;
}

/* Of row i of an item's and group's, in q and out. */
__device__ inline int64_t row_at(const cached_part_args &a, const cached_place &p, int64_t i)
{
    int64_t query = i / a.repeat;

    return (((p.item * a.queries + query) * a.groups + p.group) * a.repeat + i % a.repeat) *
           a.width;
}

/* Element c of a row's result, from its sum of weighted values, and the sum of weights. */
template <class E, class T>
__device__ inline void store_result(const cached_part_args &a, const cached_place &p, int64_t row,
                                    int64_t c, T sum, T total)
{
    T x = total == 0 ? 0 : sum / total;

    if (a.log_sum)
        ((T *)a.out)[row_at(a, p, row) + c] = x;
    else
        ((E *)a.out)[row_at(a, p, row) + c] = put<E>(x);
}

/* And the logarithm of its sum, where that is wanted. By one thread. */
template <class T>
__device__ inline void store_log_sum(const cached_part_args &a, const cached_place &p, int64_t row,
                                     T most, T total)
{
    int64_t head = (p.item * a.groups + p.group) * a.repeat + row % a.repeat;

    if (a.log_sum)
        ((T *)a.log_sum)[head * a.queries + row / a.repeat] =
            total == 0 ? minus_infinity<T>() : most + log(total);
}

/* Scores of the block's rows with its keys; those that a row does not see are -inf. */
template <class K, class E, bool WIDE>
__device__ inline void cached_scores(const cached_part_args &a, const cached_place &p,
                                     const int64_t (&seen)[K::ROWS], const E *k,
                                     typename number<E>::sum (*score)[CACHED_KEYS])
{
    typedef cached_shape<K, E> S;
    typedef typename number<E>::sum T;
    int lane = threadIdx.x % S::LANES, own = threadIdx.x / S::LANES;
    T q[K::ROWS][S::MINE], x[S::AHEAD][S::MINE];
    int64_t rows = a.queries * a.repeat;

    UNROLL
    for (int r = 0; r < K::ROWS; r++) {
        int64_t i = p.row + r < rows ? p.row + r : rows - 1;
        load_row<K, E, WIDE>(q[r], (const E *)a.q + row_at(a, p, i), a.width);
    }
    for (int64_t base = 0; base < p.most; base += S::STEP * S::AHEAD) {
        UNROLL
        for (int u = 0; u < S::AHEAD; u++) {
            int64_t j = base + u * S::STEP + own;
            load_row<K, E, WIDE>(x[u], k + (j < p.most ? j : p.most - 1) * a.groups * a.width,
                                 a.width);
        }
        UNROLL
        for (int u = 0; u < S::AHEAD; u++) {
            int64_t j = base + u * S::STEP + own;
            UNROLL
            for (int r = 0; r < K::ROWS; r++) {
                T sum = 0;
                UNROLL
                for (int i = 0; i < S::MINE; i++)
                    sum += q[r][i] * x[u][i];
                UNROLL
                for (int step = S::LANES / 2; step > 0; step /= 2)
                    sum += __shfl_xor_sync(0xffffffffu, sum, step);
                if (lane == 0 && j < p.most)
                    score[r][j] = j < seen[r] ? sum * (T)a.scale : minus_infinity<T>();
            }
        }
    }
}

/* Scores become exponentials, of which the sums are kept; a warp has a row. */
template <int ROWS, class T>
__device__ inline void cached_weights(int64_t n, T (*score)[CACHED_KEYS], T *most, T *total)
{
    int lane = threadIdx.x % WARP;

    for (int r = threadIdx.x / WARP; r < ROWS; r += CACHED_WARPS) {
        T top = minus_infinity<T>(), sum = 0;
        for (int64_t j = lane; j < n; j += WARP)
            top = larger(top, score[r][j]);
        top = warp_max(top);
        for (int64_t j = lane; j < n; j += WARP) {
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

/* This lane's sums of weighted values, over the rows that its warp has read. A weight of 0 takes
 * nothing, not even of a value that is no number. */
template <class K, class E, bool WIDE>
__device__ inline void
cached_values(const cached_part_args &a, const cached_place &p, const E *v,
              typename number<E>::sum (*weight)[CACHED_KEYS],
              typename number<E>::sum (&sum)[K::ROWS][cached_shape<K, E>::MINE])
{
    typedef cached_shape<K, E> S;
    typedef typename number<E>::sum T;
    int own = threadIdx.x / S::LANES;
    T x[S::AHEAD][S::MINE];

    for (int64_t base = 0; base < p.most; base += S::STEP * S::AHEAD) {
        UNROLL
        for (int u = 0; u < S::AHEAD; u++) {
            int64_t j = base + u * S::STEP + own;
            load_row<K, E, WIDE>(x[u], v + (j < p.most ? j : p.most - 1) * a.groups * a.width,
                                 a.width);
        }
        UNROLL
        for (int u = 0; u < S::AHEAD; u++) {
            int64_t j = base + u * S::STEP + own;
            UNROLL
            for (int r = 0; r < K::ROWS; r++) {
                T w = j < p.most ? weight[r][j] : 0;
                if (w != 0)
                    UNROLL
                for (int i = 0; i < S::MINE; i++)
                    sum[r][i] += w * x[u][i];
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
__device__ inline void cached_store(const cached_part_args &a, const cached_place &p, int64_t row,
                                    const typename number<E>::sum *mine,
                                    typename number<E>::sum (*room)[K::WIDTH],
                                    typename number<E>::sum most, typename number<E>::sum total)
{
    typedef cached_shape<K, E> S;
    typedef typename number<E>::sum T;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t rows = a.queries * a.repeat;
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
    int64_t seen[K::ROWS];
    T sum[K::ROWS][S::MINE];
    cached_place p = find_place(a, seen);

    if (p.most == 0 && a.parts > 1)
        return; /* nobody asks for it */
    int64_t from = ((p.item * a.room + p.lo) * a.groups + p.group) * a.width;
    if (a.wide)
        cached_scores<K, E, true>(a, p, seen, (const E *)a.k + from, score);
    else
        cached_scores<K, E, false>(a, p, seen, (const E *)a.k + from, score);
    __syncthreads();
    cached_weights<K::ROWS>(p.most, score, most, total);
    __syncthreads();
    UNROLL
    for (int r = 0; r < K::ROWS; r++)
        UNROLL
    for (int i = 0; i < S::MINE; i++)
        sum[r][i] = 0;
    if (a.wide)
        cached_values<K, E, true>(a, p, (const E *)a.v + from, score, sum);
    else
        cached_values<K, E, false>(a, p, (const E *)a.v + from, score, sum);
    UNROLL
    for (int r = 0; r < K::ROWS; r++)
        cached_store<K, E>(a, p, p.row + r, sum[r], room, most[r], total[r]);
}

/* A block has a row, and goes through its parts, as many at once as it has threads. */
template <class E> __device__ void cached_join(const cached_join_args &a)
{
    typedef typename number<E>::sum T;
    __shared__ T weight[CACHED_THREADS], room[MOST_WARPS];
    enum { EACH = 256 / CACHED_THREADS };
    int64_t rows = a.queries * a.repeat, row = blockIdx.x % rows, all = CACHED_THREADS;
    cached_place p = {};
    T top = minus_infinity<T>(), total = 0, sum[EACH];

    p.group = blockIdx.x / rows % a.groups;
    p.item = blockIdx.x / rows / a.groups;
    int64_t parts = (keys_seen(a, p.item, row) + a.keys - 1) / a.keys;
    int64_t at = blockIdx.x * a.parts;
    for (int64_t i = threadIdx.x; i < parts; i += CACHED_THREADS)
        top = larger(top, ((const T *)a.most)[at + i]);
    top = block_max(top, room);
    for (int e = 0; e < EACH; e++)
        sum[e] = 0;
    for (int64_t base = 0; base < parts; base += CACHED_THREADS) {
        int64_t n = parts - base < all ? parts - base : all;
        T w = 0;
        if (threadIdx.x < n && top != minus_infinity<T>())
            w = exp(((const T *)a.most)[at + base + threadIdx.x] - top);
        if (w != 0)
            total += w * ((const T *)a.total)[at + base + threadIdx.x];
        __syncthreads();
        weight[threadIdx.x] = w;
        __syncthreads();
        for (int e = 0; e < EACH; e++) {
            int64_t c = threadIdx.x + e * CACHED_THREADS;
            const T *from = (const T *)a.sums + (at + base) * a.width + c;
            if (c < a.width)
                for (int64_t i = 0; i < n; i++)
                    sum[e] += weight[i] == 0 ? 0 : weight[i] * from[i * a.width];
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

/* Whether a later row of the item has the same index: that one stays. By a warp. */
__device__ inline bool comes_again(const int32_t *index, int64_t i, int64_t n)
{
    for (int64_t base = i + 1; base < n; base += WARP) {
        int64_t j = base + threadIdx.x % WARP;
        if (__any_sync(0xffffffffu, j < n && index[j] == index[i]))
            return true;
    }
    return false;
}

/* A warp has a row. */
template <class UNIT> __device__ void write_rows(const write_rows_args &a)
{
    int lane = threadIdx.x % WARP;

    for (int64_t w = global_thread() / WARP; w < a.batch * a.n; w += all_threads() / WARP) {
        int64_t item = w / a.n, i = w - item * a.n, id = a.index[w], at = id - a.first;
        if (id < 0 || at < 0 || at >= a.entries || comes_again(a.index + item * a.n, i, a.n))
            continue;
        UNIT *dst = (UNIT *)a.dst + item * a.dst_batch + at * a.dst_row;
        const UNIT *src = (const UNIT *)a.src + item * a.src_batch + i * a.src_row;
        for (int64_t c = lane; c < a.units; c += WARP)
            dst[c] = src[c];
    }
}
