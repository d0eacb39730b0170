/* SPDX-License-Identifier: Apache-2.0 */
/* How layers with options fail: their texts, the same on all ranks, and any allocation on one
 * rank. */
#include "ops_cases.h"

#include "sherd/ops_layers.h"

static const sherd_mesh *line(sherd_world *world)
{
    int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    return mesh;
}

static sherd_tensor *make(const sherd_mesh *mesh, sherd_dtype dtype, int ndim, const int64_t *shape,
                          const char *placements)
{
    const sherd_layout *l = NULL;

    if (sherd_layout_parse_placements(&l, mesh, ndim, shape, placements, NULL) != SHERD_OK)
        return sherd__fail_diag(sherd__space_world(mesh->space), true);
    return sherd_constant_on(l, dtype, 1);
}

/* ---- texts ----------------------------------------------------------------------------------- */

#define F(...) make(mesh, SHERD_F32, SHAPE(__VA_ARGS__), "R")
#define I(...) make(mesh, SHERD_I32, SHAPE(__VA_ARGS__), "R")

/* `t` failed with this in its one line. */
static void says(sherd_world *world, sherd_tensor *t, const char *text)
{
    CHECK(sherd_tensor_failed(t));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        say_error(world);
}

static void wrong_options_get_one_clear_line(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_generator g = sherd_generator_named("g");

    says(world, sherd_cross_entropy_with(F(3, 4), I(2), NULL),
         "sherd_cross_entropy: dim 0 of logits is 3, dim 0 of targets is 2: they must be "
         "equal: logits is f32[3,4] on");
    says(world, sherd_cross_entropy_with(F(3, 1), I(3), NULL),
         "targets[0] = 1 is outside of [0,1): logits");
    says(world, sherd_cross_entropy_with(F(1), make(mesh, SHERD_I32, 0, NULL, "R"), NULL),
         "targets[] = 1 is outside of [0,1): logits is f32[1] on");
    says(world,
         sherd_cross_entropy_with(F(3, 4), F(3, 4),
                                  &(sherd_cross_entropy_options){.has_ignored = true}),
         "sherd_cross_entropy_with: an index to ignore beside probabilities: targets is f32[3,4]");
    says(world,
         sherd_cross_entropy_with(F(3, 4), I(3),
                                  &(sherd_cross_entropy_options){.label_smoothing = 2}),
         "label smoothing is 2, not in [0,1]: logits is");
    says(world, sherd_rms_norm(F(3, 4), NULL, -1),
         "sherd_rms_norm: eps is -1, and must not be negative: x is f32[3,4]");
    says(world, sherd_layer_norm_over(F(3, 4), 0, NULL, NULL, 1),
         "sherd_layer_norm: 0 dims to normalise: at least 1, and at most 8: x is f32[3,4]");
    says(world, sherd_rms_norm_over(F(3, 4), 3, NULL, 1),
         "sherd_rms_norm: x must have at least 3 dims: x is f32[3,4]");
    says(world, sherd_rotary(F(1, 2, 3, 5), NULL, NULL),
         "sherd_rotary: 5 numbers of a head can not turn: an even number, at most the width: x is");
    says(world,
         sherd_attention(F(1, 2, 4, 2), F(1, 3, 4, 2), F(1, 3, 4, 2),
                         &(sherd_attention_options){.mask = F(4, 3)}),
         "sherd_attention: the mask must broadcast to [...,heads,queries,keys]: q is f32[1,2,4,2] "
         "on");
    says(world,
         sherd_attention(F(1, 2, 4, 2), F(1, 3, 4, 2), F(1, 3, 4, 2),
                         &(sherd_attention_options){.mask = F(5, 1, 1)}),
         "the mask must broadcast to [...,heads,queries,keys]: q is");
    says(world,
         sherd_attention(F(2, 5, 2, 4, 2), F(2, 5, 3, 4, 2), F(2, 5, 3, 4, 2),
                         &(sherd_attention_options){.mask = F(2, 4, 2, 3)}),
         "sherd_attention: the mask must broadcast to [...,heads,queries,keys]: q is f32[2,5,2,4,");
    says(world,
         sherd_attention(F(1, 2, 4, 2), F(1, 3, 3, 2), F(1, 3, 3, 2),
                         &(sherd_attention_options){.mask = F(2, 3)}),
         "sherd_attention: the heads of q must be a multiple of those of k: q is f32[1,2,4,2] on");
    says(world,
         sherd_attention(F(1, 2, 4, 2), F(1, 3, 4, 2), F(1, 3, 4, 2),
                         &(sherd_attention_options){.mask = I(2, 3)}),
         "sherd_attention: the mask must be bool or of the dtype of q: q is");
    says(world,
         sherd_attention(F(1, 2, 4, 2), F(1, 3, 4, 2), F(1, 3, 4, 2),
                         &(sherd_attention_options){.dropout = 1, .generator = &g}),
         "a dropout of 1 is outside of [0,1): q is");
    says(world,
         sherd_attention(F(1, 2, 4, 2), F(1, 3, 4, 2), F(1, 3, 4, 2),
                         &(sherd_attention_options){.dropout = 0.5}),
         "sherd_attention: dropout without a generator: q is f32[1,2,4,2]");
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Every layer, forward and backward, with moves that nobody asked for. New shapes each time:
 * nothing is cached. */
static void train(const sherd_mesh *mesh, int64_t n)
{
    sherd_generator g = sherd_generator_named("g");
    sherd_tensor *x = sherd_require_grad(make(mesh, SHERD_F32, SHAPE(2, n, 4, 6), "S(1)"), true);
    sherd_tensor *k = sherd_require_grad(make(mesh, SHERD_F32, SHAPE(2, n, 2, 6), "S(0)"), true);
    sherd_tensor *w = sherd_require_grad(make(mesh, SHERD_F32, SHAPE(6), "R"), true);
    sherd_tensor *mask = sherd_require_grad(make(mesh, SHERD_F32, SHAPE(4, n, n), "S(0)"), true);
    sherd_tensor *targets = make(mesh, SHERD_I32, SHAPE(2, n, 4), "R"), *sums;

    sherd_tensor *q = sherd_rotary(sherd_rms_norm(x, w, 1e-5), NULL, NULL);
    sherd_tensor *y = sherd_attention(
        q, k, k, &(sherd_attention_options){.mask = mask, .dropout = 0.5, .generator = &g});
    sherd_attention_with(&y, &sums, y, q, q, NULL);
    sherd_tensor *loss = sherd_cross_entropy_with(
        y, targets, &(sherd_cross_entropy_options){.label_smoothing = 0.1, .weight = w});
    sherd_tensor *soft =
        sherd_cross_entropy_with(y, q, &(sherd_cross_entropy_options){.reduction = SHERD_LOSS_SUM});
    sherd_backward(sherd_add(sherd_add(sherd_sum(sums), loss), soft));
    sherd_grad(x);
}

/* Whether the rank that counts has seen fewer than n allocations; the same answer everywhere. */
static bool is_over(const sherd_mesh *mesh, bool mine)
{
    sherd_tensor *t = make(mesh, SHERD_F64, 0, NULL, "P(sum)");

    *(double *)sherd__fresh(t) = mine;
    return sherd_item(t) > 0;
}

/* Groups that are cut, a batch on all ranks, averages that are written. */
static void train_norms(const sherd_mesh *mesh, int64_t n)
{
    sherd_tensor *x = make(mesh, SHERD_BF16, 4, (int64_t[]){n, 6, 3, 2}, "S(1)");
    sherd_tensor *w = make(mesh, SHERD_BF16, 1, (int64_t[]){6}, "R");
    sherd_tensor *average = make(mesh, SHERD_F32, 1, (int64_t[]){6}, "R");
    const sherd_batch_norm_options o = {
        .weight = w, .running_mean = average, .running_variance = average};

    sherd_require_grad(x, true);
    sherd_require_grad(w, true);
    sherd_tensor *y = sherd_instance_norm(sherd_group_norm(x, 2, w, w, 1e-5), &o);
    y = sherd_batch_norm(sherd_transpose(y, 1, 2), NULL);
    y = sherd_rms_norm_over(sherd_layer_norm_over(y, 3, NULL, NULL, 1e-5), 2, NULL, 1e-5);
    sherd_backward(sherd_sum(y));
    sherd_grad(x);
    sherd_grad(w);
}

static void any_allocation_fails(sherd_world *world, void (*run)(const sherd_mesh *mesh, int64_t n))
{
    const sherd_mesh *mesh = line(world);
    bool failing = sherd_world_rank(world) == sherd_world_ranks(world) - 1, over = false;
    int failures = 0;

    for (int64_t n = 1; !over; n++) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, failing ? n : 0);
        run(mesh, 3 + n % 20);
        bool mine = failing && sherd_world_allocations(world) < n;
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        sherd_status status = sherd_world_check(world);
        if (!CHECK(status == SHERD_OK || status == SHERD_ENOMEM))
            say_error(world);
        failures += status != SHERD_OK;
        CHECK_EQ(sherd_saved_bytes(world), 0);
        sherd_scope_begin(world);
        over = is_over(mesh, mine);
        sherd_scope_end(world);
    }
    CHECK(failures > 100);
    CHECK_OK(sherd_world_check(world));
}

static void any_allocation_may_fail(sherd_world *world)
{
    any_allocation_fails(world, train);
}

static void any_allocation_of_norms_may_fail(sherd_world *world)
{
    any_allocation_fails(world, train_norms);
}

static const check_test tests[] = {
    {TEST(wrong_options_get_one_clear_line), {1, 2}},
    {TEST(any_allocation_may_fail), {1, 2, 3}},
    {TEST(any_allocation_of_norms_may_fail), {1, 2, 3}},
};
CHECK_MAIN(tests)
