/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetching ahead, for attention. Rows of a head lie far apart, and a machine does not foresee them:
 * those of the next group are asked for, into the second cache, while this one is at work, a row of
 * each array for each query. Where the tensors are in no cache, short sequences take two thirds of
 * the time so.
 */
#ifndef SHERD__VECTOR_FETCH_H
#define SHERD__VECTOR_FETCH_H

#include "kernels/ref.h"

enum { SHERD__FETCHED = 8, SHERD__FETCH_BYTES = 1 << 19 };

/* Zero: nothing is left to fetch. Strides and widths are bytes. */
typedef struct sherd__fetching {
    const char *row[SHERD__FETCHED];
    int64_t stride, width, left;
} sherd__fetching;

/*
 * Begin with the rows of group `next` of arrays [batch,keys,groups,width]. Nothing is fetched
 * behind the last group, nor what is more than stays in the cache, nor where keys are not as many
 * as queries.
 */
static inline void sherd__fetch_group(sherd__fetching *f, const sherd__attending *s, int64_t next,
                                      size_t element_bytes, const void *const *array, int arrays)
{
    int64_t element = (int64_t)element_bytes;

    f->left = 0;
    if (arrays * s->keys * s->width * element > SHERD__FETCH_BYTES || s->repeat != 1 ||
        s->queries != s->keys || next >= s->batch * s->groups)
        return;
    int64_t at = element * sherd__keys_at(s, next / s->groups, next % s->groups);
    for (int i = 0; i < SHERD__FETCHED; i++)
        f->row[i] = i < arrays ? (const char *)array[i] + at : NULL;
    f->stride = element * sherd__key_stride(s);
    f->width = element * s->width;
    f->left = s->keys;
}

/* One row more of each. */
static inline void sherd__fetch_row(sherd__fetching *f)
{
    if (f->left == 0)
        return;
    f->left--;
    for (int i = 0; i < SHERD__FETCHED && f->row[i]; i++) {
        for (int64_t at = 0; at < f->width; at += SHERD__LINE)
            __builtin_prefetch(f->row[i] + at, 0, 2);
        f->row[i] += f->stride;
    }
}

#endif
