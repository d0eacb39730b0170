/* SPDX-License-Identifier: Apache-2.0 */
/* GroupNorm, BatchNorm and InstanceNorm as modules: their state, training and evaluation,
 * checkpointed, and on a mesh. */
#include "styles.h"

#include "sherd/ops_layers.h"
#include "sherd/ops_reductions.h"

enum { ITEMS = 5, CHANNELS = 6, INNER = 4, COUNT = ITEMS * CHANNELS * INNER, STEPS = 3 };

static const sherd_layer_options f64 = {.dtype = SHERD_F64};

static sherd_tensor *batch(sherd_world *world, int step)
{
    return wave(world, SHERD_F64, 3, SHAPE(ITEMS, CHANNELS, INNER), 3 + step, 2, 0.4 * step);
}

static sherd_module *batch_norm(sherd_world *world, const sherd_norm_options *how)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_batch_norm_create(&m, world, CHANNELS, how, &f64));
    return m;
}

/* All that a module leaves behind: results of training and evaluation, averages, gradients. */
typedef struct outcome {
    double y[STEPS + 1][COUNT], mean[CHANNELS], variance[CHANNELS], grad[2][CHANNELS], batches;
} outcome;

/* `placements` NULL: plain. */
static void train(outcome *out, sherd_module *m, const sherd_mesh *mesh, const char *placements)
{
    sherd_world *world = sherd_module_world(m);

    for (int step = 0; step <= STEPS; step++) {
        sherd_scope_begin(world);
        sherd_tensor *x = batch(world, step), *c = batch(world, step + 9);
        x = placements ? spread(x, mesh, placements) : x;
        c = placements ? spread(c, mesh, placements) : c;
        sherd_module_train(m, step < STEPS);
        sherd_require_grad(x, true);
        sherd_tensor *y = sherd_module_call(m, x);
        CHECK_EQ(whole(y, out->y[step]), COUNT);
        sherd_backward(sherd_sum(sherd_mul(y, c)));
        sherd_scope_end(world);
    }
    whole(sherd_module_buffer(m, "running_mean"), out->mean);
    whole(sherd_module_buffer(m, "running_var"), out->variance);
    whole(sherd_module_buffer(m, "num_batches_tracked"), &out->batches);
    whole(sherd_grad(sherd_module_parameter(m, "weight")), out->grad[0]);
    whole(sherd_grad(sherd_module_parameter(m, "bias")), out->grad[1]);
}

static double gap(const outcome *a, const outcome *b)
{
    const double *p = &a->y[0][0], *q = &b->y[0][0];
    double worst = 0;

    for (size_t i = 0; i < sizeof *a / sizeof *p; i++)
        worst = fabs(p[i] - q[i]) <= worst ? worst : fabs(p[i] - q[i]);
    return worst;
}

/* ---- one rank's ------------------------------------------------------------------------------ */

static void their_state_has_the_names_of_pytorch(sherd_world *world)
{
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var",
                                        "num_batches_tracked"};
    const sherd_norm_options all = {.affine = SHERD_NORM_WITH, .averages = SHERD_NORM_WITH};
    const sherd_norm_options none = {.affine = SHERD_NORM_WITHOUT, .averages = SHERD_NORM_WITHOUT};
    const sherd_layer_options half = {.dtype = SHERD_BF16};
    sherd_named_state state[8];
    sherd_module *m = NULL;

    CHECK_OK(sherd_batch_norm_create(&m, world, CHANNELS, NULL, &half));
    CHECK_EQ(sherd_module_state(m, state, 8), 5);
    for (int i = 0; i < 5; i++) {
        CHECK_TEXT(state[i].name, names[i]);
        CHECK_EQ(state[i].buffer, i > 1);
    }
    CHECK_EQ(sherd_tensor_dtype(state[0].tensor), SHERD_BF16);
    CHECK_EQ(sherd_tensor_dtype(state[2].tensor), SHERD_F32);
    CHECK_EQ(sherd_tensor_dtype(state[4].tensor), SHERD_I64);
    CHECK(sherd_module_kind_of(m) == SHERD_MODULE_BATCH_NORM);
    sherd_module_destroy(m);
    CHECK_OK(sherd_batch_norm_create(&m, world, CHANNELS, &none, NULL));
    CHECK_EQ(sherd_module_state(m, NULL, 0), 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_instance_norm_create(&m, world, CHANNELS, NULL, NULL));
    CHECK_EQ(sherd_module_state(m, NULL, 0), 0);
    CHECK(sherd_module_kind_of(m) == SHERD_MODULE_INSTANCE_NORM);
    sherd_module_destroy(m);
    CHECK_OK(sherd_instance_norm_create(&m, world, CHANNELS, &all, NULL));
    CHECK_EQ(sherd_module_state(m, NULL, 0), 5);
    sherd_module_destroy(m);
    CHECK_OK(sherd_group_norm_create(&m, world, CHANNELS, 3, NULL, NULL));
    CHECK_EQ(sherd_module_state(m, NULL, 0), 2);
    CHECK(sherd_module_kind_of(m) == SHERD_MODULE_GROUP_NORM);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void they_compute_what_their_operators_do(sherd_world *world)
{
    const sherd_norm_options eps = {.eps = 0.3};
    const sherd_batch_norm_options same = {.eps = 0.3};
    sherd_tensor *x = batch(world, 0);
    sherd_module *m = NULL;
    double y[COUNT];

    CHECK_OK(sherd_group_norm_create(&m, world, CHANNELS, 3, &eps, &f64));
    whole(sherd_group_norm(x, 3, NULL, NULL, 0.3), y);
    CHECK_EQ(distance_to(sherd_module_call(m, x), y, COUNT), 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_instance_norm_create(&m, world, CHANNELS, &eps, &f64));
    whole(sherd_instance_norm(x, &same), y);
    CHECK_EQ(distance_to(sherd_module_call(m, x), y, COUNT), 0);
    sherd_module_destroy(m);
    /* Without averages evaluation takes the moments of its argument too. */
    const sherd_norm_options bare = {.eps = 0.3, .averages = SHERD_NORM_WITHOUT};
    m = batch_norm(world, &bare);
    sherd_module_train(m, false);
    whole(sherd_batch_norm(x, &same), y);
    CHECK_EQ(distance_to(sherd_module_call(m, x), y, COUNT), 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* Every batch has an equal part: the average is the mean of the means. */
static void cumulative_averages_are_means(sherd_world *world)
{
    const sherd_norm_options how = {.cumulative = true};
    sherd_module *m = batch_norm(world, &how);
    double means[CHANNELS] = {0}, one[CHANNELS];
    outcome all;

    train(&all, m, NULL, NULL);
    for (int step = 0; step < STEPS; step++) {
        whole(sherd_mean_over(batch(world, step), (int[]){0, 2}, 2, false), one);
        for (int c = 0; c < CHANNELS; c++)
            means[c] += one[c] / STEPS;
    }
    for (int c = 0; c < CHANNELS; c++)
        CHECK_NEAR(all.mean[c], means[c], 1e-14);
    CHECK(all.batches == STEPS);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* What runs again in backward has been counted. */
static void a_checkpointed_norm_counts_once(sherd_world *world)
{
    for (int cumulative = 0; cumulative < 2; cumulative++) {
        const sherd_norm_options how = {.cumulative = cumulative};
        sherd_module *m = batch_norm(world, &how), *again = batch_norm(world, &how);
        outcome want, got;
        train(&want, m, NULL, NULL);
        sherd_module_checkpoint(again, true);
        train(&got, again, NULL, NULL);
        CHECK(got.batches == STEPS);
        CHECK_EQ(memcmp(&want, &got, sizeof want), 0);
        sherd_module_destroy(m);
        sherd_module_destroy(again);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- on a mesh ------------------------------------------------------------------------------- */

static const char *const spreads[] = {"R", "S(0)", "S(1)", "S(2)"};

static void training_is_the_same_under_every_layout(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *plain = batch_norm(world, NULL);
    outcome want, got;

    train(&want, plain, NULL, NULL);
    for (int i = 0; i < 4 * LEN(spreads); i++) {
        sherd_module *m = batch_norm(world, NULL);
        if (i / LEN(spreads) % 2) /* else its state stays plain */
            CHECK_OK(sherd_distribute_module(m, mesh, NULL, NULL, NULL, NULL));
        sherd_module_checkpoint(m, i / LEN(spreads) / 2);
        train(&got, m, mesh, spreads[i % LEN(spreads)]);
        if (!CHECK(gap(&want, &got) <= 1e-12))
            fprintf(stderr, "  case %d: %g\n", i, gap(&want, &got));
        sherd_module_destroy(m);
    }
    sherd_module_destroy(plain);
    CHECK_OK(sherd_world_check(world));
}

static sherd_status split_channels(sherd_module *m, const sherd_mesh *mesh, void *payload)
{
    const char *const *name = payload;
    sherd_status status = SHERD_OK;

    for (int i = 0; i < 4 && !status; i++)
        status = sherd_style_place_parameter(m, name[i], mesh, 0, sherd_shard(0), 0);
    return status;
}

/* Each rank has its own channels, with all that belongs to them. */
static void channels_may_be_split_with_their_state(sherd_world *world)
{
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *plain = batch_norm(world, NULL), *m = batch_norm(world, NULL);
    outcome want, got;

    train(&want, plain, NULL, NULL);
    CHECK_OK(
        sherd_distribute_module(m, mesh, split_channels, NULL, NULL, (void *)(uintptr_t)names));
    sherd_scope_begin(world);
    sherd_tensor *x = spread(batch(world, 0), mesh, "S(1)");
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_module_call(m, x);
    sherd_backward(sherd_sum(y));
    CHECK_EQ(calls_logged(world), 0);
    CHECK_TEXT(placements(y), "S(1)");
    sherd_scope_end(world);
    sherd_module_destroy(m);
    m = batch_norm(world, NULL);
    CHECK_OK(
        sherd_distribute_module(m, mesh, split_channels, NULL, NULL, (void *)(uintptr_t)names));
    train(&got, m, mesh, "S(1)");
    CHECK(gap(&want, &got) <= 1e-12);
    for (int i = 0; i < 4; i++)
        CHECK_TEXT(placements(i < 2 ? sherd_module_parameter(m, names[i])
                                    : sherd_module_buffer(m, names[i])),
                   "S(0)");
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* SequenceParallel splits dim 1: channels, here through groups. */
static void a_style_splits_groups(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *plain = NULL, *m = NULL;
    double want[COUNT], grad[CHANNELS];
    sherd_tensor *x = batch(world, 1), *c = batch(world, 2);

    CHECK_OK(sherd_group_norm_create(&plain, world, CHANNELS, 2, NULL, &f64));
    CHECK_OK(sherd_group_norm_create(&m, world, CHANNELS, 2, NULL, &f64));
    sherd_tensor *y = sherd_module_call(plain, x);
    sherd_backward(sherd_sum(sherd_mul(y, c)));
    whole(y, want);
    whole(sherd_grad(sherd_module_parameter(plain, "weight")), grad);
    CHECK_OK(apply(m, mesh, sherd_sequence_parallel()));
    CHECK_EQ(apply(m, mesh, sherd_sequence_parallel()), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "has been placed by a style before") != NULL);
    y = sherd_module_call(m, spread(x, mesh, "S(1)"));
    sherd_backward(sherd_sum(sherd_mul(y, spread(c, mesh, "S(1)"))));
    CHECK_TEXT(placements(y), "S(1)");
    CHECK_NEAR(distance_to(y, want, COUNT), 0, 1e-13);
    CHECK_NEAR(distance_to(sherd_grad(sherd_module_parameter(m, "weight")), grad, CHANNELS), 0,
               1e-12);
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void without_memory_nothing_is_left(sherd_world *world)
{
    sherd_module *m = NULL;
    sherd_status status = SHERD_ENOMEM;
    int64_t before = 0;

    for (int n = 1; status == SHERD_ENOMEM; n++) {
        sherd_world_fail_allocation(world, n);
        status = sherd_batch_norm_create(&m, world, CHANNELS, NULL, NULL);
        sherd_world_fail_allocation(world, 0);
        CHECK((status == SHERD_OK) == (m != NULL));
        if (n == 1)
            before = sherd__world_heap(world)->live;
        else if (status != SHERD_OK)
            CHECK(sherd__world_heap(world)->live <= before + 2); /* what the world keeps */
        sherd_world_check(world);
    }
    CHECK_OK(status);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(their_state_has_the_names_of_pytorch), {1, 2}},
    {TEST(they_compute_what_their_operators_do), {1}},
    {TEST(cumulative_averages_are_means), {1, 2}},
    {TEST(a_checkpointed_norm_counts_once), {1, 2}},
    {TEST(training_is_the_same_under_every_layout), {1, 2, 3, 4}},
    {TEST(channels_may_be_split_with_their_state), {1, 2, 3, 4}},
    {TEST(a_style_splits_groups), {1, 2, 3, 4}},
    {TEST(without_memory_nothing_is_left), {1, 2}},
};
CHECK_MAIN(tests)
