/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the files that know oneDNN: the library as it was loaded, the engine, and the few calls
 * that versions 2 and 3 spell differently. Included only where oneDNN's headers are.
 */
#ifndef SHERD__ONEDNN_H
#define SHERD__ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "engine.h"
#include "shapes.h"

/* oneDNN's functions. It is loaded when the first product or convolution wants it: to begin with it
 * would cost each program 3 ms. */
typedef struct sherd__dnnl {
#define CALL(name) __typeof__(dnnl_##name) *name;
#include "onednn_calls.inc"
#undef CALL
} sherd__dnnl;

struct sherd__engine {
    sherd__heap *heap;
    void *library; /* NULL until it is needed, as all of these */
    sherd__dnnl dnnl;
    bool is_missing;      /* it can not be loaded here */
    dnnl_engine_t engine; /* NULL until it is needed */
    dnnl_stream_t stream;
    bool has_bf16; /* the machine multiplies bf16 itself */
    sherd__shapes shapes;
};

/* Make engine and stream, if that is still to be done. False: it does not go. */
bool sherd__engine_start(sherd__engine *engine);

static inline bool sherd__good(dnnl_status_t status)
{
    return status == dnnl_success;
}

static inline dnnl_data_type_t sherd__dnnl_type(sherd_dtype dtype)
{
    return dtype == SHERD_F32 ? dnnl_f32 : dtype == SHERD_BF16 ? dnnl_bf16 : dnnl_f16;
}

/* Attributes by which a result is added to what is there. */
static inline bool sherd__sum_after(const sherd__dnnl *dnnl, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    bool good = sherd__good(dnnl->primitive_attr_create(out)) &&
                sherd__good(dnnl->post_ops_create(&ops)) &&
#if DNNL_VERSION_MAJOR == 2
                sherd__good(dnnl->post_ops_append_sum(ops, 1)) &&
#else
                sherd__good(dnnl->post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef)) &&
#endif
                sherd__good(dnnl->primitive_attr_set_post_ops(*out, ops));

    dnnl->post_ops_destroy(ops);
    return good;
}

/* How an array lies. Version 3 has a handle for that, version 2 a struct. */
#if DNNL_VERSION_MAJOR == 2
typedef dnnl_memory_desc_t sherd__lying;
typedef const dnnl_memory_desc_t *sherd__lying_ref;

static inline sherd__lying_ref sherd__ref_to(const sherd__lying *lying)
{
    return lying;
}

static inline bool sherd__lie(const sherd__dnnl *dnnl, sherd__lying *out, int ndim,
                              const dnnl_dims_t size, const dnnl_dims_t stride, sherd_dtype dtype)
{
    return sherd__good(
        dnnl->memory_desc_init_by_strides(out, ndim, size, sherd__dnnl_type(dtype), stride));
}

static inline void sherd__lie_no_more(const sherd__dnnl *dnnl, sherd__lying *lying)
{
    (void)dnnl, (void)lying;
}

static inline bool sherd__describe_matmul(const sherd__engine *e, dnnl_primitive_desc_t *out,
                                          const sherd__lying *a, const sherd__lying *b,
                                          const sherd__lying *bias, const sherd__lying *c,
                                          bool adds)
{
    const sherd__dnnl *dnnl = &e->dnnl;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_matmul_desc_t desc;
    bool good = (!adds || sherd__sum_after(dnnl, &attributes)) &&
                sherd__good(dnnl->matmul_desc_init(&desc, a, b, bias, c)) &&
                sherd__good(dnnl->primitive_desc_create(out, &desc, attributes, e->engine, NULL));

    dnnl->primitive_attr_destroy(attributes);
    return good;
}
#else
typedef dnnl_memory_desc_t sherd__lying;
typedef const_dnnl_memory_desc_t sherd__lying_ref;

static inline sherd__lying_ref sherd__ref_to(const sherd__lying *lying)
{
    return *lying;
}

static inline bool sherd__lie(const sherd__dnnl *dnnl, sherd__lying *out, int ndim,
                              const dnnl_dims_t size, const dnnl_dims_t stride, sherd_dtype dtype)
{
    return sherd__good(
        dnnl->memory_desc_create_with_strides(out, ndim, size, sherd__dnnl_type(dtype), stride));
}

static inline void sherd__lie_no_more(const sherd__dnnl *dnnl, sherd__lying *lying)
{
    dnnl->memory_desc_destroy(*lying);
}

static inline bool sherd__describe_matmul(const sherd__engine *e, dnnl_primitive_desc_t *out,
                                          const sherd__lying *a, const sherd__lying *b,
                                          const sherd__lying *bias, const sherd__lying *c,
                                          bool adds)
{
    return sherd__good(e->dnnl.matmul_primitive_desc_create(out, e->engine, *a, *b,
                                                            bias ? *bias : NULL, *c, NULL));
}
#endif

#endif
