/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the files that know oneDNN: the library as it was loaded, the engine, and the few calls
 * that versions 2 and 3 spell differently. Included only where oneDNN's headers are.
 */
#ifndef SHERD__KERNELS_ONEDNN_H
#define SHERD__KERNELS_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "engine.h"
#include "shapes.h"
#include "base/catch.h"

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
    bool has_bf16;  /* the machine multiplies bf16 itself */
    bool no_memory; /* a call of sherd__onednn_try has said so */
    sherd__shapes shapes;
};

/* Make engine and stream, if that is still to be done. */
sherd__done sherd__engine_start(sherd__engine *engine);

/*
 * Make calls of oneDNN that take memory, in the function `call`: if there is none, some of them
 * throw, and others return a status (sherd__good). DONE if `call` returns 1, NO_MEMORY if memory
 * ran out, else CANNOT. `call` keeps whatever it makes in `context`, so that the caller can release
 * it, however far it came.
 *
 * `room` is how much memory must be free before `call` is made: oneDNN writes to objects for which
 * it got no memory, so making primitives or memory objects must not run out. The first primitive of
 * a process took 7 MB, later ones up to 1.4 MB, laying arrays out no more than that. The check
 * costs 1.5 us. Loading oneDNN takes 45 MB; its initialisers throw into the loader.
 */
enum {
    SHERD__ONEDNN_LOADS = 80 << 20,
    SHERD__ONEDNN_MAKES = 16 << 20,
    SHERD__ONEDNN_LAYS = 4 << 20,
    SHERD__ONEDNN_RUNS = 0
};
sherd__done sherd__onednn_try(sherd__engine *engine, size_t room, int (*call)(void *context),
                              void *context);

static inline bool sherd__good(sherd__engine *engine, dnnl_status_t status)
{
    engine->no_memory = engine->no_memory || status == dnnl_out_of_memory;
    return status == dnnl_success;
}

static inline dnnl_data_type_t sherd__dnnl_type(sherd_dtype dtype)
{
    return dtype == SHERD_F32 ? dnnl_f32 : dtype == SHERD_BF16 ? dnnl_bf16 : dnnl_f16;
}

/* What is made on the way to a matmul, all NULL to begin with. Whoever has one releases it, however
 * far it came. */
typedef struct sherd__making {
    dnnl_post_ops_t ops;
    dnnl_primitive_attr_t attributes; /* NULL: the result replaces what is there */
    dnnl_primitive_desc_t desc;
} sherd__making;

/* Attributes by which a result is added to what is there. */
static inline bool sherd__sum_after(sherd__engine *e, sherd__making *m)
{
    const sherd__dnnl *dnnl = &e->dnnl;

    return sherd__good(e, dnnl->primitive_attr_create(&m->attributes)) &&
           sherd__good(e, dnnl->post_ops_create(&m->ops)) &&
#if DNNL_VERSION_MAJOR == 2
           sherd__good(e, dnnl->post_ops_append_sum(m->ops, 1)) &&
#else
           sherd__good(e, dnnl->post_ops_append_sum(m->ops, 1, 0, dnnl_data_type_undef)) &&
#endif
           sherd__good(e, dnnl->primitive_attr_set_post_ops(m->attributes, m->ops));
}

static inline void sherd__make_no_more(const sherd__dnnl *dnnl, const sherd__making *m)
{
    dnnl->post_ops_destroy(m->ops);
    dnnl->primitive_attr_destroy(m->attributes);
    dnnl->primitive_desc_destroy(m->desc);
}

/* How an array lies. Version 3 has a handle for that, version 2 a struct. */
#if DNNL_VERSION_MAJOR == 2
typedef dnnl_memory_desc_t sherd__lying;
typedef const dnnl_memory_desc_t *sherd__lying_ref;

static inline sherd__lying_ref sherd__ref_to(const sherd__lying *lying)
{
    return lying;
}

static inline bool sherd__lie(sherd__engine *e, sherd__lying *out, int ndim, const dnnl_dims_t size,
                              const dnnl_dims_t stride, sherd_dtype dtype)
{
    return sherd__good(
        e, e->dnnl.memory_desc_init_by_strides(out, ndim, size, sherd__dnnl_type(dtype), stride));
}

static inline void sherd__lie_no_more(const sherd__dnnl *dnnl, sherd__lying *lying)
{
    (void)dnnl, (void)lying;
}

static inline bool sherd__describe_matmul(sherd__engine *e, sherd__making *m, const sherd__lying *a,
                                          const sherd__lying *b, const sherd__lying *bias,
                                          const sherd__lying *c)
{
    dnnl_matmul_desc_t desc;

    return sherd__good(e, e->dnnl.matmul_desc_init(&desc, a, b, bias, c)) &&
           sherd__good(
               e, e->dnnl.primitive_desc_create(&m->desc, &desc, m->attributes, e->engine, NULL));
}
#else
typedef dnnl_memory_desc_t sherd__lying;
typedef const_dnnl_memory_desc_t sherd__lying_ref;

static inline sherd__lying_ref sherd__ref_to(const sherd__lying *lying)
{
    return *lying;
}

static inline bool sherd__lie(sherd__engine *e, sherd__lying *out, int ndim, const dnnl_dims_t size,
                              const dnnl_dims_t stride, sherd_dtype dtype)
{
    return sherd__good(e, e->dnnl.memory_desc_create_with_strides(out, ndim, size,
                                                                  sherd__dnnl_type(dtype), stride));
}

static inline void sherd__lie_no_more(const sherd__dnnl *dnnl, sherd__lying *lying)
{
    dnnl->memory_desc_destroy(*lying);
}

static inline bool sherd__describe_matmul(sherd__engine *e, sherd__making *m, const sherd__lying *a,
                                          const sherd__lying *b, const sherd__lying *bias,
                                          const sherd__lying *c)
{
    return sherd__good(e, e->dnnl.matmul_primitive_desc_create(
                              &m->desc, e->engine, *a, *b, bias ? *bias : NULL, *c, m->attributes));
}
#endif

#endif
