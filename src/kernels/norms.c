/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of norms.h: one body for all dtypes, where LOAD and STORE convert an element to and
 * from double. */
#include "norms.h"

#include "half.h"

#define HALF_NORMS
#define NORMS plain_norms
#define ALONG plain_along
#include "norms_tables.inc"

const sherd__norm_kernels *sherd__norm_kernels_of(sherd_dtype dtype)
{
    return plain_norms(dtype);
}

const sherd__along_kernels *sherd__along_kernels_of(sherd_dtype dtype)
{
    return plain_along(dtype);
}
