/* SPDX-License-Identifier: Apache-2.0 */
/* Words that are alike for all vectors vf of the compiler, whatever they are of. */
#ifndef SHERD__VECTOR_VECTOR_PLAIN_H
#define SHERD__VECTOR_VECTOR_PLAIN_H

INLINE vf v_zero(void)
{
    return (vf){0};
}
INLINE vf v_add(vf a, vf b)
{
    return a + b;
}
INLINE vf v_sub(vf a, vf b)
{
    return a - b;
}
INLINE vf v_mul(vf a, vf b)
{
    return a * b;
}
INLINE vf v_div(vf a, vf b)
{
    return a / b;
}

#endif
