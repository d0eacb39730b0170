/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows in groups, where each group has its own weights: mixtures of experts. "See ops.h" means what
 * the head of ops.h says of all operators.
 *
 * Each token chooses k groups. sherd_group_rows sorts the choices by group, sherd_dispatch moves
 * the rows of tokens to their groups, sherd_grouped_linear multiplies the rows of each group by its
 * weights, and sherd_combine brings the results back to the tokens:
 *
 *     sherd_groups to;
 *     sherd_group_rows(&to, choice, w1);                      // choice: i32 [tokens, k]
 *     sherd_tensor *rows = sherd_dispatch(x, &to);            // [tokens * k, width]
 *     rows = sherd_silu(sherd_grouped_linear(rows, w1, NULL, to.ends, to.group));
 *     rows = sherd_grouped_linear(rows, w2, NULL, to.ends, to.group);
 *     sherd_tensor *y = sherd_combine(rows, &to, scores);     // [tokens, width]
 *
 * If the weights are sharded by groups, the sorted rows are sharded by the same axes: each rank has
 * all rows of its groups, however many these are; no row is dropped or padded. Along axes that
 * shard the tokens but not the weights nothing moves. All ranks know all choices (4 bytes each),
 * and so who sends which rows to whom: rows move in one call, and their gradients in another.
 *
 * In a dry world (dry.h) choices are not known: of the n choices of a shard of tokens, the i-th
 * counts as group floor(i groups / n).
 */
#ifndef SHERD_OPS_GROUPS_H
#define SHERD_OPS_GROUPS_H

#include "ops_shape.h"

SHERD_BEGIN

/*
 * How choices were sorted into rows. The rows form *runs*, each of one group. The tensors are equal
 * on all ranks; everything belongs to the scope.
 */
typedef struct sherd_groups {
    sherd_tensor *order; /* i32 [tokens * k]: the choice of each row; choice c is of token c / k */
    sherd_tensor *place; /* i32 [tokens * k]: the row of each choice, the inverse of `order` */
    sherd_tensor *ends;  /* i32 [runs]: run r has the rows [ends[r - 1], ends[r]), run 0 from 0 */
    sherd_tensor *group; /* i32 [runs]: the group of each run */
    const sherd_layout *rows, *choices; /* layouts of rows and of choices, [tokens * k]; or NULL */
    int64_t k;                          /* how many groups each token chooses */
} sherd_groups;

/**
 * Sort the tokens' choices by group. `weight` [groups, ...] says how many groups there are and, by
 * the layout of its first dim, which ranks get their rows. `choice` should be sharded as the tokens
 * are. Rows are sorted by the shard of groups, then by the shard of tokens (along axes that do not
 * shard the weights), then by group, then by choice; so there is one run for each group and such
 * shard of tokens. Returns false after a failure; all tensors are the failed one then.
 *
 * @collective see ops.h; a sharded `choice` is gathered
 * @shapes     choice: i32 [tokens, k] or [tokens]
 * @owns       scope, all
 * @errors     see ops.h; EINVAL a choice outside [0, groups), a weight without dims, 2^31 rows or
 *             runs or more
 */
SHERD_API bool sherd_group_rows(sherd_groups *out, sherd_tensor *choice, sherd_tensor *weight);

/**
 * The rows of tokens, sorted by group, each token k times: x [tokens, ...] -> [tokens * k, ...]. If
 * x is sharded by tokens, ranks send each other the rows that they need, or x is gathered,
 * whichever moves less. An axis that shards the sorted rows and another dim of x shards only the
 * rows of the result.
 *
 * @collective see ops.h
 * @owns       scope
 * @errors     see ops.h; EINVAL groups of other tokens
 */
SHERD_API sherd_tensor *sherd_dispatch(sherd_tensor *x, const sherd_groups *groups);

/**
 * The inverse of sherd_dispatch: the k rows of each token, multiplied by their scores and added up:
 * y [tokens * k, ...] -> [tokens, ...].
 *
 * @collective see ops.h
 * @shapes     scores: [tokens, k], or [tokens] if k is 1; NULL = ones
 * @numerics   added in the order of the token's choices
 * @owns       scope
 * @errors     see ops.h; EINVAL groups of other tokens
 */
SHERD_API sherd_tensor *sherd_combine(sherd_tensor *y, const sherd_groups *groups,
                                      sherd_tensor *scores);

/**
 * A product of each row with the weights of its group: y[i] = weight[g] x[i] + bias[g], where g =
 * group[r] for the rows [ends[r - 1], ends[r]) of run r. If weights are sharded by groups, and the
 * runs come in the order of these shards, x is moved (if it has to be) so that each rank has the
 * rows of its groups. If runs come in another order, each rank computes the rows of its groups, and
 * the result is a pending sum.
 *
 * @collective see ops.h
 * @shapes     x [rows, in]; weight [groups, out, in]; bias [groups, out] or NULL; ends i32 [runs];
 *             group i32 [runs], NULL = 0, 1, ...; ends and group are equal on all ranks
 * @numerics   as sherd_linear
 * @owns       scope
 * @errors     see ops.h; EINVAL ends that do not ascend from 0 to the number of rows, a group that
 *             the weights do not have
 */
SHERD_API sherd_tensor *sherd_grouped_linear(sherd_tensor *x, sherd_tensor *weight,
                                             sherd_tensor *bias, sherd_tensor *ends,
                                             sherd_tensor *group);

/**
 * sherd_grouped_linear without a bias, with weights [groups, in, out], as
 * torch.nn.functional.grouped_mm with `ends` as its `offs`.
 *
 * @collective as there   @shapes as there   @numerics as there   @owns scope   @errors as there
 */
SHERD_API sherd_tensor *sherd_grouped_matmul(sherd_tensor *x, sherd_tensor *weight,
                                             sherd_tensor *ends, sherd_tensor *group);

SHERD_END

#endif
