/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms over sets of channels, as kernels/norms.h and norms/sets.h have them: all arithmetic
 * is in f64, each element is rounded once. A set is read once for its moments: sums of differences
 * from its first element, and of their squares. That element is at most sqrt(n) deviations from the
 * mean, so what cancels is at most n times the rounding of f64.
 */

/* Whether rows are read and written by pieces of 16 bytes. */
struct wide {
    static constexpr bool WIDE = true;
};
struct each {
    static constexpr bool WIDE = false;
};
template <class K, class E> struct lanes_of {
    enum { N = K::WIDE ? 16 / (int)sizeof(E) : 1 };
};

/* Elements that lie in `runs` of `length`, `step` apart. */
struct stretch {
    int64_t first, runs, length, step;
};

/* Channels [lo, end) of slot s, of those that are here. */
__device__ inline int64_t slot_end(const sets_of &s, int64_t slot, int64_t *lo)
{
    int64_t begin = (s.first / s.group + slot) * s.group - s.first, end = begin + s.group;

    *lo = begin > 0 ? begin : 0;
    return end < s.channels ? end : s.channels;
}

__device__ inline stretch of_row(const sets_of &s, int64_t row)
{
    if (s.whole)
        return {row * s.inner, s.batch, s.inner, s.channels * s.inner};
    return {row * s.inner, 1, s.inner, 0};
}

__device__ inline stretch of_set(const sets_of &s, int64_t set)
{
    int64_t item = s.whole ? 0 : set / s.slots, lo, end;

    if (s.whole)
        return of_row(s, set);
    end = slot_end(s, set - item * s.slots, &lo);
    return {(item * s.channels + lo) * s.inner, 1, (end - lo) * s.inner, 0};
}

/* The part [lo, hi) of a stretch in pieces of N, of those that there are. */
struct pieces {
    int64_t lo, hi, per_run;
};

template <int N> __device__ inline pieces part_of(const stretch &t, int64_t part, int64_t parts)
{
    int64_t per_run = t.length / N, all = t.runs * per_run;

    return {all * part / parts, all * (part + 1) / parts, per_run};
}

/* Where piece i begins. */
template <int N> __device__ inline int64_t place_of(const stretch &t, const pieces &p, int64_t i)
{
    if (t.runs == 1)
        return t.first + i * N;
    int64_t run = i < 0x7fffffff && p.per_run < 0x7fffffff
                      ? (int64_t)((uint32_t)i / (uint32_t)p.per_run)
                      : i / p.per_run;
    return t.first + run * t.step + (i - run * p.per_run) * N;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* A warp has a part of a set. */
template <class K, class E> __device__ void set_sums(const set_sums_args &a)
{
    enum { N = lanes_of<K, E>::N };
    const E *x = (const E *)a.x;
    int lane = threadIdx.x % WARP;

    for (int64_t task = global_thread() / WARP; task < a.s.sets * a.parts;
         task += all_threads() / WARP) {
        int64_t set = task / a.parts;
        stretch t = of_set(a.s, set);
        pieces p = part_of<N>(t, task - set * a.parts, a.parts);
        double sum = 0, squares = 0, base = p.hi > p.lo ? (double)get(x[t.first]) : 0;
        typename number<E>::sum v[N];
        for (int64_t i = p.lo + lane; i < p.hi; i += WARP) {
            load<E, N>(v, x + place_of<N>(t, p, i));
            UNROLL
            for (int k = 0; k < N; k++) {
                double d = (double)v[k] - base;
                sum += d;
                squares += d * d;
            }
        }
        sum = warp_sum(sum);
        squares = warp_sum(squares);
        if (lane == 0) {
            a.sums[task] = sum;
            a.sums[a.s.sets * a.parts + task] = squares;
        }
    }
}

/* A warp has a set. */
template <class E> __device__ void set_moments(const set_moments_args &a)
{
    int lane = threadIdx.x % WARP;
    int64_t all = a.s.sets * a.parts;

    for (int64_t set = global_thread() / WARP; set < a.s.sets; set += all_threads() / WARP) {
        int64_t item = a.s.whole ? 0 : set / a.s.slots, lo = set, end = set + 1;
        stretch t = of_set(a.s, set);
        double n = (double)(t.runs * t.length), sum = 0, squares = 0, mean = 0;
        for (int64_t p = lane; p < a.parts; p += WARP) {
            sum += a.sums[set * a.parts + p];
            squares += a.sums[all + set * a.parts + p];
        }
        sum = warp_sum(sum);
        squares = warp_sum(squares);
        if (n > 0) {
            mean = (double)get(((const E *)a.x)[t.first]) + sum / n;
            squares -= sum * (sum / n);
            squares = squares < 0 ? 0 : squares;
        }
        if (!a.s.whole)
            end = slot_end(a.s, set - item * a.s.slots, &lo);
        for (int64_t c = item * a.s.channels + lo + lane; c < item * a.s.channels + end;
             c += WARP) {
            a.numbers[c] = n;
            a.numbers[a.s.rows + c] = mean;
            a.numbers[2 * a.s.rows + c] = squares;
        }
    }
}

/* Chan's formula, in order of parts; a thread has a row. */
template <class E> __device__ void set_scales(const set_scales_args &a)
{
    typedef typename number<E>::sum T;
    int64_t rows = a.s.rows;

    for (int64_t r = global_thread(); r < rows; r += all_threads()) {
        double n = 0, mean = 0, squares = 0;
        for (int64_t p = 0; p < a.parts; p++) {
            const double *part = a.numbers + 3 * p * rows + r;
            double m = part[0], apart = part[rows] - mean, both = n + m;
            if (m == 0)
                continue;
            mean = n == 0 ? part[rows] : mean + apart * (m / both);
            squares += part[2 * rows] + (n == 0 ? 0 : apart * apart * (n * (m / both)));
            n = both;
        }
        double var = squares / (n > 1 ? n : 1);
        int64_t c = r % a.s.channels;
        if (a.mean)
            ((T *)a.mean)[r] = (T)mean;
        if (a.var)
            ((T *)a.var)[r] = (T)var;
        a.of_rows[r] = mean;
        a.of_rows[rows + r] =
            (a.weight ? (double)get(((const E *)a.weight)[c]) : 1) / sqrt(var + a.eps);
        a.of_rows[2 * rows + r] = a.bias ? (double)get(((const E *)a.bias)[c]) : 0;
    }
}

template <class K, class E> __device__ void set_spread(const set_spread_args &a)
{
    enum { N = lanes_of<K, E>::N };
    typedef typename number<E>::sum T;
    int64_t row[1];
    T v[N];

    for (int64_t i = global_thread(); i < a.items; i += all_threads()) {
        locate<1>(a, i, row);
        const double *of_row = a.of_rows + row[0];
        double mean = of_row[0], scale = of_row[a.rows], shift = of_row[2 * a.rows];
        load<E, N>(v, (const E *)a.x + i * N);
        UNROLL
        for (int k = 0; k < N; k++)
            v[k] = (T)(((double)v[k] - mean) * scale + shift);
        store<E, N>((E *)a.y + i * N, v);
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* A warp has a part of a row. */
template <class K, class E> __device__ void row_products(const row_products_args &a)
{
    enum { N = lanes_of<K, E>::N };
    typedef typename number<E>::sum T;
    int lane = threadIdx.x % WARP;

    for (int64_t task = global_thread() / WARP; task < a.s.rows * a.parts;
         task += all_threads() / WARP) {
        int64_t row = task / a.parts;
        stretch t = of_row(a.s, row);
        pieces p = part_of<N>(t, task - row * a.parts, a.parts);
        double sum = 0, by_x = 0, mean = (double)((const T *)a.mean)[row];
        T g[N], v[N];
        for (int64_t i = p.lo + lane; i < p.hi; i += WARP) {
            int64_t at = place_of<N>(t, p, i);
            load<E, N>(g, (const E *)a.dy + at);
            load<E, N>(v, (const E *)a.x + at);
            UNROLL
            for (int k = 0; k < N; k++) {
                sum += (double)g[k];
                by_x += (double)g[k] * ((double)v[k] - mean);
            }
        }
        sum = warp_sum(sum);
        by_x = warp_sum(by_x);
        if (lane == 0) {
            a.sums[task] = sum;
            a.sums[a.s.rows * a.parts + task] = by_x;
        }
    }
}

/* The sums of a row's parts. */
__device__ inline void add_parts(const double *sums, int64_t rows, int64_t parts, int64_t row,
                                 double *sum, double *by_x)
{
    *sum = *by_x = 0;
    for (int64_t p = 0; p < parts; p++) {
        *sum += sums[row * parts + p];
        *by_x += sums[(rows + row) * parts + p];
    }
}

/* A warp has a channel; its lanes take turns at items. */
template <class E> __device__ void set_parameters(const set_parameters_args &a)
{
    typedef typename number<E>::sum T;
    int lane = threadIdx.x % WARP;
    int64_t channels = a.s.channels;

    for (int64_t c = global_thread() / WARP; c < channels; c += all_threads() / WARP) {
        double weight = 0, bias = 0, sum, by_x;
        for (int64_t r = c + lane * channels; r < a.s.rows; r += WARP * channels) {
            add_parts(a.sums, a.s.rows, a.parts, r, &sum, &by_x);
            weight += by_x / sqrt((double)((const T *)a.var)[r] + a.eps);
            bias += sum;
        }
        weight = warp_sum(weight);
        bias = warp_sum(bias);
        if (lane == 0 && a.dweight)
            ((E *)a.dweight)[c] = put<E>((T)weight);
        if (lane == 0 && a.dbias)
            ((E *)a.dbias)[c] = put<E>((T)bias);
    }
}

/* A warp has a set; its lanes take turns at rows. */
template <class E> __device__ void set_products(const set_products_args &a)
{
    int lane = threadIdx.x % WARP;

    for (int64_t set = global_thread() / WARP; set < a.s.sets; set += all_threads() / WARP) {
        int64_t item = a.s.whole ? 0 : set / a.s.slots, lo = set, end = set + 1;
        double sum = 0, by_x = 0, one, x;
        if (!a.s.whole)
            end = slot_end(a.s, set - item * a.s.slots, &lo);
        for (int64_t c = lo + lane; c < end; c += WARP) {
            double w = a.weight ? (double)get(((const E *)a.weight)[c]) : 1;
            add_parts(a.sums, a.s.rows, a.parts, item * a.s.channels + c, &one, &x);
            sum += w * one;
            by_x += w * x;
        }
        sum = warp_sum(sum);
        by_x = warp_sum(by_x);
        for (int64_t r = item * a.s.channels + lo + lane; r < item * a.s.channels + end;
             r += WARP) {
            a.numbers[r] = sum;
            a.numbers[a.s.rows + r] = by_x;
        }
    }
}

/* A thread has a row. */
template <class E> __device__ void set_slopes(const set_slopes_args &a)
{
    typedef typename number<E>::sum T;
    int64_t rows = a.s.rows;

    for (int64_t r = global_thread(); r < rows; r += all_threads()) {
        double sum = 0, by_x = 0, inverse = 1 / sqrt((double)((const T *)a.var)[r] + a.eps);
        for (int64_t p = 0; a.numbers && p < a.parts; p++) {
            sum += a.numbers[2 * p * rows + r];
            by_x += a.numbers[(2 * p + 1) * rows + r];
        }
        a.of_rows[r] = (double)((const T *)a.mean)[r];
        a.of_rows[rows + r] =
            (a.weight ? (double)get(((const E *)a.weight)[r % a.s.channels]) : 1) * inverse;
        a.of_rows[2 * rows + r] = a.numbers ? sum * (inverse / a.together) : 0;
        a.of_rows[3 * rows + r] = a.numbers ? by_x * (inverse * inverse * inverse / a.together) : 0;
    }
}

template <class K, class E> __device__ void set_gradient(const set_gradient_args &a)
{
    enum { N = lanes_of<K, E>::N };
    typedef typename number<E>::sum T;
    int64_t row[1];
    T g[N], v[N];

    for (int64_t i = global_thread(); i < a.items; i += all_threads()) {
        locate<1>(a, i, row);
        const double *of_row = a.of_rows + row[0];
        double mean = of_row[0], scale = of_row[a.rows], shift = of_row[2 * a.rows],
               slope = of_row[3 * a.rows];
        load<E, N>(g, (const E *)a.dy + i * N);
        if (a.x)
            load<E, N>(v, (const E *)a.x + i * N);
        UNROLL
        for (int k = 0; k < N; k++) {
            double d = (double)g[k] * scale;
            g[k] = (T)(a.x ? d - shift - ((double)v[k] - mean) * slope : d);
        }
        store<E, N>((E *)a.dx + i * N, g);
    }
}
