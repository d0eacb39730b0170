/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What instructions this machine has, and which of them are fast. Asked here and not in the files
 * of the instruction sets, which may be compiled to instructions that this machine lacks.
 */
#include "fast.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__x86_64__)
/* Clang 14's __builtin_cpu_supports does not know this one. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

bool sherd__has_simd128(void)
{
#ifdef SHERD__SIMD128
    return true;
#else
    return false;
#endif
}

bool sherd__has_avx2(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
#else
    return false;
#endif
}

#ifndef SHERD_EMULATE /* else tests/emulated/machine.c answers */
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

#if defined(__x86_64__) && defined(__linux__)
/* Linux saves tiles for processes that have asked for it only: asm/prctl.h, "state component
 * 18". */
enum { XCOMP_SUPPORTED = 0x1021, XCOMP_REQUEST = 0x1023, TILE_DATA = 18 };

static bool system_has_tiles(void)
{
    uint64_t features = 0;

    return syscall(SYS_arch_prctl, XCOMP_SUPPORTED, &features) == 0 && (features >> TILE_DATA & 1);
}

/* Leaf 7: AMX-BF16 and AMX-TILE; its subleaf 1: AVX512_BF16. Compilers know other names for
 * them. */
bool sherd__has_amx(void)
{
    unsigned a, b, c, d = 0, more = 0;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && __get_cpuid_count(7, 1, &more, &b, &c, &a) &&
           (d >> 22 & 1) && (d >> 24 & 1) && (more >> 5 & 1) && sherd__has_avx512() &&
           system_has_tiles();
}

bool sherd__may_use_amx(void)
{
    return syscall(SYS_arch_prctl, XCOMP_REQUEST, TILE_DATA) == 0;
}
#else
bool sherd__has_amx(void)
{
    return false;
}

bool sherd__may_use_amx(void)
{
    return false;
}
#endif

#if defined(__x86_64__)
/* Whether the CPU is one of AMD: by the first four letters of the vendor. */
static bool is_amd(void)
{
    enum { AUTHENTIC_AMD = 0x68747541, HYGON_GENUINE = 0x6F677948 };
    unsigned a, b = 0, c, d;

    return __get_cpuid(0, &a, &b, &c, &d) && (b == AUTHENTIC_AMD || b == HYGON_GENUINE);
}

/*
 * With AVX512_BF16 alone (leaf 7, subleaf 1), CPUs of AMD multiply twice as many bf16 as f32 in a
 * time, those of Intel half as many: theirs are fast by AMX, which a virtual machine may hide.
 */
bool sherd__has_fast_pairs(void)
{
    unsigned a = 0, b, c, d;

    return is_amd() && sherd__has_avx512() && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
           (a >> 5 & 1);
}
#else
bool sherd__has_fast_pairs(void)
{
    return false;
}
#endif
#endif

bool sherd__has_fast_bf16(void)
{
    return sherd__has_amx() || sherd__has_fast_pairs();
}
