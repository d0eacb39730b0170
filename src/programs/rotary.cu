/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary embedding: pairs of numbers of each head turn. A thread has one pair of one position and
 * computes its angle once, in f64, for all heads; neighbours have neighbouring pairs.
 */

template <class E>
__device__ inline void turn_heads(const rotate_args &a, const E *x, E *y, int64_t apart,
                                  double angle)
{
    typedef typename number<E>::sum real;
    real cosine = (real)cos(angle), sine = (real)(a.inverse ? -sin(angle) : sin(angle));

    for (int64_t h = 0; h < a.heads; h++, x += a.width, y += a.width) {
        real u = get(x[0]), v = get(x[apart]);
        y[0] = put<E>(u * cosine - v * sine);
        y[apart] = put<E>(u * sine + v * cosine);
    }
}

template <class E> __device__ void rotate(const rotate_args &a)
{
    int64_t width = a.width - a.pairs; /* items of a head */

    for (int64_t i = global_thread(); i < a.items; i += all_threads()) {
        int64_t place = i / width, j = i - place * width, at = place * a.heads * a.width;
        const E *x = (const E *)a.src + at;
        E *y = (E *)a.dst + at;
        if (j >= a.pairs) { /* it does not turn */
            for (int64_t h = 0, k = j + a.pairs; h < a.heads; h++, k += a.width)
                y[k] = x[k];
            continue;
        }
        int64_t row = a.each ? place : place % a.positions;
        double position = a.position ? (double)a.position[row] : (double)(a.first + row);
        double slowness = a.frequency ? a.frequency[j] : pow(a.base, -(double)j / (double)a.pairs);
        double angle = position * slowness;
        int64_t first = a.interleaved ? 2 * j : j;
        turn_heads(a, x + first, y + first, a.interleaved ? 1 : a.pairs, angle);
    }
}
