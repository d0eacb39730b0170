/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of `sherd check`: every element carries its global index, so that one that lands at a
 * wrong place is a wrong number there. What the dtype can not hold at once goes in several passes,
 * some bits of the index in each.
 *
 * Where a reduction is pending, each rank holds an addend of its own: for a sum they add up to the
 * value, in an order and with amounts that change from element to element; for avg they add up to n
 * times the value; for min, max and product one rank holds it. All are integers that the dtype
 * holds exactly, partial results too. Pure.
 */
#ifndef SHERD_CLI_CHECK_DATA_H
#define SHERD_CLI_CHECK_DATA_H

#include "layout/layout.h"

/* A move that is checked. */
typedef struct cli_check_data {
    const sherd_layout *from, *to;
    sherd_dtype dtype;
    int bits;   /* of the index in one pass */
    int passes; /* to carry all of it */
} cli_check_data;

/* What one rank compares with: the addends that come together in its elements. */
enum { CLI_ADDENDS = SHERD_MAX_RANKS };
typedef struct cli_check_fold {
    int count;
    int64_t at[CLI_ADDENDS][SHERD_MAX_AXES]; /* coordinates in the source's mesh */
    int64_t constant; /* a partition left this here instead; -1 = the value */
} cli_check_fold;

void cli_check_data_of(cli_check_data *out, const sherd_layout *from, const sherd_layout *to,
                       sherd_dtype dtype);

/* An integer as an element of the dtype, which must hold it exactly; integers wrap around. */
void cli_check_encode(sherd_dtype dtype, int64_t value, void *out);

/* Fill what the rank at a coordinate holds of the source: the elements of its box, row-major. */
void cli_check_fill(const cli_check_data *d, const int64_t *coordinate, int pass, void *elements);

/*
 * What comes together at a coordinate of the target's mesh. False: more than the dtype has room
 * for.
 */
bool cli_check_fold_of(cli_check_fold *out, const cli_check_data *d, const int64_t *coordinate);

/* The value that the element of an index has there. */
int64_t cli_check_value(const cli_check_data *d, const cli_check_fold *fold, int64_t index,
                        int pass);

/*
 * Compare what the rank at a coordinate of the target holds; wrong[i] = 1 for each wrong element,
 * others stay.
 */
void cli_check_compare(const cli_check_data *d, const int64_t *coordinate,
                       const cli_check_fold *fold, int pass, const void *elements,
                       unsigned char *wrong);

#endif
