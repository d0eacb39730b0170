/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds whose ranks are threads that send each other letters by a post office, and a move from rows
 * to columns in such a world: each rank needs something of each other one.
 */
#ifndef SHERD_POST_WORLD_H
#define SHERD_POST_WORLD_H

#define CHECK_PURE
#include "world_moves.h"
#include "post_office.h"
#include "world/remote.h"

enum { REGION = 64 << 20 };

typedef struct player {
    seat seat;
    void (*body)(sherd_world *world, post_office *office);
} player;

static inline void *play_one(void *memory)
{
    player *p = memory;
    sherd_carrier carrier = carrier_of(&p->seat);
    sherd_world_options options = {.region_bytes = REGION, .no_pin = true};
    sherd_world *world = NULL;

    CHECK_OK(sherd_world_open_with(&world, &carrier, &options));
    p->body(world, p->seat.office);
    CHECK_OK(sherd_world_close(world));
    return NULL;
}

/* Open a world, run the body on all ranks, and close it. */
static inline void play_world(post_office *o, void (*body)(sherd_world *, post_office *))
{
    player players[RANKS];

    for (int r = 0; r < RANKS; r++)
        players[r] = (player){{.office = o, .rank = r}, body};
    play_at(o, play_one, players, sizeof *players);
}

typedef struct crossing {
    pair p;
    tensor from, to;
    sherd__move move;
} crossing;

static inline void crossing_open(crossing *c, sherd_world *world, int64_t columns)
{
    const sherd_mesh *mesh = NULL;
    const sherd_plan *plan = NULL;
    int64_t shape[2] = {7, columns};
    sherd_placement rows = sherd_shard(0), across = sherd_shard(1);

    c->p = (pair){.op = SHERD_SUM};
    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){RANKS}, NULL, NULL));
    CHECK_OK(sherd_layout_create(&c->p.from, mesh, 2, shape, &rows, NULL));
    CHECK_OK(sherd_layout_create(&c->p.to, mesh, 2, shape, &across, NULL));
    CHECK_OK(sherd_plan_create(&plan, c->p.from, c->p.to, SHERD_F64, NULL));
    c->from = make(world, c->p.from);
    c->to = make(world, c->p.to);
    fill(world, &c->p, &c->from);
    c->move = move_of(plan, &c->from, &c->to);
    CHECK_OK(sherd_world_check(world));
}

static inline bool crossing_run(sherd_world *world, const crossing *c)
{
    return sherd__call(world, "test", &c->move, 1, false);
}

/* It still brings what it should. */
static inline void crossing_close(sherd_world *world, crossing *c)
{
    CHECK(crossing_run(world, c));
    CHECK_EQ(count_wrong(world, &c->p, &c->to), 0);
    sherd__block_give(world, c->from.block);
    sherd__block_give(world, c->to.block);
    CHECK_OK(sherd_world_check(world));
}

/* Ranks that share no memory, and wait for each other for 20 seconds at most. */
static inline int play_main(const check_test *tests, int count, const char *only)
{
    setenv("SHERD_TRANSPORT", "mpi", 1);
    setenv("SHERD_TIMEOUT", "20", 1);
    return check_main(tests, count, only);
}

#endif
