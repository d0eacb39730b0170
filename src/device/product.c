/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products, by cuBLAS, which is started by the first one. It stores columns where sherd
 * stores rows, so it computes c^T = b^T a^T, and nothing is turned. A bias is added by
 * biased.c, or else it is what c begins with, and the product is added to it: either way each
 * element is rounded once.
 */
#include "product.h"
#include "biased.h"

#include <limits.h>

/* For each matrix as stored: elements from one row to the next, and from one matrix to the next. */
typedef struct steps {
    int64_t a, b, c, all_a, all_b, all_c;
} steps;

static steps steps_of(const sherd__product *p)
{
    int64_t a_rows = p->ta ? p->k : p->m, b_rows = p->tb ? p->n : p->k;
    steps s = {.a = p->a_row ? p->a_row
                    : p->ta  ? p->m
                             : p->k,
               .b = p->b_row ? p->b_row
                    : p->tb  ? p->k
                             : p->n,
               .c = p->c_row ? p->c_row : p->n};

    s.all_a = a_rows * s.a;
    s.all_b = b_rows * s.b;
    s.all_c = p->m * s.c;
    return s;
}

/* Sums of 16-bit types are not rounded to them on the way. TF32 is never used unless it is asked
 * for. */
static bool start(sherd__device *device)
{
    const sherd__cuda *cuda = &device->cuda;
    cublasHandle_t blas = NULL;

    if (device->blas)
        return true;
    int result = cuda->blas_create(&blas);
    if (result)
        return sherd__cublas_good(device, result, "starting cuBLAS");
    result = cuda->blas_stream(blas, device->stream);
    if (!result)
        result = cuda->blas_math(blas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (result)
        cuda->blas_destroy(blas);
    else
        device->blas = blas;
    return sherd__cublas_good(device, result, "starting cuBLAS");
}

void sherd__device_free_products(sherd__device *device)
{
    if (device->blas && !device->deserted)
        device->cuda.blas_destroy(device->blas);
}

/* ---- what c begins with ---------------------------------------------------------------------- */

static void begin_zero(sherd__device *device, const sherd__product *p, int64_t times, void *c,
                       const steps *s)
{
    int64_t size[] = {times, p->m, p->n}, stride[] = {s->all_c, s->c, 1}, zero = 0;

    sherd__device_fill_box(device, sherd_dtype_bytes(p->result), 3, size, c, stride, &zero);
}

/* The bias, of the result's dtype, or added to what is there. */
static void begin_bias(sherd__device *device, const sherd__product *p, int64_t times, void *c,
                       const steps *s, const void *bias)
{
    int64_t size[] = {times, p->m, p->n}, stride[] = {s->all_c, s->c, 1};
    int64_t from[2][SHERD_MAX_DIMS] = {{s->all_c, s->c, 1}, {0, 0, 1}};
    const void *src[] = {c, bias};

    if (p->adds)
        sherd__device_reduce(device, p->result, SHERD_SUM, 3, size, c, stride, 2, src,
                             (const int64_t(*)[SHERD_MAX_DIMS])from, 1);
    else
        sherd__device_copy_box(device, sherd_dtype_bytes(p->result), 3, size, c, stride, bias,
                               from[1]);
}

/* The same, with the bias in the operands' dtype. */
static void begin(sherd__device *device, const sherd__product *p, int64_t times, void *c,
                  const steps *s, const void *bias)
{
    if (p->dtype == p->result) {
        begin_bias(device, p, times, c, s, bias);
        return;
    }
    int64_t bytes = p->n * (int64_t)sherd_dtype_bytes(p->result);
    sherd__device_block *room = sherd__device_take(device, bytes);
    if (!room) {
        sherd__device_lack(device, "out of GPU memory for a bias");
        return;
    }
    sherd__device_convert(device, p->result, p->dtype, p->n, room->data, bias);
    begin_bias(device, p, times, c, s, room->data);
    sherd__device_give(device, room);
}

/* ---- the product ----------------------------------------------------------------------------- */

static bool fits(const sherd__product *p, int64_t times, const steps *s)
{
    return p->m <= INT_MAX && p->n <= INT_MAX && p->k <= INT_MAX && times <= INT_MAX &&
           s->a <= INT_MAX && s->b <= INT_MAX && s->c <= INT_MAX;
}

bool sherd__device_multiplies(const sherd__product *p, int64_t times)
{
    const steps s = steps_of(p);

    return fits(p, times, &s);
}

/* c = a b, or if it adds, c += a b. */
static int multiply(sherd__device *device, const sherd__product *p, int64_t times, const steps *s,
                    bool adds, void *c, const void *a, const void *b)
{
    const sherd__cuda *cuda = &device->cuda;
    const double alpha64 = 1, beta64 = adds;
    const float alpha32 = 1, beta32 = adds;
    bool wide = p->dtype == SHERD_F64;
    const void *alpha = wide ? (const void *)&alpha64 : &alpha32;
    const void *beta = wide ? (const void *)&beta64 : &beta32;
    cublasComputeType_t sums = wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
    cublasOperation_t ta = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                      tb = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cudaDataType_t type = sherd__cuda_type(p->dtype), to = sherd__cuda_type(p->result);
    int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    int lda = (int)s->a, ldb = (int)s->b, ldc = (int)s->c;

    if (times == 1)
        return cuda->multiply(device->blas, tb, ta, n, m, k, alpha, b, type, ldb, a, type, lda,
                              beta, c, to, ldc, sums, CUBLAS_GEMM_DEFAULT);
    return cuda->multiply_each(device->blas, tb, ta, n, m, k, alpha, b, type, ldb, s->all_b, a,
                               type, lda, s->all_a, beta, c, to, ldc, s->all_c, (int)times, sums,
                               CUBLAS_GEMM_DEFAULT);
}

void sherd__device_multiply(sherd__device *device, const sherd__product *p, int64_t times, void *c,
                            const void *a, const void *b, const void *bias)
{
    const steps s = steps_of(p);

    sherd__cuda_enter(device);
    if (device->failed || p->m <= 0 || p->n <= 0 || times <= 0)
        return;
    if (!fits(p, times, &s)) {
        sherd__device_fail(device, "a product of [%lld,%lld] and [%lld,%lld] is too large",
                           (long long)p->m, (long long)p->k, (long long)p->k, (long long)p->n);
        return;
    }
    if (bias && times == 1 &&
        sherd__device_multiply_biased(device, p, &(sherd__leads){s.a, s.b, s.c}, c, a, b, bias))
        return;
    if (bias)
        begin(device, p, times, c, &s, bias);
    else if (p->k == 0 && !p->adds)
        begin_zero(device, p, times, c, &s);
    if (p->k == 0 || device->failed || !start(device))
        return;
    sherd__cublas_good(device, multiply(device, p, times, &s, bias || p->adds, c, a, b),
                       "a product");
}
