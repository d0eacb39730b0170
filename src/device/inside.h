/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the files that know CUDA: the device itself, and how its calls fail. */
#ifndef SHERD__DEVICE_INSIDE_H
#define SHERD__DEVICE_INSIDE_H

#include "cuda.h"
#include "device.h"
#include "base/map.h"

/* The driver, NVRTC, cuBLAS; what is loaded when it is wanted. */
enum { SHERD__CUDNN = 3, SHERD__CUFFT, SHERD__CUDA_LIBRARIES };

/*
 * Free blocks of a pool by size: the sizes from one power of two (of 256 bytes) to the next are
 * divided into 16 equal parts, a list each; bits tell which lists have blocks.
 */
enum { SHERD__DEVICE_PARTS = 16, SHERD__DEVICE_POWERS = 40 };

typedef struct sherd__device_pool {
    int64_t next; /* bytes of the next chunk */
    uint64_t powers;
    uint16_t parts[SHERD__DEVICE_POWERS];
    sherd__device_block *free[SHERD__DEVICE_POWERS][SHERD__DEVICE_PARTS];
} sherd__device_pool;

/* A piece of the GPU's memory as the driver gave it. */
typedef struct sherd__chunk {
    struct sherd__chunk *next;
    CUdeviceptr data;
    int64_t bytes;
    sherd__device_pool *pool;   /* that its blocks belong to */
    sherd__device_block *first; /* the others follow it, without gaps */
    bool shared;                /* other ranks know it: it stays until the end */
    bool has_handle;
    sherd__cuda_handle handle;
} sherd__chunk;

/* Small blocks would break up the chunks that large ones need. */
enum { SHERD__SMALL_POOL, SHERD__LARGE_POOL, SHERD__DEVICE_POOLS };

typedef struct sherd__device_kernel sherd__device_kernel; /* program.c */

struct sherd__device {
    sherd__heap *heap;
    sherd__cuda cuda;
    void *library[SHERD__CUDA_LIBRARIES];
    bool not_there[SHERD__CUDA_LIBRARIES]; /* it was wanted */
    int number;
    CUdevice handle;
    CUcontext context; /* NULL until it is retained, as what follows */
    CUstream stream;
    char name[24], model[256];
    bool failed;
    bool lacks;    /* something was not queued for lack of memory */
    bool awaits;   /* marks of other processes, which may end before they reach them: */
    bool deserted; /* they have; what is queued will never be done, and stays */
    bool (*is_over)(const void *of);
    const void *over_of;
    char fault[SHERD_ERROR_BYTES], lack[128];

    sherd__chunk *chunks;
    sherd__device_pool pool[SHERD__DEVICE_POOLS];
    sherd__stock blocks;
    sherd__device_memory memory;

    CUevent mark[SHERD__DEVICE_MARKS];
    bool mark_is_shared[SHERD__DEVICE_MARKS]; /* the driver has a handle of it */
    sherd__cuda_handle mark_handle[SHERD__DEVICE_MARKS];
    sherd__map opened; /* what was opened of other processes */
    uint64_t reached;  /* GPUs whose memory this one may read, a bit each */

    int architecture; /* 90 is sm_90 */
    bool by_ptx;      /* the compiler does not know it: the driver goes on from there */
    sherd__map kernels;

    cublasHandle_t blas;
    struct sherd__biased *biased; /* biased.c; NULL: not started */
    cudnnHandle_t dnn;
    sherd__map convolutions; /* dnn.c */
    sherd__map transforms;   /* fourier.c */
};

/* Find the libraries and all their functions; ENOTSUP, with a text. What was found is closed by
 * unload, also after a failure. */
sherd_status sherd__cuda_load(sherd__device *device, sherd__diag *diag);
void sherd__cuda_unload(sherd__device *device);
/* Find SHERD__CUDNN or SHERD__CUFFT, once. False: it is not there. */
bool sherd__cuda_load_more(sherd__device *device, int which);

/* What the driver calls a failure. */
const char *sherd__cuda_text(const sherd__device *device, int result);
/* Whether a call of the driver went well; otherwise that is noted as a failure, or as lack of
 * memory, with what was to be done. */
bool sherd__cuda_good(sherd__device *device, int result, const char *what);

/* At the end; each may be called of a device that was never finished. */
void sherd__device_free_memory(sherd__device *device);
void sherd__device_free_peers(sherd__device *device);
void sherd__device_free_programs(sherd__device *device);
void sherd__device_free_products(sherd__device *device);
void sherd__device_free_biased(sherd__device *device);

/* CUDA's name of a dtype that products have. */
static inline cudaDataType_t sherd__cuda_type(sherd_dtype dtype)
{
    return dtype == SHERD_F64    ? CUDA_R_64F
           : dtype == SHERD_F32  ? CUDA_R_32F
           : dtype == SHERD_BF16 ? CUDA_R_16BF
                                 : CUDA_R_16F;
}

/* As sherd__cuda_good, of cuBLAS. */
bool sherd__cublas_good(sherd__device *device, int result, const char *what);
void sherd__device_free_convolutions(sherd__device *device);
void sherd__device_free_transforms(sherd__device *device);

/* Whoever calls: the context must be the current one of this thread. A world may change its thread
 * between two calls, and a thread may use another GPU between them: for another world, or by
 * itself. So the driver is asked, which takes it some nanoseconds. */
void sherd__cuda_move_in(sherd__device *device);
static inline void sherd__cuda_enter(sherd__device *device)
{
    CUcontext now = NULL;

    if (device->cuda.context_now(&now) || now != device->context)
        sherd__cuda_move_in(device);
}

static inline CUdeviceptr sherd__cuda_address(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static inline void *sherd__cuda_pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

#endif
