/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying boxes: the heart of every move of data. A box is first brought to its simplest form (dims
 * sorted as they lie in dst, neighbours that lie alike joined), then copied as runs of bytes. If
 * there are no runs, the plane of the last dim and the dim along which src is densest is copied at
 * a time: in square tiles that stay in the first cache if the two sides are dense along different
 * dims, else row by row; by vectors (turn.c) if it has no holes.
 */
#include "stream.h"
#include "turn.h"

#include <stdlib.h>
#include <string.h>

enum {
    STREAM_RUN = 512,        /* bytes; shorter runs have too few whole cache lines */
    SQUARE = 16,             /* elements */
    SHIFTED = 1024,          /* bytes of rows for which memcpy may be slow: from here */
    SHIFTED_MOST = 64 << 10, /* to here */
    FEW_BYTES = 4096 /* up to here finding the simplest form would take longer than the copy */
};

typedef struct copy {
    int ndim;
    int64_t size[SHERD_MAX_DIMS], dst[SHERD_MAX_DIMS], src[SHERD_MAX_DIMS]; /* strides: bytes */
} copy;

void sherd__row_major(int ndim, const int64_t *size, int64_t *stride)
{
    int64_t step = 1;

    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= size[d];
    }
}

/* Put a dim where its stride in dst belongs: descending, so that the last dim is the one along
 * which dst is dense. */
static void insert(copy *c, int64_t size, int64_t dst, int64_t src)
{
    int at = c->ndim++;

    for (; at > 0 && llabs(c->dst[at - 1]) < llabs(dst); at--) {
        c->size[at] = c->size[at - 1];
        c->dst[at] = c->dst[at - 1];
        c->src[at] = c->src[at - 1];
    }
    c->size[at] = size;
    c->dst[at] = dst;
    c->src[at] = src;
}

/* Join each dim with the one before it where both sides go on as if they were one. */
static void join(copy *c)
{
    int last = 0;

    for (int d = 1; d < c->ndim; d++) {
        if (c->dst[last] == c->dst[d] * c->size[d] && c->src[last] == c->src[d] * c->size[d]) {
            c->size[last] *= c->size[d];
        } else {
            last++;
            c->size[last] = c->size[d];
        }
        c->dst[last] = c->dst[d];
        c->src[last] = c->src[d];
    }
    c->ndim = c->ndim ? last + 1 : 0;
}

/*
 * Copy a row whose place within a cache line differs from that of its source, in pieces. memcpy is
 * 7 times slower there on Zen, because it uses an instruction for long copies.
 */
static void copy_shifted(char *dst, const char *src, size_t bytes)
{
    enum { STEP = 64 };

    for (size_t at = 0; at + STEP <= bytes; at += STEP)
        memcpy(dst + at, src + at, STEP);
    memcpy(dst + bytes - STEP, src + bytes - STEP, STEP);
}

/* Rows of `bytes`, which is a constant in each caller but one. */
static inline void copy_lines(size_t bytes, int64_t rows, char *dst, int64_t dst_row,
                              const char *src, int64_t src_row)
{
    for (int64_t r = 0; r < rows; r++)
        memcpy(dst + r * dst_row, src + r * src_row, bytes);
}

static void copy_rows(size_t bytes, int64_t rows, char *dst, int64_t dst_row, const char *src,
                      int64_t src_row)
{
    switch (bytes) {
    case 4:
        copy_lines(4, rows, dst, dst_row, src, src_row);
        break;
    case 8:
        copy_lines(8, rows, dst, dst_row, src, src_row);
        break;
    case 16:
        copy_lines(16, rows, dst, dst_row, src, src_row);
        break;
    case 32:
        copy_lines(32, rows, dst, dst_row, src, src_row);
        break;
    case 64:
        copy_lines(64, rows, dst, dst_row, src, src_row);
        break;
    case 128:
        copy_lines(128, rows, dst, dst_row, src, src_row);
        break;
    default:
        if (bytes < SHIFTED || bytes > SHIFTED_MOST ||
            ((uintptr_t)dst - (uintptr_t)src) % SHERD__LINE == 0) {
            copy_lines(bytes, rows, dst, dst_row, src, src_row);
            break;
        }
        for (int64_t r = 0; r < rows; r++)
            copy_shifted(dst + r * dst_row, src + r * src_row, bytes);
    }
}

/* Runs of `bytes`, one for each index of the dims from `dim` on. */
static void copy_runs(const copy *c, int dim, size_t bytes, bool stream, char *dst, const char *src)
{
    if (dim == c->ndim) {
        if (stream)
            sherd__stream(dst, src, bytes);
        else
            memcpy(dst, src, bytes);
        return;
    }
    if (dim == c->ndim - 1) {
        if (stream)
            sherd__stream_rows(dst, c->dst[dim], src, c->src[dim], c->size[dim], bytes);
        else
            copy_rows(bytes, c->size[dim], dst, c->dst[dim], src, c->src[dim]);
        return;
    }
    for (int64_t i = 0; i < c->size[dim]; i++)
        copy_runs(c, dim + 1, bytes, stream, dst + i * c->dst[dim], src + i * c->src[dim]);
}

/* A plane of rows x cols elements; the strides are bytes. `bytes` is a constant in each caller but
 * one. */
static inline void copy_plane(size_t bytes, int64_t rows, int64_t cols, char *dst, int64_t dst_row,
                              int64_t dst_col, const char *src, int64_t src_row, int64_t src_col)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            memcpy(dst + r * dst_row + c * dst_col, src + r * src_row + c * src_col, bytes);
}

/*
 * A plane, in squares if src is denser along columns, so that its cache lines are used while they
 * are in the cache.
 */
static inline void copy_squares(size_t bytes, int64_t rows, int64_t cols, char *dst,
                                int64_t dst_row, int64_t dst_col, const char *src, int64_t src_row,
                                int64_t src_col)
{
    int64_t side = llabs(src_row) < llabs(src_col) ? SQUARE : rows > cols ? rows : cols;

    for (int64_t i = 0; i < rows; i += side)
        for (int64_t j = 0; j < cols; j += side)
            copy_plane(bytes, rows - i < side ? rows - i : side, cols - j < side ? cols - j : side,
                       dst + i * dst_row + j * dst_col, dst_row, dst_col,
                       src + i * src_row + j * src_col, src_row, src_col);
}

/* The plane of the dims `row` and the last; `bytes` is a constant in each caller but one. */
static inline void copy_one_plane(size_t bytes, const copy *c, int row, char *dst, const char *src)
{
    int col = c->ndim - 1;

    copy_squares(bytes, c->size[row], c->size[col], dst, c->dst[row], c->dst[col], src, c->src[row],
                 c->src[col]);
}

/* A row of n > 0 copies of one element, doubled up to a piece that is then copied. */
static void repeat_element(size_t bytes, int64_t n, char *dst, const char *src)
{
    enum { PIECE = 2048 };
    size_t all = (size_t)n * bytes, done = bytes;

    memcpy(dst, src, bytes);
    for (; done < all && done < PIECE; done *= 2)
        memcpy(dst + done, dst, 2 * done < all ? done : all - done);
    for (size_t at = done; at < all; at += done)
        memcpy(dst + at, dst, at + done < all ? done : all - at);
}

/*
 * Rows of n > 0 copies of one element each, of at most a line: whole vectors, the last of them over
 * the one before it. `bytes` is a constant in each caller.
 */
static inline void repeat_short(size_t bytes, int64_t rows, int64_t n, char *dst, int64_t dst_row,
                                const char *src, int64_t src_row)
{
    enum { PIECE = 16 };
    size_t all = (size_t)n * bytes;
    char piece[PIECE];

    for (int64_t r = 0; r < rows; r++, dst += dst_row, src += src_row) {
        for (size_t at = 0; at < PIECE; at += bytes)
            memcpy(piece + at, src, bytes);
        for (size_t at = 0; all < PIECE && at < all; at += bytes)
            memcpy(dst + at, src, bytes);
        for (size_t at = 0; at + PIECE <= all; at += PIECE)
            memcpy(dst + at, piece, PIECE);
        if (all > PIECE)
            memcpy(dst + all - PIECE, piece, PIECE);
    }
}

static void repeat_rows(size_t bytes, int64_t rows, int64_t n, char *dst, int64_t dst_row,
                        const char *src, int64_t src_row)
{
    bool fits = n <= (int64_t)(SHERD__LINE / bytes);

    if (fits && bytes == 2)
        repeat_short(2, rows, n, dst, dst_row, src, src_row);
    else if (fits && bytes == 4)
        repeat_short(4, rows, n, dst, dst_row, src, src_row);
    else if (fits && bytes == 8)
        repeat_short(8, rows, n, dst, dst_row, src, src_row);
    else
        for (int64_t r = 0; r < rows; r++)
            repeat_element(bytes, n, dst + r * dst_row, src + r * src_row);
}

/* Rows of few elements, which run backwards; `bytes` and n are constants in each caller. */
static inline void reverse_rows(size_t bytes, int64_t rows, int64_t n, char *dst, int64_t dst_row,
                                const char *src, int64_t src_row)
{
    for (int64_t r = 0; r < rows; r++, dst += dst_row, src += src_row)
        for (int64_t i = 0; i < n; i++)
            memcpy(dst + i * (int64_t)bytes, src - i * (int64_t)bytes, bytes);
}

/* The same of n = 2, 3 or 4, for which a call for each row takes longer than the copy. */
static inline void reverse_few(size_t bytes, int64_t rows, int64_t n, char *dst, int64_t dst_row,
                               const char *src, int64_t src_row)
{
    if (n == 2)
        reverse_rows(bytes, rows, 2, dst, dst_row, src, src_row);
    else if (n == 3)
        reverse_rows(bytes, rows, 3, dst, dst_row, src, src_row);
    else
        reverse_rows(bytes, rows, 4, dst, dst_row, src, src_row);
}

/* Rows that run backwards. False: elements of other sizes. */
static bool reverse_plane(size_t bytes, int64_t rows, int64_t n, char *dst, int64_t dst_row,
                          const char *src, int64_t src_row)
{
    bool few = n <= 4 && (bytes == 2 || bytes == 4 || bytes == 8), done = true;

    if (few && bytes == 2)
        reverse_few(2, rows, n, dst, dst_row, src, src_row);
    else if (few && bytes == 4)
        reverse_few(4, rows, n, dst, dst_row, src, src_row);
    else if (few)
        reverse_few(8, rows, n, dst, dst_row, src, src_row);
    for (int64_t r = 0; !few && done && r < rows; r++)
        done = sherd__reverse(bytes, n, dst + r * dst_row, src + r * src_row);
    return done;
}

/* Copy by vectors a plane that is turned, or whose rows are reversed or one element each. False: it
 * is neither. */
static bool copy_by_vectors(int64_t bytes, const copy *c, int row, char *dst, const char *src)
{
    int col = c->ndim - 1;

    if (c->dst[col] != bytes)
        return false;
    if (c->src[col] == 0) {
        repeat_rows((size_t)bytes, c->size[row], c->size[col], dst, c->dst[row], src, c->src[row]);
        return true;
    }
    if (c->src[row] == bytes)
        return sherd__turn((size_t)bytes, c->size[row], c->size[col], dst, c->dst[row], src,
                           c->src[col]);
    return c->src[col] == -bytes && reverse_plane((size_t)bytes, c->size[row], c->size[col], dst,
                                                  c->dst[row], src, c->src[row]);
}

static void copy_by_size(size_t bytes, const copy *c, int row, char *dst, const char *src)
{
    if (copy_by_vectors((int64_t)bytes, c, row, dst, src))
        return;
    switch (bytes) {
    case 1:
        copy_one_plane(1, c, row, dst, src);
        break;
    case 2:
        copy_one_plane(2, c, row, dst, src);
        break;
    case 4:
        copy_one_plane(4, c, row, dst, src);
        break;
    case 8:
        copy_one_plane(8, c, row, dst, src);
        break;
    default:
        copy_one_plane(bytes, c, row, dst, src);
    }
}

/* All planes: one for each index of the dims from `dim` on, but `row` and the last. */
static void copy_planes(const copy *c, int dim, size_t bytes, int row, char *dst, const char *src)
{
    if (dim == row)
        dim++;
    if (dim >= c->ndim - 1) {
        copy_by_size(bytes, c, row, dst, src);
        return;
    }
    for (int64_t i = 0; i < c->size[dim]; i++)
        copy_planes(c, dim + 1, bytes, row, dst + i * c->dst[dim], src + i * c->src[dim]);
}

/* The dim besides the last along which src is densest, strides of 0 aside. */
static int densest(const copy *c)
{
    int best = c->ndim - 2;

    for (int d = 0; d < c->ndim - 2; d++)
        if (c->src[d] && (c->src[best] == 0 || llabs(c->src[d]) < llabs(c->src[best])))
            best = d;
    return best;
}

/*
 * Copy runs along the dims [0, row], of which at most two besides `row` have more than one index.
 * False: there are more.
 */
static bool copy_few_planes(int64_t bytes, size_t run, int row, const int64_t *size, char *dst,
                            const int64_t *dst_stride, const char *src, const int64_t *src_stride)
{
    int64_t n[2] = {1, 1}, to[2] = {0}, from[2] = {0};
    int dims = 0;

    for (int d = row - 1; d >= 0; d--) {
        if (size[d] == 1)
            continue;
        if (dims == 2)
            return false;
        n[dims] = size[d];
        to[dims] = dst_stride[d] * bytes;
        from[dims++] = src_stride[d] * bytes;
    }
    for (int64_t i = 0; i < n[1]; i++)
        for (int64_t j = 0; j < n[0]; j++)
            copy_rows(run, size[row], dst + i * to[1] + j * to[0], dst_stride[row] * bytes,
                      src + i * from[1] + j * from[0], src_stride[row] * bytes);
    return true;
}

/*
 * Copy a box of few bytes as it is, run by run: most boxes of small moves. False: it is too large.
 */
static bool copy_few(int64_t bytes, int ndim, const int64_t *size, char *dst,
                     const int64_t *dst_stride, const char *src, const int64_t *src_stride)
{
    int64_t run = 1, planes = 1;
    int row = ndim - 1;

    for (; row >= 0 && (size[row] == 1 || (dst_stride[row] == run && src_stride[row] == run));
         row--)
        run *= size[row];
    for (int d = 0; d < row; d++)
        planes *= size[d];
    int64_t rows = row < 0 ? 1 : size[row];
    run *= bytes;
    if (planes * rows * run > FEW_BYTES)
        return false;
    if (planes != 1)
        return copy_few_planes(bytes, (size_t)run, row, size, dst, dst_stride, src, src_stride);
    if (row < 0)
        memcpy(dst, src, (size_t)run);
    else
        copy_rows((size_t)run, rows, dst, dst_stride[row] * bytes, src, src_stride[row] * bytes);
    return true;
}

void sherd__copy_box(size_t element_bytes, int ndim, const int64_t *size, void *dst,
                     const int64_t *dst_stride, const void *src, const int64_t *src_stride)
{
    sherd__copy_part(element_bytes, ndim, size, dst, dst_stride, src, src_stride, 0);
}

void sherd__copy_part(size_t element_bytes, int ndim, const int64_t *size, void *dst,
                      const int64_t *dst_stride, const void *src, const int64_t *src_stride,
                      int64_t whole_bytes)
{
    int64_t bytes = (int64_t)element_bytes, run = bytes, all = bytes;
    copy c;

    for (int d = 0; d < ndim; d++)
        if (size[d] == 0) /* whatever the other sizes multiply to; the pointers may be NULL */
            return;
    if (copy_few(bytes, ndim, size, dst, dst_stride, src, src_stride))
        return;
    c.ndim = 0;
    for (int d = 0; d < ndim; d++) {
        all *= size[d];
        if (size[d] > 1)
            insert(&c, size[d], dst_stride[d] * bytes, src_stride[d] * bytes);
    }
    join(&c);
    if (c.ndim && c.dst[c.ndim - 1] == bytes && c.src[c.ndim - 1] == bytes)
        run *= c.size[--c.ndim];
    if (run == bytes && c.ndim) {
        if (c.ndim == 1)
            insert(&c, 1, INT64_MAX, 0);
        copy_planes(&c, 0, element_bytes, densest(&c), dst, src);
        return;
    }
    bool stream = sherd__goes_past(all, whole_bytes) && run >= STREAM_RUN;
    copy_runs(&c, 0, (size_t)run, stream, dst, src);
    if (stream)
        sherd__stream_end();
}
