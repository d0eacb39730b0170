/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executing one region of a schedule: a copy from one source, or a sum of several. The only place
 * where elements of a move are touched; it allocates nothing and cannot fail.
 */
#include "inside.h"
#include "base/num.h"
#include "kernels/stream.h"

#include <string.h>

/*
 * Sources that are added at once; more are added onto the result, in the same order. 16-bit types
 * are rounded once for each time, so this is well beyond the ranks of a machine; its room, 72 kB of
 * stack, is only touched as far as it is used.
 */
enum {
    ADDENDS = 1024,
    FEW_ADDENDS = 64,
    SHORT_ROW = 8,         /* elements */
    TOGETHER = 256,        /* elements of short rows that are added at once */
    FEW_TOGETHER = 8,      /* addends */
    SHORT_COPY = 64 << 10, /* bytes */
    NEAR_COPY = 16 << 10,  /* less is mostly in the first cache */
    SPREAD = 2 /* results that are written at once through the cache: more take longer */
};

/* A region that is added up, and one batch of it in its simplest form. */
typedef struct sum {
    const sherd__schedule *schedule;
    const sherd__region *region;
    const sherd__source *sources; /* of pulls [first, end) */
    int first, end;
    const sherd__kernels *kernels;
    size_t element_bytes;
    double divisor;
    int count, ndim;
    int64_t size[SHERD_MAX_DIMS];
    int64_t dst_stride[SHERD_MAX_DIMS];
    int64_t stride[ADDENDS][SHERD_MAX_DIMS];
} sum;

static const void *start_of(const sherd__source *source, const int64_t *offset, int ndim,
                            size_t element_bytes)
{
    int64_t at = 0;

    for (int d = 0; d < ndim; d++)
        at += offset[d] * source->stride[d];
    return (const char *)source->data + at * (int64_t)element_bytes;
}

/*
 * Join each dim to the one before it where all of dst and the sources lie end to end, so that rows
 * are long.
 */
static void join_dims(sum *s)
{
    int last = 0;

    for (int d = 1; d < s->ndim; d++) {
        bool join = s->dst_stride[last] == s->dst_stride[d] * s->size[d];
        for (int i = 0; join && i < s->count; i++)
            join = s->stride[i][last] == s->stride[i][d] * s->size[d];
        if (join)
            s->size[last] *= s->size[d];
        else
            s->size[++last] = s->size[d];
        s->dst_stride[last] = s->dst_stride[d];
        for (int i = 0; i < s->count; i++)
            s->stride[i][last] = s->stride[i][d];
    }
    s->ndim = last + 1;
}

/* Step to the next row over the first `outer` dims; false after the last. */
static bool next_row(const sum *s, int outer, int64_t *at, char **dst, const char **src)
{
    for (int d = outer - 1; d >= 0; d--) {
        bool wraps = ++at[d] == s->size[d];
        int64_t step = (wraps ? 1 - s->size[d] : 1) * (int64_t)s->element_bytes;
        *dst += step * s->dst_stride[d];
        for (int i = 0; i < s->count; i++)
            src[i] += step * s->stride[i][d];
        if (!wraps)
            return true;
        at[d] = 0;
    }
    return false;
}

/* Strides of the last two dims; returns where the element `at` of them is. */
static int64_t last_two(const sum *s, const int64_t *stride, const int64_t *at, int64_t *lie)
{
    int inner = s->ndim - 1;

    lie[0] = inner ? stride[inner - 1] : 0;
    lie[1] = stride[inner];
    return (at[0] * lie[0] + at[1] * lie[1]) * (int64_t)s->element_bytes;
}

/* A block of the last two dims: brought together, added, and put back. */
static void add_block(const sum *s, const int64_t *at, const int64_t *size, char *dst,
                      const char **src)
{
    uint64_t room[FEW_TOGETHER][TOGETHER]; /* for elements of any dtype */
    const void *brought[FEW_TOGETHER];
    const int64_t close[] = {size[1], 1};
    int64_t lie[2];

    for (int i = 0; i < s->count; i++) {
        const char *from = src[i] + last_two(s, s->stride[i], at, lie);
        sherd__copy_box(s->element_bytes, 2, size, room[i], close, from, lie);
        brought[i] = room[i];
    }
    s->kernels->reduce(s->schedule->op, room[0], brought, s->count, size[0] * size[1], s->divisor);
    dst += last_two(s, s->dst_stride, at, lie);
    sherd__copy_box(s->element_bytes, 2, size, dst, lie, room[0], close);
}

/* Rows that are short or have gaps: a call of the kernel for each, or for each element, would take
 * longer than what it adds. */
static void add_together(const sum *s, int64_t rows, int64_t row, char *dst, const char **src)
{
    int64_t at[SHERD_MAX_DIMS] = {0}, cols = sherd__min(row, TOGETHER), some = TOGETHER / cols;

    do
        for (int64_t i = 0; i < rows; i += some)
            for (int64_t j = 0; j < row; j += cols) {
                const int64_t first[] = {i, j};
                const int64_t size[] = {sherd__min(some, rows - i), sherd__min(cols, row - j)};
                add_block(s, first, size, dst, src);
            }
    while (next_row(s, s->ndim - 2, at, &dst, src));
}

/* Each row is one call of the kernel; where the row of a source has gaps, each element is. */
static void add_rows(const sum *s, char *dst, const char **src)
{
    int inner = s->ndim - 1;
    int64_t at[SHERD_MAX_DIMS] = {0}, row = s->size[inner], rows = inner ? s->size[inner - 1] : 1;
    bool dense = s->dst_stride[inner] == 1;

    for (int i = 0; i < s->count; i++)
        dense = dense && s->stride[i][inner] == 1;
    if (s->count <= FEW_TOGETHER && (dense ? row < SHORT_ROW : row > 1) && rows * row > SHORT_ROW) {
        add_together(s, rows, row, dst, src);
        return;
    }
    do
        s->kernels->reduce(s->schedule->op, dst, (const void *const *)src, s->count,
                           dense ? row : 1, s->divisor);
    while (next_row(s, dense ? inner : s->ndim, at, &dst, src));
}

/*
 * Add pulls from `first` on to dst: the first batch overwrites it, the last one divides. Returns
 * how many.
 */
static int add_batch(sum *s, char *dst, const int64_t *dst_stride, int first)
{
    int ndim = s->schedule->ndim, held = first ? 1 : 0, taken = 0;
    const char *src[ADDENDS];

    s->ndim = ndim;
    memcpy(s->size, s->region->size, sizeof s->size);
    memcpy(s->dst_stride, dst_stride, sizeof s->dst_stride);
    if (held) {
        src[0] = dst;
        memcpy(s->stride[0], dst_stride, sizeof s->stride[0]);
    }
    for (; held + taken < ADDENDS && first + taken < s->end; taken++) {
        const sherd__source *source = &s->sources[first + taken - s->first];
        const sherd__pull *pull = &s->schedule->pull[s->region->first + first + taken];
        src[held + taken] = start_of(source, pull->offset, ndim, s->element_bytes);
        memcpy(s->stride[held + taken], source->stride, sizeof s->stride[0]);
    }
    s->count = held + taken;
    s->divisor = first + taken == s->region->count ? s->schedule->divisor : 1;
    if (ndim == 0) { /* a scalar is a row of one */
        s->ndim = 1;
        s->size[0] = s->dst_stride[0] = 1;
        for (int i = 0; i < s->count; i++)
            s->stride[i][0] = 1;
    }
    join_dims(s);
    add_rows(s, dst, src);
    return taken;
}

/*
 * A region without a source. Where its rows are short, as those of ghost cells of the last dim are,
 * it is a copy of one value to all places: a call of the kernel for each row would cost more than
 * the step of a stencil.
 */
static void fill_rows(const sherd__schedule *schedule, const sherd__region *region, char *dst,
                      const int64_t *dst_stride, size_t element_bytes,
                      const sherd__kernels *kernels)
{
    static const int64_t none[SHERD_MAX_DIMS] = {0};
    int64_t at[SHERD_MAX_DIMS] = {0}, value; /* room for an element of any dtype */
    sum s;                                   /* large, and mostly not needed */

    s.element_bytes = element_bytes;
    s.ndim = schedule->ndim;
    s.count = 0;
    if (s.ndim == 0) {
        kernels->fill(dst, 1, schedule->fill);
        return;
    }
    memcpy(s.size, region->size, sizeof s.size);
    memcpy(s.dst_stride, dst_stride, sizeof s.dst_stride);
    join_dims(&s);
    if (s.size[s.ndim - 1] < SHORT_ROW) {
        kernels->fill(&value, 1, schedule->fill);
        sherd__copy_box(element_bytes, s.ndim, s.size, dst, s.dst_stride, &value, none);
        return;
    }
    do
        kernels->fill(dst, s.size[s.ndim - 1], schedule->fill);
    while (next_row(&s, s.ndim - 1, at, &dst, NULL));
}

void sherd__region_add(const sherd__schedule *schedule, const sherd__region *region, int first,
                       int end, void *result, const sherd__source *sources, size_t element_bytes,
                       const sherd__kernels *kernels)
{
    char *dst = (char *)result + region->at * (int64_t)element_bytes;
    sum s;

    s.schedule = schedule;
    s.region = region;
    s.sources = sources;
    s.first = first;
    s.end = end;
    s.kernels = kernels;
    s.element_bytes = element_bytes;
    while (first < end)
        first += add_batch(&s, dst, schedule->target_stride, first);
}

/* Where a region begins in a source; *dense: it lies there in one piece. */
static const void *find_in_source(const sherd__source *source, int ndim, const int64_t *size,
                                  const int64_t *offset, int64_t element_bytes, bool *dense)
{
    int64_t n = 1, at = 0;
    bool gaps = false;

    for (int d = ndim - 1; d >= 0; d--) {
        int64_t stride = source->stride[d];
        at += offset[d] * stride;
        gaps |= (size[d] != 1) & (stride != n);
        n *= size[d];
    }
    *dense = !gaps;
    return (const char *)source->data + at * element_bytes;
}

/*
 * How many elements a region has where it and its addends, src[count], lie in one piece each; else
 * 0.
 */
static int64_t all_dense(const sherd__schedule *schedule, const sherd__region *region,
                         const sherd__source *sources, size_t element_bytes, const void **src)
{
    const sherd__pull *pull = schedule->pull + region->first;
    bool dense = region->dense != 0 && region->count >= 1 && region->count <= FEW_ADDENDS;

    for (int i = 0; dense && i < region->count; i++)
        src[i] = find_in_source(&sources[i], schedule->ndim, region->size, pull[i].offset,
                                (int64_t)element_bytes, &dense);
    return dense ? region->dense : 0;
}

/*
 * What most small reductions are: a sum of few, where all lies in one piece. False: it is something
 * else.
 */
static bool reduce_dense(const sherd__schedule *schedule, const sherd__region *region, void *dst,
                         const sherd__source *sources, size_t element_bytes,
                         const sherd__kernels *kernels)
{
    const void *src[FEW_ADDENDS];
    int64_t n = all_dense(schedule, region, sources, element_bytes, src);
    int64_t bytes = n * (int64_t)element_bytes;

    if (n == 0)
        return false;
    if (sherd__goes_past(bytes, bytes))
        sherd__reduce_past(
            kernels, element_bytes,
            &(sherd__reduction){schedule->op, region->count, n, schedule->divisor, src}, &dst, 1);
    else
        kernels->reduce(schedule->op, dst, src, region->count, n, schedule->divisor);
    return true;
}

const void *sherd__region_piece(const sherd__schedule *schedule, const sherd__region *region,
                                void *result, const sherd__source *source, size_t element_bytes,
                                void **to)
{
    int64_t size = (int64_t)element_bytes;
    bool dense;
    const void *from = find_in_source(source, schedule->ndim, region->size,
                                      schedule->pull[region->first].offset, size, &dense);

    *to = (char *)result + region->at * size;
    return dense && region->dense ? from : NULL;
}

void sherd__piece_copy(void *to, const void *from, int64_t bytes, const sherd__kernels *kernels)
{
    if (bytes >= NEAR_COPY && bytes <= SHORT_COPY && kernels && kernels->copy)
        kernels->copy(to, from, (size_t)bytes);
    else
        memcpy(to, from, (size_t)bytes);
}

/* A region of one source; what is small and lies in one piece is most of what small calls do. */
static void copy_region(const sherd__schedule *schedule, const sherd__region *region, char *dst,
                        const sherd__source *source, int64_t element_bytes,
                        const sherd__kernels *kernels)
{
    int64_t bytes = region->dense * element_bytes;
    bool dense;
    const void *src = find_in_source(source, schedule->ndim, region->size,
                                     schedule->pull[region->first].offset, element_bytes, &dense);

    if (dense && bytes && bytes <= SHORT_COPY)
        sherd__piece_copy(dst, src, bytes, kernels);
    else
        sherd__copy_part((size_t)element_bytes, schedule->ndim, region->size, dst,
                         schedule->target_stride, src, source->stride,
                         schedule->target_count * element_bytes);
}

bool sherd__region_spread(const sherd__schedule *schedule, const sherd__region *region,
                          void *const *results, int count, const sherd__source *sources,
                          size_t element_bytes, const sherd__kernels *kernels)
{
    int64_t size = (int64_t)element_bytes, n;
    const void *src[FEW_ADDENDS];
    void *dst[SHERD_MAX_RANKS];

    n = all_dense(schedule, region, sources, element_bytes, src);
    bool past = sherd__goes_past(n * size, schedule->target_size[0] * size);
    if (!past && (n == 0 || count > SPREAD || !kernels->reduce_spread))
        return false;
    for (int i = 0; i < count; i++)
        dst[i] = (char *)results[i] + region->at * size;
    sherd__reduction all = {schedule->op, region->count, n, schedule->divisor, src};
    if (past)
        sherd__reduce_past(kernels, element_bytes, &all, dst, count);
    else
        kernels->reduce_spread(&all, dst, count);
    return true;
}

/* A region of no source, or of several; apart, so that a copy need not make room for what these
 * keep. */
static __attribute__((noinline)) void
fill_or_reduce(const sherd__schedule *schedule, const sherd__region *region, void *result,
               const sherd__source *sources, size_t element_bytes, const sherd__kernels *kernels)
{
    char *dst = (char *)result + region->at * (int64_t)element_bytes;

    if (region->count == 0)
        fill_rows(schedule, region, dst, schedule->target_stride, element_bytes, kernels);
    else if (!reduce_dense(schedule, region, dst, sources, element_bytes, kernels))
        sherd__region_add(schedule, region, 0, region->count, result, sources, element_bytes,
                          kernels);
}

void sherd__region_run(const sherd__schedule *schedule, const sherd__region *region, void *result,
                       const sherd__source *sources, size_t element_bytes,
                       const sherd__kernels *kernels)
{
    char *dst = (char *)result + region->at * (int64_t)element_bytes;

    if (region->count == 1)
        copy_region(schedule, region, dst, sources, (int64_t)element_bytes, kernels);
    else
        fill_or_reduce(schedule, region, result, sources, element_bytes, kernels);
}
