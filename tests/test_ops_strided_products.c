/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of views: matrices that are stored turned are read in place, others are copied; results
 * and gradients are those of copies, in any layout. A handler below the tape sees no views.
 */
#include <math.h>

#include "fields.h"

#include "sherd/op.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

typedef enum way { PLAIN, LINEAR, BATCHED, BROADCAST, SUMMED, KINDS } way;

/* How a tensor of some shape is a view: of a turned one, of a part, or not at all. */
typedef struct view {
    enum { TURNED, PART, WHOLE } how;
    int p, q; /* the dims that are exchanged */
    int64_t length;
    int64_t stored[3];
} view;

static view draw_view(uint64_t *dice, int ndim, const int64_t *shape)
{
    view v = {.how = roll(dice, 5) < 3 ? TURNED
                     : roll(dice, 2)   ? PART
                                       : WHOLE,
              .p = ndim - 1,
              .q = ndim == 3 && roll(dice, 3) == 0 ? 0
                   : ndim > 1                      ? ndim - 2
                                                   : 0,
              .length = shape[ndim - 1]};

    memcpy(v.stored, shape, sizeof *shape * (size_t)ndim);
    if (v.how == TURNED) {
        v.stored[v.p] = shape[v.q];
        v.stored[v.q] = shape[v.p];
    } else if (v.how == PART)
        v.stored[v.p] += 2;
    return v;
}

static sherd_tensor *view_of(const view *v, sherd_tensor *leaf)
{
    return v->how == TURNED ? sherd_transpose(leaf, v->p, v->q)
           : v->how == PART ? sherd_narrow(leaf, v->p, 1, v->length)
                            : leaf;
}

static sherd_tensor *multiply(way kind, sherd_tensor *a, sherd_tensor *b, sherd_tensor *bias)
{
    switch (kind) {
    case LINEAR:
        return sherd_linear(a, b, bias);
    case SUMMED:
        return sherd_einsum("aki,akj->aij", (sherd_tensor *[]){a, b}, 2);
    default:
        return sherd_matmul(a, b);
    }
}

static double plain_apart(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *off = sherd_abs(sherd_sub(sherd_cast(a, SHERD_F64), sherd_cast(b, SHERD_F64)));
    double most = sherd_item(sherd_max(sherd_abs(sherd_cast(b, SHERD_F64)), NULL, 0, false));

    return sherd_item(sherd_max(off, NULL, 0, false)) / (most > 1 ? most : 1);
}

typedef struct operands {
    int ndim[3];
    int64_t shape[3][3];
} operands;

static operands draw_operands(uint64_t *dice, way kind)
{
    int64_t n = between(dice, 1, 3), i = between(dice, 1, 9), j = between(dice, 1, 9);
    int64_t k = between(dice, 1, roll(dice, 3) ? 9 : 40);

    switch (kind) {
    case PLAIN:
        return (operands){{2, 2, 1}, {{i, k}, {k, j}, {j}}};
    case LINEAR:
        return (operands){{2, 2, 1}, {{i, k}, {j, k}, {j}}};
    case BATCHED:
        return (operands){{3, 3, 1}, {{n, i, k}, {n, k, j}, {j}}};
    case BROADCAST:
        return (operands){{3, 3, 1}, {{n, i, k}, {1, k, j}, {j}}};
    default:
        return (operands){{3, 3, 1}, {{n, k, i}, {n, k, j}, {j}}};
    }
}

static void products_of_views_are_those_of_copies(sherd_world *world)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        uint64_t dice = seed;
        way kind = (way)(seed % KINDS);
        sherd_tensor *leaf[3], *plain[3], *in[3], *copy[3];
        sherd_scope_begin(world);
        const operands o = draw_operands(&dice, kind);
        const sherd_mesh *mesh = draw_mesh(world, (int)seed);
        for (int i = 0; i < 3; i++) {
            view v = draw_view(&dice, o.ndim[i], o.shape[i]);
            sherd_tensor *values = sherd_sin(numbers(world, &dice, o.ndim[i], v.stored));
            const sherd_layout *layout = draw_layout(&dice, mesh, o.ndim[i], v.stored);
            plain[i] = sherd_require_grad(sherd_clone(values), true);
            leaf[i] = sherd_require_grad(sherd_distribute(values, layout, -1), true);
            in[i] = view_of(&v, leaf[i]);
            copy[i] = sherd_clone(view_of(&v, plain[i]));
        }
        sherd_tensor *y = multiply(kind, in[0], in[1], in[2]);
        sherd_tensor *x = multiply(kind, copy[0], copy[1], copy[2]);
        CHECK(apart(sherd_detach(y), sherd_detach(x)) < 1e-14);
        sherd_backward(sherd_sum(sherd_mul(sherd_sin(y), y)));
        sherd_backward(sherd_sum(sherd_mul(sherd_sin(x), x)));
        for (int i = 0; i < (kind == LINEAR ? 3 : 2); i++)
            CHECK(apart(sherd_grad(leaf[i]), sherd_grad(plain[i])) < 1e-13);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* Of plain tensors too: a view and a copy of it give the same bits, where rows are long enough. */
static void plain_views_are_read_in_place(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};
    const int64_t stored[] = {4, 30, 20}, other[] = {4, 30, 5}, vector[] = {30};
    uint64_t dice = 3;

    for (int i = 0; i < LEN(dtypes); i++) {
        double limit = dtypes[i] == SHERD_F64 ? 1e-14 : dtypes[i] == SHERD_F32 ? 1e-6 : 1e-2;
        sherd_tensor *a = sherd_cast(numbers(world, &dice, 3, stored), dtypes[i]);
        sherd_tensor *b = sherd_cast(numbers(world, &dice, 3, other), dtypes[i]);
        sherd_tensor *v = sherd_cast(numbers(world, &dice, 1, vector), dtypes[i]);
        sherd_tensor *turned = sherd_transpose(a, 1, 2), *one = sherd_select(turned, 0, 2);
        CHECK(plain_apart(sherd_matmul(turned, b), sherd_matmul(sherd_clone(turned), b)) < limit);
        CHECK(plain_apart(sherd_matmul(one, v), sherd_matmul(sherd_clone(one), v)) < limit);
        CHECK(plain_apart(sherd_matmul(turned, v), sherd_matmul(sherd_clone(turned), v)) < limit);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Notes that its operands are row-major: they have the strides of their boxes. */
static bool adds_up(sherd_call *call, void *context)
{
    const double *a = call->from[0], *b = call->from[1];
    double *y = call->to[0];
    int64_t m = sherd_tensor_size(call->in[0], 0), k = sherd_tensor_size(call->in[0], 1);

    *(int *)context += 1;
    for (int64_t i = 0; i < m; i++) {
        y[i] = 0;
        for (int64_t t = 0; t < k; t++)
            y[i] += a[i * k + t] * b[t];
    }
    return true;
}

static void a_handler_gets_no_views(sherd_world *world)
{
    const int64_t stored[] = {6, 4}, column[] = {6, 1};
    uint64_t dice = 9;
    int runs = 0;
    const sherd_op_handler handler = {.run = adds_up, .context = &runs};
    sherd_tensor *a = numbers(world, &dice, 2, stored), *b = numbers(world, &dice, 2, column);
    sherd_tensor *expected = sherd_matmul(sherd_transpose(a, 0, 1), b);

    CHECK_OK(sherd_op_override(world, "sherd_matmul", SHERD_BELOW_TAPE, &handler));
    sherd_tensor *got = sherd_matmul(sherd_transpose(a, 0, 1), b);
    CHECK_OK(sherd_op_override(world, "sherd_matmul", SHERD_BELOW_TAPE, NULL));
    CHECK_EQ(runs, 1);
    CHECK(plain_apart(got, expected) < 1e-14);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(products_of_views_are_those_of_copies), {1, 2, 3, 4, 8}},
    {TEST(plain_views_are_read_in_place), {1}},
    {TEST(a_handler_gets_no_views), {1, 2}},
};

CHECK_MAIN(tests)
