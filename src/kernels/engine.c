/* SPDX-License-Identifier: Apache-2.0 */
/* The engine that primitives run on, and the primitives that are kept: see engine.h. */
#include "engine.h"

#ifdef SHERD_HAVE_DNNL

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <dlfcn.h>
#include <sys/mman.h>

#include "base/library.h"
#include "onednn.h"

#define TEXT_OF(number) #number
#define TEXT(number)    TEXT_OF(number)

static const char dnnl_name[] = "libdnnl.so." TEXT(DNNL_VERSION_MAJOR);

/* By the name that its version has, wherever the system keeps libraries; or where it was when this
 * was built. It stays: threads of its OpenMP may live in it. */
static void *load(void)
{
    void *library = sherd__library_open(dnnl_name);

    return library ? library : sherd__library_open(SHERD_DNNL_FILE);
}

static bool find_all(sherd__dnnl *dnnl, void *library)
{
    bool all = true;

#define CALL(name) \
    all = sherd__library_find(library, "dnnl_" #name, (void (**)(void))(void *)&dnnl->name) && all;
#include "onednn_calls.inc"
#undef CALL
    return all;
}

/*
 * A rank is one thread: the OpenMP runtime below oneDNN must not start more. The setting
 * belongs to the calling thread; the runtime is found by name, since it is oneDNN's and not ours.
 */
static void run_on_one_thread(void *library)
{
    union {
        void (*found)(void);
        void (*call)(int);
    } set = {NULL};

    if (sherd__library_find(library, "omp_set_num_threads", &set.found))
        set.call(1);
}

bool sherd__onednn_is_here(void)
{
    void *library = load();

    if (library)
        dlclose(library);
    return library != NULL;
}

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
    if (engine->stream)
        engine->dnnl.stream_destroy(engine->stream);
    if (engine->engine)
        engine->dnnl.engine_destroy(engine->engine);
    if (engine->library)
        dlclose(engine->library);
    sherd__free(engine->heap, engine);
}

int sherd__engine_kept(const sherd__engine *engine)
{
    return (int)engine->shapes.map.count;
}

/* Not by malloc, which would keep blocks as large as the largest that it got back. */
static bool there_is(size_t room)
{
    void *memory =
        room ? mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : NULL;

    return !room || (memory != MAP_FAILED && munmap(memory, room) == 0);
}

static bool can_load(void)
{
    return sherd__library_is_open(dnnl_name) || sherd__library_is_open(SHERD_DNNL_FILE) ||
           there_is(SHERD__ONEDNN_LOADS);
}

static bool start_library(sherd__engine *e)
{
    e->library = can_load() ? load() : NULL;
    e->is_missing = !e->library || !find_all(&e->dnnl, e->library);
    if (!e->is_missing)
        run_on_one_thread(e->library);
    return !e->is_missing;
}

sherd__done sherd__onednn_try(sherd__engine *e, size_t room, int (*call)(void *context),
                              void *context)
{
    if (!there_is(room))
        return SHERD__NO_MEMORY;
    e->no_memory = false;
    int good = sherd__catch(call, context);
    if (good == 1)
        return SHERD__DONE;
    return good == SHERD__THROWN || e->no_memory ? SHERD__NO_MEMORY : SHERD__CANNOT;
}

static int start(void *context)
{
    sherd__engine *e = context;

    return (e->engine || sherd__good(e, e->dnnl.engine_create(&e->engine, dnnl_cpu, 0))) &&
           sherd__good(e, e->dnnl.stream_create(&e->stream, e->engine, dnnl_stream_default_flags));
}

sherd__done sherd__engine_start(sherd__engine *e)
{
    if (e->stream)
        return SHERD__DONE;
    if (e->is_missing || (!e->library && !start_library(e)))
        return SHERD__CANNOT;
    return sherd__onednn_try(e, SHERD__ONEDNN_MAKES, start, e);
}

#else

bool sherd__onednn_is_here(void)
{
    return false;
}

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
