/* SPDX-License-Identifier: Apache-2.0 */
/* The engine that primitives run on, and the primitives that are kept: see engine.h. */
#include "engine.h"

#ifdef SHERD_HAVE_DNNL

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "onednn.h"

/* AVX512_BF16: leaf 7, subleaf 1. Without it oneDNN computes bf16 no faster than f32. */
static bool has_bf16(void)
{
#if defined(__x86_64__)
    unsigned a = 0, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
#else
    return false;
#endif
}

sherd__engine *sherd__engine_create(sherd__heap *heap)
{
    sherd__engine *engine = sherd__alloc(heap, 1, sizeof *engine);

    if (!engine)
        return NULL;
    engine->heap = heap;
    engine->has_bf16 = has_bf16();
    engine->shapes = (sherd__shapes){.heap = heap, .most = SHERD__PRIMITIVES};
    return engine;
}

void sherd__engine_destroy(sherd__engine *engine)
{
    if (!engine)
        return;
    sherd__shapes_clear(&engine->shapes);
    dnnl_stream_destroy(engine->stream);
    dnnl_engine_destroy(engine->engine);
    sherd__free(engine->heap, engine);
}

int sherd__engine_kept(const sherd__engine *engine)
{
    return (int)engine->shapes.map.count;
}

bool sherd__engine_start(sherd__engine *e)
{
    if (e->stream)
        return true;
    return (e->engine || sherd__good(dnnl_engine_create(&e->engine, dnnl_cpu, 0))) &&
           sherd__good(dnnl_stream_create(&e->stream, e->engine, dnnl_stream_default_flags));
}

#else

struct sherd__engine {
    sherd__heap *heap;
};

sherd__engine *sherd__engine_create(sherd__heap *heap)
{
    sherd__engine *engine = sherd__alloc(heap, 1, sizeof *engine);

    if (engine)
        engine->heap = heap;
    return engine;
}

void sherd__engine_destroy(sherd__engine *engine)
{
    if (engine)
        sherd__free(engine->heap, engine);
}

int sherd__engine_kept(const sherd__engine *engine)
{
    (void)engine;
    return 0;
}

sherd__done sherd__product_onednn(sherd__engine *engine, const sherd__product *p, void *c,
                                  const void *a, const void *b, const void *bias)
{
    (void)engine, (void)p, (void)c, (void)a, (void)b, (void)bias;
    return SHERD__CANNOT;
}

#endif
