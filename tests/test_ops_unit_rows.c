/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows over their lengths, and cosines, of rows that are computed in one pass: results and
 * gradients are near to those along a dim that is not the last one, which other operators make; in
 * all dtypes, of sharded rows, of rows that are 0 or shorter than eps; of f32 and f64 results have
 * the bits of these operators. Gradients, and gradients of
 * gradients, are those of differences. One rank without memory fails on all.
 */
#include "ops_cases.h"

#include "sherd/random.h"
#include "sherd/values.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_vectors.h"

/* Rows of random numbers, but for one of zeroes and one that is tiny. */
static sherd_tensor *draw(sherd_world *world, const char *name, sherd_dtype dtype, int64_t rows,
                          int64_t n)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    const sherd_placement by_rows = sherd_shard(0);
    int64_t ranks = sherd_world_ranks(world);
    sherd_generator generator = sherd_generator_named(name);

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    CHECK_OK(sherd_layout_create(&layout, mesh, 2, (int64_t[]){rows, n}, &by_rows, NULL));
    sherd_tensor *x = sherd_random_on(layout, SHERD_F64, sherd_uniform(-1, 1), &generator);
    sherd_tensor *at = sherd_unsqueeze(sherd_arange(world, SHERD_F64, 0, (double)rows, 1), 1);
    sherd_tensor *factor = sherd_masked_fill(
        sherd_masked_fill(sherd_constant(world, SHERD_F64, (int64_t[]){rows, 1}, 2, 1),
                          sherd_eq_scalar(at, 1), 0),
        sherd_eq_scalar(at, 2), 1e-4);
    return sherd_detach(sherd_cast(sherd_mul(x, factor), dtype));
}

static sherd_tensor *run(bool cosine, sherd_tensor *a, sherd_tensor *b, int dim)
{
    return cosine ? sherd_cosine_similarity(a, b, dim, 0.01) : sherd_normalize(a, 2, dim, 0.01);
}

/* The result, and gradients of a weighted sum, in f64; `turned`: along the first dim. */
static void results(bool cosine, bool turned, sherd_tensor *a, sherd_tensor *b,
                    sherd_tensor *out[3])
{
    sherd_tensor *leaf[] = {sherd_require_grad(sherd_detach(a), true),
                            sherd_require_grad(sherd_detach(b), true)};
    sherd_tensor *in[2];

    for (int i = 0; i < 2; i++)
        in[i] = turned ? sherd_transpose(leaf[i], 0, 1) : leaf[i];
    sherd_tensor *y = run(cosine, in[0], in[1], turned ? 0 : 1);
    if (turned && !cosine)
        y = sherd_transpose(y, 0, 1);
    sherd_backward(sherd_sum(sherd_mul(y, sherd_add_scalar(cosine ? sherd_square(y) : b, 1))));
    out[0] = sherd_full(sherd_cast(sherd_detach(y), SHERD_F64));
    for (int i = 0; i < 2; i++)
        out[1 + i] = sherd_full(sherd_cast(sherd_grad(leaf[i]), SHERD_F64));
}

/* The largest difference, over the largest number. */
static double apart(sherd_tensor *x, sherd_tensor *y)
{
    const double *a = sherd_tensor_read(x), *b = sherd_tensor_read(y);
    double most = 0, size = 1e-3;

    for (int64_t i = 0; a && b && i < sherd_tensor_count(x); i++) {
        most = isfinite(a[i]) ? fmax(most, fabs(a[i] - b[i])) : (double)INFINITY;
        size = fmax(size, fabs(b[i]));
    }
    return most / size;
}

static void rows_are_near_to_columns(sherd_world *world)
{
    static const struct {
        sherd_dtype dtype;
        double near;
    } kind[] = {{SHERD_F32, 1e-6}, {SHERD_F64, 1e-14}, {SHERD_BF16, 2e-2}, {SHERD_F16, 3e-3}};
    static const int64_t size[][2] = {{5, 16}, {3, 17}, {4, 100}, {1, 1031}};

    for (int k = 0; k < LEN(kind); k++)
        for (int s = 0; s < LEN(size); s++)
            for (int cosine = 0; cosine < 2; cosine++) {
                sherd_tensor *rows[3], *columns[3];
                sherd_tensor *a = draw(world, "a", kind[k].dtype, size[s][0], size[s][1]);
                sherd_tensor *b = draw(world, "b", kind[k].dtype, size[s][0], size[s][1]);
                results(cosine, false, a, b, rows);
                results(cosine, true, a, b, columns);
                for (int i = 0; i < 3; i++)
                    CHECK_NEAR(apart(rows[i], columns[i]), 0, kind[k].near);
            }
    CHECK_OK(sherd_world_check(world));
}

static void results_have_the_bits_of_steps(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64};
    const double most = (double)INFINITY;
    const int last = 1;

    for (int k = 0; k < LEN(dtypes); k++)
        for (int64_t n = 16; n < 3000; n = 2 * n + 7) {
            sherd_tensor *in[] = {draw(world, "a", dtypes[k], 5, n),
                                  draw(world, "b", dtypes[k], 5, n)};
            sherd_tensor *length = sherd_norm(in[0], 2, &last, 1, true);
            sherd_tensor *unit = sherd_div(in[0], sherd_clamp(length, 0.01, most)), *by[2];
            for (int i = 0; i < 2; i++)
                by[i] = sherd_clamp(
                    sherd_sqrt(sherd_sum_over(sherd_square(in[i]), &last, 1, false)), 0.01, most);
            sherd_tensor *product = sherd_sum_over(sherd_mul(in[0], in[1]), &last, 1, false);
            sherd_tensor *cosine = sherd_div(product, sherd_mul(by[0], by[1]));
            for (int i = 0; i < 2; i++) {
                sherd_tensor *differs = sherd_ne(run(i, in[0], in[1], 1), i ? cosine : unit);
                differs = sherd_full(sherd_any(differs, NULL, 0, false));
                const uint8_t *any = sherd_tensor_read(differs);
                CHECK(any && !*any);
            }
        }
    CHECK_OK(sherd_world_check(world));
}

/* ---- gradients of gradients ------------------------------------------------------------------ */

static sherd_tensor *function(sherd_tensor *const *in, int count, void *payload)
{
    return run(count == 2, in[0], in[count - 1], *(int *)payload);
}

static sherd_tensor *slope(sherd_tensor *const *in, int count, void *payload)
{
    sherd_tensor *y = sherd_sum(sherd_square(sherd_add_scalar(function(in, count, payload), 1)));
    sherd_tensor *grad[2], *ones = sherd_constant(in[0]->world, SHERD_F64, NULL, 0, 1);

    sherd_gradients(grad, in, count, &y, 1,
                    &(sherd_gradients_options){.gradients = &ones, .create_graph = true});
    return count == 2 ? sherd_add(grad[0], sherd_square(grad[1])) : grad[0];
}

static void gradients_are_those_of_differences(sherd_world *world)
{
    int dim = 1;
    const sherd_check_options options = {.payload = &dim, .absolute = 1e-5, .relative = 1e-4};
    sherd_tensor *in[] = {draw(world, "a", SHERD_F64, 1, 16), draw(world, "b", SHERD_F64, 1, 16)};

    for (int i = 0; i < 2; i++)
        in[i] = sherd_require_grad(in[i], true);
    for (int count = 1; count <= 2; count++) {
        CHECK_OK(sherd_check_gradients(function, in, count, &options));
        CHECK_OK(sherd_check_gradients(slope, in, count, &options));
    }
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    sherd_status status = SHERD_ENOMEM;
    sherd_tensor *a = draw(world, "a", SHERD_BF16, 4, 40), *b = draw(world, "b", SHERD_BF16, 4, 40);

    CHECK_OK(sherd_world_check(world));
    for (int n = 1; status == SHERD_ENOMEM && n < 1000; n++) {
        sherd_tensor *out[3];
        if (sherd_world_rank(world) == 0)
            sherd_world_fail_allocation(world, n);
        for (int cosine = 0; cosine < 2; cosine++)
            results(cosine, false, a, b, out);
        status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        sherd_world_fail_allocation(world, 0);
    }
    CHECK_OK(status);
}

static const check_test tests[] = {
    {TEST(rows_are_near_to_columns), {1, 2, 3, 4, 8}},
    {TEST(results_have_the_bits_of_steps), {1, 3}},
    {TEST(gradients_are_those_of_differences), {1, 2}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
