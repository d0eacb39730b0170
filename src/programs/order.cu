/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order along a dim: as numbers compare, equal ones in order of index, NaN the largest. Numbers
 * become unsigned keys that compare alike. A short row, or the first few of any row, is sorted by a
 * block in its memory; of a long row, it first finds the key behind which nothing is wanted, digit
 * by digit. Otherwise rows are sorted by passes over digits of keys, least digit first, each of
 * which keeps the order of equal ones: count digits of tiles, add counts up, move.
 */

typedef uint32_t key_4;
typedef uint64_t key_8;

/* ---- keys ------------------------------------------------------------------------------------ */

__device__ inline key_4 key_of_float(float x)
{
    uint32_t bits = bits_of(x == 0 ? 0.0f : x);

    return x != x ? ~0u : bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ inline key_4 key_of(f32 x)
{
    return key_of_float(x);
}
__device__ inline key_4 key_of(bf16 x)
{
    return key_of_float(get(x));
}
__device__ inline key_4 key_of(f16 x)
{
    return key_of_float(get(x));
}
__device__ inline key_8 key_of(f64 x)
{
    union {
        double x;
        uint64_t bits;
    } both;
    both.x = x == 0 ? 0.0 : x;
    return x != x ? ~(uint64_t)0 : both.bits >> 63 ? ~both.bits : both.bits | (uint64_t)1 << 63;
}
__device__ inline key_4 key_of(i32 x)
{
    return (uint32_t)x ^ 0x80000000u;
}
__device__ inline key_8 key_of(i64 x)
{
    return (uint64_t)x ^ (uint64_t)1 << 63;
}
__device__ inline key_4 key_of(i8 x)
{
    return (uint8_t)x ^ 0x80u;
}
__device__ inline key_4 key_of(u8 x)
{
    return x;
}
__device__ inline key_4 key_of(b8 x)
{
    return x.bits != 0;
}

template <class E> struct key_type {
    typedef key_4 type;
};
template <> struct key_type<f64> {
    typedef key_8 type;
};
template <> struct key_type<i64> {
    typedef key_8 type;
};

/* Where element j of a row lies. */
__device__ inline int64_t place_of(int64_t row, int64_t j, int64_t n, int64_t inner)
{
    return (row / inner * n + j) * inner + row % inner;
}

template <class E>
__device__ inline typename key_type<E>::type key_at(const void *src, int64_t at, bool descending)
{
    typename key_type<E>::type key = key_of(((const E *)src)[at]);

    return descending ? ~key : key;
}

template <class E> __device__ void order_keys(const order_keys_args &a)
{
    typedef typename key_type<E>::type T;

    for (int64_t i = global_thread(); i < a.rows * a.n; i += all_threads()) {
        int64_t row = i / a.n;
        ((T *)a.key)[i] =
            key_at<E>(a.src, place_of(row, i - row * a.n, a.n, a.inner), a.descending);
    }
}

/* ---- in the memory of a block ---------------------------------------------------------------- */

/* What a block sorts, and what it has found. */
template <class T> struct chosen {
    T key[SELECT_MOST];
    int32_t index[SELECT_MOST];
    unsigned count; /* of them */
    unsigned digit[RADIX];
    unsigned found[MOST_WARPS];
    T prefix;               /* of the last key that is wanted */
    unsigned wanted, equal; /* keys that are equal to it: of so many there are so many wanted */
};

template <class T> __device__ inline void put_chosen(chosen<T> *c, T key, int64_t j)
{
    unsigned at = atomicAdd(&c->count, 1u);

    c->key[at] = key;
    c->index[at] = (int32_t)j;
}

/* Find the k-th key of the row, digit by digit, the highest first. */
template <class E, class T>
__device__ inline void find_last(chosen<T> *c, const order_select_args &a, int64_t row)
{
    T mask = 0;

    if (threadIdx.x == 0) {
        c->prefix = 0;
        c->wanted = (unsigned)a.k;
    }
    for (int shift = 8 * (int)sizeof(T) - RADIX_BITS; shift >= 0; shift -= RADIX_BITS) {
        for (int i = threadIdx.x; i < RADIX; i += blockDim.x)
            c->digit[i] = 0;
        __syncthreads();
        T prefix = c->prefix;
        for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x) {
            T key = key_at<E>(a.src, place_of(row, j, a.n, a.inner), a.descending);
            if ((key & mask) == prefix)
                atomicAdd(&c->digit[key >> shift & (RADIX - 1)], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned d = 0, left = c->wanted;
            for (; c->digit[d] < left; d++)
                left -= c->digit[d];
            c->wanted = left;
            c->equal = c->digit[d];
            c->prefix = prefix | (T)d << shift;
        }
        mask |= (T)(RADIX - 1) << shift;
        __syncthreads();
    }
}

/* The keys before the last one, and the first ones that are equal to it. */
template <class E, class T>
__device__ inline void collect(chosen<T> *c, const order_select_args &a, int64_t row)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    bool all = c->equal == c->wanted;
    unsigned had = 0;

    for (int64_t base = 0; base < a.n; base += blockDim.x) {
        int64_t j = base + threadIdx.x;
        T key = j < a.n ? key_at<E>(a.src, place_of(row, j, a.n, a.inner), a.descending) : (T)0;
        bool equal = j < a.n && key == c->prefix;
        if (j < a.n && (key < c->prefix || (all && equal)))
            put_chosen(c, key, j);
        if (all || had >= c->wanted)
            continue;
        unsigned these = __ballot_sync(0xffffffffu, equal), before = had;
        if (lane == 0)
            c->found[warp] = __popc(these);
        __syncthreads();
        for (int w = 0; w < (int)blockDim.x / WARP; w++) {
            before += w < warp ? c->found[w] : 0;
            had += c->found[w];
        }
        if (equal && before + __popc(these & ((1u << lane) - 1)) < c->wanted)
            put_chosen(c, key, j);
        __syncthreads();
    }
}

/* By keys, equal ones by index. `room`: a power of two. */
template <class T> __device__ inline void sort_chosen(chosen<T> *c, int room)
{
    for (int run = 2; run <= room; run *= 2)
        for (int apart = run / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < room / 2; i += blockDim.x) {
                int x = i / apart * 2 * apart + i % apart, y = x + apart;
                T first = c->key[x], second = c->key[y];
                int32_t at = c->index[x], other = c->index[y];
                bool after = first > second || (first == second && at > other);
                if (after != ((x & run) != 0)) {
                    c->key[x] = second;
                    c->key[y] = first;
                    c->index[x] = other;
                    c->index[y] = at;
                }
            }
        }
    __syncthreads();
}

/* A block has a row. */
template <class E> __device__ void order_select(const order_select_args &a)
{
    typedef typename key_type<E>::type T;
    __shared__ chosen<T> c;
    int64_t row = blockIdx.x;
    int room = 1;

    if (threadIdx.x == 0)
        c.count = 0;
    __syncthreads();
    if (a.n <= SELECT_MOST) {
        for (int64_t j = threadIdx.x; j < a.n; j += blockDim.x) {
            c.key[j] = key_at<E>(a.src, place_of(row, j, a.n, a.inner), a.descending);
            c.index[j] = (int32_t)j;
        }
        if (threadIdx.x == 0)
            c.count = (unsigned)a.n;
    } else {
        find_last<E>(&c, a, row);
        collect<E>(&c, a, row);
    }
    __syncthreads();
    while (room < (int)c.count)
        room *= 2;
    for (int i = (int)c.count + threadIdx.x; i < room; i += blockDim.x) {
        c.key[i] = ~(T)0;
        c.index[i] = 0x7fffffff;
    }
    sort_chosen(&c, room);
    for (int64_t j = threadIdx.x; j < a.k; j += blockDim.x) {
        int64_t to = place_of(row, j, a.k, a.inner);
        a.index[to] = c.index[j];
        if (a.values)
            ((E *)a.values)[to] = ((const E *)a.src)[place_of(row, c.index[j], a.n, a.inner)];
    }
}

/* ---- by digits ------------------------------------------------------------------------------- */

template <class T> __device__ void radix_count(const radix_count_args &a)
{
    __shared__ unsigned digit[RADIX];
    int64_t row = blockIdx.x / a.tiles, tile = blockIdx.x % a.tiles;
    int64_t end = (tile + 1) * RADIX_TILE < a.n ? (tile + 1) * RADIX_TILE : a.n;

    digit[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t j = tile * RADIX_TILE + threadIdx.x; j < end; j += RADIX_THREADS)
        atomicAdd(&digit[((const T *)a.key)[row * a.n + j] >> a.shift & (RADIX - 1)], 1u);
    __syncthreads();
    a.count[(row * RADIX + threadIdx.x) * a.tiles + tile] = digit[threadIdx.x];
}

/* The sum of the values of lanes before this one. */
__device__ inline uint32_t lanes_before(uint32_t x)
{
    uint32_t sum = x;

    for (int step = 1; step < WARP; step *= 2) {
        uint32_t other = __shfl_up_sync(0xffffffffu, sum, step);
        sum += (int)(threadIdx.x % WARP) >= step ? other : 0;
    }
    return sum - x;
}

/*
 * Replace the counts of a digit by the sums over the tiles before; a warp has a digit of a row. T:
 * of counts.
 */
template <class T> __device__ void radix_scan(const radix_scan_args &a)
{
    int lane = threadIdx.x % WARP;

    for (int64_t i = global_thread() / WARP; i < a.rows * RADIX; i += all_threads() / WARP) {
        T *count = a.count + i * a.tiles, before = 0;
        for (int64_t base = 0; base < a.tiles; base += WARP) {
            T x = base + lane < a.tiles ? count[base + lane] : 0, at = lanes_before(x);
            if (base + lane < a.tiles)
                count[base + lane] = before + at;
            before += __shfl_sync(0xffffffffu, at + x, WARP - 1);
        }
        if (lane == 0)
            a.total[i] = before;
    }
}

/* Where each digit of the tile begins in the row: behind smaller ones, and those of other tiles. */
__device__ inline uint32_t begin_of_digit(const radix_move_args &a, int64_t row, int64_t tile)
{
    __shared__ uint32_t sum[RADIX_WARPS];
    int d = threadIdx.x;
    uint32_t x = a.total[row * RADIX + d], at = lanes_before(x);

    if (d % WARP == WARP - 1)
        sum[d / WARP] = at + x;
    __syncthreads();
    for (int w = 0; w < d / WARP; w++)
        at += sum[w];
    return at + a.count[(row * RADIX + d) * a.tiles + tile];
}

/* The lanes that have the same digit as this one; lanes without a digit are none of them. */
__device__ inline unsigned lanes_alike(unsigned digit, bool has)
{
    unsigned alike = __ballot_sync(0xffffffffu, has);

    UNROLL
    for (int b = 0; b < RADIX_BITS; b++) {
        unsigned set = __ballot_sync(0xffffffffu, digit >> b & 1);
        alike &= digit >> b & 1 ? set : ~set;
    }
    return alike;
}

/* A warp has keys that follow each other, and counts what it has had of each digit. */
template <class T> __device__ void radix_move(const radix_move_args &a)
{
    __shared__ uint32_t had[RADIX_WARPS][RADIX];
    int64_t row = blockIdx.x / a.tiles, tile = blockIdx.x % a.tiles;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t first = tile * RADIX_TILE + warp * (WARP * RADIX_EACH) + lane;
    T key[RADIX_EACH];
    uint32_t rank[RADIX_EACH];

    for (int w = 0; w < RADIX_WARPS; w++)
        had[w][threadIdx.x] = 0;
    __syncthreads();
    UNROLL
    for (int e = 0; e < RADIX_EACH; e++) {
        int64_t j = first + e * WARP;
        key[e] = j < a.n ? ((const T *)a.key)[row * a.n + j] : (T)0;
    }
    UNROLL
    for (int e = 0; e < RADIX_EACH; e++) {
        bool in = first + e * WARP < a.n;
        rank[e] = 0;
        if (first - lane + e * WARP >= a.n)
            continue; /* as all of the warp */
        unsigned d = (unsigned)(key[e] >> a.shift & (RADIX - 1)), alike = lanes_alike(d, in);
        unsigned before = __popc(alike & ((1u << lane) - 1));
        uint32_t old = had[warp][d];
        rank[e] = old + before;
        __syncwarp();
        if (in && before == 0)
            had[warp][d] = old + __popc(alike);
        __syncwarp();
    }
    uint32_t at = begin_of_digit(a, row, tile); /* waits for all warps */
    for (int w = 0; w < RADIX_WARPS; w++) {
        uint32_t count = had[w][threadIdx.x];
        had[w][threadIdx.x] = at;
        at += count;
    }
    __syncthreads();
    UNROLL
    for (int e = 0; e < RADIX_EACH; e++) {
        int64_t j = first + e * WARP;
        if (j >= a.n)
            continue;
        int64_t to = row * a.n + had[warp][key[e] >> a.shift & (RADIX - 1)] + rank[e];
        ((T *)a.to_key)[to] = key[e];
        a.to_position[to] = a.position ? a.position[row * a.n + j] : (int32_t)j;
    }
}

template <class UNIT> __device__ void order_write(const order_write_args &a)
{
    for (int64_t i = global_thread(); i < a.rows * a.k; i += all_threads()) {
        int64_t row = i / a.k, j = i - row * a.k, to = place_of(row, j, a.k, a.inner);
        int32_t at = a.position[row * a.n + j];
        a.index[to] = at;
        if (a.values)
            ((UNIT *)a.values)[to] = ((const UNIT *)a.src)[place_of(row, at, a.n, a.inner)];
    }
}
