/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd dry: what it says of an example's step is what the example counts on real ranks; the tables
 * for people; exit statuses, and every way to be refused.
 */
#define CHECK_PURE
#include "check.h"
#include "dry_run.h"

#include <sys/stat.h>

#include <sherd.h>

/* ---- against real ranks ---------------------------------------------------------------------- */

/* What `gpt --json` says of real ranks. */
static json_t *real_run(const char *options)
{
    char line[1024], path[64];
    int fd = memfd_create("report", 0);

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    snprintf(line, sizeof line, GPT " " MODEL " %s --json %s", options, path);
    const program_end *end = program_run(line);
    if (!CHECK_EQ(end->status, 0))
        fprintf(stderr, "%s: %s\n", line, end->err);
    static char text[PROGRAM_TEXT];
    program_read(fd, text);
    close(fd);
    return parsed(text);
}

/* The row of a kind and axes; NULL: there is none. */
static const json_t *row_of(const json_t *list, const char *key, const char *kind, const char *axes)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *row = json_array_get(list, i);
        if (strcmp(text(row, key), kind) == 0 && strcmp(text(row, "axes"), axes) == 0)
            return row;
    }
    return NULL;
}

/* All shards are equal, so that the average over ranks is what each rank has. */
static void check_like_real(int ranks, const char *options)
{
    char arguments[512];

    snprintf(arguments, sizeof arguments, "-n %d --rank %d " GPT " " MODEL " %s", ranks, ranks - 1,
             options);
    json_t *dry = dry_run(arguments), *real = real_run(options);
    const json_t *comm = json_object_get(real, "comm"), *step = json_object_get(dry, "step");
    const json_t *calls = json_object_get(step, "calls");
    size_t counted = 0;

    for (size_t i = 0; i < json_array_size(comm); i++) {
        const json_t *row = json_array_get(comm, i);
        const json_t *same = row_of(calls, "kind", text(row, "op"), text(row, "axes"));
        double per_step = json_number_value(json_object_get(row, "calls"));
        counted += per_step > 0;
        CHECK_EQ(same != NULL, per_step > 0);
        CHECK_NEAR(json_number_value(json_object_get(same, "calls")), per_step, 1e-9);
        CHECK_NEAR(json_number_value(json_object_get(same, "received_bytes")),
                   json_number_value(json_object_get(row, "bytes")), 1e-6);
    }
    CHECK(counted > 0);
    CHECK_EQ(json_array_size(calls), counted);
    CHECK_EQ(whole(dry, "ranks"), ranks);
    CHECK_EQ(whole(dry, "rank"), ranks - 1);
    CHECK_EQ(whole(dry, "steps"), 6);
    const json_t *memory = json_object_get(dry, "memory");
    CHECK_EQ(whole(memory, "peak_bytes"), whole(real, "peak_bytes"));
    CHECK_EQ(whole(memory, "live_bytes"), 0);
    json_decref(dry);
    json_decref(real);
}

static void a_step_is_that_of_real_ranks(void)
{
    check_like_real(2, "--mesh dp=1,tp=2");
    check_like_real(2, "--mesh dp=2,tp=1");
    check_like_real(4, "--mesh dp=2,tp=2");
    check_like_real(4, "--mesh dp=2,tp=2 --dtype bf16");
}

/* ---- what it says ---------------------------------------------------------------------------- */

static void the_keys_are_there_in_their_order(void)
{
    json_t *o = dry_run("-n 2 " GPT " " MODEL " --mesh tp=2");
    const json_t *step = json_object_get(o, "step");
    char keys[256];

    keys_of(o, keys, sizeof keys);
    CHECK_TEXT(keys, "rank ranks rates memory all steps step failure");
    keys_of(json_object_get(o, "rates"), keys, sizeof keys);
    CHECK_TEXT(keys, "f32 f64 half memory");
    keys_of(json_object_get(o, "memory"), keys, sizeof keys);
    CHECK_TEXT(keys, "live_bytes peak_bytes peak");
    keys_of(json_object_get(json_object_get(o, "memory"), "peak"), keys, sizeof keys);
    CHECK_TEXT(keys, "other saved optimizers gradients parameters");
    keys_of(step, keys, sizeof keys);
    CHECK_TEXT(keys, "seconds calls work");
    keys_of(json_object_get(o, "all"), keys, sizeof keys);
    CHECK_TEXT(keys, "seconds calls work");
    keys_of(json_array_get(json_object_get(step, "calls"), 0), keys, sizeof keys);
    CHECK_TEXT(keys, "kind axes calls received_bytes seconds");
    keys_of(json_array_get(json_object_get(step, "work"), 0), keys, sizeof keys);
    CHECK_TEXT(keys, "name calls operations bytes seconds");
    json_decref(o);
}

/* Seconds of all that is in a list. */
static double seconds_of(const json_t *list)
{
    double sum = 0;

    for (size_t i = 0; i < json_array_size(list); i++)
        sum += json_number_value(json_object_get(json_array_get(list, i), "seconds"));
    return sum;
}

/* Nothing overlaps, and nothing else takes time. */
static void times_add_up(void)
{
    json_t *o = dry_run("-n 4 " GPT " " MODEL " --mesh dp=2,tp=2");
    const json_t *step = json_object_get(o, "step"), *all = json_object_get(o, "all");

    CHECK_NEAR(json_number_value(json_object_get(step, "seconds")),
               seconds_of(json_object_get(step, "work")) +
                   seconds_of(json_object_get(step, "calls")),
               1e-6);
    CHECK(json_number_value(json_object_get(all, "seconds")) >
          5 * json_number_value(json_object_get(step, "seconds")));
    json_decref(o);
}

static void people_get_tables(void)
{
    const program_end *end = sherd("dry " NO_RATE GPT " " MODEL " --mesh dp=2,tp=4");

    CHECK_EQ(end->status, 0);
    CHECK(strstr(end->out, "model    2 blocks")); /* the program's own */
    CHECK(strstr(end->out, "\nrank 0 of 8, dry: nothing was computed, nothing has moved\n"));
    CHECK(strstr(end->out, "of tensors at most: parameters "));
    CHECK(strstr(end->out, "rates       1 GFLOP/s of f32, 2 GFLOP/s of 16 bits, 9.313 GiB/s"));
    CHECK(strstr(end->out, "\nstep 6      "));
    CHECK(strstr(end->out, "\nsherd_linear backward "));
    CHECK(strstr(end->out, " others "));
    CHECK(strstr(end->out, "\nall_reduce  tp "));
    CHECK_TEXT(end->err, "");
    end = sherd("dry --rates memory=1e10 " GPT " " MODEL " --mesh dp=2,tp=4");
    CHECK(strstr(end->out, "rates       0 FLOP/s of f32, 0 FLOP/s of 16 bits, 9.313 GiB/s"));
}

static void rates_are_measured_where_none_are_given(void)
{
    const program_end *end = sherd("dry --json -n 2 " GPT " " MODEL " --mesh tp=2");
    json_t *o = parsed(end->out);
    const json_t *rates = json_object_get(o, "rates");

    CHECK(json_number_value(json_object_get(rates, "f32")) > 1e8);
    CHECK(json_number_value(json_object_get(rates, "half")) > 1e8);
    CHECK(json_number_value(json_object_get(rates, "memory")) > 1e8);
    json_decref(o);
}

/* A time line of what would have been: events one behind the other, up to the time of all. */
static void a_trace_is_of_the_time_that_would_have_passed(void)
{
    char line[512], path[64];
    static char events[1 << 20];
    int fd = memfd_create("trace", 0);

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    snprintf(line, sizeof line, "dry --json " NO_RATE "-n 2 --trace %s %s", path,
             GPT " --layers 1 --dim 16 --heads 2 --context 8 --batch 2 --steps 1 --mesh tp=2");
    CHECK_EQ(sherd(line)->status, 0);
    ssize_t n = pread(fd, events, sizeof events - 3, 0);
    close(fd);
    if (!CHECK(n > 2))
        return;
    memcpy(events + n - 2, "]", 2); /* the list is left open, after a comma */
    json_t *list = parsed(events);
    double last = -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i), *at = json_object_get(e, "ts");
        double end = json_number_value(at) + json_number_value(json_object_get(e, "dur"));
        CHECK(!at || end + 1e-3 >= last); /* an event is written when it ends */
        last = at ? end : last;
    }
    CHECK(last > 0);
    json_decref(list);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void the_exit_status_is_the_programs(void)
{
    const program_end *end = sherd("dry -n 2 " GPT " --mesh tp=3");

    CHECK_EQ(end->status, 2);
    CHECK(strstr(end->err, "gpt: "));
    CHECK(strstr(end->err, "\nsherd dry: rank 0 exited with status 2\n"));
    end = sherd("dry -n 2 --rank 1 --rates f32=1 /bin/false");
    CHECK_EQ(end->status, 1);
    CHECK_TEXT(end->err, "sherd dry: rank 1 exited with status 1\n");
    end = sherd("dry -n 2 --rates f32=1 /bin/sh -c kill$IFS-9$IFS$$"); /* blanks part arguments */
    CHECK_EQ(end->status, 128 + 9);
    CHECK_TEXT(end->err, "sherd dry: rank 0 was killed by signal 9 (SIGKILL)\n");
    end = sherd("dry -n 2 /bin/true");
    CHECK_EQ(end->status, 1);
    CHECK_TEXT(end->err,
               "sherd dry: \"/bin/true\" has opened no world of sherd, or not closed it\n");
    double start = program_clock();
    end = sherd("dry /no/such/program"); /* nothing is measured for it */
    CHECK(program_clock() - start < 0.5);
    CHECK_EQ(end->status, 1);
    CHECK(strstr(end->err, "sherd dry: \"/no/such/program\" can not be started: No such file"));
    end = sherd("dry no_such_program");
    CHECK_EQ(end->status, 1);
    CHECK(strstr(end->err, "sherd dry: \"no_such_program\" can not be started: "));
    CHECK_TEXT(sherd("dry /tmp")->err, "sherd dry: \"/tmp\" can not be started: Is a directory\n");
    CHECK_TEXT(sherd("dry /dev/null")->err,
               "sherd dry: \"/dev/null\" can not be started: Permission denied\n");
    CHECK_EQ(sherd("dry --rates f32=1 false")->status, 1); /* by PATH */
}

/* A variable that was left in the environment is no riddle. */
static void who_is_dry_without_asking_is_told(void)
{
    setenv("SHERD_DRY", "0", 1);
    const program_end *end = program_run(GPT " " MODEL " --mesh tp=2");
    unsetenv("SHERD_DRY");
    CHECK_EQ(end->status, 0);
    CHECK(strstr(end->err, "sherd: SHERD_DRY=0: a dry run, which computes nothing\n"));
    CHECK(strstr(end->out, "transport dry"));
}

/* A stage learns from the ranks that were run before it what it gets. */
static void stages_are_run_one_after_the_other(void)
{
    const program_end *end = sherd("dry --json " NO_RATE "--rank 0,3,4 " SHERD_BUILD_DIR
                                   "/examples/pipeline pp=3,dp=1,tp=2 3 4 2");
    static const int ranks[] = {0, 3, 4};
    char text_of_all[PROGRAM_TEXT], *rest = text_of_all;

    CHECK_EQ(end->status, 0);
    CHECK_EQ(program_lines(end->out), LEN(ranks));
    memcpy(text_of_all, end->out, sizeof text_of_all);
    for (int i = 0; i < LEN(ranks); i++) {
        json_t *report = parsed(strsep(&rest, "\n"));
        CHECK_EQ(whole(report, "rank"), ranks[i]);
        CHECK_EQ(whole(report, "steps"), 2);
        json_decref(report);
    }
    end =
        sherd("dry " NO_RATE "--rank 2 " SHERD_BUILD_DIR "/examples/pipeline pp=3,dp=1,tp=2 3 4 2");
    CHECK(end->status != 0);
    CHECK(strstr(end->out,
                 "\nfailure     rank 2: a dry rank can not know what others send: run one "));
}

/* Six stages at three places: a rank also needs what comes from those that are run after it. */
static void stages_that_come_round_are_run_again(void)
{
    static const char *const schedules[] = {"1f1b", "zero", "gpipe"};

    for (int s = 0; s < LEN(schedules); s++) {
        char command[512], text_of_all[PROGRAM_TEXT], *rest = text_of_all;
        snprintf(command, sizeof command,
                 "dry --json " NO_RATE "--rank 0,1,2 " SHERD_BUILD_DIR
                 "/examples/pipeline pp=3,dp=1,tp=1 6 6 2 6 32 12 8 %s",
                 schedules[s]);
        const program_end *end = sherd(command);
        CHECK_EQ(end->status, 0);
        CHECK_EQ(program_lines(end->out), 3);
        memcpy(text_of_all, end->out, sizeof text_of_all);
        for (int i = 0; i < 3; i++) {
            json_t *report = parsed(strsep(&rest, "\n"));
            CHECK_EQ(whole(report, "rank"), i);
            CHECK_EQ(whole(report, "steps"), 2);
            CHECK(json_is_null(json_object_get(report, "failure")));
            json_decref(report);
        }
    }
    /* Without the last place nothing more comes to be known. */
    const program_end *end = sherd("dry " NO_RATE "--rank 0,1 " SHERD_BUILD_DIR
                                   "/examples/pipeline pp=3,dp=1,tp=1 6 6 2 6 32 12 8");
    CHECK(end->status != 0);
    CHECK(strstr(end->out, "a dry rank can not know what others send: run one "));
}

static void wrong_arguments_are_refused(void)
{
    static const struct {
        const char *arguments, *says;
    } wrong[] = {
        {"dry", "which program?"},
        {"dry -n 0 /bin/true", "-n: \"0\" is no number of ranks"},
        {"dry -n two /bin/true", "-n: \"two\" is no number of ranks"},
        {"dry --rank -1 /bin/true", "--rank: \"-1\" is no rank"},
        {"dry -n 4 --rank 4 /bin/true", "--rank: there is no rank 4 of 4"},
        {"dry --speed 3 /bin/true", "there is no option \"--speed\""},
        {"dry -n 2 -n 2 /bin/true", "--ranks is given twice"},
        {"dry --rates f32=fast /bin/true",
         "sherd dry: --rates: f32=fast: a rate that is no number at \"f32=fast\": expected for "},
        {"dry --rates f31=1 /bin/true", "there is no such rate at \"f31=1\""},
        {"dry --rates f32=1,f64=-1 /bin/true", "negative, or not finite at \"f64=-1\""},
        {"dry --rates f32=1e400 /bin/true", "negative, or not finite at \"f32=1e400\""},
        {"dry --rates f32=nan /bin/true", "no number at \"f32=nan\""},
        {"dry --rates f32=1e9,f32=2 /bin/true", "given twice at \"f32=2\""},
        {"dry --rates f32=1 --price /no/such/file /bin/true",
         "sherd dry: --price: \"/no/such/file\" can not be read"},
        {"dry --rates f32=1 --price /proc/self/maps /bin/true", "sherd dry: --price: "},
        {"dry -n 4 --axes dp,,tp /bin/true {mesh}", "--axes: \"dp,,tp\" are no names of axes"},
        {"dry -n 4 --axes dp,dp /bin/true {mesh}", "--axes: \"dp,dp\" name an axis twice"},
        {"dry -n 4 --axes a\"b,x /bin/true {mesh}", "--axes: \"a\"b,x\" are no names of axes"},
        {"dry -n 4 --axes 2,x /bin/true {mesh}", "--axes: \"2,x\" are no names of axes"},
        {"dry -n 4 --axes a,b,c,d,e,f,g,h,i /bin/true {mesh}", "are more than 8 axes"},
        {"dry -n 4 --axes a --trace /no/file /bin/true {mesh}", "--axes takes no trace"},
        {"dry -n 4 --rates f32=1 --trace /no/file /bin/true", "SHERD_TRACE=/no/file: can not"},
        {"dry --axes dp /bin/true {mesh}", "--axes: of how many ranks? -n N"},
        {"dry -n 4 --axes dp /bin/true --mesh dp=4", "write {mesh} there, as in --mesh {mesh}"},
        {"dry -n 100000 --axes a,b,c,d,e,f /bin/true {mesh}",
         "--axes: 100000 ranks make more than 1000 meshes of 6 axes"},
        {"dry --rates f32=1 --price torch /bin/true",
         "--price: torch is a price of plans, not of calls: expected arena, or a file of prices"},
    };

    for (int i = 0; i < LEN(wrong); i++) {
        const program_end *end = sherd(wrong[i].arguments);
        CHECK_EQ(end->status, 2);
        CHECK_TEXT(end->out, "");
        if (!CHECK(strstr(end->err, wrong[i].says)))
            fprintf(stderr, "%s: %s", wrong[i].arguments, end->err);
    }
    const program_end *end = sherd("help dry");
    CHECK(strstr(end->out, "--price PRICE") && !strstr(end->out, "torch"));
}

/* Whether a folder has something in it within some seconds. */
static bool is_filled(const char *folder)
{
    struct stat about;

    for (double end = program_clock() + 10; program_clock() < end; program_pause(0.002))
        if (stat(folder, &about) == 0 && about.st_nlink > 2)
            return true;
    return false;
}

/* Neither its folder nor the program stays, whichever way it was ended, and no other mesh is
 * tried. */
static void a_signal_leaves_nothing_behind(void)
{
    static const char *const lines[] = {"-n 2 --rank 0,1 /bin/sleep 77",
                                        "-n 2 --axes x,y /bin/sh -c exec\tsleep\t77;:\t{mesh}"};
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

    for (int i = 0; i < LEN(lines) * LEN(signals); i++) {
        char folder[] = "/tmp/sherd-signal-XXXXXX", line[512];
        int number = signals[i / LEN(lines)];
        if (!CHECK(mkdtemp(folder) != NULL))
            return;
        snprintf(line, sizeof line, SHERD " dry " NO_RATE "%s", lines[i % LEN(lines)]);
        setenv("TMPDIR", folder, 1);
        program p = program_start(line);
        unsetenv("TMPDIR");
        CHECK(is_filled(folder));
        program_kill(&p, number);
        const program_end *end = program_wait(&p);
        CHECK_EQ(end->status, 128 + number);
        CHECK_TEXT(end->out, "");
        CHECK_EQ(end->left, 0);
        CHECK_EQ(rmdir(folder), 0);
    }
}

static const check_test tests[] = {
    {TEST(a_step_is_that_of_real_ranks)},
    {TEST(the_keys_are_there_in_their_order)},
    {TEST(times_add_up)},
    {TEST(people_get_tables)},
    {TEST(rates_are_measured_where_none_are_given)},
    {TEST(a_trace_is_of_the_time_that_would_have_passed)},
    {TEST(the_exit_status_is_the_programs)},
    {TEST(who_is_dry_without_asking_is_told)},
    {TEST(stages_are_run_one_after_the_other)},
    {TEST(stages_that_come_round_are_run_again)},
    {TEST(a_signal_leaves_nothing_behind)},
    {TEST(wrong_arguments_are_refused)},
};

int main(int argc, char **argv)
{
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
