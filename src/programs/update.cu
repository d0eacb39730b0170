/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of optimizers: AdamW and SGD, p, m and v in f32 (f64 with a gradient of f64), and sums of
 * squares of gradients. Each element is read and written once: the speed of memory. A model has
 * many small tensors, so that AdamW and the sums take lists of them.
 */

/* Four elements of a gradient of E and of what is kept of it. */
template <class E> struct of_update {
    typedef typename number<E>::sum real;
    enum { LANES = 16 / sizeof(real) };
    typedef pack<real, LANES> reals;
    typedef pack<E, LANES> grads;
};

template <class REAL> struct adamw_factors {
    REAL beta1, rest1, beta2, rest2, scale, rate, root, eps, shrink, l2;
};

/* Decoupled decay: p shrinks by rate * decay, beside the step along m / sqrt(v). */
template <class REAL>
__device__ inline void adamw_at(const adamw_factors<REAL> &f, REAL &p, REAL &m, REAL &v, REAL grad)
{
    REAL g = f.scale * grad + f.l2 * p;

    m = f.beta1 * m + f.rest1 * g;
    v = f.beta2 * v + f.rest2 * (g * g);
    p = p - f.shrink * p - f.rate * m / (sqrt(v) * f.root + f.eps);
}

/* The tensor of a list that this block has a chunk of. */
template <class LIST> __device__ inline int item_of(const LIST &a)
{
    int low = 0, high = a.count;

    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (a.item[middle].first <= (int)blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A chunk: the elements from lo to hi, of which those before `grouped` go in groups. */
struct chunk {
    int64_t lo, grouped, hi;
};
template <class ITEM> __device__ inline chunk chunk_of(const ITEM &t, int64_t elements, int lanes)
{
    chunk c;

    c.lo = ((int64_t)blockIdx.x - t.first) * elements;
    c.hi = c.lo + elements < t.n ? c.lo + elements : t.n;
    c.grouped = t.wide ? c.hi - (c.hi - c.lo) % lanes : c.lo;
    return c;
}

template <class E> __device__ void adamw(const adamw_args &a)
{
    typedef typename of_update<E>::real real;
    typedef typename of_update<E>::reals reals;
    typedef typename of_update<E>::grads grads;
    enum { LANES = of_update<E>::LANES };
    const adamw_item &t = a.item[item_of(a)];
    const adamw_factors<real> f = {(real)a.beta1,      (real)a.rest1, (real)a.beta2, (real)a.rest2,
                                   (real)a.grad_scale, (real)t.rate,  (real)t.root,  (real)a.eps,
                                   (real)t.shrink,     (real)t.l2};
    const chunk c = chunk_of(t, UPDATE_CHUNK, LANES);
    real *p = (real *)t.p, *m = (real *)t.m, *v = (real *)t.v;
    const E *grad = (const E *)t.grad;

    for (int64_t i = c.lo / LANES + threadIdx.x; i < c.grouped / LANES; i += UPDATE_THREADS) {
        reals ps = ((reals *)p)[i], ms = ((reals *)m)[i], vs = ((reals *)v)[i];
        grads g = ((const grads *)grad)[i];
        UNROLL
        for (int k = 0; k < LANES; k++)
            adamw_at<real>(f, ps.x[k], ms.x[k], vs.x[k], get(g.x[k]));
        ((reals *)p)[i] = ps;
        ((reals *)m)[i] = ms;
        ((reals *)v)[i] = vs;
    }
    for (int64_t i = c.grouped + threadIdx.x; i < c.hi; i += UPDATE_THREADS)
        adamw_at<real>(f, p[i], m[i], v[i], get(grad[i]));
}

/* Without momentum m is not read. */
template <class REAL> __device__ inline void sgd_at(const sgd_args &a, REAL &p, REAL &m, REAL grad)
{
    REAL g = (REAL)a.grad_scale * grad + (REAL)a.decay * p;

    if (a.m) {
        m = (REAL)a.keep * m + (REAL)a.add * g;
        g = a.nesterov ? g + (REAL)a.momentum * m : m;
    }
    p = p - (REAL)a.rate * g;
}

template <class E> __device__ void sgd(const sgd_args &a)
{
    typedef typename of_update<E>::real real;
    typedef typename of_update<E>::reals reals;
    typedef typename of_update<E>::grads grads;
    enum { LANES = of_update<E>::LANES };
    real *p = (real *)a.p, *m = a.m ? (real *)a.m : p;
    const E *grad = (const E *)a.grad;
    int64_t groups = a.wide ? a.n / LANES : 0, step = all_threads();

    for (int64_t i = global_thread(); i < groups; i += step) {
        reals ps = ((reals *)p)[i], ms = a.m ? ((reals *)m)[i] : ps;
        grads g = ((const grads *)grad)[i];
        UNROLL
        for (int k = 0; k < LANES; k++)
            sgd_at<real>(a, ps.x[k], ms.x[k], get(g.x[k]));
        ((reals *)p)[i] = ps;
        if (a.m)
            ((reals *)m)[i] = ms;
    }
    for (int64_t i = groups * LANES + global_thread(); i < a.n; i += step)
        sgd_at<real>(a, p[i], m[i], get(grad[i]));
}

/* Exact products of 16-bit numbers, and of f32. */
template <class E> __device__ inline double square_of(E x)
{
    return (double)get(x) * (double)get(x);
}

template <class E> __device__ void squares(const squares_args &a)
{
    typedef typename vector<E>::type group;
    enum { LANES = vector<E>::LANES };
    __shared__ double room[MOST_WARPS];
    const squares_item &t = a.item[item_of(a)];
    const chunk c = chunk_of(t, SQUARES_CHUNK, LANES);
    const E *src = (const E *)t.src;
    double sum = 0;

    for (int64_t i = c.lo / LANES + threadIdx.x; i < c.grouped / LANES; i += UPDATE_THREADS) {
        group g = ((const group *)src)[i];
        UNROLL
        for (int k = 0; k < LANES; k++)
            sum += square_of(g.x[k]);
    }
    for (int64_t i = c.grouped + threadIdx.x; i < c.hi; i += UPDATE_THREADS)
        sum += square_of(src[i]);
    sum = block_sum(sum, room);
    if (threadIdx.x == 0)
        a.sums[blockIdx.x] = sum;
}
