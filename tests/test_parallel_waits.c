/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random wrong programs in which some ranks wait in a move, others in a channel, in a function that
 * all ranks call, or for a tensor that others still read: none waits until the time-out, all get one
 * status, and the world goes on.
 */
#include "tensors.h"

#include "sherd/ops.h"
#include "sherd/pipeline.h"

enum { MESHES = 3, STEPS = 12, MOST = 4, LENGTH = 64 };

typedef enum action { MOVE, BEGIN, READ, WRITE, SUM, SEND, RECEIVE, PASS, PASS_MANY, MEET } action;
enum { ACTIONS = MEET + 1 };

typedef struct scene {
    sherd_world *world;
    int rank, ranks;
    const sherd_mesh *mesh[MESHES], *alone[MOST];
    sherd_channel *channel[MOST][MOST];
    sherd_tensor *t[MESHES], *begun[MESHES];
} scene;

typedef struct step {
    action what;
    int mesh, from, to;
} step;

static unsigned draw(uint64_t *state, unsigned below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(*state >> 33) % below;
}

static step draw_step(uint64_t *state, int ranks)
{
    step s = {.what = (action)draw(state, ACTIONS), .mesh = (int)draw(state, MESHES)};

    s.from = (int)draw(state, (unsigned)ranks);
    s.to = (s.from + 1 + (int)draw(state, (unsigned)ranks - 1)) % ranks;
    return s;
}

/* All ranks, the first two, all but the first; and a channel from each rank to each other. */
static void open_scene(scene *s, sherd_world *world)
{
    static const char *const last[] = {"", "", "h=1@1", "h=2@1,2", "h=3@1,2,3"};
    char text[16];

    *s =
        (scene){.world = world, .rank = sherd_world_rank(world), .ranks = sherd_world_ranks(world)};
    s->mesh[0] = line_of_ranks(world);
    s->mesh[1] = mesh_of(world, "l=2@0,1");
    s->mesh[2] = mesh_of(world, last[s->ranks]);
    for (int r = 0; r < s->ranks; r++) {
        snprintf(text, sizeof text, "s=1@%d", r);
        s->alone[r] = mesh_of(world, text);
    }
    for (int i = 0; i < s->ranks; i++)
        for (int j = 0; j < s->ranks; j++)
            if (i != j)
                CHECK_OK(sherd_channel_create(&s->channel[i][j], s->alone[i], s->alone[j], NULL));
}

static void close_scene(scene *s)
{
    for (int i = 0; i < s->ranks; i++)
        for (int j = 0; j < s->ranks; j++)
            sherd_channel_destroy(s->channel[i][j]);
}

static sherd_tensor *spread(const sherd_mesh *mesh, const char *how)
{
    const int64_t length = LENGTH;

    return sherd_constant_on(layout_of(mesh, 1, &length, how, NULL), SHERD_F32, 1);
}

static void use_channel(scene *s, const step *at)
{
    sherd_channel *c = s->channel[at->from][at->to];
    int times = at->what == PASS_MANY ? 9 : 1; /* more than are sent ahead */

    for (int i = 0; i < times; i++) {
        sherd_tensor *t[MESHES];
        for (int k = 0; k <= at->mesh && s->rank == at->from; k++)
            t[k] = spread(s->alone[s->rank], "R");
        if (s->rank == at->from && at->what != RECEIVE)
            sherd_channel_send(c, t, at->mesh + 1);
        if (s->rank == at->to && at->what != SEND)
            sherd_channel_receive(c, t, at->mesh + 1);
    }
}

static void run_step(scene *s, const step *at)
{
    sherd_tensor *t = s->t[at->mesh], **begun = &s->begun[at->mesh];
    int64_t most;

    if (at->what == MEET)
        (void)!sherd_world_most(&most, s->world, 1);
    else if (at->what >= SEND)
        use_channel(s, at);
    else if (!t)
        return;
    else if (at->what == MOVE)
        sherd_redistribute_to(t, "R", NULL);
    else if (at->what == BEGIN)
        *begun = sherd_redistribute_to(t, "R", &(sherd_redistribute_options){.begin = true});
    else if (at->what == READ && *begun)
        (void)sherd_tensor_read(*begun);
    else if (at->what == WRITE)
        (void)sherd_tensor_write(t);
    else if (at->what == SUM)
        (void)sherd_tensor_read(sherd_redistribute_to(sherd_sum(t), "R", NULL));
}

/* A program for all ranks, in which each step of each may be another one. */
static void run_program(scene *s, uint64_t seed, unsigned rate)
{
    uint64_t common = seed, own = seed * 31 + (uint64_t)s->rank;

    sherd_scope_begin(s->world);
    for (int m = 0; m < MESHES; m++) {
        bool here = sherd_mesh_coordinate(s->mesh[m], s->rank, NULL);
        s->t[m] = here ? spread(s->mesh[m], "S(0)") : NULL;
        s->begun[m] = NULL;
    }
    for (int i = 0; i < STEPS; i++) {
        step at = draw_step(&common, s->ranks), other = draw_step(&own, s->ranks);
        run_step(s, draw(&own, rate) ? &at : &other);
    }
    sherd_scope_end(s->world);
}

static void whatever_ranks_wait_in_is_found(sherd_world *world)
{
    int programs = getenv("SHERD_PROOF") ? 5000 : 80, wrong = 0;
    scene s;

    open_scene(&s, world);
    for (int i = 0; i < programs; i++) {
        run_program(&s, (uint64_t)i * 7919 + 17, i % 2 ? 10 : 40);
        sherd_status status = sherd_world_check(world);
        if (!CHECK(status == SHERD_OK || status == SHERD_EDIFFER || status == SHERD_EINVAL))
            fprintf(stderr, "  program %d: %s\n", i, sherd_world_error(world));
        check_same(world, status);
        wrong += status == SHERD_EDIFFER;
    }
    CHECK(wrong > programs / 4);
    close_scene(&s);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {{TEST(whatever_ranks_wait_in_is_found), {2, 3, 4}}};
CHECK_MAIN(tests)
