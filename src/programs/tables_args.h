/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of tables.cu are told; part of the program's text too, so no headers here. */
#ifndef SHERD__PROGRAMS_TABLES_ARGS_H
#define SHERD__PROGRAMS_TABLES_ARGS_H

enum { ADD_GROUP = 64 /* rows that are added in f32: SHERD__ROWS_OF_SUM */ };

/*
 * As sherd__pick: one side [outer,n,inner], the other [outer,entries,inner], index [outer,n,inner]
 * or [n] if flat. src and dst are of units. winner [outer,entries,inner]: the last j of each entry;
 * NULL: all count.
 */
typedef struct picking {
    int64_t outer, n, inner, entries, first;
    int64_t each;        /* indices that mean one entry: 0 .. each-1 mean the first */
    int32_t flat, small; /* all there is is less than 2^31 */
    const int32_t *index;
    const void *src; /* NULL: `value` */
    void *dst;
    int32_t *winner;
    uint64_t value;
} picking;
typedef picking gather_args;
typedef picking scatter_args;
typedef picking winners_args;

/* Which entry each index means, [n] or [outer,n,inner]; `none`: it is not here. */
typedef struct entries_args {
    picking of;
    uint32_t *key;
    uint32_t none;
} entries_args;

/*
 * dst[outer,entries,inner] += src[outer,n,inner], in pieces of a row: of sorted keys those that are
 * equal, in order, at their positions. Neither outer nor inner are counted where each element has
 * an index.
 */
typedef struct add_sorted_args {
    int64_t n, outer, inner, entries, pieces;
    uint32_t none;
    const uint32_t *key;
    const int32_t *position;
    const void *src;
    void *dst;
} add_sorted_args;

#endif
