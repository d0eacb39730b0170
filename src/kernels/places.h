/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f32 that are added where indices say: up to SHERD__ROWS_OF_SUM rows of one place one after the
 * other, of more the sums of such groups in f64 (sums.h). Most places have few, and are not known
 * before: so rows are counted first, and only places with many get totals of their own, which are
 * a thirtieth of the addends at most. Rows are first counted in a few bytes that several places
 * share: where none of these has many, no place has, and that is all that it costs.
 */
#ifndef SHERD__KERNELS_PLACES_H
#define SHERD__KERNELS_PLACES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/num.h"
#include "sums.h"

typedef struct sherd__places {
    int32_t *which; /* [count]: 0 = a place has few, else 1 + the index of its total */
    int32_t *rows;  /* of each total: in the group at hand */
    double *total;  /* [.., width] */
    int64_t count, width;
} sherd__places;

/* Of n rows so many places at most have many. */
static inline int64_t sherd__places_long(int64_t n)
{
    return n / (SHERD__ROWS_OF_SUM + 1);
}

/* Bytes of scratch for n rows of `width` and so many places. */
static inline int64_t sherd__places_bytes(int64_t n, int64_t width, int64_t count)
{
    int64_t most = sherd__places_long(n);

    return most * width * (int64_t)sizeof(double) + (count + most) * (int64_t)sizeof(int32_t);
}

static inline sherd__places sherd__places_in(void *scratch, int64_t n, int64_t width, int64_t count)
{
    int64_t most = sherd__places_long(n);
    double *total = scratch;
    int32_t *rows = (int32_t *)(void *)(total + most * width);

    return (sherd__places){rows + most, rows, total, count, width};
}

/* Counts that several places share: an eighth of a byte for each row, in the scratch of n > 64. */
typedef struct sherd__crowds {
    uint8_t *seen;
    int shift;
} sherd__crowds;

static inline sherd__crowds sherd__crowds_in(void *scratch, int64_t n)
{
    int bits = 3;

    while (bits < 31 && n >> (bits + 4))
        bits++;
    memset(scratch, 0, (size_t)1 << bits);
    return (sherd__crowds){scratch, 32 - bits};
}

/* One more row. True: a place may have many, and the rest need not be seen. */
static inline bool sherd__crowds_see(const sherd__crowds *c, int64_t at)
{
    return ++c->seen[(uint32_t)at * 0x9E3779B1u >> c->shift] > SHERD__ROWS_OF_SUM;
}

/* One more row; before all, `which` is memset to 0. */
static inline void sherd__places_see(const sherd__places *p, int64_t at)
{
    uint8_t *seen = (uint8_t *)p->which + at;

    *seen = (uint8_t)(*seen + (*seen <= SHERD__ROWS_OF_SUM));
}

/* After all have been seen. What the long ones have in dst [count, width] becomes their totals.
 * False: there are none. */
static inline bool sherd__places_begin(const sherd__places *p, float *dst)
{
    const uint8_t *seen = (const uint8_t *)p->which;
    int32_t found = 0;

    /* from the last one on: a number is written where counts have been read */
    for (int64_t e = p->count - 1; e >= 0; e--) {
        float *d = dst + e * p->width;
        bool many = seen[e] > SHERD__ROWS_OF_SUM;
        for (int64_t i = 0; i < p->width && many; i++) {
            p->total[found * p->width + i] = (double)d[i];
            d[i] = 0;
        }
        if (many)
            p->rows[found++] = 0;
        p->which[e] = many ? found : 0;
    }
    return found > 0;
}

/* All of that for rows that have one id each; others than first .. first + count - 1 are passed
 * over. */
static inline bool sherd__places_of_ids(sherd__places *p, void *scratch, int64_t n,
                                        const int32_t *ids, int64_t first, int64_t count,
                                        int64_t width, float *dst)
{
    sherd__crowds crowds;
    bool many = false;

    if (count == 0 || width == 0)
        return false; /* and there is no scratch */
    crowds = sherd__crowds_in(scratch, n);
    for (int64_t i = 0; i < n && !many; i++)
        many =
            ids[i] >= first && ids[i] - first < count && sherd__crowds_see(&crowds, ids[i] - first);
    if (!many)
        return false;
    *p = sherd__places_in(scratch, n, width, count);
    memset(p->which, 0, (size_t)count * sizeof *p->which);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= first && ids[i] - first < count)
            sherd__places_see(p, ids[i] - first);
    return sherd__places_begin(p, dst);
}

/* After a row was added to d, the place `at`: a group that is full is added to its total. */
static inline void sherd__places_added(const sherd__places *p, int64_t at, float *d)
{
    int64_t own = (int64_t)p->which[at] - 1;

    if (own < 0 || ++p->rows[own] < SHERD__ROWS_OF_SUM)
        return;
    p->rows[own] = 0;
    for (int64_t i = 0; i < p->width; i++) {
        p->total[own * p->width + i] += (double)d[i];
        d[i] = 0;
    }
}

static inline void sherd__places_end(const sherd__places *p, float *dst)
{
    for (int64_t e = 0; e < p->count; e++) {
        int64_t own = (int64_t)p->which[e] - 1;
        float *d = dst + e * p->width;
        for (int64_t i = 0; i < p->width && own >= 0; i++)
            d[i] = (float)(p->total[own * p->width + i] + (double)d[i]);
    }
}

#endif
