/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks that share no memory tell each other at meetings: how much, and that all keep the same
 * by it. And whom a rank names that has waited for too long. */
#define CHECK_PURE
#define POST_RANKS 8
#include "check.h"
#include "post_office.h"
#include "world/remote.h"

enum { MESHES = 20, WRITTEN = 1000 };

/* Letters that rank 0 has sent, of what is told at meetings, and their bytes. */
typedef struct counting_office {
    post_office post;
    int letters;
    int64_t bytes;
} counting_office;

static void count(post_office *post, int from, int to, letter *l)
{
    counting_office *o = (counting_office *)post;
    sherd__head head;

    (void)to;
    memcpy(&head, l->head, sizeof head);
    if (from != 0 || head.kind < SHERD__SENT_ALARM || head.kind > SHERD__SENT_TAKEN ||
        head.kind == SHERD__SENT_LANE) /* of who sleeps long */
        return;
    o->letters++;
    o->bytes += (int64_t)l->head_bytes;
}

/* What a rank has found, by mesh. */
typedef struct rank_end {
    seat seat;
    const sherd_mesh *mesh[MESHES + 1];
    int meshes;
    uint64_t made[MESHES + 1], kept[MESHES + 1]; /* deeds: of this rank, and of all */
    int wrote[MESHES + 1];
    int letters[2]; /* rank 0's: at a failed check, and at a good one */
    int64_t bytes[2];
} rank_end;
static _Thread_local rank_end *here;

static void look(sherd_world *world)
{
    for (int i = 0; i < here->meshes; i++) {
        here->kept[i] = 0;
        here->wrote[i] = 0;
        for (uint64_t k = 1; k <= 5; k++)
            here->kept[i] += sherd__deed_loss(world, here->mesh[i], k) != SHERD__NOT_ALL;
        for (int q = 0; q < RANKS; q++)
            here->wrote[i] += sherd__deed_wrote(here->mesh[i], WRITTEN + (uint64_t)q);
    }
}

static sherd_status check(sherd_world *world, int which)
{
    counting_office *o = (counting_office *)here->seat.office;
    int letters = o->letters;
    int64_t bytes = o->bytes;
    sherd_status status = sherd_world_check(world);

    here->letters[which] = o->letters - letters;
    here->bytes[which] = o->bytes - bytes;
    return status;
}

static void do_deed(const sherd_mesh *mesh, const char *name)
{
    uint64_t identity;

    sherd__deed_add(mesh, name, 1, &identity);
}

static void play_in(sherd_world *world)
{
    static const int some[] = {2, 3, 6}; /* a mesh without rank 0 */
    char text[32];

    for (int i = 0; i < MESHES; i++) {
        snprintf(text, sizeof text, "x%d=%d", i, RANKS);
        CHECK_OK(sherd_mesh_parse(&here->mesh[i], world, text));
    }
    CHECK_OK(sherd_mesh_create(&here->mesh[MESHES], world, 1, (int64_t[]){LEN(some)}, NULL, some));
    sherd__world_watch(world, &(sherd__watcher){.after_failure = look});
    for (int i = 0; i <= MESHES; i++)
        do_deed(here->mesh[i], "alike");
    CHECK_OK(check(world, 1));
    here->meshes = MESHES + 1;
    for (int i = 0; i <= MESHES; i += 4) {
        do_deed(here->mesh[i], "alike");
        sherd__deed_writes(here->mesh[i], WRITTEN + (uint64_t)world->rank);
        if (world->rank % 3 == i % 3)
            do_deed(here->mesh[i], "more");
    }
    if (world->rank == RANKS - 1)
        sherd_world_fail(world, SHERD_EINVAL, "on purpose");
    CHECK(check(world, 0) != SHERD_OK);
    for (int i = 0; i <= MESHES; i++) {
        here->made[i] = sherd__deed_count(here->mesh[i]);
        do_deed(here->mesh[i], "alike");
    }
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(check(world, 1));
}

static void *play(void *memory)
{
    const sherd_world_options options = {.region_bytes = 4 << 20, .no_pin = true};
    sherd_world *world = NULL;

    here = memory;
    sherd_carrier carrier = carrier_of(&here->seat);
    if (!CHECK_OK(sherd_world_open_with(&world, &carrier, &options)))
        return NULL;
    play_in(world);
    CHECK_OK(sherd_world_close(world));
    return NULL;
}

static void play_all(rank_end *end)
{
    counting_office office = {.post = {.sends = count}};

    for (int r = 0; r < RANKS; r++)
        end[r] = (rank_end){.seat = {.office = &office.post, .rank = r}};
    setenv("SHERD_TRANSPORT", "mpi", 1);
    play_at(&office.post, play, end, sizeof *end);
    unsetenv("SHERD_TRANSPORT");
}

/* The alarm, the arrival, the verdict, that it was taken, and what is left of all meshes. */
static void a_failed_check_takes_a_few_letters_to_each_rank(void)
{
    rank_end end[RANKS];

    play_all(end);
    CHECK(end[0].letters[0] >= 4 * (RANKS - 1));
    CHECK(end[0].letters[0] <= 6 * (RANKS - 1));
    CHECK(end[0].bytes[0] / (RANKS - 1) < 4 * (SHERD_ERROR_BYTES + 256) + MESHES * 100);
    CHECK_EQ(end[0].letters[1], 2 * (RANKS - 1));
}

/* As many deeds count on all, and all have lost the same, in whatever mesh. */
static void all_ranks_keep_the_same(void)
{
    rank_end end[RANKS];

    play_all(end);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i <= MESHES; i++) {
            bool inside = i < MESHES || r == 2 || r == 3 || r == 6;
            bool used = i % 4 == 0;
            int first = i < MESHES ? 0 : 2, writers = i < MESHES ? RANKS : 3;
            CHECK_EQ(end[r].kept[i], !inside ? 5 : used ? 2 : 1);
            CHECK_EQ(end[r].wrote[i], !inside || !used ? 0 : writers);
            CHECK_EQ(end[r].made[i], !inside ? 0 : end[first].made[i]);
        }
}

/* ---- a meeting that takes too long ----------------------------------------------------------- */

static void dawdle(sherd_world *world)
{
    if (world->rank == 1)
        nanosleep(&(struct timespec){0, 300 * 1000 * 1000}, NULL);
}

/* Rank 2 fails; rank 1 comes to the check, and is late only in taking its verdict. */
static int wait_in_vain(sherd_world *world, void *payload)
{
    (void)payload;
    sherd__world_watch(world, &(sherd__watcher){.after_failure = dawdle});
    if (world->rank == 2)
        sherd_world_fail(world, SHERD_EINVAL, "on purpose");
    world->patience.deadline_ns = world->rank == 1 ? INT64_C(20) << 30 : 80 * 1000 * 1000;
    world->patience.sleep_ns = 10 * 1000 * 1000;
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_EQ(sherd_world_check(world), SHERD_ETIMEDOUT);
    return 0;
}

static void who_does_not_take_a_verdict_is_named(void)
{
    char error[SHERD_ERROR_BYTES] = "";
    const sherd_world_options options = {.ranks = 3, .as = SHERD_THREADS, .error = error};
    int exit_status;

    CHECK_EQ(sherd_spawn(&exit_status, &options, wait_in_vain, NULL), SHERD_ETIMEDOUT);
    if (!CHECK(strstr(error, "(SHERD_TIMEOUT) for rank 1 in sherd_world_check") != NULL))
        fprintf(stderr, "%s\n", error);
}

static const check_test tests[] = {
    {TEST(a_failed_check_takes_a_few_letters_to_each_rank)},
    {TEST(all_ranks_keep_the_same)},
    {TEST(who_does_not_take_a_verdict_is_named)},
};

int main(int argc, char **argv)
{
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
