/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the kernels of rotary.cu. */
#ifndef SHERD__PROGRAMS_ROTARY_ARGS_H
#define SHERD__PROGRAMS_ROTARY_ARGS_H

/* x[batch,positions,heads,width]: items are the numbers of a head, a pair that turns being one. */
typedef struct rotate_args {
    void *dst;
    const void *src;
    const int32_t *position; /* [positions], or [batch,positions] if `each`; NULL: first, .. */
    const double *frequency; /* [pairs]; NULL: of the base */
    int64_t batch, positions, heads, width, pairs, items, first;
    int32_t interleaved, inverse, each;
    double base;
} rotate_args;

#endif
