/* SPDX-License-Identifier: Apache-2.0 */
/* NaN and infinite numbers, replaced in one pass. */
#ifndef SHERD__KERNELS_FINITE_H
#define SHERD__KERNELS_FINITE_H

#include "sherd/dtype.h"

#include <stdint.h>

/* dst[n] = src[n], of a dtype that has fractions, but what is NaN, above and below all others
 * becomes to[0], to[1], to[2]. dst may equal src. */
void sherd__replace_odd(sherd_dtype dtype, int64_t n, void *dst, const void *src,
                        const double to[3]);

#endif
