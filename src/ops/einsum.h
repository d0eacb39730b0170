/* SPDX-License-Identifier: Apache-2.0 */
/* Between the order in which a sum of products is made (einsum.c) and its steps (contract.c). */
#ifndef SHERD__OPS_EINSUM_H
#define SHERD__OPS_EINSUM_H

#include "shared.h"

enum { SHERD__TERM_BYTES = 16, SHERD__TEXT_BYTES = 64 };

/*
 * "abc,cd->abd": one product, summed over what the result lacks. Letters of only one operand are in
 * the result.
 */
sherd_tensor *sherd__contract(const char *text, sherd_tensor *a, sherd_tensor *b);

/* The forward of that, for any operator of two operands whose describe has written such a rule. */
bool sherd__contract_pieces(sherd_call *call);

/*
 * Operand i as row-major elements: where it lies, or a copy in scratch memory. NULL: no memory, or
 * no elements.
 */
const void *sherd__packed(sherd_call *call, int i);

/* "abc->ca": dims in another order, and sums over those that the result lacks. */
sherd_tensor *sherd__arrange(const char *text, sherd_tensor *a);

#endif
