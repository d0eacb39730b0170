/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the bodies that are compiled several times goes with a table: by the table's name. */
#include "bodies.h"

#include <string.h>

static const sherd__bodies plain = {.norms = sherd__norm_kernels_of};

static const sherd__bodies *bodies_of(const sherd__kernels *beside)
{
#if defined(__x86_64__)
    if (strcmp(beside->name, "avx512") == 0)
        return &sherd__bodies_avx512;
    if (strcmp(beside->name, "avx2") == 0)
        return &sherd__bodies_avx2;
#else
    (void)beside;
#endif
    return &plain;
}

const sherd__norm_kernels *sherd__norms_by(const sherd__kernels *beside, sherd_dtype dtype)
{
    return bodies_of(beside)->norms(dtype);
}
