/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mask chooses (sherd/ops_masks.h): what the operators that have counts share. Operands have
 * their masked dims merged, and a digest of the counts is an attribute: so layouts may follow from
 * their values.
 */
#ifndef SHERD__FUNCTIONAL_MASKED_H
#define SHERD__FUNCTIONAL_MASKED_H

#include "ops/shared.h"
#include "rows.h"

enum { SHERD__MASK, SHERD__MASK_COUNT, SHERD__MASK_ROWS, SHERD__MASK_INTO };

typedef struct sherd__choosing {
    int64_t digest; /* of the counts */
    int64_t total;  /* and their sum */
    /* sherd_nonzero: the mask before its dims were merged */
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
} sherd__choosing;

/* For describe: what is wrong with mask and counts; NULL: nothing. */
const char *sherd__counts_fault(sherd_call *call);

/* For ways: the layouts of mask and counts, operand[0] and [1], and of the chosen rows, [total]. */
sherd_status sherd__lay_chosen(const sherd_layout **operand, const sherd_layout **chosen,
                               const sherd_call *call, sherd_ways *ways);

/* Apply one of the operators on rows (masked_rows.c); `into` may be NULL. */
sherd_tensor *sherd__choose_rows(const sherd_op *op, sherd_tensor *mask, sherd_tensor *count,
                                 sherd_tensor *rows, sherd_tensor *into, sherd__choosing how);

#endif
