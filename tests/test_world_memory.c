/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor memory of a rank: alignment, recycling, figures, a region that is full, and little address
 * space; and worlds of one rank and of paper, which have most of the same functions.
 */
#define CHECK_PURE
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "world/arena.h"
#include "world/limit.h"
#include "world/world.h"

enum { MB = 1 << 20 };

static sherd_world *alone(size_t region_bytes)
{
    sherd_world *world = NULL;
    sherd_world_options options = {.region_bytes = region_bytes, .seed = 9};

    CHECK_OK(sherd_world_alone(&world, &options));
    return world;
}

static void blocks_are_aligned_and_apart(void)
{
    enum { COUNT = 300 };
    sherd_world *world = alone(0);
    sherd__block *block[COUNT];
    int64_t bytes = 0, sum = 0;

    for (int i = 0; i < COUNT; i++, bytes += 1 + i * 13) {
        CHECK((block[i] = sherd__block_take(world, bytes, false)) != NULL);
        CHECK_EQ((uintptr_t)sherd__block_data(block[i]) % 64, 0);
        CHECK_EQ(sherd__block_bytes(block[i]), bytes);
        memset(sherd__block_data(block[i]), i, (size_t)bytes);
        sum += bytes;
    }
    CHECK_EQ(sherd_world_memory(world).live_bytes, sum);
    for (int i = 0; i < COUNT; i++) {
        const unsigned char *x = sherd__block_data(block[i]);
        int wrong = 0;
        for (int64_t k = 0; k < sherd__block_bytes(block[i]); k++)
            wrong += x[k] != (unsigned char)i;
        CHECK_EQ(wrong, 0);
        sherd__block_give(world, block[i]);
    }
    CHECK_EQ(sherd_world_memory(world).live_bytes, 0);
    CHECK_EQ(sherd_world_memory(world).peak_bytes, sum);
    sherd_world_memory_reset(world);
    CHECK_EQ(sherd_world_memory(world).peak_bytes, 0);
    CHECK_OK(sherd_world_close(world));
}

/* The same few sizes over and over again fit into a small region for ever; no page is new after the
 * first turn. */
static void blocks_are_recycled(void)
{
    sherd_world *world = alone(4 * MB);
    void *first[8] = {NULL};

    for (int turn = 0; turn < 10000; turn++) {
        sherd__block *block[8];
        for (int i = 0; i < 8; i++) {
            block[i] = sherd__block_take(world, 100000 + i * 20000, false);
            if (!CHECK(block[i] != NULL))
                return;
            if (turn == 0)
                first[i] = sherd__block_data(block[i]);
            else if (sherd__block_data(block[i]) != first[i])
                CHECK(false);
        }
        for (int i = 0; i < 8; i++)
            sherd__block_give(world, block[i]);
    }
    CHECK_OK(sherd_world_close(world));
}

static void a_full_region_is_out_of_memory(void)
{
    sherd_world *world = alone(4 * MB);
    sherd__block *block[64] = {NULL}, *none;
    int count = 0;

    while (count < 64 && (block[count] = sherd__block_take(world, 300000, false)))
        count++;
    CHECK(count >= 12 && count < 14);
    CHECK(strstr(sherd_world_error(world), "out of memory: a tensor of 300000 bytes") != NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM); /* it was local: kept for the check */
    CHECK_OK(sherd_world_check(world));
    none = sherd__block_take(world, 300000, true);
    CHECK(none == NULL && sherd__alarmed(world));
    CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
    CHECK(sherd__block_take(world, (int64_t)1 << 60, false) == NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
    /* A larger block serves where there is no other. */
    sherd__block_give(world, block[0]);
    CHECK((block[0] = sherd__block_take(world, 200000, false)) != NULL);
    for (int i = 0; i < count; i++)
        sherd__block_give(world, block[i]);
    CHECK_OK(sherd_world_close(world));
}

/* Blocks that a slow peer still reads are waited for, not given up on, where the region is full:
 * rank 0 holds all, and runs ahead of rank 1, which only reads. */
static int publish_much(sherd_world *world, void *payload)
{
    enum { COUNT = 200000, BYTES = COUNT * 8 };
    const sherd_mesh *mesh = NULL;
    const sherd_layout *from = NULL, *to = NULL;
    const sherd_plan *plan = NULL;
    int64_t shape[1] = {COUNT}, stride[1] = {1}, all_on_first[2] = {COUNT, 0};
    const int64_t *sizes[1] = {all_on_first};
    sherd_layout_options cut = {.sizes = sizes};
    sherd_placement rows = sherd_shard(0), whole = sherd_replicate();
    int me = sherd_world_rank(world);

    (void)payload;
    check_rank = me;
    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){2}, NULL, NULL));
    CHECK_OK(sherd_layout_create(&from, mesh, 1, shape, &rows, &cut));
    CHECK_OK(sherd_layout_create(&to, mesh, 1, shape, &whole, NULL));
    CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, NULL));
    sherd__block *result = sherd__block_take(world, BYTES, true);
    for (int turn = 0; turn < 60; turn++) {
        sherd__block *source = me == 0 ? sherd__block_take(world, BYTES, true) : NULL;
        if (me == 0 && !CHECK(source != NULL))
            break;
        double *x = sherd__block_data(source);
        for (int i = 0; me == 0 && i < COUNT; i++)
            x[i] = turn * 1000 + i % 100;
        sherd__move move = {.plan = plan,
                            .dtype = SHERD_F64,
                            .source = source,
                            .source_stride = stride,
                            .result = result};
        if (me == 1 && turn % 10 == 0)
            nanosleep(&(struct timespec){0, 20000000}, NULL);
        CHECK(sherd__call(world, "publish_much", &move, 1, false));
        sherd__block_give(world, source);
        x = sherd__block_data(result);
        int wrong = 0;
        for (int i = 0; i < COUNT; i++)
            wrong += x[i] != turn * 1000 + i % 100;
        CHECK_EQ(wrong, 0);
    }
    sherd__block_give(world, result);
    CHECK_OK(sherd_world_check(world));
    return 0;
}

static void a_full_region_waits_for_readers(void)
{
    for (int as = 0; as < 2; as++) {
        int exit_status = -1;
        /* Room for the result and four sources; the ring would take 16 calls. */
        sherd_world_options options = {
            .ranks = 2, .as = (sherd_ranks_as)as, .region_bytes = 8 * MB, .no_pin = true};
        CHECK_OK(sherd_spawn(&exit_status, &options, publish_much, NULL));
    }
    check_rank = 0;
}

/* ---- little address space -------------------------------------------------------------------- */

static int in_a_child(int (*body)(void))
{
    int status = 0;

    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(body());
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int with_little_address_space(void)
{
    struct rlimit limit = {600 * MB, 600 * MB};
    sherd_world *world = NULL;

    if (setrlimit(RLIMIT_AS, &limit) || sherd_world_alone(&world, NULL))
        return 1;
    if (!sherd__block_take(world, 10 * MB, false))
        return 2;
    /* It has what there are addresses for, and says whose limit that is. */
    int64_t most = sherd_world_memory(world).limit_bytes;
    if (most > 600 * MB || sherd__block_take(world, most, false) ||
        !strstr(sherd_world_error(world), "raise `ulimit -v`"))
        return 4;
    return sherd_world_close(world) == SHERD_ENOMEM ? 0 : 3;
}

static int with_hardly_any(void)
{
    struct rlimit limit = {8 * MB, 8 * MB};
    sherd_world *world = NULL;
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world_options options = {.error = text};

    if (setrlimit(RLIMIT_AS, &limit))
        return 1;
    return sherd_world_alone(&world, &options) == SHERD_ENOMEM && !world &&
                   strstr(text, "address space")
               ? 0
               : 2;
}

/* A limit on files is none on memory, and must not end the process by SIGXFSZ. */
static int with_small_files(void)
{
    struct rlimit limit = {MB, RLIM_INFINITY};
    sherd__diag diag = {.rank = -1};
    sherd__arena arena;
    int fd = -1;

    if (setrlimit(RLIMIT_FSIZE, &limit) || sherd__arena_create(&arena, 2, 0, &fd, &diag))
        return 1;
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur != MB)
        return 2;
    sherd__arena_unmap(&arena);
    return 0;
}

static int with_small_files_for_good(void)
{
    struct rlimit limit = {200 * MB, 200 * MB};
    sherd__diag diag = {.rank = -1};
    sherd__arena arena;
    int fd = -1;

    if (setrlimit(RLIMIT_FSIZE, &limit) || sherd__arena_create(&arena, 2, 0, &fd, &diag))
        return 1;
    return arena.bytes <= 200 * MB && arena.control->region_bytes >= 4 * MB ? 0 : 2;
}

/* Too few for any region: the text says whose limit it is. */
static int with_no_files_for_good(void)
{
    struct rlimit limit = {MB, MB};
    sherd__diag diag = {.rank = -1};
    sherd__arena arena;
    int fd = -1;

    if (setrlimit(RLIMIT_FSIZE, &limit) ||
        sherd__arena_create(&arena, 2, 0, &fd, &diag) != SHERD_ENOMEM)
        return 1;
    return strstr(diag.text, "limited to 1048576 bytes") && strstr(diag.text, "`ulimit -f`") ? 0
                                                                                             : 2;
}

/* A rank may have less room for addresses than its launcher: a limit of tensors is kept to. */
static int with_less_than_the_launcher(void)
{
    struct rlimit limit = {1000 * MB, 1000 * MB};
    sherd__diag diag = {.rank = 1};
    sherd__arena small, large, here;
    int fd[2] = {-1, -1};

    setenv("SHERD_ARENA_BYTES", "100M", 1);
    if (sherd__arena_create(&small, 3, 0, &fd[0], &diag))
        return 1;
    unsetenv("SHERD_ARENA_BYTES");
    if (sherd__arena_create(&large, 3, (size_t)4 << 30, &fd[1], &diag))
        return 2;
    sherd__arena_unmap(&small);
    sherd__arena_unmap(&large);
    if (setrlimit(RLIMIT_AS, &limit) || sherd__arena_map(&here, fd[0], "sherd_open", &diag))
        return 3;
    if (sherd__arena_map(&large, fd[1], "sherd_open", &diag) != SHERD_ENOMEM)
        return 4;
    return strstr(diag.text, "rank 1: sherd_open: each rank maps the tensors of all 3, ") &&
                   strstr(diag.text, "limited to 1000 MB (RLIMIT_AS)") &&
                   strstr(diag.text, "--memory ")
               ? 0
               : 5;
}

/* As many ranks as the addresses are enough for: what is not tensors takes 16 MB of them each. */
static int with_many_ranks(void)
{
    struct rlimit limit = {(rlim_t)3000 * MB, (rlim_t)3000 * MB};
    sherd__diag diag = {.rank = -1};
    sherd__arena arena;

    if (setrlimit(RLIMIT_AS, &limit) || sherd__arena_create(&arena, 100, 0, NULL, &diag))
        return 1;
    if (arena.bytes > (size_t)3000 * MB || arena.control->region_bytes < 4 * MB)
        return 2;
    sherd__arena_unmap(&arena);
    if (sherd__arena_create(&arena, 1000, 0, NULL, &diag) != SHERD_ENOMEM)
        return 3;
    const char *taken = strstr(diag.text, "this process, which has ");
    int mb = taken ? atoi(taken + strlen("this process, which has ")) : 0;
    return strstr(diag.text, "the arena of 1000 ranks takes ") && mb > 0 && mb < 3000 &&
                   strstr(diag.text, "limited to 3000 MB (RLIMIT_AS): raise `ulimit -v`")
               ? 0
               : 4;
}

/* Whoever follows the advice can map the arena, and so many ranks can open a world in it. */
static int with_advice(void)
{
    static const size_t rooms[] = {300, 500, 700, 900, 1500, 3000};
    enum { COUNT = 8 };
    sherd__diag diag;
    sherd__arena arena;
    int fd[2] = {-1, -1}, advised = 0;

    for (int i = 0; i < LEN(rooms); i++) {
        struct rlimit limit = {rooms[i] * MB, RLIM_INFINITY}, before;
        const char *at;
        diag = (sherd__diag){.rank = 1};
        if (getrlimit(RLIMIT_AS, &before) ||
            sherd__arena_create(&arena, COUNT, (size_t)4 << 30, &fd[0], &diag))
            return 1;
        sherd__arena_unmap(&arena);
        if (setrlimit(RLIMIT_AS, &limit) ||
            sherd__arena_map(&arena, fd[0], "sherd_open", &diag) != SHERD_ENOMEM)
            return 2;
        close(fd[0]);
        setrlimit(RLIMIT_AS, &before);
        if (!(at = strstr(diag.text, "--memory ")))
            continue;
        unsigned long megabytes = strtoul(at + strlen("--memory "), NULL, 10);
        char text[32];
        snprintf(text, sizeof text, "%luM", megabytes);
        setenv("SHERD_ARENA_BYTES", text, 1);
        if (megabytes * MB < COUNT * SHERD__PIECE ||
            sherd__arena_create(&arena, COUNT, 0, &fd[1], &diag) || arena.bytes > rooms[i] * MB)
            return 3;
        sherd__arena_unmap(&arena);
        close(fd[1]);
        unsetenv("SHERD_ARENA_BYTES");
        advised++;
    }
    return advised == 3 ? 0 : 10 + advised;
}

/* As docs/running.md has it. */
static void an_arena_takes_the_addresses_that_are_told(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    static const int ranks[] = {2, 3, 8, 100}, memory[] = {2, 17, 100, 1000};

    for (int i = 0; i < LEN(ranks) * LEN(memory); i++) {
        size_t n = (size_t)ranks[i / LEN(memory)], m = (size_t)memory[i % LEN(memory)];
        sherd__diag diag = {.rank = -1};
        sherd__arena arena;
        char text[32];
        snprintf(text, sizeof text, "%zuM", m);
        setenv("SHERD_ARENA_BYTES", text, 1);
        CHECK_OK(sherd__arena_create(&arena, (int)n, 0, NULL, &diag));
        CHECK(arena.bytes <= n * (2 * m + 80) * MB);
        sherd__arena_unmap(&arena);
    }
    unsetenv("SHERD_ARENA_BYTES");
#endif
}

static void regions_shrink_where_address_space_is_short(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK_EQ(in_a_child(with_little_address_space), 0);
    CHECK_EQ(in_a_child(with_hardly_any), 0);
    CHECK_EQ(in_a_child(with_less_than_the_launcher), 0);
    CHECK_EQ(in_a_child(with_many_ranks), 0);
    CHECK_EQ(in_a_child(with_advice), 0);
#else
    (void)with_little_address_space;
    (void)with_hardly_any;
    (void)with_less_than_the_launcher;
    (void)with_many_ranks;
    (void)with_advice;
#endif
    CHECK_EQ(in_a_child(with_small_files), 0);
    CHECK_EQ(in_a_child(with_small_files_for_good), 0);
    CHECK_EQ(in_a_child(with_no_files_for_good), 0);
}

/*
 * Whatever the size of regions, the same place in any two of sixteen differs in the bits from 2 MB
 * to 16 MB: with addresses that are equal there a first cache may take one for the other.
 */
static void regions_lie_at_odd_distances(void)
{
    static const size_t sizes[] = {4 * MB, 7 * MB, 22 * MB, 24 * MB, 1 << 30, (1 << 30) + 22 * MB};

    for (int i = 0; i < LEN(sizes); i++) {
        sherd__diag diag = {.rank = -1};
        sherd__arena arena;
        if (!CHECK_OK(sherd__arena_create(&arena, 2, sizes[i], NULL, &diag)))
            continue;
        size_t step = (size_t)arena.control->region_step;
        CHECK(step >= arena.control->region_bytes && step < sizes[i] + 36 * MB);
        CHECK(arena.bytes >= arena.control->regions + 2 * step);
        for (size_t k = 1; k < 16; k++)
            CHECK(k * step % (2 * MB) == 0 && k * step % (32 * MB) != 0);
        sherd__arena_unmap(&arena);
    }
}

/* ---- one rank, and paper --------------------------------------------------------------------- */

static void a_world_of_one_rank_is_whole(void)
{
    sherd_world *world = alone(0), *other = alone(0); /* there may be several */
    const sherd_mesh *mesh = NULL;
    int64_t mine = 3, all = 0;

    CHECK_EQ(sherd_world_ranks(world), 1);
    CHECK_EQ(sherd_world_rank(world), 0);
    CHECK_EQ(sherd_world_seed(world), 9);
    CHECK_TEXT(sherd_world_transport(world), "arena");
    CHECK_TEXT(sherd_world_error(world), "");
    CHECK_OK(sherd_mesh_parse(&mesh, world, "dp=1,tp=1"));
    CHECK(sherd__share(world, mesh, "test", &mine, 1, &all));
    CHECK_EQ(all, 3);
    CHECK(sherd__world_reserve(world) != NULL);
    CHECK_EQ((uintptr_t)sherd__world_reserve(world) % 64, 0);
    sherd_world_fail(world, 17, "positive is no status");
    CHECK(!sherd__alarmed(other));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_TEXT(sherd_world_error(world), "rank 0: positive is no status");
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_world_close(world));
    CHECK_OK(sherd_world_close(other));
    CHECK_OK(sherd_world_close(NULL));
}

static void a_paper_world_has_no_memory(void)
{
    sherd_world *world = NULL;
    const sherd_mesh *mesh = NULL;
    int64_t mine = 3, all = 0;

    CHECK_EQ(sherd_world_paper(&world, 0), SHERD_EINVAL);
    CHECK(world == NULL);
    CHECK_OK(sherd_world_paper(&world, 1000000));
    CHECK_EQ(sherd_world_ranks(world), 1000000);
    CHECK_EQ(sherd_world_rank(world), -1);
    CHECK_TEXT(sherd_world_transport(world), "paper");
    CHECK_OK(sherd_mesh_parse(&mesh, world, "1000x1000"));
    CHECK(sherd__block_take(world, 8, false) == NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK(!sherd__share(world, mesh, "test", &mine, 1, &all));
    CHECK(sherd__alarmed(world));
    sherd_world_fail(world, SHERD_ELIMIT, "second");
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK_TEXT(sherd_world_error(world), "test: a paper world moves no data");
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(sherd_comm_count(world), 0);
    CHECK_OK(sherd_world_close(world));
}

static const check_test tests[] = {
    {TEST(blocks_are_aligned_and_apart)},
    {TEST(blocks_are_recycled)},
    {TEST(a_full_region_is_out_of_memory)},
    {TEST(a_full_region_waits_for_readers)},
    {TEST(an_arena_takes_the_addresses_that_are_told)},
    {TEST(regions_shrink_where_address_space_is_short)},
    {TEST(regions_lie_at_odd_distances)},
    {TEST(a_world_of_one_rank_is_whole)},
    {TEST(a_paper_world_has_no_memory)},
};
CHECK_MAIN(tests)
