/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of optimizers: AdamW and SGD, p, m and v in f32 (f64 with a gradient of f64). Each element
 * is read and written once: the speed of memory.
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

template <class E> __device__ void adamw(const adamw_args &a)
{
    typedef typename of_update<E>::real real;
    typedef typename of_update<E>::reals reals;
    typedef typename of_update<E>::grads grads;
    enum { LANES = of_update<E>::LANES };
    const adamw_factors<real> f = {(real)a.beta1,
                                   (real)a.rest1,
                                   (real)a.beta2,
                                   (real)a.rest2,
                                   (real)a.grad_scale,
                                   (real)(a.rate / a.correction1),
                                   (real)(1 / sqrt(a.correction2)),
                                   (real)a.eps,
                                   (real)(a.rate * a.decay),
                                   (real)a.l2};
    real *p = (real *)a.p, *m = (real *)a.m, *v = (real *)a.v;
    const E *grad = (const E *)a.grad;
    int64_t groups = a.wide ? a.n / LANES : 0, step = all_threads();

    for (int64_t i = global_thread(); i < groups; i += step) {
        reals ps = ((reals *)p)[i], ms = ((reals *)m)[i], vs = ((reals *)v)[i];
        grads g = ((const grads *)grad)[i];
        UNROLL
        for (int k = 0; k < LANES; k++)
            adamw_at<real>(f, ps.x[k], ms.x[k], vs.x[k], get(g.x[k]));
        ((reals *)p)[i] = ps;
        ((reals *)m)[i] = ms;
        ((reals *)v)[i] = vs;
    }
    for (int64_t i = groups * LANES + global_thread(); i < a.n; i += step)
        adamw_at<real>(f, p[i], m[i], v[i], get(grad[i]));
}

/* The mean of no momentum is not looked at. */
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
