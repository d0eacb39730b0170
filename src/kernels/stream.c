/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streaming copies. A plain store first reads the line it writes to; a streaming store does not,
 * and leaves the cache to others: 1.4 times as fast from memory to memory, slower inside the cache.
 */
#include "stream.h"

#include <string.h>

#if defined(__SSE2__)

#include <emmintrin.h>

enum { LINE = 64 };

/* Whole lines by streaming stores; the ragged ends through the cache. */
void sherd__stream(void *dst, const void *src, size_t bytes)
{
    char *to = dst;
    const char *from = src;
    size_t head = (LINE - (uintptr_t)to % LINE) % LINE;

    head = head < bytes ? head : bytes;
    memcpy(to, from, head);
    to += head;
    from += head;
    for (bytes -= head; bytes >= LINE; bytes -= LINE, to += LINE, from += LINE) {
        const __m128i *s = (const __m128i *)(const void *)from;
        __m128i *d = (__m128i *)(void *)to;
        __m128i a = _mm_loadu_si128(s), b = _mm_loadu_si128(s + 1);
        __m128i e = _mm_loadu_si128(s + 2), f = _mm_loadu_si128(s + 3);
        _mm_stream_si128(d, a);
        _mm_stream_si128(d + 1, b);
        _mm_stream_si128(d + 2, e);
        _mm_stream_si128(d + 3, f);
    }
    memcpy(to, from, bytes);
}

void sherd__stream_end(void)
{
    _mm_sfence();
}

#else

void sherd__stream(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

void sherd__stream_end(void)
{
}

#endif

enum {
    SIDE_BY_SIDE = 8,    /* rows; 4 are nearly as good, 16 no better */
    STRIDE_BYTES = 256,  /* of each in turn */
    LONG_ROW = 256 << 10 /* from here on a row alone is fast */
};

/* One stretch of a row. Stretches end where lines of dst do, so that no line is written in two parts. */
static void stream_stretch(char *dst, const char *src, size_t bytes, size_t at)
{
    size_t head = (uintptr_t)dst % 64 ? 64 - (uintptr_t)dst % 64 : 0;
    size_t begin = at ? at + head : 0, end = at + head + STRIDE_BYTES;

    if (begin < bytes)
        sherd__stream(dst + begin, src + begin, (end < bytes ? end : bytes) - begin);
}

void sherd__stream_rows(char *dst, int64_t dst_stride, const char *src, int64_t src_stride,
                        int64_t rows, size_t bytes)
{
    for (int64_t i = 0; i < rows; i += SIDE_BY_SIDE) {
        int64_t end = i + SIDE_BY_SIDE < rows ? i + SIDE_BY_SIDE : rows;
        for (size_t at = 0; bytes < LONG_ROW && at < bytes; at += STRIDE_BYTES)
            for (int64_t k = i; k < end; k++)
                stream_stretch(dst + k * dst_stride, src + k * src_stride, bytes, at);
        for (int64_t k = i; bytes >= LONG_ROW && k < end; k++)
            sherd__stream(dst + k * dst_stride, src + k * src_stride, bytes);
    }
}
