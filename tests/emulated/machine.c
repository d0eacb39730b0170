/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of what src/vector/machine.c asks the CPU, where its instructions are emulated
 * (immintrin.h). The machine is one that SHERD_EMULATED names: avx512, a CPU with AVX-512 alone;
 * avx512_bf16 (the default), one of AMD that multiplies pairs fast; amx, one of Intel with tiles.
 */
#include "vector/fast.h"

#include <stdlib.h>
#include <string.h>

static bool is_named(const char *name)
{
    const char *value = getenv("SHERD_EMULATED");

    return strcmp(value && *value ? value : "avx512_bf16", name) == 0;
}

bool sherd__has_avx512(void)
{
    return true;
}

bool sherd__has_fast_pairs(void)
{
    return is_named("avx512_bf16");
}

bool sherd__has_amx(void)
{
    return is_named("amx");
}

bool sherd__may_use_amx(void)
{
    return is_named("amx");
}
