/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows: norms, softmax, cross-entropy. All are bound by memory, so a row is read once where
 * registers can hold it: by a warp (up to 1024 columns), by a block (up to 8192), else by a block
 * that reads it again, mostly from the L2 cache. Loads have 16 bytes where rows allow it.
 *
 * Sums are f32 (f64 of f64), in a fixed order: no float is added by an atomic.
 */

/* ---- a row as its threads see it ------------------------------------------------------------- */

/* Who has a row, in what pieces, and whether it is held. */
struct warp_wide {
    static constexpr bool BLOCK = false, WIDE = true, HELD = true;
};
struct warp_each {
    static constexpr bool BLOCK = false, WIDE = false, HELD = true;
};
struct block_wide {
    static constexpr bool BLOCK = true, WIDE = true, HELD = true;
};
struct block_each {
    static constexpr bool BLOCK = true, WIDE = false, HELD = true;
};
struct long_wide {
    static constexpr bool BLOCK = true, WIDE = true, HELD = false;
};
struct long_each {
    static constexpr bool BLOCK = true, WIDE = false, HELD = false;
};

/* Pieces of N elements; a thread has every 32nd, or as many as a block has threads. */
template <class K, class E> struct row {
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1, SLOTS = K::HELD ? ROWS_KEPT / N : 1 };
    const E *at;
    T kept[SLOTS][N];
};

template <class K> __device__ inline int64_t first_row()
{
    return K::BLOCK ? (int64_t)blockIdx.x : global_thread() / WARP;
}
template <class K> __device__ inline int64_t row_step()
{
    return K::BLOCK ? (int64_t)gridDim.x : all_threads() / WARP;
}

/* The first column of the thread's piece s. */
template <class K, class E> __device__ inline int64_t column(int64_t s)
{
    int64_t step = K::BLOCK ? (int)blockDim.x : (int)WARP;

    return (s * step + (K::BLOCK ? threadIdx.x : threadIdx.x % WARP)) * row<K, E>::N;
}

/* How many pieces a thread has at most: a constant where they are held, which must be registers. */
template <class K, class E> __device__ inline int64_t slots(int64_t cols)
{
    int64_t step = column<K, E>(1) - column<K, E>(0);

    return K::HELD ? (int64_t)row<K, E>::SLOTS : (cols + step - 1) / step;
}

template <class K, class E>
__device__ inline void open_row(row<K, E> &x, const void *base, int64_t r, int64_t cols)
{
    enum { N = row<K, E>::N };

    x.at = (const E *)base + r * cols;
    UNROLL
    for (int64_t s = 0; K::HELD && s < slots<K, E>(cols); s++)
        if (column<K, E>(s) < cols)
            load<E, N>(x.kept[s], x.at + column<K, E>(s));
}

/* Piece s, held or not. */
template <class K, class E>
__device__ inline void read(typename number<E>::sum *to, const row<K, E> &x, int64_t s)
{
    enum { N = row<K, E>::N };

    if (!K::HELD) {
        load<E, N>(to, x.at + column<K, E>(s));
        return;
    }
    UNROLL
    for (int i = 0; i < N; i++)
        to[i] = x.kept[s][i];
}

template <class K, class T> __device__ inline T row_sum(T x)
{
    __shared__ T room[MOST_WARPS];

    return K::BLOCK ? block_sum(x, room) : warp_sum(x);
}
template <class K, class T> __device__ inline T row_max(T x)
{
    __shared__ T room[MOST_WARPS];

    return K::BLOCK ? block_max(x, room) : warp_max(x);
}

/* Whether this thread writes what there is one of in a row. */
template <class K> __device__ inline bool leads()
{
    return (K::BLOCK ? threadIdx.x : threadIdx.x % WARP) == 0;
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* Two passes: the mean first, then the squares of the differences. */
template <class K, class E> __device__ void norm(const norm_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = row<K, E>::N };
    T n = (T)(a.cols ? a.cols : 1), v[N], w[N], b[N];
    row<K, E> x;

    for (int64_t r = first_row<K>(); r < a.rows; r += row_step<K>()) {
        T mean = 0, squares = 0;
        open_row(x, a.x, r, a.cols);
        if (a.mean) {
            UNROLL
            for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
                if (column<K, E>(s) >= a.cols)
                    continue;
                read(v, x, s);
                for (int i = 0; i < N; i++)
                    mean += v[i];
            }
            mean = row_sum<K>(mean) / n;
        }
        UNROLL
        for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
            if (column<K, E>(s) >= a.cols)
                continue;
            read(v, x, s);
            for (int i = 0; i < N; i++)
                squares += (v[i] - mean) * (v[i] - mean);
        }
        T rstd = 1 / sqrt(row_sum<K>(squares) / n + (T)a.eps);
        UNROLL
        for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
            if (column<K, E>(s) >= a.cols)
                continue;
            int64_t c = column<K, E>(s);
            read(v, x, s);
            load_or<E, N>(w, a.weight, c, 1);
            load_or<E, N>(b, a.bias, c, 0);
            for (int i = 0; i < N; i++)
                v[i] = (v[i] - mean) * rstd * w[i] + b[i];
            store<E, N>((E *)a.y + r * a.cols + c, v);
        }
        if (leads<K>()) {
            ((T *)a.rstd)[r] = rstd;
            if (a.mean)
                ((T *)a.mean)[r] = mean;
        }
    }
}

/* With g = dy weight and h = (x - mean) rstd: dx = rstd (g - mean(g) - h mean(g h)); of an RMS norm
 * without mean(g). */
template <class K, class E> __device__ void norm_grad(const norm_grad_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = row<K, E>::N };
    T n = (T)(a.cols ? a.cols : 1), v[N], g[N], w[N];
    row<K, E> x, dy;

    for (int64_t r = first_row<K>(); r < a.rows; r += row_step<K>()) {
        T mean = a.mean ? ((const T *)a.mean)[r] : 0, rstd = ((const T *)a.rstd)[r];
        T sum = 0, product = 0;
        open_row(x, a.x, r, a.cols);
        open_row(dy, a.dy, r, a.cols);
        UNROLL
        for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
            if (column<K, E>(s) >= a.cols)
                continue;
            read(v, x, s);
            read(g, dy, s);
            load_or<E, N>(w, a.weight, column<K, E>(s), 1);
            for (int i = 0; i < N; i++) {
                sum += g[i] * w[i];
                product += g[i] * w[i] * ((v[i] - mean) * rstd);
            }
        }
        sum = a.mean ? row_sum<K>(sum) / n : 0;
        product = row_sum<K>(product) / n;
        UNROLL
        for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
            if (column<K, E>(s) >= a.cols)
                continue;
            int64_t c = column<K, E>(s);
            read(v, x, s);
            read(g, dy, s);
            load_or<E, N>(w, a.weight, c, 1);
            for (int i = 0; i < N; i++)
                v[i] = rstd * (g[i] * w[i] - sum - (v[i] - mean) * rstd * product);
            store<E, N>((E *)a.dx + r * a.cols + c, v);
        }
    }
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* The sum is NaN where a row has no finite maximum, and so is all of it. */
template <class K, class E> __device__ void softmax(const softmax_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = row<K, E>::N };
    T v[N];
    row<K, E> x;

    for (int64_t r = first_row<K>(); r < a.rows; r += row_step<K>()) {
        T most = minus_infinity<T>(), sum = 0;
        open_row(x, a.x, r, a.cols);
        UNROLL
        for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
            if (column<K, E>(s) >= a.cols)
                continue;
            read(v, x, s);
            for (int i = 0; i < N; i++)
                most = larger(most, v[i]);
        }
        most = row_max<K>(most);
        UNROLL
        for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
            if (column<K, E>(s) >= a.cols)
                continue;
            read(v, x, s);
            for (int i = 0; i < N; i++)
                sum += exp(v[i] - most);
        }
        sum = row_sum<K>(sum);
        T by = a.log ? log(sum) : 1 / sum; /* beside a large maximum log(sum) would be rounded */
        UNROLL
        for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
            if (column<K, E>(s) >= a.cols)
                continue;
            read(v, x, s);
            for (int i = 0; i < N; i++)
                v[i] = a.log ? v[i] - most - by : exp(v[i] - most) * by;
            store<E, N>((E *)a.y + r * a.cols + column<K, E>(s), v);
        }
    }
}

template <class K, class E> __device__ void softmax_grad(const softmax_grad_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = row<K, E>::N };
    T v[N], g[N];
    row<K, E> y, dy;

    for (int64_t r = first_row<K>(); r < a.rows; r += row_step<K>()) {
        T sum = 0;
        open_row(y, a.y, r, a.cols);
        open_row(dy, a.dy, r, a.cols);
        UNROLL
        for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
            if (column<K, E>(s) >= a.cols)
                continue;
            read(v, y, s);
            read(g, dy, s);
            for (int i = 0; i < N; i++)
                sum += a.log ? g[i] : g[i] * v[i];
        }
        sum = row_sum<K>(sum);
        UNROLL
        for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
            if (column<K, E>(s) >= a.cols)
                continue;
            read(v, y, s);
            read(g, dy, s);
            for (int i = 0; i < N; i++)
                v[i] = a.log ? g[i] - exp(v[i]) * sum : v[i] * (g[i] - sum);
            store<E, N>((E *)a.dx + r * a.cols + column<K, E>(s), v);
        }
    }
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

template <class K, class E> __device__ void cross_entropy(const cross_entropy_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = row<K, E>::N };
    T v[N], *stats = (T *)a.stats;
    row<K, E> x;

    for (int64_t r = first_row<K>(); r < a.rows; r += row_step<K>()) {
        T most = minus_infinity<T>(), sum = 0;
        open_row(x, a.logits, r, a.cols);
        UNROLL
        for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
            if (column<K, E>(s) >= a.cols)
                continue;
            read(v, x, s);
            for (int i = 0; i < N; i++) /* a NaN makes the sum one */
                most = v[i] > most ? v[i] : most;
        }
        most = row_max<K>(most);
        T less = most == minus_infinity<T>() ? 0 : most;
        UNROLL
        for (int64_t s = 0; s < slots<K, E>(a.cols); s++) {
            if (column<K, E>(s) >= a.cols)
                continue;
            read(v, x, s);
            for (int i = 0; i < N; i++)
                sum += exp(v[i] - less);
        }
        sum = row_sum<K>(sum);
        if (leads<K>()) {
            int64_t target = a.targets[r] - a.first;
            bool here = target >= 0 && target < a.cols;
            stats[r] = most;
            stats[a.rows + r] = sum;
            stats[2 * a.rows + r] = here ? get(x.at[target]) : 0;
        }
    }
}

template <class K, class E> __device__ void cross_entropy_grad(const cross_entropy_grad_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = row<K, E>::N };
    T scale = (T)(a.factor * (double)get(*(const E *)a.dy)), v[N];

    for (int64_t r = first_row<K>(); r < a.rows; r += row_step<K>()) {
        T most = (T)a.sums[2 * r], part = (T)(1 / a.sums[2 * r + 1]);
        int64_t target = a.targets[r] - a.first;
        for (int64_t c = column<K, E>(0); c < a.cols; c += column<K, E>(1) - column<K, E>(0)) {
            load<E, N>(v, (const E *)a.logits + r * a.cols + c);
            for (int i = 0; i < N; i++)
                v[i] = (exp(v[i] - most) * part - (T)(c + i == target)) * scale;
            store<E, N>((E *)a.dlogits + r * a.cols + c, v);
        }
    }
}
