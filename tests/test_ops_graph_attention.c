/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on a graph: softmax over the edges of each node, by sherd_index_softmax and by the
 * operators that it is made of. Nodes and edges that are cut unevenly, on any number of ranks, give
 * what one rank gives: weights, sums of messages, gradients, also of gradients.
 */
#include "points.h"

#include <math.h>

#include "sherd/comm.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_index.h"
#include "sherd/ops_reductions.h"

enum { NODES = 53, EDGES = 211, HEADS = 3, WIDTH = 4 };

typedef struct attention {
    sherd_tensor *query, *key, *value; /* [nodes, heads, width] */
    sherd_tensor *source, *target;     /* [edges] */
    sherd_tensor *weight, *sum;        /* [edges, heads], [nodes, heads, width] */
} attention;

/* sum over the edges to a node of softmax(query[target] . key[source]) value[source] */
static void attend(attention *g, bool composed)
{
    static const int last = -1;
    sherd_tensor *asked = sherd_index_select(g->query, 0, g->target);
    sherd_tensor *found = sherd_index_select(g->key, 0, g->source);
    sherd_tensor *score = sherd_sum_over(sherd_mul(asked, found), &last, 1, false);

    if (composed) { /* a maximum as large for all edges of a node changes nothing */
        sherd_tensor *none = sherd_scale(sherd_select(sherd_detach(g->query), 2, 0), 0);
        sherd_tensor *most =
            sherd_index_reduce(none, 0, g->target, sherd_detach(score), SHERD_MAX, false);
        sherd_tensor *e = sherd_exp(sherd_sub(score, sherd_index_select(most, 0, g->target)));
        sherd_tensor *all = sherd_index_add(none, 0, g->target, e);
        g->weight = sherd_div(e, sherd_index_select(all, 0, g->target));
    } else {
        g->weight = sherd_index_softmax(score, 0, g->target, NODES);
    }
    sherd_tensor *message =
        sherd_mul(sherd_index_select(g->value, 0, g->source), sherd_unsqueeze(g->weight, 2));
    g->sum = sherd_index_add(sherd_scale(sherd_detach(g->query), 0), 0, g->target, message);
}

static sherd_tensor *drawn(scene *s, int ndim, const int64_t *shape)
{
    int64_t count = 1;

    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    double *x = malloc(sizeof *x * (size_t)count);
    for (int64_t i = 0; i < count; i++)
        x[i] = 2e-6 * roll(&s->dice, 1000001) - 1;
    sherd_tensor *t = sherd_mark_equal(sherd_from_data(s->world, SHERD_F64, shape, ndim, x));
    free(x);
    return t;
}

static sherd_tensor *laid(const sherd_mesh *mesh, sherd_tensor *t, const char *cuts)
{
    return sherd_distribute(t, layout_of(mesh, t->ndim, t->shape, "S(0)", cuts), -1);
}

static void near(sherd_tensor *y, sherd_tensor *want, double tolerance)
{
    const double *got = sherd_tensor_read(sherd_full(y)), *to = sherd_tensor_read(want);
    int wrong = 0;

    if (!CHECK(got != NULL && to != NULL && y->ndim == want->ndim))
        return;
    for (int64_t i = 0; i < want->count; i++)
        wrong += !(fabs(got[i] - to[i]) <= tolerance);
    CHECK_EQ(wrong, 0);
}

static attention plain_graph(scene *s)
{
    static const int64_t nodes[] = {NODES, HEADS, WIDTH}, edges[] = {EDGES};
    int32_t source[EDGES], target[EDGES];
    attention g;

    for (int64_t e = 0; e < EDGES; e++) { /* near ones, and a node that nobody points to */
        target[e] = (int32_t)(e * (NODES - 1) / EDGES);
        source[e] = (int32_t)((target[e] + roll(&s->dice, 9)) % NODES);
    }
    g.query = sherd_require_grad(drawn(s, 3, nodes), true);
    g.key = sherd_require_grad(drawn(s, 3, nodes), true);
    g.value = sherd_require_grad(drawn(s, 3, nodes), true);
    g.source = sherd_mark_equal(sherd_from_data(s->world, SHERD_I32, edges, 1, source));
    g.target = sherd_mark_equal(sherd_from_data(s->world, SHERD_I32, edges, 1, target));
    return g;
}

static void any_cuts_attend_as_one_rank(sherd_world *world)
{
    static const char *const node_cuts[] = {"", "0:53", "0:20,33", "0:9,30,14", "0:0,20,25,8"};
    static const char *const edge_cuts[] = {"", "0:211", "0:101,110", "0:11,140,60",
                                            "0:70,0,80,61"};
    scene s = {.world = world, .dice = 7};
    int ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int way = 0; way < 4; way++) {
        sherd_scope_begin(world);
        attention want = plain_graph(&s), g;
        const char *nodes = way & 1 ? node_cuts[ranks] : NULL,
                   *edges = way & 1 ? edge_cuts[ranks] : NULL;
        sherd_tensor *dy = drawn(&s, 3, want.query->shape);
        g.query = sherd_require_grad(laid(mesh, sherd_detach(want.query), nodes), true);
        g.key = sherd_require_grad(laid(mesh, sherd_detach(want.key), nodes), true);
        g.value = sherd_require_grad(laid(mesh, sherd_detach(want.value), nodes), true);
        g.source = laid(mesh, want.source, edges);
        g.target = laid(mesh, want.target, edges);
        attend(&want, true);
        attend(&g, way < 2);
        near(g.weight, want.weight, 1e-14);
        near(g.sum, want.sum, 1e-14);
        sherd_tensor *given = laid(mesh, dy, nodes);
        sherd_backward_with(&want.sum, &dy, 1, NULL);
        sherd_backward_with(&g.sum, &given, 1, NULL);
        near(sherd_grad(g.query), sherd_grad(want.query), 1e-13);
        near(sherd_grad(g.key), sherd_grad(want.key), 1e-13);
        near(sherd_grad(g.value), sherd_grad(want.value), 1e-13);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* The values of torch.softmax of each group; of 16 bits to their precision; large ones, -inf. */
static void groups_are_rows_of_softmax(sherd_world *world)
{
    static const int64_t n[] = {7};
    static const double x[] = {1000, .5, 1001, -INFINITY, -1, 2, 1001};
    static const int32_t of[] = {2, 0, 2, 0, 0, 4, 2};
    static const double y[] = {
        0.15536240349696362, 0.8175744761936437, 0.4223187982515182, 0, 0.18242552380635632, 1,
        0.4223187982515182};
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16};
    static const double near_by[] = {1e-15, 1e-7, 4e-3, 5e-4};
    const sherd_layout *l = layout_of(line_of_ranks(world), 1, n, "S(0)", NULL);
    sherd_tensor *at = sherd_distribute(sherd_from_data(world, SHERD_I32, n, 1, of), l, 0);

    for (int i = 0; i < LEN(dtypes); i++) {
        sherd_tensor *a = sherd_distribute(sherd_from_data(world, SHERD_F64, n, 1, x), l, 0);
        sherd_tensor *a16 = sherd_require_grad(sherd_cast(a, dtypes[i]), true);
        sherd_tensor *p = sherd_index_softmax(a16, 0, at, 5);
        CHECK_EQ((int)p->dtype, (int)dtypes[i]);
        const double *got = sherd_tensor_read(sherd_full(sherd_cast(p, SHERD_F64)));
        for (int j = 0; j < 7 && got && dtypes[i] != SHERD_BF16; j++)
            CHECK_NEAR(got[j], y[j], near_by[i]);
        /* the sum of a group does not change */
        sherd_backward(sherd_sum(p));
        got = sherd_tensor_read(sherd_full(sherd_cast(sherd_grad(a16), SHERD_F64)));
        for (int j = 0; j < 7 && CHECK(got != NULL); j++)
            CHECK_NEAR(got[j], 0, near_by[i]);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- lack of memory -------------------------------------------------------------------------- */

/* Of groups that are asked for by owners: 9,000 elements. */
static void softmax_of_many(sherd_world *world)
{
    static const int64_t n[] = {9000};
    const sherd_mesh *mesh = NULL;
    const sherd_layout *l = NULL;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&l, mesh, 1, n, "S(0)", NULL) == SHERD_OK) {
        sherd_tensor *a = sherd_require_grad(sherd_constant_on(l, SHERD_F16, 1), true);
        sherd_tensor *at = sherd_constant_on(l, SHERD_I32, 8000);
        sherd_backward(sherd_sum(sherd_index_softmax(a, 0, at, 9000)));
        sherd_index_reduce(a, 0, at, a, SHERD_PRODUCT, false);
    } else {
        sherd__raise(world, SHERD_ENOMEM, "no layouts");
    }
    sherd_scope_end(world);
}

static void lack_of_memory_is_said_by_all(sherd_world *world)
{
    fail_every_allocation(world, 1, softmax_of_many);
}

static const check_test tests[] = {
    {TEST(any_cuts_attend_as_one_rank), {1, 2, 3, 4}},
    {TEST(groups_are_rows_of_softmax), {1, 2, 3, 8}},
    {TEST(lack_of_memory_is_said_by_all), {2}},
};
CHECK_MAIN(tests)
