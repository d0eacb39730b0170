/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is used of CUDA: its types and constants under their own names, as its documentation has
 * them, and its functions as pointers. Nothing of CUDA's own headers is needed to build sherd;
 * load.c finds the functions when a world asks for a GPU.
 */
#ifndef SHERD__DEVICE_CUDA_H
#define SHERD__DEVICE_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct _nvrtcProgram *nvrtcProgram;
typedef struct cublasContext *cublasHandle_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct *cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct *cudnnConvolutionDescriptor_t;

/* What another process opens a piece of memory, or an event, by. */
enum { SHERD__HANDLE_WORDS = 8 };
typedef struct sherd__cuda_handle {
    int64_t word[SHERD__HANDLE_WORDS];
} sherd__cuda_handle;

/* All functions return one of these, 0 if all is well. */
typedef enum sherd__cuda_result {
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704
} sherd__cuda_result;

/* Theirs for lack of memory. */
enum { NVRTC_ERROR_OUT_OF_MEMORY = 1, CUBLAS_STATUS_ALLOC_FAILED = 3 };

enum { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75 };
enum { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76 };
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_DISABLE_TIMING = 2, CU_EVENT_INTERPROCESS = 4 };
enum { CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 };
enum { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

/* In the list of what comes with a launch; these words, as pointers. */
enum { CU_LAUNCH_PARAM_END, CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE };

typedef enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
typedef enum cudaDataType_t {
    CUDA_R_32F = 0,
    CUDA_R_64F = 1,
    CUDA_R_16F = 2,
    CUDA_R_16BF = 14
} cudaDataType_t;
typedef enum cublasComputeType_t {
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_64F = 70
} cublasComputeType_t;
enum { CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };
enum { CUBLAS_GEMM_DEFAULT = -1 };

/* Of cuBLASLt: what is said of a product, and of the algorithm that is wanted. */
enum {
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8
};
enum { CUBLASLT_EPILOGUE_BIAS = 4 };
enum { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 };
enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5 /* then those of b, c, d */
};
/* cublasLtMatmulHeuristicResult_t */
typedef struct sherd__matmul_choice {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state; /* 0: it works */
    float waves;
    int reserved[4];
} sherd__matmul_choice;
/* cuDNN 8 and 9, whose statuses differ; 9 tells the CPU's memory from the GPU's, and has a thousand
 * of a kind. */
enum {
    CUDNN_STATUS_NOT_SUPPORTED_8 = 9,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    CUDNN_STATUSES = 1000,
    CUDNN_STATUS_ALLOC_FAILED_8 = 2,
    CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003,
    CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004
};
typedef enum cudnnDataType_t {
    CUDNN_DATA_FLOAT = 0,
    CUDNN_DATA_DOUBLE = 1,
    CUDNN_DATA_HALF = 2,
    CUDNN_DATA_BFLOAT16 = 9
} cudnnDataType_t;
typedef enum cudnnTensorFormat_t { CUDNN_TENSOR_NCHW = 0 } cudnnTensorFormat_t;
typedef enum cudnnConvolutionMode_t { CUDNN_CROSS_CORRELATION = 1 } cudnnConvolutionMode_t;
typedef enum cudnnMathType_t {
    CUDNN_DEFAULT_MATH = 0,
    CUDNN_TENSOR_OP_MATH = 1,
    CUDNN_FMA_MATH = 3 /* not TF32 */
} cudnnMathType_t;
enum { CUDNN_DETERMINISTIC = 1 };

/* cudnnConvolutionFwdAlgoPerf_t, BwdDataAlgoPerf_t and BwdFilterAlgoPerf_t, which are alike. */
typedef struct sherd__dnn_way {
    int algo, status;
    float time;
    size_t memory;
    int determinism;
    cudnnMathType_t mathType;
    int reserved[3];
} sherd__dnn_way;

enum { CUFFT_ALLOC_FAILED = 2, CUFFT_FORWARD = -1, CUFFT_INVERSE = 1 };
typedef int cufftHandle;
typedef enum cufftType_t {
    CUFFT_R2C = 0x2a,
    CUFFT_C2R = 0x2c,
    CUFFT_C2C = 0x29,
    CUFFT_D2Z = 0x6a,
    CUFFT_Z2D = 0x6c,
    CUFFT_Z2Z = 0x69
} cufftType;

/* The functions, from the rows of cuda_calls.inc. */
typedef struct sherd__cuda {
#define CALL(library, name, symbol, ...) int (*name)(__VA_ARGS__);
#include "cuda_calls.inc"
#undef CALL
} sherd__cuda;

#endif
