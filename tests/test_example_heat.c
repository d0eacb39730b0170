/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The heat example: the same bits on every mesh, an error within the bound that it prints and of
 * the order that theory says, a file that numpy reads, a picture, and one clear line for whatever
 * is wrong.
 */
#define CHECK_PURE
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

#include "check.h"
#include "program.h"

#define SMALL HEAT " --size 13x11x9 --steps 40"

enum { FILE_BYTES = 1 << 16 };

/* The text behind a word at the beginning of a line of what a program printed, up to the end of its
 * line; "" if there is none. */
static void told(char *out, size_t room, const char *text, const char *word)
{
    const char *at = strstr(text, word);
    size_t length;

    at = at ? at + strlen(word) : "";
    at += strspn(at, " ");
    length = strcspn(at, "\n");
    snprintf(out, room, "%.*s", (int)length, at);
}

/* Run it; the checksum that it printed. */
static void run(char *sum, const char *line)
{
    const program_end *end = program_run(line);

    told(sum, 32, end->out, "\nchecksum");
    bool good = CHECK_EQ(end->status, 0);
    good &= CHECK_TEXT(end->err, "");
    good &= CHECK_EQ(strlen(sum), 16);
    good &= CHECK_EQ(end->left, 0);
    if (!good)
        fprintf(stderr, "%s\n", line);
}

/* ---- bits ----------------------------------------------------------------------------------- */

/* Pieces of one layer and of none, too. */
static const char *const meshes[] = {
    "-n 2",
    "-n 3 --threads",
    "-n 4",
    "-n 8",
    "--mesh y=2",
    "--mesh z=3",
    "--mesh x=2,y=2 --threads",
    "--mesh y=4,z=2",
    "--mesh x=2,y=2,z=2",
    "--mesh z=8",
    "--mesh x=3 --cuts 0:1,2,10",
    "--mesh x=4 --cuts 0:0,12,0,1 --threads",
    "--mesh y=2,z=2 --cuts 2:8,1",
};

static void every_mesh_has_the_same_bits(void)
{
    static const char *const borders[] = {"zero", "periodic", "insulated"};
    char line[1024], one[32], many[32], before[32] = "";

    for (int b = 0; b < LEN(borders); b++) {
        snprintf(line, sizeof line, SMALL " -n 1 --border %s", borders[b]);
        run(one, line);
        CHECK(strcmp(one, before) != 0);
        for (int i = 0; i < LEN(meshes); i++) {
            snprintf(line, sizeof line, SMALL " %s --border %s", meshes[i], borders[b]);
            run(many, line);
            if (!CHECK_TEXT(many, one))
                fprintf(stderr, "%s\n", line);
        }
        snprintf(before, sizeof before, "%s", one);
    }
    snprintf(line, sizeof line, SHERD " run -n 3 -- " SMALL " --border insulated");
    run(many, line);
    CHECK_TEXT(many, one);
}

/* A grid with fewer points than ranks, down to a single one, and no step at all. */
static void small_grids_are_right_too(void)
{
    static const char *const grids[] = {"--size 1x1x1", "--size 2x1x3", "--size 1x5x2",
                                        "--size 3x3x3 --steps 0"};
    char line[1024], one[32], many[32];

    for (int i = 0; i < LEN(grids); i++)
        for (int periodic = 0; periodic < 2; periodic++) {
            snprintf(line, sizeof line, HEAT " --steps 9 %s -n 1 --border %s", grids[i],
                     periodic ? "periodic" : "zero");
            run(one, line);
            snprintf(line, sizeof line, HEAT " --steps 9 %s --mesh x=2,z=2 --border %s", grids[i],
                     periodic ? "periodic" : "zero");
            run(many, line);
            CHECK_TEXT(many, one);
        }
}

/* ---- the exact solution --------------------------------------------------------------------- */

static double error_of(const char *line)
{
    char text[128];
    double error = -1, bound = -1;

    const program_end *end = program_run(line);
    CHECK_EQ(end->status, 0);
    told(text, sizeof text, end->out, "\nerror");
    CHECK_EQ(sscanf(text, "%lf at most, bound %lf", &error, &bound), 2);
    if (!CHECK(error > 0 && error <= bound))
        fprintf(stderr, "%s\n%s", line, text);
    return error;
}

/* Half the spacing and a quarter of the step: a quarter of the error, at the same time. */
static void the_error_is_of_second_order(void)
{
    static const char *const borders[] = {"periodic", "insulated"};
    char line[1024];

    for (int b = 0; b < LEN(borders); b++) {
        double error[2];
        for (int i = 0; i < 2; i++) {
            snprintf(line, sizeof line,
                     HEAT " -n 2 --size %dx%dx%d --steps %d --modes 1 --border %s", 12 << i,
                     16 << i, 20 << i, 30 << 2 * i, borders[b]);
            error[i] = error_of(line);
        }
        if (!CHECK(error[0] / error[1] > 3.5 && error[0] / error[1] < 4.5))
            fprintf(stderr, "%s: %g %g\n", borders[b], error[0], error[1]);
    }
    CHECK(error_of(HEAT " --size 31x17x24 --steps 200 --modes 64 --courant 1 --seed 7") < 0.1);
    CHECK(error_of(HEAT " --size 31x17x24 --steps 200 --courant 0.25") < 0.01);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* What is in a file; how many bytes. */
static size_t contents(const char *path, char *out)
{
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(out, 1, FILE_BYTES, file) : 0;

    if (file)
        fclose(file);
    return n;
}

static int entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = -2; /* . and .. */

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

/* Two meshes write one and the same file; its header is that of the format's version 1. */
static void the_file_is_what_numpy_wants(void)
{
    static char one[FILE_BYTES], many[FILE_BYTES];
    char folder[] = "/tmp/sherd-heat-XXXXXX", path[64], line[1024], sum[32];
    static const char wanted[] =
        "\x93NUMPY\1\0\x76\0{'descr': '<f8', 'fortran_order': False, 'shape': (13, 11, 9), } ";
    const size_t header = 128, bytes = header + (size_t)13 * 11 * 9 * 8;
    double first;

    if (!CHECK(mkdtemp(folder) != NULL))
        return;
    snprintf(path, sizeof path, "%s/state.npy", folder);
    snprintf(line, sizeof line, SMALL " -n 1 --steps 0 --modes 1 --output %s", path);
    run(sum, line);
    CHECK_EQ(contents(path, one), bytes);
    CHECK(memcmp(one, wanted, sizeof wanted - 1) == 0);
    CHECK_EQ(one[header - 1], '\n');
    memcpy(&first, one + header, sizeof first);
    CHECK_NEAR(first, sin(acos(-1) / 14) * sin(acos(-1) / 12) * sin(acos(-1) / 10), 1e-15);

    snprintf(line, sizeof line, SMALL " -n 1 -o %s", path);
    run(sum, line);
    CHECK_EQ(contents(path, one), bytes);
    snprintf(line, sizeof line, SMALL " --mesh x=2,z=2 -o %s", path); /* over the old one */
    run(sum, line);
    CHECK_EQ(contents(path, many), bytes);
    CHECK(memcmp(one, many, bytes) == 0);
    CHECK_EQ(entries(folder), 1);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(rmdir(folder), 0);
}

/* Of a program that was built without libpng: one line. */
static void the_picture_is_a_png(void)
{
    static char one[FILE_BYTES], many[FILE_BYTES];
    char folder[] = "/tmp/sherd-heat-XXXXXX", path[64], line[1024], sum[32];

    if (!CHECK(mkdtemp(folder) != NULL))
        return;
    snprintf(path, sizeof path, "%s/slice.png", folder);
    snprintf(line, sizeof line, SMALL " -n 1 --picture %s", path);
    const program_end *end = program_run(line);
    if (strstr(end->err, "without libpng")) {
        CHECK_EQ(end->status, 1);
        CHECK_EQ(program_lines(end->err), 1);
        CHECK_EQ(entries(folder), 0);
        CHECK_EQ(rmdir(folder), 0);
        return;
    }
    CHECK_EQ(end->status, 0);
    size_t bytes = contents(path, one);
    CHECK(bytes > 100 && memcmp(one, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) == 0);
    CHECK_EQ(one[18] * 256 + (unsigned char)one[19], 11 * 30); /* wide: y, each point 30 pixels */
    CHECK_EQ(one[22] * 256 + (unsigned char)one[23], 13 * 30); /* high: x */
    snprintf(line, sizeof line, SMALL " --mesh x=2,z=2 --picture %s", path);
    run(sum, line);
    CHECK_EQ(contents(path, many), bytes);
    CHECK(memcmp(one, many, bytes) == 0);
    CHECK_EQ(entries(folder), 1);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(rmdir(folder), 0);
}

/* ---- misuse --------------------------------------------------------------------------------- */

typedef struct bad {
    const char *line;
    int status;
    const char *says; /* part of the message */
} bad;

static const bad calls[] = {
    {HEAT " --frobnicate", 2, "\"--frobnicate\""},
    {HEAT " stray", 2, "\"stray\""},
    {HEAT " --steps", 2, "--steps"},
    {HEAT " --steps=", 2, "--steps"},
    {HEAT " --steps -1", 2, "\"-1\""},
    {HEAT " --steps 10x", 2, "\"10x\""},
    {HEAT " --size 8x8", 2, "\"8x8\""},
    {HEAT " --size 8x8x8x8", 2, "\"8x8x8x8\""},
    {HEAT " --size 8x0x8", 2, "\"8x0x8\""},
    {HEAT " --size 8x8x9999999999999999999999", 2, "--size"},
    {HEAT " --border reflect", 2, "\"reflect\""},
    {HEAT " --courant 0", 2, "--courant"},
    {HEAT " --courant nan", 2, "--courant"},
    {HEAT " --courant 1.01", 2, "\"1.01\""},
    {HEAT " --modes 65", 2, "64"},
    {HEAT " --threads=yes", 2, "--threads"},
    {HEAT " -n 0", 2, "\"0\""},
    {HEAT " -n 1025", 2, "1024"},
    {HEAT " --mesh 2x2", 2, "\"2x2\""},
    {HEAT " --mesh x=2,x=2", 2, "\"x=2,x=2\""},
    {HEAT " --mesh x=2,", 2, "--mesh"},
    {HEAT " --mesh x=", 2, "--mesh"},
    {HEAT " --mesh t=2", 2, "\"t=2\""},
    {HEAT " --mesh x=16,y=9,z=8", 2, "1152"},
    {HEAT " --mesh x=2,y=2 -n 3", 2, "there are 3"},
    {SMALL " --cuts 0:6,6", 2, "13"},
    {SMALL " --cuts here", 2, "\"here\""},
    {HEAT " --size 100000x100000x100000", 1, "out of memory"},
    {HEAT " --output", 2, "--output"},
    {HEAT " --output --picture", 2, "--output"},
    {SMALL " --output /nowhere/at/all.npy", 1, "/nowhere/at/all.npy"},
    {SMALL " --output /tmp", 1, "/tmp"},
    {SMALL " --output /dev/full", 1, "No space left"},
};

/* One line that begins and reads as it should; a launcher adds one of its own. */
static void complains(const char *line, const bad *b)
{
    const program_end *end = program_run(line);
    bool good = CHECK_EQ(end->status, b->status), launched = strncmp(line, HEAT, strlen(HEAT)) != 0;

    good &= CHECK_EQ(program_lines(end->err), launched ? 2 : 1);
    good &= CHECK(strstr(end->err, b->says) != NULL);
    good &= CHECK(strncmp(end->err, "heat: ", 6) == 0);
    good &= CHECK_EQ(end->left, 0);
    if (!good)
        fprintf(stderr, "%s\n%s", line, end->err);
}

static void bad_input_ends_in_one_line(void)
{
    for (int i = 0; i < LEN(calls); i++)
        complains(calls[i].line, &calls[i]);
}

static void under_a_launcher_one_rank_speaks(void)
{
    char line[1024];

    for (int i = 0; i < LEN(calls); i++) {
        if (strstr(calls[i].line, "--cuts 0:6") || strstr(calls[i].line, "there are"))
            continue; /* the ranks are others */
        snprintf(line, sizeof line, SHERD " run -n 3 -- %s", calls[i].line);
        complains(line, &calls[i]);
    }
    complains(SHERD " run -n 3 -- " HEAT " --mesh x=2", &(bad){"", 2, "there are 3"});
    complains(SHERD " run -n 3 -- " HEAT " -n 2", &(bad){"", 2, "3 were started"});
}

static void help_fits_a_screen(void)
{
    const program_end *end = program_run(HEAT " --help");

    CHECK_EQ(end->status, 0);
    CHECK_TEXT(end->err, "");
    CHECK(program_lines(end->out) <= 40);
    CHECK(strstr(end->out, "--border") != NULL);
    end = program_run(SHERD " run -n 3 " HEAT " --help");
    CHECK(program_lines(end->out) <= 40);
}

/* It computes nothing, so nothing is wrong. */
static void a_dry_run_is_not_judged(void)
{
    const program_end *end = program_run(SHERD " dry -n 64 --rates f32=1e11 " SMALL);

    CHECK_EQ(end->status, 0);
    CHECK_TEXT(end->err, "");
    CHECK(strstr(end->out, "rank 0 of 64, dry") && !strstr(end->out, "error "));
}

static void output_that_is_lost_is_a_failure(void)
{
    program p = program_start_to(SMALL, open("/dev/full", O_WRONLY | O_CLOEXEC));
    const program_end *end = program_wait(&p);

    CHECK_EQ(end->status, 1);
    CHECK_EQ(program_lines(end->err), 1);
    CHECK_EQ(end->left, 0);
}

static const check_test tests[] = {
    {TEST(every_mesh_has_the_same_bits)},
    {TEST(small_grids_are_right_too)},
    {TEST(the_error_is_of_second_order)},
    {TEST(the_file_is_what_numpy_wants)},
    {TEST(the_picture_is_a_png)},
    {TEST(bad_input_ends_in_one_line)},
    {TEST(under_a_launcher_one_rank_speaks)},
    {TEST(help_fits_a_screen)},
    {TEST(a_dry_run_is_not_judged)},
    {TEST(output_that_is_lost_is_a_failure)},
};
CHECK_MAIN(tests)
