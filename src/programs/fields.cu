/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields: pooling, weighted sums along a dim (averages, interpolation), and complex numbers. A
 * thread has an element of what is made and goes through what it is made of, in order, so no two
 * write to one place.
 */

/* i / n, and what is left, which is i then. */
__device__ inline int64_t split(int64_t *i, int64_t n)
{
    int64_t all = *i, q = (uint64_t)(all | n) >> 32 ? all / n : (uint32_t)all / (uint32_t)n;

    *i = all - q * n;
    return q;
}

/* Element i of [outer, size]: outer is returned. */
__device__ inline int64_t find_place(int64_t i, const int64_t size[3], int64_t place[3])
{
    int64_t plane = split(&i, size[0] * size[1] * size[2]);

    place[0] = split(&i, size[1] * size[2]);
    place[1] = split(&i, size[2]);
    place[2] = i;
    return plane;
}

/* ---- maxima ---------------------------------------------------------------------------------- */

/* What output o looks at in dim d: from *first, before the end, in steps of the dilation. */
__device__ inline int64_t window_of(const pool_of &p, int d, int64_t o, int64_t *first)
{
    int64_t lo = o * p.stride[d] - p.before[d], step = p.dilation[d];
    int64_t end = lo + (p.kernel[d] - 1) * step + 1;

    *first = lo < 0 ? lo + (-lo + step - 1) / step * step : lo;
    return end < p.in[d] ? end : p.in[d];
}

template <class E> __device__ void max_pool(const max_pool_args &a)
{
    typedef typename number<E>::sum T;
    const pool_of &p = a.p;

    for (int64_t o = global_thread(); o < a.items; o += all_threads()) {
        int64_t place[3], first[3], end[3], at = -1;
        int64_t plane = find_place(o, p.out, place);
        const E *x = (const E *)a.x + plane * p.in[0] * p.in[1] * p.in[2];
        T most = minus_infinity<T>();
        for (int d = 0; d < 3; d++)
            end[d] = window_of(p, d, place[d], &first[d]);
        for (int64_t i = first[0]; i < end[0]; i += p.dilation[0])
            for (int64_t j = first[1]; j < end[1]; j += p.dilation[1])
                for (int64_t k = first[2]; k < end[2]; k += p.dilation[2]) {
                    T value = get(x[(i * p.in[1] + j) * p.in[2] + k]);
                    if (at >= 0 && !(value > most) && value == value)
                        continue;
                    most = value;
                    at = ((i + p.offset[0]) * p.whole[1] + j + p.offset[1]) * p.whole[2] + k +
                         p.offset[2];
                }
        ((E *)a.y)[o] = put<E>(most);
        a.at[o] = at;
    }
}

/* The outputs whose windows may hold element i of dim d. */
__device__ inline int64_t readers_of(const pool_of &p, int d, int64_t i, int64_t *first)
{
    int64_t at = i + p.before[d], behind = at - (p.kernel[d] - 1) * p.dilation[d];
    int64_t end = at < 0 ? 0 : at / p.stride[d] + 1;

    *first = behind <= 0 ? 0 : (behind + p.stride[d] - 1) / p.stride[d];
    return end < p.out[d] ? end : p.out[d];
}

template <class E> __device__ void max_pool_grad(const max_pool_grad_args &a)
{
    const pool_of &p = a.p;

    for (int64_t x = global_thread(); x < a.items; x += all_threads()) {
        int64_t place[3], first[3], end[3];
        int64_t plane = find_place(x, p.in, place) * p.out[0] * p.out[1] * p.out[2];
        int64_t at = ((place[0] + p.offset[0]) * p.whole[1] + place[1] + p.offset[1]) * p.whole[2] +
                     place[2] + p.offset[2];
        typename number<E>::sum sum = 0;
        for (int d = 0; d < 3; d++)
            end[d] = readers_of(p, d, place[d], &first[d]);
        for (int64_t i = first[0]; i < end[0]; i++)
            for (int64_t j = first[1]; j < end[1]; j++)
                for (int64_t k = first[2]; k < end[2]; k++) {
                    int64_t o = plane + (i * p.out[1] + j) * p.out[2] + k;
                    if (a.at[o] == at)
                        sum += get(((const E *)a.dy)[o]);
                }
        ((E *)a.dx)[x] = put<E>(sum);
    }
}

/* ---- weighted sums --------------------------------------------------------------------------- */

/* From elements A to B. */
template <class A, class B> __device__ void taps(const taps_args &a)
{
    typedef typename number<B>::sum T;

    for (int64_t o = global_thread(); o < a.items; o += all_threads()) {
        int64_t at = o, row = split(&at, a.inner), plane = 0;
        plane = split(&row, a.rows);
        const tap_of &tap = a.tap[row];
        const A *x = (const A *)a.x + (plane * a.in + tap.first) * a.inner + at;
        T sum = 0;
        for (int64_t k = 0; k < tap.count; k++) {
            T value = get(x[k * a.inner]);
            sum += tap.even ? value : (T)tap.weight[k] * value;
        }
        ((B *)a.y)[o] = put<B>(tap.divisor == 1 ? sum : sum / (T)tap.divisor);
    }
}

template <class A, class B> __device__ void taps_grad(const taps_grad_args &a)
{
    typedef typename number<B>::sum T;

    for (int64_t x = global_thread(); x < a.items; x += all_threads()) {
        int64_t at = x, i = split(&at, a.inner), plane = split(&i, a.in);
        const A *dy = (const A *)a.dy + plane * a.rows * a.inner + at;
        T sum = 0;
        for (int64_t o = a.reader[2 * i]; o < a.reader[2 * i + 1]; o++) {
            const tap_of &tap = a.tap[o];
            T value = get(dy[o * a.inner]) / (T)tap.divisor;
            sum += tap.even ? value : (T)tap.weight[i - tap.first] * value;
        }
        ((B *)a.dx)[x] = put<B>(sum);
    }
}

/* ---- complex numbers ------------------------------------------------------------------------- */

/* Pair i, at once where pairs lie on their own size: a view may begin between. */
template <class E>
__device__ inline pack<E, 2> pair_at(const void *from, int64_t i, int32_t aligned)
{
    const E *x = (const E *)from + 2 * i;

    if (aligned)
        return *(const pack<E, 2> *)x;
    pack<E, 2> pair = {{x[0], x[1]}};
    return pair;
}

template <class E> __device__ void complex_mul(const complex_mul_args &a)
{
    int64_t at[2];

    for (int64_t i = global_thread(); i < a.items; i += all_threads()) {
        locate<2>(a, i, at);
        pack<E, 2> x = pair_at<E>(a.a, at[0], a.aligned), y = pair_at<E>(a.b, at[1], a.aligned), z;
        E imaginary = a.conj ? -y.x[1] : y.x[1];
        z.x[0] = x.x[0] * y.x[0] - x.x[1] * imaginary;
        z.x[1] = x.x[0] * imaginary + x.x[1] * y.x[0];
        ((pack<E, 2> *)a.dst)[i] = z;
    }
}

template <class E> __device__ void fft_scale(const fft_scale_args &a)
{
    for (int64_t i = global_thread(); i < a.items; i += all_threads()) {
        int64_t at = i, k = split(&at, a.inner);
        split(&k, a.m);
        bool ends = k == 0 || 2 * k == a.n;
        pack<E, 2> x = pair_at<E>(a.src, i, a.aligned);
        E scale = (E)(ends ? a.scale : a.scale * a.middle);
        x.x[0] *= scale;
        x.x[1] = ends && a.real_ends ? (E)0 : x.x[1] * scale * (E)a.sign;
        ((pack<E, 2> *)a.dst)[i] = x;
    }
}
