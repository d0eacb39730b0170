/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparisons, choices, folds, integers, running sums, losses and writes in place in a world with
 * GPUs: what they compute there is what they compute on the CPU, with all gradients, on any mesh,
 * and the CPU sees none of it. SHERD_DEVICE is set for this program; the GPU is emulated.
 */
#include <sherd.h>

#include "modules.h"
#include "tensor/tensor.h"

enum { ROWS = 7, COLS = 6, NUMBERS = 3 /* result, and the gradients of a and b */ };

/* The function whose operators are to leave what they make in the GPU's memory alone; or NULL. */
static _Thread_local const char *looks;

static sherd_tensor *made(sherd_tensor *t)
{
    bool there = t->count == 0 || (t->storage->there && !t->storage->here);

    if (looks && !CHECK(there))
        fprintf(stderr, "%s: %s\n", looks, sherd_tensor_text(t));
    return t;
}

static sherd_tensor *as(sherd_tensor *t, sherd_tensor *like)
{
    return made(sherd_cast(made(t), like->dtype));
}

/* ---- functions of a and b, [7,6] ------------------------------------------------------------- */

static sherd_tensor *f_compare(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *less = made(sherd_lt(a, b)), *some = made(sherd_ge_scalar(a, 0.25));
    sherd_tensor *row = made(sherd_gt_scalar(sherd_narrow(b, 0, 0, 1), 0));

    some = sherd_logical_or(sherd_logical_not(some), sherd_logical_and(less, row));
    sherd_tensor *y = made(sherd_where(less, a, sherd_mul(a, b)));
    y = sherd_add(y, made(sherd_masked_fill(b, made(some), 0.5)));
    return sherd_add(y, made(sherd_where(row, sherd_narrow(a, 1, 0, 1), b)));
}

static sherd_tensor *f_extremes(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *y = sherd_add(made(sherd_maximum(a, b)), sherd_minimum(a, sherd_scale(b, 2)));

    return sherd_mul(y, made(sherd_clamp(b, -0.5, 0.75)));
}

static sherd_tensor *f_corner(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *mask = made(sherd_triu(made(sherd_le(a, a)), 1));

    return sherd_add(made(sherd_tril(a, -1)), sherd_masked_fill(made(sherd_triu(b, 0)), mask, 2));
}

static sherd_tensor *f_finite(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *odd = sherd_detach(sherd_div(b, sherd_tril(a, 0)));
    sherd_tensor *y = made(sherd_nan_to_num(odd, 1, 2, 3));

    y = sherd_add(y, as(sherd_isnan(odd), a));
    y = sherd_add(y, as(sherd_isinf(odd), a));
    return sherd_mul(a, sherd_add(y, as(sherd_isfinite(odd), b)));
}

/* The dim of rows, both, and two apart. */
static sherd_tensor *f_folds(sherd_tensor *a, sherd_tensor *b)
{
    const int rows[] = {0}, apart[] = {0, 2};
    sherd_tensor *pair[] = {a, b}, *pile = sherd_stack(pair, 2, 2); /* [7,6,2] */
    sherd_tensor *y =
        sherd_mul(made(sherd_max(a, rows, 1, false)), made(sherd_min(b, rows, 1, true)));

    y = sherd_add(y, made(sherd_max(pile, apart, 2, false)));
    y = sherd_add(y, made(sherd_min(b, NULL, 0, false)));
    return sherd_add(y, made(sherd_sum_over(pile, apart, 2, false)));
}

static sherd_tensor *f_products(sherd_tensor *a, sherd_tensor *b)
{
    const int cols[] = {1};

    return sherd_mul(made(sherd_prod(a, cols, 1, false)), made(sherd_var(b, cols, 1, 1, false)));
}

static sherd_tensor *f_moments(sherd_tensor *a, sherd_tensor *b)
{
    const int rows[] = {0}, cols[] = {1};
    sherd_tensor *y = sherd_mul(made(sherd_std(a, rows, 1, 1, false)),
                                made(sherd_norm(b, INFINITY, rows, 1, false)));

    return sherd_mul(y, made(sherd_norm(sherd_norm(b, 3, cols, 1, false), 2, NULL, 0, false)));
}

static sherd_tensor *f_log_sums(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_mul(
        a, sherd_mul(made(sherd_logsumexp(a, 1, true)), made(sherd_logsumexp(b, 1, true))));
}

static sherd_tensor *f_where(sherd_tensor *a, sherd_tensor *b)
{
    const int rows[] = {0}, cols[] = {1};
    sherd_tensor *y = sherd_mul(a, as(sherd_argmax(b, rows, 1, false), a));

    y = sherd_add(y, as(sherd_argmin(a, cols, 1, true), a));
    return sherd_add(y, sherd_cast(sherd_argmax(sherd_abs(b), NULL, 0, false), b->dtype));
}

static sherd_tensor *f_truths(sherd_tensor *a, sherd_tensor *b)
{
    const int rows[] = {0}, cols[] = {1};
    sherd_tensor *less = made(sherd_lt(a, b));
    sherd_tensor *y = sherd_mul(a, as(sherd_any(less, cols, 1, true), a));

    return sherd_add(y, as(sherd_all(less, rows, 1, false), a));
}

static sherd_tensor *f_integers(sherd_tensor *a, sherd_tensor *b)
{
    const int cols[] = {1};
    sherd_tensor *i = made(sherd_cast(sherd_scale(a, 50), SHERD_I32));
    sherd_tensor *j = made(sherd_cast(sherd_scale(b, 9), SHERD_I32));
    sherd_tensor *sum = made(sherd_add(sherd_mul(i, j), made(sherd_square(j))));

    sum = sherd_maximum(sherd_remainder_scalar(sum, 17), sherd_sub(i, made(sherd_neg(j))));
    sum = sherd_clamp(sherd_add_scalar(sum, 3), -20, 60);
    sherd_tensor *y = sherd_mul(a, as(sum, a)), *small = made(sherd_cast(sherd_abs(j), SHERD_U8));
    y = sherd_add(y, as(sherd_sum_over(sherd_add(small, small), cols, 1, true), a));
    return sherd_add(y, as(sherd_prod(sherd_cast(j, SHERD_I64), cols, 1, true), a));
}

static sherd_tensor *f_counts(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *index = made(sherd_cast(sherd_scale(sherd_abs(b), 4), SHERD_I32));
    sherd_tensor *hot = made(sherd_one_hot(sherd_select(index, 1, 0), COLS, a->dtype));

    return sherd_mul(sherd_add(a, hot), as(sherd_bincount(index, COLS), a));
}

static sherd_tensor *f_running(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *whole = made(sherd_cast(sherd_scale(b, 9), SHERD_I64));

    return sherd_mul(made(sherd_cumsum(a, 1)),
                     sherd_add(made(sherd_cumsum(b, 0)), as(sherd_cumsum(whole, 1), b)));
}

/* Each of them along rows and columns, with its gradient; extremes of integers too. */
static sherd_tensor *f_lines(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *whole = made(sherd_cast(sherd_scale(b, 9), SHERD_I64)), *at, *where;
    sherd_tensor *y = sherd_mul(made(sherd_cumprod(a, 1)), made(sherd_cumprod(b, 0)));

    y = sherd_add(y, made(sherd_recurrence(a, b, 1, false)));
    y = sherd_add(y, made(sherd_recurrence(b, a, 0, true)));
    y = sherd_add(y, sherd_mul(made(sherd_logcumsumexp(a, 0)), made(sherd_logcumsumexp(b, 1))));
    sherd_tensor *most = made(sherd_cummax(a, 0, &at)), *least = made(sherd_cummin(b, 1, &where));
    y = sherd_add(y, sherd_add(sherd_mul(most, as(at, a)), sherd_mul(least, as(where, a))));
    return sherd_add(y, as(made(sherd_cummax(whole, 1, NULL)), a));
}

/* Diagonals have operators within, which no handler replaces: the CPU does it by other ones. */
static sherd_tensor *f_diagonals(sherd_tensor *a, sherd_tensor *b)
{
    enum { N = COLS - 1 };
    sherd_tensor *ones = sherd_eye(a->world, a->dtype, N, N);
    sherd_tensor *part = sherd_narrow(sherd_narrow(a, 0, 0, N), 1, 1, N);
    sherd_tensor *line = looks ? made(sherd_diagonal(a, 1, 0, 1))
                               : sherd_sum_over(sherd_mul(part, ones), (int[]){1}, 1, false);
    sherd_tensor *square =
        looks ? made(sherd_diag_embed(line, 0, 0, 1)) : sherd_mul(ones, sherd_unsqueeze(line, 1));

    return sherd_mul(sherd_add(square, sherd_narrow(sherd_narrow(b, 0, 1, N), 1, 0, N)), part);
}

static sherd_tensor *f_losses(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *half = sherd_add_scalar(sherd_scale(sherd_detach(b), 0.2), 0.5);
    sherd_tensor *y = made(sherd_mse_loss(a, b, SHERD_LOSS_MEAN));

    y = sherd_add(y, made(sherd_l1_loss(a, b, SHERD_LOSS_SUM)));
    y = sherd_add(y, made(sherd_huber_loss(a, b, 0.5, SHERD_LOSS_NONE)));
    y = sherd_add(y, made(sherd_smooth_l1_loss(a, b, 0.3, SHERD_LOSS_MEAN)));
    y = sherd_add(y, made(sherd_bce_with_logits(a, half, NULL, half, SHERD_LOSS_MEAN)));
    return sherd_add(y, made(sherd_kl_div(a, half, false, SHERD_LOSS_SUM)));
}

static sherd_tensor *f_classes(sherd_tensor *a, sherd_tensor *b)
{
    const int64_t rows = ROWS, cols = COLS;
    const int32_t target[ROWS] = {1, 5, -100, 0, 2, 3, 4};
    const float heavy[COLS] = {1, 0, 2, 0.5, 3, 1.5};
    sherd_tensor *t = sherd_mark_equal(sherd_from_data(a->world, SHERD_I32, &rows, 1, target));
    sherd_tensor *weight = sherd_mark_equal(sherd_from_data(a->world, SHERD_F32, &cols, 1, heavy));
    const sherd_nll_options o = {.weight = sherd_cast(weight, a->dtype)};
    const sherd_nll_options each = {.reduction = SHERD_LOSS_NONE};

    return sherd_mul(made(sherd_nll_loss_with(a, t, &o)), made(sherd_nll_loss_with(b, t, &each)));
}

static sherd_tensor *f_in_place(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *y = sherd_detach(sherd_scale(a, 3)), *x = sherd_detach(sherd_mul(a, b));

    made(sherd_add_to(y, x));
    made(sherd_mul_by(sherd_transpose(y, 0, 1), sherd_transpose(x, 0, 1)));
    made(sherd_copy_from(sherd_narrow(y, 1, 0, 2), sherd_narrow(x, 1, 1, 2)));
    made(sherd_fill(sherd_narrow(y, 1, 3, 1), 0.25));
    made(sherd_copy_from(sherd_narrow(y, 0, 1, 5), sherd_narrow(y, 0, 0, 5)));
    return sherd_mul(sherd_mul(a, y), b);
}

static const struct {
    const char *name;
    sherd_tensor *(*f)(sherd_tensor *a, sherd_tensor *b);
} functions[] = {
    {"compare", f_compare},   {"extremes", f_extremes},   {"corner", f_corner},
    {"finite", f_finite},     {"folds", f_folds},         {"products", f_products},
    {"moments", f_moments},   {"log sums", f_log_sums},   {"where", f_where},
    {"truths", f_truths},     {"integers", f_integers},   {"counts", f_counts},
    {"running", f_running},   {"losses", f_losses},       {"classes", f_classes},
    {"in place", f_in_place}, {"diagonals", f_diagonals}, {"lines", f_lines},
};

/* ---- on both --------------------------------------------------------------------------------- */

static bool on_the_cpu(sherd_call *call, void *context)
{
    (void)context;
    return sherd_call_original(call);
}

static void put_handlers(sherd_world *world, bool there)
{
    const sherd_op_handler handler = {.run = on_the_cpu};

    for (int i = 0; sherd_op_at(i); i++)
        if (sherd_op_at(i)->on_device)
            CHECK_OK(sherd_op_override(world, sherd_op_at(i)->name, SHERD_BELOW_TAPE,
                                       there ? &handler : NULL));
}

static void run(sherd_world *world, int f, const sherd_mesh *mesh, const char *placements,
                sherd_dtype dtype, double out[NUMBERS][MOST], int64_t count[NUMBERS])
{
    const int64_t shape[] = {ROWS, COLS};

    sherd_scope_begin(world);
    sherd_tensor *in[] = {wave(world, dtype, 2, shape, 3, 1, 0.1),
                          wave(world, dtype, 2, shape, 5, 1, 0.2)};
    for (int i = 0; i < 2; i++)
        in[i] = sherd_require_grad(sherd_detach(spread(in[i], mesh, placements)), true);
    sherd_tensor *y = functions[f].f(in[0], in[1]);
    made(y);
    count[0] = whole(y, out[0]);
    sherd_backward(sherd_sum(sherd_mul(y, y)));
    for (int i = 0; i < 2; i++) {
        if (sherd_grad(in[i]))
            made(sherd_grad(in[i]));
        count[i + 1] = whole(sherd_grad(in[i]), out[i + 1]);
    }
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void check_both(sherd_world *world, int f, const sherd_mesh *mesh, const char *placements,
                       sherd_dtype dtype)
{
    static _Thread_local double there[NUMBERS][MOST], here[NUMBERS][MOST];
    int64_t count[NUMBERS], again[NUMBERS];

    looks = functions[f].name;
    run(world, f, mesh, placements, dtype, there, count);
    looks = NULL;
    put_handlers(world, true);
    run(world, f, mesh, placements, dtype, here, again);
    put_handlers(world, false);
    for (int i = 0; i < NUMBERS; i++) {
        double worst = 0;
        CHECK_EQ(count[i], again[i]);
        for (int64_t k = 0; k < count[i]; k++)
            worst = fmax(worst, fabs(there[i][k] - here[i][k]) / (1 + fabs(here[i][k])));
        if (!CHECK(worst <= (dtype == SHERD_F64 ? 1e-12 : 1e-5)))
            fprintf(stderr, "%s %s %s, %d: %g\n", functions[f].name, placements,
                    sherd_dtype_name(dtype), i, worst);
    }
}

/* By the GPU's kernels and by the CPU's, which a handler below the tape brings back. What is not
 * sharded on one and two ranks only. */
static void same_on_both(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(1)"};
    int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    int step = ranks > 4 ? check_stride(3) : 1; /* functions in the short form, of many ranks */

    for (int f = 0; f < LEN(functions); f += step)
        for (int p = ranks > 2; p < (ranks > 1 ? LEN(placements) : 1); p++)
            check_both(world, f, mesh, placements[p], p == 1 ? SHERD_F64 : SHERD_F32);
}

/* Sums of 16 bits over dims that lie apart are rounded once, and stay there. */
static void sums_apart_are_rounded_once(sherd_world *world)
{
    enum { N = 40 };
    const int64_t shape[] = {N, 2, N};
    const int apart[] = {0, 2};
    double have[MOST];

    sherd_scope_begin(world);
    looks = "sums apart";
    sherd_tensor *x =
        sherd_cast(sherd_constant(world, SHERD_F32, shape, 3, 1 + 0x1p-7), SHERD_BF16);
    sherd_tensor *sum = made(sherd_sum_over(x, apart, 2, false));
    looks = NULL;
    CHECK_EQ(whole(sum, have), 2);
    CHECK_EQ(have[0], 1616); /* 1612.5, of which bf16 has 8 bits */
    CHECK_EQ(have[1], 1616);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {"same_on_both", same_on_both, {1, 2, 3, 8}},
    {"sums_apart_are_rounded_once", sums_apart_are_rounded_once, {1, 2}},
};

CHECK_MAIN(tests)
