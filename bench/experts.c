/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of a mixture of experts, forward and backward: rows of tokens go to their experts, through
 * silu(w1 x) * (w3 x) and w2, and come back. Tokens are sharded; so are the experts ("ep"), or the
 * hidden features ("tp", where tokens are not). 8 large experts of which a token goes through 2,
 * and 64 small ones of which it goes through 8. Ranks are processes; kinds take turns. Medians of
 * the time until the last rank is done, and three numbers for bench/compare_experts.py.
 *
 *     bench/experts [RANKS [ROUNDS]]      2 7
 */
#include "kinds.h"

enum { WEIGHTS = 3 };

typedef struct kind {
    const char *name;
    sherd_dtype dtype;
    bool by_feature;
    int64_t tokens, width, hidden, experts, k;
} kind;

#define LARGE 2048, 512, 1024, 8, 2
#define SMALL 2048, 512, 256, 64, 8

static const kind kinds[] = {
    {"large ep f32", SHERD_F32, false, LARGE},   {"large tp f32", SHERD_F32, true, LARGE},
    {"large ep bf16", SHERD_BF16, false, LARGE}, {"large tp bf16", SHERD_BF16, true, LARGE},
    {"small ep f32", SHERD_F32, false, SMALL},   {"small tp f32", SHERD_F32, true, SMALL},
    {"small ep bf16", SHERD_BF16, false, SMALL}, {"small tp bf16", SHERD_BF16, true, SMALL},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct operands {
    sherd_tensor *x, *scores, *choice, *w[WEIGHTS];
} operands;

/* scale sin(i^2 / 1000) of the number i of each element. */
static sherd_tensor *wave(const sherd_mesh *mesh, const kind *k, int ndim, const int64_t *shape,
                          const char *placements, double scale)
{
    const sherd_layout *line = NULL, *layout = NULL;
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    if (sherd_layout_parse_placements(&line, mesh, 1, &n, "S(0)", NULL) ||
        sherd_layout_parse_placements(&layout, mesh, ndim, shape, placements, NULL))
        return NULL;
    sherd_tensor *i = sherd_arange_on(line, SHERD_F64, 0, 1);
    i = sherd_scale(sherd_sin(sherd_scale(sherd_square(i), 1e-3)), scale);
    i = sherd_redistribute(sherd_view(sherd_cast(i, k->dtype), shape, ndim), layout, NULL);
    return sherd_require_grad(sherd_detach(i), true);
}

/* Token t goes to experts (7 t + 3 j + t / 5) mod experts. */
static sherd_tensor *choices(sherd_world *world, const sherd_mesh *mesh, const kind *k)
{
    const int64_t tokens[] = {k->tokens, 1}, each[] = {1, k->k};
    const sherd_layout *layout = NULL;
    const int64_t shape[] = {k->tokens, k->k};

    if (sherd_layout_parse_placements(&layout, mesh, 2, shape, k->by_feature ? "R" : "S(0)", NULL))
        return NULL;
    sherd_tensor *t =
        sherd_view(sherd_arange(world, SHERD_F64, 0, (double)k->tokens, 1), tokens, 2);
    sherd_tensor *j = sherd_view(sherd_arange(world, SHERD_F64, 0, (double)k->k, 1), each, 2);
    sherd_tensor *at = sherd_add(sherd_add(sherd_scale(t, 7), sherd_scale(j, 3)),
                                 sherd_floor(sherd_scale(sherd_add_scalar(t, 0.5), 0.2)));
    double n = (double)k->experts;
    at = sherd_sub(at, sherd_scale(sherd_floor(sherd_scale(sherd_add_scalar(at, 0.5), 1 / n)), n));
    return sherd_distribute(sherd_mark_equal(sherd_cast(at, SHERD_I32)), layout, -1);
}

static operands make(sherd_world *world, const sherd_mesh *mesh, const kind *k)
{
    const int64_t tokens[] = {k->tokens, k->width}, chosen[] = {k->tokens, k->k},
                  in[] = {k->experts, k->hidden, k->width},
                  out[] = {k->experts, k->width, k->hidden};
    const char *of_tokens = k->by_feature ? "R" : "S(0)";

    return (operands){.x = wave(mesh, k, 2, tokens, of_tokens, 1),
                      .scores = wave(mesh, k, 2, chosen, of_tokens, 1),
                      .choice = choices(world, mesh, k),
                      .w = {wave(mesh, k, 3, in, k->by_feature ? "S(1)" : "S(0)", 0.05),
                            wave(mesh, k, 3, out, k->by_feature ? "S(2)" : "S(0)", 0.05),
                            wave(mesh, k, 3, in, k->by_feature ? "S(1)" : "S(0)", 0.04)}};
}

static sherd_tensor *step(const operands *o)
{
    sherd_groups to;

    sherd_group_rows(&to, o->choice, o->w[0]);
    sherd_tensor *rows = sherd_dispatch(o->x, &to);
    sherd_tensor *gate = sherd_silu(sherd_grouped_linear(rows, o->w[0], NULL, to.ends, to.group));
    sherd_tensor *up = sherd_grouped_linear(rows, o->w[2], NULL, to.ends, to.group);
    rows = sherd_grouped_linear(sherd_mul(gate, up), o->w[1], NULL, to.ends, to.group);
    sherd_tensor *y = sherd_combine(rows, &to, o->scores);
    y = sherd_redistribute(y, sherd_tensor_layout(o->x), NULL);
    sherd_tensor *dy = sherd_constant_on(sherd_tensor_layout(o->x), sherd_tensor_dtype(o->x), 1);
    sherd_backward_with(&y, &dy, 1, NULL);
    return y;
}

static bool measure(sherd_world *world, const sherd_mesh *mesh, int number, double *time)
{
    const kind *k = &kinds[number];

    sherd_scope_begin(world);
    operands o = make(world, mesh, k);
    for (int i = 0; i < WEIGHTS; i++)
        sherd_tensor_read(o.w[i]);
    bool good = sherd_world_check(world) == SHERD_OK;
    double start = seconds();
    step(&o);
    for (int i = 0; i < WEIGHTS; i++)
        sherd_tensor_read(sherd_grad(o.w[i]));
    good = sherd_world_check(world) == SHERD_OK && good;
    *time = seconds() - start;
    sherd_scope_end(world);
    return good;
}

static double sum_of(sherd_tensor *t)
{
    const double *sum =
        sherd_tensor_read(sherd_full(sherd_sum(sherd_square(sherd_cast(t, SHERD_F64)))));

    return sum ? sqrt(*sum) : (double)NAN;
}

/* Lengths of the result, and of the gradients of x and w2. */
static void look(sherd_world *world, const sherd_mesh *mesh, int of, double number[3])
{
    const kind *k = &kinds[of];

    sherd_scope_begin(world);
    operands o = make(world, mesh, k);
    number[0] = sum_of(sherd_detach(step(&o)));
    number[1] = sum_of(sherd_grad(o.x));
    number[2] = sum_of(sherd_grad(o.w[1]));
    sherd_scope_end(world);
}

static const char *name_of(int number)
{
    return kinds[number].name;
}

int main(int argc, char **argv)
{
    return run_kinds(argc, argv, &(bench_kinds){KINDS, name_of, measure, look});
}
