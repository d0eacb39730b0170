/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong first is what all ranks learn, also where its alarm comes late to one of them, and
 * what followed from it comes before: a rank that has heard it leaves out its calls, and stands at
 * the next check without them. Who waits for those would take that for the error.
 */
#include "post_world.h"

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
static void fail_first(sherd_world *world, post_office *office)
{
    int rank = sherd_world_rank(world);
    crossing c;

    crossing_open(&c, world, 5);
    set_slow((slow_office *)office);
    if (rank == 2)
        sherd_world_fail(world, SHERD_ENOTSUP, "fails first");
    while (rank == 1 && !sherd__alarmed(world))
        sherd__remote_poll(world);
    if (rank == 0)
        CHECK(!crossing_run(world, &c));
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK_TEXT(sherd_world_error(world), "rank 2: fails first");
    crossing_close(world, &c);
}

static void what_went_wrong_first_is_heard_before_what_follows(void)
{
    slow_office office = {.post = {.sends = note_arrival, .keeps = is_late}};

    play_world(&office.post, fail_first);
    CHECK(office.failed);
}

static const check_test tests[] = {
    {TEST(what_went_wrong_first_is_heard_before_what_follows)},
};

int main(int argc, char **argv)
{
    return play_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
