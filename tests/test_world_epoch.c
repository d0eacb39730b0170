/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank has sent in an epoch that has failed comes to another when that has left it: the
 * meeting needs nothing of the two for each other. It is for nobody then, and does not stay.
 */
#define CHECK_PURE
#include "world_moves.h"
#include "post_office.h"
#include "world/remote.h"

#include <sched.h>

enum { REGION = 16 << 20 };

/* All letters of rank 1 to rank 2 are late. */
typedef struct slow_office {
    post_office post;
    int64_t columns;
    bool slow, left_epoch;
    int calls; /* that are on their way there */
} slow_office;

static void note_kind(post_office *o, int from, int to, letter *l)
{
    slow_office *s = (slow_office *)o;
    sherd__head head;

    memcpy(&head, l->head, sizeof head);
    s->left_epoch |= from == 2 && head.kind == SHERD__SENT_TAKEN;
    s->calls += from == 1 && to == 2 && head.kind == SHERD__SENT_CALL;
}

static bool is_late(const post_office *o, int to, const letter *l)
{
    const slow_office *s = (const slow_office *)o;

    return s->slow && !s->left_epoch && to == 2 && l->from == 1;
}

static int calls_on_their_way(slow_office *o)
{
    pthread_mutex_lock(&o->post.mutex);
    int calls = o->calls;
    pthread_mutex_unlock(&o->post.mutex);
    return calls;
}

static void be_slow(slow_office *o)
{
    pthread_mutex_lock(&o->post.mutex);
    o->slow = true;
    pthread_mutex_unlock(&o->post.mutex);
}

/* Ranks 0 and 1 make a call that rank 2 does not make: it fails. */
static void fail_alone(sherd_world *world, slow_office *office)
{
    const sherd_mesh *mesh = NULL;
    const sherd_plan *plan = NULL;
    int64_t shape[2] = {7, office->columns};
    int rank = sherd_world_rank(world);
    pair p = {.op = SHERD_SUM};

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){RANKS}, NULL, NULL));
    sherd_placement rows = sherd_shard(0), columns = sherd_shard(1);
    CHECK_OK(sherd_layout_create(&p.from, mesh, 2, shape, &rows, NULL));
    CHECK_OK(sherd_layout_create(&p.to, mesh, 2, shape, &columns, NULL));
    CHECK_OK(sherd_plan_create(&plan, p.from, p.to, SHERD_F64, NULL));
    tensor from = make(world, p.from), to = make(world, p.to);
    fill(world, &p, &from);
    sherd__move move = move_of(plan, &from, &to);
    CHECK_OK(sherd_world_check(world));
    be_slow(office);
    if (rank < 2)
        CHECK(!sherd__call(world, "test", &move, 1, false));
    while (rank == 2 && calls_on_their_way(office) == 0)
        sched_yield();
    if (rank == 2)
        sherd_world_fail(world, SHERD_ENOTSUP, "told to fail");
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    for (int q = 0; q < RANKS; q++)
        for (const sherd__sheet *sheet = world->remote->inbox[q]; sheet; sheet = sheet->next)
            CHECK(sheet->number > world->base);
    CHECK(sherd__call(world, "test", &move, 1, false));
    CHECK_EQ(count_wrong(world, &p, &to), 0);
    sherd__block_give(world, from.block);
    sherd__block_give(world, to.block);
    CHECK_OK(sherd_world_check(world));
}

static void *play(void *memory)
{
    seat *s = memory;
    sherd_carrier carrier = carrier_of(s);
    sherd_world_options options = {.region_bytes = REGION, .no_pin = true};
    sherd_world *world = NULL;

    CHECK_OK(sherd_world_open_with(&world, &carrier, &options));
    fail_alone(world, (slow_office *)s->office);
    CHECK_OK(sherd_world_close(world));
    return NULL;
}

static void what_comes_of_an_epoch_that_is_over_does_not_stay(void)
{
    static const int64_t columns[] = {5, 2000}; /* in the head, and in a body */

    for (int i = 0; i < LEN(columns); i++) {
        slow_office office = {.post = {.sends = note_kind, .keeps = is_late},
                              .columns = columns[i]};
        seat seats[RANKS];
        for (int r = 0; r < RANKS; r++)
            seats[r] = (seat){.office = &office.post, .rank = r};
        play_at(&office.post, play, seats, sizeof *seats);
        CHECK(office.calls > 0);
    }
}

static const check_test tests[] = {
    {TEST(what_comes_of_an_epoch_that_is_over_does_not_stay)},
};

int main(int argc, char **argv)
{
    setenv("SHERD_TRANSPORT", "mpi", 1);
    setenv("SHERD_TIMEOUT", "20", 1);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
