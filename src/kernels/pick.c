/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements taken and put by index, their order, and running sums: see pick.h. What only copies
 * knows elements by their size. Where the index is the same for a whole row, rows are copied.
 */
#include "pick.h"

#include <math.h>
#include <string.h>

#include "keys.h"
#include "places.h"

enum {
    FEW = 64,   /* so many first ones of a list are found without sorting it */
    SMALL = 32, /* up to here all pairs of a list are compared */
    LONG = 128, /* from here on a list is sorted by bytes */
    LANES = 32, /* columns that are added up side by side */
    LINES = 4   /* the same of lines */
};

/* Which entry index (o, j, i) means; -1: none that is here. */
static inline int64_t entry_at(const sherd__pick *p, int64_t o, int64_t j, int64_t i)
{
    int64_t at = p->index[p->flat ? j : (o * p->n + j) * p->inner + i] - p->first;

    return at >= 0 && at < p->entries ? at : -1;
}

/* `row` bytes each, which in some callers is a constant: a memcpy of any size is a call. */
static inline void gather_rows_of(size_t row, const sherd__pick *p, char *dst, const char *src)
{
    for (int64_t o = 0; o < p->outer; o++)
        for (int64_t j = 0; j < p->n; j++, dst += row) {
            int64_t at = entry_at(p, o, j, 0);
            if (at >= 0)
                memcpy(dst, src + (size_t)(o * p->entries + at) * row, row);
            else
                memset(dst, 0, row);
        }
}

/* Points in space have rows of a few numbers. */
static void gather_rows(size_t bytes, const sherd__pick *p, char *dst, const char *src)
{
    size_t row = (size_t)p->inner * bytes;

    switch (row) {
    case 4:
        gather_rows_of(4, p, dst, src);
        break;
    case 6:
        gather_rows_of(6, p, dst, src);
        break;
    case 8:
        gather_rows_of(8, p, dst, src);
        break;
    case 12:
        gather_rows_of(12, p, dst, src);
        break;
    case 16:
        gather_rows_of(16, p, dst, src);
        break;
    case 24:
        gather_rows_of(24, p, dst, src);
        break;
    case 32:
        gather_rows_of(32, p, dst, src);
        break;
    default:
        gather_rows_of(row, p, dst, src);
    }
}

/*
 * If rows are single elements, the place of each needs no multiplication. `bytes` is a constant in
 * each caller.
 */
static inline void gather_line(size_t bytes, int64_t n, char *dst, const char *src,
                               const int32_t *index, int64_t first, int64_t entries)
{
    for (int64_t j = 0; j < n; j++) {
        int64_t at = index[j] - first;
        if ((uint64_t)at < (uint64_t)entries)
            memcpy(dst + (size_t)j * bytes, src + (size_t)at * bytes, bytes);
        else
            memset(dst + (size_t)j * bytes, 0, bytes);
    }
}

/* Whether all indices of a line are of entries that are here. */
static bool all_here(const sherd__pick *p)
{
    int outside = 0;

    for (int64_t j = 0; j < p->n; j++)
        outside |= (uint64_t)(p->index[j] - p->first) >= (uint64_t)p->entries;
    return !outside;
}

/* Lines that have the same indices, all of which are here: these are not asked again. */
static inline void gather_same(size_t bytes, const sherd__pick *p, char *dst, const char *src)
{
    const int32_t *index = p->index;
    const int64_t n = p->n, first = p->first;

    for (int64_t o = 0; o < p->outer; o++, src += p->entries * (int64_t)bytes)
        for (int64_t j = 0; j < n; j++, dst += bytes)
            memcpy(dst, src + (index[j] - first) * (int64_t)bytes, bytes);
}

static inline void gather_lines(size_t bytes, const sherd__pick *p, char *dst, const char *src)
{
    if (p->flat && p->outer > 1 && all_here(p)) {
        gather_same(bytes, p, dst, src);
        return;
    }
    for (int64_t o = 0; o < p->outer; o++)
        gather_line(bytes, p->n, dst + (size_t)(o * p->n) * bytes,
                    src + (size_t)(o * p->entries) * bytes, p->index + (p->flat ? 0 : o * p->n),
                    p->first, p->entries);
}

/* `bytes` is a constant in each caller. */
static inline void gather_each(size_t bytes, const sherd__pick *p, char *dst, const char *src)
{
    const int64_t inner = p->inner, first = p->first, entries = p->entries;
    const int32_t *index = p->index;

    for (int64_t o = 0; o < p->outer; o++, src += (size_t)(entries * inner) * bytes)
        for (int64_t j = 0; j < p->n; j++, dst += (size_t)inner * bytes, index += inner)
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = index[i] - first;
                if ((uint64_t)at < (uint64_t)entries)
                    memcpy(dst + (size_t)i * bytes, src + (size_t)(at * inner + i) * bytes, bytes);
                else
                    memset(dst + (size_t)i * bytes, 0, bytes);
            }
}

/* The same. */
static inline void gather_elements(size_t bytes, const sherd__pick *p, char *dst, const char *src)
{
    if (p->inner == 1)
        gather_lines(bytes, p, dst, src);
    else
        gather_each(bytes, p, dst, src);
}

void sherd__gather(size_t bytes, const sherd__pick *p, void *dst, const void *src)
{
    if (p->flat && p->inner > 1)
        gather_rows(bytes, p, dst, src);
    else if (bytes == 1)
        gather_elements(1, p, dst, src);
    else if (bytes == 2)
        gather_elements(2, p, dst, src);
    else if (bytes == 4)
        gather_elements(4, p, dst, src);
    else
        gather_elements(8, p, dst, src);
}

/* Where rows are single elements. */
static inline void scatter_lines(size_t bytes, const sherd__pick *p, char *dst, const char *src,
                                 const char *value)
{
    const int32_t *index = p->index;

    for (int64_t o = 0; o < p->outer; o++, dst += (size_t)p->entries * bytes) {
        for (int64_t j = 0; j < p->n; j++) {
            int64_t at = index[j] - p->first;
            if ((uint64_t)at < (uint64_t)p->entries)
                memcpy(dst + (size_t)at * bytes, src ? src + (size_t)j * bytes : value, bytes);
        }
        src = src ? src + (size_t)p->n * bytes : NULL;
        index += p->flat ? 0 : p->n;
    }
}

static inline void scatter_each(size_t bytes, const sherd__pick *p, char *dst, const char *src,
                                const char *value)
{
    if (p->inner == 1) {
        scatter_lines(bytes, p, dst, src, value);
        return;
    }
    const int64_t inner = p->inner, first = p->first, entries = p->entries;
    const size_t step = src ? bytes : 0;
    const char *from = src ? src : value;

    for (int64_t o = 0; o < p->outer; o++, dst += (size_t)(entries * inner) * bytes)
        for (int64_t j = 0; j < p->n; j++, from += (size_t)inner * step) {
            const int32_t *index = p->index + (p->flat ? j : (o * p->n + j) * inner);
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = index[p->flat ? 0 : i] - first;
                if ((uint64_t)at < (uint64_t)entries)
                    memcpy(dst + (size_t)(at * inner + i) * bytes, from + (size_t)i * step, bytes);
            }
        }
}

void sherd__scatter(size_t bytes, const sherd__pick *p, void *dst, const void *src,
                    const void *value)
{
    if (bytes == 1)
        scatter_each(1, p, dst, src, value);
    else if (bytes == 2)
        scatter_each(2, p, dst, src, value);
    else if (bytes == 4)
        scatter_each(4, p, dst, src, value);
    else
        scatter_each(8, p, dst, src, value);
}

void sherd__gather_last(size_t bytes, const sherd__pick *p, void *dst, const void *src,
                        int32_t *winner)
{
    sherd__pick one = *p;
    size_t row = (size_t)p->inner * bytes;

    for (int64_t o = 0; o < p->outer; o++) {
        one.outer = 1;
        one.index = p->index + (p->flat ? 0 : o * p->n * p->inner);
        char *to = (char *)dst + (size_t)(o * p->n) * row;
        sherd__gather(bytes, &one, to, (const char *)src + (size_t)(o * p->entries) * row);
        for (int64_t j = 0; j < p->n; j++)
            for (int64_t i = 0; i < p->inner; i++)
                if (entry_at(&one, 0, j, i) >= 0)
                    winner[entry_at(&one, 0, j, i) * p->inner + i] = (int32_t)j;
        for (int64_t j = 0; j < p->n; j++)
            for (int64_t i = 0; i < p->inner; i++) {
                int64_t at = entry_at(&one, 0, j, i);
                if (at >= 0 && winner[at * p->inner + i] != (int32_t)j)
                    memset(to + (size_t)(j * p->inner + i) * bytes, 0, bytes);
            }
    }
}

/* ---- bodies ---------------------------------------------------------------------------------- */

#define T         float
#define TOTAL     double
#define KEY       uint32_t
#define KEY_OF(x) sherd__key_of_f32(x)
#define NAME(x)   f32_##x
#include "pick_body.inc"

#define T         double
#define TOTAL     double
#define KEY       uint64_t
#define KEY_OF(x) sherd__key_of_f64(x)
#define NAME(x)   f64_##x
#include "pick_body.inc"

#define T         int32_t
#define TOTAL     uint64_t
#define KEY       uint32_t
#define KEY_OF(x) ((uint32_t)(x) ^ 0x80000000u)
#define NAME(x)   i32_##x
#include "pick_body.inc"

#define T         int64_t
#define TOTAL     uint64_t
#define KEY       uint64_t
#define KEY_OF(x) ((uint64_t)(x) ^ 0x8000000000000000u)
#define NAME(x)   i64_##x
#include "pick_body.inc"

#define T         int8_t
#define TOTAL     uint64_t
#define KEY       uint8_t
#define KEY_OF(x) (uint8_t)((uint8_t)(x) ^ 0x80u)
#define NAME(x)   i8_##x
#include "pick_body.inc"

#define T         uint8_t
#define TOTAL     uint64_t
#define KEY       uint8_t
#define KEY_OF(x) (x)
#define NAME(x)   u8_##x
#include "pick_body.inc"

/* ---- many f32 in one place ------------------------------------------------------------------- */

static bool may_be_long(sherd_dtype dtype, sherd_reduce_op how, const sherd__pick *p)
{
    return dtype == SHERD_F32 && how == SHERD_SUM && p->n > SHERD__ROWS_OF_SUM && p->inner > 0 &&
           p->entries > 0;
}

/* A row of the result is one place where rows have one index, else each of its elements is. */
static int64_t places_of(const sherd__pick *p)
{
    return p->entries * (p->flat ? 1 : p->inner);
}

int64_t sherd__scatter_scratch(sherd_dtype dtype, sherd_reduce_op how, const sherd__pick *p)
{
    return !may_be_long(dtype, how, p) ? 0
           : p->flat                   ? sherd__places_bytes(p->n, p->inner, p->entries)
                                       : sherd__places_bytes(p->n * p->inner, 1, places_of(p));
}

static void add_row(float *restrict d, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        d[i] += x[i];
}

/* places NULL: none has many. */
static void add_rows(const sherd__pick *p, float *dst, const float *src,
                     const sherd__places *places)
{
    for (int64_t j = 0; j < p->n; j++) {
        int64_t at = entry_at(p, 0, j, 0);
        if (at < 0)
            continue;
        add_row(dst + at * p->inner, src + j * p->inner, p->inner);
        if (places)
            sherd__places_added(places, at, dst + at * p->inner);
    }
}

static void add_elements(const sherd__pick *p, float *dst, const float *src,
                         const sherd__places *places)
{
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t i = 0; i < p->inner; i++) {
            int64_t at = entry_at(p, 0, j, i), to = at * p->inner + i;
            if (at < 0)
                continue;
            dst[to] += src[j * p->inner + i];
            sherd__places_added(places, to, dst + to);
        }
}

/* Whether an element may get many; false: none does. */
static bool is_crowded_line(const sherd__pick *p, const sherd__crowds *crowds)
{
    const int64_t n = p->n, first = p->first, entries = p->entries;
    const int32_t *index = p->index;
    const sherd__crowds own = *crowds;

    for (int64_t j = 0; j < n; j++) {
        int64_t at = index[j] - first;
        if ((uint64_t)at < (uint64_t)entries && sherd__crowds_see(&own, at))
            return true;
    }
    return false;
}

static bool are_crowded(const sherd__pick *p, void *scratch)
{
    const sherd__crowds crowds = sherd__crowds_in(scratch, p->n * p->inner);
    bool many = false;

    if (p->inner == 1)
        return is_crowded_line(p, &crowds);
    for (int64_t j = 0; j < p->n && !many; j++)
        for (int64_t i = 0; i < p->inner && !many; i++) {
            int64_t at = entry_at(p, 0, j, i);
            many = at >= 0 && sherd__crowds_see(&crowds, at * p->inner + i);
        }
    return many;
}

static bool find_elements(const sherd__pick *p, float *dst, sherd__places *places, void *scratch)
{
    if (!are_crowded(p, scratch))
        return false;
    *places = sherd__places_in(scratch, p->n * p->inner, 1, places_of(p));
    memset(places->which, 0, (size_t)places->count * sizeof *places->which);
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t i = 0; i < p->inner; i++) {
            int64_t at = entry_at(p, 0, j, i);
            if (at >= 0)
                sherd__places_see(places, at * p->inner + i);
        }
    return sherd__places_begin(places, dst);
}

static void add_long(const sherd__pick *p, float *dst, const float *src, void *scratch)
{
    sherd__pick one = *p;
    sherd__places places = {NULL, NULL, NULL, 0, 0};
    bool many = true;

    one.outer = 1;
    for (int64_t o = 0; o < p->outer; o++) {
        float *d = dst + o * p->entries * p->inner;
        const float *x = src + o * p->n * p->inner;
        one.index = p->index + (p->flat ? 0 : o * p->n * p->inner);
        if (!p->flat)
            many = find_elements(&one, d, &places, scratch);
        else if (many) /* in the first of all rows, if any: they have the same indices */
            many = sherd__places_of_ids(&places, scratch, p->n, p->index, p->first, p->entries,
                                        p->inner, d);
        if (p->flat && p->inner > 1)
            add_rows(&one, d, x, many ? &places : NULL);
        else if (many)
            add_elements(&one, d, x, &places);
        else
            f32_scatter_reduce(SHERD_SUM, &one, d, x);
        if (many)
            sherd__places_end(&places, d);
    }
}

/* ---- by type --------------------------------------------------------------------------------- */

void sherd__scatter_reduce(sherd_dtype dtype, sherd_reduce_op how, const sherd__pick *p, void *dst,
                           const void *src, void *scratch)
{
    static void (*const by[])(sherd_reduce_op, const sherd__pick *, void *, const void *) = {
        [SHERD_F32] = f32_scatter_reduce, [SHERD_F64] = f64_scatter_reduce,
        [SHERD_I32] = i32_scatter_reduce, [SHERD_I64] = i64_scatter_reduce,
        [SHERD_U8] = u8_scatter_reduce,   [SHERD_BOOL] = u8_scatter_reduce,
        [SHERD_I8] = i8_scatter_reduce};

    if (may_be_long(dtype, how, p))
        add_long(p, dst, src, scratch);
    else
        by[dtype](how, p, dst, src);
}

/* Two lists of keys of at most 8 bytes, and two of indices. */
int64_t sherd__order_scratch(int64_t n)
{
    return n * 24;
}

void sherd__order(sherd_dtype dtype, const int64_t size[3], int64_t k, bool descending,
                  int32_t *index, const void *src, void *scratch)
{
    if (dtype == SHERD_F32)
        f32_order(size, k, descending, index, src, scratch);
    else if (dtype == SHERD_F64)
        f64_order(size, k, descending, index, src, scratch);
    else if (dtype == SHERD_I32)
        i32_order(size, k, descending, index, src, scratch);
    else if (dtype == SHERD_I64)
        i64_order(size, k, descending, index, src, scratch);
    else if (dtype == SHERD_I8)
        i8_order(size, k, descending, index, src, scratch);
    else
        u8_order(size, k, descending, index, src, scratch);
}

void sherd__order_places(sherd_dtype dtype, const int64_t size[3], int count, const int64_t *place,
                         bool descending, int32_t *index, const void *src, void *scratch)
{
    if (dtype == SHERD_F32)
        f32_order_places(size, count, place, descending, index, src, scratch);
    else if (dtype == SHERD_F64)
        f64_order_places(size, count, place, descending, index, src, scratch);
    else if (dtype == SHERD_I32)
        i32_order_places(size, count, place, descending, index, src, scratch);
    else if (dtype == SHERD_I64)
        i64_order_places(size, count, place, descending, index, src, scratch);
    else if (dtype == SHERD_I8)
        i8_order_places(size, count, place, descending, index, src, scratch);
    else
        u8_order_places(size, count, place, descending, index, src, scratch);
}

void sherd__running_sum(sherd_dtype dtype, const int64_t size[3], bool reverse, void *dst,
                        const void *src)
{
    if (dtype == SHERD_F32)
        f32_running_sum(size, reverse, dst, src);
    else if (dtype == SHERD_F64)
        f64_running_sum(size, reverse, dst, src);
    else if (dtype == SHERD_I32)
        i32_running_sum(size, reverse, dst, src);
    else if (dtype == SHERD_I64)
        i64_running_sum(size, reverse, dst, src);
    else if (dtype == SHERD_I8)
        i8_running_sum(size, reverse, dst, src);
    else
        u8_running_sum(size, reverse, dst, src);
}
