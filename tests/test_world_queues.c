/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of many tensors is as many messages, and each costs what one costs: those on their way are
 * a queue for each rank, and those that have come for a call are a pile.
 */
#include "post_world.h"

#include <sys/resource.h>

enum { MANY = 40, ROWS = 2401 };

/* ---- on their way ---------------------------------------------------------------------------- */

/* A carrier with which nothing is sent until it may be. */
typedef struct slow_carrier {
    bool may_go, good;
    int asked, closed, next[RANKS]; /* the number of what goes next to a rank */
} slow_carrier;

/* What a test writes into a head: whose it is, and its number among those. */
typedef struct numbered_head {
    sherd__head head;
    int to, number;
} numbered_head;

static bool begin_sending(void *self, int to, const sherd_message *m, sherd_sending *sending)
{
    numbered_head head = {.number = -1};

    (void)self;
    if (m->head_bytes == sizeof head) /* else it is a goodbye */
        memcpy(&head, m->head, sizeof head);
    sending->note[0] = (uint64_t)to;
    sending->note[1] = (uint64_t)(int64_t)head.number;
    return true;
}

/* Those to one rank are asked for in their order, and none again once it has gone. */
static bool has_gone(void *self, sherd_sending *sending)
{
    slow_carrier *c = self;

    c->asked++;
    if (c->may_go && sending->note[1] != UINT64_MAX)
        c->good &= sending->note[1] == (uint64_t)c->next[sending->note[0]]++;
    return c->may_go;
}

static bool has_nothing(void *self, int *from, sherd_message *out, const sherd_room *room)
{
    (void)self;
    (void)from;
    (void)out;
    (void)room;
    return false;
}

static void close_slow(void *self, bool well)
{
    ((slow_carrier *)self)->closed++;
    (void)well;
}

static sherd_carrier carrier_slow(slow_carrier *c, int ranks)
{
    return (sherd_carrier){.version = SHERD_CARRIER_VERSION,
                           .name = "a slow one",
                           .ranks = ranks,
                           .self = c,
                           .send = begin_sending,
                           .sent = has_gone,
                           .receive = has_nothing,
                           .close = close_slow};
}

static void send_numbered(sherd__remote *remote, int to, int number)
{
    const numbered_head head = {.to = to, .number = number};
    sherd__sheet *sheet = sherd__sheet_take(remote, sizeof head);

    memcpy(sheet->memory, &head, sizeof head);
    sheet->to = to;
    sheet->message = (sherd_message){sheet->memory, sizeof head, NULL, 0};
    sherd__sheet_send(remote, sheet);
}
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Bytes of private memory that this process has. */
static size_t private_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long kilobytes = 0;
    char line[256];

    while (file && fgets(line, sizeof line, file) && sscanf(line, "VmData: %lu", &kilobytes) != 1)
        ;
    if (file)
        fclose(file);
    return (size_t)kilobytes << 10;
}

/* Who asked for it tells the others by its carrier why nothing is opened, and closes it then. */
static void where_there_is_no_memory_the_carrier_stays_open(void)
{
    slow_carrier c = {.good = true};
    const sherd_carrier carrier = carrier_slow(&c, SHERD_MAX_RANKS);
    sherd__remote *remote = NULL;
    sherd__diag diag = {.status = SHERD_OK};
    struct rlimit before, least;

    CHECK_EQ(getrlimit(RLIMIT_DATA, &before), 0);
    least = before;
    least.rlim_cur = private_bytes() + (512 << 10); /* less than the sheets of so many ranks */
    CHECK_EQ(setrlimit(RLIMIT_DATA, &least), 0);
    sherd_status status = sherd__remote_open(&remote, &carrier, REGION, &diag);
    CHECK_EQ(setrlimit(RLIMIT_DATA, &before), 0);
    CHECK_EQ(status, SHERD_ENOMEM);
    CHECK(!remote);
    CHECK_EQ(c.closed, 0);
}
#endif

/*
 * None goes until all have been sent, and what was sent before is in nobody's way: none of it is
 * asked for again, and each queue is cut behind its first message meanwhile: whoever walked along
 * it would take that for the last, and all behind would be lost.
 */
static void a_message_costs_the_same_behind_thousands(void)
{
    enum { MESSAGES = 4000, BEFORE = 10 };
    slow_carrier c = {.good = true};
    const sherd_carrier carrier = carrier_slow(&c, RANKS);
    sherd__remote *remote = NULL;
    sherd__diag diag = {.status = SHERD_OK};
    sherd__sheet *rest[RANKS] = {NULL};

    CHECK_OK(sherd__remote_open(&remote, &carrier, REGION, &diag));
    for (int i = 0; i < MESSAGES; i++) {
        for (int to = 1; i == BEFORE && to < RANKS; to++) {
            rest[to] = remote->flight[to].first->next;
            remote->flight[to].first->next = NULL;
        }
        send_numbered(remote, 1 + i % 2, i / 2);
    }
    for (int to = 1; to < RANKS; to++)
        remote->flight[to].first->next = rest[to];
    CHECK_EQ(c.asked, MESSAGES); /* once, when it was sent */
    c.may_go = true;
    sherd__arena arena = remote->arena;
    sherd__remote_close(remote, false);
    sherd__arena_unmap(&arena);
    CHECK(c.good);
    CHECK_EQ(c.next[1] + c.next[2], MESSAGES);
    CHECK_EQ(c.asked, 2 * MESSAGES + RANKS - 1);
}

/* ---- what has come --------------------------------------------------------------------------- */

typedef struct counting_office {
    post_office post;
    sherd_world *world[RANKS]; /* NULL: not looked at */
    int longest[RANKS];        /* list of messages of one rank, of what has come to this one */
    int slices[RANKS];         /* the most that lay there at once */
} counting_office;

/* It is asked by the receiver's own thread. Nothing is kept. */
static bool look_at_inbox(const post_office *o, int to, const letter *l)
{
    counting_office *c = (counting_office *)(uintptr_t)o;
    const sherd_world *world = c->world[to];

    (void)l;
    for (int q = 0; world && q < RANKS; q++) {
        int length = 0;
        for (const sherd__sheet *sheet = world->remote->inbox[q]; sheet; sheet = sheet->next) {
            length++;
            if (sheet->kind == SHERD__SENT_SLICE && sheet->count > c->slices[to])
                c->slices[to] = sheet->count;
        }
        c->longest[to] = length > c->longest[to] ? length : c->longest[to];
    }
    return false;
}

/* Twice a sum of many tensors by slices. */
static void sum_many(sherd_world *world)
{
    static const int64_t shape[2] = {ROWS, 5};
    const sherd_mesh *mesh = NULL;
    const sherd_plan *plan = NULL;
    pair p = {.op = SHERD_SUM};
    tensor from[MANY], to[MANY];
    sherd__move moves[MANY];

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){RANKS}, NULL, NULL));
    sherd_placement sum = sherd_partial(SHERD_SUM), all = sherd_replicate();
    CHECK_OK(sherd_layout_create(&p.from, mesh, 2, shape, &sum, NULL));
    CHECK_OK(sherd_layout_create(&p.to, mesh, 2, shape, &all, NULL));
    CHECK_OK(sherd_plan_create(&plan, p.from, p.to, SHERD_F64, NULL));
    CHECK(plan->step[0].sliced);
    for (int i = 0; i < MANY; i++) {
        from[i] = make(world, p.from);
        to[i] = make(world, p.to);
        fill(world, &p, &from[i]);
        moves[i] = move_of(plan, &from[i], &to[i]);
    }
    for (int turn = 0; turn < 2; turn++)
        CHECK(sherd__call(world, "test", moves, MANY, false));
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(count_wrong(world, &p, &to[i]), 0);
        sherd__block_give(world, from[i].block);
        sherd__block_give(world, to[i].block);
    }
    CHECK_OK(sherd_world_check(world));
}

static void watch_sums(sherd_world *world, post_office *office)
{
    sherd_world **watched = &((counting_office *)office)->world[sherd_world_rank(world)];

    *watched = world;
    sum_many(world);
    for (int q = 0; q < RANKS; q++)
        CHECK(!world->remote->inbox[q]);
    *watched = NULL;
}

/* A call and its slices, and those of the one before it or after. */
static void slices_of_a_call_are_one_pile(void)
{
    counting_office office = {.post = {.keeps = look_at_inbox}};

    play_world(&office.post, watch_sums);
    for (int r = 0; r < RANKS; r++) {
        CHECK(office.slices[r] > MANY / 2);
        CHECK(office.longest[r] <= 4);
    }
}

static const check_test tests[] = {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    {TEST(where_there_is_no_memory_the_carrier_stays_open)},
#endif
    {TEST(a_message_costs_the_same_behind_thousands)},
    {TEST(slices_of_a_call_are_one_pile)},
};

int main(int argc, char **argv)
{
    return play_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
