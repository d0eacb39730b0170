/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that pass the cache by, where the machine has such stores; plain copies elsewhere. */
#ifndef SHERD__KERNELS_STREAM_H
#define SHERD__KERNELS_STREAM_H

#include "kernels.h"

/* Copy bytes that do not overlap. Others see them in order only after sherd__stream_end. */
void sherd__stream(void *dst, const void *src, size_t bytes);
void sherd__stream_end(void);

/*
 * The same for rows of `bytes`, strides in bytes. Several rows are copied side by side, a line of
 * each in turn: a machine reads ahead along each of them, but not from the end of one into the
 * next. Twice as fast, for rows of some pages.
 */
void sherd__stream_rows(char *dst, int64_t dst_stride, const char *src, int64_t src_stride,
                        int64_t rows, size_t bytes);

/*
 * Whether what is written goes past the cache: boxes that would throw out what is in use, and parts
 * of such results, if they are not tiny. bytes: of the part that is written now; whole_bytes: of
 * all of them together.
 */
bool sherd__goes_past(int64_t bytes, int64_t whole_bytes);

/*
 * r to each of dst[copies], for r->count up to SHERD_MAX_RANKS, any dtype that `kernels` reduces. A
 * dst may be an r->src. Others may read it afterwards.
 */
void sherd__reduce_past(const sherd__kernels *kernels, size_t element_bytes,
                        const sherd__reduction *r, void *const *dst, int copies);

#endif
