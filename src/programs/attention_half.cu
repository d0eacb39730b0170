/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of 16 bits by tensor cores, in the same way as attention.cu: each of a block's four
 * warps has 16 or 32 rows of its own (queries, or for dk and dv keys), and goes with the others
 * through tiles of 64. Scores never leave its registers: a result of one product is an operand of
 * the next. While a tile is computed with, the next one is copied. Sums are f32; probabilities and
 * gradients of scores are rounded to 16 bits before they are multiplied. GPUs since Ampere.
 */
#include "attention_warps.cuh"

/* ---- rows ------------------------------------------------------------------------------------ */

/* The lane's own row of part m, half h; `by`: its factor. */
template <class K, class E>
__device__ inline void write_row(void *base, int64_t at, int64_t stride, int64_t rows,
                                 const totals<K> &s, int m, int h, float by, const attending &a)
{
    typedef pack<E, 2> P;
    int64_t r = warp_row<K>() + 16 * m + lane_row() + 8 * h;
    E *to = (E *)base + at + r * stride + lane_column();

    UNROLL
    for (int c = 0; c < half_shape<K>::COLUMNS; c++) {
        int left = r < rows ? (int)a.width - lane_column() - 8 * c : 0;
        P p = {{put<E>(s.x[m][c][2 * h] * by), put<E>(s.x[m][c][2 * h + 1] * by)}};
        if (a.wide && left > 0)
            *(P *)(to + 8 * c) = p;
        for (int i = 0; i < 2 && i < left && !a.wide; i++)
            to[8 * c + i] = p.x[i];
    }
}
template <class K, class E>
__device__ inline void write_rows(void *base, int64_t at, int64_t stride, int64_t rows,
                                  const totals<K> &s, float by, const attending &a)
{
    UNROLL
    for (int m = 0; m < half_shape<K>::PARTS; m++)
        for (int h = 0; h < 2; h++)
            write_row<K, E>(base, at, stride, rows, s, m, h, by, a);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* The sum of x over the four lanes that share a row. */
__device__ inline float sum_of_row(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ inline float max_of_row(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/*
 * The state of the lane's queries after the keys so far: `most` is near the largest score, in the
 * units of scores; `sum` is the lane's own part.
 */
template <class K> struct progress {
    float most[half_shape<K>::PARTS][2], sum[half_shape<K>::PARTS][2];
};

/*
 * Turn scores into exponentials of their difference to the row's `most`. That need not be the
 * largest score so far: while no row of the warp has a score far above it, it stays, so that powers
 * are at most 2^FAR, and results so far need no scaling. NaN is never the largest score, but stays
 * NaN as a power, and so in the sum. by > 0: the factor of scores.
 */
template <class K, int N>
__device__ inline void advance(progress<K> &at, totals<K> &out, results<K, N> &s, float by)
{
    enum { PARTS = half_shape<K>::PARTS, FAR = 8 };
    float high[PARTS][2];
    bool far = false;

    UNROLL
    for (int m = 0; m < PARTS; m++)
        UNROLL
    for (int h = 0; h < 2; h++) {
        float x = s.x[m][0][2 * h];
        UNROLL
        for (int n = 0; n < N; n++)
            x = fmaxf(x, fmaxf(s.x[m][n][2 * h], s.x[m][n][2 * h + 1]));
        high[m][h] = fmaxf(at.most[m][h], max_of_row(x));
        far = far || high[m][h] * by > at.most[m][h] * by + (float)FAR;
    }
    if (__any_sync(0xffffffffu, far)) {
        UNROLL
        for (int m = 0; m < PARTS; m++)
            UNROLL
        for (int h = 0; h < 2; h++) {
            float less = high[m][h] == minus_infinity<float>() ? 0 : high[m][h] * by;
            float shrink = fast_power_of_2(at.most[m][h] * by - less);
            at.most[m][h] = high[m][h];
            at.sum[m][h] *= shrink;
            UNROLL
            for (int c = 0; c < half_shape<K>::COLUMNS; c++) {
                out.x[m][c][2 * h] *= shrink;
                out.x[m][c][2 * h + 1] *= shrink;
            }
        }
    }
    UNROLL
    for (int m = 0; m < PARTS; m++)
        UNROLL
    for (int h = 0; h < 2; h++) {
        float less = at.most[m][h] == minus_infinity<float>() ? 0 : at.most[m][h] * by, sum = 0;
        UNROLL
        for (int n = 0; n < N; n++)
            UNROLL
        for (int i = 2 * h; i < 2 * h + 2; i++) {
            s.x[m][n][i] = fast_power_of_2(s.x[m][n][i] * by - less);
            sum += s.x[m][n][i];
        }
        at.sum[m][h] += sum;
    }
}

/* The results of the lane's rows, and the logarithms of their sums. */
template <class K, class E>
__device__ inline void end_forward(const progress<K> &at, const totals<K> &out, float by,
                                   const attending &a, const head &h, int64_t i0)
{
    UNROLL
    for (int m = 0; m < half_shape<K>::PARTS; m++)
        UNROLL
    for (int x = 0; x < 2; x++) {
        int64_t r = warp_row<K>() + 16 * m + lane_row() + 8 * x, rows = a.queries - i0;
        float total = sum_of_row(at.sum[m][x]), most = at.most[m][x] * by;
        bool none = total == 0;
        if (lane_column() == 0 && r < rows)
            ((float *)a.log_sum)[h.row + i0 + r] =
                none ? minus_infinity<float>() : (most + log_of_2(total)) / (float)log2_e();
        write_row<K, E>(a.out, h.q + i0 * h.q_row, h.q_row, rows, out, m, x,
                        none ? 0 : (K::MORE ? (float)a.keep : 1) / total, a);
    }
}

/* Shared memory: queries; keys and values, twice. */
template <class K, class E> __device__ void attention_half(const attention_half_args &a)
{
    typedef half_shape<K> Z;
    SHARED_BYTES(shared);
    E *q = (E *)shared, *kv = q + Z::OWN_TILE;
    fragments<K> own;
    totals<K> out;
    progress<K> at;
    results<K, Z::SIDE / 8> s;
    mask_words<Z::SIDE / 8> shown;
    head h;
    int64_t i0 = first_query<Z::OWN>(a, &h), rows = a.queries - i0, i = i0 + warp_row<K>();
    int64_t end = end_of<K>(a, h, (rows < Z::OWN ? a.queries : i0 + Z::OWN) - 1);
    int64_t begin = first_tile<K, Z::SIDE>(a, h, i0);
    int64_t own_end = seen_by_warp<K>(a, h, i);
    float by = K::MORE ? 1 : (float)log2_e() * (a.scale > 0 ? (float)a.scale : 1);

    clear(out);
    for (int m = 0; m < Z::PARTS; m++)
        for (int x = 0; x < 2; x++) {
            at.most[m][x] = minus_infinity<float>();
            at.sum[m][x] = 0;
        }
    copy_tiles<K, Z::OWN, 1>(q, a.q, a.q, h.q + i0 * h.q_row, h.q_row, rows, a);
    copy_tiles<K, Z::SIDE, 2>(kv, a.k, a.v, h.k + begin * h.k_row, h.k_row, a.keys - begin, a);
    if (K::MORE)
        load_mask<E>(shown, a, h, i, begin);
    arrive();
    load_own(own, q);
    int here = 0;
    for (int64_t j = begin; j < end; j += Z::SIDE) {
        int64_t next = j + Z::SIDE, key = h.k + next * h.k_row;
        E *k = kv + here, *other = kv + 2 * Z::TILE - here;
        if (next < end)
            copy_tiles<K, Z::SIDE, 2>(other, a.k, a.v, key, h.k_row, a.keys - next, a);
        bool sees =
            j < own_end && (!K::MORE || (late_of(a, i, j) < Z::SIDE && any_shown<E>(shown, a)));
        if (sees) {
            multiply<E>(s, own, k, 0);
            if (K::MORE)
                add_mask<E>(s, shown, a);
            else if (!(a.scale > 0))
                for (int m = 0; m < Z::PARTS; m++)
                    for (int n = 0; n < Z::SIDE / 8; n++)
                        for (int x = 0; x < 4; x++)
                            s.x[m][n][x] *= (float)a.scale;
        }
        if (K::MORE && next < end) /* while the next one is on its way, this one is used */
            load_mask<E>(shown, a, h, i, next);
        if (sees) {
            int edge = edge_of(a, i, j), there = a.keys < next ? (int)(a.keys - j) : Z::SIDE;
            if (edge < Z::SIDE - 1 || there < Z::SIDE)
                hide(s, edge, there, minus_infinity<float>());
            if (K::MORE && a.window)
                hide_early(s, late_of(a, i, j), minus_infinity<float>());
            if (K::MORE && a.span)
                hide_outside(s, a, h, i, j, minus_infinity<float>());
            advance(at, out, s, by);
            if (K::MORE && a.drops)
                drop(s, kept_of(a, h, i, j), 0, 1);
            add_product<E>(out, s, k + Z::TILE, 0);
        }
        here = 2 * Z::TILE - here;
        arrive();
    }
    end_forward<K, E>(at, out, by, a, h, i0);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* For a query: the logarithm of its sum to base 2 (infinite: it sees no key), and delta. */
typedef pack<float, 2> statistic;

/* delta = the sum of dout out, less dlog_sum, of each query; eight lanes have one. Queries of all
 * heads are neighbours. */
template <class E> __device__ void attention_half_delta(const attention_half_delta_args &a)
{
    int64_t heads = a.groups * a.repeat, rows = a.batch * a.queries * heads;
    enum { LANES = ATTENTION_DELTA_LANES };
    int own = threadIdx.x % LANES;

    for (int64_t r = global_thread() / LANES; r - r % 4 < rows; r += all_threads() / LANES) {
        int64_t i = r / heads, to = (i / a.queries * heads + r % heads) * a.queries + i % a.queries;
        const E *dout = (const E *)a.dout + r * a.width, *out = (const E *)a.out + r * a.width;
        float sum = 0;
        if (r < rows && a.wide)
            for (int c = own * 8; c < a.width; c += 8 * LANES) {
                typedef pack<E, 8> P;
                P x = *(const P *)(dout + c), y = *(const P *)(out + c);
                for (int k = 0; k < 8; k++)
                    sum += get(x.x[k]) * get(y.x[k]);
            }
        else if (r < rows)
            for (int c = own; c < a.width; c += LANES)
                sum += get(dout[c]) * get(out[c]);
        for (int step = LANES / 2; step > 0; step /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (own == 0 && r < rows) {
            float log_sum = ((const float *)a.log_sum)[to] * (float)log2_e();
            sum -= a.dlog_sum ? ((const float *)a.dlog_sum)[to] : 0;
            statistic x = {{log_sum == minus_infinity<float>() ? -log_sum : log_sum, sum}};
            ((statistic *)a.delta)[to] = x;
        }
    }
}

/*
 * Turn a score into a probability p, and dp, its gradient, into that of the score, without the
 * scale. A power above 0 comes from rounding the logarithm.
 */
__device__ inline void slope(float &p, float &dp, float by, float log_sum, float delta)
{
    p = fast_power_of_2(at_most_0(p * by - log_sum));
    dp = p * (dp - delta);
}

/*
 * The same for a masked score, an exponent of 2, and a gradient after dropout; 0 for scores that
 * are not seen, whatever the gradient is.
 */
__device__ inline void masked_slope(float &p, float &dp, float log_sum, float delta,
                                    const attending &a)
{
    bool seen = p != minus_infinity<float>() && log_sum != -minus_infinity<float>();
    float by = slope_of_cap(a, p);

    slope(p, dp, 1, log_sum, delta);
    p = seen ? p : 0;
    dp = seen ? dp * by : 0;
}

/* Shared memory: queries, gradients of results; keys and values, twice. */
template <class K, class E> __device__ void attention_half_dq(const attention_half_dq_args &a)
{
    typedef half_shape<K> Z;
    SHARED_BYTES(shared);
    E *q = (E *)shared, *dout = q + Z::OWN_TILE, *kv = dout + Z::OWN_TILE;
    fragments<K> own_q, own_dout;
    totals<K> dq;
    results<K, Z::CHUNK / 8> p, dp;
    statistic known[Z::PARTS][2];
    head h;
    int64_t i0 = first_query<Z::OWN>(a, &h), rows = a.queries - i0, at = h.q + i0 * h.q_row;
    int64_t end = end_of<K>(a, h, (rows < Z::OWN ? a.queries : i0 + Z::OWN) - 1);
    int64_t begin = first_tile<K, Z::SIDE>(a, h, i0);
    int64_t i = i0 + warp_row<K>(), own_end = seen_by_warp<K>(a, h, i);
    float by = (float)(a.scale * log2_e());

    clear(dq);
    copy_tiles<K, Z::OWN, 2>(q, a.q, a.dout, at, h.q_row, rows, a);
    copy_tiles<K, Z::SIDE, 2>(kv, a.k, a.v, h.k + begin * h.k_row, h.k_row, a.keys - begin, a);
    for (int m = 0; m < Z::PARTS; m++)
        for (int x = 0; x < 2; x++) {
            int64_t r = i + 16 * m + lane_row() + 8 * x;
            statistic none = {{-minus_infinity<float>(), 0}};
            known[m][x] = r < a.queries ? ((const statistic *)a.delta)[h.row + r] : none;
        }
    arrive();
    load_own(own_q, q);
    load_own(own_dout, dout);
    int here = 0;
    for (int64_t j = begin; j < end; j += Z::SIDE) {
        int64_t next = j + Z::SIDE, key = h.k + next * h.k_row;
        E *k = kv + here, *other = kv + 2 * Z::TILE - here;
        if (next < end)
            copy_tiles<K, Z::SIDE, 2>(other, a.k, a.v, key, h.k_row, a.keys - next, a);
        int edge = edge_of(a, i, j), own = own_end - j < Z::SIDE ? (int)(own_end - j) : Z::SIDE;
        kept keeps = {};
        if (K::MORE && own > 0)
            keeps = kept_of(a, h, i, j);
        ONE_BY_ONE
        for (int c = 0; c < own; c += Z::CHUNK) {
            mask_words<Z::CHUNK / 8> shown;
            if (K::MORE)
                load_mask<E>(shown, a, h, i, j + c);
            if (K::MORE && (late_of(a, i, j + c) >= Z::CHUNK || !any_shown<E>(shown, a)))
                continue;
            multiply<E>(p, own_q, k, c);
            multiply<E>(dp, own_dout, k + Z::TILE, c);
            if (K::MORE)
                add_mask<E>(p, shown, a);
            if (K::MORE && a.drops)
                drop(dp, keeps, c, (float)a.keep);
            UNROLL
            for (int m = 0; m < Z::PARTS; m++)
                UNROLL
            for (int n = 0; n < Z::CHUNK / 8; n++)
                UNROLL
            for (int x = 0; x < 4; x++) {
                float log_sum = known[m][x / 2].x[0], delta = known[m][x / 2].x[1];
                if (K::MORE)
                    masked_slope(p.x[m][n][x], dp.x[m][n][x], log_sum, delta, a);
                else
                    slope(p.x[m][n][x], dp.x[m][n][x], by, log_sum, delta);
            }
            if (edge < c + Z::CHUNK - 1) /* keys that are not there are 0 */
                hide(dp, edge - c, Z::SIDE, 0);
            if (K::MORE && a.window)
                hide_early(dp, late_of(a, i, j + c), 0);
            if (K::MORE && a.span)
                hide_outside(dp, a, h, i, j + c, 0);
            add_product<E>(dq, dp, k, c);
        }
        here = 2 * Z::TILE - here;
        arrive();
    }
    write_rows<K, E>(a.dq, at, h.q_row, rows, dq, (float)a.scale, a);
}

/* Queries, gradients of results, and what is known of them; with MORE, what dropout keeps of their
 * scores with keys j0... */
template <class K, class E>
__device__ inline void copy_queries(E *to, const query_place &p, const attending &a, int64_t j0)
{
    typedef half_shape<K> Z;
    int64_t left = a.queries - p.i;
    statistic *known = (statistic *)(to + 2 * Z::TILE);
    const statistic *from = (const statistic *)a.delta + p.h.row + p.i;

    copy_tiles<K, Z::SIDE, 2>(to, a.q, a.dout, p.h.q + p.i * p.h.q_row, p.h.q_row, left, a);
    if (threadIdx.x < Z::SIDE)
        copy_later<8>(known + threadIdx.x, from + threadIdx.x, threadIdx.x < left);
    if (K::MORE && a.drops)
        ((uint32_t *)(known + Z::SIDE))[threadIdx.x] = kept_scores(
            a, p.h.score + (p.i + threadIdx.x / 2) * a.query_scores + j0 + threadIdx.x % 2 * 32);
}

/* What CHUNK queries from c on, of a tile, add to the gradients of the warp's keys j... Rows of
 * scores are keys: row r is seen by query n if r <= n + edge. */
template <class K, class E>
__device__ inline void add_queries(totals<K> &dk, totals<K> &dv, const fragments<K> &k,
                                   const fragments<K> &v, const E *q, int c, float by, int edge,
                                   const attending &a, const query_place &at, int64_t j)
{
    typedef half_shape<K> Z;
    const E *dout = q + Z::TILE;
    const statistic *known = (const statistic *)(dout + Z::TILE) + c + lane_column();
    const uint32_t *words = (const uint32_t *)((const statistic *)(dout + Z::TILE) + Z::SIDE);
    results<K, Z::CHUNK / 8> p, dp;
    mask_words<Z::CHUNK / 8> shown;

    if (K::MORE)
        load_mask_across<E>(shown, a, at.h, at.i + c, j);
    if (K::MORE && !any_shown<E>(shown, a))
        return;
    multiply<E>(p, k, q, c);
    multiply<E>(dp, v, dout, c);
    if (K::MORE)
        add_mask<E>(p, shown, a);
    if (K::MORE && a.drops)
        drop_across(dp, words, c, (float)a.keep);
    UNROLL
    for (int n = 0; n < Z::CHUNK / 8; n++) {
        pack<float, 4> x = *(const pack<float, 4> *)(known + 8 * n);
        UNROLL
        for (int m = 0; m < Z::PARTS; m++)
            UNROLL
        for (int e = 0; e < 4; e++) {
            float log_sum = x.x[e % 2 * 2], delta = x.x[e % 2 * 2 + 1];
            if (K::MORE)
                masked_slope(p.x[m][n][e], dp.x[m][n][e], log_sum, delta, a);
            else
                slope(p.x[m][n][e], dp.x[m][n][e], by, log_sum, delta);
        }
    }
    if (c + edge < 16 * Z::PARTS - 1) {
        int last = c + edge + lane_column() - lane_row();
        UNROLL
        for (int m = 0; m < Z::PARTS; m++)
            UNROLL
        for (int n = 0; n < Z::CHUNK / 8; n++)
            UNROLL
        for (int e = 0; e < 4; e++) {
            bool hidden = 16 * m + e / 2 * 8 > last + 8 * n + e % 2;
            p.x[m][n][e] = hidden ? 0 : p.x[m][n][e];
            dp.x[m][n][e] = hidden ? 0 : dp.x[m][n][e];
        }
    }
    if (K::MORE && a.window) {
        int first = late_of(a, at.i + c, j) + lane_column() - lane_row();
        UNROLL
        for (int n = 0; n < Z::CHUNK / 8; n++)
            UNROLL
        for (int e = 0; e < 4; e++) {
            bool hidden = e / 2 * 8 < first + 8 * n + e % 2;
            p.x[0][n][e] = hidden ? 0 : p.x[0][n][e];
            dp.x[0][n][e] = hidden ? 0 : dp.x[0][n][e];
        }
    }
    if (K::MORE && a.span)
        UNROLL
    for (int n = 0; n < Z::CHUNK / 8; n++)
        UNROLL
    for (int e = 0; e < 4; e++) {
        int64_t query = at.i + c + 8 * n + lane_column() + e % 2;
        bool seen = query < a.queries && in_span(a, at.h, query, j + lane_row() + e / 2 * 8);
        p.x[0][n][e] = seen ? p.x[0][n][e] : 0;
        dp.x[0][n][e] = seen ? dp.x[0][n][e] : 0;
    }
    if (K::MORE && a.drops)
        drop_across(p, words, c, 1);
    add_product<E>(dv, p, dout, c);
    add_product<E>(dk, dp, q, c);
}

/* Shared memory: keys, values; twice queries, gradients of results, and what is known of them. */
template <class K, class E> __device__ void attention_half_dkv(const attention_half_dkv_args &a)
{
    typedef half_shape<K> Z;
    enum {
        KNOWN = Z::SIDE * (int)sizeof(statistic) + (K::MORE ? KEPT_WORDS * 4 : 0), /* bytes */
        BUFFER = 2 * Z::TILE + KNOWN / (int)sizeof(E)
    };
    SHARED_BYTES(shared);
    E *k = (E *)shared, *v = k + Z::OWN_TILE, *q = v + Z::OWN_TILE;
    int64_t n = a.batch * a.groups, j0 = blockIdx.x / n * Z::OWN, j = j0 + warp_row<K>();
    head h = head_of(a, blockIdx.x % n / a.groups, blockIdx.x % n % a.groups, 0);
    const query_range range = queries_seeing<K, Z::SIDE>(a, h, j0, Z::OWN);
    int64_t tiles = tiles_of<Z::SIDE>(a, range);
    int64_t key = h.k + j0 * h.k_row;
    query_place at = {range.first, h};
    fragments<K> own_k, own_v;
    totals<K> dk, dv;
    float by = (float)(a.scale * log2_e());

    clear(dk);
    clear(dv);
    copy_tiles<K, Z::OWN, 2>(k, a.k, a.v, key, h.k_row, a.keys - j0, a);
    if (tiles)
        copy_queries<K>(q, at, a, j0);
    arrive();
    load_own(own_k, k);
    load_own(own_v, v);
    int here = 0;
    for (int left = (int)tiles; left > 0; left--) {
        query_place next = next_place<Z::SIDE>(at, a, range);
        if (left > 1)
            copy_queries<K>(q + BUFFER - here, next, a, j0);
        int edge = edge_of(a, at.i, j), from = edge < 0 ? -edge / Z::CHUNK * Z::CHUNK : 0;
        int end = a.queries - at.i < Z::SIDE ? (int)(a.queries - at.i) : Z::SIDE;
        ONE_BY_ONE
        for (int c = from; c < end && j < a.keys; c += Z::CHUNK)
            add_queries<K>(dk, dv, own_k, own_v, q + here, c, by, edge, a, at, j);
        at = next;
        here = BUFFER - here;
        arrive();
    }
    write_rows<K, E>(a.dk, key, h.k_row, a.keys - j0, dk, (float)a.scale, a);
    write_rows<K, E>(a.dv, key, h.k_row, a.keys - j0, dv, K::MORE ? (float)a.keep : 1, a);
}
