/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The price file of a world: rank 0 reads it and all plan by it, whatever started them; a bad one
 * is the same line on all ranks. This program is what `sherd run` and mpirun start.
 */
#define CHECK_PURE
#include "mpirun.h"
#include "sherd/plan.h"

static const sherd_price arena; /* all zero */

/* Picoseconds of a gather of one element of each rank, by these options. */
static int64_t gather_time(sherd_world *world, const char *axis, const sherd_plan_options *options)
{
    const sherd_layout *from = NULL, *to = NULL;
    const sherd_plan *plan = NULL;
    int ranks = sherd_world_ranks(world);
    char text[128];

    snprintf(text, sizeof text, "[%d(%s)] on (%s=%d)", ranks, axis, axis, ranks);
    if (sherd_layout_parse(&from, world, text, NULL))
        return -1;
    snprintf(text, sizeof text, "[%d] on (%s=%d)", ranks, axis, ranks);
    if (sherd_layout_parse(&to, world, text, NULL) ||
        sherd_plan_create(&plan, from, to, SHERD_F32, options))
        return -1;
    return sherd_plan_price_of(plan)->picoseconds;
}

/* ---- files ----------------------------------------------------------------------------------- */

static char path[64];

static const char *write_file(const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return path;
}

/* ---- ranks of this program ------------------------------------------------------------------- */

/* What options ask for counts; what they do not name is the world's, also where that was asked for
 * in between. */
static int plan_by_file(sherd_world *world, void *payload)
{
    const sherd_price dear = {SHERD_PRICE_LINKS, 1, {{"x", 5000000, 0, 0, 0}}, 0, false, true};
    const sherd_plan_options by_arena = {.price = &arena}, by_dear = {.price = &dear}, none = {0};
    int64_t others = sherd_world_ranks(world) - 1, call = others ? 1000000 : 0;
    int64_t own = others * *(const int64_t *)payload;
    bool good = true;

    for (int i = 0; i < 2; i++) {
        good = good && gather_time(world, "x", NULL) == own;
        good = good && gather_time(world, "x", &none) == own;
        good = good && gather_time(world, "x", &by_arena) / 1000000 * 1000000 == call;
        good = good && gather_time(world, "x", &by_dear) == others * 5000000;
    }
    good = good && sherd_world_check(world) == SHERD_OK;
    return good ? 0 : 7;
}

static void all_ranks_plan_by_the_file(void)
{
    static const char *const texts[] = {"x 3e-6 0 0\nstraight", "y 1 1 1\n* 3e-6 0 0\nstraight\n",
                                        "y 3e-6 0 0\nz 1e-6 0 0\nstraight"};
    static const int ranks[] = {1, 2, 3, 4, 8};
    int64_t alpha = 3000000;

    for (int as = 0; as < 2; as++)
        for (int i = 0; i < LEN(ranks); i++) {
            int exit_status = 1;
            const sherd_world_options options = {.ranks = ranks[i],
                                                 .as = as ? SHERD_THREADS : SHERD_PROCESSES,
                                                 .price_file = write_file(texts[i % LEN(texts)])};
            CHECK_OK(sherd_spawn(&exit_status, &options, plan_by_file, &alpha));
            CHECK_EQ(exit_status, 0);
        }
}

static void the_environment_names_a_file_too(void)
{
    int64_t alpha = 2000000;
    sherd_world *alone = NULL;
    int exit_status = 1;

    setenv("SHERD_PRICE", write_file("x 2e-6 0 0\nstraight"), 1);
    CHECK_OK(sherd_spawn(&exit_status, &(sherd_world_options){.ranks = 3}, plan_by_file, &alpha));
    CHECK_EQ(exit_status, 0);
    CHECK_OK(sherd_world_alone(&alone, NULL));
    CHECK_EQ(plan_by_file(alone, &alpha), 0);
    CHECK_OK(sherd_world_close(alone));
    setenv("SHERD_PRICE", "", 1); /* none */
    CHECK_OK(sherd_world_alone(&alone, NULL));
    CHECK_OK(sherd_world_close(alone));
    unsetenv("SHERD_PRICE");
}

static int never(sherd_world *world, void *payload)
{
    (void)world;
    (void)payload;
    return 9;
}

/* One line that says which file, where in it, and who names it; the ranks do not begin. */
static void a_bad_file_is_one_clear_line(void)
{
    static const char *const bad[][2] = {
        {"x 1 2", "price_file: sherd_price_parse: line 1, column 6 of \"x 1 2\": expected gamma"},
        {"", "line 1, column 1 of \"\": expected a line"},
        {NULL, "price_file: \"/nowhere/prices.txt\" can not be read (No such file or directory): "
               "expected a file of prices"},
    };

    for (int i = 0; i < LEN(bad) * 3; i++) {
        char text[SHERD_ERROR_BYTES] = "";
        sherd_world *world = NULL;
        int exit_status = 0;
        const char *const *b = bad[i / 3];
        const sherd_world_options options = {.ranks = 3,
                                             .as = i % 3 ? SHERD_THREADS : SHERD_PROCESSES,
                                             .error = text,
                                             .price_file =
                                                 b[0] ? write_file(b[0]) : "/nowhere/prices.txt"};
        if (i % 3 == 2)
            CHECK_EQ(sherd_world_alone(&world, &options), SHERD_EINVAL);
        else
            CHECK_EQ(sherd_spawn(&exit_status, &options, never, NULL), SHERD_EINVAL);
        CHECK(exit_status != 9 && !world);
        if (!CHECK(strncmp(text, "rank 0: price_file: ", 20) == 0 && strstr(text, b[1])))
            fprintf(stderr, "%s\n", text);
    }
}

/* ---- ranks that are started ------------------------------------------------------------------ */

/* "own:PATH": rank 0 names this file, the others one that is not there. "twice": then a world
 * without a file. */
static int play_rank(const char *mode)
{
    static const char *const names[] = {"SHERD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    char text[SHERD_ERROR_BYTES] = "";
    const char *rank = NULL;
    sherd_world *world = NULL;

    for (int i = 0; i < LEN(names) && !rank; i++)
        rank = getenv(names[i]);
    setenv("SHERD_PRICE", rank && atoi(rank) ? "/nowhere/other.txt" : strchr(mode, ':') + 1, 1);
    for (int turn = 0; turn < 2; turn++) {
        if (sherd_world_open(&world, &(sherd_world_options){.error = text})) {
            printf("told: %s\n", text);
            return 0;
        }
        printf("%s: %lld\n", sherd_world_transport(world),
               (long long)gather_time(world, "x", NULL));
        MUST(!sherd_world_close(world));
        unsetenv("SHERD_PRICE");
    }
    return 0;
}

static void what_rank_0_reads_is_for_all(void)
{
    char line[512], mode[256], out[PROGRAM_TEXT];

    snprintf(mode, sizeof mode, "own:%s", write_file("x 4e-6 0 0\nstraight"));
    snprintf(line, sizeof line, "%s run -n 3 -- %s %s", SHERD, self, mode);
    program p = program_start(line);
    const program_end *end = program_wait(&p);
    CHECK_EQ(end->status, 0);
    CHECK_EQ(times(end->out, "arena: 8000000\n"), 3);
    CHECK_EQ(times(end->out, "\n"), 6);
    snprintf(out, sizeof out, "%s run -n 3 -- %s own:/nowhere/prices.txt", SHERD, self);
    p = program_start(out);
    end = program_wait(&p);
    CHECK_EQ(times(end->out, "told: rank 0: SHERD_PRICE: \"/nowhere/prices.txt\" can not be read"),
             3);
}

static void under_mpirun_as_well(void)
{
    char mode[256];

    snprintf(mode, sizeof mode, "own:%s", write_file("x 4e-6 0 0\nstraight"));
    for (int by_messages = 0; by_messages < 2; by_messages++) {
        if (by_messages)
            setenv("SHERD_TRANSPORT", "mpi", 1);
        const program_end *ends = mpi_run(3, mode);
        FOR_EACH_MPI(kind)
        {
            const program_end *end = &ends[kind_i];
            CHECK_EQ(end->status, 0);
            CHECK_EQ(times(end->out, by_messages ? "mpi: 8000000\n" : "arena: 8000000\n"), 3);
            CHECK_EQ(times(end->out, "\n"), 6);
        }
        if (!by_messages && check_stride(2) == 2)
            continue; /* as under sherd run */
        ends = mpi_run(3, "own:/nowhere/prices.txt");
        FOR_EACH_MPI(kind)
        CHECK_EQ(
            times(ends[kind_i].out, "told: rank 0: SHERD_PRICE: \"/nowhere/prices.txt\" can not"),
            3);
    }
    unsetenv("SHERD_TRANSPORT");
}

static const check_test tests[] = {
    {TEST(all_ranks_plan_by_the_file)},   {TEST(the_environment_names_a_file_too)},
    {TEST(a_bad_file_is_one_clear_line)}, {TEST(what_rank_0_reads_is_for_all)},
    {TEST(under_mpirun_as_well)},
};

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1 && strncmp(argv[1], "own:", 4) == 0)
        return play_rank(argv[1]);
    snprintf(path, sizeof path, "/tmp/sherd-price-%d", (int)getpid());
    int failed = check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
    unlink(path);
    return failed;
}
