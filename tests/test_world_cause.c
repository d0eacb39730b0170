/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong first is what all ranks learn, also where its alarm comes late to one of them, and
 * what followed from it comes before: a rank that has heard it leaves out its calls, and stands at
 * the next check without them. Who waits for those would take that for the error.
 */
#define CHECK_PURE
#include "world_moves.h"
#include "post_office.h"
#include "world/remote.h"

enum { REGION = 16 << 20 };

/* Letters of rank 2 to rank 0 are late: until rank 1 has come to the check, and rank 0 too. */
typedef struct slow_office {
    post_office post;
    bool slow, arrived[RANKS];
    bool failed; /* rank 2 has */
} slow_office;

static void note_arrival(post_office *o, int from, int to, letter *l)
{
    slow_office *s = (slow_office *)o;
    sherd__head head;

    (void)to;
    memcpy(&head, l->head, sizeof head);
    s->arrived[from] |= s->slow && head.kind == SHERD__SENT_ARRIVAL;
    s->failed |= from == 2 && head.kind == SHERD__SENT_ALARM;
}

static bool is_late(const post_office *o, int to, const letter *l)
{
    const slow_office *s = (const slow_office *)o;

    return s->slow && !s->arrived[0] && to == 0 && l->from == 2;
}

static void set_slow(slow_office *o)
{
    pthread_mutex_lock(&o->post.mutex);
    o->slow = true;
    pthread_mutex_unlock(&o->post.mutex);
}

/* Rank 2 fails; rank 1, which has heard it, makes no call; rank 0 waits for that one's. */
static void fail_first(sherd_world *world, slow_office *office)
{
    const sherd_mesh *mesh = NULL;
    const sherd_plan *plan = NULL;
    int64_t shape[2] = {7, 5};
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
    set_slow(office);
    if (rank == 2)
        sherd_world_fail(world, SHERD_ENOTSUP, "fails first");
    while (rank == 1 && !sherd__alarmed(world))
        sherd__remote_poll(world);
    if (rank == 0)
        CHECK(!sherd__call(world, "test", &move, 1, false));
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK_TEXT(sherd_world_error(world), "rank 2: fails first");
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
    fail_first(world, (slow_office *)s->office);
    CHECK_OK(sherd_world_close(world));
    return NULL;
}

static void what_went_wrong_first_is_heard_before_what_follows(void)
{
    slow_office office = {.post = {.sends = note_arrival, .keeps = is_late}};
    seat seats[RANKS];

    for (int r = 0; r < RANKS; r++)
        seats[r] = (seat){.office = &office.post, .rank = r};
    play_at(&office.post, play, seats, sizeof *seats);
    CHECK(office.failed);
}

static const check_test tests[] = {
    {TEST(what_went_wrong_first_is_heard_before_what_follows)},
};

int main(int argc, char **argv)
{
    setenv("SHERD_TRANSPORT", "mpi", 1);
    setenv("SHERD_TIMEOUT", "20", 1);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
