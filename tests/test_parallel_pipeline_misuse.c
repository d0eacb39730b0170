/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of channels and pipelines: see misuse.h. */
#include <math.h>

#include "misuse.h"
#include "sherd/layers.h"
#include "sherd/ops.h"
#include "sherd/parallel.h"
#include "sherd/pipeline.h"

static const sherd_mesh *mesh_of(sherd_world *world, const char *text)
{
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    return mesh;
}

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

MISUSE(a_channel_needs_two_meshes_that_share_nothing)
{
    const sherd_mesh *a = mesh_of(m->world, "x=1"), *b = mesh_of(m->world, "x=1@1"),
                     *both = mesh_of(m->world, "x=2"), *grid = mesh_of(m->world, "y=1,x=1@1"),
                     *part = NULL;
    sherd_channel *c = NULL;

    CHECK_OK(sherd_mesh_slice(&part, grid, 1, (const char *[]){"x"}));
    ALL_REFUSE(SHERD_EINVAL, sherd_channel_create(NUL(&c), a, b, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_channel_create(&c, NUL(a), b, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_channel_create(&c, a, NUL(b), NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_channel_create(&c, a, BAD(a, b), NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_channel_create(&c, a, BAD(both, b), NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_channel_create(&c, a, BAD(part, b), NULL));
    CHECK(c == NULL);
    ONLY_SAYS(SHERD_EINVAL, sherd_channel_create(&c, NULL, NULL, NULL));
    if (m->alone)
        ALL_REFUSE(SHERD_EDIFFER, sherd_channel_create(&c, a, b, BAD("R", NULL)));
    sherd_channel_destroy(NULL);
}

MISUSE(what_travels_is_a_list_of_tensors_of_the_right_ranks)
{
    const sherd_mesh *a = mesh_of(m->world, "x=1"), *b = mesh_of(m->world, "x=1@1");
    int rank = sherd_world_rank(m->world);
    int64_t shape[1] = {3};
    const sherd_layout *layout = NULL;
    sherd_channel *c = NULL, *bad = NULL;
    sherd_tensor *y[SHERD_MAX_ARGS + 1] = {NULL}, *null[1] = {NULL};

    CHECK_OK(sherd_channel_create(&c, a, b, NULL));
    CHECK_OK(sherd_channel_create(&bad, a, b, "S(3)"));
    CHECK_OK(sherd_layout_parse_placements(&layout, rank == 0 ? a : b, 1, shape, "R", NULL));
    sherd_tensor *t = sherd_constant_on(layout, SHERD_F32, 1),
                 *own = sherd_from_data(m->world, SHERD_F32, shape, 1, (float[]){1, 2, 3});
    sherd_channel_receive(NULL, y, 1);
    sherd_channel_send(NULL, &t, 1);
    ANSWERS(y[0] == NULL);
    if (!m->alone) { /* who is wrong depends on the channel, not on the way */
        FAILS(SHERD_EINVAL, rank == 1 ? sherd_channel_send(c, &t, 1) : (void)0);
        FAILS(SHERD_EINVAL, rank == 0 ? sherd_channel_receive(c, y, 1) : (void)0);
        FAILS(SHERD_EINVAL, rank == 0 ? sherd_channel_send(c, null, 1) : (void)0);
        CHECK(strstr(sherd_world_error(m->world), "tensor 0 is NULL") != NULL);
        FAILS(SHERD_EINVAL, rank == 0 ? sherd_channel_send(c, NULL, 1) : (void)0);
        FAILS(SHERD_EINVAL, rank == 0 ? sherd_channel_send(c, &t, -1) : (void)0);
        FAILS(SHERD_EINVAL, rank == 0 ? sherd_channel_send(c, &t, SHERD_MAX_ARGS + 1) : (void)0);
        FAILS(SHERD_EINVAL, rank == 0 ? sherd_channel_send(c, &own, 1) : (void)0);
        FAILS(SHERD_EINVAL, rank == 0 ? sherd_channel_send(bad, &t, 1) : (void)0);
        FAILS(SHERD_EINVAL, rank == 1 ? sherd_channel_receive(c, NULL, 1) : (void)0);
        FAILS(SHERD_EINVAL, rank == 1 ? sherd_channel_receive(c, y, -1) : (void)0);
        FAILS(SHERD_EINVAL, rank == 1 ? sherd_channel_receive(c, y, SHERD_MAX_ARGS + 1) : (void)0);
    }
    sherd_channel_destroy(bad);
    sherd_channel_destroy(c);
}

static sherd_module *linear(sherd_world *world)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_linear_create(&m, world, 4, 4, NULL));
    return m;
}

MISUSE(a_pipeline_needs_stages_that_come_round)
{
    const sherd_mesh *a = mesh_of(m->world, "x=1"), *b = mesh_of(m->world, "x=1@1"),
                     *both = mesh_of(m->world, "x=2"), *grid = mesh_of(m->world, "y=1,x=1@1"),
                     *part = NULL;
    sherd_module *layer = linear(m->world);
    sherd_pipeline *p = NULL;
    const sherd_stage good[] = {{a, layer, NULL}, {b, layer, NULL}, {a, layer, NULL}};
    const sherd_stage none[] = {{NULL, layer, NULL}, {b, layer, NULL}};
    const sherd_stage empty[] = {{a, NULL, NULL}, {b, NULL, NULL}};
    const sherd_stage shared[] = {{a, layer, NULL}, {both, layer, NULL}};
    const sherd_stage round[] = {
        {a, layer, NULL}, {b, layer, NULL}, {a, layer, NULL}, {b, layer, NULL}};
    const sherd_stage back[] = {
        {a, layer, NULL}, {b, layer, NULL}, {b, layer, NULL}, {a, layer, NULL}};
    const sherd_pipeline_schedule V = SHERD_PIPELINE_ZERO_BUBBLE_V;
    const sherd_stage uneven[] = {{a, layer, NULL}, {b, layer, NULL}, {b, layer, NULL}};

    CHECK_OK(sherd_mesh_slice(&part, grid, 1, (const char *[]){"x"}));
    const sherd_stage parts[] = {{a, layer, NULL}, {part, layer, NULL}};
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(NUL(&p), m->world, good, 2, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(&p, m->world, NUL(good), 2, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(&p, m->world, good, BAD(0, 2), 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(&p, m->world, good, BAD(-1, 2), 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(&p, m->world, BAD(none, good), 2, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(&p, m->world, BAD(shared, good), 2, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(&p, m->world, BAD(uneven, good), 3, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(&p, m->world, BAD(parts, good), 2, 0));
    ALL_REFUSE(SHERD_EINVAL,
               sherd_pipeline_create(&p, m->world, good, 2, BAD((sherd_pipeline_schedule)4, 0)));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(&p, m->world, good, BAD(3, 2), BAD(V, 0)));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(&p, m->world, good, BAD(1, 2), BAD(V, 0)));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(&p, m->world, BAD(round, back), 4, V));
    if (sherd_world_ranks(m->world) == 2) /* others need no module */
        ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_create(&p, m->world, BAD(empty, good), 2, 0));
    ONLY_SAYS(SHERD_EINVAL, sherd_pipeline_create(&p, NULL, good, 2, 0));
    CHECK(p == NULL);
    if (m->alone)
        ALL_REFUSE(SHERD_EDIFFER, sherd_pipeline_create(&p, m->world, good, BAD(3, 2), 0));
    sherd_pipeline_destroy(NULL);
    sherd_module_destroy(layer);
}

/* The first of a place's turns; behind them nothing is written. */
static void turns_are_cut_to_their_room(const sherd_pipeline *p)
{
    sherd_pipeline_turn all[8], some[8] = {{0, SHERD_PIPELINE_FORWARD, 0}};

    CHECK_EQ(sherd_pipeline_turns(p, 1, 4, all, LEN(all)), 8);
    CHECK_EQ(sherd_pipeline_turns(p, 1, 4, some, 3), 8);
    for (int i = 0; i < 8; i++) { /* the last of two places does one microbatch after the other */
        bool back = i % 2 == 1, there = i < 3;
        CHECK_EQ(all[i].stage, 1);
        CHECK(all[i].kind == (back ? SHERD_PIPELINE_BACKWARD : SHERD_PIPELINE_FORWARD));
        CHECK_EQ(all[i].microbatch, i / 2);
        CHECK_EQ(some[i].stage, there ? all[i].stage : 0);
        CHECK_EQ(some[i].microbatch, there ? all[i].microbatch : 0);
    }
}

MISUSE(running_needs_microbatches)
{
    sherd_module *layer = linear(m->world);
    const sherd_stage stages[] = {{mesh_of(m->world, "x=1"), layer, NULL},
                                  {mesh_of(m->world, "x=1@1"), layer, NULL}};
    const sherd_microbatches none = {.count = 0}, less = {.count = -3}, many = {.count = INT64_MAX};
    sherd_pipeline *p = NULL;

    CHECK_OK(sherd_pipeline_create(&p, m->world, stages, 2, SHERD_PIPELINE_1F1B));
    ANSWERS(sherd_pipeline_turns(NULL, 0, 4, NULL, 0) == 0);
    ANSWERS(sherd_pipeline_turns(p, -1, 4, NULL, 0) == 0);
    ANSWERS(sherd_pipeline_turns(p, 2, 4, NULL, 0) == 0);
    ANSWERS(sherd_pipeline_turns(p, 0, 0, NULL, 0) == 0);
    ANSWERS(sherd_pipeline_turns(p, 0, INT64_MAX, NULL, 0) == 0);
    ANSWERS(sherd_pipeline_turns(p, 0, (1 << 23) + 1, NULL, 0) == 0);
    ANSWERS(sherd_pipeline_turns(p, 1, 4, NULL, 0) == 8);
    ANSWERS(sherd_pipeline_turns(p, 0, 1, NULL, 0) == 2);
    turns_are_cut_to_their_room(p);
    ANSWERS(isnan(sherd_pipeline_run(NULL, &none)));
    if (!m->alone) {
        FAILS(SHERD_EINVAL, sherd_pipeline_run(p, NULL));
        FAILS(SHERD_EINVAL, sherd_pipeline_run(p, &none));
        FAILS(SHERD_EINVAL, sherd_pipeline_run(p, &less));
        FAILS(SHERD_EINVAL, sherd_pipeline_run(p, &many));
    }
    sherd_pipeline_destroy(p);
    sherd_module_destroy(layer);
}

MISUSE(a_tie_needs_two_parameters_that_are_alike)
{
    sherd_module *layer = linear(m->world), *wide = NULL, *plain = linear(m->world);
    const sherd_mesh *a = mesh_of(m->world, "x=1"), *b = mesh_of(m->world, "x=1@1");
    const sherd_stage stages[] = {
        {a, layer, NULL}, {b, NULL, NULL}, {a, plain, NULL}, {b, NULL, NULL}};
    sherd_stage all[4];
    sherd_pipeline *p = NULL;

    memcpy(all, stages, sizeof all);
    CHECK_OK(sherd_linear_create(&wide, m->world, 5, 4, NULL));
    all[1].module = linear(m->world);
    all[3].module = wide;
    CHECK_OK(sherd_parallelize(layer, a, "x", NULL, 0));
    CHECK_OK(sherd_parallelize(all[1].module, b, "x", NULL, 0));
    CHECK_OK(sherd_parallelize(wide, b, "x", NULL, 0));
    CHECK_OK(sherd_pipeline_create(&p, m->world, all, 4, SHERD_PIPELINE_1F1B));
    ONLY_SAYS(SHERD_EINVAL, sherd_pipeline_tie(NULL, 0, "weight", 1, "weight"));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_tie(p, 0, NUL("weight"), 1, "weight"));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_tie(p, 0, "weight", 1, NUL("weight")));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_tie(p, BAD(-1, 0), "weight", 1, "weight"));
    ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_tie(p, 0, "weight", BAD(4, 1), "weight"));
    if (!m->alone) {
        ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_tie(p, 0, "weights", 1, "weight"));
        ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_tie(p, 0, "net.weight", 1, "weight"));
        ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_tie(p, 0, "weight", 1, "."));
        ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_tie(p, 0, "weight", 2, "weight"));
        ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_tie(p, 0, "weight", 3, "weight"));
        CHECK_OK(sherd_pipeline_tie(p, 0, "weight", 1, "weight"));
        ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_tie(p, 0, "weight", 1, "weight"));
        ALL_REFUSE(SHERD_EINVAL, sherd_pipeline_tie(p, 1, "weight", 0, "weight"));
    }
    if (m->alone)
        ALL_REFUSE(SHERD_EDIFFER, sherd_pipeline_tie(p, 0, "weight", BAD(3, 1), "weight"));
    sherd_pipeline_destroy(p);
    sherd_module_destroy(all[1].module);
    sherd_module_destroy(wide);
    sherd_module_destroy(plain);
    sherd_module_destroy(layer);
}

static const check_test tests[] = {
    {TEST(a_channel_needs_two_meshes_that_share_nothing), {2, 3}},
    {TEST(what_travels_is_a_list_of_tensors_of_the_right_ranks), {2, 3}},
    {TEST(a_pipeline_needs_stages_that_come_round), {2, 3}},
    {TEST(running_needs_microbatches), {2, 3}},
    {TEST(a_tie_needs_two_parameters_that_are_alike), {2, 3}},
};
CHECK_MAIN(tests)
