/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of over_rows.cu are told; part of the program's text too, so no headers here. */
#ifndef SHERD__PROGRAMS_OVER_ROWS_ARGS_H
#define SHERD__PROGRAMS_OVER_ROWS_ARGS_H

enum {
    TABLE_THREADS = 256, /* of a block */
    TABLE_WARPS = TABLE_THREADS / 32,
    TABLE_TURNS = 8,    /* ids that a thread looks at, at once */
    TABLE_PLACES = 3072 /* of ids, that a block lists */
};

/* Sums over the rows of a part, of dy h and of dy, to sums[parts,2,cols], statistics. */
typedef struct norm_columns_args {
    int64_t rows, cols, parts, tiles;
    const void *dy, *x, *mean, *rstd;
    void *sums;
} norm_columns_args;

typedef struct norm_columns_end_args {
    int64_t cols, parts;
    void *dweight, *dbias; /* NULL = not wanted */
    const void *sums;
} norm_columns_end_args;

/* row_sums[rows,2]; sums: one for each block. */
typedef struct cross_entropy_join_args {
    int64_t parts, rows;
    const void *stats;
    double *row_sums, *sums;
} cross_entropy_join_args;

typedef struct cross_entropy_end_args {
    int64_t n;
    void *loss;
    const double *sums;
    double factor;
} cross_entropy_end_args;

/* As sherd__entropy says; so many threads of a block have a row. */
typedef struct entropy_args {
    int64_t rows, cols, first, parts;
    double keep, spread;
    int32_t ignored, threads;
    const int32_t *target; /* NULL: there are probabilities */
    const void *probability, *weight, *logits;
    void *stats, *amount;
    void *loss;       /* of each row; NULL = not wanted */
    double *row_sums; /* [rows,2] */
    double *sums;     /* [2,blocks] */
} entropy_args;
typedef entropy_args entropy_join_args;

typedef struct entropy_pair_args {
    int64_t n;
    const double *sums;
    double *pair;
} entropy_pair_args;

typedef struct entropy_end_args {
    const double *pair;
    void *loss, *counted; /* NULL: no mean */
} entropy_end_args;

typedef struct entropy_grad_args {
    entropy_args of;
    void *dst;
    const void *dy, *counted; /* NULL = 1 */
    int32_t each, targets;    /* dy is of each row; the gradient is that of probabilities */
} entropy_grad_args;

typedef struct embedding_args {
    int64_t n, width, first, entries;
    void *y;
    const void *weight;
    const int32_t *ids;
} embedding_args;

typedef struct embedding_grad_args {
    int64_t n, width, first, entries;
    void *dweight;
    const void *dy;
    const int32_t *ids;
} embedding_grad_args;

#endif
