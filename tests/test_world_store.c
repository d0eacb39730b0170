/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of a region under every kind of use: sizes that never come again, live sets that come and
 * go, calls in flight. The region stays near what is live, blocks never overlap, and what nobody
 * needs goes back to the kernel.
 */
#include "check.h"
#include "world/inside.h"

enum { KB = 1 << 10, MB = 1 << 20, SLOTS = 192, WORDS = 64 };

/* ---- what must hold of a region -------------------------------------------------------------- */

/*
 * Blocks lie one behind the other, know each other, and add up; no two that were joined lie side by
 * side. *needed = bytes that somebody has, or that calls are still open on.
 */
static bool is_sound(sherd_world *world, size_t *needed)
{
    const sherd__store *store = &world->store;
    unsigned char *at = store->base;
    const sherd__block *before = NULL;
    /* One for less gets what would be left over too, if that is no block of its own. */
    size_t lent = 0, unaligned = MB + store->header + 256;
    bool good = true;

    *needed = 0;
    while (good && at < store->base + store->used) {
        sherd__block *block = (sherd__block *)(void *)at;
        bool joined = block->use == SHERD__JOINED;
        size_t all = (size_t)(block->data - at) + block->room;
        good = block->data > at && block->before == before &&
               block->data + block->room <= store->base + store->used &&
               !(joined && before && before->use == SHERD__JOINED) &&
               (joined || block->room < unaligned || (uintptr_t)block->data % 4096 == 0);
        lent += block->use == SHERD__LENT ? all : 0;
        *needed += !sherd__settled(world, block) || block->use == SHERD__LENT ? all : 0;
        before = block;
        at += all;
    }
    return CHECK(good) && CHECK(store->last == before) && CHECK_EQ(lent, store->lent) &&
           CHECK(!before || before->use != SHERD__JOINED);
}

/* ---- random sizes ---------------------------------------------------------------------------- */

static int64_t even(uint64_t *dice)
{
    return WORDS * 8 + roll(dice, 400 * KB);
}

/* As many below 1 KB as between 1 and 2 KB, and so on up to 1 MB. */
static int64_t wide(uint64_t *dice)
{
    int64_t least = (int64_t)512 << roll(dice, 11);

    return least + roll(dice, (int)least);
}

static int64_t small_or_large(uint64_t *dice)
{
    return roll(dice, 10) ? WORDS * 8 + roll(dice, 4 * KB) : MB + roll(dice, 2 * MB);
}

/* Just above a power of two. */
static int64_t awkward(uint64_t *dice)
{
    return ((int64_t)KB << roll(dice, 10)) + 1 + roll(dice, 100);
}

static int64_t large(uint64_t *dice)
{
    return 900 * KB + roll(dice, 600 * KB);
}

/* How blocks live: replaced one by one; more of them and fewer; all gone now and then; the last one
 * goes first. */
typedef enum life { ONE_BY_ONE, TIDES, CLEARINGS, STACK, LIVES } life;

typedef struct play {
    int64_t (*size)(uint64_t *dice);
    life life;
    sherd_world *world;
    const sherd_plan *plan; /* NULL: no calls */
    uint64_t dice, shared;  /* the second one falls the same way on all ranks */
    sherd__block *block[SLOTS];
    size_t used, needed; /* the most so far */
} play;

static void mark(sherd__block *block)
{
    unsigned char *x = sherd__block_data(block);
    uint64_t bytes = (uint64_t)sherd__block_bytes(block);

    memcpy(x + bytes - 8, &bytes, 8);
    memcpy(x, &block, 8);
}

static bool is_marked(sherd__block *block)
{
    const unsigned char *x = sherd__block_data(block);
    uint64_t bytes = (uint64_t)sherd__block_bytes(block);

    return memcmp(x, &block, 8) == 0 && memcmp(x + bytes - 8, &bytes, 8) == 0;
}

static void give(play *p, int i)
{
    if (!p->block[i])
        return;
    CHECK(is_marked(p->block[i]));
    sherd__block_give(p->world, p->block[i]);
    p->block[i] = NULL;
}

static void take(play *p, int i)
{
    size_t needed = 0;

    if (!CHECK((p->block[i] = sherd__block_take(p->world, p->size(&p->dice), true)) != NULL))
        return;
    mark(p->block[i]);
    if (p->world->store.used <= p->used)
        return;
    p->used = p->world->store.used;
    is_sound(p->world, &needed);
    if (needed > p->needed)
        p->needed = needed;
}

/* All add up the first words of a block of any size; it and the result are given back while calls
 * may be open on them. */
static void publish(play *p, int turn)
{
    static const int64_t stride = 1;
    int ranks = sherd_world_ranks(p->world), me = sherd_world_rank(p->world), wrong = 0;
    sherd__block *source = sherd__block_take(p->world, p->size(&p->dice), true);
    sherd__block *result = sherd__block_take(p->world, (int64_t)WORDS * 8, true);
    sherd__move move = {.plan = p->plan,
                        .dtype = SHERD_F64,
                        .source = source,
                        .source_stride = &stride,
                        .result = result};
    bool begin = roll(&p->shared, 2);

    if (!CHECK(source && result))
        return;
    double *x = sherd__block_data(source);
    for (int k = 0; k < WORDS; k++)
        x[k] = turn + k + me;
    CHECK(sherd__call(p->world, "publish", &move, 1, begin));
    x = sherd__block_data(result);
    for (int k = 0; !begin && k < WORDS; k++)
        wrong += x[k] != (double)ranks * (turn + k) + ranks * (ranks - 1) / 2;
    CHECK_EQ(wrong, 0);
    sherd__block_give(p->world, source);
    sherd__block_give(p->world, result);
}

static void one_turn(play *p, int turn)
{
    int i = roll(&p->dice, SLOTS), phase = turn % (2 * SLOTS);

    if (p->life == STACK)
        i = phase < SLOTS ? phase : 2 * SLOTS - 1 - phase;
    for (int k = 0; p->life == CLEARINGS && phase == 0 && k < SLOTS; k++)
        give(p, k);
    give(p, i);
    if (p->life == TIDES && roll(&p->dice, 8) < (turn / 500 % 2 ? 1 : 6))
        return;
    if (p->life != STACK || phase < SLOTS)
        take(p, i);
}

static const sherd_plan *plan_of_words(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    int64_t shape[1] = {(int64_t)WORDS};
    const sherd_mesh *mesh = NULL;
    const sherd_layout *from = NULL, *to = NULL;
    const sherd_plan *plan = NULL;
    sherd_placement sum = sherd_partial(SHERD_SUM), whole = sherd_replicate();

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){ranks}, NULL, NULL));
    CHECK_OK(sherd_layout_create(&from, mesh, 1, shape, &sum, NULL));
    CHECK_OK(sherd_layout_create(&to, mesh, 1, shape, &whole, NULL));
    CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, NULL));
    return plan;
}

/* Each rank draws its own sizes; only the calls are the same. */
static void live(play *p, int turns)
{
    size_t needed = 0;

    for (int turn = 0; turn < turns; turn++) {
        one_turn(p, turn);
        if (p->plan && roll(&p->shared, 8) == 0)
            publish(p, turn);
    }
    is_sound(p->world, &needed);
    for (int i = 0; i < SLOTS; i++)
        give(p, i);
}

/* The region takes at most 1.5 times the most that was live; what peers still read can not be used
 * either. */
static void stays_small(sherd_world *world, int64_t (*size)(uint64_t *dice))
{
    int ranks = sherd_world_ranks(world);
    play p = {.size = size, .world = world, .shared = 1};

    p.plan = ranks > 1 ? plan_of_words(world) : NULL;
    p.dice = (uint64_t)1 + 1000 * (uint64_t)sherd_world_rank(world);
    for (int k = 0; k < LIVES; k++) {
        p.life = (life)k;
        live(&p, ranks == 1 ? 25000 : 8000 / ranks);
    }
    size_t most = (size_t)sherd_world_memory(world).peak_bytes;
    most = p.plan && p.needed > most ? p.needed : most;
    CHECK(2 * p.used <= 3 * most);
    CHECK_OK(sherd_world_check(world));
}

static void even_sizes_keep_the_region_small(sherd_world *world)
{
    stays_small(world, even);
}

static void wide_sizes_keep_the_region_small(sherd_world *world)
{
    stays_small(world, wide);
}

static void small_and_large_keep_the_region_small(sherd_world *world)
{
    stays_small(world, small_or_large);
}

static void awkward_sizes_keep_the_region_small(sherd_world *world)
{
    stays_small(world, awkward);
}

static void large_sizes_keep_the_region_small(sherd_world *world)
{
    stays_small(world, large);
}

/* ---- what others ran into -------------------------------------------------------------------- */

/* Nothing else is alive: what small blocks had is there for a large one. */
static void small_blocks_make_room_for_a_large_one(sherd_world *world)
{
    sherd__block *block[300];

    world->store.room = 8 * MB;
    for (int i = 0; i < LEN(block); i++)
        CHECK((block[i] = sherd__block_take(world, 16 * KB, false)) != NULL);
    for (int i = 0; i < LEN(block); i++)
        sherd__block_give(world, block[i]);
    for (int bytes = 4 * MB; bytes < 8 * MB; bytes += MB) {
        CHECK((block[0] = sherd__block_take(world, bytes, false)) != NULL);
        sherd__block_give(world, block[0]);
    }
    CHECK_OK(sherd_world_check(world));
}

/* One block lives at a time, each larger than the one before: the region is never much larger than
 * the last. */
static void a_growing_block_does_not_leave_its_past_behind(sherd_world *world)
{
    for (int64_t bytes = 64 * KB; bytes <= 64 * MB; bytes += 64 * KB) {
        sherd__block *block = sherd__block_take(world, bytes, false);
        CHECK((int64_t)world->store.used <= bytes + bytes / 32 + 2 * MB);
        sherd__block_give(world, block);
    }
    CHECK((int64_t)world->store.held <= 80 * MB);
}

/* Another size in each step, gathered from all ranks, in a region that has room for little more. */
static void changing_sizes_fit_into_a_small_region(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;
    sherd_placement rows = sherd_shard(0), whole = sherd_replicate();
    static const int64_t stride = 1;

    world->store.room = 4 * MB;
    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){ranks}, NULL, NULL));
    for (int turn = 1; turn <= 400; turn++) {
        int64_t count = 1000 + turn * 7919 % 400000, mine = (count + ranks - 1) / ranks;
        const sherd_layout *from = NULL, *to = NULL;
        const sherd_plan *plan = NULL;
        CHECK_OK(sherd_layout_create(&from, mesh, 1, &count, &rows, NULL));
        CHECK_OK(sherd_layout_create(&to, mesh, 1, &count, &whole, NULL));
        CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F32, NULL));
        sherd__block *source = sherd__block_take(world, 4 * mine, true);
        sherd__block *result = sherd__block_take(world, 4 * count, true);
        sherd__move move = {.plan = plan,
                            .dtype = SHERD_F32,
                            .source = source,
                            .source_stride = &stride,
                            .result = result};
        if (!CHECK(source && result &&
                   (ranks == 1 || sherd__call(world, "gather", &move, 1, false))))
            break;
        sherd__block_give(world, source);
        sherd__block_give(world, result);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Bytes of shared memory that this process has in its page tables. */
static int64_t shared_bytes(void)
{
    char line[200];
    long long kb = -1;
    FILE *file = fopen("/proc/self/status", "r");

    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssShmem: %lld", &kb) == 1)
            break;
    if (file)
        fclose(file);
    return kb * KB;
}

static void use(sherd_world *world, int64_t bytes, int times)
{
    for (int i = 0; i < times; i++) {
        sherd__block *block = sherd__block_take(world, bytes, false);
        if (CHECK(block != NULL))
            memset(sherd__block_data(block), 1, (size_t)bytes);
        sherd__block_give(world, block);
    }
}

static void what_lies_unused_goes_back(sherd_world *world)
{
    int64_t before = shared_bytes();

    use(world, 100 * MB, 2);
    CHECK(shared_bytes() - before >= 100 * MB);
    CHECK((int64_t)world->store.held >= 100 * MB);
    use(world, MB, 6000); /* two spells */
    CHECK(shared_bytes() - before <= 8 * MB);
    CHECK((int64_t)world->store.held <= 8 * MB);
    use(world, 100 * MB, 1); /* and is there again */
    CHECK(shared_bytes() - before >= 100 * MB);
}

/* Not one chunk is forgotten, wherever the free stretch ends. */
static void nothing_is_held_where_nothing_is_used(sherd_world *world)
{
    for (int64_t bytes = 1; bytes < 40 * MB; bytes += 200 * KB) {
        sherd__block_give(world, sherd__block_take(world, bytes, false));
        CHECK(world->store.held > 0);
        sherd__store_scarce(world, true);
        CHECK_EQ(world->store.held, 0);
        sherd__store_scarce(world, false);
    }
}

/* What is needed again and again, only seldom, is given back a few times and then no more. */
static void what_is_needed_again_is_kept_longer(sherd_world *world)
{
    int64_t last = 0;
    int times = 0;

    for (int turn = 0; turn < 400; turn++) {
        use(world, 8 * MB, 1);
        if ((int64_t)world->store.held < last)
            times++;
        for (int i = 0; i < 400; i++) {
            sherd__block *block = sherd__block_take(world, MB, false);
            sherd__block_give(world, block);
            times += (int64_t)world->store.held < last;
            last = (int64_t)world->store.held;
        }
    }
    CHECK(times > 0 && times < 12);
}

static const check_test tests[] = {
    {TEST(even_sizes_keep_the_region_small), {1, 3, 8}},
    {TEST(wide_sizes_keep_the_region_small), {1, 3, 8}},
    {TEST(small_and_large_keep_the_region_small), {1, 3, 8}},
    {TEST(awkward_sizes_keep_the_region_small), {1, 3, 8}},
    {TEST(large_sizes_keep_the_region_small), {1, 3, 8}},
    {TEST(small_blocks_make_room_for_a_large_one), {1}},
    {TEST(a_growing_block_does_not_leave_its_past_behind), {1}},
    {TEST(changing_sizes_fit_into_a_small_region), {1, 2, 4}},
    {TEST(what_lies_unused_goes_back), {1}},
    {TEST(nothing_is_held_where_nothing_is_used), {1}},
    {TEST(what_is_needed_again_is_kept_longer), {1}},
};
CHECK_MAIN(tests)
