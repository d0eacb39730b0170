/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies of bodies.h by AVX2. The build gives this file the flags that it needs. */
#include "bodies.h"
#include "kernels/half.h"

#if defined(__x86_64__)

#define NORMS norms
#include "kernels/norms_tables.inc"

const sherd__bodies sherd__bodies_avx2 = {.norms = norms};

#endif
