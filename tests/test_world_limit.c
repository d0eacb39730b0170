/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit on tensor memory: it counts for all ranks together, whoever meets it gets the same
 * status as the others, and the world goes on.
 */
#define CHECK_PURE
#include <sys/wait.h>

#include "check.h"
#include "world/inside.h"
#include "launch/launch.h"

enum { KB = 1 << 10, MB = 1 << 20, LIMIT = 32 };

static int spawn(int ranks, sherd_ranks_as as, int (*body)(sherd_world *world, void *payload),
                 char *text)
{
    sherd_world_options options = {.ranks = ranks, .as = as, .no_pin = true, .error = text};
    int exit_status = -1;
    sherd_status status = sherd_spawn(&exit_status, &options, body, NULL);

    check_rank = 0;
    return status ? status : exit_status;
}

/* Blocks of 1 MB that are written, until there is no more; how many. */
static int fill(sherd_world *world, sherd__block **block, int most)
{
    int count = 0;

    while (count < most && (block[count] = sherd__block_take(world, MB, true))) {
        memset(sherd__block_data(block[count]), 1, MB);
        count++;
    }
    return count;
}

static void give_all(sherd_world *world, sherd__block **block, int count)
{
    for (int i = 0; i < count; i++)
        sherd__block_give(world, block[i]);
}

/* All ranks take until one of them gets nothing more; then all are told, and there is room
 * again. */
static int run_into_limit(sherd_world *world, void *payload)
{
    sherd__block *block[2 * LIMIT];
    int ranks = sherd_world_ranks(world);

    (void)payload;
    check_rank = sherd_world_rank(world);
    CHECK_EQ(sherd_world_memory(world).limit_bytes, LIMIT * MB);
    for (int turn = 0; turn < 3; turn++) {
        int count = fill(world, block, 2 * LIMIT);
        CHECK(count < LIMIT);
        CHECK(sherd__alarmed(world));
        CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
        CHECK(strstr(sherd_world_error(world), "out of memory: a tensor of 1048576 bytes") != NULL);
        CHECK(strstr(sherd_world_error(world), "of the limit of 33554432 (SHERD_ARENA_BYTES)"));
        CHECK(sherd__look(&world->arena.control->held) <= LIMIT * MB);
        give_all(world, block, count);
        CHECK_OK(sherd_world_check(world));
        int part = (LIMIT - 4) / ranks - 2;
        CHECK_EQ(count = fill(world, block, part), part);
        give_all(world, block, count);
        CHECK_OK(sherd_world_check(world));
    }
    return 0;
}

static void the_limit_counts_for_all_ranks_together(void)
{
    static const int ranks[] = {1, 2, 3, 4, 8};
    char text[SHERD_ERROR_BYTES] = "";

    setenv("SHERD_ARENA_BYTES", "32M", 1);
    for (int n = 0; n < LEN(ranks); n++)
        for (int as = 0; as < 2; as++)
            CHECK_EQ(spawn(ranks[n], (sherd_ranks_as)as, run_into_limit, text), 0);
    CHECK_TEXT(text, "");
    unsetenv("SHERD_ARENA_BYTES");
}

static int never_run(sherd_world *world, void *payload)
{
    (void)world;
    (void)payload;
    CHECK(false);
    return 0;
}

static void a_malformed_limit_is_refused_on_all_ranks(void)
{
    static const int ranks[] = {1, 3};
    sherd_world *world = NULL;
    char text[SHERD_ERROR_BYTES] = "";

    setenv("SHERD_ARENA_BYTES", "8 GB", 1);
    CHECK_EQ(sherd_world_alone(&world, &(sherd_world_options){.error = text}), SHERD_EINVAL);
    CHECK(world == NULL);
    CHECK(strstr(text, "SHERD_ARENA_BYTES=8 GB: expected a number of bytes") != NULL);
    for (int n = 0; n < LEN(ranks); n++)
        for (int as = 0; as < 2; as++) {
            text[0] = '\0';
            CHECK_EQ(spawn(ranks[n], (sherd_ranks_as)as, never_run, text), SHERD_EINVAL);
            CHECK(strstr(text, "SHERD_ARENA_BYTES=8 GB: expected a number of bytes") != NULL);
        }
    unsetenv("SHERD_ARENA_BYTES");
}

/* A limit that leaves a rank without a piece of memory. */
static void a_limit_below_a_piece_a_rank_is_refused(void)
{
    sherd_world *world = NULL;
    char text[SHERD_ERROR_BYTES] = "";

    setenv("SHERD_ARENA_BYTES", "255K", 1);
    CHECK_EQ(sherd_world_alone(&world, &(sherd_world_options){.error = text}), SHERD_EINVAL);
    CHECK(strstr(text, "in pieces of 256 KB, so 1 ranks need at least 256K") != NULL);
    setenv("SHERD_ARENA_BYTES", "767K", 1);
    CHECK_EQ(spawn(3, SHERD_THREADS, never_run, text), SHERD_EINVAL);
    CHECK(strstr(text, "SHERD_ARENA_BYTES=767K") && strstr(text, "at least 768K"));
    setenv("SHERD_ARENA_BYTES", "256K", 1);
    CHECK_OK(sherd_world_alone(&world, NULL));
    CHECK_OK(sherd_world_close(world));
    unsetenv("SHERD_ARENA_BYTES");
}

/* Else a typing error would be products that are many times slower, without a word. */
static void kernels_that_do_not_exist_are_refused(void)
{
    static const struct {
        const char *variable, *value, *reason;
    } wrong[] = {
        {"SHERD_KERNELS", "AVX2",
         "SHERD_KERNELS=AVX2: expected reference, simd128, avx2, avx512, avx512_bf16 or amx"},
        {"SHERD_GEMM", "oneDNN", "SHERD_GEMM=oneDNN: expected reference, tiles or onednn"}};
    sherd_world *world = NULL;
    char text[SHERD_ERROR_BYTES] = "";

    for (int i = 0; i < LEN(wrong); i++) {
        const char *before = getenv(wrong[i].variable);
        char *kept = before ? strdup(before) : NULL;
        setenv(wrong[i].variable, wrong[i].value, 1);
        CHECK_EQ(sherd_world_alone(&world, &(sherd_world_options){.error = text}), SHERD_EINVAL);
        CHECK(world == NULL && strstr(text, wrong[i].reason) != NULL);
        for (int as = 0; as < 2; as++) {
            text[0] = 0;
            CHECK_EQ(spawn(2, (sherd_ranks_as)as, never_run, text), SHERD_EINVAL);
            CHECK(strstr(text, wrong[i].reason) != NULL);
        }
        setenv(wrong[i].variable, "", 1);
        CHECK_EQ(sherd_world_alone(&world, &(sherd_world_options){.error = text}), SHERD_OK);
        CHECK_EQ(sherd_world_close(world), SHERD_OK);
        if (kept)
            setenv(wrong[i].variable, kept, 1);
        else
            unsetenv(wrong[i].variable);
        free(kept);
    }
}

/* A rank of an arena that is shared by fork, with an environment of its own. */
static int be_rank(const sherd__arena *arena, int rank, const char *limit)
{
    sherd__diag diag = {.rank = -1};
    sherd_world *world = NULL;

    setenv("SHERD_ARENA_BYTES", limit, 1);
    if (sherd__world_join(&world, arena, false, rank, NULL, &diag))
        return 1;
    int64_t bytes = sherd_world_memory(world).limit_bytes;
    return sherd_world_close(world) || bytes != 48 * MB;
}

static void the_smallest_limit_of_all_ranks_counts(void)
{
    static const char *const limits[] = {"64M", "48M", "1G"};
    sherd__diag diag = {.rank = -1};
    sherd__arena arena;
    int status = 0;

    CHECK_OK(sherd__arena_create(&arena, LEN(limits), 0, NULL, &diag));
    fflush(NULL);
    for (int rank = 0; rank < LEN(limits); rank++)
        if (fork() == 0)
            _exit(be_rank(&arena, rank, limits[rank]));
    for (int rank = 0; rank < LEN(limits); rank++) {
        wait(&status);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    sherd__arena_unmap(&arena);
}

static sherd_world *alone(const char *limit)
{
    sherd_world *world = NULL;

    setenv("SHERD_ARENA_BYTES", limit, 1);
    CHECK_OK(sherd_world_alone(&world, NULL));
    unsetenv("SHERD_ARENA_BYTES");
    return world;
}

/* Two stretches of which neither is enough, with something between them that stays: their pages
 * make room elsewhere. */
static void what_lies_idle_is_given_back_first(void)
{
    sherd_world *world = alone("32M");
    sherd__block *low = sherd__block_take(world, 12 * MB, false);
    sherd__block *between = sherd__block_take(world, 100 * KB, false);
    sherd__block *high = sherd__block_take(world, 12 * MB, false);
    sherd__block *last = sherd__block_take(world, 100 * KB, false);

    sherd__block_give(world, low);
    sherd__block_give(world, high);
    sherd__block *large = sherd__block_take(world, 29 * MB, false);
    CHECK(large != NULL);
    CHECK(sherd_world_memory(world).held_bytes <= 32 * MB);
    CHECK(sherd__block_take(world, 4 * MB, false) == NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
    sherd__block_give(world, large);
    CHECK((large = sherd__block_take(world, 28 * MB, false)) != NULL);
    give_all(world, (sherd__block *[]){large, between, last}, 3);
    CHECK_OK(sherd_world_close(world));
}

/* What one rank has lying idle is not there for another, until a check has said that memory is
 * out. */
static int take_in_turn(sherd_world *world, void *payload)
{
    sherd__block *block[LIMIT];
    int me = sherd_world_rank(world), count = 0;

    (void)payload;
    check_rank = me;
    if (me == 0)
        give_all(world, block, count = fill(world, block, LIMIT - 8));
    CHECK_OK(sherd_world_check(world));
    if (me == 1)
        CHECK(fill(world, block, 1) == 1 &&
              (block[1] = sherd__block_take(world, 20 * MB, true)) == NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
    CHECK(sherd_world_memory(world).held_bytes <= 2 * MB);
    CHECK_OK(sherd_world_check(world));
    if (me == 1)
        CHECK((block[1] = sherd__block_take(world, 20 * MB, true)) != NULL);
    CHECK_OK(sherd_world_check(world));
    return 0;
}

static void after_a_check_all_have_given_back_what_is_idle(void)
{
    setenv("SHERD_ARENA_BYTES", "32M", 1);
    for (int as = 0; as < 2; as++)
        CHECK_EQ(spawn(2, (sherd_ranks_as)as, take_in_turn, NULL), 0);
    unsetenv("SHERD_ARENA_BYTES");
}

/* A world that follows another in the same arena does not inherit what that one took. */
static void a_new_world_begins_with_nothing(void)
{
    sherd__diag diag = {.rank = -1};
    sherd__block *block[LIMIT];
    sherd__arena arena;

    CHECK_OK(sherd__arena_create(&arena, 1, 0, NULL, &diag));
    setenv("SHERD_ARENA_BYTES", "32M", 1);
    for (int turn = 0; turn < 3; turn++) {
        sherd_world *world = NULL;
        CHECK_OK(sherd__world_join(&world, &arena, false, 0, NULL, &diag));
        CHECK_EQ(sherd__look(&arena.control->held), 0);
        int count = fill(world, block, LIMIT - 2);
        CHECK_EQ(count, LIMIT - 2);
        CHECK_OK(sherd_world_close(world));
    }
    unsetenv("SHERD_ARENA_BYTES");
    sherd__arena_unmap(&arena);
}

static void a_taking_that_fails_changes_nothing(void)
{
    sherd_world *world = alone("16M");
    sherd__block *block[LIMIT] = {NULL};

    for (int turn = 0; turn < 200; turn++) {
        int i = turn % 8;
        sherd__block_give(world, block[i]);
        block[i] = NULL;
        sherd_memory before = sherd_world_memory(world);
        uint64_t held = sherd__look(&world->arena.control->held);
        int64_t bytes = turn % 3 ? 17 * MB : MB + turn;
        if (turn % 3 == 0)
            sherd_world_fail_allocation(world, 1);
        CHECK(sherd__block_take(world, bytes, false) == NULL);
        sherd_memory after = sherd_world_memory(world);
        CHECK_EQ(after.live_bytes, before.live_bytes);
        CHECK_EQ(after.peak_bytes, before.peak_bytes);
        CHECK(after.held_bytes <= before.held_bytes);
        CHECK(sherd__look(&world->arena.control->held) <= held);
        CHECK_EQ(sherd__look(&world->arena.control->held), after.held_bytes);
        CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
        sherd_world_fail_allocation(world, 0);
        CHECK((block[i] = sherd__block_take(world, MB + 1000 * turn, false)) != NULL);
    }
    give_all(world, block, 8);
    CHECK_OK(sherd_world_close(world));
}

static const check_test tests[] = {
    {TEST(the_limit_counts_for_all_ranks_together)},
    {TEST(a_malformed_limit_is_refused_on_all_ranks)},
    {TEST(a_limit_below_a_piece_a_rank_is_refused)},
    {TEST(kernels_that_do_not_exist_are_refused)},
    {TEST(the_smallest_limit_of_all_ranks_counts)},
    {TEST(what_lies_idle_is_given_back_first)},
    {TEST(after_a_check_all_have_given_back_what_is_idle)},
    {TEST(a_new_world_begins_with_nothing)},
    {TEST(a_taking_that_fails_changes_nothing)},
};
CHECK_MAIN(tests)
