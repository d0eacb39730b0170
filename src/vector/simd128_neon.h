/* SPDX-License-Identifier: Apache-2.0 */
/* Words of vector_simd128.h that are one instruction of arm64, which the compiler would not find.
 * Included by that file only. */
#ifndef SHERD__VECTOR_SIMD128_NEON_H
#define SHERD__VECTOR_SIMD128_NEON_H

#include <arm_neon.h>

INLINE void v_stream(float *p, vf x)
{
    v_store(p, x); /* such a store has no name in C */
}
INLINE vf v_fma(vf a, vf b, vf c)
{
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
INLINE vf v_fnma(vf a, vf b, vf c)
{
    return (vf)vfmsq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
INLINE vf v_rest(vf a, vf b, vf product)
{
    return v_fma(a, b, -product);
}
INLINE vf v_rounded_off(vf x, vf square)
{
    return v_fnma(x, x, square);
}
INLINE vf v_sqrt(vf x)
{
    return (vf)vsqrtq_f32((float32x4_t)x);
}
INLINE vf v_nearest(vf x)
{
    return (vf)vrndnq_f32((float32x4_t)x);
}
/* fmin and fmax would be NaN with NaN on either side. */
INLINE vf v_min(vf a, vf b)
{
    return (vf)vbslq_f32((uint32x4_t)(a < b), (float32x4_t)a, (float32x4_t)b);
}
INLINE vf v_max(vf a, vf b)
{
    return (vf)vbslq_f32((uint32x4_t)(a > b), (float32x4_t)a, (float32x4_t)b);
}
INLINE vi v_choose_bits(vi lanes, vi yes, vi no)
{
    return (vi)vbslq_u32((uint32x4_t)lanes, (uint32x4_t)yes, (uint32x4_t)no);
}
INLINE bool v_any(vm m)
{
    return vmaxvq_u32((uint32x4_t)m.lanes) != 0;
}
INLINE float v_sum(vf x)
{
    return vaddvq_f32((float32x4_t)x);
}

INLINE vd v_wide_low(vf x)
{
    return (vd)vcvt_f64_f32(vget_low_f32((float32x4_t)x));
}
INLINE vd v_wide_high(vf x)
{
    return (vd)vcvt_high_f64_f32((float32x4_t)x);
}
INLINE vf v_narrow(vd low, vd high)
{
    return (vf)vcvt_high_f32_f64(vcvt_f32_f64((float64x2_t)low), (float64x2_t)high);
}
INLINE vd v_wide_fma(vd a, vd b, vd c)
{
    return (vd)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}

INLINE vi v_int_product(vi a, vi b, vi *high)
{
    uint32x4_t x = (uint32x4_t)a, y = (uint32x4_t)b;
    uint32x4_t first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(x), vget_low_u32(y)));
    uint32x4_t second = vreinterpretq_u32_u64(vmull_high_u32(x, y));

    *high = (vi)vuzp2q_u32(first, second);
    return (vi)vuzp1q_u32(first, second);
}

/* The upper halves of eight words. */
INLINE void v_store_upper(uint16_t *p, vi first, vi second)
{
    vst1q_u16(p, vuzp2q_u16(vreinterpretq_u16_u32((uint32x4_t)first),
                            vreinterpretq_u16_u32((uint32x4_t)second)));
}
/* The upper halves of four. */
INLINE void v_store_upper4(uint16_t *p, vi x)
{
    vst1_u16(p, vshrn_n_u32((uint32x4_t)x, 16));
}
/* Four numbers of 16 bits as the upper halves of words; the lower ones are 0. */
INLINE vi v_load_upper4(const uint16_t *p)
{
    return (vi)vshll_n_u16(vld1_u16(p), 16);
}
INLINE vf v_load_f16(const uint16_t *p)
{
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
INLINE void v_store_f16(uint16_t *p, vf x)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x)));
}

#endif
