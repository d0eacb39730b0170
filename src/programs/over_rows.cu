/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows as parts of something larger: tables of which rows are taken, and sums over rows, which are
 * the gradients of such tables and of a norm's weights, and a loss. Floats are added in a fixed
 * order, never by an atomic.
 */

/* Whether rows are read and written by pieces of 16 bytes. */
struct wide {
    static constexpr bool WIDE = true;
};
struct each {
    static constexpr bool WIDE = false;
};

/* ---- weights of norms ------------------------------------------------------------------------ */

/* The sums of a block's warps for column i of a tile, in the order of warps. */
template <class T, int MANY>
__device__ inline T sum_of_warps(const T (&room)[TABLE_WARPS][MANY], int i)
{
    T x = 0;

    for (int w = 0; w < TABLE_WARPS; w++)
        x += room[w][i];
    return x;
}

/*
 * Gradients of weight and bias, first stage: a block has a tile of columns, 32 pieces wide, and the
 * rows of a part, its warps take turns. Reads dy and x once more: 2 of 5 passes over rows, but all
 * of the GPU takes part, however few columns there are.
 */
template <class K, class E> __device__ void norm_columns(const norm_columns_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    __shared__ T weight_room[TABLE_WARPS][WARP * N], bias_room[TABLE_WARPS][WARP * N];
    int64_t part = blockIdx.x / a.tiles, tile = (blockIdx.x % a.tiles) * WARP * N;
    int64_t lo = a.rows * part / a.parts, hi = a.rows * (part + 1) / a.parts;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t c = tile + lane * N;
    T dw[N], db[N], g[N], v[N], *sums = (T *)a.sums + 2 * part * a.cols;

    for (int i = 0; i < N; i++)
        dw[i] = db[i] = 0;
    for (int64_t r = lo + warp; r < hi && c < a.cols; r += TABLE_WARPS) {
        T mean = a.mean ? ((const T *)a.mean)[r] : 0, rstd = ((const T *)a.rstd)[r];
        load<E, N>(g, (const E *)a.dy + r * a.cols + c);
        load<E, N>(v, (const E *)a.x + r * a.cols + c);
        for (int i = 0; i < N; i++) {
            dw[i] += g[i] * ((v[i] - mean) * rstd);
            db[i] += g[i];
        }
    }
    for (int i = 0; i < N; i++) {
        weight_room[warp][lane * N + i] = dw[i];
        bias_room[warp][lane * N + i] = db[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < WARP * N && tile + i < a.cols; i += TABLE_THREADS) {
        sums[tile + i] = sum_of_warps(weight_room, i);
        sums[a.cols + tile + i] = sum_of_warps(bias_room, i);
    }
}

/* Second stage: a block adds up 32 columns, its warps take turns at parts. */
template <class E> __device__ void norm_columns_end(const norm_columns_end_args &a)
{
    typedef typename number<E>::sum T;
    __shared__ T room[2][TABLE_WARPS][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t c = (int64_t)blockIdx.x * WARP + lane;

    for (int which = 0; which < 2; which++) {
        const T *sums = (const T *)a.sums + which * a.cols;
        T x = 0;
        for (int64_t p = warp; p < a.parts && c < a.cols; p += TABLE_WARPS)
            x += sums[2 * p * a.cols + c];
        room[which][warp][lane] = x;
    }
    __syncthreads();
    E *d = (E *)(warp == 0 ? a.dweight : a.dbias);
    if (warp < 2 && d && c < a.cols)
        d[c] = put<E>(sum_of_warps(room[warp], lane));
}

/* ---- loss ------------------------------------------------------------------------------------ */

/* What one row costs; its maximum and sum. Statistics of parts lie 3 rows of them apart. */
template <class T>
__device__ inline double join_row(double *sums, const T *s, int64_t parts, int64_t rows)
{
    double most = -(double)float_of(0x7f800000u), sum = 0, picked = 0;

    for (int64_t p = 0; p < parts; p++) {
        double x = (double)s[3 * p * rows];
        most = x > most ? x : most;
    }
    for (int64_t p = 0; p < parts; p++) {
        double part = (double)s[(3 * p + 1) * rows];
        sum += part == 0 ? 0 : part * exp((double)s[3 * p * rows] - most);
        picked += (double)s[(3 * p + 2) * rows];
    }
    sums[0] = most;
    sums[1] = sum;
    return most - picked + log(sum);
}

template <class E> __device__ void cross_entropy_join(const cross_entropy_join_args &a)
{
    typedef typename number<E>::sum T;
    __shared__ double room[MOST_WARPS];
    double loss = 0;

    for (int64_t r = global_thread(); r < a.rows; r += all_threads())
        loss += join_row(a.row_sums + 2 * r, (const T *)a.stats + r, a.parts, a.rows);
    loss = block_sum(loss, room);
    if (threadIdx.x == 0)
        a.sums[blockIdx.x] = loss;
}

/* By one block. */
template <class E> __device__ void cross_entropy_end(const cross_entropy_end_args &a)
{
    __shared__ double room[MOST_WARPS];
    double loss = 0;

    for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x)
        loss += a.sums[i];
    loss = block_sum(loss, room);
    if (threadIdx.x == 0)
        *(E *)a.loss = put<E>((typename number<E>::sum)(a.factor * loss));
}

#include "entropy.cuh"

/* ---- tables ---------------------------------------------------------------------------------- */

/* A warp has a row. */
template <class K, class E> __device__ void embedding(const embedding_args &a)
{
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    typedef pack<E, N> P;
    int lane = threadIdx.x % WARP;

    for (int64_t i = global_thread() / WARP; i < a.n; i += all_threads() / WARP) {
        int64_t id = a.ids[i] - a.first;
        bool here = id >= 0 && id < a.entries;
        for (int64_t c = lane * N; c < a.width; c += WARP * N) {
            P p = {};
            if (here)
                p = *(const P *)((const E *)a.weight + id * a.width + c);
            *(P *)((E *)a.y + i * a.width + c) = p;
        }
    }
}

/* Places of a block's own ids, in order. */
struct places {
    int64_t n; /* more than MOST: there is no list */
    int64_t at[TABLE_PLACES];
    int32_t id[TABLE_PLACES];
};

/*
 * All ids of the block's own entries, those that are its number modulo the number of blocks. Warps
 * look at ids that follow each other, in turns of 32; what all have found before a place says where
 * it goes, so the list is in order.
 */
__device__ inline void find_places(places *to, const embedding_grad_args &a)
{
    __shared__ int found[TABLE_WARPS];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t n = 0;

    for (int64_t base = 0; base < a.n && n <= TABLE_PLACES; base += TABLE_THREADS * TABLE_TURNS) {
        int64_t i = base + warp * WARP * TABLE_TURNS + lane, id[TABLE_TURNS];
        uint32_t mine[TABLE_TURNS];
        int count = 0;
        UNROLL
        for (int t = 0; t < TABLE_TURNS; t++) {
            id[t] = i + t * WARP < a.n ? a.ids[i + t * WARP] - a.first : -1;
            if (id[t] >= a.entries)
                id[t] = -1;
        }
        UNROLL
        for (int t = 0; t < TABLE_TURNS; t++) {
            bool own = id[t] >= 0 && (uint32_t)id[t] % gridDim.x == blockIdx.x;
            mine[t] = __ballot_sync(0xffffffffu, own);
            count += __popc(mine[t]);
        }
        __syncthreads();
        if (lane == 0)
            found[warp] = count;
        __syncthreads();
        int64_t to_write = n;
        for (int w = 0; w < TABLE_WARPS; w++) {
            to_write += w < warp ? found[w] : 0;
            n += found[w];
        }
        UNROLL
        for (int t = 0; t < TABLE_TURNS; t++) {
            int64_t at = to_write + __popc(mine[t] & ((1u << lane) - 1));
            if (mine[t] >> lane & 1 && at < TABLE_PLACES) {
                to->at[at] = i + t * WARP;
                to->id[at] = (int32_t)id[t];
            }
            to_write += __popc(mine[t]);
        }
    }
    if (threadIdx.x == 0)
        to->n = n;
    __syncthreads();
}

/* sum += rows of dy, of columns c and more, at `n` places; loads of several are on their way. */
template <class E, int N>
__device__ inline void add_places(typename number<E>::sum *sum, const E *dy, int64_t width,
                                  const int64_t *at, int n)
{
    enum { MANY = 8 };
    typename number<E>::sum x[MANY][N];
    int j = 0;

    for (; j + MANY <= n; j += MANY) {
        UNROLL
        for (int m = 0; m < MANY; m++)
            load<E, N>(x[m], dy + at[j + m] * width);
        UNROLL
        for (int m = 0; m < MANY; m++)
            for (int i = 0; i < N; i++)
                sum[i] += x[m][i];
    }
    for (; j < n; j++) {
        load<E, N>(x[0], dy + at[j] * width);
        for (int i = 0; i < N; i++)
            sum[i] += x[0][i];
    }
}

/*
 * Rows of the table's gradient: dweight[id] = sum of dy[i] in order of i. A block has the entries
 * that are its number modulo the number of blocks (neighbours are often alike frequent), finds the
 * places of their ids in one pass over all ids, and its warps then take turns at pieces of entries:
 * each goes through the block's list, and adds up what is there for its entry.
 *
 * Cost: blocks * n reads of ids (of the L2 cache: 32768 ids and 512 blocks are 64 MB, some 15 us),
 * reading dy, writing dweight. A block's list is short unless one id is a large part of all; if it
 * has no room, warps go through all ids for each of the block's entries instead: right, and slow
 * (n / 32 steps for each). One id that is everywhere is added up by one warp for each 32 pieces.
 */
template <class K, class E> __device__ void embedding_grad(const embedding_grad_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    __shared__ places list;
    __shared__ int64_t chosen[TABLE_WARPS][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t tiles = (a.width + WARP * N - 1) / (WARP * N);
    int64_t own = (a.entries - blockIdx.x + gridDim.x - 1) / gridDim.x;
    T sum[N];

    find_places(&list, a);
    bool listed = list.n <= TABLE_PLACES;
    int64_t n = listed ? list.n : a.n;
    for (int64_t task = warp; task < own * tiles; task += TABLE_WARPS) {
        int64_t entry = blockIdx.x + task / tiles * gridDim.x;
        int64_t c = (task % tiles * WARP + lane) * N;
        for (int i = 0; i < N; i++)
            sum[i] = 0;
        for (int64_t base = 0; base < n; base += WARP) {
            int64_t i = base + lane;
            int64_t id = i >= n ? -1 : listed ? list.id[i] : a.ids[i] - a.first;
            uint32_t these = __ballot_sync(0xffffffffu, id == entry);
            if (!these)
                continue;
            if (id == entry)
                chosen[warp][__popc(these & ((1u << lane) - 1))] = listed ? list.at[i] : i;
            __syncwarp();
            if (c < a.width)
                add_places<E, N>(sum, (const E *)a.dy + c, a.width, chosen[warp], __popc(these));
            __syncwarp();
        }
        if (c < a.width)
            store<E, N>((E *)a.dweight + entry * a.width + c, sum);
    }
}
