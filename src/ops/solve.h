/* SPDX-License-Identifier: Apache-2.0 */
/* Between the solver and its search. Pure but for the layouts that are interned and the plans that are cached. */
#ifndef SHERD__SOLVE_H
#define SHERD__SOLVE_H

#include "rule.h"

enum { SHERD__LETTERS = SHERD__OPERANDS * SHERD_MAX_DIMS };

/* A letter of a rule, and how the operands that have it are sharded on it. */
typedef struct sherd__letter {
    char name;
    int64_t n; /* global size of the dim */
    sherd__dim dim;
} sherd__letter;

/* How a rule's letters lie on the mesh, if operands lie so that the rule takes them. */
typedef struct sherd__fit {
    const sherd_mesh *mesh;
    int letters;
    sherd__letter letter[SHERD__LETTERS];
    unsigned pending; /* axes on which the first result is pending because an operand is */
} sherd__fit;

/* Whether the rule takes operands that lie so; then *fit says how. */
bool sherd__fits(sherd__fit *fit, const sherd__rule *rule, const sherd_layout *const *operands);

/* The layout of the j-th result. */
sherd_status sherd__fit_result(const sherd_layout **out, const sherd__fit *fit,
                               const sherd__rule *rule, int j, const int64_t *shape);

/*
 * Operands that the rule does not take as they lie: where they must move. Only placing->operand is written. The status
 * is that of plans and layouts; the reason is in the diag.
 */
sherd_status sherd__search(sherd__placing *placing, sherd__space *space, const sherd__rule *rule,
                           const sherd_layout *const *operands);

/* Bits of the axes that shard a dim. */
unsigned sherd__dim_bits(const sherd__dim *dim);

#endif
