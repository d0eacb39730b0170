/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the instruction sets give to choose.c and measure.c. They hold nothing on other
 * machines. */
#ifndef SHERD__VECTOR_FAST_H
#define SHERD__VECTOR_FAST_H

#include "base/num.h"
#include "kernels/ref.h"

/* Machines that have vectors of 128 bits, of which the first byte in memory is the last. */
#if defined(__x86_64__) || (defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
#define SHERD__SIMD128
#endif

/* The fast kernels of an instruction set, which the machine must have. */
typedef struct sherd__fast_set {
    const char *name; /* in SHERD_KERNELS, too */
    /* Put those of f32, and of f64, over the reference. */
    void (*f32)(sherd__kernels *table), (*f64)(sherd__kernels *table);
    /* Those of the 16-bit types: whole tables. */
    void (*half)(sherd__kernels *bf16, sherd__kernels *f16);
    /* Multiply-adds in registers only, `rounds` times; returns how many floating-point operations
     * that was. */
    double (*spin)(int64_t rounds);
} sherd__fast_set;
extern const sherd__fast_set sherd__simd128, sherd__avx2, sherd__avx512;

/* The part of `f64` that is in files of its own, *_f64.c: all but random numbers. */
void sherd__install_simd128_f64(sherd__kernels *f64);
void sherd__install_avx2_f64(sherd__kernels *f64);
void sherd__install_avx512_f64(sherd__kernels *f64);

/* The f32 that sherd__normal_pair and rounding make of word[n]; n is a multiple of 4 vectors of
 * f32. */
typedef void sherd__normal_numbers(int64_t n, float *dst, const uint32_t *word, double mean,
                                   double deviation);
sherd__normal_numbers sherd__normal_simd128, sherd__normal_avx2, sherd__normal_avx512;

/*
 * Kernels of bf16 by AVX512_BF16, over those of AVX-512, which come by way of f32 and do what is
 * left to them.
 */
typedef struct sherd__bf16_by {
    void (*product)(const sherd__product *p, void *c, const void *a, const void *b,
                    const void *bias, void *workspace);
    int64_t (*product_workspace)(const sherd__product *p);
    void (*unary)(sherd__unary_kind kind, int64_t n, void *dst, const void *src,
                  const double *parameter);
    void (*unary_grad)(sherd__unary_kind kind, int64_t n, void *dx, const void *at, const void *dy,
                       const double *parameter);
} sherd__bf16_by;
extern const sherd__bf16_by sherd__bf16_by_f32;

/* Products of f32 by multiply-adds, under those of AMX. */
typedef struct sherd__f32_by {
    void (*product)(const sherd__product *p, void *c, const void *a, const void *b,
                    const void *bias, void *workspace);
    int64_t (*product_workspace)(const sherd__product *p);
    bool (*product_fits)(const sherd__product *p);
    void (*gemm)(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const void *a,
                 int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc);
} sherd__f32_by;
extern const sherd__f32_by sherd__f32_by_fma;
void sherd__install_f32_product_amx(sherd__kernels *f32);

void sherd__install_pairs(sherd__kernels *bf16);
void sherd__install_product_amx(sherd__kernels *bf16);
void sherd__install_elements_bf16(sherd__kernels *bf16);

/* Whether this machine has the instruction set (of AVX2 and AVX-512 also FMA and F16C). */
bool sherd__has_simd128(void);
bool sherd__has_avx2(void);
bool sherd__has_avx512(void);

/* Attention of bf16 by AVX512_BF16, and by that and AMX. Machine and system must have it; each
 * process has to ask before it uses tiles, which is a system call. */
extern const sherd__attention_tiles sherd__attention_pairs;
extern const sherd__attention_tiles sherd__attention_amx;
bool sherd__has_amx(void);
bool sherd__may_use_amx(void);

/* Whether the machine's own products of bf16 are faster than those of f32; by AVX512_BF16, which
 * multiplies pairs of numbers (files *_bf16.c). */
bool sherd__has_fast_bf16(void);
bool sherd__has_fast_pairs(void);

/* As sherd__fast_set's spin, of bf16. */
double sherd__spin_pairs(int64_t rounds);

#endif
