/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated cuBLAS: products by plain loops, column by column as the real one stores them, sums
 * in f32, or f64 of f64. */
#include "driver.h"
#include "grid.h"

#include "device/numbers.cuh"

#include <atomic>

struct cublasContext {
    CUstream stream;
};

enum { STATUS_INVALID_VALUE = 7, STATUS_NOT_SUPPORTED = 15 };

static std::atomic<int> handles;

int blas_left()
{
    return handles;
}

EXPORT int cublasCreate_v2(cublasHandle_t *out)
{
    if (call_fails())
        return failure(CUBLAS_STATUS_ALLOC_FAILED);
    *out = new cublasContext{nullptr};
    handles++;
    return 0;
}

EXPORT int cublasDestroy_v2(cublasHandle_t handle)
{
    delete handle;
    handles--;
    return 0;
}

EXPORT int cublasSetStream_v2(cublasHandle_t handle, CUstream stream)
{
    if (call_fails())
        return failure(CUBLAS_STATUS_ALLOC_FAILED);
    handle->stream = stream;
    return 0;
}

EXPORT int cublasSetMathMode(cublasHandle_t, int mode)
{
    if (call_fails())
        return failure(CUBLAS_STATUS_ALLOC_FAILED);
    return mode == CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION ? 0 : STATUS_INVALID_VALUE;
}

struct matrix {
    const void *data;
    cudaDataType_t type;
    long long ld, stride;
    bool turned;
};

static long long bytes_of(cudaDataType_t type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

static double read(const matrix &m, long long at)
{
    switch (m.type) {
    case CUDA_R_64F:
        return static_cast<const f64 *>(m.data)[at];
    case CUDA_R_32F:
        return static_cast<const f32 *>(m.data)[at];
    case CUDA_R_16F:
        return get(static_cast<const f16 *>(m.data)[at]);
    default:
        return get(static_cast<const bf16 *>(m.data)[at]);
    }
}

static void write(const matrix &m, long long at, double x)
{
    void *data = const_cast<void *>(m.data);

    if (m.type == CUDA_R_64F)
        static_cast<f64 *>(data)[at] = x;
    else if (m.type == CUDA_R_32F)
        static_cast<f32 *>(data)[at] = static_cast<float>(x);
    else if (m.type == CUDA_R_16F)
        static_cast<f16 *>(data)[at] = put<f16>(static_cast<float>(x));
    else
        static_cast<bf16 *>(data)[at] = put<bf16>(static_cast<float>(x));
}

/* Element [row, column] of op(m). */
static double element(const matrix &m, long long which, long long row, long long column)
{
    return read(m, which * m.stride + (m.turned ? column + row * m.ld : row + column * m.ld));
}

/* A sum of zeros has their sign, as it may have in cuBLAS. */
template <class S> static S dot(const matrix &a, const matrix &b, const long long at[3], int k)
{
    S sum = -S{0};

    for (int i = 0; i < k; i++)
        sum += static_cast<S>(element(a, at[0], at[1], i)) *
               static_cast<S>(element(b, at[0], i, at[2]));
    return sum;
}

struct product {
    matrix a, b, c;
    int m, n, k, times;
    double alpha, beta;
};

static void multiply(const product &p)
{
    bool wide = p.c.type == CUDA_R_64F;

    for (long long t = 0; t < p.times; t++)
        for (long long j = 0; j < p.n; j++)
            for (long long i = 0; i < p.m; i++) {
                const long long at[] = {t, i, j}, to = t * p.c.stride + i + j * p.c.ld;
                double sum = wide ? dot<double>(p.a, p.b, at, p.k)
                                  : static_cast<double>(dot<float>(p.a, p.b, at, p.k));
                write(p.c, to, p.alpha * sum + (p.beta != 0 ? p.beta * read(p.c, to) : -0.0));
            }
}

/* Whether all that a matrix has, as stored, is memory of the GPU, and rows follow one another. */
static bool is_good(const matrix &m, long long rows, long long columns, long long times)
{
    long long high = m.turned ? columns : rows, wide = m.turned ? rows : columns;
    long long last = (times - 1) * m.stride + (wide - 1) * m.ld + high;

    return m.ld >= (high > 1 ? high : 1) &&
           (rows == 0 || columns == 0 || is_device_memory(m.data, last * bytes_of(m.type)));
}

EXPORT int cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta,
                                      cublasOperation_t tb, int m, int n, int k, const void *alpha,
                                      const void *a, cudaDataType_t a_type, int lda,
                                      long long a_stride, const void *b, cudaDataType_t b_type,
                                      int ldb, long long b_stride, const void *beta, void *c,
                                      cudaDataType_t c_type, int ldc, long long c_stride, int times,
                                      cublasComputeType_t compute, int)
{
    product p = {{a, a_type, lda, a_stride, ta == CUBLAS_OP_T},
                 {b, b_type, ldb, b_stride, tb == CUBLAS_OP_T},
                 {c, c_type, ldc, c_stride, false},
                 m,
                 n,
                 k,
                 times,
                 0,
                 0};

    if (call_fails())
        return failure(CUBLAS_STATUS_ALLOC_FAILED);
    bool wide = c_type == CUDA_R_64F;
    if (a_type != b_type || (a_type != c_type && (c_type != CUDA_R_32F || a_type == CUDA_R_64F)) ||
        compute != (wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F))
        return STATUS_NOT_SUPPORTED;
    if (m < 0 || n < 0 || k < 0 || times < 0 || !is_good(p.a, m, k, times) ||
        !is_good(p.b, k, n, times) || !is_good(p.c, m, n, times))
        return STATUS_INVALID_VALUE;
    p.alpha = wide ? *static_cast<const double *>(alpha)
                   : static_cast<double>(*static_cast<const float *>(alpha));
    p.beta = wide ? *static_cast<const double *>(beta)
                  : static_cast<double>(*static_cast<const float *>(beta));
    return queue_work(handle->stream, [p] { multiply(p); }) ? 0 : STATUS_INVALID_VALUE;
}

EXPORT int cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m,
                        int n, int k, const void *alpha, const void *a, cudaDataType_t a_type,
                        int lda, const void *b, cudaDataType_t b_type, int ldb, const void *beta,
                        void *c, cudaDataType_t c_type, int ldc, cublasComputeType_t compute,
                        int how)
{
    return cublasGemmStridedBatchedEx(handle, ta, tb, m, n, k, alpha, a, a_type, lda, 0, b, b_type,
                                      ldb, 0, beta, c, c_type, ldc, 0, 1, compute, how);
}
