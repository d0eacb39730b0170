/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distinct slices along a dim, and those that differ from the one before (sherd/ops_sorted.h), made
 * of other operators. A slice is a row of rows [n, m].
 *
 * Distinct rows: numbers in place of the values, by the order of all distinct values. As many
 * columns as fit into the 53 bits of a f64 are read as one number, whose distinct values give each
 * row a number in their order; that goes before the next columns; until no two rows are equal, or
 * no column is left. So rows travel as sherd_unique lets values travel. Costs a sort of all values,
 * and one of n numbers for every few columns.
 */
#include "apply/sketch.h"
#include "ops/shared.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_masks.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_sorted.h"
#include "sherd/values.h"

static const double most = 9007199254740992.0; /* 2^53: numbers up to it are exact in f64 */

/* ---- both ------------------------------------------------------------------------------------ */

/* With dim `from` where `to` was, and those between moved by one. */
static sherd_tensor *move_dim(sherd_tensor *t, int from, int to)
{
    int dims[SHERD_MAX_DIMS], at = 0;

    if (sherd_tensor_failed(t) || from == to)
        return t;
    for (int d = 0; d < t->ndim; d++) {
        if (at == to)
            dims[at++] = from;
        if (d != from)
            dims[at++] = d;
    }
    if (at == to)
        dims[at++] = from;
    return sherd_permute(t, dims, at);
}

static sherd_tensor *replicate(sherd_tensor *t)
{
    const sherd_layout *all;

    if (sherd_tensor_failed(t) || !t->layout)
        return t;
    if (sherd__replicated(&all, t->layout->spec.mesh, t->ndim, t->shape) != SHERD_OK)
        return sherd__fail_diag(t->world, true);
    return all == t->layout ? t : sherd__move_to(t, all, false);
}

typedef sherd_tensor *(*find)(sherd_tensor *slices, sherd_tensor **inverse, sherd_tensor **counts);

static void pass(sherd_tensor **t)
{
    if (t)
        sherd_scope_pass(*t);
}

/* `found` of the slices, with the dim in front; not recorded, in a scope. */
static sherd_tensor *along(find found, const char *name, sherd_tensor *a, int dim,
                           sherd_tensor **inverse, sherd_tensor **counts)
{
    sherd_world *world = a ? a->world : NULL;
    int at = a && !sherd_tensor_failed(a) ? sherd__dim_of(dim, a->ndim) : 0;
    sherd_tensor *out;

    if (inverse)
        *inverse = NULL;
    if (counts)
        *counts = NULL;
    if (!world)
        return NULL;
    sherd_scope_begin(world);
    bool recording = sherd_set_recording(world, false);
    if (sherd__stop(world, name, &a, 1))
        out = sherd__failed(world);
    else if (at < 0)
        out = sherd__fail_tensor(world, a->layout != NULL, SHERD_EINVAL, "%s: no dim %d: a is %s",
                                 name, dim, sherd_tensor_text(a));
    else
        out = found(move_dim(sherd__without_pending(a), at, 0), inverse, counts);
    out = move_dim(out, 0, at);
    if (inverse && sherd_tensor_failed(out))
        *inverse = out;
    if (counts && sherd_tensor_failed(out))
        *counts = out;
    pass(&out);
    pass(inverse);
    pass(counts);
    sherd_set_recording(world, recording);
    sherd_scope_end(world);
    return out;
}

/* Slices as rows [n, m]. */
static sherd_tensor *rows_of(sherd_tensor *slices)
{
    return slices->ndim == 1 ? sherd_unsqueeze(slices, 1) : sherd_flatten(slices, 1, -1);
}

static void count_rows(sherd_tensor **counts, sherd_tensor *inverse, int64_t distinct)
{
    if (counts)
        *counts = replicate(sherd_cast(sherd_bincount(inverse, distinct), SHERD_I64));
}

/* ---- distinct -------------------------------------------------------------------------------- */

/* Columns [first, first + k) of numbers below `base` as one number for each row. */
static sherd_tensor *read_columns(sherd_tensor *numbers, int64_t first, int64_t k, int64_t base)
{
    static const int columns = 1;
    double weight[64] = {1};
    double *at = weight + k;

    for (*--at = 1; at > weight; at--)
        at[-1] = at[0] * (double)base;
    sherd_tensor *weights =
        sherd_mark_equal(sherd_from_data(numbers->world, SHERD_F64, &k, 1, weight));
    weights = sherd__known_beside(numbers, weights, "sherd_unique_along");
    return sherd_sum_over(sherd_mul(sherd_narrow(numbers, 1, first, k), weights), &columns, 1,
                          false);
}

/* How many columns fit behind numbers below `before`, of at most `left`; 0: not one. */
static int64_t columns_that_fit(int64_t before, int64_t base, int64_t left, double *factor)
{
    int64_t k = 0;

    *factor = 1;
    while (k < left && k < 63 && (double)before * *factor * (double)base <= most) {
        *factor *= (double)base;
        k++;
    }
    return k;
}

/*
 * A number for each row, in the order of rows: i32 [n]; *distinct: how many there are. `ids` i32
 * [n, m] are below `base`.
 */
static sherd_tensor *number_rows(sherd_tensor *ids, int64_t base, int64_t *distinct)
{
    sherd_tensor *numbers = sherd_cast(ids, SHERD_F64), *before = NULL, *inverse = NULL;
    int64_t k;
    double factor;

    *distinct = 1;
    for (int64_t j = 0; j < ids->shape[1]; j += k) {
        k = columns_that_fit(*distinct, base, ids->shape[1] - j, &factor);
        if (k == 0)
            return sherd__fail_tensor(ids->world, ids->layout != NULL, SHERD_ELIMIT,
                                      "sherd_unique_along: %lld rows with %lld distinct values are "
                                      "too many to be numbered",
                                      (long long)*distinct, (long long)base);
        sherd_tensor *code = read_columns(numbers, j, k, base);
        if (before)
            code = sherd_add(sherd_scale(before, factor), code);
        sherd_tensor *values = sherd_unique(code, &inverse, NULL);
        if (sherd_tensor_failed(values) || sherd_tensor_failed(inverse))
            return sherd__failed(ids->world);
        *distinct = values->shape[0];
        if (*distinct == ids->shape[0])
            break; /* what is left does not change their order */
        before = sherd_cast(inverse, SHERD_F64);
    }
    return inverse;
}

/* The first row with each number: i32 [distinct], on all ranks. */
static sherd_tensor *first_rows(sherd_tensor *inverse, int64_t distinct)
{
    sherd_world *world = inverse->world;
    int64_t n = inverse->shape[0];
    sherd_tensor *none = sherd_constant(world, SHERD_F64, &distinct, 1, (double)n);
    sherd_tensor *places = sherd_arange(world, SHERD_F64, 0, (double)n, 1);

    none = sherd__known_beside(inverse, none, "sherd_unique_along");
    places = sherd__known_beside(inverse, places, "sherd_unique_along");
    return replicate(
        sherd_cast(sherd_scatter_reduce(none, 0, inverse, places, SHERD_MIN, true), SHERD_I32));
}

static sherd_tensor *distinct_slices(sherd_tensor *slices, sherd_tensor **inverse,
                                     sherd_tensor **counts)
{
    sherd_tensor *ids, *rows = rows_of(slices);
    sherd_tensor *values = sherd_unique(rows, &ids, NULL);
    int64_t shape[SHERD_MAX_DIMS];

    if (sherd_tensor_failed(values) || sherd_tensor_failed(ids))
        return sherd__failed(slices->world);
    if (rows->shape[1] == 0)
        return sherd__fail_tensor(slices->world, slices->layout != NULL, SHERD_EINVAL,
                                  "sherd_unique_along: slices have no elements: with the dim in "
                                  "front, a is %s",
                                  sherd_tensor_text(slices));
    for (int d = 0; d < slices->ndim; d++)
        shape[d] = slices->shape[d];
    sherd_tensor *numbers = number_rows(ids, values->shape[0], &shape[0]);
    if (sherd_tensor_failed(numbers))
        return numbers;
    sherd_tensor *first = first_rows(numbers, shape[0]);
    sherd_tensor *kept = replicate(sherd_index_select(ids, 0, first));
    if (inverse)
        *inverse = numbers;
    count_rows(counts, numbers, shape[0]);
    sherd_tensor *flat = sherd_flatten(kept, 0, -1);
    return sherd_reshape(sherd_index_select(values, 0, flat), shape, slices->ndim);
}

sherd_tensor *sherd_unique_along(sherd_tensor *a, int dim, sherd_tensor **inverse,
                                 sherd_tensor **counts)
{
    return along(distinct_slices, "sherd_unique_along", a, dim, inverse, counts);
}

/* ---- consecutive ----------------------------------------------------------------------------- */

/* Whether each row but the first differs from the one before: bool [n - 1]. */
static sherd_tensor *find_changes(sherd_tensor *rows)
{
    static const int columns = 1;
    int64_t n = rows->shape[0];
    sherd_tensor *here = sherd_narrow(rows, 0, 1, n - 1), *before = sherd_narrow(rows, 0, 0, n - 1);
    sherd_tensor *differ = sherd_ne(here, before);

    if (sherd__has_fractions(rows->dtype)) {
        sherd_tensor *nan = sherd_logical_and(sherd_isnan(here), sherd_isnan(before));
        differ = sherd_logical_and(differ, sherd_logical_not(nan));
    }
    return sherd_any(differ, &columns, 1, false);
}

static sherd_tensor *slices_that_change(sherd_tensor *slices, sherd_tensor **inverse,
                                        sherd_tensor **counts)
{
    static const int64_t one = 1, none = 0;
    int64_t n = slices->shape[0];
    sherd_tensor *kept =
        n > 1 ? sherd_pad(find_changes(rows_of(slices)), &one, &none, 1)
              : sherd__known_beside(slices, sherd_constant(slices->world, SHERD_BOOL, &n, 1, 1),
                                    "sherd_unique_consecutive");
    sherd_tensor *out = sherd_masked_select(slices, kept);

    if (sherd_tensor_failed(out) || !(inverse || counts))
        return out;
    sherd_tensor *number = sherd_add_scalar(sherd_cumsum(sherd_cast(kept, SHERD_I32), 0), -1);
    if (inverse)
        *inverse = number;
    count_rows(counts, number, out->shape[0]);
    return out;
}

sherd_tensor *sherd_unique_consecutive(sherd_tensor *a, int dim, sherd_tensor **inverse,
                                       sherd_tensor **counts)
{
    return along(slices_that_change, "sherd_unique_consecutive", a, dim, inverse, counts);
}
