/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank has sent in an epoch that has failed comes to another when that has left it: the
 * meeting needs nothing of the two for each other. It is for nobody then, and does not stay.
 */
#include "post_world.h"

#include <sched.h>

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
static void fail_alone(sherd_world *world, post_office *office)
{
    slow_office *slow = (slow_office *)office;
    int rank = sherd_world_rank(world);
    crossing c;

    crossing_open(&c, world, slow->columns);
    be_slow(slow);
    if (rank < 2)
        CHECK(!crossing_run(world, &c));
    while (rank == 2 && calls_on_their_way(slow) == 0)
        sched_yield();
    if (rank == 2)
        sherd_world_fail(world, SHERD_ENOTSUP, "told to fail");
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    for (int q = 0; q < RANKS; q++)
        for (const sherd__sheet *sheet = world->remote->inbox[q]; sheet; sheet = sheet->next)
            CHECK(sheet->number > world->base);
    crossing_close(world, &c);
}

static void what_comes_of_an_epoch_that_is_over_does_not_stay(void)
{
    static const int64_t columns[] = {5, 2000}; /* in the head, and in a body */

    for (int i = 0; i < LEN(columns); i++) {
        slow_office office = {.post = {.sends = note_kind, .keeps = is_late},
                              .columns = columns[i]};
        play_world(&office.post, fail_alone);
        CHECK(office.calls > 0);
    }
}

static const check_test tests[] = {
    {TEST(what_comes_of_an_epoch_that_is_over_does_not_stay)},
};

int main(int argc, char **argv)
{
    return play_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
