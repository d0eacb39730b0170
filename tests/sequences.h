/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of attention over sequences: a case, and tensors for it. */
#ifndef SHERD_TESTS_SEQUENCES_H
#define SHERD_TESTS_SEQUENCES_H

#include "tensors.h"

#include "sherd/autograd.h"
#include "sherd/comm.h"
#include "sherd/ops.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_reductions.h"

enum { BATCH = 2, HEADS = 4, WIDTH = 3, POSITIONS = 16, MEMORY = 9, PARTS = 4 };
enum { Q, K, V, MASK, OPERANDS };
enum { EVEN, UNEVEN, EMPTY, CUTS };
enum { NO_MASK, KEYS, PAIRS, ADDED, MASKS };

/* One case. */
typedef struct scene {
    sherd_world *world;
    const sherd_mesh *mesh;
    const char *placements; /* of q; k's follow */
    sherd_dtype dtype;
    sherd_attention_way way;
    int cuts, mask;
    int64_t groups, keys;
    bool causal;
    double dropout;
} scene;

static inline sherd_tensor *numbers(const scene *s, uint64_t seed, int ndim, const int64_t *shape)
{
    sherd_generator g = sherd_generator_named("test");

    g.calls = seed;
    return sherd_random(s->world, s->dtype, shape, ndim, sherd_uniform(-1, 1), &g);
}

static inline const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static inline sherd_tensor *constant(const scene *s, int ndim, const int64_t *shape,
                                     const char *how)
{
    return sherd_constant_on(layout_of(s->mesh, ndim, shape, how, NULL), s->dtype, 0.5);
}

/* Of up to 4 ranks: shards shorter and longer than spans and windows, some of a row, or of none. */
static const char *const cuts_of[][3] = {{"R", "R", "R"},
                                         {"S(1)", "S(1)", "S(1)"},
                                         {"S(1)", "S(1) 1:5,11", "S(1) 1:0,16"},
                                         {"S(1)", "S(1) 1:9,1,6", "S(1) 1:7,0,9"},
                                         {"S(1)", "S(1) 1:3,5,1,7", "S(1) 1:0,9,0,7"}};

/* The squares of the gradients of a loss at q, k and v, to be differentiated again. */
static inline sherd_tensor *gradients_of(sherd_tensor *loss, sherd_tensor *const *x)
{
    const sherd_gradients_options recorded = {.create_graph = true};
    sherd_tensor *grad[3];

    sherd_gradients(grad, x, 3, &loss, 1, &recorded);
    for (int i = Q; i <= V; i++) {
        sherd_tensor *more = sherd_sum(sherd_mul(grad[i], grad[i]));
        loss = i ? sherd_add(loss, more) : more;
    }
    return loss;
}

#endif
