/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank keeps of oneDNN: an engine, a stream, and the primitives that it has made, by shape
 * (a new one costs 0.1 to 0.4 ms, a kept one about a microsecond a call). Whoever applies operators
 * owns one; kernels get it handed in. Without oneDNN it is empty, and everything in it says that it
 * can not.
 */
#ifndef SHERD__KERNELS_ENGINE_H
#define SHERD__KERNELS_ENGINE_H

#include "conv.h"
#include "base/alloc.h"

/* NULL: out of memory. Nothing of oneDNN is made before it is needed. */
sherd__engine *sherd__engine_create(sherd__heap *heap);
void sherd__engine_destroy(sherd__engine *engine);

/* Whether oneDNN can be loaded; a product that can not have it takes the table's gemm. */
bool sherd__onednn_is_here(void);

/* How many primitives are kept, and the most there may be. For tests. */
int sherd__engine_kept(const sherd__engine *engine);
enum { SHERD__PRIMITIVES = 256 };

/*
 * f32, and bf16 where the machine multiplies bf16 itself. bias is NULL where the product has none;
 * of f32 not every shape is done with one, but all are without (docs/decisions/037 has which go
 * where).
 */
bool sherd__onednn_multiplies(sherd__engine *engine, const sherd__product *p);
sherd__done sherd__product_onednn(sherd__engine *engine, const sherd__product *p, void *c,
                                  const void *a, const void *b, const void *bias);

/*
 * f32; one task of a geometry, or two, which share operands that they both read: those are laid out
 * once, as oneDNN wants them. All or none can be done. Convolutions of bf16 are not trusted: see
 * docs/decisions/037.
 */
typedef struct sherd__conv_job {
    const sherd__conv *conv;
    const sherd__conv_task *task;
    int tasks;                     /* 1 or 2 */
    const void *bias;              /* [out_channels], added to what one FORWARD makes; NULL: none */
    const sherd__kernels *kernels; /* of f32, for what oneDNN is slower at; NULL: oneDNN does all */
} sherd__conv_job;

/* First the bytes of workspace that it needs, if it can. */
sherd__done sherd__conv_onednn_bytes(int64_t *bytes, sherd__engine *engine,
                                     const sherd__conv_job *job);
sherd__done sherd__conv_onednn(sherd__engine *engine, const sherd__conv_job *job, void *workspace);

#endif
