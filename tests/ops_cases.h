/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of operators share: one list of operators on small operands, values that depend on
 * the global index only, and a way to place an operand in any layout. Every rank computes plain
 * results for comparison.
 */
#ifndef SHERD_TESTS_OPS_CASES_H
#define SHERD_TESTS_OPS_CASES_H

#include <math.h>

#include "check.h"

#include "base/hash.h"
#include "autograd/tape.h"
#include "sherd/comm.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"
#include "tensor/tensor.h"

enum { MOST_IN = 4, MOST_DIMS = 4, MOST_ELEMENTS = 256 };

/* ndim and shape, as two arguments. */
#define SHAPE(...)                                           \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) \
    {                                                        \
        __VA_ARGS__                                          \
    }

typedef struct op_case {
    const char *name;
    sherd_tensor *(*run)(sherd_tensor *const *in);
    int operands;
    int ndim[MOST_IN];
    int64_t shape[MOST_IN][MOST_DIMS];
    unsigned index; /* bits of i32 operands */
    int64_t limit;  /* of indices */
} op_case;

/* ---- values ---------------------------------------------------------------------------------- */

/* In [-1,1], different for each operand and element, away from 0 (the kink of relu). */
static inline double value_at(int operand, int64_t i)
{
    uint64_t h = sherd__hash_word(sherd__hash_word(77, (uint64_t)operand), (uint64_t)i);
    double v = (double)(h >> 11) / 4503599627370496.0 - 1;
    return fabs(v) < 0.05 ? v + 0.2 : v;
}

static inline int32_t index_at(int operand, int64_t i, int64_t limit)
{
    return (int32_t)(sherd__hash_word((uint64_t)operand + 5, (uint64_t)i) % (uint64_t)limit);
}

static inline int64_t count_of(const op_case *c, int operand)
{
    int64_t n = 1;

    for (int d = 0; d < c->ndim[operand]; d++)
        n *= c->shape[operand][d];
    return n;
}

/* An operand as a plain tensor that does not vary; `x` or the values of the case. */
static inline sherd_tensor *plain_operand(sherd_world *world, const op_case *c, int operand,
                                          const double *x)
{
    double real[MOST_ELEMENTS];
    int32_t index[MOST_ELEMENTS];
    bool is_index = c->index >> operand & 1;
    int64_t n = count_of(c, operand);

    for (int64_t i = 0; i < n; i++) {
        real[i] = x ? x[i] : value_at(operand, i);
        index[i] = is_index ? index_at(operand, i, c->limit) : 0;
    }
    return sherd_mark_equal(sherd_from_data(world, is_index ? SHERD_I32 : SHERD_F64,
                                            c->shape[operand], c->ndim[operand],
                                            is_index ? (void *)index : (void *)real));
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* How many ways there are to place an operand: on each axis R, P(sum) or S(dim); twice: see
 * layout_number. */
static inline int layouts_of(const sherd_mesh *mesh, const op_case *c, int operand)
{
    int ways = 1;

    for (int a = 0; a < sherd_mesh_axes(mesh); a++)
        ways *= c->ndim[operand] + (c->index >> operand & 1 ? 1 : 2);
    return 2 * ways;
}

/* Uneven sizes, some of them 0, that add up to n. */
static inline void uneven_sizes(int64_t *sizes, int64_t parts, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < parts; i++) {
        seed = sherd__hash_word(seed, (uint64_t)i);
        sizes[i] = i == parts - 1 ? n : (int64_t)(seed % (uint64_t)(n + 1));
        n -= sizes[i];
    }
}

/* The number-th layout: the first half has default cuts and order, the second uneven cuts and the
 * axes the other way round. */
static inline const sherd_layout *layout_number(const sherd_mesh *mesh, const op_case *c,
                                                int operand, int number)
{
    int axes = sherd_mesh_axes(mesh), half = layouts_of(mesh, c, operand) / 2;
    bool uneven = number >= half;
    int base = c->ndim[operand] + (c->index >> operand & 1 ? 1 : 2);
    sherd_placement placements[SHERD_MAX_AXES];
    int order[SHERD_MAX_AXES], used[SHERD_MAX_DIMS] = {0};
    int64_t sizes[MOST_DIMS][CHECK_RANKS], parts[MOST_DIMS];
    const int64_t *pointers[MOST_DIMS];
    const sherd_layout *layout;

    number %= half;
    for (int d = 0; d < c->ndim[operand]; d++)
        parts[d] = 1;
    for (int a = 0; a < axes; a++, number /= base) {
        int way = number % base;
        placements[a] = way == 0                  ? sherd_replicate()
                        : way <= c->ndim[operand] ? sherd_shard(way - 1)
                                                  : sherd_partial(SHERD_SUM);
        if (placements[a].kind == SHERD_SHARD)
            parts[way - 1] *= sherd_mesh_extent(mesh, a);
    }
    for (int a = axes - 1; a >= 0; a--)
        order[a] = placements[a].kind == SHERD_SHARD ? used[placements[a].dim]++ : 0;
    for (int d = 0; d < c->ndim[operand]; d++) {
        uneven_sizes(sizes[d], parts[d], c->shape[operand][d], (uint64_t)(half + d));
        pointers[d] = parts[d] > 1 ? sizes[d] : NULL;
    }
    sherd_layout_options options = {order, pointers};
    if (!CHECK_OK(sherd_layout_create(&layout, mesh, c->ndim[operand], c->shape[operand],
                                      placements, uneven ? &options : NULL)))
        return NULL;
    return layout;
}

/* ---- placing --------------------------------------------------------------------------------- */

/* This rank's addend of a value that is pending: addends differ per rank and add up to the value
 * but for rounding. */
static inline double addend(double value, int64_t element, int64_t part, int64_t parts)
{
    double others = 0;

    if (part > 0)
        return value_at((int)part + 20, element);
    for (int64_t i = 1; i < parts; i++)
        others += value_at((int)i + 20, element);
    return value - others;
}

/* Number of this rank among those that hold addends of the same elements, and how many they are. */
static inline int64_t pending_part(const sherd_tensor *t, int64_t *parts)
{
    const sherd_mesh *mesh = t->layout->spec.mesh;
    int64_t coordinate[SHERD_MAX_AXES], part = 0;

    *parts = 1;
    if (!sherd__coordinate(t, coordinate))
        return 0;
    for (int a = 0; a < sherd_mesh_axes(mesh); a++)
        if (t->layout->pending_axes >> a & 1) {
            part = part * sherd_mesh_extent(mesh, a) + coordinate[a];
            *parts *= sherd_mesh_extent(mesh, a);
        }
    return part;
}

/* An operand in a layout, each rank writing its own box. */
static inline sherd_tensor *place(const op_case *c, int operand, const sherd_layout *layout)
{
    bool is_index = c->index >> operand & 1;
    sherd_tensor *t = sherd__new_on(layout, is_index ? SHERD_I32 : SHERD_F64);
    sherd_box box = sherd_tensor_box(t);
    int64_t parts, part = pending_part(t, &parts);

    if (sherd_tensor_failed(t))
        return t;
    for (int64_t i = 0; i < t->count; i++) {
        int64_t rest = i, global = 0, scale = 1;
        for (int d = t->ndim - 1; d >= 0; d--) {
            global += (box.offset[d] + rest % t->local[d]) * scale;
            scale *= t->shape[d];
            rest /= t->local[d];
        }
        if (is_index)
            ((int32_t *)sherd__fresh(t))[i] = index_at(operand, global, c->limit);
        else
            ((double *)sherd__fresh(t))[i] = addend(value_at(operand, global), global, part, parts);
    }
    return t;
}

/* Largest difference between a plain tensor and numbers; huge if it failed or has another size. */
static inline double distance(sherd_tensor *t, const double *x, int64_t n)
{
    const double *y = sherd_tensor_failed(t) ? NULL : sherd_tensor_read(t);
    double most = 0;

    if (!y || sherd_tensor_count(t) != n)
        return HUGE_VAL;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(y[i] - x[i]) > 0 || y[i] == x[i] ? fabs(y[i] - x[i]) : HUGE_VAL);
    return most;
}

static inline void copy_values(double *to, sherd_tensor *t)
{
    const double *x = sherd_tensor_failed(t) ? NULL : sherd_tensor_read(t);

    CHECK(x != NULL && sherd_tensor_count(t) <= MOST_ELEMENTS);
    for (int64_t i = 0; x && i < sherd_tensor_count(t) && i < MOST_ELEMENTS; i++)
        to[i] = x[i];
}

/* ---- the operators --------------------------------------------------------------------------- */

static inline sherd_tensor *run_full(sherd_tensor *const *in)
{
    return sherd_full(in[0]);
}

/* A test of other operators says where its list is. */
#ifdef OTHER_CASES
#include OTHER_CASES
#else

static inline sherd_tensor *run_add(sherd_tensor *const *in)
{
    return sherd_add(in[0], in[1]);
}
static inline sherd_tensor *run_sub(sherd_tensor *const *in)
{
    return sherd_sub(in[0], in[1]);
}
static inline sherd_tensor *run_mul(sherd_tensor *const *in)
{
    return sherd_mul(in[0], in[1]);
}
static inline sherd_tensor *run_scale(sherd_tensor *const *in)
{
    return sherd_scale(in[0], -1.5);
}
static inline sherd_tensor *run_add_scaled(sherd_tensor *const *in)
{
    return sherd_add_scaled(in[0], in[1], -1.5);
}
static inline sherd_tensor *run_relu(sherd_tensor *const *in)
{
    return sherd_relu(in[0]);
}
static inline sherd_tensor *run_gelu(sherd_tensor *const *in)
{
    return sherd_gelu(in[0]);
}
static inline sherd_tensor *run_matmul(sherd_tensor *const *in)
{
    return sherd_matmul(in[0], in[1]);
}
static inline sherd_tensor *run_linear(sherd_tensor *const *in)
{
    return sherd_linear(in[0], in[1], NULL);
}
static inline sherd_tensor *run_biased(sherd_tensor *const *in)
{
    return sherd_linear(in[0], in[1], in[2]);
}
static inline sherd_tensor *run_sum(sherd_tensor *const *in)
{
    return sherd_sum(in[0]);
}
static inline sherd_tensor *run_mean(sherd_tensor *const *in)
{
    return sherd_mean(in[0]);
}
static inline sherd_tensor *run_split(sherd_tensor *const *in)
{
    return sherd_view(in[0], (int64_t[]){3, 2, -1}, 3);
}
static inline sherd_tensor *run_merge(sherd_tensor *const *in)
{
    return sherd_view(in[0], (int64_t[]){3, 8}, 2);
}
static inline sherd_tensor *run_regroup(sherd_tensor *const *in)
{
    return sherd_view(in[0], (int64_t[]){4, 1, 6}, 3);
}
static inline sherd_tensor *run_flatten(sherd_tensor *const *in)
{
    return sherd_view(in[0], (int64_t[]){-1}, 1);
}
static inline sherd_tensor *run_transpose(sherd_tensor *const *in)
{
    return sherd_transpose(in[0], 0, -1);
}
/* A strided operand in a product, and in a sum. */
static inline sherd_tensor *run_strided(sherd_tensor *const *in)
{
    sherd_tensor *t = sherd_transpose(in[0], 0, 1);
    return sherd_add(t, sherd_matmul(t, in[1]));
}
static inline sherd_tensor *run_norm(sherd_tensor *const *in)
{
    return sherd_layer_norm(in[0], in[1], in[2], 1e-5);
}
/* Both results, of which each has a part in the gradient. */
static inline sherd_tensor *run_add_norm(sherd_tensor *const *in)
{
    const sherd_add_norm_options o = {.weight = in[2], .bias = in[3]};
    sherd_tensor *norm, *sum;

    sherd_add_layer_norm(&norm, &sum, in[0], in[1], &o);
    return sherd_add(norm, sherd_scale(sum, 0.5));
}
static inline sherd_tensor *run_bare_norm(sherd_tensor *const *in)
{
    return sherd_layer_norm(in[0], NULL, NULL, 1e-5);
}
static inline sherd_tensor *run_embedding(sherd_tensor *const *in)
{
    return sherd_embedding(in[0], in[1]);
}
static inline sherd_tensor *run_dropout(sherd_tensor *const *in)
{
    sherd_generator g = sherd_generator_named("mask");
    return sherd_dropout(in[0], 0.4, &g);
}
static inline sherd_tensor *run_attention(sherd_tensor *const *in)
{
    return sherd_attention(in[0], in[1], in[2], NULL);
}
static inline sherd_tensor *run_causal(sherd_tensor *const *in)
{
    return sherd_attention(in[0], in[1], in[2],
                           &(sherd_attention_options){.causal = true, .scale = 0.9});
}
static inline sherd_tensor *run_loss(sherd_tensor *const *in)
{
    return sherd_cross_entropy(in[0], in[1]);
}
/* One tensor used three times, once inside a product of its own. */
static inline sherd_tensor *run_shared(sherd_tensor *const *in)
{
    return sherd_add(sherd_mul(in[0], in[0]), sherd_gelu(in[0]));
}

static const op_case cases[] = {
    {"add", run_add, 2, {2, 2}, .shape = {{5, 3}, {5, 3}}},
    {"add rows", run_add, 2, {2, 1}, .shape = {{5, 3}, {3}}},
    {"add stretched", run_add, 2, {2, 2}, .shape = {{5, 1}, {1, 4}}},
    {"add longer", run_add, 2, {1, 3}, .shape = {{4}, {2, 3, 4}}},
    {"sub", run_sub, 2, {2, 1}, .shape = {{5, 3}, {3}}},
    {"sub from row", run_sub, 2, {1, 2}, .shape = {{3}, {5, 3}}},
    {"mul", run_mul, 2, {2, 2}, .shape = {{5, 3}, {5, 3}}},
    {"mul column", run_mul, 2, {3, 2}, .shape = {{2, 5, 3}, {5, 1}}},
    {"scale", run_scale, 1, {2}, .shape = {{5, 3}}},
    {"add scaled", run_add_scaled, 2, {2, 2}, .shape = {{5, 3}, {5, 3}}},
    {"add scaled column", run_add_scaled, 2, {3, 2}, .shape = {{2, 5, 3}, {5, 1}}},
    {"add scaled to row", run_add_scaled, 2, {1, 2}, .shape = {{3}, {5, 3}}},
    {"relu", run_relu, 1, {2}, .shape = {{5, 3}}},
    {"gelu", run_gelu, 1, {3}, .shape = {{3, 2, 5}}},
    {"shared", run_shared, 1, {2}, .shape = {{5, 3}}},
    {"matmul", run_matmul, 2, {2, 2}, .shape = {{5, 4}, {4, 3}}},
    {"matmul rows", run_matmul, 2, {3, 2}, .shape = {{3, 2, 4}, {4, 5}}},
    {"matmul batched", run_matmul, 2, {3, 3}, .shape = {{3, 2, 4}, {3, 4, 5}}},
    {"matmul inner 1", run_matmul, 2, {2, 2}, .shape = {{3, 1}, {1, 2}}},
    {"linear", run_linear, 2, {2, 2}, .shape = {{5, 4}, {3, 4}}},
    {"linear bias", run_biased, 3, {3, 2, 1}, .shape = {{3, 2, 4}, {5, 4}, {5}}},
    {"linear row", run_biased, 3, {1, 2, 1}, .shape = {{4}, {5, 4}, {5}}},
    {"sum", run_sum, 1, {3}, .shape = {{3, 2, 5}}},
    {"mean", run_mean, 1, {2}, .shape = {{5, 3}}},
    {"split", run_split, 1, {2}, .shape = {{6, 4}}},
    {"merge", run_merge, 1, {3}, .shape = {{3, 2, 4}}},
    {"regroup", run_regroup, 1, {2}, .shape = {{6, 4}}},
    {"flatten", run_flatten, 1, {3}, .shape = {{2, 3, 4}}},
    {"transpose", run_transpose, 1, {3}, .shape = {{3, 2, 5}}},
    {"strided", run_strided, 2, {2, 2}, .shape = {{4, 3}, {4, 4}}},
    {"layer_norm", run_norm, 3, {3, 1, 1}, .shape = {{3, 2, 5}, {5}, {5}}},
    {"layer_norm bare", run_bare_norm, 1, {2}, .shape = {{5, 4}}},
    {"add_layer_norm", run_add_norm, 4, {2, 2, 1, 1}, .shape = {{3, 5}, {3, 5}, {5}, {5}}},
    {"embedding", run_embedding, 2, {2, 2}, .shape = {{7, 3}, {2, 5}}, .index = 2, .limit = 7},
    {"dropout", run_dropout, 1, {3}, .shape = {{3, 2, 5}}},
    {"attention", run_attention, 3, {4, 4, 4}, .shape = {{2, 3, 3, 2}, {2, 4, 3, 2}, {2, 4, 3, 2}}},
    {"attention causal",
     run_causal,
     3,
     {4, 4, 4},
     .shape = {{3, 4, 2, 2}, {3, 4, 2, 2}, {3, 4, 2, 2}}},
    {"cross_entropy", run_loss, 2, {3, 2}, .shape = {{3, 2, 7}, {3, 2}}, .index = 2, .limit = 7},
    {"cross_entropy rows", run_loss, 2, {2, 1}, .shape = {{5, 3}, {5}}, .index = 2, .limit = 3},
    {"add nothing", run_add, 2, {2, 2}, .shape = {{0, 3}, {1, 3}}},
    {"linear no rows", run_biased, 3, {2, 2, 1}, .shape = {{0, 4}, {3, 4}, {3}}},
    {"linear no inner", run_biased, 3, {2, 2, 1}, .shape = {{5, 0}, {3, 0}, {3}}},
    {"linear no features", run_biased, 3, {2, 2, 1}, .shape = {{5, 4}, {0, 4}, {0}}},
    {"matmul no batch", run_matmul, 2, {3, 3}, .shape = {{0, 2, 4}, {0, 4, 5}}},
    {"sum of nothing", run_sum, 1, {2}, .shape = {{0, 3}}},
    {"layer_norm no rows", run_norm, 3, {2, 1, 1}, .shape = {{0, 5}, {5}, {5}}},
    {"layer_norm no columns", run_norm, 3, {2, 1, 1}, .shape = {{5, 0}, {0}, {0}}},
    {"add_layer_norm no columns",
     run_add_norm,
     4,
     {2, 2, 1, 1},
     .shape = {{5, 0}, {5, 0}, {0}, {0}}},
    {"embedding of nothing",
     run_embedding,
     2,
     {2, 1},
     .shape = {{7, 3}, {0}},
     .index = 2,
     .limit = 7},
    {"embedding no width",
     run_embedding,
     2,
     {2, 1},
     .shape = {{7, 0}, {3}},
     .index = 2,
     .limit = 7},
    {"dropout of nothing", run_dropout, 1, {3}, .shape = {{3, 0, 5}}},
    {"attention no batch",
     run_attention,
     3,
     {4, 4, 4},
     .shape = {{0, 3, 2, 2}, {0, 4, 2, 2}, {0, 4, 2, 2}}},
    {"attention no heads",
     run_causal,
     3,
     {4, 4, 4},
     .shape = {{2, 3, 0, 2}, {2, 3, 0, 2}, {2, 3, 0, 2}}},
    {"attention no width",
     run_causal,
     3,
     {4, 4, 4},
     .shape = {{2, 3, 2, 0}, {2, 3, 2, 0}, {2, 3, 2, 0}}},
    {"attention no queries",
     run_attention,
     3,
     {4, 4, 4},
     .shape = {{2, 0, 2, 2}, {2, 4, 2, 2}, {2, 4, 2, 2}}},
    {"attention no keys",
     run_attention,
     3,
     {4, 4, 4},
     .shape = {{2, 3, 2, 2}, {2, 0, 2, 2}, {2, 0, 2, 2}}},
    {"full", run_full, 1, {2}, .shape = {{5, 3}}},
};

#endif

/* The meshes of the tests: 2x2 on 4 ranks, a line otherwise. */
static inline const sherd_mesh *test_mesh(sherd_world *world)
{
    int64_t ranks = sherd_world_ranks(world);
    int64_t extents[] = {ranks == 4 ? 2 : ranks, 2};
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, ranks == 4 ? 2 : 1, extents, NULL, NULL));
    return mesh;
}

/*
 * Which combinations of the operands' layouts a test takes: all of them if they are at most `most`,
 * else every step-th, where the step has no factor in common with their number's usual ones.
 */
static inline int64_t combinations(const sherd_mesh *mesh, const op_case *c, int64_t most,
                                   int64_t *step)
{
    int64_t all = 1;

    for (int i = 0; i < c->operands; i++)
        all *= layouts_of(mesh, c, i);
    *step = all <= most ? 1 : all / most;
    while (*step > 1 && (*step % 2 == 0 || *step % 3 == 0 || *step % 5 == 0 || *step % 7 == 0))
        ++*step;
    return all;
}

/* Place the operands of the number-th combination. */
static inline void place_all(const sherd_mesh *mesh, const op_case *c, int64_t number,
                             sherd_tensor **in)
{
    for (int i = 0; i < c->operands; i++) {
        int ways = layouts_of(mesh, c, i);
        in[i] = place(c, i, layout_number(mesh, c, i, (int)(number % ways)));
        number /= ways;
    }
}

/* The layouts of operands, for messages. */
static inline void say_layouts(const op_case *c, sherd_tensor *const *in)
{
    fprintf(stderr, "  in %s of", c->name);
    for (int i = 0; i < c->operands; i++)
        fprintf(stderr, " %s", sherd_tensor_text(in[i]));
    fprintf(stderr, "\n");
}

/* After a check that failed. */
static inline void say_error(sherd_world *world)
{
    fprintf(stderr, "  %s\n", sherd_world_error(world));
}

#endif
