/* SPDX-License-Identifier: Apache-2.0 */
/* Rows (operator_rows.h) of what normalises channels, of what reads around, and of points. */
#ifndef SHERD_TESTS_OPERATOR_ROWS_STENCIL_H
#define SHERD_TESTS_OPERATOR_ROWS_STENCIL_H

#include "operator_rows_layers.h"

#include "sherd/ops_points.h"
#include "sherd/ops_stencil.h"

/* ---- norms of channels ----------------------------------------------------------------------- */

RUN(run_group_norm, sherd_group_norm(in[0], n[0], operand(a, 1), operand(a, 2), 0.01))
RUN(run_batch_norm,
    sherd_batch_norm(in[0], &(sherd_batch_norm_options){
                                .weight = operand(a, 1), .bias = operand(a, 2), .eps = 0.01}))
RUN(run_instance_norm,
    sherd_instance_norm(in[0], &(sherd_batch_norm_options){
                                   .weight = operand(a, 1), .bias = operand(a, 2), .eps = 0.01}))

/* A channel, or a group of them, has more than one element. number[0]: groups. */
static inline bool draw_channels(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];
    int64_t inner = product_of(x->shape + 2, x->ndim - 2), set = inner;
    int more = roll(dice, 3);

    p->operands = 1;
    p->number[0] = x->shape[1] && x->shape[1] % 2 == 0 && roll(dice, 2) ? 2 : 1;
    if (p->row->run == run_group_norm)
        set = x->shape[1] / p->number[0] * inner;
    else if (p->row->run == run_batch_norm)
        set = x->shape[0] * inner;
    for (int i = 1; i <= more; i++)
        want(p, i, 'x', 1, &x->shape[1]);
    return x->shape[1] > 0 && set > 1;
}

/* ---- convolutions ---------------------------------------------------------------------------- */

enum { GROUPS, STRIDE, DILATION = STRIDE + 2, BEFORE = DILATION + 2, AFTER = BEFORE + 2 };

static inline sherd_conv_options conv_options(const int64_t *n)
{
    sherd_conv_options o = {.groups = n[GROUPS]};

    for (int d = 0; d < 2; d++) {
        o.stride[d] = n[STRIDE + d];
        o.dilation[d] = n[DILATION + d];
        o.before[d] = n[BEFORE + d];
        o.after[d] = n[AFTER + d];
    }
    return o;
}

static inline sherd_tensor *run_conv(act *a)
{
    sherd_conv_options o = conv_options(a->p->number);

    return sherd_conv(a->in[0], a->in[1], operand(a, 2), &o);
}

static inline sherd_tensor *run_conv_transposed(act *a)
{
    sherd_conv_options o = conv_options(a->p->number);

    return sherd_conv_transposed(a->in[0], a->in[1], operand(a, 2), &o);
}

/* Padding makes the input at least as long as the kernel reaches, and takes no more than a
 * transposed one makes. */
static inline bool draw_conv(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];
    bool transposed = p->row->run == run_conv_transposed;
    int64_t groups = x->shape[1] % 2 == 0 && roll(dice, 2) ? 2 : 1, made = 1 + roll(dice, 2);
    int64_t w[4] = {transposed ? x->shape[1] : groups * made,
                    transposed ? made : x->shape[1] / groups};

    p->number[GROUPS] = groups;
    for (int d = 0; d + 2 < x->ndim; d++) {
        w[2 + d] = 1 + roll(dice, 3);
        p->number[STRIDE + d] = 1 + roll(dice, 3);
        p->number[DILATION + d] = 1 + roll(dice, 2);
        int64_t reach = (w[2 + d] - 1) * p->number[DILATION + d] + 1;
        p->number[BEFORE + d] = transposed ? 0 : reach / 2;
        p->number[AFTER + d] = transposed ? 0 : reach - 1 - roll(dice, 2) * (reach / 2);
    }
    want(p, 1, 'x', x->ndim, w);
    if (roll(dice, 2))
        want(p, 2, 'x', 1, (int64_t[]){groups * made});
    return x->shape[1] > 0 && product_of(x->shape + 2, x->ndim - 2) > 0;
}

/* ---- borders, pools, sizes ------------------------------------------------------------------- */

enum { WIDTHS = 0, BORDER = 8 };

static inline sherd_tensor *run_pad_with(act *a)
{
    const int64_t *n = a->p->number;
    sherd_pad_options o = {.value = 2};

    for (int d = 0; d < a->p->in[0].ndim; d++) {
        o.before[d] = (sherd_halo_side){n[WIDTHS + d], (sherd_border)n[BORDER]};
        o.after[d] = (sherd_halo_side){n[WIDTHS + 4 + d], (sherd_border)n[BORDER]};
    }
    return sherd_pad_with(a->in[0], &o);
}

/* Narrower than the dims, so that any border fits; constant ones alone are sherd_pad's. */
static inline bool draw_pad_with(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];

    p->operands = 1;
    p->number[BORDER] = x->shape[0] > 1 ? SHERD_BORDER_REPLICATE + roll(dice, 4)
                                        : SHERD_BORDER_REPLICATE + 2 * roll(dice, 2);
    for (int d = 0; d < x->ndim; d++)
        for (int side = 0; side < 2; side++)
            p->number[WIDTHS + 4 * side + d] =
                x->shape[d] ? roll(dice, x->shape[d] < 3 ? (int)x->shape[d] : 3) : 0;
    p->number[WIDTHS] = p->number[WIDTHS] ? p->number[WIDTHS] : 1;
    for (int d = 0; d < x->ndim; d++)
        if (x->shape[d] == 0)
            return false;
    return true;
}

/* number: kernel, stride, padding of two dims, and what else there is. */
static inline sherd_pool_options pool_options(const int64_t *n)
{
    return (sherd_pool_options){.kernel = {n[0], n[1], 1},
                                .stride = {n[2], n[3], 1},
                                .padding = {n[4], n[5], 0},
                                .ceil = n[6],
                                .without_padding = n[7]};
}

static inline sherd_tensor *run_max_pool(act *a)
{
    sherd_pool_options o = pool_options(a->p->number);

    return sherd_max_pool(a->in[0], &o, a->p->number[8] ? &a->more : NULL);
}

static inline sherd_tensor *run_avg_pool(act *a)
{
    sherd_pool_options o = pool_options(a->p->number);

    return sherd_avg_pool(a->in[0], &o);
}

static inline bool draw_pool(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];

    p->operands = 1;
    for (int d = 0; d + 2 < x->ndim; d++) {
        int64_t n = x->shape[2 + d], k = 1 + (n > 1 ? roll(dice, n < 3 ? (int)n : 3) : 0);
        if (n == 0)
            return false;
        p->number[d] = k;
        p->number[2 + d] = 1 + roll(dice, 3);
        p->number[4 + d] = roll(dice, (int)k / 2 + 1);
    }
    p->number[6] = roll(dice, 2);
    p->number[7] = p->row->run == run_avg_pool && roll(dice, 2);
    p->number[8] = roll(dice, 2);
    return x->shape[1] > 0;
}

RUN(run_adaptive_avg_pool, sherd_adaptive_avg_pool(in[0], n))
RUN(run_adaptive_max_pool, sherd_adaptive_max_pool(in[0], n, n[4] ? &a->more : NULL))

static inline sherd_tensor *run_interpolate(act *a)
{
    const int64_t *n = a->p->number;

    return sherd_interpolate(a->in[0],
                             &(sherd_interpolate_options){.kind = (sherd_interpolation)n[3],
                                                          .size = {n[0], n[1], n[2]},
                                                          .align_corners = n[4]});
}

/* Sizes of the result, the kind, and whether corners are aligned. */
static inline bool draw_new_sizes(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];

    p->operands = 1;
    for (int d = 0; d + 2 < x->ndim; d++) {
        p->number[d] = 1 + roll(dice, 6);
        if (x->shape[2 + d] == 0)
            return false;
    }
    p->number[3] = roll(dice, 3); /* what is cubic has two dims */
    p->number[4] = p->number[3] == SHERD_INTERPOLATE_LINEAR && roll(dice, 2);
    return x->shape[1] > 0;
}

RUN(run_grid_sample, sherd_grid_sample(in[0], in[1],
                                       &(sherd_grid_sample_options){
                                           .nearest = n[0], .border = n[1], .align_corners = n[2]}))

static inline bool draw_sampled(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];
    const int64_t shape[] = {x->shape[0], roll(dice, 5), x->ndim - 2};

    for (int d = 2; d < x->ndim; d++)
        if (x->shape[d] == 0)
            return false;
    want(p, 1, 's', 3, shape);
    for (int i = 0; i < 3; i++)
        p->number[i] = roll(dice, 4) == 0;
    return true;
}

/* number: kernel, dilation. */
RUN(run_neighbourhood_attention,
    sherd_neighbourhood_attention(in[0], in[1], in[2],
                                  &(sherd_neighbourhood_options){.kernel = {n[0]},
                                                                 .dilation = {n[1]}}))

static inline bool draw_neighbours(call_plan *p, uint64_t *dice)
{
    int64_t n = p->in[0].shape[1];

    if (n == 0)
        return false;
    want_same(p, 1, 'x');
    want_same(p, 2, 'x');
    p->number[0] = 1 + 2 * roll(dice, (int)(n + 1) / 2);
    p->number[1] = 1 + roll(dice, (int)(n / p->number[0]));
    return true;
}

/* ---- points ---------------------------------------------------------------------------------- */

RUN(run_knn, sherd_knn(in[0], in[1], n[0], &a->more))
RUN(run_radius_search, sherd_radius_search(in[0], in[1], 0.01 * (double)n[1], n[0], &a->more, NULL))

/* To a tetrahedron from beside it: of any triangles several might be as near. */
static inline sherd_tensor *run_signed_distance(act *a)
{
    static const int32_t sides[4][3] = {{0, 1, 2}, {0, 3, 1}, {0, 2, 3}, {1, 3, 2}};
    static const double corners[4][3] = {{0, 1, 0}, {29, 0, 2}, {2, 31, 1}, {1, 3, 30}};
    sherd_world *world = sherd_tensor_world(a->in[0]);
    const int64_t shape[] = {4, 3};
    sherd_dtype dtype = sherd_tensor_dtype(a->in[1]);
    sherd_tensor *base = sherd_from_data(world, SHERD_F64, shape, 2, corners);

    return sherd_signed_distance(
        sherd_add_scalar(a->in[0], 11),
        sherd_add(a->in[1], sherd_cast(sherd_mark_equal(base), dtype)),
        sherd_mark_equal(sherd_from_data(world, SHERD_I32, shape, 2, sides)), NULL);
}

static inline bool draw_surface(call_plan *p, uint64_t *dice)
{
    (void)dice;
    want(p, 1, 'x', 2, (const int64_t[]){4, 3});
    return p->in[0].shape[1] == 3 && is_fraction(p->in[0].dtype);
}

/* number: how many points at most, the radius in hundredths. */
static inline bool draw_points(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];
    int64_t queries[2] = {roll(dice, 6), x->shape[1]};
    bool is_knn = p->row->run == run_knn;

    if (x->shape[1] == 0 || (is_knn && x->shape[0] == 0))
        return false;
    p->number[0] = 1 + roll(dice, is_knn ? (int)x->shape[0] : 5);
    p->number[1] = roll(dice, 200);
    want(p, 1, 'x', 2,
         queries); /* distances that are equal by chance would be told apart by rounding */
    return is_fraction(x->dtype);
}

#endif
