/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain tables of bf16 and f16, on top of the plain f32 kernels: what tests compare with, and
 * what runs where nothing faster does. Conversions are plain C.
 */
#include "ref.h"

#include "half_tools.inc"

#include "ref_cached_space.inc"

#define REAL        float
#define F32(kernel) sherd__ref_f32.kernel

#define ELEMENT       uint16_t
#define NAME(x)       bf16_##x
#define GET(x)        sherd__from_bf16(x)
#define PUT(x)        sherd__to_bf16(x)
#define PUT_DOUBLE(x) sherd__double_to_bf16(x)
#include "ref_half.inc"
#include "ref_cached.inc"
#include "half_body.inc"
#include "half_matrix.inc"

#define ELEMENT       uint16_t
#define NAME(x)       f16_##x
#define GET(x)        sherd__from_f16(x)
#define PUT(x)        sherd__to_f16(x)
#define PUT_DOUBLE(x) sherd__double_to_f16(x)
#include "ref_half.inc"
#include "ref_cached.inc"
#include "half_body.inc"
#include "half_matrix.inc"

void sherd__install_half_ref(sherd__kernels *bf16, sherd__kernels *f16)
{
    bf16_install(bf16, "reference", "reference");
    f16_install(f16, "reference", "reference");
    sherd__install_half_elements(bf16, f16);
}
