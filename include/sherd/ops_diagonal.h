/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagonals: the elements of a tensor whose indices in two dims differ by a constant. What ops.h
 * says of all operators holds here too; dims may be negative (-1 is the last one). Every dtype is
 * accepted.
 *
 * No matrix is ever moved. Where one of the two dims is sharded, the diagonal is sharded as that;
 * where both are, each rank takes what lies in its box, and the result is also a pending sum over
 * the axes that shard the columns.
 */
#ifndef SHERD_OPS_DIAGONAL_H
#define SHERD_OPS_DIAGONAL_H

#include "ops.h"

SHERD_BEGIN

/**
 * The elements a[.., i, .., i + offset, ..], of the dims p and q, as a new last dim: a copy. It has
 * no elements where the matrix ends before the offset. (PyTorch: diagonal, with p and q as dim1 and
 * dim2; torch.diag of a matrix.)
 *
 * @collective see ops.h, only if a pending reduction other than a sum is settled
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dims, or p and q are one
 */
SHERD_API sherd_tensor *sherd_diagonal(sherd_tensor *a, int64_t offset, int p, int q);

/**
 * The reverse: zeros with the elements of the last dim of `a` on a diagonal of two new dims, p and
 * q of the result, each of size n + |offset|. (PyTorch: diag_embed; torch.diag of a vector.) A
 * sharded last dim shards p.
 *
 * @collective see ops.h, only if a pending reduction other than a sum is settled
 * @owns       scope
 * @errors     see ops.h; EINVAL `a` is a scalar, no such dims, or p and q are one, a result of 2^62
 *             elements or more, where a size of 0 counts as 1
 */
SHERD_API sherd_tensor *sherd_diag_embed(sherd_tensor *a, int64_t offset, int p, int q);

/**
 * The sum of sherd_diagonal: of the dims p and q, and nothing else (PyTorch: trace, of a matrix).
 * Integers and bool are added in i64. Of sharded dims it is a pending sum.
 *
 * @collective see ops.h   @owns scope   @errors as sherd_diagonal
 */
SHERD_API sherd_tensor *sherd_trace(sherd_tensor *a, int64_t offset, int p, int q);

SHERD_END

#endif
