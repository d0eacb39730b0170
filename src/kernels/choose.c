/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills the tables: the reference first, then what this machine does faster. Called once per world
 * and thread. The environment can choose less (SHERD_KERNELS, SHERD_GEMM), so that a user can
 * bisect a failure.
 */
#include "fast.h"
#include "gemm.h"

#include <stdlib.h>
#include <string.h>

/* Whether the environment allows `name`: it is unset, or says exactly this. */
static bool wanted(const char *variable, const char *name)
{
    const char *value = getenv(variable);
    return !value || !*value || strcmp(value, name) == 0;
}

/* Asked here and not in their files: those may be compiled to instructions that this machine lacks.
 */
bool sherd__has_avx2(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

bool sherd__has_avx512(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           sherd__has_avx2();
#else
    return false;
#endif
}

/* The widest instruction set that the machine and the environment allow. */
static void install_fast(sherd__kernels *table)
{
#if defined(__x86_64__)
    if (wanted("SHERD_KERNELS", "avx512") && sherd__has_avx512())
        sherd__install_avx512(table);
    else if (wanted("SHERD_KERNELS", "avx2") && sherd__has_avx2())
        sherd__install_avx2(table);
#else
    (void)table;
#endif
}

/* oneDNN where it is, else tiles of our own, else the reference; only the one that is asked for by
 * name. */
static void install_gemm(sherd__kernels *table)
{
    if (!wanted("SHERD_GEMM", table->gemm_name)) {
        table->gemm = sherd__ref_f32.gemm;
        table->gemm_name = sherd__ref_f32.gemm_name;
    }
#ifdef SHERD_HAVE_DNNL
    if (wanted("SHERD_GEMM", "onednn")) {
        sherd__onednn_one_thread();
        table->gemm = sherd__gemm_onednn;
        table->gemm_name = "onednn";
    }
#endif
}

void sherd__kernels_choose(sherd__kernel_set *set)
{
    set->f32 = sherd__ref_f32;
    set->f64 = sherd__ref_f64;
    install_fast(&set->f32);
    install_gemm(&set->f32);
}

const sherd__kernels *sherd__kernels_of(const sherd__kernel_set *set, sherd_dtype dtype)
{
    switch (dtype) {
    case SHERD_F32:
        return &set->f32;
    case SHERD_F64:
        return &set->f64;
    default:
        return NULL;
    }
}
