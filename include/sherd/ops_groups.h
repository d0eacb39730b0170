/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows in groups, each of which has weights of its own: the experts of a mixture. What ops.h says
 * of all operators holds here too.
 *
 * Tokens choose groups; sherd_group_rows sorts their choices, sherd_dispatch brings the rows of
 * tokens to their groups, sherd_grouped_linear multiplies the rows of each group by its weights,
 * and sherd_combine brings results back:
 *
 *     sherd_groups to;
 *     sherd_group_rows(&to, choice, w1);                      // choice: i32 [tokens, k]
 *     sherd_tensor *rows = sherd_dispatch(x, &to);            // [tokens * k, width]
 *     rows = sherd_silu(sherd_grouped_linear(rows, w1, NULL, to.ends, to.group));
 *     rows = sherd_grouped_linear(rows, w2, NULL, to.ends, to.group);
 *     sherd_tensor *y = sherd_combine(rows, &to, scores);     // [tokens, width]
 *
 * If groups are sharded, rows are cut where the groups are: a rank has the rows of its groups, as
 * many as there are, none left out and none padded. Axes that shard tokens but not the weights stay
 * with their tokens, so rows move along the axes of the groups only. All ranks know all choices (4
 * bytes each), hence who sends what to whom: rows move in one call, and their gradients in one.
 *
 * In a dry world (dry.h) nobody knows what tokens choose: of the n choices of a shard of tokens,
 * the i-th is taken to be of group i groups / n, rounded down.
 */
#ifndef SHERD_OPS_GROUPS_H
#define SHERD_OPS_GROUPS_H

#include "ops_shape.h"

SHERD_BEGIN

/*
 * Where rows are that were sorted by group. Rows come in runs, each of one group. Tensors are equal
 * on all ranks; everything belongs to the scope.
 */
typedef struct sherd_groups {
    sherd_tensor *order; /* i32 [tokens * k]: row i is of this choice; choice c is of token c / k */
    sherd_tensor *place; /* i32 [tokens * k]: and the row of each choice */
    sherd_tensor *ends;  /* i32 [runs]: rows of run r are [ends[r - 1], ends[r]), from 0 */
    sherd_tensor *group; /* i32 [runs] */
    const sherd_layout *rows, *choices; /* of [tokens * k], sorted or not; NULL: plain */
    int64_t k;
} sherd_groups;

/**
 * Sort choices of groups. `weight` [groups, ...] says how many there are, and with its first dim
 * where rows lie; choices should be laid as the tokens are. If the weights are sharded by groups,
 * rows are in the order of those shards; then in that of the shards of tokens by other axes; then
 * by group, and then as they were. So there is a run for each group and such shard of tokens.
 * False: failed, and all tensors are the failed one.
 *
 * @collective see ops.h; choices that are sharded are gathered
 * @shapes     choice: i32 [tokens, k] or [tokens]
 * @owns       scope, all
 * @errors     see ops.h; EINVAL a choice outside [0, groups), weights without a dim or only with
 *             pending ones, 2^31 rows or runs or more
 */
SHERD_API bool sherd_group_rows(sherd_groups *out, sherd_tensor *choice, sherd_tensor *weight);

/**
 * The rows of tokens, sorted by group: x [tokens, ...] -> [tokens * k, ...]. If x is sharded by
 * tokens, ranks send each other the rows that they need, or x is gathered, whichever moves less.
 * Axes that shard rows and another dim of x shard the rows only.
 *
 * @collective see ops.h
 * @owns       scope
 * @errors     see ops.h; EINVAL groups of other tokens
 */
SHERD_API sherd_tensor *sherd_dispatch(sherd_tensor *x, const sherd_groups *groups);

/**
 * Rows back at their tokens, multiplied by scores and added up: y [tokens * k, ...] -> [tokens,
 * ...].
 *
 * @collective see ops.h
 * @shapes     scores: [tokens, k] or, if k is 1, [tokens]; NULL = ones
 * @numerics   added in the order of the token's choices
 * @owns       scope
 * @errors     see ops.h; EINVAL groups of other tokens
 */
SHERD_API sherd_tensor *sherd_combine(sherd_tensor *y, const sherd_groups *groups,
                                      sherd_tensor *scores);

/**
 * Row i times the weights of its group: y[i] = weight[g] x[i] + bias[g]. Rows of run r, [ends[r -
 * 1], ends[r]), are of group[r]. If weights are sharded by groups, x is cut by the same axes where
 * their groups are (moved there, if it is not), provided that runs come in the order of those
 * shards; otherwise ranks compute the rows of their groups, and the result is a pending sum.
 *
 * @collective see ops.h
 * @shapes     x [rows, in]; weight [groups, out, in]; bias [groups, out] or NULL; ends i32 [runs];
 *             group i32 [runs], NULL = 0, 1, ... Both equal on all ranks
 * @numerics   as sherd_linear
 * @owns       scope
 * @errors     see ops.h; EINVAL ends that do not ascend from 0 to the number of rows, a group
 *             outside the weights'
 */
SHERD_API sherd_tensor *sherd_grouped_linear(sherd_tensor *x, sherd_tensor *weight,
                                             sherd_tensor *bias, sherd_tensor *ends,
                                             sherd_tensor *group);

/**
 * The same with weights [groups, in, out], as torch.nn.functional.grouped_mm with `ends` as its
 * offs.
 *
 * @collective as there   @shapes as there   @numerics as there   @owns scope   @errors as there
 */
SHERD_API sherd_tensor *sherd_grouped_matmul(sherd_tensor *x, sherd_tensor *weight,
                                             sherd_tensor *ends, sherd_tensor *group);

SHERD_END

#endif
