/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the solver (solve.c), its search (search.c) and operators that list their own ways (ways.c)
 * share. The solver finds the layouts that operands must have; a way is one such set of layouts,
 * with those of the results.
 */
#ifndef SHERD__APPLY_SOLVE_H
#define SHERD__APPLY_SOLVE_H

#include "operator.h"

enum { SHERD__LETTERS = 'z' - 'A' + 1 };

/* A letter of a rule, and how the operands that have it are sharded on it. */
typedef struct sherd__letter {
    char name;
    int64_t n; /* global size of the dim */
    sherd__dim dim;
} sherd__letter;

/* How a rule's letters are sharded on the mesh, for operands that fit the rule. */
typedef struct sherd__fit {
    const sherd_mesh *mesh;
    int letters;
    sherd__letter letter[SHERD__LETTERS];
    unsigned pending;          /* axes on which results are pending because an operand is, */
    int8_t op[SHERD_MAX_AXES]; /* and by which reduction */
} sherd__fit;

/* Whether operands with these layouts fit the rule of a call; if so, *fit says how. */
bool sherd__fits(sherd__fit *fit, const sherd__run *run, const sherd_layout *const *operands);

/* The layout of result j of operands that fit. */
sherd_status sherd__fit_result(const sherd_layout **out, const sherd__fit *fit,
                               const sherd__run *run, int j);

/*
 * For operands that do not fit the rule: the layouts to move them to. Only placing->operand is
 * written. The status is that of plans and layouts; the reason is in the diag.
 */
sherd_status sherd__search(sherd__placing *placing, const sherd__run *run,
                           const sherd_layout *const *operands);

/*
 * The same by the operator's own ways; the results are written as well. Not chosen: it has no way
 * for these layouts, but a rule.
 */
sherd_status sherd__choose_way(sherd__placing *placing, const sherd__run *run,
                               const sherd_layout *const *operands, bool *chosen);

/*
 * In `ways`: the layout of operand i, or the layout that stands for it (`like`); NULL: it is
 * absent.
 */
const sherd_layout *sherd__way_given(const sherd_ways *ways, int i);
/* In `ways`: as sherd_way_add, with all operands in the layouts that they were given in. */
sherd_status sherd__way_as_given(sherd_ways *ways, const sherd_layout *const *results);

/*
 * In `ways`: as sherd_way_add, where forward itself exchanges so much more, as sherd__price_moves
 * counts.
 */
sherd_status sherd__way_add(sherd_ways *ways, const sherd_layout *const *operands,
                            const sherd_layout *const *results, int64_t more);

/* Prices here are of elements of so many bytes; and what could be copied in the time of a call. */
enum { SHERD__PRICED_BYTES = 4, SHERD__CALL_ELEMENTS = 4096 };

/*
 * What the busiest rank receives when operands move to these layouts, summed over the operands, in
 * bytes of elements of SHERD__PRICED_BYTES.
 */
sherd_status sherd__price_moves(int64_t *bytes, int count, const sherd_layout *const *from,
                                const sherd_layout *const *to);

/* Whether operand i is a term. */
bool sherd__is_term(const sherd_op *op, int i);

/* Bits of the axes that shard a dim. */
unsigned sherd__dim_bits(const sherd__dim *dim);

#endif
