/* SPDX-License-Identifier: Apache-2.0 */
/* A refusal names what is at fault: the function that was called, which of its arguments, and what
 * to do. */
#include "secret.h"

#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_sorted.h"
#include "sherd/ops_stencil.h"

enum { N = 6 };

static sherd_tensor *field(sherd_world *world, const char *way, double value)
{
    return sherd_constant_on(layout_of(line_of_ranks(world), 1, (int64_t[]){N}, way, NULL),
                             SHERD_F64, value);
}

static void fails(sherd_world *world, sherd_status status, const char *text)
{
    CHECK_EQ(sherd_world_check(world), status);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  %s\n  has not: %s\n", sherd_world_error(world), text);
}

/* ---- gradients from before ------------------------------------------------------------------- */

static void backward(void *leaf)
{
    sherd_backward(sherd_sum(sherd_square(leaf)));
}

static void fill(void *grad)
{
    sherd_fill(grad, 1);
}

/* A step that failed while leaves got gradients; the next one must not blame its loss. */
static void a_gradient_that_was_lost_is_named(sherd_world *world)
{
    static const char *const ways[] = {"R", "S(0)"};

    for (int way = 0; way < LEN(ways); way++)
        for (int written = 0; written < 2; written++) {
            sherd_tensor *leaf = sherd_require_grad(field(world, ways[way], 3), true);
            if (written)
                backward(leaf);
            CHECK_OK(sherd_world_check(world));
            fail_between(world, written ? fill : backward, written ? sherd_grad(leaf) : leaf);
            backward(leaf);
            fails(world, SHERD_EINVAL, "sherd_backward: the gradient f64[6");
            backward(leaf);
            fails(world, SHERD_EINVAL,
                  "that a leaf has from before was lost in a step that failed: clear it "
                  "(sherd_clear_grad, sherd_optimizer_clear)");
            sherd_clear_grad(leaf);
            backward(leaf);
            CHECK(sherd_grad(leaf) != NULL);
            CHECK_OK(sherd_world_check(world));
        }
}

/* ---- arguments of gradients ------------------------------------------------------------------ */

static void inputs_and_outputs_have_numbers(sherd_world *world)
{
    sherd_tensor *a = sherd_require_grad(field(world, "S(0)", 1), true);
    sherd_tensor *b = sherd_require_grad(field(world, "S(0)", 2), true);
    sherd_tensor *still = field(world, "R", 2), *y = sherd_sum(sherd_square(a)), *out[2];

    CHECK_OK(sherd_world_check(world)); /* what was made is there when others fail */
    sherd_gradients(out, (sherd_tensor *[]){a, still}, 2, &y, 1, NULL);
    fails(world, SHERD_EINVAL, "sherd_gradients: input 1, f64[6] on (");
    sherd_gradients(out, (sherd_tensor *[]){a, still}, 2, &y, 1, NULL);
    fails(world, SHERD_EINVAL, "), wants no gradient: sherd_require_grad, before it is used");
    sherd_gradients(out, (sherd_tensor *[]){a, NULL}, 2, &y, 1, NULL);
    fails(world, SHERD_EINVAL, "sherd_gradients: input 1 is NULL");
    sherd_gradients(out, (sherd_tensor *[]){a, b}, 2, &y, 1, NULL);
    fails(world, SHERD_EINVAL, "sherd_gradients: no output depends on input 1, f64[6");
    sherd_gradients(out, &a, 1, (sherd_tensor *[]){y, NULL}, 2, NULL);
    fails(world, SHERD_EINVAL, "sherd_gradients: output 1 is NULL");
    sherd_gradients(out, &a, 1, (sherd_tensor *[]){y, still}, 2, NULL);
    fails(world, SHERD_EINVAL, "sherd_gradients: output 1, f64[6] on (");
    sherd_backward(still);
    fails(world, SHERD_EINVAL,
          "depends on no leaf that wants a gradient (sherd_require_grad), or was not recorded");
}

/* ---- functions ------------------------------------------------------------------------------- */

/* Ranks that ask for other places than the others. */
static void parts_of_a_function_have_its_name(sherd_world *world)
{
    sherd_tensor *a = field(world, "R", 1);
    int differs = sherd_world_rank(world) == 0;

    CHECK_OK(sherd_world_check(world));
    sherd_quantile(a, differs ? 0.1 : 0.7, 0, SHERD_QUANTILE_LINEAR, false);
    fails(world, SHERD_EDIFFER, "attributes: q is 0.1 on rank 0, and 0.7 on rank 1");
    sherd_kthvalue(a, 2 + differs, 0, false, NULL);
    fails(world, SHERD_EDIFFER, "attributes: k is 3 on rank 0, and 2 on rank 1");
    sherd_mse_loss(a, a, differs ? SHERD_LOSS_MEAN : SHERD_LOSS_NONE);
    fails(world, SHERD_EDIFFER, ": reduction is mean on rank 0, and none on rank 1");
    sherd_scatter_fill(a, 0, sherd_cast(field(world, "R", 9), SHERD_I32), 1);
    fails(world, SHERD_EINVAL, "sherd_scatter_fill: sherd_scatter: index[0] = 9 is outside of");
}

/* What it must be cast to, and which of them. */
static void the_cast_to_write_is_named(sherd_world *world)
{
    static const struct {
        sherd_dtype a, b;
        const char *text;
    } pairs[] = {{SHERD_F32, SHERD_BF16, "sherd_add: dtypes differ: cast b to f32 (sherd_cast)"},
                 {SHERD_I32, SHERD_F32, "sherd_add: dtypes differ: cast a to f32 (sherd_cast)"},
                 {SHERD_F16, SHERD_BF16, "sherd_add: dtypes differ: cast both to f32"},
                 {SHERD_I64, SHERD_BF16, "sherd_add: dtypes differ: cast a to bf16"},
                 {SHERD_U8, SHERD_I32, "sherd_add: dtypes differ: cast a to i32"},
                 {SHERD_U8, SHERD_I8, "sherd_add: dtypes differ: cast both to i32"},
                 {SHERD_BOOL, SHERD_I8, "sherd_add: dtypes differ: cast a to i8"}};

    for (int i = 0; i < LEN(pairs); i++) {
        sherd_tensor *a = sherd_cast(field(world, "S(0)", 1), pairs[i].a);
        sherd_add(a, sherd_cast(field(world, "S(0)", 2), pairs[i].b));
        fails(world, SHERD_EINVAL, pairs[i].text);
    }
    sherd_tensor *a = sherd_cast(field(world, "S(0)", 1), SHERD_BF16);
    sherd_add_to(a, field(world, "S(0)", 2));
    fails(world, SHERD_EINVAL, "sherd_add_to: dtypes differ: cast b to that of a (sherd_cast): a");
}

static void an_offset_beside_positions_is_shown(sherd_world *world)
{
    sherd_tensor *x = sherd_constant(world, SHERD_F32, (int64_t[]){1, 2, 1, 4}, 4, 1);
    sherd_tensor *positions = sherd_constant(world, SHERD_I32, (int64_t[]){2}, 1, 1);

    CHECK(sherd_tensor_failed(sherd_rotary(x, positions, &(sherd_rotary_options){.offset = 7})));
    fails(world, SHERD_EINVAL,
          "sherd_rotary: offset is 7 beside positions, which say where all are: x is f32[1,2,1,4]");
}

/* Where counting on would overflow. */
static void an_offset_that_is_too_large_is_refused(sherd_world *world)
{
    static const struct {
        int64_t offset, zigzag;
        bool good;
    } cases[] = {{INT64_MAX, 0, false},    {INT64_MAX - 2, 0, false}, {INT64_MAX - 3, 0, true},
                 {INT64_MIN, 0, true},     {INT64_MAX, 2, false},     {INT32_MAX - 2, 2, false},
                 {INT32_MAX - 3, 2, true}, {INT64_MIN, 2, false}};
    const sherd_layout *cut =
        layout_of(line_of_ranks(world), 4, (int64_t[]){1, 4, 1, 4}, "S(1)", NULL);

    for (int i = 0; i < LEN(cases); i++) {
        const sherd_rotary_options o = {.offset = cases[i].offset, .zigzag = cases[i].zigzag};
        sherd_rotary(sherd_constant_on(cut, SHERD_F32, 1), NULL, &o);
        if (cases[i].good)
            CHECK_OK(sherd_world_check(world));
        else
            fails(world, SHERD_EINVAL, ": sherd_rotary: offset is ");
    }
}

static void a_size_of_a_pool_is_no_factor(sherd_world *world)
{
    sherd_tensor *x = sherd_constant(world, SHERD_F32, (int64_t[]){1, 1, 4}, 3, 1);

    for (int64_t size = 0; size >= -1; size--) {
        sherd_adaptive_avg_pool(x, &size);
        fails(world, SHERD_EINVAL,
              size ? ": sherd_adaptive_avg_pool: size -1 in dim 2 of size 4: "
                   : ": sherd_adaptive_avg_pool: size 0 in dim 2 of size 4: ");
        sherd_adaptive_max_pool(x, &size, NULL);
        fails(world, SHERD_EINVAL, "in dim 2 of size 4: both are in [1,2^31]: x is f32[1,1,4]");
    }
}

static const check_test tests[] = {
    {TEST(a_gradient_that_was_lost_is_named), {2, 3}},
    {TEST(inputs_and_outputs_have_numbers), {1, 2}},
    {TEST(parts_of_a_function_have_its_name), {2, 3}},
    {TEST(the_cast_to_write_is_named), {1, 2}},
    {TEST(an_offset_beside_positions_is_shown), {1}},
    {TEST(an_offset_that_is_too_large_is_refused), {1, 2, 3}},
    {TEST(a_size_of_a_pool_is_no_factor), {1}},
};

CHECK_MAIN(tests)
