/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms with what stands around them, a block for a row: a residual sum and its norm, and their
 * gradients with those of weight and bias. All is read and written once: 12 bytes an element
 * forward and 16 backward, of f32 rows beside 16-bit ones, where the single kernels take 32 and 44.
 *
 * A thread has the same columns of all rows of its block, so the gradients of weight and bias are
 * sums in its registers; a second kernel adds up the blocks. All in a fixed order.
 */

/* A thread has one piece of a row or several; rows have the type of their statistics, beside
 * gradients or addends of 16 bits, or the type of those. */
struct one_real {
    static constexpr bool MANY = false, SAME = false;
};
struct many_real {
    static constexpr bool MANY = true, SAME = false;
};
struct one_same {
    static constexpr bool MANY = false, SAME = true;
};
struct many_same {
    static constexpr bool MANY = true, SAME = true;
};

template <bool SAME, class H> struct row_type {
    typedef typename number<H>::sum E;
};
template <class H> struct row_type<true, H> {
    typedef H E;
};

/* Rows of E in pieces of N elements, 16 bytes; S of them for a thread. */
template <class K, class H> struct pieces {
    typedef typename row_type<K::SAME, H>::E E;
    typedef typename number<E>::sum T;
    enum {
        N = 16 / (int)sizeof(E),
        S = K::MANY ? (sizeof(E) == 2 ? RESIDUAL_PIECES / 2 : RESIDUAL_PIECES) : 1
    };
};

template <int N> __device__ inline int64_t first_of(int s)
{
    return ((int64_t)s * blockDim.x + threadIdx.x) * N;
}

/* What x is once it has been written as E. */
template <class E> __device__ inline typename number<E>::sum rounded(typename number<E>::sum x)
{
    return get(put<E>(x));
}

/* A product by itself: no sum that follows is joined with it, so dx has the same bits with dsum as
 * by two kernels. */
__device__ inline float product(float a, float b)
{
#ifdef SHERD_EMULATED_CUDA
    return a * b;
#else
    return __fmul_rn(a, b);
#endif
}
__device__ inline double product(double a, double b)
{
#ifdef SHERD_EMULATED_CUDA
    return a * b;
#else
    return __dmul_rn(a, b);
#endif
}

/* Two sums over the block at once. */
template <class T> __device__ inline void block_sums(T (&x)[2], T (&room)[2][MOST_WARPS])
{
    int warps = blockDim.x / WARP;

    for (int k = 0; k < 2; k++)
        x[k] = warp_sum(x[k]);
    __syncthreads();
    for (int k = 0; k < 2; k++)
        if (threadIdx.x % WARP == 0)
            room[k][threadIdx.x / WARP] = x[k];
    __syncthreads();
    for (int k = 0; k < 2; k++) {
        x[k] = 0;
        for (int w = 0; w < warps; w++)
            x[k] += room[k][w];
    }
}

/* D: of delta and of the norm. The sum is rounded before it is normed. Without delta: the norm of
 * x, with the same bits. */
template <class K, class D> __device__ void add_norm(const add_norm_args &a)
{
    typedef typename pieces<K, D>::E E;
    typedef typename pieces<K, D>::T T;
    enum { N = pieces<K, D>::N, S = pieces<K, D>::S };
    __shared__ T room[MOST_WARPS];
    T n = (T)a.cols, v[S][N], w[N], b[N];

    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        T mean = 0, squares = 0;
        UNROLL
        for (int s = 0; s < S; s++) {
            int64_t c = first_of<N>(s), at = r * a.cols + c;
            if (c >= a.cols)
                continue;
            load<E, N>(v[s], (const E *)a.x + at);
            load_or<D, N>(w, a.delta, at, 0);
            for (int i = 0; i < N; i++) {
                v[s][i] = a.delta ? rounded<E>(v[s][i] + w[i]) : v[s][i];
                mean += v[s][i];
            }
            if (a.delta)
                store<E, N>((E *)a.sum + at, v[s]);
        }
        mean = a.mean ? block_sum(mean, room) / n : 0;
        UNROLL
        for (int s = 0; s < S; s++)
            for (int i = 0; i < N && first_of<N>(s) < a.cols; i++)
                squares += (v[s][i] - mean) * (v[s][i] - mean);
        T rstd = 1 / sqrt(block_sum(squares, room) / n + (T)a.eps);
        UNROLL
        for (int s = 0; s < S; s++) {
            int64_t c = first_of<N>(s);
            if (c >= a.cols)
                continue;
            load_or<E, N>(w, a.weight, c, 1);
            load_or<E, N>(b, a.bias, c, 0);
            for (int i = 0; i < N; i++)
                v[s][i] = (v[s][i] - mean) * rstd * w[i] + b[i];
            store<D, N>((D *)a.norm + r * a.cols + c, v[s]);
        }
        if (threadIdx.x == 0) {
            ((T *)a.rstd)[r] = rstd;
            if (a.mean)
                ((T *)a.mean)[r] = mean;
        }
    }
}

/* G: of dy; D: of ddelta, which is dx rounded once more. */
template <class K, class G, class D> __device__ void norm_back(const norm_back_args &a)
{
    typedef typename pieces<K, G>::E E;
    typedef typename pieces<K, G>::T T;
    enum { N = pieces<K, G>::N, S = pieces<K, G>::S };
    __shared__ T room[2][MOST_WARPS];
    T n = (T)a.cols, g[S][N], h[S][N], w[N], dw[S][N], db[S][N];

    UNROLL
    for (int s = 0; s < S; s++)
        for (int i = 0; i < N; i++)
            dw[s][i] = db[s][i] = 0;
    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        T mean = a.mean ? ((const T *)a.mean)[r] : 0, rstd = ((const T *)a.rstd)[r];
        T sums[2] = {0, 0}; /* of dy w, and of that times what was normed, h */
        UNROLL
        for (int s = 0; s < S; s++) {
            int64_t c = first_of<N>(s), at = r * a.cols + c;
            if (c >= a.cols)
                continue;
            load<G, N>(g[s], (const G *)a.dy + at);
            load<E, N>(h[s], (const E *)a.x + at);
            load_or<E, N>(w, a.weight, c, 1);
            for (int i = 0; i < N; i++) {
                h[s][i] = (h[s][i] - mean) * rstd;
                dw[s][i] += g[s][i] * h[s][i];
                db[s][i] += g[s][i];
                g[s][i] *= w[i];
                sums[0] += g[s][i];
                sums[1] += g[s][i] * h[s][i];
            }
        }
        block_sums(sums, room);
        T shift = a.mean ? sums[0] / n : 0, along = sums[1] / n;
        UNROLL
        for (int s = 0; s < S; s++) {
            int64_t c = first_of<N>(s), at = r * a.cols + c;
            if (c >= a.cols)
                continue;
            load_or<E, N>(w, a.dsum, at, 0);
            for (int i = 0; i < N; i++) {
                T dx = product(rstd, g[s][i] - shift - h[s][i] * along);
                g[s][i] = a.dsum ? rounded<E>(rounded<E>(dx) + w[i]) : dx;
            }
            store<E, N>((E *)a.dx + at, g[s]);
            if (a.ddelta)
                store<D, N>((D *)a.ddelta + at, g[s]);
        }
    }
    if (!a.sums)
        return;
    T *at = (T *)a.sums + 2 * (int64_t)blockIdx.x * a.cols;
    UNROLL
    for (int s = 0; s < S; s++)
        for (int64_t i = 0, c = first_of<N>(s); i < N && c < a.cols; i++) {
            at[c + i] = dw[s][i];
            at[a.cols + c + i] = db[s][i];
        }
}

/* A block adds up 32 columns of dweight, or of dbias; its warps take turns at parts. */
template <class E> __device__ void norm_back_end(const norm_back_end_args &a)
{
    typedef typename number<E>::sum T;
    enum { WARPS = RESIDUAL_ADDERS / WARP };
    __shared__ T room[WARPS][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, which = blockIdx.x % 2;
    int64_t c = (int64_t)(blockIdx.x / 2) * WARP + lane;
    E *d = (E *)(which ? a.dbias : a.dweight);
    T x = 0;

    for (int64_t p = warp; p < a.parts && d && c < a.cols; p += WARPS)
        x += ((const T *)a.sums)[(2 * p + which) * a.cols + c];
    room[warp][lane] = x;
    __syncthreads();
    if (warp > 0 || !d || c >= a.cols)
        return;
    x = a.add ? get(d[c]) : 0;
    for (int i = 0; i < WARPS; i++)
        x += room[i][lane];
    d[c] = put<E>(x);
}
