/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of operators (ops_cases.h) against what must come out: the plain result under every
 * placement of every operand, and central differences in f64. A loss weighs each element of a
 * result differently, so that a gradient at a wrong place shows. Of more than `most` combinations
 * of layouts some are taken.
 */
#ifndef SHERD_TESTS_OPS_ORACLES_H
#define SHERD_TESTS_OPS_ORACLES_H

#include "ops_cases.h"

/* ---- results --------------------------------------------------------------------------------- */

/* One combination: the result, gathered, against the plain one. */
static inline bool equals_plain(const op_case *c, sherd_tensor **in, const double *want, int64_t n)
{
    return CHECK(distance(sherd_full(c->run(in)), want, n) <= 1e-12);
}

static inline void all_equal_plain(sherd_world *world, const op_case *list, int count, int64_t most)
{
    const sherd_mesh *mesh = test_mesh(world);

    for (int i = 0; i < count; i++) {
        const op_case *c = &list[i];
        sherd_tensor *plain[MOST_IN], *in[MOST_IN];
        double want[MOST_ELEMENTS];
        int64_t step, all = combinations(mesh, c, most, &step);

        sherd_scope_begin(world);
        for (int j = 0; j < c->operands; j++)
            plain[j] = plain_operand(world, c, j, NULL);
        sherd_tensor *y = c->run(plain);
        int64_t n = sherd_tensor_count(y);
        copy_values(want, y);
        for (int64_t number = 0; number < all; number += step) {
            sherd_scope_begin(world);
            place_all(mesh, c, number, in);
            if (!equals_plain(c, in, want, n)) {
                say_layouts(c, in);
                number = all; /* one is enough */
            }
            sherd_scope_end(world);
        }
        sherd_scope_end(world);
        if (!CHECK_OK(sherd_world_check(world)))
            say_error(world);
    }
}

/* ---- gradients ------------------------------------------------------------------------------- */

typedef double gradients[MOST_IN][MOST_ELEMENTS];

static inline double weight_at(int64_t i)
{
    return value_at(40, i);
}

/* The loss of plain operands, added up here. */
static inline double plain_loss(sherd_world *world, const op_case *c, sherd_tensor *const *in)
{
    double y[MOST_ELEMENTS], loss = 0;

    (void)world;
    sherd_tensor *t = c->run(in);
    copy_values(y, t);
    for (int64_t i = 0; i < sherd_tensor_count(t); i++)
        loss += y[i] * weight_at(i);
    return loss;
}

/* Central differences of every element of every operand. */
static inline void take_differences(sherd_world *world, const op_case *c, gradients out)
{
    sherd_tensor *in[MOST_IN];

    for (int i = 0; i < c->operands; i++)
        in[i] = plain_operand(world, c, i, NULL);
    for (int i = 0; i < c->operands; i++) {
        sherd_tensor *kept = in[i];
        double x[MOST_ELEMENTS];
        if (c->index >> i & 1)
            continue;
        copy_values(x, kept);
        for (int64_t e = 0; e < count_of(c, i); e++) {
            double at = x[e], loss[2];
            sherd_scope_begin(world);
            for (int side = 0; side < 2; side++) {
                x[e] = at + (side ? 1e-5 : -1e-5);
                in[i] = plain_operand(world, c, i, x);
                loss[side] = plain_loss(world, c, in);
            }
            sherd_scope_end(world);
            x[e] = at;
            out[i][e] = (loss[1] - loss[0]) / (2 * 1e-5);
        }
        in[i] = kept;
    }
}

/* The same; what a world of one rank has found, those after it need not. */
static inline void differences(sherd_world *world, const op_case *c, gradients out)
{
    enum { MOST_KNOWN = 256 };
    static struct {
        const op_case *c;
        gradients grad;
    } known[MOST_KNOWN];
    static int count;
    int at = 0;

    while (at < count && known[at].c != c)
        at++;
    if (at < count) {
        memcpy(out, known[at].grad, sizeof known[at].grad);
        return;
    }
    take_differences(world, c, out);
    if (sherd_world_ranks(world) == 1 && count < MOST_KNOWN) {
        known[count].c = c;
        memcpy(known[count++].grad, out, sizeof known->grad);
    }
}

static inline void want_gradients(const op_case *c, sherd_tensor *const *in)
{
    for (int i = 0; i < c->operands; i++)
        if (!(c->index >> i & 1))
            sherd_require_grad(in[i], true);
}

/* The loss of a result, and backward. */
static inline void lose(sherd_tensor *y)
{
    double w[MOST_ELEMENTS];

    for (int64_t i = 0; i < sherd_tensor_count(y); i++)
        w[i] = weight_at(i);
    sherd_tensor *weights = sherd_mark_equal(
        sherd_from_data(y->world, SHERD_F64, sherd_tensor_shape(y), sherd_tensor_ndim(y), w));
    sherd_backward(sherd_sum(sherd_mul(y, weights)));
}

/* Forward, loss, backward. */
static inline void differentiate(const op_case *c, sherd_tensor *const *in)
{
    want_gradients(c, in);
    lose(c->run(in));
}

static inline bool same_gradients(const op_case *c, sherd_tensor *const *in, gradients want)
{
    bool good = true;

    for (int i = 0; i < c->operands; i++) {
        if (c->index >> i & 1)
            continue;
        sherd_tensor *g = sherd_grad(in[i]);
        good &= CHECK(g != NULL);
        if (g)
            good &= CHECK(distance(sherd_full(g), want[i], count_of(c, i)) <= 1e-8);
    }
    return good;
}

static inline void sharded_case(const sherd_mesh *mesh, const op_case *c, gradients want,
                                int64_t most)
{
    int64_t step, all = combinations(mesh, c, most, &step);
    sherd_world *world = sherd__space_world(mesh->space);

    for (int64_t number = 0; number < all; number += step) {
        sherd_tensor *in[MOST_IN];
        sherd_scope_begin(world);
        place_all(mesh, c, number, in);
        differentiate(c, in);
        if (!same_gradients(c, in, want)) {
            say_layouts(c, in);
            number = all; /* one is enough */
        }
        sherd_scope_end(world);
    }
}

static inline void all_equal_differences(sherd_world *world, const op_case *list, int count,
                                         int64_t most)
{
    const sherd_mesh *mesh = test_mesh(world);
    static gradients want_of[CHECK_RANKS];
    double(*want)[MOST_ELEMENTS] = want_of[sherd_world_rank(world)];

    for (int i = 0; i < count; i++) {
        const op_case *c = &list[i];
        sherd_tensor *in[MOST_IN];
        sherd_scope_begin(world);
        differences(world, c, want);
        for (int j = 0; j < c->operands; j++)
            in[j] = plain_operand(world, c, j, NULL);
        differentiate(c, in);
        if (!same_gradients(c, in, want))
            fprintf(stderr, "  in plain %s\n", c->name);
        sharded_case(mesh, c, want, most);
        sherd_scope_end(world);
        if (!CHECK_OK(sherd_world_check(world)))
            say_error(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
}

/* ---- ranks that hold nothing ----------------------------------------------------------------- */

/* A mesh without rank 1: that rank calls all the same, holds nothing, and hinders nobody. */
static inline void all_without_rank_1(sherd_world *world, const op_case *list, int count,
                                      int64_t most)
{
    const sherd_mesh *mesh = NULL;
    static gradients want_of[CHECK_RANKS];
    double(*want)[MOST_ELEMENTS] = want_of[sherd_world_rank(world)];
    bool inside = sherd_world_rank(world) != 1;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){2}, NULL, (int[]){2, 0}));
    for (int i = 0; i < count; i++) {
        const op_case *c = &list[i];
        int64_t step, all = combinations(mesh, c, most, &step);
        sherd_scope_begin(world);
        differences(world, c, want);
        for (int64_t number = 0; number < all; number += step) {
            sherd_tensor *in[MOST_IN];
            sherd_scope_begin(world);
            place_all(mesh, c, number, in);
            /* What comes out of sherd_full is plain, and on rank 1 has another shape. */
            if (c->run != run_full)
                differentiate(c, in);
            if (c->run != run_full && inside && !same_gradients(c, in, want))
                say_layouts(c, in);
            sherd_scope_end(world);
        }
        sherd_scope_end(world);
        if (!CHECK_OK(sherd_world_check(world)))
            say_error(world);
    }
}

#endif
