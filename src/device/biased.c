/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with a bias by cuBLASLt, which adds it where the sums are before they are written: c is
 * written once, where cuBLAS alone would find the bias there, read it and write it again.
 *
 * cuBLASLt wants a description of each product and the algorithm for it, which takes tens of
 * microseconds to find: both are kept by shape, up to a number of them; one more, and all are
 * forgotten. Numbers are as without it: sums in f32, parts of a sum are added in f32 too.
 */
#include "biased.h"

#include "base/hash.h"

#include <string.h>

enum {
    MOST_KEPT = 512,
    ALIGNMENT = 16,            /* bytes, of all that it is given */
    WORKSPACE_BYTES = 32 << 20 /* at most; algorithms that want more are no faster */
};

/* What an algorithm is chosen by. */
typedef struct shape {
    int64_t m, n, k, a, b, c;
    int32_t ta, tb, dtype, none;
} shape;

typedef struct plan {
    shape of;
    bool works; /* there is an algorithm */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    sherd__matmul_choice choice;
} plan;

struct sherd__biased {
    cublasLtHandle_t handle;
    sherd__map plans;
};

static void free_plan(sherd__device *device, plan *p)
{
    const sherd__cuda *cuda = &device->cuda;
    const cublasLtMatrixLayout_t layout[] = {p->a, p->b, p->c};

    for (int i = 0; i < 3; i++)
        if (layout[i])
            cuda->matrix_destroy(layout[i]);
    if (p->product)
        cuda->matmul_destroy(p->product);
    sherd__free(device->heap, p);
}

static void forget(sherd__device *device)
{
    sherd__map *plans = &device->biased->plans;
    size_t cursor = 0;

    for (plan *p; (p = sherd__map_next(plans, &cursor));)
        free_plan(device, p);
    sherd__map_clear(plans);
}

void sherd__device_free_biased(sherd__device *device)
{
    if (!device->biased)
        return;
    forget(device);
    if (!device->deserted) /* it waits for all that is queued */
        device->cuda.matmul_close(device->biased->handle);
    sherd__free(device->heap, device->biased);
}

/* False: no memory for it. */
static bool start(sherd__device *device)
{
    struct sherd__biased *made;

    if (device->biased)
        return true;
    made = sherd__alloc(device->heap, 1, sizeof *made);
    if (!made)
        return false;
    made->plans.heap = device->heap;
    if (device->cuda.matmul_open(&made->handle)) {
        sherd__free(device->heap, made);
        return false;
    }
    device->biased = made;
    return true;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static bool is_of(const void *item, const void *key)
{
    return memcmp(&((const plan *)item)->of, key, sizeof(shape)) == 0;
}

/* A matrix as cuBLASLt sees it: rows of ours are its columns. */
static int describe_matrix(const sherd__cuda *cuda, cublasLtMatrixLayout_t *out,
                           cudaDataType_t type, bool turned, int64_t rows, int64_t cols,
                           int64_t lead)
{
    return cuda->matrix_create(out, type, (uint64_t)(turned ? rows : cols),
                               (uint64_t)(turned ? cols : rows), lead);
}

static int describe_product(const sherd__cuda *cuda, plan *p)
{
    const int32_t first = p->of.tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                  second = p->of.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const struct {
        int which;
        const int32_t *value;
    } set[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &first},
               {CUBLASLT_MATMUL_DESC_TRANSB, &second},
               {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue}};
    int result = cuda->matmul_create(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);

    for (size_t i = 0; !result && i < sizeof set / sizeof *set; i++)
        result = cuda->matmul_set(p->product, set[i].which, set[i].value, sizeof *set[i].value);
    return result;
}

/* The best algorithm for it; `works` tells whether there is one. */
static int choose(sherd__device *device, plan *p)
{
    const sherd__cuda *cuda = &device->cuda;
    const uint64_t workspace = WORKSPACE_BYTES;
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, alignment = ALIGNMENT;
    cublasLtMatmulPreference_t wish = NULL;
    int found = 0, result = cuda->wish_create(&wish);

    if (result)
        return result;
    result = cuda->wish_set(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                            sizeof workspace);
    if (!result)
        result = cuda->wish_set(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme,
                                sizeof scheme);
    for (int i = 0; !result && i < 4; i++)
        result = cuda->wish_set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, &alignment,
                                sizeof alignment);
    if (!result)
        p->works = cuda->matmul_choose(device->biased->handle, p->product, p->b, p->a, p->c, p->c,
                                       wish, 1, &p->choice, &found) == 0 &&
                   found == 1 && p->choice.state == 0;
    cuda->wish_destroy(wish);
    return result;
}

/* What is said of it does not change, but for the bias' place. */
static int describe(const sherd__cuda *cuda, plan *p, cudaDataType_t type)
{
    const shape *of = &p->of;
    int result = describe_matrix(cuda, &p->a, type, of->ta, of->m, of->k, of->a);

    if (!result)
        result = describe_matrix(cuda, &p->b, type, of->tb, of->k, of->n, of->b);
    if (!result)
        result = describe_matrix(cuda, &p->c, type, false, of->m, of->n, of->c);
    return result ? result : describe_product(cuda, p);
}

/* NULL: no memory, of the CPU or for cuBLASLt. What it cannot do otherwise is kept as that. */
static plan *make_plan(sherd__device *device, const shape *of, cudaDataType_t type, uint64_t hash)
{
    plan *p = sherd__alloc(device->heap, 1, sizeof *p);
    int result;

    if (!p)
        return NULL;
    p->of = *of;
    result = describe(&device->cuda, p, type);
    if (!result)
        result = choose(device, p);
    if (result != CUBLAS_STATUS_ALLOC_FAILED && sherd__map_add(&device->biased->plans, hash, p))
        return p;
    free_plan(device, p);
    return NULL;
}

static plan *find_plan(sherd__device *device, const shape *of, cudaDataType_t type)
{
    uint64_t hash = sherd__hash_bytes(0, of, sizeof *of);
    plan *p = sherd__map_find(&device->biased->plans, hash, is_of, of);

    if (p)
        return p;
    if (device->biased->plans.count == MOST_KEPT)
        forget(device);
    return make_plan(device, of, type, hash);
}

/* ---- the product ----------------------------------------------------------------------------- */

static bool is_for(const sherd__product *p, const void *c, const void *a, const void *b,
                   const void *bias)
{
    uintptr_t together = (uintptr_t)c | (uintptr_t)a | (uintptr_t)b | (uintptr_t)bias;

    return !p->adds && p->k > 0 && p->dtype == p->result && p->dtype != SHERD_F64 &&
           together % ALIGNMENT == 0;
}

static int multiply(sherd__device *device, plan *p, void *c, const void *a, const void *b,
                    const void *bias)
{
    const sherd__cuda *cuda = &device->cuda;
    const float one = 1, zero = 0;
    sherd__device_block *room = NULL;
    size_t bytes = p->choice.workspace_bytes;
    int result =
        cuda->matmul_set(p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);

    if (!result && bytes && !(room = sherd__device_take(device, (int64_t)bytes)))
        return CUBLAS_STATUS_ALLOC_FAILED;
    if (!result)
        result = cuda->matmul(device->biased->handle, p->product, &one, b, p->b, a, p->a, &zero, c,
                              p->c, c, p->c, p->choice.algorithm, room ? room->data : NULL, bytes,
                              device->stream);
    sherd__device_give(device, room);
    return result;
}

bool sherd__device_multiply_biased(sherd__device *device, const sherd__product *p,
                                   const sherd__leads *leads, void *c, const void *a, const void *b,
                                   const void *bias)
{
    const shape of = {p->m,     p->n,  p->k,  leads->a,          leads->b,
                      leads->c, p->ta, p->tb, (int32_t)p->dtype, 0};
    cudaDataType_t type = sherd__cuda_type(p->dtype);
    plan *found;

    if (!is_for(p, c, a, b, bias) || !start(device) || !(found = find_plan(device, &of, type)) ||
        !found->works)
        return false;
    sherd__cublas_good(device, multiply(device, found, c, a, b, bias), "a product with a bias");
    return true;
}
