/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace is what was done: its calls and bytes are those of the comm log, its events lie in each
 * other or beside each other; and it is one file for a job, also of several worlds and of ranks
 * that die. What it says of waits: test_trace_waits.c.
 */
#define CHECK_PURE
#include <sherd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "check.h"
#include "program.h"
#include "trace_events.h"

enum { STEPS = 5, RANKS = 3 };

/* ---- the ranks ------------------------------------------------------------------------------- */

typedef struct scene {
    int dying; /* a rank; -1 = none */
    double calls[SHERD_MAX_RANKS], bytes[SHERD_MAX_RANKS];
} scene;

static scene *shared(void)
{
    scene *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(s != MAP_FAILED);
    *s = (scene){.dying = -1};
    return s;
}

static void count_calls(sherd_world *world, scene *s)
{
    int rank = sherd_world_rank(world);

    for (int i = 0; i < sherd_comm_count(world); i++) {
        sherd_comm_entry e = sherd_comm_get(world, i);
        s->calls[rank] += (double)e.calls;
        s->bytes[rank] += (double)e.bytes_received;
    }
}

/* Pending sums become whole, again and again. */
static int work(sherd_world *world, void *payload)
{
    scene *s = payload;
    const sherd_mesh *mesh = NULL;
    const sherd_layout *pending = NULL, *whole = NULL;
    const sherd_placement sum = sherd_partial(SHERD_SUM), all = sherd_replicate();
    const int64_t shape[] = {60, 50};
    char text[32];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    if (sherd_mesh_parse(&mesh, world, text) ||
        sherd_layout_create(&pending, mesh, 2, shape, &sum, NULL) ||
        sherd_layout_create(&whole, mesh, 2, shape, &all, NULL))
        return 1;
    for (int i = 0; i < STEPS; i++) {
        sherd_tensor *t = sherd_constant_on(pending, SHERD_F32, 1);
        if (s->dying == sherd_world_rank(world) && i == 3)
            _exit(9);
        sherd_tensor_read(sherd_add(sherd_redistribute(t, whole, NULL), t));
        if (sherd_world_check(world))
            return 2;
    }
    count_calls(world, s);
    return 0;
}

static int run(scene *s, int ranks, int as)
{
    char error[SHERD_ERROR_BYTES] = "";
    int exit_status = 0;
    sherd_status status = sherd_spawn(
        &exit_status,
        &(sherd_world_options){.ranks = ranks, .as = (sherd_ranks_as)as, .error = error}, work, s);

    if (status)
        fprintf(stderr, "%s\n", error);
    return exit_status;
}

static bool is_call(const json_t *event)
{
    return strcmp(text_of(event, "cat"), "call") == 0 &&
           strncmp(text_of(event, "name"), "sherd_", 6) != 0;
}

/* Events that are begun in each other end in each other, to the microsecond's part that a double
 * keeps. */
static void check_nesting(const json_t *events, int rank)
{
    size_t n = json_array_size(events);

    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            const json_t *a = json_array_get(events, i), *b = json_array_get(events, j);
            double begin = number_of(a, "ts"), end = begin + number_of(a, "dur");
            double inner = number_of(b, "ts"), after = inner + number_of(b, "dur");
            if ((int)number_of(a, "pid") == rank && (int)number_of(b, "pid") == rank && i != j &&
                inner > begin && inner < end)
                CHECK(after <= end + 0.01);
        }
}

/* Of one rank: calls and bytes as in the comm log. */
static void compare_rank(const json_t *events, const scene *s, int rank)
{
    double calls = 0, bytes = 0, operators = 0, checks = 0;

    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i), *args = json_object_get(e, "args");
        if ((int)number_of(e, "pid") != rank)
            continue;
        calls += is_call(e);
        bytes += is_call(e) ? number_of(args, "bytes received") : 0;
        operators += strcmp(text_of(e, "name"), "sherd_add") == 0;
        checks += strcmp(text_of(e, "name"), "sherd_world_check") == 0;
    }
    CHECK_EQ(calls, s->calls[rank]);
    CHECK_EQ(bytes, s->bytes[rank]);
    CHECK_EQ(operators, STEPS);
    CHECK(checks >= STEPS);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void the_trace_is_what_was_done(void)
{
    const int ranks[] = {1, 2, 3, 8};

    for (int k = 0; k < 2 * LEN(ranks); k++) {
        scene *s = shared();
        begin_trace();
        CHECK_EQ(run(s, ranks[k / 2], k % 2 ? SHERD_PROCESSES : SHERD_THREADS), 0);
        json_t *events = read_trace();
        for (int r = 0; events && r < ranks[k / 2]; r++) {
            compare_rank(events, s, r);
            check_nesting(events, r);
        }
        json_decref(events);
        end_trace();
        munmap(s, sizeof *s);
    }
}

/* Two worlds of a job are one trace; the next job begins anew. */
static void a_job_has_one_trace(void)
{
    scene *s = shared();
    double once;

    begin_trace();
    CHECK_EQ(run(s, 2, SHERD_PROCESSES), 0);
    json_t *events = read_trace();
    once = (double)json_array_size(events);
    json_decref(events);
    CHECK_EQ(run(s, 2, SHERD_PROCESSES), 0);
    events = read_trace();
    CHECK((double)json_array_size(events) > 1.5 * once);
    json_decref(events);
    unsetenv("SHERD_TRACE_BEGUN");
    CHECK_EQ(run(s, 2, SHERD_THREADS), 0);
    events = read_trace();
    CHECK((double)json_array_size(events) < 1.5 * once);
    json_decref(events);
    end_trace();
    munmap(s, sizeof *s);
}

/* What was done up to the last check is there. */
static void a_rank_that_dies_leaves_its_trace(void)
{
    scene *s = shared();
    int checks = 0;

    begin_trace();
    s->dying = 2;
    CHECK(run(s, RANKS, SHERD_PROCESSES) != 0);
    json_t *events = read_trace();
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        checks +=
            (int)number_of(e, "pid") == 2 && strcmp(text_of(e, "name"), "sherd_world_check") == 0;
    }
    CHECK(checks >= 3);
    json_decref(events);
    end_trace();
    munmap(s, sizeof *s);
}

static void a_file_that_can_not_be_written_is_an_error(void)
{
    char error[SHERD_ERROR_BYTES] = "";
    int exit_status = 0;
    sherd_world *world = NULL;
    const sherd_world_options options = {.ranks = 2, .error = error};

    setenv("SHERD_TRACE", "/nowhere/trace.json", 1);
    CHECK_EQ(sherd_spawn(&exit_status, &options, work, NULL), SHERD_EINVAL);
    CHECK_TEXT(error,
               "SHERD_TRACE=/nowhere/trace.json: can not write it: No such file or directory");
    CHECK_EQ(sherd_world_open(&world, &options), SHERD_EINVAL);
    CHECK(!world);
    unsetenv("SHERD_TRACE");
    const program_end *end =
        program_run(SHERD " run -n 2 --trace /nowhere/trace.json -- /bin/true");
    CHECK_EQ(end->status, 1);
    CHECK_TEXT(end->err, "sherd run: SHERD_TRACE=/nowhere/trace.json: can not write it: No such "
                         "file or directory\n");
}

/* The trace ends there, and not the program: the kernel's signal would do that. */
static void a_limit_on_files_ends_the_trace_only(void)
{
    char line[256];

    begin_trace();
    unsetenv("SHERD_TRACE");
    snprintf(line, sizeof line,
             "/usr/bin/prlimit --fsize=20000: " SHERD " run -n 2 --trace %s -- " GPT
             " --layers 1 --dim 16 --heads 2 --context 8 --batch 2 --steps 20 --sample 0",
             trace_path);
    const program_end *end = program_run(line);
    CHECK_EQ(end->status, 0);
    CHECK(strstr(end->err, "the trace ends here: ") != NULL);
    end_trace();
}

/* How a full pipe takes a text where signals come: not at all, or a part of it. */
static bool signals;

ssize_t write(int fd, const void *data, size_t bytes)
{
    static int times;
    bool ours = signals && fd > 2 && bytes > 100 && *(const char *)data == '{';

    errno = EINTR;
    return ours && times++ % 2 == 0 ? -1 : syscall(SYS_write, fd, data, ours ? bytes / 2 : bytes);
}

static void a_signal_does_not_end_the_trace(void)
{
    scene *s = shared();

    begin_trace();
    signals = true;
    CHECK_EQ(run(s, 1, SHERD_PROCESSES), 0);
    signals = false;
    json_t *events = read_trace();
    CHECK(json_array_size(events) > STEPS);
    json_decref(events);
    end_trace();
    munmap(s, sizeof *s);
}

/* Another process that reads the first kilobyte of a trace. */
static pid_t read_some_of(const char *path)
{
    char text[1 << 12];
    pid_t reader = fork();

    if (reader)
        return reader;
    int file = open(path, O_RDONLY);
    ssize_t n = 0;
    for (size_t all = 0; n >= 0 && all < 1000; all += (size_t)n)
        n = read(file, text, sizeof text);
    _exit(0);
}

/* As with files: the kernel's signal would end the rank. */
static void a_reader_that_is_gone_ends_the_trace_only(void)
{
    scene *s = shared();

    begin_trace();
    unlink(trace_path);
    if (CHECK_EQ(mkfifo(trace_path, 0600), 0)) {
        pid_t reader = read_some_of(trace_path);
        CHECK_EQ(run(s, 2, SHERD_PROCESSES), 0);
        waitpid(reader, NULL, 0);
    }
    end_trace();
    munmap(s, sizeof *s);
}

static int64_t written(void)
{
    struct stat file;

    return stat(trace_path, &file) ? -1 : (int64_t)file.st_size;
}

/* Writes a little, much up to a limit, and a little again without one. */
static int write_in_vain(sherd_world *world, void *payload)
{
    const int64_t shape[] = {3};
    int64_t size[3];

    (void)payload;
    close(STDERR_FILENO);
    for (int i = 0; i < LEN(size); i++) {
        struct rlimit limit = {i == 1 ? (rlim_t)size[0] + 100 : RLIM_INFINITY, RLIM_INFINITY};
        setrlimit(RLIMIT_FSIZE, &limit);
        for (int k = 0; k < 20; k++)
            sherd_add(sherd_constant(world, SHERD_F32, shape, 1, 1),
                      sherd_constant(world, SHERD_F32, shape, 1, 2));
        if (sherd_world_check(world))
            return 2;
        size[i] = written();
    }
    return size[0] > 0 && size[1] == size[0] + 100 && size[2] == size[1] ? 0 : 3;
}

/* Lines of which the first was cut are no trace. */
static void it_ends_also_where_nobody_can_be_told(void)
{
    int exit_status = 0;

    begin_trace();
    CHECK_OK(sherd_spawn(&exit_status, NULL, write_in_vain, NULL));
    CHECK_EQ(exit_status, 0);
    end_trace();
}

static void add_ones(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    out->value[0] = sherd_add(in->value[0], in->value[0]);
    out->count = 1;
}

/* Calls modules with names that JSON can not have as they are. */
static int call_strange_names(sherd_world *world, void *payload)
{
    const int64_t shape[] = {3};
    sherd_module *top = NULL, *m = NULL;
    char name[2048];

    (void)payload;
    if (sherd_module_create(&top, world, add_ones, NULL))
        return 2;
    for (int odd = 0; odd < 4; odd++) {
        name[0] = '\0';
        for (int i = 0; i < 400; i++)
            strcat(name, odd == 3 ? "\xff\"\x01" : i < odd ? "x" : "\u00e9");
        if (sherd_module_create(&m, world, add_ones, NULL) || sherd_module_add(top, name, m))
            return 3;
        sherd_module_call(m, sherd_constant(world, SHERD_F32, shape, 1, 1));
    }
    sherd_module_destroy(top);
    return sherd_world_check(world) ? 4 : 0;
}

static void whatever_names_are_it_can_be_read(void)
{
    int exit_status = 0, named = 0;

    begin_trace();
    CHECK_OK(sherd_spawn(&exit_status, NULL, call_strange_names, NULL));
    CHECK_EQ(exit_status, 0);
    json_t *events = read_trace();
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *args = json_object_get(json_array_get(events, i), "args");
        named += strlen(text_of(args, "module")) > 500;
    }
    CHECK_EQ(named, 4);
    json_decref(events);
    end_trace();
}

static void sherd_run_writes_it(void)
{
    char line[256];

    begin_trace();
    unsetenv("SHERD_TRACE");
    snprintf(line, sizeof line,
             SHERD " run -n 2 --trace %s -- " GPT
                   " --layers 1 --dim 16 --heads 2 --context 8 --batch 2 --steps 2 --sample 0",
             trace_path);
    for (int turn = 0; turn < 2; turn++) {
        const program_end *end = program_run(line);
        double operators[2] = {0};
        CHECK_EQ(end->status, 0);
        json_t *events = read_trace();
        for (size_t i = 0; i < json_array_size(events); i++) {
            const json_t *e = json_array_get(events, i), *args = json_object_get(e, "args");
            int rank = (int)number_of(e, "pid");
            if (CHECK(rank >= 0 && rank < 2) &&
                strcmp(text_of(e, "name"), "sherd_attention") == 0 &&
                strcmp(text_of(args, "module"), "") != 0)
                operators[rank]++;
        }
        CHECK_EQ(operators[1], 2);
        CHECK(operators[0] >= 2); /* and the comparison with one rank */
        json_decref(events);
    }
    end_trace();
}

static int print_and_work(sherd_world *world, void *payload)
{
    for (int i = 0; i < STEPS; i++)
        if (write(STDOUT_FILENO, "loss\n", 5) > 0)
            return 3;
    return work(world, payload);
}

/* The file must not get the number of a closed output, as what a program prints would be in it
 * then. */
static void what_is_printed_to_a_closed_output_is_not_in_it(void)
{
    scene *s = shared();
    int exit_status = -1;

    begin_trace();
    int kept = dup(STDOUT_FILENO);
    CHECK(kept >= 0 && close(STDOUT_FILENO) == 0);
    sherd_status status =
        sherd_spawn(&exit_status, &(sherd_world_options){.ranks = 2}, print_and_work, s);
    CHECK(dup2(kept, STDOUT_FILENO) == STDOUT_FILENO);
    close(kept);
    CHECK_EQ(status, SHERD_OK);
    CHECK_EQ(exit_status, 0);
    json_decref(read_trace());
    end_trace();
    munmap(s, sizeof *s);
}

static const check_test tests[] = {
    {TEST(the_trace_is_what_was_done)},
    {TEST(a_job_has_one_trace)},
    {TEST(a_rank_that_dies_leaves_its_trace)},
    {TEST(a_file_that_can_not_be_written_is_an_error)},
    {TEST(a_limit_on_files_ends_the_trace_only)},
    {TEST(a_reader_that_is_gone_ends_the_trace_only)},
    {TEST(a_signal_does_not_end_the_trace)},
    {TEST(it_ends_also_where_nobody_can_be_told)},
    {TEST(whatever_names_are_it_can_be_read)},
    {TEST(sherd_run_writes_it)},
    {TEST(what_is_printed_to_a_closed_output_is_not_in_it)},
};
CHECK_MAIN(tests)
