/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers with all their options: results equal the plain ones under every layout, gradients equal
 * central differences, and every dtype computes the same but for its roundings.
 */
#include "ops_oracles.h"
#include "sherd/values.h"

#include "kernels/cast.h"
#include "sherd/ops_layers.h"

/* ---- cross-entropy --------------------------------------------------------------------------- */

/* Weights 0, 1, 2 .. of indices, of the dtype of logits. */
static sherd_tensor *weights(sherd_tensor *logits, sherd_tensor *index)
{
    return sherd_cast(index, sherd_tensor_dtype(logits));
}

static sherd_tensor *run_ignoring(sherd_tensor *const *in)
{
    return sherd_cross_entropy_with(
        in[0], in[1], &(sherd_cross_entropy_options){.has_ignored = true, .ignored = 2});
}
static sherd_tensor *run_smooth_mean(sherd_tensor *const *in)
{
    return sherd_cross_entropy_with(in[0], in[1],
                                    &(sherd_cross_entropy_options){.label_smoothing = 0.2,
                                                                   .weight = weights(in[0], in[2]),
                                                                   .has_ignored = true});
}
static sherd_tensor *run_weighted_sum(sherd_tensor *const *in)
{
    return sherd_cross_entropy_with(
        in[0], in[1],
        &(sherd_cross_entropy_options){.reduction = SHERD_LOSS_SUM,
                                       .weight = weights(in[0], in[2])});
}
static sherd_tensor *run_each(sherd_tensor *const *in)
{
    return sherd_cross_entropy_with(in[0], in[1],
                                    &(sherd_cross_entropy_options){.reduction = SHERD_LOSS_NONE,
                                                                   .has_ignored = true,
                                                                   .label_smoothing = 0.3,
                                                                   .ignored = 1});
}
static sherd_tensor *run_soft(sherd_tensor *const *in)
{
    return sherd_cross_entropy_with(
        in[0], in[1],
        &(sherd_cross_entropy_options){.label_smoothing = 0.1, .weight = weights(in[0], in[2])});
}
static sherd_tensor *run_soft_each(sherd_tensor *const *in)
{
    return sherd_cross_entropy_with(in[0], in[1],
                                    &(sherd_cross_entropy_options){.reduction = SHERD_LOSS_NONE});
}

static const op_case losses[] = {
    {"mean, some ignored",
     run_ignoring,
     2,
     {3, 2},
     .shape = {{3, 2, 7}, {3, 2}},
     .index = 2,
     .limit = 7},
    {"mean, smooth, weighted",
     run_smooth_mean,
     3,
     {2, 1, 1},
     .shape = {{5, 4}, {5}, {4}},
     .index = 6,
     .limit = 4},
    {"sum, weighted",
     run_weighted_sum,
     3,
     {2, 1, 1},
     .shape = {{5, 4}, {5}, {4}},
     .index = 6,
     .limit = 4},
    {"each, smooth", run_each, 2, {3, 2}, .shape = {{3, 2, 5}, {3, 2}}, .index = 2, .limit = 5},
    {"probabilities",
     run_soft,
     3,
     {2, 2, 1},
     .shape = {{5, 4}, {5, 4}, {4}},
     .index = 4,
     .limit = 4},
    {"probabilities, each", run_soft_each, 2, {3, 3}, .shape = {{3, 2, 5}, {3, 2, 5}}},
    {"one position", run_soft_each, 2, {1, 1}, .shape = {{5}, {5}}},
    {"each of none", run_each, 2, {2, 1}, .shape = {{0, 5}, {0}}, .index = 2, .limit = 5},
};

/* ---- attention ------------------------------------------------------------------------------- */

static sherd_tensor *run_shared_heads(sherd_tensor *const *in)
{
    return sherd_attention(in[0], in[1], in[2], &(sherd_attention_options){.causal = true});
}
static sherd_tensor *run_added_mask(sherd_tensor *const *in)
{
    return sherd_attention(in[0], in[1], in[2],
                           &(sherd_attention_options){.mask = in[3], .scale = 0.7});
}
/* Some queries see nothing. */
static sherd_tensor *run_mask(sherd_tensor *const *in)
{
    return sherd_attention(
        in[0], in[1], in[2],
        &(sherd_attention_options){.mask = sherd_cast(in[3], SHERD_BOOL), .causal = true});
}
static sherd_tensor *run_attention_dropout(sherd_tensor *const *in)
{
    sherd_generator g = sherd_generator_named("scores");
    return sherd_attention(in[0], in[1], in[2],
                           &(sherd_attention_options){.dropout = 0.4, .generator = &g});
}
/* Both results: [width,heads,positions,batch] and one that lacks the width. */
static sherd_tensor *run_sums(sherd_tensor *const *in)
{
    sherd_tensor *out, *sums;
    sherd_attention_with(&out, &sums, in[0], in[1], in[2], NULL);
    sums = sherd_cast(sums, sherd_tensor_dtype(out));
    sums = sherd_transpose(sherd_transpose(sums, 0, 2), 0, 1);
    return sherd_add(sherd_transpose(sherd_transpose(out, 1, 2), 0, 3), sums);
}
static sherd_tensor *run_only_sums(sherd_tensor *const *in)
{
    sherd_tensor *sums;
    sherd_attention_with(NULL, &sums, in[0], in[1], in[2],
                         &(sherd_attention_options){.mask = in[3]});
    return sherd_cast(sums, sherd_tensor_dtype(in[0]));
}

#define OF_Q       \
    {              \
        2, 3, 4, 2 \
    }
#define OF_K       \
    {              \
        2, 3, 2, 2 \
    }

static const op_case attentions[] = {
    {"shared heads", run_shared_heads, 3, {4, 4, 4}, .shape = {OF_Q, OF_K, OF_K}},
    {"one head of keys",
     run_shared_heads,
     3,
     {4, 4, 4},
     .shape = {OF_Q, {2, 3, 1, 2}, {2, 3, 1, 2}}},
    {"mask of all", run_added_mask, 4, {4, 4, 4, 4}, .shape = {OF_Q, OF_K, OF_K, {2, 4, 3, 3}}},
    {"mask of a batch", run_added_mask, 4, {4, 4, 4, 4}, .shape = {OF_Q, OF_Q, OF_Q, {2, 1, 1, 3}}},
    {"mask of scores", run_added_mask, 4, {4, 4, 4, 2}, .shape = {OF_Q, OF_K, OF_K, {3, 3}}},
    {"mask of heads", run_added_mask, 4, {4, 4, 4, 3}, .shape = {OF_Q, OF_Q, OF_Q, {4, 3, 1}}},
    {"mask of bools",
     run_mask,
     4,
     {4, 4, 4, 4},
     .shape = {OF_Q, OF_K, OF_K, {2, 1, 3, 3}},
     .index = 8,
     .limit = 2},
    {"attention dropout", run_attention_dropout, 3, {4, 4, 4}, .shape = {OF_Q, OF_K, OF_K}},
    {"logarithms", run_sums, 3, {4, 4, 4}, .shape = {{2, 3, 2, 2}, {2, 4, 2, 2}, {2, 4, 2, 2}}},
    {"logarithms of masked", run_only_sums, 4, {4, 4, 4, 1}, .shape = {OF_Q, OF_K, OF_K, {3}}},
    {"shared heads no keys",
     run_added_mask,
     4,
     {4, 4, 4, 2},
     .shape = {OF_Q, {2, 0, 2, 2}, {2, 0, 2, 2}, {3, 0}}},
    {"shared heads no queries",
     run_added_mask,
     4,
     {4, 4, 4, 2},
     .shape = {{2, 0, 4, 2}, OF_K, OF_K, {0, 3}}},
};

/* ---- rms_norm -------------------------------------------------------------------------------- */

static sherd_tensor *run_rms(sherd_tensor *const *in)
{
    return sherd_rms_norm(in[0], in[1], 1e-5);
}
static sherd_tensor *run_bare_rms(sherd_tensor *const *in)
{
    return sherd_rms_norm(in[0], NULL, 0);
}

static const op_case norms[] = {
    {"rms_norm", run_rms, 2, {3, 1}, .shape = {{3, 2, 5}, {5}}},
    {"rms_norm bare", run_bare_rms, 1, {2}, .shape = {{5, 4}}},
    {"rms_norm of a row", run_rms, 2, {1, 1}, .shape = {{4}, {4}}},
    {"rms_norm no rows", run_rms, 2, {2, 1}, .shape = {{0, 5}, {5}}},
    {"rms_norm no columns", run_rms, 2, {2, 1}, .shape = {{5, 0}, {0}}},
};

/* ---- rotary ---------------------------------------------------------------------------------- */

static sherd_tensor *run_rotary(sherd_tensor *const *in)
{
    return sherd_rotary(in[0], NULL, NULL);
}
static sherd_tensor *run_pairs(sherd_tensor *const *in)
{
    return sherd_rotary(
        in[0], NULL,
        &(sherd_rotary_options){.base = 50, .offset = 3, .rotated = 4, .interleaved = true});
}
static sherd_tensor *run_positions(sherd_tensor *const *in)
{
    return sherd_rotary(in[0], in[1], &(sherd_rotary_options){.rotated = 2});
}

static const op_case rotations[] = {
    {"rotary", run_rotary, 1, {4}, .shape = {{2, 5, 3, 4}}},
    {"rotary pairs", run_pairs, 1, {4}, .shape = {{1, 5, 3, 6}}},
    {"rotary at", run_positions, 2, {4, 1}, .shape = {{2, 5, 3, 3}, {5}}, .index = 2, .limit = 90},
    {"rotary at each",
     run_positions,
     2,
     {4, 2},
     .shape = {{3, 4, 2, 2}, {3, 4}},
     .index = 2,
     .limit = 9},
    {"rotary of nothing",
     run_positions,
     2,
     {4, 1},
     .shape = {{2, 0, 3, 4}, {0}},
     .index = 2,
     .limit = 9},
};

/* ---- every dtype ----------------------------------------------------------------------------- */

/* Round what a leaf holds, so that the cast to the dtype changes nothing. */
static void round_leaf(sherd_tensor *t, sherd_dtype dtype)
{
    double *x = sherd_tensor_write(t), narrow;

    for (int64_t i = 0; x && i < t->count; i++) {
        sherd__cast(dtype, SHERD_F64, 1, &narrow, &x[i]);
        sherd__cast(SHERD_F64, dtype, 1, &x[i], &narrow);
    }
}

/* The result in f64, from operands that were cast to `dtype`; gradients are left at the leaves. */
static void run_in(double *y, const op_case *c, sherd_tensor *const *leaf, sherd_dtype dtype)
{
    sherd_tensor *in[MOST_IN], *result;

    for (int i = 0; i < c->operands; i++) {
        in[i] = c->index >> i & 1 ? leaf[i] : sherd_cast(leaf[i], dtype);
        if (!(c->index >> i & 1))
            sherd_clear_grad(leaf[i]);
    }
    result = c->run(in);
    CHECK_EQ(sherd_tensor_dtype(result), dtype);
    result = sherd_cast(result, SHERD_F64);
    copy_values(y, sherd_full(result));
    lose(result);
}

static void check_dtype(const sherd_mesh *mesh, const op_case *c, int64_t number, sherd_dtype dtype,
                        double tolerance)
{
    static _Thread_local double y[MOST_ELEMENTS], grad[MOST_IN][MOST_ELEMENTS];
    sherd_tensor *leaf[MOST_IN], *in[MOST_IN];
    double narrow[MOST_ELEMENTS];
    bool good = true;

    place_all(mesh, c, number, leaf);
    for (int i = 0; i < c->operands; i++)
        if (!(c->index >> i & 1))
            round_leaf(leaf[i], dtype);
    want_gradients(c, leaf);
    run_in(y, c, leaf, SHERD_F64);
    for (int i = 0; i < c->operands; i++)
        if (!(c->index >> i & 1))
            copy_values(grad[i], sherd_full(sherd_grad(leaf[i])));
    run_in(narrow, c, leaf, dtype);
    memcpy(in, leaf, sizeof in);
    sherd_tensor *t = c->run(in);
    for (int64_t i = 0; i < sherd_tensor_count(t); i++)
        good &= CHECK_NEAR(narrow[i], y[i], tolerance * (1 + fabs(y[i])));
    for (int i = 0; i < c->operands; i++)
        if (!(c->index >> i & 1))
            good &= CHECK(distance(sherd_full(sherd_grad(leaf[i])), grad[i], count_of(c, i)) <=
                          4 * tolerance);
    if (!good)
        say_layouts(c, leaf);
}

static void all_dtypes(sherd_world *world, const op_case *list, int count)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16, SHERD_F16};
    static const double tolerance[] = {1e-5, 6.0 / 256, 6.0 / 2048};
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < count; i++) {
        int64_t step, all = combinations(mesh, &list[i], 3, &step);
        for (int64_t number = 0; number < all; number += step)
            for (int k = 0; k < LEN(dtypes); k++) {
                sherd_scope_begin(world);
                check_dtype(mesh, &list[i], number, dtypes[k], tolerance[k]);
                sherd_scope_end(world);
            }
        if (!CHECK_OK(sherd_world_check(world)))
            say_error(world);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const struct {
    const op_case *list;
    int count;
} families[] = {{losses, LEN(losses)},
                {attentions, LEN(attentions)},
                {norms, LEN(norms)},
                {rotations, LEN(rotations)}};

static void sharded_equals_plain(sherd_world *world)
{
    for (int i = 0; i < LEN(families); i++)
        all_equal_plain(world, families[i].list, families[i].count, 80 / check_stride(2));
}

static void gradients_equal_differences(sherd_world *world)
{
    for (int i = 0; i < LEN(families); i++)
        all_equal_differences(world, families[i].list, families[i].count, 30 / check_stride(2));
}

static void every_dtype_computes_the_same(sherd_world *world)
{
    for (int i = 0; i < LEN(families); i++)
        all_dtypes(world, families[i].list, families[i].count);
}

/* A mesh without rank 1: that rank calls all the same, holds nothing, and hinders nobody. */
/* Frequencies of a base give the bits of that base; those of scaled positions, other positions. */
static void frequencies_may_be_given(sherd_world *world)
{
    static const char *const layouts[] = {"R", "S(0)", "S(1)", "S(2)"};
    const sherd_mesh *mesh = NULL;
    double base[2] = {1, pow(50, -0.5)}, doubled[2] = {2 * base[0], 2 * base[1]};
    double want[2][60], have[60], slope[2][60];

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){sherd_world_ranks(world)}, NULL, NULL));
    for (int i = 0; i < LEN(layouts); i++)
        for (int way = 0; way < 2; way++) {
            sherd_scope_begin(world);
            sherd_generator numbers = sherd_generator_named("numbers");
            sherd_tensor *x = sherd_random(world, SHERD_F64, (int64_t[]){1, 5, 3, 4}, 4,
                                           sherd_normal(0, 1), &numbers);
            x = sherd_distribute_as(x, mesh, "R", -1);
            sherd_require_grad(x, true);
            sherd_tensor *even = sherd_distribute_as(
                sherd_arange(world, SHERD_I32, 0, way ? 10 : 5, way ? 2 : 1), mesh, "R", -1);
            sherd_tensor *f = sherd_mark_equal(
                sherd_from_data(world, SHERD_F64, (int64_t[]){2}, 1, way ? doubled : base));
            if (i == 3) /* what is sharded is gathered */
                f = sherd_distribute_as(f, mesh, "S(0)", -1);
            for (int given = 0; given < 2; given++) {
                sherd_clear_grad(x);
                sherd_tensor *y = sherd_redistribute_to(x, layouts[i], NULL);
                sherd_tensor *z =
                    given ? sherd_rotary(y, NULL, &(sherd_rotary_options){.frequencies = f})
                          : sherd_rotary(y, even, &(sherd_rotary_options){.base = 50});
                sherd_backward(sherd_sum(sherd_mul(z, z)));
                copy_values(given ? have : want[way], sherd_full(z));
                copy_values(slope[given], sherd_full(sherd_grad(x)));
            }
            if (!CHECK_OK(sherd_world_check(world)))
                say_error(world);
            for (int j = 0; j < 60; j++) {
                CHECK_NEAR(have[j], want[way][j], 1e-14);
                CHECK_NEAR(slope[0][j], slope[1][j], 1e-13);
            }
            sherd_scope_end(world);
        }
    CHECK(fabs(want[0][20] - want[1][20]) > 1e-3);
}

/* Nothing is turned, so angles need no memory. */
static void nothing_has_any_number_of_positions(sherd_world *world)
{
    const int64_t positions = (int64_t)1 << 40;
    const int64_t no_items[] = {0, positions, 1, 64}, no_heads[] = {2, positions, 0, 64};

    CHECK_EQ(sherd_tensor_count(
                 sherd_rotary(sherd_constant(world, SHERD_F32, no_items, 4, 1), NULL, NULL)),
             0);
    CHECK_EQ(sherd_tensor_count(
                 sherd_rotary(sherd_constant(world, SHERD_F32, no_heads, 4, 1), NULL, NULL)),
             0);
    CHECK_OK(sherd_world_check(world));
}

static void a_rank_outside_of_the_mesh_takes_no_part(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    static gradients want_of[CHECK_RANKS];
    double(*want)[MOST_ELEMENTS] = want_of[sherd_world_rank(world)];
    bool inside = sherd_world_rank(world) != 1;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){2}, NULL, (int[]){2, 0}));
    for (int i = 0; i < LEN(families); i++)
        for (int j = 0; j < families[i].count; j++) {
            const op_case *c = &families[i].list[j];
            int64_t step, all = combinations(mesh, c, 20, &step);
            sherd_scope_begin(world);
            differences(world, c, want);
            for (int64_t number = 0; number < all; number += step) {
                sherd_tensor *in[MOST_IN];
                sherd_scope_begin(world);
                place_all(mesh, c, number, in);
                differentiate(c, in);
                if (inside && !same_gradients(c, in, want))
                    say_layouts(c, in);
                sherd_scope_end(world);
            }
            sherd_scope_end(world);
            if (!CHECK_OK(sherd_world_check(world)))
                say_error(world);
        }
}

static const check_test tests[] = {
    {TEST(sharded_equals_plain), {1, 2, 3, 4}},
    {TEST(gradients_equal_differences), {1, 2, 3, 4}},
    {TEST(every_dtype_computes_the_same), {1, 2, 4}},
    {TEST(frequencies_may_be_given), {1, 2, 3}},
    {TEST(nothing_has_any_number_of_positions), {1, 2}},
    {TEST(a_rank_outside_of_the_mesh_takes_no_part), {3}},
};
CHECK_MAIN(tests)
