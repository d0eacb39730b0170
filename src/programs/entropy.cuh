/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy with options (kernels/layers.h): class c of a row has the share weight[c] (keep t +
 * spread), where t is [c == target] or a probability. A row belongs to a warp, or to a block.
 */

__device__ inline int entropy_first(const entropy_args &a)
{
    return threadIdx.x % a.threads;
}
__device__ inline int64_t entropy_row(const entropy_args &a)
{
    return (int64_t)blockIdx.x * (TABLE_THREADS / a.threads) + threadIdx.x / a.threads;
}
__device__ inline int64_t entropy_rows(const entropy_args &a)
{
    return (int64_t)gridDim.x * (TABLE_THREADS / a.threads);
}

/* To all threads of the row. */
template <class T> __device__ inline T sum_of_threads(T x, T *room, const entropy_args &a)
{
    return a.threads == WARP ? warp_sum(x) : block_sum(x, room);
}

template <class E>
__device__ inline typename number<E>::sum weight_of(const entropy_args &a, int64_t c)
{
    return a.weight ? get(((const E *)a.weight)[c]) : 1;
}

/* What a row is about: the place of its target among the columns that are here, else -1. */
struct entropy_target {
    int64_t at;
    bool ignored;
};
__device__ inline entropy_target target_of(const entropy_args &a, int64_t r)
{
    entropy_target t = {-1, false};

    if (a.target) {
        int64_t at = a.target[r] - a.first;
        t.ignored = a.target[r] == a.ignored;
        t.at = !t.ignored && at >= 0 && at < a.cols ? at : -1;
    }
    return t;
}

/* Shares of N classes from column c on. */
template <class E, int N>
__device__ inline void load_shares(typename number<E>::sum *share, const entropy_args &a,
                                   const entropy_target &t, int64_t r, int64_t c)
{
    typedef typename number<E>::sum T;
    T w[N];

    if (!a.target)
        load<E, N>(share, (const E *)a.probability + r * a.cols + c);
    if (a.weight)
        load<E, N>(w, (const E *)a.weight + c);
    UNROLL
    for (int i = 0; i < N; i++) {
        T part = a.target ? (T)(c + i == t.at) : share[i];
        share[i] = (a.weight ? w[i] : 1) * ((T)a.keep * part + (T)a.spread);
    }
}

template <class T> __device__ inline bool is_finite(T x)
{
    return x - x == 0;
}

/* The last three of stats[5,rows], of which the first are there. A class without a share adds
 * nothing, also where its logit is infinite. */
template <class K, class E> __device__ void entropy(const entropy_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    __shared__ T room[MOST_WARPS];
    T *stats = (T *)a.stats, share[N], v[N];

    for (int64_t r = entropy_row(a); r < a.rows; r += entropy_rows(a)) {
        const E *l = (const E *)a.logits + r * a.cols;
        entropy_target t = target_of(a, r);
        T base = is_finite(stats[r]) ? stats[r] : 0, amount = 0, sum = 0;
        bool one = a.target && a.spread == 0;
        if (one && t.at >= 0 && entropy_first(a) == 0) {
            amount = weight_of<E>(a, t.at) * (T)a.keep;
            sum = amount == 0 ? 0 : amount * (get(l[t.at]) - base);
        }
        for (int64_t c = entropy_first(a) * N; c < a.cols && !one && !t.ignored;
             c += a.threads * N) {
            load_shares<E, N>(share, a, t, r, c);
            load<E, N>(v, l + c);
            UNROLL
            for (int i = 0; i < N; i++) {
                amount += share[i];
                sum += share[i] == 0 ? 0 : share[i] * (v[i] - base);
            }
        }
        amount = sum_of_threads(amount, room, a);
        sum = sum_of_threads(sum, room, a);
        if (entropy_first(a) == 0) {
            stats[2 * a.rows + r] = amount;
            stats[3 * a.rows + r] = sum;
            stats[4 * a.rows + r] = t.at >= 0 ? weight_of<E>(a, t.at) : 0;
        }
    }
}

/* One row, whose parts lie 5 rows apart: its loss, maximum and sum, sum of shares, weight of the
 * target. */
struct joined_row {
    double loss, most, powers, amount, counted;
};
template <class T>
__device__ inline joined_row join_entropy_row(const T *stats, int64_t parts, int64_t rows)
{
    double sum = 0;
    joined_row row = {0, -(double)float_of(0x7f800000u), 0, 0, 0};

    for (int64_t p = 0; p < parts; p++) {
        double x = (double)stats[5 * p * rows];
        row.most = x > row.most ? x : row.most;
    }
    double base = is_finite(row.most) ? row.most : 0;
    for (int64_t p = 0; p < parts; p++) {
        const T *s = stats + 5 * p * rows;
        double here = (double)s[0], share = (double)s[2 * rows];
        row.powers += s[rows] == 0 ? 0 : (double)s[rows] * exp(here - row.most);
        row.amount += share;
        sum += (double)s[3 * rows];
        sum += share == 0 ? 0 : share * ((is_finite(here) ? here : 0) - base);
        row.counted += (double)s[4 * rows];
    }
    row.loss = row.amount * (row.most - base + log(row.powers)) - sum;
    return row;
}

/* Joins stats[parts,5,rows]; sums[2,blocks]: of losses, and of the targets' weights. */
template <class E> __device__ void entropy_join(const entropy_args &a)
{
    typedef typename number<E>::sum T;
    __shared__ double room[MOST_WARPS];
    double loss = 0, counted = 0;

    for (int64_t r = global_thread(); r < a.rows; r += all_threads()) {
        joined_row row = join_entropy_row((const T *)a.stats + r, a.parts, a.rows);
        row.loss = target_of(a, r).ignored ? 0 : row.loss;
        a.row_sums[2 * r] = row.most;
        a.row_sums[2 * r + 1] = row.powers;
        ((T *)a.amount)[r] = (T)row.amount;
        if (a.loss)
            ((E *)a.loss)[r] = put<E>((T)row.loss);
        loss += row.loss;
        counted += row.counted;
    }
    loss = block_sum(loss, room);
    counted = block_sum(counted, room);
    if (threadIdx.x == 0) {
        a.sums[blockIdx.x] = loss;
        a.sums[gridDim.x + blockIdx.x] = counted;
    }
}

/* pair[2], f64, by one block: the sums of sums[2,n]. */
template <class E> __device__ void entropy_pair(const entropy_pair_args &a)
{
    __shared__ E room[MOST_WARPS];

    for (int k = 0; k < 2; k++) {
        E x = 0;
        for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x)
            x += a.sums[k * a.n + i];
        x = block_sum(x, room);
        if (threadIdx.x == 0)
            a.pair[k] = x;
    }
}

/* The loss: a sum, or if `counted` is wanted, a mean over what counts. */
template <class E> __device__ void entropy_end(const entropy_end_args &a)
{
    typedef typename number<E>::sum T;

    if (global_thread() > 0)
        return;
    *(E *)a.loss = put<E>((T)(a.counted ? a.pair[0] / a.pair[1] : a.pair[0]));
    if (a.counted)
        *(T *)a.counted = (T)a.pair[1];
}

/* What a row's loss is multiplied by in the end. */
template <class E>
__device__ inline typename number<E>::sum entropy_scale(const entropy_grad_args &a, int64_t r)
{
    typedef typename number<E>::sum T;

    return get(((const E *)a.dy)[a.each ? r : 0]) / (a.counted ? *(const T *)a.counted : 1);
}

/* dlogits = (amount exp(l - most) / sum - share) scale; of probabilities, if they are asked for,
 * keep weight (most - l + log(sum)) scale. */
template <class K, class E> __device__ void entropy_grad(const entropy_grad_args &a)
{
    typedef typename number<E>::sum T;
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
    const entropy_args &e = a.of;
    T share[N], v[N];

    for (int64_t r = entropy_row(e); r < e.rows; r += entropy_rows(e)) {
        entropy_target t = target_of(e, r);
        double sum = e.row_sums[2 * r + 1];
        T most = (T)e.row_sums[2 * r], scale = entropy_scale<E>(a, r);
        T log_sum = a.targets ? (T)log(sum) : 0;
        T amount = a.targets ? 0 : (T)((double)((const T *)e.amount)[r] / sum);
        for (int64_t c = entropy_first(e) * N; c < e.cols; c += e.threads * N) {
            load<E, N>(v, (const E *)e.logits + r * e.cols + c);
            if (!a.targets)
                load_shares<E, N>(share, e, t, r, c);
            UNROLL
            for (int i = 0; i < N; i++) {
                T slope = a.targets ? (T)e.keep * weight_of<E>(e, c + i) * (most - v[i] + log_sum)
                                    : amount * exp(v[i] - most) - share[i];
                v[i] = t.ignored ? 0 : slope * scale;
            }
            store<E, N>((E *)a.dst + r * e.cols + c, v);
        }
    }
}
