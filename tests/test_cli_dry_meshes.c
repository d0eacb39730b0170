/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd dry --axes: the lines of meshes are those of runs on each of them, and say why a program
 * failed there; what is said of programs that fail or recover, of several ranks, and of a full disk.
 */
#define CHECK_PURE
#include "check.h"
#include "dry_run.h"

#include <sherd.h>

static const char *self; /* this program */

/* What it does as the program of a dry run: "recovers:MESH", "breaks:MESH", "fails:MESH". */
static int play_dry(const char *mode)
{
    sherd_world *world;
    const sherd_mesh *mesh;

    if (sherd_world_open(&world, NULL) || sherd_mesh_parse(&mesh, world, strchr(mode, ':') + 1))
        return 21;
    if (mode[0] == 'b') {
        if (sherd_mesh_extent(mesh, 1) <= 2)
            return sherd_world_close(world);
        fprintf(stderr, "opened\nno heads \xff for tp=4\n\n");
        return 22;
    }
    sherd_world_fail(world, SHERD_EINVAL, "no such thing");
    if (mode[0] == 'r' && sherd_world_check(world) != SHERD_EINVAL)
        return 24;
    return sherd_world_close(world) ? 23 : 0;
}

/* ---- on many meshes -------------------------------------------------------------------------- */

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* What a line of --axes says of a mesh is what a run on that mesh says. */
static void check_mesh(const json_t *line)
{
    char arguments[512];

    snprintf(arguments, sizeof arguments, "-n 6 " GPT " " MODEL " --mesh %s", text(line, "mesh"));
    json_t *alone = dry_run(arguments);
    CHECK_EQ(number(line, "seconds"), number(json_object_get(alone, "step"), "seconds"));
    CHECK_EQ(number(line, "peak_bytes"), number(json_object_get(alone, "memory"), "peak_bytes"));
    CHECK_NEAR(number(line, "work_seconds") + number(line, "calls_seconds"),
               number(line, "seconds"), 1e-9);
    json_decref(alone);
}

static void meshes_are_compared(void)
{
    const program_end *end =
        sherd("dry -n 6 --axes dp,tp --json " NO_RATE GPT " " MODEL " --mesh {mesh}");
    char text_of_all[PROGRAM_TEXT], *rest = text_of_all;
    double before = 0;

    CHECK_EQ(end->status, 0);
    CHECK_EQ(program_lines(end->out), 4); /* 1x6, 2x3, 3x2, 6x1 */
    memcpy(text_of_all, end->out, sizeof text_of_all);
    for (int i = 0; i < 4; i++) {
        json_t *line = parsed(strsep(&rest, "\n"));
        CHECK(json_is_null(json_object_get(line, "failure")));
        CHECK(number(line, "seconds") >= before);
        before = number(line, "seconds");
        check_mesh(line);
        json_decref(line);
    }
    end = sherd("dry -n 6 --axes dp,tp " NO_RATE GPT " " MODEL " --mesh {mesh}");
    CHECK_EQ(end->status, 0);
    CHECK_EQ(program_lines(end->out), 5);
    CHECK(strncmp(end->out, "mesh ", 5) == 0 && strstr(end->out, "\ndp=2,tp=3 "));
}

/* Ranks of stages are run for each mesh anew; one on which the program fails says why. */
static void meshes_of_pipelines_are_compared(void)
{
    const program_end *end =
        sherd("dry -n 4 --rank 0,2 --axes pp,dp,tp --json " NO_RATE SHERD_BUILD_DIR
              "/examples/pipeline {mesh} 3 4 2");
    char text_of_all[PROGRAM_TEXT], *rest = text_of_all;
    int good = 0;

    CHECK_EQ(end->status, 0);
    CHECK_EQ(program_lines(end->out), 6);
    memcpy(text_of_all, end->out, sizeof text_of_all);
    for (int i = 0; i < 6; i++) {
        json_t *line = parsed(strsep(&rest, "\n"));
        bool failed = json_is_string(json_object_get(line, "failure"));
        CHECK(failed ? *text(line, "failure") : number(line, "peak_bytes") > 0);
        CHECK(failed || good == i); /* those that failed are the last */
        good += !failed;
        json_decref(line);
    }
    CHECK(good >= 3); /* pp = 1 and 2: of four places only two were run */
    end = sherd("dry -n 2 --axes x " NO_RATE "/bin/false {mesh}");
    CHECK_EQ(end->status, 1);
    CHECK(strstr(end->out, "rank 0 exited with status 1"));
}

/* `sherd dry OPTIONS -- this-program MODE` */
static const program_end *dry_self(const char *options, const char *mode)
{
    char line[512];

    snprintf(line, sizeof line, "dry " NO_RATE "%s -- %s %s", options, self, mode);
    return sherd(line);
}

/* Who recovers from an error and returns 0 has not failed. */
static void an_error_that_was_met_is_no_failure(void)
{
    const program_end *end = dry_self("-n 4 --axes dp,tp --json", "recovers:{mesh}");

    CHECK_EQ(end->status, 0);
    CHECK_EQ(program_lines(end->out), 3);
    for (int i = 0; i < 3; i++) {
        json_t *line = line_of(end->out, i);
        CHECK(json_is_null(json_object_get(line, "failure")));
        json_decref(line);
    }
    end = dry_self("-n 4 --axes dp,tp", "recovers:{mesh}");
    CHECK_EQ(program_lines(end->out), 4);
    CHECK(!strstr(end->out, "failure"));
}

/* Its last words say why, if there are any; numbers are those of meshes that it ran on. */
static void a_mesh_that_fails_says_why(void)
{
    const program_end *end = dry_self("-n 4 --axes dp,tp --json", "breaks:{mesh}");
    char keys[128];

    CHECK_EQ(end->status, 0);
    for (int i = 0; i < 3; i++) {
        json_t *line = line_of(end->out, i);
        keys_of(line, keys, sizeof keys);
        CHECK_TEXT(keys, "mesh seconds work_seconds calls_seconds received_bytes peak_bytes "
                         "failure");
        if (i == 2) {
            CHECK_TEXT(text(line, "mesh"), "dp=1,tp=4");
            CHECK_TEXT(text(line, "failure"), "rank 0 exited with status 22: no heads ? for tp=4");
            CHECK(json_is_null(json_object_get(line, "seconds")) &&
                  json_is_null(json_object_get(line, "peak_bytes")));
        } else {
            CHECK(whole(line, "peak_bytes") >= 0 && whole(line, "received_bytes") >= 0);
            CHECK(json_is_real(json_object_get(line, "seconds")));
        }
        json_decref(line);
    }
    end = dry_self("-n 4 --axes dp,tp", "fails:{mesh}");
    CHECK_EQ(end->status, 1);
    CHECK(strstr(end->out, "  rank 0 exited with status 23: rank 0: no such thing\n"));
}

/* As of `sherd run`. */
static void the_last_line_has_the_failure(void)
{
    const program_end *end = dry_self("-n 2", "fails:tp=2");

    CHECK_EQ(end->status, 23);
    CHECK_TEXT(end->err, "sherd dry: rank 0 exited with status 23: rank 0: no such thing\n");
    end = dry_self("-n 2", "recovers:tp=2");
    CHECK_EQ(end->status, 0);
    CHECK_TEXT(end->err, "");
}

static void what_can_not_be_printed_is_said(void)
{
    char line[512];

    for (int json = 0; json < 2; json++) {
        snprintf(line, sizeof line, "dry " NO_RATE "-n 2%s -- %s recovers:tp=2",
                 json ? " --json" : "", self);
        check_full(line, "dry");
    }
    snprintf(line, sizeof line, "dry " NO_RATE "-n 2 --axes tp -- %s recovers:{mesh}", self);
    check_full(line, "dry");
}

/* All ranks that are run are in one time line. */
static void a_trace_has_all_ranks(void)
{
    static char events[1 << 16];
    char options[128];
    int fd = memfd_create("trace", 0);

    snprintf(options, sizeof options, "-n 3 --rank 2,0 --trace /proc/%d/fd/%d", (int)getpid(), fd);
    CHECK_EQ(dry_self(options, "recovers:tp=3")->status, 0);
    ssize_t n = pread(fd, events, sizeof events - 1, 0);
    events[n < 0 ? 0 : n] = '\0';
    close(fd);
    CHECK(strstr(events, "rank 0") && strstr(events, "rank 2") && !strstr(events, "rank 1"));
    CHECK_EQ(events[0], '[');
    CHECK(!strchr(events + 1, '[') || strchr(events + 1, '[')[-1] != '\n');
}

static const check_test tests[] = {
    {TEST(meshes_are_compared)},
    {TEST(meshes_of_pipelines_are_compared)},
    {TEST(an_error_that_was_met_is_no_failure)},
    {TEST(a_mesh_that_fails_says_why)},
    {TEST(the_last_line_has_the_failure)},
    {TEST(what_can_not_be_printed_is_said)},
    {TEST(a_trace_has_all_ranks)},
};

int main(int argc, char **argv)
{
    self = argv[0];
    if (getenv("SHERD_DRY") && argc > 1)
        return play_dry(argv[1]);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
