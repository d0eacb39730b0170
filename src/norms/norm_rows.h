/* SPDX-License-Identifier: Apache-2.0 */
/* Norms over the last dims of x, whose elements form a *row*; these dims may be sharded. */
#ifndef SHERD__NORMS_NORM_ROWS_H
#define SHERD__NORMS_NORM_ROWS_H

#include "norms.h"

typedef struct sherd__row_norm_attributes {
    double eps;
    int64_t more; /* dims before the last one that are normalised with it */
} sherd__row_norm_attributes;

#define SHERD__ROW_NORM_ATTRIBUTES                                   \
    .field = {SHERD_FIELD(sherd__row_norm_attributes, eps, DOUBLE),  \
              SHERD_FIELD(sherd__row_norm_attributes, more, INT64)}, \
    .attributes = sizeof(sherd__row_norm_attributes)

/*
 * The letters of these dims: "d" in the rule of an operator stands for all of them. Whole where x
 * does not shard them.
 */
#define SHERD__ROW_LETTERS "defghijk"

/* Describe: writes the rule. NULL, or why these are not valid dims. */
const char *sherd__row_norm_describe(sherd_call *call);

/*
 * Ways: none unless the rows of operand `x` are on several ranks; then x is not moved. `lie` gives
 * the layouts of the others, one letter for each operand and, after a '>', for each result: 'x' as
 * x; 'w' as a row (the weight; results are pending over what shards rows apart); 'r' one number per
 * row.
 */
sherd_status sherd__row_norm_ways(const sherd_call *call, sherd_ways *ways, int x, const char *lie);

/* The formula of a norm that is recorded in backward: of x and, unless NULL, the weight. */
sherd_tensor *sherd__row_norm_formula(const sherd_node *node, sherd_tensor *x, sherd_tensor *weight,
                                      bool centred);

/* The rows on this rank. */
typedef struct sherd__normed_rows {
    int64_t rows, inner; /* here: rows, and elements of each */
    double length;       /* of a row, on all ranks */
    int dims;
    bool apart; /* rows lie on several ranks */
} sherd__normed_rows;

/* Of x, and a tensor with one number per row. */
sherd__normed_rows sherd__rows_of(const sherd_call *call, const sherd_tensor *x,
                                  const sherd_tensor *per_row);

/*
 * Which operands and results of a norm are what; -1 = there is none. Without a mean, rows are not
 * centred.
 */
typedef struct sherd__row_norm {
    int weight, bias; /* operands, which may be absent */
    /*
     * the mean, which is subtracted from rows, and the factor of rows: results of forward, operands
     * of backward
     */
    int mean, scale;
} sherd__row_norm;

/* For rows that are on several ranks. Forward: operand 0 is x, result 0 y. False: failed. */
bool sherd__row_norm_apart(sherd_call *call, const sherd__row_norm *of);

/*
 * Operands 0 and 1 are dy and x; the first results are dx and the gradients of weight and, for
 * centred rows, bias.
 */
bool sherd__row_norm_apart_grad(sherd_call *call, const sherd__row_norm *of);

/* The same on the GPU, for these two (norm_rows_there.c). */
bool sherd__row_norm_apart_there(sherd_call *call, const sherd__row_norm *of);
bool sherd__row_norm_apart_grad_there(sherd_call *call, const sherd__row_norm *of);

/* PyTorch's eps of an RMS norm: the distance from 1 to the next f32 (for f64, the next f64). */
double sherd__rms_epsilon(sherd_dtype dtype);

#endif
