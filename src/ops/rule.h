/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules and the one solver. A rule names the dims of operands and results with letters, for example
 * "...k,nk->...n" for a linear layer; letters that two operands share must be sharded alike. The solver finds
 * what each operand must lie in: operands that fit as they lie are never moved; otherwise the candidates
 * (each letter sharded as some operand has it, or by fewer of those axes, or whole) are priced in bytes, then
 * in memory, and the cheapest wins, the first one on a tie. Answers are cached by rule and layouts.
 */
#ifndef SHERD__RULE_H
#define SHERD__RULE_H

#include "autograd/tape.h"

enum { SHERD__OPERANDS = 4, SHERD__RESULTS = 2 };

/* How pending sums go through an operator. */
typedef enum sherd__linearity {
    SHERD__NONLINEAR, /* every operand is settled */
    SHERD__LINEAR /* at most one factor is pending on an axis: so is the result; terms see `term` */
} sherd__linearity;

/*
 * labels: one letter per dim, in order, zero-terminated. '1' marks a dim of size 1 that broadcasts: never sharded. A
 * letter that a result lacks is summed over: where it is sharded that result is pending.
 */
typedef struct sherd__rule {
    const char *name; /* for messages */
    int operands, results;
    char operand[SHERD__OPERANDS][SHERD_MAX_DIMS + 1];
    char result[SHERD__RESULTS][SHERD_MAX_DIMS + 1];
    char whole[SHERD_MAX_DIMS + 1]; /* letters that may not be sharded */
    sherd__linearity linearity;
    /* bits of operands that are added to the result (a bias; both of an addition): replicated beside a pending
     * result they count once, at coordinate 0 of its axes */
    unsigned term;
    unsigned index; /* bits of operands that are i32; all others have the dtype of the result */
    unsigned statistics; /* bits of results that sums go into: f32 where the others have 16 bits */
    bool keep_strides;   /* the operator takes strided operands as they are */
    bool scratch; /* the operator makes tensors that nobody gets: it runs in a scope of its own */
} sherd__rule;

/* The solver's answer. Layouts of one mesh; sure to live until the next question. */
typedef struct sherd__placing {
    /* what each operand must be moved to; its own layout if it stays */
    const sherd_layout *operand[SHERD__OPERANDS];
    const sherd_layout *result[SHERD__RESULTS];
    /* bits of terms that this rank must leave out, because a rank at coordinate 0 adds them */
    unsigned once;
} sherd__placing;

/*
 * Expand "..." in an index string such as "...mk,...kn->...mn" for operands of these ndims (a missing operand has -1 and an
 * empty part) and add it to a rule. False if the ndims do not fit.
 */
bool sherd__rule_compile(sherd__rule *rule, const char *text, const int *ndims);

/*
 * Solve for operands of these layouts (NULL = absent). result_shape[j][dim] are global shapes of the results. NULL:
 * failed, the reason is in the diag.
 */
const sherd__placing *sherd__solve(sherd_world *world, const sherd__rule *rule,
                                   const sherd_layout *const *operands,
                                   const int64_t (*result_shape)[SHERD_MAX_DIMS]);

/*
 * The common start of operators. Promotes plain operands that do not vary beside distributed ones, checks for failures
 * and alarm, dtypes too, solves, moves (recorded) what must be moved, and makes the results (contents undefined). All
 * plain: results are plain and vary over the union. True: go on, and end with sherd__finish. False: return out[0], which is
 * the failed tensor.
 *
 * The first operand is there. `arg` is what is recorded and saved; `in` is the same, compacted (not recorded) where the operator needs it.
 */
typedef struct sherd__prepared {
    sherd_world *world;
    const char *name; /* of the rule */
    int operands;     /* of the rule */
    uint64_t
        attributes; /* the operator's: a hash (sherd__attribute) of what ranks must agree on; 0 = none */
    sherd_tensor *arg[SHERD__OPERANDS];
    sherd_tensor *in[SHERD__OPERANDS];
    sherd_tensor *out[SHERD__RESULTS];
    const void *from[SHERD__OPERANDS]; /* local data of in[i]; NULL where there are no elements */
    void *to[SHERD__RESULTS];          /* local data of out[j], likewise */
    const sherd__kernels *kernels;     /* of the result's dtype */
    unsigned once;                     /* as in sherd__placing */
    bool scoped;                       /* a scope was opened for what is made on the way */
} sherd__prepared;

bool sherd__prepare(sherd__prepared *p, const sherd__rule *rule, sherd_tensor *const *in,
                    sherd_dtype result_dtype, const int64_t (*result_shape)[SHERD_MAX_DIMS]);

/* The common end: closes the scope, passes the first `outs` results out of it, and returns out[0]. */
sherd_tensor *sherd__finish(sherd__prepared *p, int outs);
/* The end of an operator that failed after prepare, with the alarm or diag told: closes the scope; the failed tensor. */
sherd_tensor *sherd__abandon(sherd__prepared *p);

#endif
