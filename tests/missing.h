/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank lacks of a tensor, counted from what lies where and from what each element of a
 * result reads; nothing of the library is asked but which elements a rank holds.
 */
#ifndef SHERD_TESTS_MISSING_H
#define SHERD_TESTS_MISSING_H

#include "fields.h"

#include "sherd/comm.h"

enum { LONGEST = 256 }; /* of a dim */

/* Indices that a rank needs, by dim: what it needs is their product. */
typedef struct needs {
    int ndim;
    bool at[FIELD][LONGEST];
} needs;

static inline void need(needs *n, int d, int64_t i, int64_t size)
{
    if (i >= 0 && i < size)
        n->at[d][i] = true;
}

/* What the rank holds of dim d. */
static inline void need_own(needs *n, int d, const sherd_box *box)
{
    for (int64_t i = 0; i < box->size[d]; i++)
        n->at[d][box->offset[d] + i] = true;
}

/* First and last of the indices of a dim that are needed; what lies between them comes too, as
 * boxes have no gaps. */
static inline int64_t hull(const needs *n, int d, int64_t *first)
{
    int64_t end = 0;

    *first = 0;
    for (int64_t i = LONGEST - 1; i >= 0; i--)
        if (n->at[d][i]) {
            *first = i;
            end = end ? end : i + 1;
        }
    return end;
}

/* Elements that are needed and not in the box. */
static inline int64_t lacked(const needs *n, const sherd_box *box)
{
    int64_t all = 1, own = 1;

    for (int d = 0; d < n->ndim; d++) {
        int64_t first, end = hull(n, d, &first), mine = 0;
        for (int64_t i = first; i < end; i++)
            mine += i >= box->offset[d] && i < box->offset[d] + box->size[d];
        all *= end - first;
        own *= mine;
    }
    return all - own;
}

static inline int64_t bytes_received(sherd_world *world)
{
    int64_t bytes = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        bytes += sherd_comm_get(world, i).bytes_received;
    return bytes;
}

/* One call, or none where nothing is missing anywhere; and it brought these bytes. */
static inline bool brought(sherd_world *world, int64_t bytes)
{
    int64_t calls = sherd_comm_calls(world, NULL);
    bool good = CHECK(calls == 1 || (calls == 0 && bytes == 0));

    return CHECK_EQ(bytes_received(world), bytes) && good;
}

/* What is made of [0, n) where element o belongs to who holds middle(o): this rank's part has this
 * beginning and size. */
static inline bool owned(const sherd_box *made, const sherd_box *held, int d, int64_t n, int64_t m,
                         int64_t (*middle)(const void *what, int d, int64_t o, int64_t n),
                         const void *what)
{
    int64_t first = 0, count = 0;

    for (int64_t o = m - 1; o >= 0; o--) {
        int64_t at = middle(what, d, o, n);
        if (at >= held->offset[d] && at < held->offset[d] + held->size[d]) {
            first = o;
            count++;
        }
    }
    return CHECK_EQ(made->size[d], count) && (count == 0 || CHECK_EQ(made->offset[d], first));
}

#endif
