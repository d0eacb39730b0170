/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Autocast: what each operator computes in, on any layout, with results and gradients against f64
 * within a few roundings; that gradients of f32 are f32; that copies are made once and go when they
 * must; scopes; no memory.
 */
#include "ops_halves.h"
#include "tensors.h"

#include "kernels/half.h"
#include "sherd/autocast.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

/* ---- rules ---------------------------------------------------------------------------------- */

static bool is_product(const op_case *c)
{
    return strncmp(c->name, "matmul", 6) == 0 || strncmp(c->name, "linear", 6) == 0 ||
           strncmp(c->name, "attention", 9) == 0;
}

/* Leaves are f32, or of the dtype; y and gradients go to `out`. */
static void run_cast(outcome *out, const op_case *c, sherd_dtype low, bool narrow,
                     sherd_tensor *const *leaf)
{
    sherd_world *world = leaf[0]->world;
    sherd_tensor *in[MOST_IN], *own[MOST_IN];

    for (int i = 0; i < c->operands; i++)
        own[i] = in[i] =
            c->index >> i & 1
                ? leaf[i]
                : sherd_require_grad(
                      sherd_cast(sherd_detach(leaf[i]), narrow && i == 0 ? low : SHERD_F32), true);
    sherd_dtype before = sherd_set_autocast(world, low);
    CHECK_EQ(before, SHERD_DTYPE_NONE);
    sherd_tensor *y = c->run(in);
    sherd_tensor *whole = sherd_full(sherd_cast(y, SHERD_F64));
    out->count = sherd_tensor_count(whole);
    copy_values(out->y, whole);
    double w[MOST_ELEMENTS];
    for (int64_t i = 0; i < out->count && i < MOST_ELEMENTS; i++)
        w[i] = value_at(9, i);
    sherd_tensor *weights = sherd_mark_equal(
        sherd_from_data(world, SHERD_F64, sherd_tensor_shape(whole), sherd_tensor_ndim(whole), w));
    /* Backward runs under it too, and must not mind. */
    sherd_backward(sherd_sum(sherd_mul(whole, weights)));
    CHECK_EQ(sherd_set_autocast(world, before), low);
    if (!narrow)
        CHECK_EQ(sherd_tensor_dtype(y), is_product(c) ? low : SHERD_F32);
    for (int i = 0; i < c->operands; i++) {
        sherd_tensor *g = c->index >> i & 1 ? NULL : sherd_grad(own[i]);
        if (!g)
            continue;
        CHECK_EQ(sherd_tensor_dtype(g), sherd_tensor_dtype(own[i]));
        copy_values(out->grad[i], sherd_full(sherd_cast(g, SHERD_F64)));
    }
}

static void try_case(sherd_world *world, const sherd_mesh *mesh, const op_case *c, int64_t number,
                     int half)
{
    static _Thread_local outcome got, exact;
    sherd_tensor *leaf[MOST_IN];

    for (int narrow = 0; narrow < 2; narrow++) {
        sherd_scope_begin(world);
        place_rounded(mesh, c, number, half, leaf);
        memset(&got, 0, sizeof got);
        memset(&exact, 0, sizeof exact);
        run_in(&exact, c, SHERD_F64, leaf);
        run_cast(&got, c, halves[half], narrow, leaf);
        compare_halves(c, &got, &exact, half, leaf);
        sherd_scope_end(world);
    }
}

static void each_operator_has_its_precision(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < LEN(cases); i++) {
        int64_t step, all = combinations(mesh, &cases[i], 8 / check_stride(2), &step);
        for (int64_t number = 0; number < all; number += step)
            for (int half = 0; half < LEN(halves); half++)
                try_case(world, mesh, &cases[i], number, half);
    }
    if (!CHECK_OK(sherd_world_check(world)))
        say_error(world);
}

/* What operators of the library say of themselves: a change here is a change of results. */
static void products_are_low_and_what_adds_up_is_full(sherd_world *world)
{
    static const char *const low[] = {"sherd_matmul",          "sherd_linear",
                                      "sherd_einsum",          "sherd_conv",
                                      "sherd_conv_transposed", "sherd_attention",
                                      "sherd_attention_with",  "sherd_attention_general",
                                      "sherd_attention_pieces"};
    static const char *const full[] = {"sherd_softmax",
                                       "sherd_log_softmax",
                                       "sherd_logsumexp",
                                       "sherd_layer_norm",
                                       "sherd_rms_norm",
                                       "sherd_group_norm",
                                       "sherd_batch_norm",
                                       "sherd_instance_norm",
                                       "sherd_sum",
                                       "sherd_mean",
                                       "sherd_sum_over",
                                       "sherd_mean_over",
                                       "sherd_var",
                                       "sherd_std",
                                       "sherd_norm",
                                       "sherd_prod",
                                       "sherd_cumsum",
                                       "sherd_mse_loss",
                                       "sherd_cross_entropy",
                                       "sherd_l1_loss",
                                       "sherd_huber_loss",
                                       "sherd_kl_div",
                                       "sherd_nll_loss",
                                       "sherd_bce_with_logits",
                                       "sherd_smooth_l1_loss",
                                       "sherd_add_layer_norm",
                                       "sherd_add_rms_norm"};

    for (int i = 0; i < LEN(low); i++) {
        const sherd_op *op = sherd_op_find(world, low[i]);
        CHECK(op && op->autocast == SHERD_AUTOCAST_LOW);
    }
    for (int i = 0; i < LEN(full); i++) {
        const sherd_op *op = sherd_op_find(world, full[i]);
        if (!CHECK(op && op->autocast == SHERD_AUTOCAST_FULL))
            fprintf(stderr, "%s\n", full[i]);
    }
}

static sherd_tensor *plain(sherd_world *world, sherd_dtype dtype, double value)
{
    return sherd_constant(world, dtype, (int64_t[]){4, 4}, 2, value);
}

/* f64 stays f64, integers and bool stay what they are. */
static void other_dtypes_are_left_alone(sherd_world *world)
{
    sherd_tensor *wide = plain(world, SHERD_F64, 2), *whole = plain(world, SHERD_I64, 3);

    sherd_set_autocast(world, SHERD_BF16);
    CHECK_EQ(sherd_tensor_dtype(sherd_matmul(wide, wide)), SHERD_F64);
    CHECK_EQ(sherd_tensor_dtype(sherd_sum_over(whole, NULL, 0, false)), SHERD_I64);
    CHECK_EQ(sherd_tensor_dtype(sherd_relu(plain(world, SHERD_F16, 1))), SHERD_F16);
    CHECK_EQ(
        sherd_tensor_dtype(sherd_matmul(plain(world, SHERD_F16, 1), plain(world, SHERD_F32, 1))),
        SHERD_BF16);
    CHECK_OK(sherd_world_check(world));
    /* What f64 meets is not brought to it. */
    CHECK(sherd_tensor_failed(sherd_add(wide, plain(world, SHERD_F32, 1))));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_set_autocast(world, SHERD_DTYPE_NONE);
}

/* ---- scopes --------------------------------------------------------------------------------- */

static void scopes_lie_in_each_other(sherd_world *world)
{
    sherd_tensor *a = plain(world, SHERD_F32, 1);

    CHECK_EQ(sherd_autocast(world), SHERD_DTYPE_NONE);
    CHECK_EQ(sherd_tensor_dtype(sherd_matmul(a, a)), SHERD_F32);
    sherd_dtype outer = sherd_set_autocast(world, SHERD_BF16);
    CHECK_EQ(sherd_tensor_dtype(sherd_matmul(a, a)), SHERD_BF16);
    sherd_dtype inner = sherd_set_autocast(world, SHERD_F16);
    CHECK_EQ(inner, SHERD_BF16);
    CHECK_EQ(sherd_tensor_dtype(sherd_matmul(a, a)), SHERD_F16);
    sherd_dtype innermost = sherd_set_autocast(world, SHERD_DTYPE_NONE);
    CHECK_EQ(sherd_tensor_dtype(sherd_matmul(a, a)), SHERD_F32);
    CHECK(sherd_tensor_failed(sherd_add(a, sherd_cast(a, SHERD_BF16))));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_set_autocast(world, innermost);
    CHECK_EQ(sherd_autocast(world), SHERD_F16);
    sherd_set_autocast(world, inner);
    CHECK_EQ(sherd_tensor_dtype(sherd_matmul(a, a)), SHERD_BF16);
    sherd_set_autocast(world, outer);
    CHECK_EQ(sherd_tensor_dtype(sherd_matmul(a, a)), SHERD_F32);
    CHECK_OK(sherd_world_check(world));
}

/* One rank computes in another dtype: an error on all, no other number on one. */
static void ranks_that_set_another_dtype_differ(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *rows = layout_of(mesh, 2, (int64_t[]){4, 4}, "S(0)", NULL);
    sherd_tensor *a = sherd_constant_on(rows, SHERD_F32, 1);

    sherd_set_autocast(world, sherd_world_rank(world) ? SHERD_BF16 : SHERD_DTYPE_NONE);
    sherd_tensor *y = sherd_matmul(a, a);
    (void)y;
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    sherd_set_autocast(world, SHERD_DTYPE_NONE);
}

/* ---- copies --------------------------------------------------------------------------------- */

static int64_t casts(const sherd_world *world)
{
    sherd_op_time time;

    for (int i = 0; (time = sherd_op_time_at(world, i)).name; i++)
        if (strcmp(time.name, "sherd_cast") == 0)
            return time.calls;
    return 0;
}

static void a_copy_is_made_once_until_it_is_written(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    const sherd_layout *whole = layout_of(mesh, 2, (int64_t[]){64, 64}, "R", NULL);
    sherd_tensor *w = sherd_require_grad(sherd_constant_on(whole, SHERD_F32, 1), true);
    sherd_tensor *x = sherd_constant_on(whole, SHERD_BF16, 2);
    int64_t bytes = sherd_world_memory(world).live_bytes;

    sherd_set_autocast(world, SHERD_BF16);
    sherd_op_times(world, true);
    for (int i = 0; i < 3; i++) {
        sherd_scope_begin(world);
        sherd_tensor *y = sherd_add(sherd_linear(x, w, NULL), sherd_linear(x, w, NULL));
        CHECK_EQ(casts(world), 1);
        CHECK_EQ(sherd_saved_bytes(world), 64 * 64 * 2); /* x; the copy lives anyway */
        sherd_backward(sherd_sum(y));
        sherd_scope_end(world);
        sherd_op_times(world, true);
        sherd_tensor *g = sherd_grad(w);
        const float *slope = sherd_tensor_read(g);
        CHECK(slope && slope[5] == (float)(2 * 64 * 2));
        sherd_clear_grad(w);
        CHECK_EQ(sherd_world_memory(world).live_bytes, bytes + 64 * 64 * 2);
        float *to = sherd_tensor_write(w);
        CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
        to[0] = 3;
    }
    sherd_scope_begin(world);
    const uint16_t *y = sherd_tensor_read(sherd_linear(x, w, NULL));
    CHECK(y && sherd__from_bf16(y[0]) == 2 * (63 + 3) && sherd__from_bf16(y[1]) == 2 * 64);
    sherd_scope_end(world);
    sherd_set_autocast(world, SHERD_DTYPE_NONE);
    CHECK_OK(sherd_world_check(world));
}

/* Of another dtype, or of part of a storage, it is another one; and it goes with what it is of. */
static void a_copy_is_of_one_dtype_and_of_the_whole(sherd_world *world)
{
    int64_t bytes = sherd_world_memory(world).live_bytes;

    sherd_scope_begin(world);
    sherd_tensor *w = plain(world, SHERD_F32, 1), *x = plain(world, SHERD_F32, 2);
    sherd_tensor *part = sherd_narrow(w, 0, 1, 2), *turned = sherd_transpose(w, 0, 1);
    sherd_set_autocast(world, SHERD_BF16);
    sherd_tensor *y = sherd_matmul(w, x);
    CHECK_EQ(sherd_tensor_dtype(y), SHERD_BF16);
    CHECK_NEAR(sherd_item(sherd_sum(sherd_matmul(part, x))), 2 * 4 * 8, 0);
    CHECK_NEAR(sherd_item(sherd_sum(sherd_matmul(turned, x))), 4 * 4 * 8, 0);
    sherd_tensor *tall = sherd_constant(world, SHERD_F32, (int64_t[]){8, 4}, 2, 2);
    sherd_tensor *flat = sherd_view(w, (int64_t[]){2, 8}, 2);
    CHECK_NEAR(sherd_item(sherd_sum(sherd_matmul(flat, tall))), 2 * 4 * 16, 0);
    sherd_set_autocast(world, SHERD_F16);
    CHECK_EQ(sherd_tensor_dtype(sherd_matmul(w, x)), SHERD_F16);
    sherd_set_autocast(world, SHERD_DTYPE_NONE);
    sherd_scope_end(world);
    CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
    CHECK_OK(sherd_world_check(world));
}

/* What was saved for backward is the copy: writing the parameter in between does not change it. */
static void backward_uses_the_copy_of_its_forward(sherd_world *world)
{
    sherd_tensor *w = sherd_require_grad(plain(world, SHERD_F32, 3), true);
    sherd_tensor *x = sherd_require_grad(plain(world, SHERD_F32, 1), true);

    sherd_set_autocast(world, SHERD_BF16);
    sherd_tensor *loss = sherd_sum(sherd_linear(x, w, NULL));
    sherd_set_autocast(world, SHERD_DTYPE_NONE);
    float *to = sherd_tensor_write(w);
    for (int i = 0; i < 16; i++)
        to[i] = 100;
    sherd_backward(loss);
    const float *g = sherd_tensor_read(sherd_grad(x));
    CHECK(g && g[3] == 12);
    CHECK_OK(sherd_world_check(world));
}

/* Uses of one parameter add up in f32: 1 and 256 ones of 2^-9 are 1.5, in bf16 they would stay
 * 1. */
static void uses_add_up_in_f32(sherd_world *world)
{
    sherd_tensor *w = sherd_require_grad(plain(world, SHERD_F32, 1), true);
    sherd_tensor *one = sherd_constant(world, SHERD_BF16, (int64_t[]){1, 4}, 2, 1);
    sherd_tensor *little = sherd_constant(world, SHERD_BF16, (int64_t[]){1, 4}, 2, 1.0 / 512);

    sherd_set_autocast(world, SHERD_BF16);
    sherd_tensor *loss = sherd_sum(sherd_linear(one, w, NULL));
    for (int i = 0; i < 256; i++)
        loss = sherd_add(loss, sherd_sum(sherd_linear(little, w, NULL)));
    sherd_set_autocast(world, SHERD_DTYPE_NONE);
    sherd_backward(loss);
    const float *g = sherd_tensor_read(sherd_grad(w));
    CHECK(g && g[0] == 1.5f);
    CHECK_OK(sherd_world_check(world));
}

/* ---- no memory ------------------------------------------------------------------------------ */

static void one_step(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;
    const sherd_layout *rows = NULL, *whole = NULL;

    sherd_scope_begin(world);
    sherd_status status = sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL);
    if (!status)
        status = sherd_layout_parse_placements(&rows, mesh, 2, (int64_t[]){6, 4}, "S(0)", NULL);
    if (!status)
        status = sherd_layout_parse_placements(&whole, mesh, 2, (int64_t[]){4, 4}, "R", NULL);
    if (status) {
        sherd_world_fail(world, status, "no layouts");
        sherd_scope_end(world);
        return;
    }
    sherd_tensor *x = sherd_require_grad(sherd_constant_on(rows, SHERD_F32, 1), true);
    sherd_tensor *w = sherd_require_grad(sherd_constant_on(whole, SHERD_F32, 2), true);
    sherd_dtype before = sherd_set_autocast(world, SHERD_BF16);
    sherd_tensor *y = sherd_add(x, sherd_linear(sherd_gelu(sherd_linear(x, w, NULL)), w, NULL));
    sherd_tensor *loss = sherd_mean(y);
    sherd_set_autocast(world, before);
    sherd_backward(loss);
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    for (int rank = 0; rank < sherd_world_ranks(world); rank++)
        fail_every_allocation(world, rank, one_step);
}

static const check_test tests[] = {
    {TEST(each_operator_has_its_precision), {1, 2, 3, 4}},
    {TEST(products_are_low_and_what_adds_up_is_full), {1}},
    {TEST(other_dtypes_are_left_alone), {1}},
    {TEST(scopes_lie_in_each_other), {1}},
    {TEST(ranks_that_set_another_dtype_differ), {2, 3}},
    {TEST(a_copy_is_made_once_until_it_is_written), {1, 2}},
    {TEST(a_copy_is_of_one_dtype_and_of_the_whole), {1}},
    {TEST(backward_uses_the_copy_of_its_forward), {1}},
    {TEST(uses_add_up_in_f32), {1}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2, 3}},
};
CHECK_MAIN(tests)
