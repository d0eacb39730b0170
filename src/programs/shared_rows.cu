/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that several ranks have parts of: softmax, norms, and attention over some of the keys. What
 * a rank finds out about its part it tells the others; here are both halves, and joining what all
 * have told, in the order of parts. Sums are f32 (f64 of f64), in a fixed order.
 */

/* Whether rows are read and written by pieces of 16 bytes. */
struct wide {
    static constexpr bool WIDE = true;
};
struct each {
    static constexpr bool WIDE = false;
};

/* ---- softmax --------------------------------------------------------------------------------- */

/*
 * A position, and which of its elements this thread has: a share if all threads of a block have the
 * position, else all.
 */
struct spot {
    int64_t p, step;     /* this position, and to the next one */
    int64_t first, many; /* elements that are this thread's: first, first + many, ... */
};

__device__ inline spot spot_of(const soft_place &at)
{
    spot s = {at.along ? (int64_t)blockIdx.x : global_thread(),
              at.along ? (int64_t)gridDim.x : all_threads(), at.along ? (int64_t)threadIdx.x : 0,
              at.along ? (int64_t)blockDim.x : 1};

    return s;
}

/* Where a position begins; its elements are `inner` apart. */
__device__ inline int64_t start_of(const soft_place &at, int64_t p)
{
    return at.along ? p * at.mid : p / at.inner * at.mid * at.inner + p % at.inner;
}

template <class T> __device__ inline T sum_at(const soft_place &at, T x)
{
    __shared__ T room[MOST_WARPS];

    return at.along ? block_sum(x, room) : x;
}
template <class T> __device__ inline T most_at(const soft_place &at, T x)
{
    __shared__ T room[MOST_WARPS];

    return at.along ? block_max(x, room) : x;
}

/* Whether this thread writes what there is one of at a position. */
__device__ inline bool leads(const soft_place &at)
{
    return !at.along || threadIdx.x == 0;
}

/* What an element adds to the sum if the largest is `most`: 0 for -inf, 1 for the largest. */
template <class T> __device__ inline T share_of(T x, T most)
{
    return x == minus_infinity<T>() ? (T)0 : x == most ? (T)1 : exp(x - most);
}

template <class K, class E> __device__ void soft_stats(const soft_stats_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    spot s = spot_of(a.at);
    T v[N];

    for (; s.p < a.at.n; s.p += s.step) {
        const E *x = (const E *)a.src + start_of(a.at, s.p);
        T most = minus_infinity<T>(), total = 0;
        for (int64_t c = s.first * N; c < a.at.mid; c += s.many * N) {
            load<E, N>(v, x + c * a.at.inner);
            for (int i = 0; i < N; i++)
                most = larger(most, v[i]);
        }
        most = most_at(a.at, most);
        for (int64_t c = s.first * N; c < a.at.mid; c += s.many * N) {
            load<E, N>(v, x + c * a.at.inner);
            for (int i = 0; i < N; i++)
                total += share_of(v[i], most);
        }
        total = sum_at(a.at, total);
        if (leads(a.at)) {
            ((T *)a.most)[s.p] = most;
            ((T *)a.total)[s.p] = total;
        }
    }
}

/* T: f32 or f64. */
template <class T> __device__ void soft_join(const soft_join_args &a)
{
    for (int64_t i = global_thread(); i < a.n; i += all_threads()) {
        const T *s = (const T *)a.stats + i;
        T most = minus_infinity<T>(), total = 0;
        for (int64_t p = 0; p < a.parts; p++)
            most = larger(most, s[2 * p * a.n]);
        for (int64_t p = 0; p < a.parts; p++) {
            T x = s[2 * p * a.n], part = s[(2 * p + 1) * a.n];
            total += x == minus_infinity<T>() ? (T)0 : x == most ? part : part * exp(x - most);
        }
        ((T *)a.most)[i] = most;
        ((T *)a.total)[i] = total;
    }
}

/* most - most is NaN where a position has no finite maximum, and so is all of it. */
template <class K, class E> __device__ void soft(const soft_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    spot s = spot_of(a.at);
    T x[N];

    for (; s.p < a.at.n; s.p += s.step) {
        int64_t start = start_of(a.at, s.p);
        T most = ((const T *)a.most)[s.p], total = ((const T *)a.total)[s.p];
        T by = a.at.of_log ? log(total) : 1 / total, none = most - most;
        for (int64_t c = s.first * N; c < a.at.mid; c += s.many * N) {
            load<E, N>(x, (const E *)a.src + start + c * a.at.inner);
            for (int i = 0; i < N; i++)
                x[i] = (a.at.of_log ? x[i] - most - by : exp(x[i] - most) * by) + none;
            store<E, N>((E *)a.dst + start + c * a.at.inner, x);
        }
    }
}

template <class K, class E> __device__ void soft_grad_sum(const soft_grad_sum_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    spot s = spot_of(a.at);
    T g[N], y[N];

    for (; s.p < a.at.n; s.p += s.step) {
        int64_t start = start_of(a.at, s.p);
        T total = 0;
        for (int64_t c = s.first * N; c < a.at.mid; c += s.many * N) {
            load<E, N>(g, (const E *)a.dy + start + c * a.at.inner);
            if (!a.at.of_log)
                load<E, N>(y, (const E *)a.y + start + c * a.at.inner);
            for (int i = 0; i < N; i++)
                total += g[i] * (a.at.of_log ? (T)1 : y[i]);
        }
        total = sum_at(a.at, total);
        if (leads(a.at))
            ((T *)a.total)[s.p] = total;
    }
}

template <class K, class E> __device__ void soft_grad_with(const soft_grad_with_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    spot s = spot_of(a.at);
    T g[N], y[N];

    for (; s.p < a.at.n; s.p += s.step) {
        int64_t start = start_of(a.at, s.p);
        T total = ((const T *)a.total)[s.p];
        for (int64_t c = s.first * N; c < a.at.mid; c += s.many * N) {
            load<E, N>(g, (const E *)a.dy + start + c * a.at.inner);
            load<E, N>(y, (const E *)a.y + start + c * a.at.inner);
            for (int i = 0; i < N; i++)
                g[i] = a.at.of_log ? g[i] - exp(y[i]) * total : y[i] * (g[i] - total);
            store<E, N>((E *)a.dx + start + c * a.at.inner, g);
        }
    }
}

/* dx = dy e^(x - log_sum), where the latter and dy have no middle dim. */
template <class K, class E> __device__ void soft_spread(const soft_spread_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    spot s = spot_of(a.at);
    T x[N];

    for (; s.p < a.at.n; s.p += s.step) {
        int64_t start = start_of(a.at, s.p);
        T sum = ((const T *)a.log_sum)[s.p], g = get(((const E *)a.dy)[s.p]);
        for (int64_t c = s.first * N; c < a.at.mid; c += s.many * N) {
            load<E, N>(x, (const E *)a.src + start + c * a.at.inner);
            for (int i = 0; i < N; i++)
                x[i] = x[i] == minus_infinity<T>() ? (T)0 : g * exp(x[i] - sum);
            store<E, N>((E *)a.dx + start + c * a.at.inner, x);
        }
    }
}

template <class E> __device__ void log_sum(const log_sum_args &a)
{
    typedef typename number<E>::sum T;

    for (int64_t i = global_thread(); i < a.n; i += all_threads()) {
        T sum = ((const T *)a.most)[i] + log(((const T *)a.total)[i]);
        ((T *)a.log_sum)[i] = sum;
        ((E *)a.y)[i] = put<E>(sum);
    }
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* Elements, their mean, and the sum of squared differences to it; not centred, the sum of
 * squares. */
template <class K, class E> __device__ void row_moments(const row_moments_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    __shared__ T room[MOST_WARPS];
    T v[N];

    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const E *x = (const E *)a.x + r * a.cols;
        T mean = 0, squares = 0, *to = (T *)a.moments + r;
        for (int64_t c = threadIdx.x * N; a.centred && c < a.cols; c += blockDim.x * N) {
            load<E, N>(v, x + c);
            for (int i = 0; i < N; i++)
                mean += v[i];
        }
        if (a.centred)
            mean = block_sum(mean, room) / (T)(a.cols > 1 ? a.cols : 1);
        for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
            load<E, N>(v, x + c);
            for (int i = 0; i < N; i++)
                squares += (v[i] - mean) * (v[i] - mean);
        }
        squares = block_sum(squares, room);
        if (threadIdx.x)
            continue;
        to[0] = a.centred ? (T)a.cols : squares;
        if (a.centred) {
            to[a.rows] = mean;
            to[2 * a.rows] = squares;
        }
    }
}

/* By Chan's formula, in f64, in the order of parts. T: f32 or f64. */
template <class T> __device__ void row_moments_join(const row_moments_join_args &a)
{
    for (int64_t r = global_thread(); r < a.rows; r += all_threads()) {
        const T *part = (const T *)a.moments + r;
        double count = 0, mean = 0, squares = 0;
        for (int64_t p = 0; p < a.parts; p++, part += (a.mean ? 3 : 1) * a.rows) {
            double n = part[0];
            if (!a.mean)
                squares += n;
            if (!a.mean || n == 0)
                continue;
            double all = count + n, own = part[a.rows], apart = own - mean;
            mean = count == 0 ? own : mean + apart * (n / all);
            squares += part[2 * a.rows] + (count == 0 ? 0 : apart * apart * (count * (n / all)));
            count = all;
        }
        if (a.mean)
            ((T *)a.mean)[r] = (T)mean;
        ((T *)a.rstd)[r] = (T)(1 / sqrt(squares / (a.length > 1 ? a.length : 1) + a.eps));
    }
}

template <class T> __device__ inline T or_else(const void *from, int64_t i, T otherwise)
{
    return from ? ((const T *)from)[i] : otherwise;
}
template <class K, class E> __device__ void row_norm(const row_norm_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    T v[N], weight[N], bias[N];

    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const E *x = (const E *)a.x + r * a.cols;
        T mean = or_else(a.mean, r, (T)0), rstd = ((const T *)a.rstd)[r];
        for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
            load<E, N>(v, x + c);
            load_or<E, N>(weight, a.weight, c, 1);
            load_or<E, N>(bias, a.bias, c, 0);
            for (int i = 0; i < N; i++)
                v[i] = (v[i] - mean) * rstd * weight[i] + bias[i];
            store<E, N>((E *)a.y + r * a.cols + c, v);
        }
    }
}

template <class K, class E> __device__ void row_sums(const row_sums_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    __shared__ T room[MOST_WARPS];
    T v[N], g[N], weight[N];

    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const E *x = (const E *)a.x + r * a.cols, *dy = (const E *)a.dy + r * a.cols;
        T mean = or_else(a.mean, r, (T)0), one = 0, by_x = 0, *to = (T *)a.sums + r;
        for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
            load<E, N>(v, x + c);
            load<E, N>(g, dy + c);
            load_or<E, N>(weight, a.weight, c, 1);
            for (int i = 0; i < N; i++) {
                one += g[i] * weight[i];
                by_x += g[i] * weight[i] * (v[i] - mean);
            }
        }
        one = block_sum(one, room);
        by_x = block_sum(by_x, room);
        if (threadIdx.x)
            continue;
        if (a.mean)
            to[0] = one;
        to[a.mean ? a.rows : 0] = by_x;
    }
}

/* dx = r w dy - r (sum of w dy) / n - (x - mean) r^3 (sum of w dy (x - mean)) / n */
template <class K, class E> __device__ void row_norm_grad(const row_norm_grad_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    T v[N], g[N], weight[N];

    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const E *x = (const E *)a.x + r * a.cols, *dy = (const E *)a.dy + r * a.cols;
        const T *sums = (const T *)a.sums + r;
        T mean = or_else(a.mean, r, (T)0), rstd = ((const T *)a.rstd)[r], n = (T)a.length;
        T shift = a.mean ? sums[0] * rstd / n : (T)0;
        T slope = sums[a.mean ? a.rows : 0] * rstd * rstd * rstd / n;
        for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
            load<E, N>(v, x + c);
            load<E, N>(g, dy + c);
            load_or<E, N>(weight, a.weight, c, 1);
            for (int i = 0; i < N; i++)
                g[i] = g[i] * weight[i] * rstd - shift - (v[i] - mean) * slope;
            store<E, N>((E *)a.dx + r * a.cols + c, g);
        }
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Results over two sets of keys become that over both, in the place of the first. A warp has a
 * query. */
template <class E> __device__ void attention_add(const attention_add_args &a)
{
    typedef typename number<E>::sum T;
    int64_t all = a.batch * a.queries * a.heads;
    int lane = threadIdx.x % WARP;

    for (int64_t i = global_thread() / WARP; i < all; i += all_threads() / WARP) {
        int64_t head = i % a.heads, query = i / a.heads % a.queries, b = i / a.heads / a.queries;
        int64_t at = (b * a.heads + head) * a.queries + query;
        T x = ((T *)a.log_sum)[at], y = ((const T *)a.more_log_sum)[at], most = x >= y ? x : y;
        __syncwarp();
        if (y == minus_infinity<T>())
            continue;
        T total = exp(x - most) + exp(y - most);
        x = exp(x - most) / total;
        y = exp(y - most) / total;
        if (lane == 0)
            ((T *)a.log_sum)[at] = most + log(total);
        for (int64_t c = lane; c < a.width; c += WARP) {
            T *to = (T *)a.out + i * a.width + c;
            *to = x * *to + y * get(((const E *)a.more)[i * a.width + c]);
        }
    }
}

template <class E> __device__ void add_up(const add_up_args &a)
{
    typedef typename number<E>::sum T;

    for (int64_t i = global_thread(); i < a.n; i += all_threads())
        ((T *)a.sum)[i] += get(((const E *)a.x)[i]);
}
