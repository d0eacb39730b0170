/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated cuBLAS: products by plain loops, column by column as the real one stores them, sums
 * in f32, or f64 of f64. */
#include "driver.h"
#include "grid.h"

#include "programs/numbers.cuh"

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
    wait_for_context();
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

/* ---- cuBLASLt: a product with a bias --------------------------------------------------------- */

struct cublasLtContext {
};
struct cublasLtMatmulDescOpaque_t {
    cublasOperation_t ta, tb;
    int epilogue;
    const void *bias;
};
struct cublasLtMatrixLayoutOpaque_t {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t lead;
};
struct cublasLtMatmulPreferenceOpaque_t {
    uint64_t workspace;
};

enum { WORKSPACE = 512 }; /* of every product, so that what is taken for it is seen */

/* Makes what there must be one of in the end. */
template <class T> static int make(T **out, T what)
{
    if (call_fails())
        return failure(CUBLAS_STATUS_ALLOC_FAILED);
    *out = new T(what);
    handles++;
    return 0;
}
template <class T> static int unmake(T *what)
{
    delete what;
    handles--;
    return 0;
}

EXPORT int cublasLtCreate(cublasLtHandle_t *out)
{
    return make(out, cublasLtContext{});
}
EXPORT int cublasLtDestroy(cublasLtHandle_t handle)
{
    wait_for_context();
    return unmake(handle);
}
EXPORT int cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                    cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return STATUS_NOT_SUPPORTED;
    return make(out, cublasLtMatmulDescOpaque_t{CUBLAS_OP_N, CUBLAS_OP_N, 1, nullptr});
}
EXPORT int cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    return unmake(product);
}
EXPORT int cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, int which,
                                          const void *value, size_t bytes)
{
    if (bytes != (which == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? 8 : 4))
        return STATUS_INVALID_VALUE;
    if (which == CUBLASLT_MATMUL_DESC_TRANSA)
        product->ta = *static_cast<const cublasOperation_t *>(value);
    else if (which == CUBLASLT_MATMUL_DESC_TRANSB)
        product->tb = *static_cast<const cublasOperation_t *>(value);
    else if (which == CUBLASLT_MATMUL_DESC_EPILOGUE)
        product->epilogue = *static_cast<const int *>(value);
    else if (which == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        product->bias = *static_cast<const void *const *>(value);
    else
        return STATUS_INVALID_VALUE;
    return 0;
}
EXPORT int cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                      uint64_t rows, uint64_t cols, int64_t lead)
{
    return make(out, cublasLtMatrixLayoutOpaque_t{type, rows, cols, lead});
}
EXPORT int cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return unmake(layout);
}
EXPORT int cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    return make(out, cublasLtMatmulPreferenceOpaque_t{0});
}
EXPORT int cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t wish)
{
    return unmake(wish);
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish, int which,
                                                const void *value, size_t bytes)
{
    if (bytes != (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4))
        return STATUS_INVALID_VALUE;
    if (bytes == 8)
        wish->workspace = *static_cast<const uint64_t *>(value);
    return 0;
}

/* No algorithm for a product of one column, so that there is such a case. */
EXPORT int cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                          cublasLtMatmulPreference_t wish, int wanted,
                                          sherd__matmul_choice *choice, int *found)
{
    if (call_fails())
        return failure(CUBLAS_STATUS_ALLOC_FAILED);
    if (product->epilogue != CUBLASLT_EPILOGUE_BIAS || wish->workspace < WORKSPACE || wanted < 1)
        return STATUS_INVALID_VALUE;
    *found = d->rows > 1;
    *choice = sherd__matmul_choice{{1}, WORKSPACE, 0, 1, {0}};
    return *found ? 0 : STATUS_NOT_SUPPORTED;
}

static void fill_columns(const matrix &c, const matrix &bias, uint64_t rows, uint64_t cols)
{
    for (uint64_t j = 0; j < cols; j++)
        for (uint64_t i = 0; i < rows; i++)
            write(c, static_cast<long long>(i) + static_cast<long long>(j) * c.ld,
                  read(bias, static_cast<long long>(i)));
}

EXPORT int cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void *alpha,
                          const void *a, cublasLtMatrixLayout_t of_a, const void *b,
                          cublasLtMatrixLayout_t of_b, const void *beta, const void *,
                          cublasLtMatrixLayout_t, void *d, cublasLtMatrixLayout_t of_d,
                          const uint64_t *algorithm, void *workspace, size_t bytes, CUstream stream)
{
    const float one = 1;
    cublasContext handle = {stream};
    const matrix c = {d, of_d->type, of_d->lead, 0, false},
                 bias = {product->bias, of_d->type, 0, 0, false};
    uint64_t m = of_d->rows, n = of_d->cols;

    if (bytes < WORKSPACE || !is_device_memory(workspace, WORKSPACE) || *algorithm != 1 ||
        *static_cast<const float *>(alpha) != 1 || *static_cast<const float *>(beta) != 0 ||
        !is_device_memory(bias.data, static_cast<long long>(m) * bytes_of(bias.type)) ||
        !is_good(c, static_cast<long long>(m), static_cast<long long>(n), 1))
        return STATUS_INVALID_VALUE;
    if (!queue_work(stream, [=] { fill_columns(c, bias, m, n); }))
        return STATUS_INVALID_VALUE;
    uint64_t k = product->ta == CUBLAS_OP_T ? of_a->rows : of_a->cols;
    return cublasGemmEx(&handle, product->ta, product->tb, static_cast<int>(m), static_cast<int>(n),
                        static_cast<int>(k), alpha, a, of_a->type, static_cast<int>(of_a->lead), b,
                        of_b->type, static_cast<int>(of_b->lead), &one, d, of_d->type,
                        static_cast<int>(of_d->lead), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
