/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic on raw pointers. One table per dtype; void pointers point to elements of that dtype,
 * sizes and strides are elements, matrices are row-major. Kernels allocate nothing, keep nothing,
 * start no threads, and cannot fail. ref.c (ref_body.inc) holds a plain version of all of them;
 * faster versions replace entries of the f32 table where the machine has what they need (one file
 * per instruction set; see choose.c).
 *
 * The tables of bf16 and f16 run the f32 kernels on blocks (half_body.inc): arithmetic and sums are
 * f32, each element is rounded once, when it is stored. Statistics (mean, rstd, log_sum, stats),
 * and p, m and v of adamw and sgd, are f32 there: see sherd__statistics_dtype.
 */
#ifndef SHERD__KERNELS_KERNELS_H
#define SHERD__KERNELS_KERNELS_H

#include "functions.h"
#include "base/dtype.h"
#include "base/philox.h"
#include "sherd/dtype.h"
#include "sherd/layout.h"

/*
 * Attention of q [batch,queries,groups,repeat,width], where `repeat` heads share the keys and
 * values of their group, k, v [batch,keys,groups,width]. Query i of a causal one sees keys 0..i; a
 * key whose score is -inf is not seen; who sees none gets zeroes, and -inf as the logarithm.
 * Queries and keys may be pieces: which positions are meant for causality, the mask and dropout is
 * counted from the first ones of the whole.
 */
typedef struct sherd__attending {
    int64_t batch, groups, repeat, queries, keys, width;
    double scale;
    bool causal;
    int64_t window; /* of causal: keys that a query sees, its own the last; 0 = all up to it */
    double softcap; /* scores become softcap tanh(score / softcap), before the mask; 0 = no */
    /* [queries of the piece,2]: query i sees the keys span[2i] .. span[2i+1] - 1 only, as they are
     * counted in the whole; neither falls from one to the next; NULL = all */
    const int32_t *span;
    int64_t span_batch; /* from one item's to the next: kernels get one item, unless it is 0 */
    int64_t first_query, first_key, all_queries, all_keys;
    const void *mask;       /* of the queries of the piece, and all keys; NULL = none */
    sherd_dtype mask_dtype; /* bool: false = not seen; else elements that are added to scores */
    int64_t mask_stride[5]; /* of [batch,groups,repeat,queries,keys]; 0 where it is stretched */
    double p; /* of dropout; an element of scores decides by its index in the whole tensor: */
    sherd__key key;
    int64_t first[3]; /* batch item, group and repeat that are the first here */
    int64_t all_heads, all_repeat;
} sherd__attending;

/*
 * Attention of one item's queries q [queries,groups,repeat,width] to a cache k, v
 * [keys,groups,width], positions key_row elements apart: query i sees the keys before[i] ..
 * seen[i]-1, none if there are none. Nothing that no query sees is read. In a cache of blocks,
 * [rows,groups,width], key j is row block[j / together] + j % together; results have the same bits
 * wherever the blocks lie.
 */
typedef struct sherd__cached {
    int64_t queries, groups, repeat, width;
    int64_t keys; /* that any query sees, at most */
    int64_t key_row;
    const int64_t *seen;   /* [queries] */
    const int64_t *before; /* [queries], at least 0; NULL = zeroes */
    double scale, softcap; /* the latter as above */
    const int64_t *block;  /* NULL: key j is row j */
    int64_t together;      /* keys of a block */
} sherd__cached;

/* The first key that any query sees. */
static inline int64_t sherd__cached_first(const sherd__cached *s)
{
    int64_t first = s->before ? s->keys : 0;

    for (int64_t i = 0; first > 0 && i < s->queries; i++)
        if (s->before[i] < s->seen[i] && s->before[i] < first)
            first = s->before[i];
    return first;
}

/* The row of a key. */
static inline int64_t sherd__cached_row(const sherd__cached *s, int64_t key)
{
    return s->block ? s->block[key / s->together] + key % s->together : key;
}

typedef struct sherd__adamw_step {
    double rate, beta1, beta2, eps, decay;
    double correction1, correction2; /* 1 - beta^t */
    double grad_scale;
    double l2; /* decay of Adam: added to the gradient, times p */
} sherd__adamw_step;

/* g = grad_scale grad + decay p; m = keep m + add g; p -= rate (nesterov ? g + momentum m : m).
 * Without m: p -= rate g. */
typedef struct sherd__sgd_step {
    double rate, decay, grad_scale;
    double keep, add; /* of m: momentum and 1 - dampening; 0 and 1 in the first step */
    double momentum;
    bool nesterov;
} sherd__sgd_step;

/* What a rank keeps of oneDNN: engine.h. */
typedef struct sherd__engine sherd__engine;

enum { SHERD__LINE = 64 /* bytes of a cache line */ };

typedef enum sherd__done {
    SHERD__DONE,
    SHERD__CANNOT,   /* nothing was computed: the plain way must */
    SHERD__NO_MEMORY /* likewise */
} sherd__done;

/* c[m,n] = op(a) op(b) + bias[n], row-major, sums in f32; ta: a is stored [k,m], tb: b is stored
 * [n,k]. */
typedef struct sherd__product {
    sherd_dtype dtype;  /* of a, b and bias */
    sherd_dtype result; /* of c: the same, or f32 where that has 16 bits */
    bool ta, tb, bias;
    bool adds; /* c += */
    int64_t m, n, k;
    int64_t a_row, b_row,
        c_row; /* from one row as stored to the next, elements; 0 = without gaps */
} sherd__product;

/* src[0] op src[1] op ..., n elements of each; `divisor` as in `reduce` below. */
typedef struct sherd__reduction {
    sherd_reduce_op op;
    int count;
    int64_t n;
    double divisor;
    const void *const *src;
} sherd__reduction;

struct sherd__conv;

/*
 * Rows of f32 and what is added to them, delta, of 16 bits: their sum, and its norm of 16 bits.
 * mean NULL: an RMS norm. weight, bias [cols] or NULL; mean, rstd [rows].
 */
typedef struct sherd__added_norm {
    const float *x, *weight, *bias;
    const void *delta;
    float *sum, *mean, *rstd;
    void *norm;
    double eps;
} sherd__added_norm;

/*
 * The gradient of rows that were added up and normed. dx [rows,cols] is what the norm's gradient dy
 * gives, and dsum (NULL: zeroes), that of the sum itself. ddelta is dx in 16 bits, in the tables of
 * these; the rest is f32 there. mean and dbias NULL: of an RMS norm. dweight, dbias [cols] (NULL =
 * not wanted) are overwritten, or if `add` added to.
 */
typedef struct sherd__added_grad {
    const void *dy, *sum, *dsum, *weight, *mean, *rstd;
    void *dx, *ddelta, *dweight, *dbias;
    bool add;
} sherd__added_grad;

typedef enum sherd__fft_kind {
    SHERD__FFT_COMPLEX,  /* n complex numbers to n */
    SHERD__FFT_TO_HALF,  /* n real ones to n / 2 + 1 complex ones: the others are conjugates */
    SHERD__FFT_FROM_HALF /* back: of the first, and of an even n the last, the real part counts */
} sherd__fft_kind;

/*
 * Fourier transforms along the middle of [outer, n, inner], n > 0: y[k] = scale times the sum over
 * j of x[j] e^(-2 pi i j k / n), and + where it is inverse, as FROM_HALF always is. Complex numbers
 * are pairs. Folded, as gradients are: each of the halves that has a conjugate counts once (FROM),
 * or is doubled (TO).
 */
typedef struct sherd__fft {
    sherd__fft_kind kind;
    bool inverse, folded;
    int64_t outer, n, inner;
    double scale;
} sherd__fft;

typedef struct sherd__kernels {
    const char *name;      /* "reference", "avx2", "avx512" */
    const char *gemm_name; /* "tiles", "reference"; oneDNN is in `product` of the set */

    /* dst[n] = src[n] as f32, and from f32 rounded to nearest, ties to even. */
    void (*widen)(int64_t n, float *dst, const void *src);
    void (*narrow)(int64_t n, void *dst, const float *src);

    /* c[m,n] = alpha op(a) op(b) + beta c; op(a) is [m,k], op(b) is [k,n]; ta: a is stored [k,m];
     * lda.. row strides. beta 0 does not read c. m, n or k may be 0. */
    void (*gemm)(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const void *a,
                 int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc);

    /*
     * Of 16 bits, by way of f32: sums are f32, each element of c is rounded once; NULL where that
     * is no faster than copies and the f32 product. m, n or k may be 0. workspace: so many bytes.
     * Of f32 only products that fit, where it is the fastest there is; product_fits is NULL in
     * other tables.
     */
    void (*product)(const sherd__product *p, void *c, const void *a, const void *b,
                    const void *bias, void *workspace);
    int64_t (*product_workspace)(const sherd__product *p);
    bool (*product_fits)(const sherd__product *p);

    /* Bytes that do not overlap, from cache to cache; NULL: memcpy is as fast. Only in the table of
     * f32. */
    void (*copy)(void *dst, const void *src, size_t bytes);

    /* dst[n] = src[0] op src[1] op ... in this order; count >= 1; avg divides by `divisor` at the
     * end (else ignored). 16-bit types accumulate in f32 and round at the end. dst may equal a
     * src. */
    void (*reduce)(sherd_reduce_op op, void *dst, const void *const *src, int count, int64_t n,
                   double divisor);
    /* The same to each of dst[copies], any of which may be an r->src; NULL: by `reduce` and
     * copies. */
    void (*reduce_spread)(const sherd__reduction *r, void *const *dst, int copies);
    /* That by streaming stores, to results that lie alike in cache lines; NULL: see stream.h. */
    void (*reduce_past)(const sherd__reduction *r, void *const *dst, int copies);

    /* dst contiguous of `size`; a and b with strides, 0 = broadcast. dst may equal a or b where
     * strides agree. */
    void (*binary)(sherd__binary_kind kind, int ndim, const int64_t *size, void *dst, const void *a,
                   const int64_t *a_stride, const void *b, const int64_t *b_stride);
    /* dst[n] = da (which = 0) or db of f(a, b), where dy lies as dst. dst may equal dy. */
    void (*binary_grad)(sherd__binary_kind kind, int which, int ndim, const int64_t *size,
                        void *dst, const void *dy, const void *a, const int64_t *a_stride,
                        const void *b, const int64_t *b_stride);
    /* dst[n] = f(src[n]), parameters as in functions.inc; NULL of a function without. dst may equal
     * src. */
    void (*unary)(sherd__unary_kind kind, int64_t n, void *dst, const void *src,
                  const double *parameter);
    /* dx[n] from dy[n], and from at[n]: x, y or NULL, as functions.inc says. dx may equal both. */
    void (*unary_grad)(sherd__unary_kind kind, int64_t n, void *dx, const void *at, const void *dy,
                       const double *parameter);
    /* dst[...] = 1 or 0, bool, as `binary`. */
    void (*compare)(sherd__compare_kind kind, int ndim, const int64_t *size, uint8_t *dst,
                    const void *a, const int64_t *a_stride, const void *b, const int64_t *b_stride);
    /* dst[n] = value */
    void (*fill)(void *dst, int64_t n, double value);

    /* dst[outer, inner] = sum over mid of src[outer, mid, inner] (+ what dst held, if add). */
    void (*sum)(void *dst, const void *src, int64_t outer, int64_t mid, int64_t inner, bool add);
    /* dst = dst op src, for each element of the contiguous src of `size`; dst has strides, 0 in
     * dims that are folded. */
    void (*fold)(sherd_reduce_op op, int ndim, const int64_t *size, void *dst,
                 const int64_t *dst_stride, const void *src);
    /* The same for the largest or least element and its index, first + the sum of index_stride; the
     * first one of equals. An index below 0: there is none yet. */
    void (*extreme)(bool least, int ndim, const int64_t *size, void *best,
                    const int64_t *best_stride, int64_t *index, const int64_t *index_stride,
                    int64_t first, const void *src);
    /* dst[n]: the index of the best of best[parts,n] with index[parts,n], the least one of
     * equals. */
    void (*extreme_join)(bool least, int64_t parts, int64_t n, int32_t *dst, const void *best,
                         const int64_t *index);

    /* Softmax of src[outer,mid,inner] over mid. Per [outer,inner], in f32 of 16-bit types: most =
     * the largest element, total = sum of exp(x - most); of nothing -inf and 0. */
    void (*soft_stats)(int64_t outer, int64_t mid, int64_t inner, void *most, void *total,
                       const void *src);
    /* Of stats[parts,2,n] (most, total): most[n] and total[n] of all parts. */
    void (*soft_join)(int64_t parts, int64_t n, void *most, void *total, const void *stats);
    void (*soft)(sherd__soft_kind kind, int64_t outer, int64_t mid, int64_t inner, void *dst,
                 const void *src, const void *most, const void *total);
    /* total[outer,inner] = sum over mid of dy y (softmax), or dy (its logarithm); then dx. */
    void (*soft_grad_sum)(sherd__soft_kind kind, int64_t outer, int64_t mid, int64_t inner,
                          void *total, const void *dy, const void *y);
    void (*soft_grad)(sherd__soft_kind kind, int64_t outer, int64_t mid, int64_t inner, void *dx,
                      const void *dy, const void *y, const void *total);
    /* dx = dy e^(src - log_sum), where dy and log_sum are [outer,inner]. */
    void (*soft_spread)(int64_t outer, int64_t mid, int64_t inner, void *dx, const void *src,
                        const void *log_sum, const void *dy);

    /* Sum of squares of src[n], in f64. */
    double (*sum_squares)(const void *src, int64_t n);

    /* y[rows,cols]; mean, rstd [rows]; weight, bias [cols] or NULL. */
    void (*layer_norm)(int64_t rows, int64_t cols, void *y, void *mean, void *rstd, const void *x,
                       const void *weight, const void *bias, double eps);
    /* dx [rows,cols]; dweight, dbias [cols] (NULL = not wanted, both or none) are overwritten, or
     * if `add` added to: so that rows that come in parts have the bits of all at once (not of 16
     * bits: each part is rounded). */
    void (*layer_norm_grad)(int64_t rows, int64_t cols, void *dx, void *dweight, void *dbias,
                            const void *dy, const void *x, const void *weight, const void *mean,
                            const void *rstd, bool add);

    /* y[rows,cols] = x rstd weight, with rstd[rows] = 1 / sqrt(mean of squares + eps); weight
     * [cols] or NULL. */
    void (*rms_norm)(int64_t rows, int64_t cols, void *y, void *rstd, const void *x,
                     const void *weight, double eps);
    /* dx [rows,cols]; dweight [cols] (NULL = not wanted) is overwritten, or added to. */
    void (*rms_norm_grad)(int64_t rows, int64_t cols, void *dx, void *dweight, const void *dy,
                          const void *x, const void *weight, const void *rstd, bool add);

    /* Of 16 bits: what f32's addition and norm of what is widened give, rounded. */
    void (*add_norm)(int64_t rows, int64_t cols, const sherd__added_norm *p);
    /* Same bits as by the gradient of a norm, an addition, and a conversion. */
    void (*add_norm_grad)(int64_t rows, int64_t cols, const sherd__added_grad *p);

    /* y[n,width] = weight[ids[i]-first] where 0 <= ids[i]-first < entries, else zeroes. */
    void (*embedding)(int64_t n, int64_t width, void *y, const void *weight, const int32_t *ids,
                      int64_t first, int64_t entries);
    /* dweight[entries,width] is overwritten: row r = sum of dy[i] with ids[i]-first == r, as `sum`
     * adds. `scratch`: of 16 bits entries + n numbers; of f32, n > 64, sherd__places_bytes. */
    void (*embedding_grad)(int64_t n, int64_t width, void *dweight, const void *dy,
                           const int32_t *ids, int64_t first, int64_t entries, int64_t *scratch);

    /* dst[i] = keep(first+i) ? src[i] / (1-p) : 0, where keep(j) = uniform(j) >= p; see
     * base/philox.h. dst may equal src. */
    void (*dropout)(int64_t n, void *dst, const void *src, double p, sherd__key key, int64_t first);
    /* dst[i] = low + (high-low) uniform(first+i). */
    void (*uniform)(int64_t n, void *dst, double low, double high, sherd__key key, int64_t first);
    /* dst[i] = mean + deviation * normal(first+i): Box-Muller of words (0,1) and (2,3) of a
     * block. */
    void (*normal)(int64_t n, void *dst, double mean, double deviation, sherd__key key,
                   int64_t first);

    /* out as q; log_sum [batch,groups,repeat,queries]: log of the sum of exp(scores). */
    void (*attention)(const sherd__attending *s, void *out, void *log_sum, const void *q,
                      const void *k, const void *v, void *workspace);
    /*
     * `out` and log_sum are over all keys, though only a part of them may be here. dout, dlog_sum:
     * NULL = zeroes. dmask, f64, as the mask lies, is added to; NULL = not wanted.
     */
    void (*attention_grad)(const sherd__attending *s, void *dq, void *dk, void *dv, double *dmask,
                           const void *dout, const void *dlog_sum, const void *q, const void *k,
                           const void *v, const void *out, const void *log_sum, void *workspace);
    /* Elements of workspace that attention and attention_grad need. */
    int64_t (*attention_workspace)(const sherd__attending *s);
    /*
     * The same for few queries, where reading keys and values is what takes time: each is read
     * once, where it lies. out as q and log_sum [groups,repeat,queries] are f32 of 16-bit types. A
     * query has the same bits whatever others there are, and a head whatever heads. workspace: so
     * many bytes.
     */
    void (*attention_cached)(const sherd__cached *s, void *out, void *log_sum, const void *q,
                             const void *k, const void *v, void *workspace);
    int64_t (*attention_cached_workspace)(const sherd__cached *s);
    /* f32 and f64: results over two sets of keys become that over both, in the place of the
     * first. */
    void (*attention_join)(const sherd__attending *s, void *out, void *log_sum, const void *more,
                           const void *more_log_sum);

    /* Of logits[rows,cols], the classes first..first+cols: stats[3,rows] = max, sum of exp(l -
     * max), logit of the target (0 if it is not here). The sum is 0 of an empty range, and where
     * all are -inf: classes elsewhere may be finite. */
    void (*cross_entropy)(int64_t rows, int64_t cols, void *stats, const void *logits,
                          const int32_t *targets, int64_t first);
    /* Join stats[parts,3,rows]: sums[rows,2] = max, sum of exp(l - max) over all classes; in one
     * number the digits of the sum would be lost beside a large maximum. Returns the sum over rows
     * of max + log(sum) - logit of the target. */
    double (*cross_entropy_join)(int64_t parts, int64_t rows, double *sums, const void *stats);
    /* dlogits = (exp(l - max) / sum - [class == target]) * scale. */
    void (*cross_entropy_grad)(int64_t rows, int64_t cols, void *dlogits, const void *logits,
                               const int32_t *targets, int64_t first, const double *sums,
                               double scale);

    void (*adamw)(int64_t n, void *p, void *m, void *v, const void *grad,
                  const sherd__adamw_step *step);
    /* m may be NULL. */
    void (*sgd)(int64_t n, void *p, void *m, const void *grad, const sherd__sgd_step *step);

    /* Errors grow as log n. workspace: so many bytes. NULL of 16 bits, as the next two. */
    void (*fft)(const sherd__fft *t, void *dst, const void *src, void *workspace);
    int64_t (*fft_workspace)(const sherd__fft *t);
    /* dst = a b, or a times the conjugate of b: pairs, contiguous of `size`; a and b with strides,
     * from one real part to the next, 0 = broadcast. */
    void (*complex_mul)(bool conj, int ndim, const int64_t *size, void *dst, const void *a,
                        const int64_t *a_stride, const void *b, const int64_t *b_stride);

    /*
     * The gradient of a convolution's weight, dw, of f32; plain: sherd__conv_plain. x and dy lie in
     * blocks of conv_block channels, [batch, channels / block, space, block], which those are
     * multiples of; groups is 1. sums: workspace of as many floats as dw. NULL, and 0: there is
     * none, or oneDNN's is faster.
     */
    void (*conv_weight)(const struct sherd__conv *c, float *dw, const float *x, const float *dy,
                        float *sums);
    int64_t conv_block;
} sherd__kernels;

/*
 * Attention of bf16 by a CPU that multiplies it, in tiles or pairs: contract of `attention` and
 * `attention_grad`, where it does not say that it can not. That is so for pieces of sequences,
 * masks and dropout. workspace: so many bytes.
 */
typedef struct sherd__attention_tiles {
    int64_t (*bytes)(const sherd__attending *s);
    sherd__done (*attention)(const sherd__attending *s, void *out, float *log_sum, const void *q,
                             const void *k, const void *v, void *workspace);
    sherd__done (*attention_grad)(const sherd__attending *s, void *dq, void *dk, void *dv,
                                  const void *dout, const void *q, const void *k, const void *v,
                                  const void *out, const float *log_sum, void *workspace);
    bool (*fits)(const sherd__attending *s); /* whether they can */
} sherd__attention_tiles;

/* What a machine can do, found once per world. In the environment
 * `SHERD_KERNELS=reference|simd128|avx2|avx512|avx512_bf16|amx` and
 * `SHERD_GEMM=reference|tiles|onednn` choose less than what there is. */
typedef struct sherd__kernel_set {
    sherd__kernels f32, f64, bf16, f16;
    /* Products by oneDNN (engine.h), which may say that it can not; NULL where it is not wanted. */
    sherd__done (*product)(sherd__engine *engine, const sherd__product *p, void *c, const void *a,
                           const void *b, const void *bias);
    /* Whether it does one, as far as its shape says; NULL beside NULL. */
    bool (*multiplies)(sherd__engine *engine, const sherd__product *p);
    /* bf16 is left to `product` first, because the machine multiplies it faster than f32, and the
     * table does not: a function of the CPU, so that ranks of a machine compute the same bits. */
    bool bf16_products;
    const sherd__attention_tiles *tiles; /* NULL: the machine has none */
} sherd__kernel_set;

/* soft_grad_sum and soft_grad of rows that nobody else has a part of, none empty, a few at a time:
 * the latter finds them in the cache. `total` is room for [outer,inner]. */
void sherd__soft_grad_whole(const sherd__kernels *k, size_t element_bytes, sherd__soft_kind kind,
                            int64_t outer, int64_t mid, int64_t inner, void *dx, const void *dy,
                            const void *y, void *total);

/* Copy a box, any dtype: size[ndim], strides in elements. Streams past the cache where the box is
 * large. */
void sherd__copy_box(size_t element_bytes, int ndim, const int64_t *size, void *dst,
                     const int64_t *dst_stride, const void *src, const int64_t *src_stride);

/* The same for one of several parts that fill `whole_bytes`: streams where all of them together are
 * large. */
void sherd__copy_part(size_t element_bytes, int ndim, const int64_t *size, void *dst,
                      const int64_t *dst_stride, const void *src, const int64_t *src_stride,
                      int64_t whole_bytes);

/* dst = mask ? a : b, any dtype; dst contiguous of `size`, the others with strides, 0 =
 * broadcast. */
void sherd__pick_box(size_t element_bytes, int ndim, const int64_t *size, void *dst,
                     const uint8_t *mask, const int64_t *mask_stride, const void *a,
                     const int64_t *a_stride, const void *b, const int64_t *b_stride);

/* Row-major strides of a contiguous box. */
void sherd__row_major(int ndim, const int64_t *size, int64_t *stride);

#endif
