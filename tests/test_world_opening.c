/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world that does not open, in programs that ask for no text: one line on standard error says
 * why, whoever has started them, and no exit status is 0. This program is what they start.
 */
#define CHECK_PURE
#include "mpirun.h"

static const char *const faults[][3] = {
    {"SHERD_TIMEOUT", "1min",
     "SHERD_TIMEOUT=1min: expected seconds, 1 to 1000000, or 0 or none for no limit"},
    {"SHERD_ARENA_BYTES", "100K", "SHERD_ARENA_BYTES=100K"},
    {"SHERD_TRANSPORT", "fax", "SHERD_TRANSPORT"},
    {"SHERD_PRICE", "/nowhere/prices.txt", "\"/nowhere/prices.txt\" can not be read"},
};

static int nothing(sherd_world *world, void *payload)
{
    (void)world;
    (void)payload;
    return 0;
}

/* "spawn", "threads" or "open"; the exit status is that of sherd_spawn, 0 if all is well. */
static int play_rank(const char *mode)
{
    const sherd_world_options options = {
        .ranks = 4, .as = strcmp(mode, "threads") == 0 ? SHERD_THREADS : SHERD_PROCESSES};
    sherd_world *world = NULL;
    int exit_status = 77;

    if (strcmp(mode, "open") == 0)
        return sherd_world_open(&world, NULL) != SHERD_OK;
    return sherd_spawn(&exit_status, &options, nothing, NULL) ? exit_status : 0;
}

static void expect(const program_end *end, const char *text)
{
    CHECK_EQ(end->status, 1);
    if (!CHECK_EQ(times(end->err, text), 1))
        fprintf(stderr, "%s\n", end->err);
}

static void a_program_that_starts_its_ranks_says_it(void)
{
    static const char *const modes[] = {"spawn", "threads", "open"};
    char line[512];

    for (int i = 0; i < LEN(faults); i++) {
        setenv(faults[i][0], faults[i][1], 1);
        for (int m = 0; m < LEN(modes); m++) {
            if (m == 2 && i == 1)
                continue; /* for one rank it is enough */
            snprintf(line, sizeof line, "%s %s", self, modes[m]);
            expect(program_run(line), faults[i][2]);
        }
        unsetenv(faults[i][0]);
    }
}

static void the_launcher_says_it_for_its_ranks(void)
{
    static const char *const modes[] = {"spawn", "open"};
    char line[512];

    setenv(faults[0][0], faults[0][1], 1);
    for (int m = 0; m < LEN(modes); m++) {
        snprintf(line, sizeof line, "%s run -n 3 -- %s %s", SHERD, self, modes[m]);
        expect(program_run(line), faults[0][2]);
    }
    unsetenv(faults[0][0]);
}

static void under_mpirun_one_rank_says_it(void)
{
    setenv(faults[0][0], faults[0][1], 1);
    const program_end *ends = mpi_run(3, "open");
    unsetenv(faults[0][0]);
    FOR_EACH_MPI(kind)
    expect(&ends[kind_i], faults[0][2]);
}

/* A shell's "SHERD_TIMEOUT= program", or an empty line of a configuration. */
static void an_empty_variable_counts_as_not_set(void)
{
    static const char *const names[] = {"SHERD_TIMEOUT", "SHERD_ARENA_BYTES", "SHERD_GRACE",
                                        "SHERD_PRICE",   "SHERD_TRANSPORT",   "SHERD_TRACE",
                                        "SHERD_HOST",    "SHERD_VERIFY",      "SHERD_KERNELS",
                                        "SHERD_GEMM",    "SHERD_MPI_MODULE",  "SHERD_DRY"};
    char line[512];

    for (int i = 0; i < LEN(names); i++)
        setenv(names[i], "", 1);
    snprintf(line, sizeof line, "%s spawn", self);
    const program_end *end = program_run(line);
    if (!CHECK_EQ(end->status, 0) || !CHECK_EQ(strlen(end->err), 0))
        fprintf(stderr, "%s\n", end->err);
    snprintf(line, sizeof line, "%s run -n 2 -- %s spawn", SHERD, self);
    CHECK_EQ(program_run(line)->status, 0);
    const program_end *ends = mpi_run(2, "spawn");
    FOR_EACH_MPI(kind)
    CHECK_EQ(ends[kind_i].status, 0);
    for (int i = 0; i < LEN(names); i++)
        unsetenv(names[i]);
}

static const check_test tests[] = {
    {TEST(a_program_that_starts_its_ranks_says_it)},
    {TEST(the_launcher_says_it_for_its_ranks)},
    {TEST(under_mpirun_one_rank_says_it)},
    {TEST(an_empty_variable_counts_as_not_set)},
};

int main(int argc, char **argv)
{
    static const char *const modes[] = {"spawn", "threads", "open"};

    self = argv[0];
    for (int m = 0; m < LEN(modes) && argc > 1; m++)
        if (strcmp(argv[1], modes[m]) == 0)
            return play_rank(modes[m]);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
