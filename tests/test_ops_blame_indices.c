/* SPDX-License-Identifier: Apache-2.0 */
/* What is found only when a call runs, an index out of range, is said of the function that was
 * called, of whichever others that is made. */
#include "misuse.h"
#include "tensors.h"

#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_index.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_losses.h"
#include "sherd/ops_points.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include "sherd/ops_sorted.h"

enum { N = 4 };

/* Functions of a [4,4], an index [4] and one [4,4], which have numbers from 99 on. */
#define CALL(name, expression)                                              \
    static void name(sherd_tensor *a, sherd_tensor *one, sherd_tensor *all) \
    {                                                                       \
        (void)a, (void)one, (void)all, (void)(expression);                  \
    }

/* clang-format off */
CALL(index_select, sherd_index_select(a, 0, one))
CALL(gather, sherd_gather(a, 0, all))
CALL(scatter, sherd_scatter(a, 0, all, a))
CALL(scatter_fill, sherd_scatter_fill(a, 0, all, 1))
CALL(scatter_add, sherd_scatter_add(a, 0, all, a))
CALL(scatter_reduce, sherd_scatter_reduce(a, 0, all, a, SHERD_MAX, true))
CALL(scatter_reduce_sum, sherd_scatter_reduce(a, 0, all, a, SHERD_SUM, true))
CALL(scatter_reduce_product, sherd_scatter_reduce(a, 0, all, a, SHERD_PRODUCT, true))
CALL(scatter_reduce_average, sherd_scatter_reduce(a, 0, all, a, SHERD_AVG, false))
CALL(index_add, sherd_index_add(a, 0, one, a))
CALL(index_copy, sherd_index_copy(a, 0, one, a))
CALL(index_fill, sherd_index_fill(a, 0, one, 1))
CALL(index_reduce, sherd_index_reduce(a, 0, one, a, SHERD_MIN, true))
CALL(index_reduce_sum, sherd_index_reduce(a, 0, one, a, SHERD_SUM, false))
CALL(index_reduce_product, sherd_index_reduce(a, 0, one, a, SHERD_PRODUCT, false))
CALL(index_reduce_average, sherd_index_reduce(a, 0, one, a, SHERD_AVG, true))
CALL(index_softmax, sherd_index_softmax(a, 0, one, N))
CALL(index_at, sherd_index_at(a, (sherd_tensor *[]){one}, 1))
CALL(index_at_two, sherd_index_at(a, (sherd_tensor *[]){NULL, one}, 2))
CALL(index_put, sherd_index_put(a, (sherd_tensor *[]){one}, 1, a, false))
CALL(index_put_adds, sherd_index_put(a, (sherd_tensor *[]){one}, 1, a, true))
CALL(repeat_interleave_by, sherd_repeat_interleave_by(a, 0, one, N))
CALL(embedding, sherd_embedding(a, one))
CALL(cross_entropy, sherd_cross_entropy(a, one))
CALL(cross_entropy_with, sherd_cross_entropy_with(a, one, NULL))
CALL(nll_loss, sherd_nll_loss(a, one, SHERD_LOSS_SUM))
CALL(nll_loss_with, sherd_nll_loss_with(a, one, NULL))
CALL(write_rows, sherd_write_rows(a, one, a))
CALL(copy_rows, sherd_copy_rows(a, one, one))
/* clang-format on */

#define ROW(name)                   \
    {                               \
#name, "sherd_" #name, name \
    }

static const struct {
    const char *test, *function; /* which is the beginning of the test's name */
    void (*call)(sherd_tensor *a, sherd_tensor *one, sherd_tensor *all);
} rows[] = {ROW(index_select),
            ROW(gather),
            ROW(scatter),
            ROW(scatter_fill),
            ROW(scatter_add),
            ROW(scatter_reduce),
            {"sum", "sherd_scatter_reduce", scatter_reduce_sum},
            {"product", "sherd_scatter_reduce", scatter_reduce_product},
            {"average", "sherd_scatter_reduce", scatter_reduce_average},
            ROW(index_add),
            ROW(index_copy),
            ROW(index_fill),
            ROW(index_reduce),
            {"sum", "sherd_index_reduce", index_reduce_sum},
            {"product", "sherd_index_reduce", index_reduce_product},
            {"average", "sherd_index_reduce", index_reduce_average},
            ROW(index_softmax),
            ROW(index_at),
            {"two", "sherd_index_at", index_at_two},
            ROW(index_put),
            {"adds", "sherd_index_put", index_put_adds},
            ROW(repeat_interleave_by),
            ROW(embedding),
            ROW(cross_entropy),
            ROW(cross_entropy_with),
            ROW(nll_loss),
            ROW(nll_loss_with),
            ROW(write_rows),
            ROW(copy_rows)};

static sherd_tensor *distributed(sherd_world *world, const char *way, sherd_dtype dtype, int ndim)
{
    const sherd_layout *layout =
        layout_of(line_of_ranks(world), ndim, (int64_t[]){N, N}, way, NULL);

    return sherd_constant_on(layout, dtype, dtype == SHERD_I32 ? 99 : 0.5);
}

static void an_index_out_of_range_is_that_of_the_function(sherd_world *world)
{
    static const char *const ways[] = {"R", "S(0)"};

    for (int i = 0; i < LEN(rows); i++)
        for (int way = 0; way < LEN(ways) * LEN(ways); way++) {
            const char *of_a = ways[way / LEN(ways)], *of_index = ways[way % LEN(ways)];
            rows[i].call(distributed(world, of_a, SHERD_F64, 2),
                         distributed(world, of_index, SHERD_I32, 1),
                         distributed(world, of_index, SHERD_I32, 2));
            CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
            const char *error = sherd_world_error(world);
            if (!CHECK(misuse_is_about(error, rows[i].function, (int)strlen(rows[i].function))))
                fprintf(stderr, "  %s of %s: %s\n", rows[i].test, rows[i].function, error);
        }
}

static const check_test tests[] = {
    {TEST(an_index_out_of_range_is_that_of_the_function), {1, 2, 3}},
};
CHECK_MAIN(tests)
