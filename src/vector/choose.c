/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills the tables: the reference first, then what this machine does faster. Called once per world
 * and thread. The environment can choose less (SHERD_KERNELS, SHERD_GEMM), so that a user can
 * bisect a failure.
 */
#include "fast.h"
#include "bodies.h"
#include "choose.h"
#include "kernels/engine.h"
#include "kernels/ref.h"

#include <stdlib.h>
#include <string.h>

/* Whether the environment allows `name`: it is unset, or says exactly this. */
static bool wanted(const char *variable, const char *name)
{
    const char *value = getenv(variable);
    return !value || !*value || strcmp(value, name) == 0;
}

/* Whether the environment allows AVX512_BF16, AVX-512, AVX2, and vectors of 128 bits. */
static bool wants_pairs(void)
{
    return wanted("SHERD_KERNELS", "avx512_bf16") || wanted("SHERD_KERNELS", "amx");
}

static bool wants_avx512(void)
{
    return wanted("SHERD_KERNELS", "avx512") || wants_pairs();
}

static bool wants_avx2(void)
{
    return wanted("SHERD_KERNELS", "avx2") || wants_avx512();
}

static bool wants_simd128(void)
{
    return wanted("SHERD_KERNELS", "simd128") || wants_avx2();
}

static void install_tiles(sherd__kernel_set *set)
{
    set->tiles = NULL;
#ifdef SHERD_HAVE_AVX512_BF16
    if (wants_pairs() && sherd__has_fast_pairs())
        set->tiles = &sherd__attention_pairs;
#endif
#ifdef SHERD_HAVE_AMX
    if (wanted("SHERD_KERNELS", "amx") && sherd__has_amx())
        set->tiles = &sherd__attention_amx;
#endif
}

/* What AVX512_BF16 and AMX have besides attention, where that is; products are not oneDNN's then.
 * To ask the CPU once more takes a while on a virtual one. */
static void install_bf16(sherd__kernel_set *set)
{
    bool products = set->tiles && wanted("SHERD_GEMM", "tiles");

#ifdef SHERD_HAVE_AVX512_BF16
    if (set->tiles)
        sherd__install_elements_bf16(&set->bf16);
    if (products && set->tiles == &sherd__attention_pairs)
        sherd__install_pairs(&set->bf16);
#endif
#ifdef SHERD_HAVE_AMX
    if (products && set->tiles == &sherd__attention_amx)
        sherd__install_product_amx(&set->bf16);
    if (products && set->tiles == &sherd__attention_amx)
        sherd__install_f32_product_amx(&set->f32);
#endif
    set->bf16_products = set->bf16_products && !products;
}

/* The widest instruction set that the machine and the environment allow; NULL: none. */
static const sherd__fast_set *fastest_set(void)
{
#if defined(__x86_64__)
    if (wants_avx512() && sherd__has_avx512())
        return &sherd__avx512;
    if (wants_avx2() && sherd__has_avx2())
        return &sherd__avx2;
#endif
#ifdef SHERD__SIMD128
    return wants_simd128() ? &sherd__simd128 : NULL;
#else
    (void)wants_simd128;
    return NULL;
#endif
}

static void install_fast(sherd__kernel_set *set)
{
    const sherd__fast_set *fast = fastest_set();

    if (!fast)
        return;
    fast->f32(&set->f32);
    fast->f64(&set->f64);
    fast->half(&set->bf16, &set->f16);
#if defined(__x86_64__)
    if (fast != &sherd__simd128)
        sherd__install_bodies_avx2(set);
    if (fast == &sherd__avx512)
        sherd__install_bodies_avx512(set);
#endif
}

/* The plain products, where they are asked for by name. */
static void install_half_gemm(sherd__kernel_set *set)
{
    sherd__kernels bf16, f16;

    if (wanted("SHERD_GEMM", "tiles") || wanted("SHERD_GEMM", "onednn"))
        return;
    sherd__install_half_ref(&bf16, &f16);
    set->bf16.gemm = bf16.gemm;
    set->f16.gemm = f16.gemm;
    set->bf16.gemm_name = set->f16.gemm_name = bf16.gemm_name;
    set->bf16.product = set->f16.product = NULL;
}

/* oneDNN where it is (product), and for what it does not do tiles of our own, or the reference;
 * only what is asked for by name. */
static void install_gemm(sherd__kernel_set *set)
{
    sherd__kernels *table = &set->f32;

    set->product = NULL;
    set->multiplies = NULL;
    set->bf16_products = sherd__has_fast_bf16();
    if (!wanted("SHERD_GEMM", "tiles")) {
        table->product = NULL;
        table->product_fits = NULL;
        set->f64.gemm = sherd__ref_f64.gemm;
        set->f64.gemm_name = sherd__ref_f64.gemm_name;
        set->f64.product = NULL;
    }
    if (!wanted("SHERD_GEMM", table->gemm_name) && !wanted("SHERD_GEMM", "onednn")) {
        table->gemm = sherd__ref_f32.gemm;
        table->gemm_name = sherd__ref_f32.gemm_name;
    }
#ifdef SHERD_HAVE_DNNL
    if (wanted("SHERD_GEMM", "onednn")) {
        set->product = sherd__product_onednn;
        set->multiplies = sherd__onednn_multiplies;
    }
#endif
}

void sherd__kernels_choose(sherd__kernel_set *set)
{
    set->f32 = sherd__ref_f32;
    set->f64 = sherd__ref_f64;
    sherd__install_half_ref(&set->bf16, &set->f16);
    install_fast(set);
    install_tiles(set);
    install_gemm(set);
    install_bf16(set);
    install_half_gemm(set);
}

const char *sherd__gemm_name(const sherd__kernel_set *set)
{
    const sherd__product large = {
        .dtype = SHERD_F32, .result = SHERD_F32, .m = 1024, .n = 1024, .k = 1024};
    bool own = set->f32.product_fits && set->f32.product_fits(&large);

    return set->product && !own && sherd__onednn_is_here() ? "onednn" : set->f32.gemm_name;
}

const sherd__kernels *sherd__kernels_of(const sherd__kernel_set *set, sherd_dtype dtype)
{
    switch (dtype) {
    case SHERD_F32:
        return &set->f32;
    case SHERD_F64:
        return &set->f64;
    case SHERD_BF16:
        return &set->bf16;
    case SHERD_F16:
        return &set->f16;
    default:
        return NULL;
    }
}

const sherd__kernels *sherd__kernels_to_reduce(const sherd__kernel_set *set, sherd_dtype dtype,
                                               sherd_reduce_op op)
{
    return op == SHERD_AVG && !sherd__has_fractions(dtype) ? NULL
                                                           : sherd__kernels_of_any(set, dtype);
}

const sherd__kernels *sherd__kernels_of_any(const sherd__kernel_set *set, sherd_dtype dtype)
{
    switch (dtype) {
    case SHERD_I32:
        return &sherd__whole_i32;
    case SHERD_I64:
        return &sherd__whole_i64;
    case SHERD_I8:
        return &sherd__whole_i8;
    case SHERD_U8:
        return &sherd__whole_u8;
    case SHERD_BOOL:
        return &sherd__whole_bool;
    default:
        return sherd__kernels_of(set, dtype);
    }
}

/* From 16 bits, or to them: in blocks of f32, by the conversions of the tables. */
static void convert_half(const sherd__casts *by, const sherd__kernels *to,
                         const sherd__kernels *from, sherd_dtype dst_dtype, sherd_dtype src_dtype,
                         int64_t n, void *dst, const void *src)
{
    enum { BLOCK = 512 };
    size_t to_bytes = sherd_dtype_bytes(dst_dtype), from_bytes = sherd_dtype_bytes(src_dtype);
    float wide[BLOCK];

    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = sherd__min(n - i, BLOCK);
        void *d = (char *)dst + (size_t)i * to_bytes;
        const void *s = (const char *)src + (size_t)i * from_bytes;
        if (sherd__is_half(src_dtype))
            from->widen(m, wide, s);
        else
            by->to_odd(src_dtype, m, wide, s);
        if (sherd__is_half(dst_dtype))
            to->narrow(m, d, wide);
        else
            by->cast(dst_dtype, SHERD_F32, m, d, wide);
    }
}

void sherd__convert(const sherd__kernel_set *set, sherd_dtype dst_dtype, sherd_dtype src_dtype,
                    int64_t n, void *dst, const void *src)
{
    const sherd__kernels *to = sherd__kernels_of(set, dst_dtype);
    const sherd__kernels *from = sherd__kernels_of(set, src_dtype);
    const sherd__casts *by = sherd__casts_by(&set->f32);
    bool half = sherd__is_half(dst_dtype) || sherd__is_half(src_dtype);

    if (dst_dtype == SHERD_F32 && from)
        from->widen(n, dst, src);
    else if (src_dtype == SHERD_F32 && to)
        to->narrow(n, dst, src);
    else if (half && dst_dtype != src_dtype)
        convert_half(by, to, from, dst_dtype, src_dtype, n, dst, src);
    else
        by->cast(dst_dtype, src_dtype, n, dst, src);
}
