/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests without repeats (once.h). Each node of a graph is wanted by all its edges, so a shard of
 * edges asks its neighbours for few nodes, each many times. Costs a table of the owner's entries,
 * and one pass over the requests.
 */
#include "once.h"

#include <math.h>
#include <string.h>

int64_t sherd__ask_once(int32_t *code, int64_t n, int32_t *which, int32_t *place, int64_t length)
{
    int64_t count = 0;

    if (n > 0)
        memset(place, -1, (size_t)length * sizeof *place);
    for (int64_t j = 0; j < n; j++) {
        int32_t at = code[j];
        if (place[at] < 0) {
            place[at] = (int32_t)count;
            code[count++] = at;
        }
        which[j] = place[at];
    }
    return count;
}

static inline void copy_rows(size_t bytes, int64_t count, const int32_t *to, char *dst,
                             const int32_t *from, const char *src)
{
    for (int64_t j = 0; j < count; j++)
        memcpy(dst + (size_t)to[j] * bytes, src + (size_t)from[j] * bytes, bytes);
}

void sherd__copy_entries(size_t bytes, const int64_t outer_inner[2], int64_t count,
                         sherd__entries to, void *dst, sherd__entries from, const void *src)
{
    size_t row = (size_t)outer_inner[1] * bytes;

    for (int64_t o = 0; o < outer_inner[0] && row && count; o++) {
        char *into = (char *)dst + (size_t)(o * to.n) * row;
        const char *of = (const char *)src + (size_t)(o * from.n) * row;
        if (row == 4)
            copy_rows(4, count, to.index, into, from.index, of);
        else if (row == 8)
            copy_rows(8, count, to.index, into, from.index, of);
        else
            copy_rows(row, count, to.index, into, from.index, of);
    }
}

/* A number of 8 bytes or fewer in each place. */
static inline void fill(size_t bytes, int64_t n, char *to, const void *value)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)i * bytes, value, bytes);
}

void sherd__fill_neutral(sherd_dtype dtype, sherd_reduce_op how, int64_t n, void *to)
{
    const bool most = how == SHERD_MAX, least = how == SHERD_MIN;
    const int one = how == SHERD_PRODUCT;
    const double d = most ? -(double)INFINITY : least ? (double)INFINITY : one;
    const float f = (float)d;
    const int64_t l = most ? INT64_MIN : least ? INT64_MAX : one;
    const int32_t i = most ? INT32_MIN : least ? INT32_MAX : one;
    const int8_t s = most ? INT8_MIN : least ? INT8_MAX : (int8_t)one;
    const uint8_t u = least ? UINT8_MAX : (uint8_t)one;

    if (dtype == SHERD_F32)
        fill(4, n, to, &f);
    else if (dtype == SHERD_F64)
        fill(8, n, to, &d);
    else if (dtype == SHERD_I32)
        fill(4, n, to, &i);
    else if (dtype == SHERD_I64)
        fill(8, n, to, &l);
    else if (dtype == SHERD_I8)
        fill(1, n, to, &s);
    else
        fill(1, n, to, &u);
}
